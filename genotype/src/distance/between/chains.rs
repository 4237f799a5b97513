//! The variants that two matrices share, in passes over both.

use std::ops::Range;

use teatime::{Error, Result};

use super::OP;
use crate::{lists::push, project::Match};

/// The maximum number of passes that variants in different orders may take.
const MAX_PASSES: usize = 64;

/// Variants that both matrices have, in ascending order in both.
#[derive(Default)]
pub(super) struct Chain {
    /// The indices of the variants in both matrices.
    pub(super) rows: [Vec<Range<u64>>; 2],
    /// True for each variant whose counted allele differs between the two matrices.
    pub(super) swapped: Vec<bool>,
}

impl Chain {
    /// Makes the fewest chains that hold all variants.
    pub(super) fn from_matches(matches: &[Option<Match>], variants: u64) -> Result<Vec<Self>> {
        let refuse = |why: String| Err(Error::argument(OP, "matches", why));
        let mut chains: Vec<Self> = Vec::new();
        for (row, matched) in (0..).zip(matches) {
            let Some(matched) = matched else { continue };
            let (with, swapped) = (u64::from(matched.row()), matches!(matched, Match::Swapped(_)));
            if with >= variants {
                return refuse(format!("variant {row} is number {with} of {variants}"));
            }
            // Ends of chains descend: this finds the chain with the largest end that is not after the variant.
            let at = chains.partition_point(|chain| chain.end() > with);
            if at == MAX_PASSES {
                return refuse(format!(
                    "variant {row} is number {with}: the variants are in so different orders that they would take more than \
                     {MAX_PASSES} passes; sort one of both"
                ));
            }
            if at == chains.len() {
                chains.push(Self::default());
            }
            chains[at].push([row, with], swapped);
        }
        if chains.is_empty() {
            refuse(format!("none of the {} variants is in both", matches.len()))
        } else {
            Ok(chains)
        }
    }

    /// Returns the index after the chain's last variant of the second matrix.
    fn end(&self) -> u64 {
        self.rows[1].last().map_or(0, |rows| rows.end)
    }

    fn push(&mut self, numbers: [u64; 2], swapped: bool) {
        self.rows.iter_mut().zip(numbers).for_each(|(rows, number)| push(rows, number));
        self.swapped.push(swapped);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.rows.iter().map(|rows| 16 * rows.len() as u64).sum::<u64>() + self.swapped.len() as u64
    }
}
