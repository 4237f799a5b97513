//! Genomic relationship matrices of genotypes bigger than memory.

mod write;
#[cfg(feature = "zarr")]
mod zarr;

#[cfg(test)]
mod tests;

use super::{
    cohort::Cohort,
    filter::{VariantCounts, VariantFilter},
    pair_sums,
    pca::{check_extents, no_variant},
    plan::Wanted,
    reader::Reader,
    scaler::{ScaleRule, Scaler},
    source::Genotypes,
};
use crate::{Budget, Device, Error, Result, Run, linalg::Matrix, stream::StreamStats};

const OP: &str = "genotype::grm";

/// How products of dosages become relationships.
///
/// With x the dosages of non-reference alleles at variant i, k the ploidy and p = mean / k over the called samples:
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrmMethod {
    /// The mean over the variants of (xⱼ - k p)(xₖ - k p) / (k p (1 - p)), the diagonal included: GCTA's (Yang, Lee,
    /// Goddard and Visscher, "GCTA: a tool for genome-wide complex trait analysis", Am. J. Hum. Genet. 88, 2011) as
    /// plink2's `--make-rel` and `--make-grm-bin` have it. Variants that do not vary add 0, and count.
    #[default]
    Gcta,
    /// The sum of (xⱼ - k p)(xₖ - k p) over the sum of k p (1 - p): the first method of `VanRaden`, "Efficient methods
    /// to compute genomic predictions", J. Dairy Sci. 91, 2008, as sgkit's `genomic_relationship` has it.
    VanRaden1,
}

impl GrmMethod {
    /// The method's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gcta => "gcta",
            Self::VanRaden1 => "vanraden1",
        }
    }
}

/// What a missing call counts for. Where no call is missing, both give the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MissingCalls {
    /// Sums of a pair of samples, those that are divided by too, are over the variants called in both: plink2's default,
    /// and sgkit's `skipna`. Such a matrix may have negative eigenvalues. A pair that shares no variant is NaN, as
    /// plink2 has it; with [`GrmMethod::VanRaden1`] also one that shares none with p between 0 and 1.
    #[default]
    Pairwise,
    /// It becomes the variant's mean, and all sums are over all variants: plink2's `meanimpute`. No eigenvalue is
    /// negative, but for rounding.
    Mean,
}

impl MissingCalls {
    /// The rule's name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pairwise => "pairwise",
            Self::Mean => "mean",
        }
    }
}

/// What to compute.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrmOptions {
    /// How products become relationships.
    pub method: GrmMethod,
    /// What a missing call counts for.
    pub missing: MissingCalls,
    /// Which variants take part.
    pub filter: VariantFilter,
}

/// Relationships of the samples of a genotype matrix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Grm {
    /// The relationships (samples, samples), symmetric to the bit.
    pub matrix: Matrix,
    /// For [`MissingCalls::Pairwise`], the number of variants called in both (samples, samples).
    pub shared: Option<Matrix>,
    /// Variants that took part. Those without variance or calls are in M too, as in plink2's:
    /// [`VariantCounts::loaded`].
    pub counts: VariantCounts,
    /// How products became relationships.
    pub method: GrmMethod,
    /// What a missing call counted for.
    pub missing: MissingCalls,
    /// 64-bit FNV-1a of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub digest: u64,
    /// The memory that the plan was made with, defaults in place; of the device none where it shares the host's.
    pub memory: Budget,
    /// Where the time went.
    pub stats: StreamStats,
}

impl Grm {
    /// The number of variants that the relationship of samples `j` and `k` is over.
    ///
    /// # Panics
    /// When there is no such sample.
    pub fn variants(&self, j: usize, k: usize) -> f64 {
        self.shared.as_ref().map_or(self.counts.loaded() as f64, |shared| shared.row(j)[k])
    }

    /// Pairs of samples, each with itself among them, whose relationship is NaN.
    pub fn undefined(&self) -> u64 {
        let lower = (0..self.matrix.rows()).flat_map(|j| &self.matrix.row(j)[..=j]);
        lower.filter(|relationship| relationship.is_nan()).count() as u64
    }
}

/// The genomic relationship matrix of the samples of `genotypes`, in memory bounded by `run.memory`.
///
/// The dosage of a call is its number of non-reference alleles; a call with a missing allele is missing. Any ploidy of
/// all samples; variants of all contigs take part, where plink2 leaves out those of sex chromosomes and mitochondria.
/// The sums are those of the exact [`pca`](super::pca()), so that its squared singular values are eigenvalues of the
/// matrix for [`MissingCalls::Mean`]: with [`Scaler::Binom2`] times M for [`GrmMethod::Gcta`] of diploids, with
/// [`Scaler::Center`] times the sum of 2 p (1 - p) for [`GrmMethod::VanRaden1`].
///
/// # Accuracy
/// Of calls of up to two alleles, and of dosages 0, 1 and 2, sums of whole numbers, exact but for the rounding of each
/// variant's squared scale: to 20 bits or more, and where there are 2^17 variants or more, those of common variants to 12,
/// up or down in such turns that relationships are good to about 1.3e-6 of the larger of the two diagonal entries. The same
/// bits on every device. Of others, sums of f32 over 256 to 4,096 variants, and of f64 over these: to about 1e-6 on the cpu
/// device, 1e-5 where a GPU adds up terms one by one. Counts of variants are exact. Chunks and threads change no bit.
///
/// # Cost
/// One pass: variants x samples² operations on the device; of a rare variant, which fewer than one sample in 16 has, only
/// those of the pairs that have it. As many again where calls are missing, for
/// [`MissingCalls::Pairwise`], and once more for [`GrmMethod::VanRaden1`]. 20 samples² bytes on the host for each.
///
/// # Errors
/// [`Error::Argument`] without samples or variants, for a filter out of range, and when no variant is left that varies;
/// [`Error::Budget`] with the least that would do; [`Error::OutOfMemory`] where the device has not even that, though the
/// budget allows it; [`Error::Chunk`] for a damaged or missing chunk or values out of range; [`Error::Cancelled`].
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, genotype::{Genotypes, GrmOptions, grm}, store::MemoryArray};
///
/// // The first two samples are alike, and unlike the third.
/// let dosages = [[0i8, 0, 2], [2, 2, 0], [0, 1, 2], [2, 2, 0]];
/// let array = MemoryArray::new("dosages", dosages.as_flattened(), &[4, 3], &[2, 3])?;
/// let genotypes = Genotypes::new(vec![Arc::new(array)])?;
/// let result = grm(&genotypes, &Device::cpu(), &GrmOptions::default(), &Run::default())?;
/// assert!(result.matrix.row(0)[1] > 0.5 && result.matrix.row(0)[2] < -0.5);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn grm(genotypes: &Genotypes, device: &Device, options: &GrmOptions, run: &Run) -> Result<Grm> {
    Cohort::load(genotypes, device, &Wanted::default().grm(options), run)?.grm(options, run)
}

impl Cohort {
    /// Relationships of the samples: [`grm`]. Where they were [wanted](Wanted::grm), no more pass is made; the matrix is
    /// handed over, so that asking again makes one.
    ///
    /// # Errors
    /// As [`grm`], and [`Error::Argument`] where nothing that the genotypes were loaded for made dosages above the ploidy an
    /// error.
    pub fn grm(&self, options: &GrmOptions, run: &Run) -> Result<Grm> {
        check(self.genotypes(), options)?;
        self.check_bounded(OP, true)?;
        let sums = self.take_pair_sums(sums(&self.reader, options), run)?;
        let counts = sums.totals.counts;
        if counts.used == 0 {
            return Err(Error::argument(OP, "genotypes", no_variant(&counts)));
        }
        let mut matrix = sums.products;
        let products = matrix.data_mut().iter_mut();
        // The scaler divides by 2 p (1 - p) whatever the ploidy is.
        let of_ploidy = 2.0 / self.genotypes().ploidy() as f64;
        match (options.method, &sums.shared, &sums.variance) {
            (GrmMethod::Gcta, Some(shared), _) => {
                products.zip(shared.data()).for_each(|(product, &count)| *product *= ratio(of_ploidy, count));
            }
            (GrmMethod::Gcta, None, _) => {
                let factor = of_ploidy / counts.loaded() as f64;
                products.for_each(|product| *product *= factor);
            }
            (GrmMethod::VanRaden1, _, Some(variance)) => {
                products
                    .zip(variance.data())
                    .for_each(|(product, &variance)| *product = ratio(*product, variance));
            }
            (GrmMethod::VanRaden1, _, None) => products.for_each(|product| *product /= sums.total_variance),
        }
        Ok(Grm {
            matrix,
            shared: sums.shared,
            counts,
            method: options.method,
            missing: options.missing,
            digest: self.digest(),
            memory: self.memory(),
            stats: self.stats(),
        })
    }
}

/// # Errors
/// [`Error::Argument`] for no samples or variants, and filters out of range.
pub(super) fn check(genotypes: &Genotypes, options: &GrmOptions) -> Result<()> {
    check_extents(OP, genotypes.samples(), genotypes.variants())?;
    options.filter.check(OP)
}

/// The sums that a relationship matrix is made of.
pub(super) fn sums(reader: &Reader, options: &GrmOptions) -> pair_sums::Wanted {
    let scaler = match options.method {
        GrmMethod::Gcta => Scaler::Binom2,
        GrmMethod::VanRaden1 => Scaler::Center,
    };
    let shared = options.missing == MissingCalls::Pairwise;
    let variance = shared && options.method == GrmMethod::VanRaden1;
    pair_sums::Wanted { rule: ScaleRule::new(reader, scaler, options.filter), shared, variance }
}

/// NaN over nothing, where rounding may have left a little of a sum.
fn ratio(value: f64, over: f64) -> f64 {
    if over > 0.0 { value / over } else { f64::NAN }
}
