//! What the first pass counts.

use rayon::prelude::*;

use super::{
    filter::VariantCounts,
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
const FNV_PRIME: u64 = 0x0100_0000_01b3;

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
    /// Adds variants; the calling thread's pool shares the work.
    pub(crate) fn add(&mut self, stats: &[Stats], standards: &[Standard], samples: u64) {
        let variants = stats.par_iter().zip(standards).with_min_len(1024);
        let sums: Vec<[f64; 3]> = variants.map(|(stats, standard)| sums(stats, standard, samples)).collect();
        // One after the other, for the same bits.
        for ((stats, standard), [squares, norm, magnitudes]) in stats.iter().zip(standards).zip(sums) {
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
            self.sum_squares += squares;
            for byte in stats.sum.to_le_bytes().into_iter().chain(stats.count.to_le_bytes()) {
                self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(FNV_PRIME);
            }
            self.bounds = [self.bounds[0].max(norm), self.bounds[1].max(magnitudes)];
        }
    }
}

/// Of a variant's row its sum of squares, and what [`Tally::bounds`] bounds.
fn sums(stats: &Stats, standard: &Standard, samples: u64) -> [f64; 3] {
    let squares = standard.sum_squares(stats, samples);
    if standard.fate != Fate::Used {
        return [squares, 0.0, 0.0];
    }
    let factor = standard.scale * standard.mean.max(1.0);
    [squares, factor * squares.sqrt(), factor * standard.sum_magnitudes(stats, samples)]
}
