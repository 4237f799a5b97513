//! The first measurements on a card, in pieces, which `./run flight` of a bundle starts.
//!
//! Row counts are powers of ten, as the headline's is: 10,000,000 x 20,000 random codes of two bits, and 20 columns. So a time in the table can
//! be scaled to that size. A device measures the largest sizes that fit its memory and the available time.

mod bed;
mod cold;
mod dense;
mod headline;
mod missing;
mod rates;
mod rows;
mod switches;

pub(crate) use headline::svd;

use crate::{args::Piece, measure::Session, table};

/// Measures one piece on the session's device, after printing which decision its figures are for.
pub(crate) fn fly(piece: Piece, session: &mut Session<'_>) {
    table::print(decides(piece));
    match piece {
        Piece::Headline => headline::headline(session),
        Piece::Missing => missing::missing(session),
        Piece::Switches => switches::switches(session),
        Piece::Pairs => dense::pairs(session),
        Piece::Dense => dense::dense(session),
        Piece::Rates => rates::rates(session),
        Piece::Bed => bed::bed(session),
        Piece::Startup => cold::startup(session),
    }
}

/// Returns the decision that a piece's figures are for. Lower bounds come from the memory bandwidth that `bench` measures, and from `rates`.
const fn decides(piece: Piece) -> &'static str {
    match piece {
        Piece::Headline => {
            "A pass should take twice its 50 GB by the rate of memory. Above 1.5 times that, `profile` says what binds it."
        }
        Piece::Missing => {
            "Rows with a few missing codes should cost at most 1.2 times those with none; else these few need sums of their own."
        }
        Piece::Switches => {
            "The device's own lengths come first. If others are faster by 3 % or more, they are to be its own, in driver/cuda/tuning.rs."
        }
        Piece::Pairs => {
            "On an H100 10,000,000 rows of 20,000 should take 3.0 s for distances (scripts/cuda-plan); else in proportion to the best rate of \
             `products of bytes`. Where they take twice that, `profile` says whether tiles of pairs are next."
        }
        Piece::Dense => {
            "On an H100 distances of 20,000 observations, 10,000 features, should take 0.12 s by the lanes of f32. A Gaussian: two times its image by the rate of memory. \
             A chain that takes longer than the nearest of as many observations is bound by its decomposition, not by its search."
        }
        Piece::Rates => {
            "Products of bytes above 80 % of the vendor's dense rate need no wgmma. Additions tell how many workgroups may share a sum; reads of \
             what is in the L2 cache, how large tiles have to be; launches, how long one has to be."
        }
        Piece::Bed => {
            "The first pass should take the .bed by the rate of a copy to the device; else reading or recoding binds it."
        }
        Piece::Startup => {
            "Above 1 s with a filled cache, the kernels that a job needs first are to be compiled beside its reading."
        }
    }
}

/// Returns the number of measurements among which a piece's time is divided.
pub(crate) const fn entries(piece: Piece) -> f64 {
    match piece {
        Piece::Missing => missing::ENTRIES,
        Piece::Switches => switches::ENTRIES,
        Piece::Pairs => dense::PAIRS,
        Piece::Dense => dense::DENSE,
        Piece::Rates => rates::ENTRIES,
        Piece::Headline | Piece::Bed | Piece::Startup => 1.0,
    }
}
