//! The counts of a row's codes, and the terms that add the row to sums.

use super::LIMBS;
use crate::{
    kernels::packed_gather::Recode,
    linalg::Stats,
    packed::pair_products::{Kind, Multiples, PairProducts, RowTerms},
};

/// The number of occurrences of each code in a row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Codes {
    zero: u64,
    one: u64,
    two: u64,
    pub(super) absent: u64,
}

/// A recoding of a row, and the number of codes that it leaves nonzero.
pub(super) struct Recoded {
    recode: Recode,
    codes: u64,
}

impl Codes {
    /// `None` if no row can have these statistics.
    pub(super) fn new(stats: &Stats, columns: u64) -> Option<Self> {
        let Stats { sum, sum_squares, count, .. } = *stats;
        let [one, two] = [2.0 * sum - sum_squares, (sum_squares - sum) / 2.0];
        let is_count = |value: f64| value >= 0.0 && value.fract() == 0.0 && value <= columns as f64;
        if !is_count(one) || !is_count(two) || count > columns {
            return None;
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole, and not negative")]
        let [one, two] = [one as u64, two as u64];
        Some(Self { zero: count.checked_sub(one + two)?, one, two, absent: columns - count })
    }

    /// True if the row has missing codes; `None` if the row is skipped.
    pub(super) fn part(row: &Option<Self>) -> Option<bool> {
        row.as_ref().map(|codes| codes.absent > 0)
    }

    pub(super) fn filled(&self) -> Recoded {
        match self.two > self.zero {
            true => Recoded { recode: Recode([2, 1, 0, 1]), codes: self.zero + self.one + self.absent },
            false => Recoded { recode: Recode([0, 1, 2, 1]), codes: self.two + self.one + self.absent },
        }
    }

    pub(super) fn known(&self) -> Recoded {
        Recoded { recode: Recode([0, 1, 2, 0]), codes: self.two + self.one }
    }

    pub(super) fn ones(&self) -> Recoded {
        Recoded { recode: Recode([0, 1, 0, 0]), codes: self.one }
    }

    pub(super) fn odd(&self) -> Recoded {
        Recoded { recode: Recode([0, 1, 0, 1]), codes: self.one + self.absent }
    }

    pub(super) fn absent(&self) -> Recoded {
        Recoded { recode: Recode::MISSING, codes: self.absent }
    }
}

impl Recoded {
    /// Returns the row's terms, or `None` if they would add nothing.
    pub(super) fn terms(&self, sums: &PairProducts, factor: i32) -> Option<RowTerms> {
        // The kernel for rare rows does not support negative factors.
        let rare = factor > 0 && sums.is_rare(self.codes as f64);
        (factor != 0 && self.codes > 0).then_some(RowTerms {
            recode: self.recode,
            kind: Kind { rare, missing: false, limb_count: LIMBS, power: 0 },
            multiples: Multiples { one: factor, filled: 0, square: 0 },
        })
    }
}
