//! Principal components of genotypes bigger than memory.

use super::{
    choice::MethodCosts,
    exact,
    filter::VariantCounts,
    memory::Memory,
    options::{Method, PcaOptions},
    residency::Residency,
    scaler::{Rule, Scaler},
    source::Genotypes,
    standardized::Standardized,
    tally::Tally,
};
use crate::{
    Budget, Device, Error, Result, Run, Status,
    linalg::{Matrix, Pass, SignRule, TruncatedSvd, randomized_svd},
    run::DEVICE_BUDGET,
    stream::StreamStats,
};

const OP: &str = "genotype::pca";

/// Principal components of the samples of a genotype matrix.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Pca {
    /// Singular values of the standardised matrix (variants, samples), descending.
    pub singular_values: Vec<f64>,
    /// Right singular vectors (samples, components): unit-norm columns, plink2's eigenvectors.
    pub vectors: Matrix,
    /// |AᵀA v - s² v| / (s s₁) of each component.
    pub residuals: Vec<f64>,
    /// Whether each residual is within the tolerance; for a fixed number of iterations, within 1e-4.
    pub converged: Vec<bool>,
    /// Sum of squares of the standardised matrix: the sum of all squared singular values.
    pub sum_squares: f64,
    /// Variants that took part.
    pub counts: VariantCounts,
    /// The method that was used, never [`Method::Auto`].
    pub method: Method,
    /// Why that method.
    pub reason: String,
    /// What both were expected to cost.
    pub costs: MethodCosts,
    /// Where genotypes stayed between passes.
    pub residency: Residency,
    /// Why there.
    pub residency_reason: String,
    /// The scaler that was used.
    pub scaler: Scaler,
    /// Passes over the variants: products, and before those of the randomized method on genotypes of two bits, one that
    /// packs and counts. Over the store where genotypes stay there ([`residency`](Self::residency)), else the first alone.
    pub passes: u32,
    /// 64-bit FNV-1a of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub digest: u64,
    /// The memory that the plan was made with, defaults in place; of the device none where it shares the host's.
    pub memory: Budget,
    /// Where the time went.
    pub stats: StreamStats,
}

impl Pca {
    /// s² / samples for each component: scikit-allel's explained variance.
    pub fn explained_variance(&self) -> Vec<f64> {
        self.singular_values.iter().map(|s| s * s / self.vectors.rows() as f64).collect()
    }

    /// s² over the sum of all squared singular values.
    pub fn explained_variance_ratio(&self) -> Vec<f64> {
        let total = if self.sum_squares > 0.0 { self.sum_squares } else { 1.0 };
        self.singular_values.iter().map(|s| s * s / total).collect()
    }

    /// Eigenvalues s² / M, as plink2's `--pca meanimpute` has them: M counts the variants that pass the filters,
    /// those without variance or calls included. For [`Scaler::Patterson`] s² is halved first, which makes it
    /// [`Scaler::Binom2`]'s.
    pub fn eigenvalues(&self) -> Vec<f64> {
        let halved = if self.scaler == Scaler::Patterson { 2.0 } else { 1.0 };
        let loaded = self.counts.loaded().max(1) as f64;
        self.singular_values.iter().map(|s| s * s / (halved * loaded)).collect()
    }

    /// Coordinates of the samples: eigenvectors times singular values, scikit-allel's and sklearn's.
    pub fn scores(&self) -> Matrix {
        let mut scores = self.vectors.clone();
        for row in scores.data_mut().chunks_mut(self.singular_values.len().max(1)) {
            row.iter_mut().zip(&self.singular_values).for_each(|(v, s)| *v *= s);
        }
        scores
    }
}

/// Principal components of the samples of `genotypes`, in memory bounded by `run.memory`.
///
/// The dosage of a call is its number of non-reference alleles; a call with a missing allele is missing and becomes
/// the variant's mean; variants whose called dosages are all equal contribute nothing. The variants are read in
/// blocks, the next of which is decoded while the device works on this one.
///
/// # Cost
/// Exact: one pass, variants x samples² operations on the device; on the host about
/// samples³ / 3 + 70 samples^(7/3) for ten components of many samples, else 10 samples³ on one thread. Randomized: 2 l (4 for
/// reading and writing) x variants x samples operations per pass with l = components + oversamples, after a pass that packs
/// and counts genotypes of two bits.
///
/// # Errors
/// [`Error::Argument`] for more components than samples or variants, and when no variant is left; [`Error::Budget`]
/// with the least that would do; [`Error::OutOfMemory`] where the device has not even that, though the budget allows it;
/// [`Error::Limit`] for 2^23 or more samples of two bits each; [`Error::Chunk`] for a damaged or missing chunk or values out of range;
/// [`Error::Store`] for an array that changed between two passes over it; [`Error::Cancelled`].
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, genotype::{Genotypes, PcaOptions, pca}, store::MemoryArray};
///
/// // Two groups of two samples that differ at every variant.
/// let dosages = [[0i8, 0, 2, 2], [2, 2, 0, 1], [0, 1, 2, 2], [2, 2, 0, 0]];
/// let array = MemoryArray::new("dosages", dosages.as_flattened(), &[4, 4], &[2, 4])?;
/// let genotypes = Genotypes::new(vec![Arc::new(array)])?;
/// let result = pca(&genotypes, &Device::cpu(), &PcaOptions { components: 2, ..Default::default() }, &Run::default())?;
/// let first: Vec<f64> = result.vectors.column(0).collect();
/// assert!(first[0] * first[1] > 0.0 && first[2] * first[3] > 0.0 && first[0] * first[3] < 0.0);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn pca(genotypes: &Genotypes, device: &Device, options: &PcaOptions, run: &Run) -> Result<Pca> {
    let mut budget = Memory::device_budget(device, run);
    let (mut full, mut least) = (false, false);
    loop {
        let smaller = Budget { device: if full { Some(budget) } else { run.memory.device }, ..run.memory };
        match attempt(genotypes, device, options, &Run { memory: smaller, ..run.clone() }) {
            // Others may hold the memory that the plan counted on: with less, fewer blocks stay on the device, or
            // another method is taken.
            Err(Error::OutOfMemory { .. }) if !device.shares_host_memory() && !least => {
                (budget, full) = (budget / 2, true);
            }
            Err(Error::Budget { what: DEVICE_BUDGET, minimum, .. }) if full && !least => {
                (budget, least) = (minimum, true);
            }
            result => return result,
        }
    }
}

/// One attempt within the budget.
fn attempt(genotypes: &Genotypes, device: &Device, options: &PcaOptions, run: &Run) -> Result<Pca> {
    let (samples, variants) = (genotypes.samples(), genotypes.variants());
    check(samples, variants, options)?;
    let rule = Rule {
        samples,
        ploidy: genotypes.ploidy(),
        exact: true,
        scaler: options.scaler,
        filter: options.filter,
    };
    let mut map = Standardized::new(genotypes, device, rule)?;
    let memory = Memory::new(&map, device, options, run)?;
    let (method, reason, costs) = memory.choose(&map, options);
    let allowance = memory.allow(&map, method)?;
    map.prefetch(allowance.prefetch);
    map.keep(allowance.residency, allowance.panel_bytes);
    // The exact method reads twice where signs follow the left vectors.
    let passes_again = method == Method::Randomized || options.svd.sign == SignRule::MaxAbsU;
    if passes_again && allowance.residency == Residency::Store {
        map.read_again();
    }
    map.upload(allowance.upload_rows);
    let svd = match method {
        Method::Exact => exact::decompose(&map, options, run)?,
        _ => {
            // It takes half of what it is given for the basis.
            let host = Some(allowance.basis.saturating_mul(2));
            let run = Run { memory: Budget { host, ..run.memory }, ..run.clone() };
            randomized_svd(&map, options.components, &options.svd, &run)?
        }
    };
    let Tally { counts, sum_squares, digest, .. } = map.tally();
    if counts.used == 0 {
        return Err(Error::argument(OP, "genotypes", no_variant(&counts)));
    }
    let TruncatedSvd { s, v, residuals, converged, passes } = svd;
    Ok(Pca {
        singular_values: s,
        vectors: v,
        residuals,
        converged,
        sum_squares,
        counts,
        method,
        reason,
        costs,
        residency: allowance.residency,
        residency_reason: allowance.reason,
        scaler: options.scaler,
        passes: passes + map.counting_passes(),
        digest,
        memory: memory.budget(),
        stats: map.stats(),
    })
}

fn check(samples: u64, variants: u64, options: &PcaOptions) -> Result<()> {
    check_extents(OP, samples, variants)?;
    let most = samples.min(variants);
    if options.components as u64 > most {
        let why = format!(
            "{}, but {variants} variants of {samples} samples have at most {most}",
            options.components
        );
        return Err(Error::argument(OP, "components", why));
    }
    options.filter.check(OP)
}

/// # Errors
/// [`Error::Argument`] without samples or variants.
pub(super) fn check_extents(op: &'static str, samples: u64, variants: u64) -> Result<()> {
    if samples == 0 || variants == 0 {
        let why = format!("{variants} variants of {samples} samples");
        return Err(Error::argument(op, "genotypes", why));
    }
    Ok(())
}

/// Why no variant is left, in words.
pub(super) fn no_variant(counts: &VariantCounts) -> String {
    let VariantCounts { total, all_missing, above_missing, below_maf, zero_variance, .. } = counts;
    format!(
        "none of the {total} variants is left: {all_missing} have no call, {above_missing} have too many missing \
         calls, {below_maf} have too low a minor allele frequency, {zero_variance} do not vary"
    )
}

/// The scaling and the loadings of a variant that took part.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct VariantLoadings<'a> {
    /// The row of the variant, counted over all arrays, whatever is selected.
    pub variant: u64,
    /// Frequency of the non-reference alleles among the called.
    pub frequency: f64,
    /// What is subtracted from its dosages.
    pub shift: f64,
    /// What they are divided by then.
    pub scale: f64,
    /// Its entries of the left singular vectors, which have unit norm.
    pub loadings: &'a [f64],
}

/// Loadings of the variants: A v / s for each component, given to `sink` variant by variant in order. One pass.
///
/// `options` and `genotypes` are those that gave `pca`. Variants that did not take part are left out. Components with
/// a singular value of 0 have loadings of 0.
///
/// # Errors
/// As [`pca`], and what `sink` returns; [`Error::Argument`], at the end, for genotypes of other allele counts than those of
/// `pca`.
pub fn loadings(
    genotypes: &Genotypes,
    device: &Device,
    pca: &Pca,
    options: &PcaOptions,
    run: &Run,
    sink: &mut dyn FnMut(VariantLoadings<'_>) -> Result<()>,
) -> Result<()> {
    let ploidy = genotypes.ploidy();
    let rule = Rule {
        samples: genotypes.samples(),
        ploidy,
        exact: true,
        scaler: options.scaler,
        filter: options.filter,
    };
    let mut map = Standardized::new(genotypes, device, rule)?;
    let allowance = Memory::new(&map, device, options, run)?.allow(&map, Method::Randomized)?;
    map.prefetch(allowance.prefetch);
    let pass = Pass::new(run, Status::new(0, 1, genotypes.variants()));
    let inverse = |s: &f64| if *s > 0.0 { 1.0 / s } else { 0.0 };
    let inverse: Vec<f64> = pca.singular_values.iter().map(inverse).collect();
    map.apply_with_standards(&pca.vectors, &pass, &mut |row, standard, scores| {
        let loadings: Vec<f64> = scores.iter().zip(&inverse).map(|(y, i)| y * i).collect();
        sink(VariantLoadings {
            variant: genotypes.rows().row(row),
            frequency: standard.mean / ploidy as f64,
            shift: standard.shift,
            scale: 1.0 / standard.scale,
            loadings: &loadings,
        })
    })?;
    if map.tally().digest != pca.digest {
        let why = "not those of the components: their allele counts are others than before";
        return Err(Error::argument("genotype::loadings", "genotypes", why));
    }
    Ok(())
}
