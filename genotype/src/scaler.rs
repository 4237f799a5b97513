//! The centring and scaling of a variant's dosages.

use rayon::prelude::*;
use teatime::{Element, linalg::Stats};

use super::{filter::VariantFilter, reader::Reader};

/// The rule by which a variant's dosages are centred and scaled. Missing dosages become the variant's mean.
///
/// With p = mean / ploidy over the called samples, the rules are:
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Scaler {
    /// (x - mean) / sqrt(p (1 - p)): Patterson, Price and Reich 2006, as in scikit-allel and sgkit.
    #[default]
    Patterson,
    /// (x - mean) / sqrt(2 p (1 - p)): plink2's variance-standardised matrix, flashpca's `binom2`.
    Binom2,
    /// (x - mean) / standard deviation (ddof 0) of the called dosages.
    Standard,
    /// x - mean.
    Center,
    /// The dosage x itself.
    None,
}

teatime::names! {
    Scaler {
        Patterson = "patterson", Binom2 = "binom2", Standard = "standard", Center = "center", None = "none",
    }
}

impl Scaler {
    /// Returns true if the mean is subtracted from dosages.
    pub(crate) const fn is_centred(self) -> bool {
        !matches!(self, Self::None)
    }

    /// Returns true if dosages are not divided.
    pub(crate) const fn is_whole(self) -> bool {
        matches!(self, Self::Center | Self::None)
    }

    /// Returns true if dosages must lie between 0 and the ploidy.
    pub(crate) const fn needs_frequency(self) -> bool {
        matches!(self, Self::Patterson | Self::Binom2)
    }
}

/// The centring and scaling of one variant's dosages: `(dosage - shift) scale`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct VariantScale {
    /// The value that a missing dosage takes.
    pub(crate) mean: f64,
    pub(crate) shift: f64,
    pub(crate) scale: f64,
    pub(crate) called: u64,
    pub(crate) dropped: Option<DropReason>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ScaleRule {
    pub(crate) samples: u64,
    pub(crate) ploidy: u64,
    /// True if the sums are of integers, so exact.
    pub(crate) exact: bool,
    pub(crate) scaler: Scaler,
    pub(crate) filter: VariantFilter,
}

/// The reason why a variant takes no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DropReason {
    AboveMissing,
    AllMissing,
    BelowMaf,
    ZeroVariance,
}

impl ScaleRule {
    pub(crate) fn new(reader: &Reader, scaler: Scaler, filter: VariantFilter) -> Self {
        let (samples, ploidy) = (reader.samples(), reader.genotypes.ploidy());
        Self { samples, ploidy, exact: reader.form.is_exact(), scaler, filter }
    }

    /// Computes the scale of each variant, in parallel on the calling thread's pool.
    pub(crate) fn scales(&self, stats: &[Stats]) -> Vec<VariantScale> {
        stats.par_iter().with_min_len(1024).map(|stats| VariantScale::new(stats, self)).collect()
    }
}

impl VariantScale {
    /// Computes the scale from a variant's sums over its called samples, in f64.
    pub(crate) fn new(stats: &Stats, rule: &ScaleRule) -> Self {
        let ScaleRule { samples, ploidy, exact, scaler, filter } = *rule;
        let called = stats.count;
        let dropped = |why, mean| Self { mean, shift: 0.0, scale: 0.0, called, dropped: Some(why) };
        let missing = (samples - stats.count) as f64 / samples as f64;
        if missing > filter.max_missing {
            return dropped(DropReason::AboveMissing, f64::NAN);
        }
        if stats.count == 0 {
            return dropped(DropReason::AllMissing, f64::NAN);
        }
        let count = stats.count as f64;
        let mean = stats.sum / count;
        let p = mean / ploidy as f64;
        let variance = stats.sum_squares / count - mean * mean;
        // The spread is count² times the variance. For integer dosages it is an integer, so at least 1 unless
        // all are equal; sums of other dosages in f64 are accurate to less than 1e-12 of the mean square.
        let spread = count * stats.sum_squares - stats.sum * stats.sum;
        let constant = if exact { spread < 0.5 } else { spread <= 1e-12 * count * stats.sum_squares };
        if filter.min_maf > 0.0 && p.min(1.0 - p) < filter.min_maf {
            return dropped(DropReason::BelowMaf, mean);
        }
        if constant {
            return dropped(DropReason::ZeroVariance, mean);
        }
        let (shift, scale) = match scaler {
            Scaler::Patterson => (mean, 1.0 / (p * (1.0 - p)).sqrt()),
            Scaler::Binom2 => (mean, 1.0 / (2.0 * p * (1.0 - p)).sqrt()),
            Scaler::Standard => (mean, 1.0 / variance.sqrt()),
            Scaler::Center => (mean, 1.0),
            Scaler::None => (0.0, 1.0),
        };
        Self { mean, shift, scale, called, dropped: None }
    }

    /// Returns true if the variant takes part.
    pub(crate) const fn is_used(&self) -> bool {
        self.dropped.is_none()
    }

    /// Returns true if the filters keep the variant, though it may not vary or have no call.
    pub(crate) fn is_kept(&self) -> bool {
        !matches!(self.dropped, Some(DropReason::AboveMissing | DropReason::BelowMaf))
    }

    /// Returns the variance of the dosages in Hardy-Weinberg equilibrium, k p (1 - p) at ploidy k; 0 if no sample is called.
    pub(crate) fn binomial_variance(&self, ploidy: u64) -> f64 {
        if self.called == 0 { 0.0 } else { self.mean * (1.0 - self.mean / ploidy as f64) }
    }

    /// Returns the row for a kernel that multiplies: the mean, which a missing dosage becomes, and the scale.
    pub(crate) fn factors(&self) -> [f32; 2] {
        if self.is_used() { [self.mean.to_f32(), self.scale.to_f32()] } else { [0.0; 2] }
    }

    /// Returns the sum of magnitudes of the standardised row of dosages 0 to 2.
    pub(crate) fn sum_magnitudes(&self, stats: &Stats, samples: u64) -> f64 {
        let twos = (stats.sum_squares - stats.sum) / 2.0;
        let ones = stats.sum - 2.0 * twos;
        let zeros = stats.count as f64 - ones - twos;
        let missing = (samples - stats.count) as f64 * (self.mean - self.shift).abs();
        let called = [zeros, ones, twos].into_iter().zip([0.0, 1.0, 2.0]);
        self.scale
            * (missing + called.map(|(count, dosage)| count * (dosage - self.shift).abs()).sum::<f64>())
    }

    /// Returns the sum of squares of the standardised row.
    pub(crate) fn sum_squares(&self, stats: &Stats, samples: u64) -> f64 {
        if !self.is_used() {
            return 0.0;
        }
        let (count, missing) = (stats.count as f64, (samples - stats.count) as f64);
        let called = stats.sum_squares - 2.0 * self.shift * stats.sum + count * self.shift * self.shift;
        let fill = self.mean - self.shift;
        self.scale * self.scale * (called + missing * fill * fill)
    }
}
