//! The filter of variants, and the number of those that it keeps.

use teatime::{
    Error, Result,
    stable_text::{StableText, fields},
};

/// The rules that a variant has to meet to take part, over the samples with a call.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct VariantFilter {
    /// The minimum minor allele frequency, as plink2's `--maf`. All non-reference alleles count as one.
    pub min_maf: f64,
    /// Largest fraction of missing calls, as plink2's `--geno`.
    pub max_missing: f64,
}

impl StableText for VariantFilter {
    fn stable_text(&self) -> String {
        let Self { min_maf, max_missing } = self;
        fields("VariantFilter", &[("min_maf", min_maf), ("max_missing", max_missing)])
    }
}

teatime::setters! {
    VariantFilter {
        min_maf(f64),
        max_missing(f64),
    }
}

impl VariantFilter {
    /// # Errors
    /// [`Error::Argument`] for fractions out of range.
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
    /// Keeps every variant.
    fn default() -> Self {
        Self { min_maf: 0.0, max_missing: 1.0 }
    }
}

/// The number of variants that took part, and of those that each rule dropped. A variant counts under the first rule that drops
/// it, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct VariantCounts {
    /// Variants of the store.
    pub total: u64,
    /// Variants that took part.
    pub used: u64,
    /// With more missing calls than allowed.
    pub above_missing: u64,
    /// Without a called sample.
    pub all_missing: u64,
    /// With a minor allele frequency below the least.
    pub below_maf: u64,
    /// With equal dosages in all called samples.
    pub zero_variance: u64,
    /// Missing calls of all variants of the store.
    pub missing_calls: u64,
}

impl StableText for VariantCounts {
    fn stable_text(&self) -> String {
        let Self { total, used, above_missing, all_missing, below_maf, zero_variance, missing_calls } = self;
        fields(
            "VariantCounts",
            &[
                ("total", total),
                ("used", used),
                ("above_missing", above_missing),
                ("all_missing", all_missing),
                ("below_maf", below_maf),
                ("zero_variance", zero_variance),
                ("missing_calls", missing_calls),
            ],
        )
    }
}

impl VariantCounts {
    /// Variants that pass the filters, those without variance or calls included: the M that plink2 and flashpca divide
    /// eigenvalues by.
    pub fn loaded(&self) -> u64 {
        self.used + self.zero_variance + self.all_missing
    }
}
