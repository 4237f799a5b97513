//! New samples on the components of a reference.

mod reference;
#[cfg(test)]
mod tests;

pub(crate) use self::reference::Matched;
pub use self::reference::{Match, ReferenceLoadings};
use super::{
    memory::{OnePass, block_bytes, stream_bytes},
    residency::Residency,
    source::Genotypes,
    standardized::Standardized,
    tally::Tally,
};
use crate::{
    Budget, Device, Error, Result, Run, Status, Tensor,
    linalg::{
        LinearMap, Matrix, Pass,
        gram::{IN_FLIGHT, Sum, to_usize},
        matmul_tn,
    },
    stream::StreamStats,
};

const OP: &str = "genotype::project";

/// New samples on the components of a reference.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Projection {
    /// Coordinates of the samples (samples, components), on the scale of [`Pca::scores`](super::Pca::scores).
    pub scores: Matrix,
    /// Variants that took part.
    pub used: u64,
    /// Missing calls of those variants, over all samples: each counts as the reference's mean.
    pub missing_calls: u64,
    /// How many of those variants each sample has a call of; one that has few of them has scores near 0.
    pub called: Vec<u64>,
    /// 64-bit FNV-1a of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub digest: u64,
    /// The memory that the plan was made with, defaults in place; of the device none where it shares the host's.
    pub memory: Budget,
    /// Where the time went.
    pub stats: StreamStats,
}

/// Coordinates of the samples of `genotypes` on the components of a reference, in memory bounded by `run.memory`.
///
/// With the reference's loadings u (unit norm), shift and scale of each variant, the score of a sample of dosages g is
///
/// ```text
/// score = Σ u (g - shift) / scale     over the variants that the genotypes and the reference have
/// ```
///
/// where a missing g is the reference's mean, so that it adds nothing once centred. That is X V of flashpca's
/// `--project` (`RandomPCA::project`, before its division by √div), and scikit-allel's and sgkit's `transform`, which
/// refuse missing calls or spread them. The reference's own samples get their [`scores`](super::Pca::scores) back;
/// - over the singular value they are plink2's eigenvectors;
/// - flashpca divides by √M, M counting the variants of its loadings, in `binom2` scaling: of a reference in `patterson`
///   scaling its coordinates are scores / √(2 M).
///
/// `matches` says for each variant of `genotypes` which of the reference's it is, if any: in any order, each of the
/// reference's at most once. What the reference has and the genotypes have not adds nothing: scores lie nearer to zero
/// the more is missing.
///
/// New samples lie nearer to zero than the reference's own do, the more so the fewer samples the reference has: its own
/// samples' noise is in its loadings. Nothing corrects for that here, nor in flashpca or plink2.
///
/// # Cost
/// One pass, 2 k x variants x samples operations, and of blocks with missing calls 2 x variants x samples more, which count
/// them; the host holds the reference and 8 bytes a variant besides blocks.
///
/// # Errors
/// [`Error::Shape`] unless there is one of `matches` for each variant, of those selected; [`Error::Argument`] for no samples, another ploidy
/// than the reference's, a number that the reference does not have or that occurs twice, and no match at all;
/// [`Error::Budget`] with the least that would do, what the reference takes included; [`Error::Chunk`] for a damaged or missing
/// chunk or values out of range; [`Error::Cancelled`].
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, genotype::{Genotypes, Match, PcaOptions, ReferenceLoadings, loadings, pca, project}, store::MemoryArray};
///
/// let array = |dosages: &[i8], samples| MemoryArray::new("dosages", dosages, &[4, samples], &[4, samples]);
/// let reference = Genotypes::new(vec![Arc::new(array(&[0, 0, 2, 2, 2, 2, 0, 1, 0, 1, 2, 2, 2, 2, 0, 0], 4)?)])?;
/// let (device, run) = (Device::cpu(), Run::default());
/// let options = PcaOptions { components: 1, ..Default::default() };
/// let components = pca(&reference, &device, &options, &run)?;
/// let mut rows = ReferenceLoadings::new(options.scaler, 2, 1)?;
/// loadings(&reference, &device, &components, &options, &run, &mut |row| {
///     rows.push(row.frequency, row.shift, row.scale, row.loadings)
/// })?;
///
/// // One new sample, like the first two of the reference.
/// let new = Genotypes::new(vec![Arc::new(array(&[0, 2, 0, 2], 1)?)])?;
/// let matches: Vec<_> = (0..4).map(|row| Some(Match::Same(row))).collect();
/// let projection = project(&new, &device, &rows, &matches, &run)?;
/// assert!((projection.scores.row(0)[0] - components.scores().row(0)[0]).abs() < 1e-5);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn project(
    genotypes: &Genotypes,
    device: &Device,
    reference: &ReferenceLoadings,
    matches: &[Option<Match>],
    run: &Run,
) -> Result<Projection> {
    check(genotypes, reference, matches)?;
    let (n, k) = (genotypes.samples(), reference.components());
    let matched = Matched { reference, matches };
    let mut map = Standardized::of_reference(genotypes, device, matched)?;
    let OnePass { budget: memory, prefetch, upload_rows, .. } = plan(&map, matched, run)?;
    map.prefetch(prefetch);
    map.upload(upload_rows.min(map.panel_rows(Residency::Store.panel_bytes())));
    let pass = Pass::new(run, Status::new(0, 1, genotypes.variants()));
    // On its side, as in `Standardized::gram`.
    let mut scores = Sum::new(k as u64, n, false);
    // Whole numbers of at most a block's rows, so exact in f32, and in f64 their sums.
    let mut missing = Sum::new(1, n, false);
    map.each_panel(&pass, true, &mut |panel| {
        map.blocks(panel, &pass, &mut |rows| {
            let Some(loadings) = matched.loadings(rows.clone()) else { return Ok(()) };
            let count = rows.end - rows.start;
            let loadings = Tensor::from_slice(device, &loadings, &[count, k as u64])?;
            scores.add(&matmul_tn(&loadings, &map.block(panel, &rows)?)?)?;
            if !panel.missing {
                return Ok(());
            }
            let used = Tensor::from_slice(device, &matched.used(rows.clone()), &[count, 1])?;
            missing.add(&matmul_tn(&used, &panel.not_called(&rows, n)?)?)
        })
    })?;
    let scores = scores.finish(device)?.transposed();
    let Tally { counts, digest, missing_calls, .. } = map.tally();
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number of variants")]
    let called = missing.finish(device)?.data().iter().map(|missing| counts.used - *missing as u64).collect();
    Ok(Projection { scores, used: counts.used, missing_calls, called, digest, memory, stats: map.stats() })
}

fn check(genotypes: &Genotypes, reference: &ReferenceLoadings, matches: &[Option<Match>]) -> Result<()> {
    let (samples, variants) = (genotypes.samples(), genotypes.variants());
    if samples == 0 {
        return Err(Error::argument(OP, "genotypes", format_args!("{variants} variants of 0 samples")));
    }
    if genotypes.ploidy() != reference.ploidy() {
        let why = format!("of ploidy {}, the genotypes of {}", reference.ploidy(), genotypes.ploidy());
        return Err(Error::argument(OP, "reference", why));
    }
    if matches.len() as u64 != variants {
        let got = format!("{} matches", matches.len());
        return Err(Error::shape(OP, format_args!("one match for each of {variants} variants"), got));
    }
    let mut taken = vec![false; to_usize(reference.len())];
    for (variant, found) in matches.iter().enumerate() {
        let Some(row) = found.map(Match::row) else { continue };
        let why = match taken.get_mut(to_usize(row.into())) {
            None => format!("variant {variant} is number {row} of a reference of {}", taken.len()),
            Some(true) => {
                format!("variant {variant} is number {row} of the reference, as one before it is")
            }
            Some(taken) => {
                *taken = true;
                continue;
            }
        };
        return Err(Error::argument(OP, "matches", why));
    }
    if !taken.contains(&true) {
        let why = format!("none of the {variants} variants is one of the reference's {}", reference.len());
        return Err(Error::argument(OP, "matches", why));
    }
    Ok(())
}

/// Shares of what the budget leaves beside the reference.
///
/// # Errors
/// [`Error::Budget`] with the least that would do.
fn plan(map: &Standardized<'_>, matched: Matched<'_>, run: &Run) -> Result<OnePass> {
    let [variants, n] = map.shape();
    // The count of missing calls is a column more.
    let k = matched.reference.components() as u64 + 1;
    let rows = map.plan().block_rows().min(variants);
    // Of a block the loadings and the table of its scaling, which the host makes; its scores, and those whose downloads
    // are under way.
    let operands = rows.saturating_mul(4 * k + 12);
    let scores = n.saturating_mul(4 * k);
    let products = operands.saturating_add(scores.saturating_mul(1 + IN_FLIGHT as u64));
    // The sum in f64, and its transpose.
    let on_host = products.saturating_add(scores.saturating_mul(4));
    // The default is a share of what is free now, beside what is held already.
    let held = matched.reference.bytes() + size_of_val(matched.matches) as u64;
    let held = run.memory.host.map_or(0, |_| held);
    let host = stream_bytes(map).saturating_add(on_host).saturating_add(held);
    let on_device = block_bytes(map, 1).saturating_add(products);
    OnePass::new(map, run, host, on_device)
}
