//! Counts and sums over all variants.

use rayon::prelude::*;
use teatime::linalg::Stats;

use super::{
    filter::VariantCounts,
    scaler::{DropReason, VariantScale},
};

/// The counts and sums over all variants, as one rule scales them.
#[derive(Clone, Debug, Default)]
pub(crate) struct VariantTotals {
    pub(crate) counts: VariantCounts,
    /// The sum of squares of the standardised matrix.
    pub(crate) sum_squares: f64,
    /// Upper bounds over all variants, where a standardised row is multiplied by its factor and the
    /// larger of 1 and its mean: of the row's Euclidean norm, and of its sum of magnitudes.
    pub(crate) bounds: [f64; 2],
}

impl VariantTotals {
    /// Adds variants, in parallel on the calling thread's pool.
    pub(crate) fn add(&mut self, stats: &[Stats], scales: &[VariantScale], samples: u64) {
        let variants = stats.par_iter().zip(scales).with_min_len(1024);
        let sums: Vec<[f64; 3]> = variants.map(|(stats, scale)| sums(stats, scale, samples)).collect();
        // The sums are added one after the other, for the same bits.
        for ((stats, scale), [squares, norm, magnitudes]) in stats.iter().zip(scales).zip(sums) {
            self.counts.total += 1;
            self.counts.missing_calls += samples - stats.count;
            match scale.dropped {
                None => self.counts.used += 1,
                Some(DropReason::AllMissing) => self.counts.all_missing += 1,
                Some(DropReason::AboveMissing) => self.counts.above_missing += 1,
                Some(DropReason::BelowMaf) => self.counts.below_maf += 1,
                Some(DropReason::ZeroVariance) => self.counts.zero_variance += 1,
            }
            self.sum_squares += squares;
            self.bounds = [self.bounds[0].max(norm), self.bounds[1].max(magnitudes)];
        }
    }

    pub(crate) fn merge(&mut self, mut other: Self) {
        let counts = self.counts.each().into_iter().zip(other.counts.each());
        counts.for_each(|(own, other)| *own += *other);
        self.sum_squares += other.sum_squares;
        self.bounds = [self.bounds[0].max(other.bounds[0]), self.bounds[1].max(other.bounds[1])];
    }
}

/// Returns the sum of squares of a variant's row, and its two values that [`VariantTotals::bounds`] bounds.
fn sums(stats: &Stats, scale: &VariantScale, samples: u64) -> [f64; 3] {
    let squares = scale.sum_squares(stats, samples);
    if !scale.is_used() {
        return [squares, 0.0, 0.0];
    }
    let factor = scale.scale * scale.mean.max(1.0);
    [squares, factor * squares.sqrt(), factor * scale.sum_magnitudes(stats, samples)]
}
