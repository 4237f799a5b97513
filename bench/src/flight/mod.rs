//! The first run on a card, in pieces: what `./run flight` of a bundle starts.
//!
//! Sizes are powers of ten of the rows of the headline, 10,000,000 x 20,000 random codes of two bits and 20 columns, so that
//! a row of the table times a power of ten is its time at that size. A device takes the largest that fit its memory and the
//! time there is.

mod bed;
mod cold;
mod dense;
mod headline;
mod missing;
mod rows;
mod switches;

pub(crate) use headline::svd;

use crate::{args::Piece, measure::Session};

/// Measures one piece on the session's device.
pub(crate) fn fly(piece: Piece, session: &mut Session<'_>) {
    match piece {
        Piece::Headline => headline::headline(session),
        Piece::Missing => missing::missing(session),
        Piece::Switches => switches::switches(session),
        Piece::Pairs => dense::pairs(session),
        Piece::Dense => dense::dense(session),
        Piece::Bed => bed::bed(session),
        Piece::Startup => cold::startup(session),
    }
}

/// Measurements that a piece shares its time among.
pub(crate) const fn entries(piece: Piece) -> f64 {
    match piece {
        Piece::Missing => missing::ENTRIES,
        Piece::Switches => switches::ENTRIES,
        Piece::Pairs => dense::PAIRS,
        Piece::Dense => dense::DENSE,
        Piece::Headline | Piece::Bed | Piece::Startup => 1.0,
    }
}
