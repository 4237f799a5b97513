//! Principal components of genotypes bigger than memory.

use teatime::{
    Budget, Device, Error, Result, Run,
    linalg::{
        Checkpoint, LinearMap, Matrix, RightSvd, SignRule, gram_svd, randomized_svd,
        randomized_svd_with_checkpoint,
    },
    stable_text::StableText,
    stream::StreamStats,
};

use super::{
    Cohort, no_variant,
    plan::{Request, Wanted, check_samples},
    standardized::prepare,
};
use crate::{
    choice::{Choice, MethodCosts},
    filter::VariantCounts,
    memory,
    options::{Method, OP, PcaOptions},
    pair_sums,
    reader::Reader,
    residency::Residency,
    scaler::{ScaleRule, Scaler},
    source::Genotypes,
    totals::VariantTotals,
};

/// Principal components of the samples of a genotype matrix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pca {
    /// Singular values of the standardised matrix (variants, samples), descending.
    pub singular_values: Vec<f64>,
    /// Right singular vectors (samples, components): unit-norm columns, plink2's eigenvectors.
    pub vectors: Matrix,
    /// The residual |AᵀA v - s² v| / (s s₁) of each component.
    pub residuals: Vec<f64>,
    /// True for each component whose residual is within the tolerance, or within 1e-4 for a fixed number of iterations.
    pub converged: Vec<bool>,
    /// The sum of squares of the standardised matrix, which is the sum of all its squared singular values.
    pub sum_squares: f64,
    /// Counts of the variants that took part and were dropped.
    pub counts: VariantCounts,
    /// The method that was used, never [`Method::Auto`].
    pub method: Method,
    /// The reason for that method, as text.
    pub reason: String,
    /// The costs that were expected of both methods.
    pub costs: MethodCosts,
    /// The place where genotypes stayed between passes.
    pub residency: Residency,
    /// The reason why they stayed there, as text.
    pub residency_reason: String,
    /// The scaler that was used.
    pub scaler: Scaler,
    /// The number of passes over the variants: the pass that loads and counts, and the products of the randomized method.
    /// All are over the store if genotypes stay there ([`residency`](Self::residency)); otherwise only the first is.
    pub passes: u32,
    /// The number of these passes whose products a [checkpoint](Cohort::pca_with_checkpoint) had, so that they were not made again.
    pub found: u32,
    /// The 64-bit FNV-1a digest of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub digest: u64,
    /// The memory budgets of the plan, with defaults filled in. A device that shares the host's memory has no budget of its own.
    pub memory: Budget,
    /// The time that each step took.
    pub stats: StreamStats,
}

impl Pca {
    /// Returns s² / samples for each component: scikit-allel's explained variance.
    pub fn explained_variance(&self) -> Vec<f64> {
        self.singular_values.iter().map(|s| s * s / self.vectors.rows() as f64).collect()
    }

    /// Returns s² over the sum of all squared singular values, for each component.
    pub fn explained_variance_ratio(&self) -> Vec<f64> {
        let total = if self.sum_squares > 0.0 { self.sum_squares } else { 1.0 };
        self.singular_values.iter().map(|s| s * s / total).collect()
    }

    /// Returns the eigenvalues s² / M, as plink2's `--pca meanimpute` does. M counts the variants that pass the filters, including
    /// variants without variance or calls. For [`Scaler::Patterson`] s² is halved first, which gives the value for [`Scaler::Binom2`].
    pub fn eigenvalues(&self) -> Vec<f64> {
        let halved = if self.scaler == Scaler::Patterson { 2.0 } else { 1.0 };
        let loaded = self.counts.loaded().max(1) as f64;
        self.singular_values.iter().map(|s| s * s / (halved * loaded)).collect()
    }

    /// Returns the coordinates of the samples: eigenvectors times singular values, as in scikit-allel and sklearn.
    pub fn scores(&self) -> Matrix {
        let mut scores = self.vectors.clone();
        for row in scores.data_mut().chunks_mut(self.singular_values.len().max(1)) {
            row.iter_mut().zip(&self.singular_values).for_each(|(v, s)| *v *= s);
        }
        scores
    }
}

/// Computes principal components of the samples of `genotypes`, in memory bounded by `run.memory`.
///
/// The dosage of a call is its number of non-reference alleles; a call with a missing allele is missing and becomes
/// the variant's mean; variants whose called dosages are all equal contribute nothing. The variants
/// are read in blocks; the next block is decoded while the device works on the current one. The page of the [crate] has an example.
///
/// # Shapes
/// `genotypes`: (variants, samples) -> `singular_values` (components,), `vectors` (samples, components).
///
/// # Cost
/// Exact: one pass, variants x samples² operations on the device. On the host about samples³ / 3 + 70 samples^(7/3) operations for ten components
/// of many samples, otherwise 10 samples³ on one thread. Randomized: after a pass that loads and counts, 2 l x variants x samples operations per
/// pass (4 l if it multiplies by both A and Aᵀ), with l = components + oversamples. [`Cohort::load`] states the cost of the first pass.
///
/// # Errors
/// [`Error::Argument`] for more components than samples or variants, and when no variant is left; [`Error::Limit`] for 2^23 or more
/// samples of two bits each; [`Error::Store`] for an array that changed between passes; other errors as of [`Cohort::load`].
pub fn pca(genotypes: &Genotypes, device: &Device, options: &PcaOptions, run: &Run) -> Result<Pca> {
    Cohort::load(genotypes, device, &Wanted::default().pca(options), run)?.pca(options, run)
}

impl Cohort {
    /// Computes principal components of the samples as [`pca`] does. If they were [wanted](Wanted::pca), the exact method makes no
    /// further pass, and the randomized method only those of its products. The memory budget is the budget of [`load`](Self::load).
    ///
    /// # Errors
    /// Fails as [`pca`] does, and with [`Error::Argument`] if the scaler takes no dosages above the
    /// ploidy, though these were not an error for any result that the genotypes were loaded for.
    pub fn pca(&self, options: &PcaOptions, run: &Run) -> Result<Pca> {
        self.components(options, None, run)
    }

    /// Works as [`pca`](Self::pca), and puts the product of each pass of the randomized method at `checkpoint`, or takes it from there: a call
    /// that is stopped or killed at any time is continued by the same call, to the same bits, once the genotypes are loaded again. The exact
    /// method makes no further pass, and leaves the checkpoint alone. The caller removes the checkpoint once the results are stored.
    ///
    /// The counts of alleles, the scaler and the filter are added to the checkpoint's [properties](Checkpoint::property). The counts do not tell
    /// whether samples have changed places, so the caller adds what does, such as the stores' paths and the names of the samples.
    ///
    /// # Errors
    /// Fails as [`pca`](Self::pca) does; with [`Error::Store`] for the checkpoint of another job, with what differs, and [`Error::Io`] if it
    /// cannot be read or written.
    pub fn pca_with_checkpoint(
        &self,
        options: &PcaOptions,
        checkpoint: &Checkpoint,
        run: &Run,
    ) -> Result<Pca> {
        let checkpoint = checkpoint
            .clone()
            .property("counts of alleles", format!("{:016x}", self.digest()))
            .property("ploidy", self.genotypes().ploidy())
            .property("scaler", options.scaler.name())
            .property("filter", options.filter.stable_text());
        self.components(options, Some(&checkpoint), run)
    }

    fn components(&self, options: &PcaOptions, checkpoint: Option<&Checkpoint>, run: &Run) -> Result<Pca> {
        options.check(self.genotypes())?;
        self.check_bounded(OP, options.scaler.needs_frequency())?;
        let rule = ScaleRule::new(&self.reader, options.scaler, options.filter);
        let Choice { method, reason, costs } = self.choice(options);
        let (svd, totals) = match method {
            Method::Exact => self.exact(rule, options, run)?,
            _ => self.randomized(rule, options, checkpoint, run)?,
        };
        if totals.counts.used == 0 {
            return Err(Error::argument(OP, "genotypes", no_variant(&totals.counts)));
        }
        let RightSvd { s, v, residuals, converged, passes, found, .. } = svd;
        Ok(Pca {
            singular_values: s,
            vectors: v,
            residuals,
            converged,
            sum_squares: totals.sum_squares,
            counts: totals.counts,
            method,
            reason,
            costs,
            residency: self.residency(),
            residency_reason: self.residency_reason(),
            scaler: options.scaler,
            passes: passes + 1,
            found,
            digest: self.digest(),
            memory: self.memory(),
            stats: self.stats(),
        })
    }

    fn exact(&self, rule: ScaleRule, options: &PcaOptions, run: &Run) -> Result<(RightSvd, VariantTotals)> {
        let wanted = pair_sums::PairTerms { rule, shared: false, variance: false };
        let is_here = self.held_sums(wanted).is_some();
        let needs = if is_here { memory::eigenvectors(&self.reader) } else { Choice::exact(&self.reader) };
        self.reading(needs)?;
        let sums = self.pair_sums(wanted, run)?;
        let sign = options.svd.sign;
        let svd = gram_svd(&sums.products, options.components, sign, self.device())?;
        if sign != SignRule::MaxAbsU {
            return Ok((svd, sums.totals.clone()));
        }
        let needs = memory::loadings(&self.reader, options.components as u64);
        self.with_room(needs, &mut |reading| {
            self.standardized(rule, reading, |map| {
                let mut svd = svd.clone();
                sign.apply(map, &mut svd.v, &mut svd.passes, run)?;
                Ok(svd)
            })
        })
    }

    fn randomized(
        &self,
        rule: ScaleRule,
        options: &PcaOptions,
        checkpoint: Option<&Checkpoint>,
        run: &Run,
    ) -> Result<(RightSvd, VariantTotals)> {
        check_samples(&self.reader)?;
        self.with_room(memory::randomized(&self.reader, options), &mut |reading| {
            prepare(&self.reader, memory::columns(rule.samples, options), self.panels(reading))?;
            // The SVD takes half of the memory that it is given for the basis.
            let basis = self.memory.basis(&self.reader, self.kept(), options);
            let memory = run.memory.host(basis.saturating_mul(2));
            let run = run.clone().memory(memory);
            let (k, svd) = (options.components, &options.svd);
            self.standardized(rule, reading, |map| match checkpoint {
                Some(checkpoint) => randomized_svd_with_checkpoint(map, k, svd, checkpoint, &run),
                None => randomized_svd(map, k, svd, &run),
            })
        })
    }

    /// Computes `Aᵀ (A X)` for the standardised genotypes A (variants, samples), in one pass over the genotypes where they stayed.
    ///
    /// A variant is standardised by itself, so the products of cohorts of different variants add up to
    /// the product over all variants. A caller can run an iteration over such sums, on several machines.
    ///
    /// # Shapes
    /// `x`: (samples, columns) -> (samples, columns).
    ///
    /// # Errors
    /// Fails as [`pca`] does; with [`Error::Shape`] unless X has a row for each sample.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use teatime::{Device, Run, linalg::Matrix, store::MemoryArray};
    /// use teatime_genotype::{Cohort, Genotypes, Method, PcaOptions, Scaler, Wanted};
    ///
    /// let array = MemoryArray::new("dosages", &[0i8, 2, 1, 1, 0, 1], &[3, 2], &[3, 2])?;
    /// let genotypes = Genotypes::new(vec![Arc::new(array)])?;
    /// let options = PcaOptions::default().components(1).method(Method::Randomized).scaler(Scaler::None);
    /// let run = Run::default();
    /// let cohort = Cohort::load(&genotypes, &Device::cpu(), &Wanted::default().pca(&options), &run)?;
    /// let product = cohort.normal_product(&options, &Matrix::from_vec(vec![1.0, 1.0], 2, 1)?, &run)?;
    /// assert_eq!(product.data(), [0.0, 5.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn normal_product(&self, options: &PcaOptions, x: &Matrix, run: &Run) -> Result<Matrix> {
        options.check(self.genotypes())?;
        self.check_bounded(OP, options.scaler.needs_frequency())?;
        check_samples(&self.reader)?;
        let samples = self.genotypes().samples();
        if x.rows() as u64 != samples {
            let got = format_args!("({}, {})", x.rows(), x.cols());
            return Err(Error::shape("normal_product", format_args!("({samples}, columns)"), got));
        }
        let rule = ScaleRule::new(&self.reader, options.scaler, options.filter);
        self.with_room(memory::randomized(&self.reader, options), &mut |reading| {
            prepare(&self.reader, x.cols() as u64, self.panels(reading))?;
            let product = self.standardized(rule, reading, |map| map.apply_normal(x, &self.pass(run)));
            Ok(product?.0)
        })
    }

    /// Returns the sum of squares of the standardised genotypes, and the counts of variants that took part, as in [`Pca`].
    pub fn totals(&self, options: &PcaOptions) -> (f64, VariantCounts) {
        let rule = ScaleRule::new(&self.reader, options.scaler, options.filter);
        let Ok((_, totals)) = self.factors(rule) else { unreachable!("loading should have started threads") };
        (totals.sum_squares, totals.counts)
    }

    /// Computes the loadings of the variants on components of these genotypes: [`loadings`]. If
    /// they were [wanted](Wanted::loadings) and memory holds the genotypes, the store is not read.
    ///
    /// # Errors
    /// Fails as [`loadings`] does.
    pub fn loadings(
        &self,
        pca: &Pca,
        options: &PcaOptions,
        run: &Run,
        sink: &mut LoadingsSink<'_>,
    ) -> Result<()> {
        self.check_bounded(LOADINGS, options.scaler.needs_frequency())?;
        if self.digest() != pca.digest {
            let why = "not those of the components: their allele counts are others than before";
            return Err(Error::argument(LOADINGS, "genotypes", why));
        }
        let reading = self.reading(memory::loadings(&self.reader, options.components as u64))?;
        let rule = ScaleRule::new(&self.reader, options.scaler, options.filter);
        let inverse = |s: &f64| if *s > 0.0 { 1.0 / s } else { 0.0 };
        let inverses: Vec<f64> = pca.singular_values.iter().map(inverse).collect();
        let mut rows = |first: u64, y: &Matrix| {
            let stats = self.stats_of(&(first..first + y.rows() as u64));
            let scales = self.device().pool()?.install(|| rule.scales(&stats));
            for (i, scale) in scales.iter().enumerate().filter(|(_, scale)| scale.is_used()) {
                let loadings: Vec<f64> = y.row(i).iter().zip(&inverses).map(|(y, i)| y * i).collect();
                sink(VariantLoadings {
                    variant: self.reader.plan.row(first + i as u64),
                    frequency: scale.mean / rule.ploidy as f64,
                    shift: scale.shift,
                    scale: 1.0 / scale.scale,
                    loadings: &loadings,
                })?;
            }
            Ok(())
        };
        self.standardized(rule, reading, |map| map.apply(&pca.vectors, &self.pass(run), &mut rows))?;
        Ok(())
    }
}

/// The scaling and the loadings of a variant that took part.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VariantLoadings<'a> {
    /// The row of the variant, counted over all rows of all arrays, not only the selected ones.
    pub variant: u64,
    /// The frequency of the non-reference alleles among the called alleles.
    pub frequency: f64,
    /// The value that is subtracted from the variant's dosages.
    pub shift: f64,
    /// The value by which the shifted dosages are divided.
    pub scale: f64,
    /// The variant's entries of the left singular vectors, which have unit norm.
    pub loadings: &'a [f64],
}

/// Computes the loadings of the variants, A v / s for each component, and gives them to `sink` variant by variant, in order.
///
/// `options` and `genotypes` are those from which `pca` was computed. Variants that did not take part are left
/// out. Components with a singular value of 0 have loadings of 0. [`project`](crate::project()) has an example.
///
/// # Shapes
/// `genotypes`: (variants, samples) -> for each variant that took part, loadings (components,).
///
/// # Cost
/// Two passes: one loads and counts, the other multiplies, with 2 components x variants x samples
/// operations. If memory holds the genotypes, the second pass does not read the store.
///
/// # Errors
/// Fails as [`pca`] does, and with any error of `sink`; with [`Error::Argument`] if the genotypes' allele counts are not those of `pca`.
pub fn loadings(
    genotypes: &Genotypes,
    device: &Device,
    pca: &Pca,
    options: &PcaOptions,
    run: &Run,
    sink: &mut LoadingsSink<'_>,
) -> Result<()> {
    // Dosages are bounded as they were for the components.
    let genotypes = &genotypes.bounded_if(options.scaler.needs_frequency());
    let needs = |reader: &Reader| memory::loadings(reader, options.components as u64);
    let wanted = &Wanted::default().more_passes(1);
    let cohort = Cohort::load_beside(Request { genotypes, device, wanted, run }, &needs)?;
    cohort.loadings(pca, options, run, sink)
}

const LOADINGS: &str = "loadings";

/// A callback that takes the loadings of one variant after the other.
pub type LoadingsSink<'a> = dyn FnMut(VariantLoadings<'_>) -> Result<()> + 'a;
