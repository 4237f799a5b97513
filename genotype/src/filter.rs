//! The filter of variants, and the counts of those that it keeps and drops.

use teatime::{Error, Result};

/// The conditions that a variant has to meet to take part, over the called samples.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct VariantFilter {
    /// The smallest minor allele frequency, as in plink2's `--maf`. All non-reference alleles count as one.
    pub min_maf: f64,
    /// The largest fraction of missing calls, as in plink2's `--geno`.
    pub max_missing: f64,
}

teatime::stable_text! { struct VariantFilter { min_maf, max_missing } }

teatime::setters! {
    VariantFilter {
        min_maf(f64),
        max_missing(f64),
    }
}

impl VariantFilter {
    pub(super) fn check(&self, op: &'static str) -> Result<()> {
        let Self { min_maf, max_missing } = *self;
        if !(0.0..=0.5).contains(&min_maf) {
            return Err(Error::argument(op, "min_maf", format_args!("{min_maf} is not between 0 and 0.5")));
        }
        if !(0.0..=1.0).contains(&max_missing) {
            let why = format!("{max_missing} is not between 0 and 1");
            return Err(Error::argument(op, "max_missing", why));
        }
        Ok(())
    }
}

impl Default for VariantFilter {
    /// Returns a filter that keeps every variant.
    fn default() -> Self {
        Self { min_maf: 0.0, max_missing: 1.0 }
    }
}

/// The number of variants that took part, and the number that each rule dropped. A variant counts
/// under the first rule that drops it, in the order of the fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VariantCounts {
    /// The number of variants of the store.
    pub total: u64,
    /// The number of variants that took part.
    pub used: u64,
    /// The number of variants with more missing calls than allowed.
    pub above_missing: u64,
    /// The number of variants without a called sample.
    pub all_missing: u64,
    /// The number of variants with a minor allele frequency below the smallest.
    pub below_maf: u64,
    /// The number of variants with equal dosages in all called samples.
    pub zero_variance: u64,
    /// The number of missing calls of all variants of the store.
    pub missing_calls: u64,
}

teatime::stable_text! {
    struct VariantCounts {
        total, used, above_missing, all_missing, below_maf, zero_variance, missing_calls,
    }
}

impl VariantCounts {
    pub(crate) fn each(&mut self) -> [&mut u64; 7] {
        let Self { total, used, above_missing, all_missing, below_maf, zero_variance, missing_calls } = self;
        [total, used, above_missing, all_missing, below_maf, zero_variance, missing_calls]
    }

    /// Returns the number of variants that pass the filters, including variants without variance or
    /// calls: the M by which plink2 and flashpca divide eigenvalues.
    pub fn loaded(&self) -> u64 {
        self.used + self.zero_variance + self.all_missing
    }
}
