//! Projections.

#[cfg(doc)]
use teatime::Error;
use teatime::{Device, Result, Run};

use super::{Cohort, plan::Wanted};
use crate::{
    project::{Match, Matched, OP, ProjectMethod, Projection, ProjectionSums, ReferenceLoadings, solve},
    source::Genotypes,
};

/// Computes coordinates of the samples of `genotypes` on the components of a reference, in memory bounded by `run.memory`.
///
/// With the reference's loadings u (unit norm), shift and scale of each variant, the score of a sample of dosages g is
///
/// ```text
/// score = Σ u (g - shift) / scale     over the variants that the genotypes and the reference have
/// ```
///
/// where a missing g is the reference's mean, so that it adds nothing once centred; [`ProjectMethod::LeastSquares`] instead uses only the calls that
/// exist. These scores are X V of flashpca's `--project` (`RandomPCA::project`, before its division by √div), and scikit-allel's and sgkit's
/// `transform`, which refuse missing calls or propagate them. For the reference's own samples they are the [`scores`](crate::Pca::scores) of its PCA;
/// - divided by the singular value, they are plink2's eigenvectors;
/// - flashpca divides by √M, where M counts the variants of its loadings, in `binom2` scaling: for
///   a reference in `patterson` scaling its coordinates are scores / √(2 M).
///
/// `matches` says for each variant of `genotypes` which variant of the reference it is, if any, in any order;
/// each reference variant occurs at most once. Variants of the reference that the genotypes lack add nothing:
/// the more are lacking, the nearer scores are to zero, except with [`ProjectMethod::LeastSquares`]. If all samples are known to be
/// homozygous there, [`Wanted::absent`] adds what such calls would add.
///
/// New samples lie nearer to zero than the reference's own samples, more so with fewer reference samples, since
/// the noise of the reference's samples is in its loadings. This is not corrected here, nor in flashpca or plink2.
///
/// # Shapes
/// `genotypes`: (variants, samples), `matches`: (variants,) -> (samples, components of the reference).
///
/// # Accuracy
/// For whole dosages of diploids and haploids, loadings over scales are rounded to multiples of 2^-31 of each component's largest;
/// their sums are exact: the same bits on every device, for any order of the variants and any swapped alleles. For other ploidies
/// and fractions, sums are in f32 over 256 to 4,096 variants, and across these in f64, or in two f32 if the device has no f64.
///
/// # Cost
/// One pass, with 4 (k + 1) x variants x samples operations on bytes (for other ploidies and fractions, 2 k in
/// f32). Variants with missing calls cost as much again, and with [`ProjectMethod::LeastSquares`] that much for
/// each of k (k + 1) / 2 products. The host holds the reference and 8 bytes a variant in addition to blocks.
///
/// # Errors
/// [`Error::Shape`] unless `matches` has one entry for each selected variant; [`Error::Argument`] for no samples, a ploidy that differs from
/// the reference's, a variant that the reference does not have or that occurs twice, and no match at all; [`Error::Budget`] with the smallest
/// budget that would do, including the reference; [`Error::Chunk`] for a damaged or missing chunk or values out of range; [`Error::Cancelled`].
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, store::MemoryArray};
/// use teatime_genotype::{Genotypes, Match, PcaOptions, ProjectMethod, ReferenceLoadings, loadings, pca, project};
///
/// let array = |dosages: &[i8], samples| MemoryArray::new("dosages", dosages, &[4, samples], &[4, samples]);
/// let reference = Genotypes::new(vec![Arc::new(array(&[0, 0, 2, 2, 2, 2, 0, 1, 0, 1, 2, 2, 2, 2, 0, 0], 4)?)])?;
/// let (device, run) = (Device::cpu(), Run::default());
/// let options = PcaOptions::default().components(1);
/// let components = pca(&reference, &device, &options, &run)?;
/// let mut rows = ReferenceLoadings::new(options.scaler, 2, 1)?;
/// loadings(&reference, &device, &components, &options, &run, &mut |row| {
///     rows.push(row.frequency, row.shift, row.scale, row.loadings)
/// })?;
///
/// // One new sample, like the first two of the reference.
/// let new = Genotypes::new(vec![Arc::new(array(&[0, 2, 0, 2], 1)?)])?;
/// let matches: Vec<_> = (0..4).map(|row| Some(Match::Same(row))).collect();
/// let projection = project(&new, &device, &rows, &matches, ProjectMethod::Mean, &run)?;
/// assert!((projection.scores.row(0)[0] - components.scores().row(0)[0]).abs() < 1e-5);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn project(
    genotypes: &Genotypes,
    device: &Device,
    reference: &ReferenceLoadings,
    matches: &[Option<Match>],
    method: ProjectMethod,
    run: &Run,
) -> Result<Projection> {
    let wanted = Wanted::default().projection(reference, matches, method);
    let Some(projection) = Cohort::load(genotypes, device, &wanted, run)?.projection else {
        unreachable!("a projection that is wanted was made");
    };
    Ok(projection)
}

impl Cohort {
    /// Computes coordinates of the samples on the components of a reference as [`project`] does, by one more pass.
    /// A projection that was [wanted](Wanted::projection) takes none: [`projection`](Self::projection) returns it.
    ///
    /// # Errors
    /// Fails as [`project`] does, and with [`Error::Argument`] if the reference takes no dosages above
    /// the ploidy, though these were not an error for any result that the genotypes were loaded for.
    pub fn project(
        &self,
        reference: &ReferenceLoadings,
        matches: &[Option<Match>],
        method: ProjectMethod,
        run: &Run,
    ) -> Result<Projection> {
        let matched = Matched { reference, matches, absent: &[], method };
        matched.check(self.genotypes())?;
        self.check_bounded(OP, matched.bounded())?;
        self.with_room(ProjectionSums::needs(&self.reader, matched), &mut |reading| {
            let mut sums = ProjectionSums::new(&self.reader, matched)?;
            self.each_panel(&self.pass(run), reading, &mut |panel| sums.add(&self.reader, panel))?;
            self.finish_projection(sums)
        })
    }

    pub(super) fn finish_projection(&self, sums: ProjectionSums<'_>) -> Result<Projection> {
        let matched = sums.matched;
        let totals = sums.finish(self.device())?;
        let called = totals.called.clone();
        let (scores, undetermined) = solve::solve(totals, matched.reference, self.device())?;
        let variants = matched.matches.iter().enumerate().filter(|(_, hit)| hit.is_some());
        let missing = variants.map(|(variant, _)| self.counts.missing(variant));
        Ok(Projection {
            scores,
            used: matched.count() as u64,
            missing_calls: missing.sum(),
            called,
            undetermined,
            digest: self.digest(),
            memory: self.memory(),
            stats: self.stats(),
        })
    }
}
