//! What the first pass counts.

use super::{
    pca::VariantCounts,
    scaler::{Fate, Standard},
};
use crate::linalg::Stats;

/// Counts and sums over variants.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) counts: VariantCounts,
    /// Sum of squares of the standardised matrix.
    pub(crate) sum_squares: f64,
    /// FNV-1a of each variant's allele sum and called count.
    pub(crate) digest: u64,
    /// Missing calls of the variants that take part.
    pub(crate) missing_calls: u64,
    /// Bounds of a variant's row times its factor and the larger of 1 and its mean: the largest Euclidean norm, and the
    /// largest sum of magnitudes.
    pub(crate) bounds: [f64; 2],
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

impl Default for Tally {
    fn default() -> Self {
        Self {
            counts: VariantCounts::default(),
            sum_squares: 0.0,
            digest: FNV_OFFSET,
            missing_calls: 0,
            bounds: [0.0; 2],
        }
    }
}

impl Tally {
    /// Adds a variant.
    pub(crate) fn add(&mut self, stats: &Stats, standard: &Standard, samples: u64) {
        self.counts.total += 1;
        match standard.fate {
            Fate::Used => {
                self.counts.used += 1;
                self.missing_calls += samples - stats.count;
            }
            // Of the total, what no other count has.
            Fate::NotInReference => {}
            Fate::AllMissing => self.counts.all_missing += 1,
            Fate::AboveMissing => self.counts.above_missing += 1,
            Fate::BelowMaf => self.counts.below_maf += 1,
            Fate::ZeroVariance => self.counts.zero_variance += 1,
        }
        let squares = standard.sum_squares(stats, samples);
        self.sum_squares += squares;
        for byte in stats.sum.to_le_bytes().into_iter().chain(stats.count.to_le_bytes()) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        if standard.fate == Fate::Used {
            let factor = standard.scale * standard.mean.max(1.0);
            let magnitudes = standard.sum_magnitudes(stats, samples);
            self.bounds[0] = self.bounds[0].max(factor * squares.sqrt());
            self.bounds[1] = self.bounds[1].max(factor * magnitudes);
        }
    }
}
