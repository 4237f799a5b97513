//! Relationship matrices.

use teatime::{Device, Error, Result, Run};

use super::{Cohort, no_variant, plan::Wanted};
#[cfg(doc)]
use crate::{MissingCalls, Scaler};
use crate::{
    grm::{Grm, GrmMethod, GrmOptions, OP},
    source::Genotypes,
};

/// Computes the genomic relationship matrix of the samples of `genotypes`, in memory bounded by `run.memory`.
///
/// The dosage of a call is its number of non-reference alleles; a call with a missing allele is missing. Samples may have any ploidy, the same for
/// all. Variants of all contigs take part, where plink2 leaves out those of sex chromosomes and mitochondria. The sums are those of the exact
/// [`pca`](crate::pca()). So, for [`MissingCalls::Mean`], the eigenvalues of the matrix are the squared singular values of the PCA over a factor:
/// M with [`Scaler::Binom2`] for [`GrmMethod::Gcta`] of diploids, and the sum of 2 p (1 - p) with [`Scaler::Center`] for [`GrmMethod::VanRaden1`].
///
/// # Shapes
/// `genotypes`: (variants, samples) -> (samples, samples); for [`MissingCalls::Pairwise`] also the numbers of variants, in the same shape.
///
/// # Accuracy
/// Sums over calls of up to two alleles, and over dosages 0, 1 and 2, are of integers. They are exact but for the rounding of each variant's
/// squared scale to 20 bits or more. From 2^17 variants on, scales of common variants are rounded to 12 bits, up or down in such turns that
/// relationships are good to about 1.3e-6 of the larger of the two diagonal entries. These sums have the same bits on every device. Other sums
/// are in f32 over 256 to 4,096 variants, and across these in f64, or in two f32 if the device has no f64: good to about 1e-6 on the cpu device,
/// 1e-5 on a GPU that adds up terms one by one. Counts of variants are exact. Results stay the same to the bit for any chunks and threads.
///
/// # Cost
/// One pass: variants x samples² operations on the device; a rare variant, which fewer than one sample in 16 carries, costs
/// only the pairs of its carriers. [`MissingCalls::Pairwise`], and once more [`GrmMethod::VanRaden1`], add the pairs of
/// missing calls if two bits hold a call; otherwise variants x samples² operations again over blocks with missing calls.
/// Each of these sums takes 8 samples² bytes on the host and 4 on the device; 20 on the host if two bits do not hold a call.
///
/// # Errors
/// [`Error::Argument`] without samples or variants, for a filter out of range, and if no variant is left that varies; other
/// errors as of [`Cohort::load`].
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, store::MemoryArray};
/// use teatime_genotype::{Genotypes, GrmOptions, grm};
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
    /// Computes the relationships of the samples as [`grm`] does. If they were [wanted](Wanted::grm),
    /// this makes no further pass. The matrix is handed over, so asking again makes a pass.
    ///
    /// # Errors
    /// Fails as [`grm`] does, and with [`Error::Argument`] if dosages above the ploidy were not an
    /// error for any result that the genotypes were loaded for.
    pub fn grm(&self, options: &GrmOptions, run: &Run) -> Result<Grm> {
        options.check(self.genotypes())?;
        self.check_bounded(OP, true)?;
        let sums = self.take_pair_sums(options.sums(&self.reader), run)?;
        let counts = sums.totals.counts;
        if counts.used == 0 {
            return Err(Error::argument(OP, "genotypes", no_variant(&counts)));
        }
        let mut matrix = sums.products;
        let products = matrix.data_mut().iter_mut();
        // The scaler divides by 2 p (1 - p) whatever the ploidy.
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

/// Divides `value` by `over`; returns NaN if `over` is 0 or, by rounding, slightly below.
fn ratio(value: f64, over: f64) -> f64 {
    if over > 0.0 { value / over } else { f64::NAN }
}
