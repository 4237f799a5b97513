//! Relationship matrices.

use teatime::{Device, Error, Result, Run};

use super::{Cohort, no_variant, plan::Wanted};
#[cfg(doc)]
use crate::{MissingCalls, Scaler};
use crate::{
    grm::{Grm, GrmMethod, GrmOptions, OP},
    source::Genotypes,
};

/// The genomic relationship matrix of the samples of `genotypes`, in memory bounded by `run.memory`.
///
/// The dosage of a call is its number of non-reference alleles; a call with a missing allele is missing. Any ploidy of
/// all samples; variants of all contigs take part, where plink2 leaves out those of sex chromosomes and mitochondria.
/// The sums are those of the exact [`pca`](crate::pca()), so that its squared singular values are eigenvalues of the
/// matrix for [`MissingCalls::Mean`]: with [`Scaler::Binom2`] times M for [`GrmMethod::Gcta`] of diploids, with
/// [`Scaler::Center`] times the sum of 2 p (1 - p) for [`GrmMethod::VanRaden1`].
///
/// # Shapes
/// `genotypes`: (variants, samples) -> (samples, samples), and for [`MissingCalls::Pairwise`] as many numbers of variants.
///
/// # Accuracy
/// Sums over calls of up to two alleles, and over dosages 0, 1 and 2, are of whole numbers, exact but for the rounding of each
/// variant's squared scale: to 20 bits or more, and where there are 2^17 variants or more, those of common variants to 12,
/// up or down in such turns that relationships are good to about 1.3e-6 of the larger of the two diagonal entries. They have the
/// same bits on every device. Other sums are of f32 over 256 to 4,096 variants, and over these of f64, or of two f32 where a
/// device has none: to about 1e-6 on the cpu device, 1e-5 where a GPU adds up terms one by one. Counts of variants are exact.
/// Chunks and threads change no bit.
///
/// # Cost
/// One pass: variants x samples² operations on the device; of a rare variant, which fewer than one sample in 16 has, only
/// those of the pairs that have it. For [`MissingCalls::Pairwise`], and once more for [`GrmMethod::VanRaden1`], those of the pairs
/// that are both missing, where two bits hold a call; else as many again where calls are missing. Of each, 8 samples² bytes on the
/// host and 4 on the device; 20 on the host where two bits do not hold a call.
///
/// # Errors
/// [`Error::Argument`] without samples or variants, for a filter out of range, and when no variant is left that varies;
/// [`Error::Budget`] with the least that would do; [`Error::OutOfMemory`] where the device has not even that, though the
/// budget allows it; [`Error::Chunk`] for a damaged or missing chunk or values out of range; [`Error::Cancelled`].
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
    /// Relationships of the samples: [`grm`]. Where they were [wanted](Wanted::grm), no more pass is made; the matrix is
    /// handed over, so that asking again makes one.
    ///
    /// # Errors
    /// As [`grm`], and [`Error::Argument`] where nothing that the genotypes were loaded for made dosages above the ploidy an
    /// error.
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

/// NaN over nothing, where rounding may have left a little of a sum.
fn ratio(value: f64, over: f64) -> f64 {
    if over > 0.0 { value / over } else { f64::NAN }
}
