//! Distances of some samples at a time, written where they stay: a run goes on where another was stopped.

use serde::Serialize;
use teatime::{Budget, Device, Error, Run, stable_text::StableText, stream::StreamStats};
use teatime_genotype::{
    DistanceBands, DistanceOptions, Distances, DistancesBetween, VariantCounts, WrittenBands, distances,
};

use super::{DistanceArgs, Results, neighbors::NeighborsRecord, target::Format};
use crate::{failure::Failure, output::Output, stores::Stores, text};

/// Samples on a side of the squares that are written, and what bands are multiples of: whatever the budgets.
const SIDE: u64 = 1024;

/// How distances were written in bands.
#[derive(Debug, Serialize)]
pub(super) struct BandsRecord {
    /// Bands of samples that were computed, each in one pass.
    pub(super) computed: u32,
    /// Squares of each array.
    squares: u64,
    /// Squares of all arrays that an earlier run had written.
    found: u64,
}

impl BandsRecord {
    /// In words.
    pub(super) fn summary(&self) -> String {
        let Self { computed, squares, found } = self;
        let found = if *found > 0 { format!("; {found} were there") } else { String::new() };
        format!("{computed} of samples, one after another; {squares} squares of each array{found}")
    }
}

/// Variants of more than two alleles.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Alleles {
    /// Their number among those that take part: samples carry two alternate alleles or more.
    pub(super) multiallelic: u64,
    /// True where all but the reference of these count as one.
    pub(super) merged: bool,
}

impl Alleles {
    /// In words, where there are some.
    pub(super) fn summary(self) -> Option<String> {
        let (variants, how) = (
            text::plural(self.multiallelic, "variant"),
            if self.merged { "taken for one" } else { "told apart" },
        );
        (self.multiallelic > 0)
            .then(|| format!("{variants} of more than two alleles, of which all but the reference are {how}"))
    }
}

/// What is told of distances that were computed.
pub(super) struct Found {
    pub(super) undefined: u64,
    pub(super) counts: VariantCounts,
    pub(super) alleles: Alleles,
    pub(super) digest: u64,
    pub(super) memory: Budget,
    pub(super) stats: StreamStats,
    pub(super) bands: Option<BandsRecord>,
    pub(super) neighbors: Option<NeighborsRecord>,
}

impl From<&Distances> for Found {
    fn from(result: &Distances) -> Self {
        let Distances { counts, multiallelic, merged, digest, memory, stats, .. } = *result;
        let (undefined, alleles) = (result.undefined(), Alleles { multiallelic, merged });
        Self { undefined, counts, alleles, digest, memory, stats, bands: None, neighbors: None }
    }
}

impl From<&DistancesBetween> for Found {
    fn from(result: &DistancesBetween) -> Self {
        let DistancesBetween { counts, multiallelic, digest, memory, stats, .. } = *result;
        let (undefined, alleles) = (result.undefined(), Alleles { multiallelic, merged: true });
        Self { undefined, counts, alleles, digest, memory, stats, bands: None, neighbors: None }
    }
}

/// The distances, all at once, or in bands that are written by then.
pub(super) fn compute(
    output: &mut Output,
    args: &DistanceArgs,
    stores: &Stores,
    device: &Device,
    options: &DistanceOptions,
    run: &Run,
) -> Result<(Found, Option<Results>), Failure> {
    if args.resume {
        return Ok((write(output, args, stores, device, options, run)?, None));
    }
    let too_large = match distances(&stores.genotypes, device, options, run) {
        Err(error @ (Error::Budget { .. } | Error::OutOfMemory { .. })) => error,
        result => {
            let result = result?;
            return Ok((Found::from(&result), Some(Results::Matrix(result))));
        }
    };
    if args.out.format != Format::Zarr {
        return Err(too_large.into());
    }
    args.out.refuse_to_lose(args.overwrite)?;
    match write(output, args, stores, device, options, run) {
        // Not of what is asked for.
        Err(Error::Argument { name, .. }) if name != "merge_alleles" => Err(too_large.into()),
        Err(error @ Error::Budget { .. }) => Err(error.or_of_less_memory(too_large).into()),
        found => Ok((found?, None)),
    }
}

/// Writes D.zarr in its place.
///
/// # Errors
/// [`Error::Argument`] for what is not computed in bands; as [`DistanceBands`].
fn write(
    output: &mut Output,
    args: &DistanceArgs,
    stores: &Stores,
    device: &Device,
    options: &DistanceOptions,
    run: &Run,
) -> Result<Found, Error> {
    let bands = DistanceBands::new(&stores.genotypes, device, options, SIDE, run)?;
    let path = args.out.path();
    output.written_in_place(&args.out.name);
    let written = bands
        .write_zarr(&path, &stores.samples, &job(stores, args.haplotypes), run)
        .inspect_err(|error| args.out.note_unfinished(error))?;
    let WrittenBands { undefined, bands: computed, squares, found, .. } = written;
    Ok(Found {
        undefined,
        counts: *bands.counts(),
        alleles: Alleles { multiallelic: bands.multiallelic(), merged: true },
        digest: bands.digest(),
        memory: bands.memory(),
        stats: bands.stats(),
        bands: Some(BandsRecord { computed, squares, found }),
        neighbors: None,
    })
}

/// All that distances depend on besides what the library knows.
fn job(stores: &Stores, haplotypes: bool) -> String {
    let paths = stores.paths.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let genotypes = &stores.genotypes;
    let parts: [&dyn StableText; 8] = [
        &paths.collect::<Vec<_>>(),
        &stores.arrays,
        &stores.contigs,
        &stores.ploidy_mismatch,
        &genotypes.counted_allele(),
        &haplotypes,
        &genotypes.kind(),
        &genotypes.variants(),
    ];
    parts.map(StableText::stable_text).join(" ")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use teatime::{Cancel, MissingChunk};

    use super::*;
    use crate::{contigs::ContigArgs, stores::PloidyMismatch};

    /// Stores that were begun with this text are gone on with.
    #[test]
    fn words_of_a_job_stay() {
        let folder = tempfile::tempdir().expect("the temporary folder should be writable");
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("a file");
        write("c.bed", &[0x6c, 0x1b, 1, 0b1011, 0b1110]);
        write("c.bim", b"1 v 0 1 A C\nX w 0 2 A C\n");
        write("c.fam", b"f a 0 0 0 -9\nf b 0 0 0 -9\n");
        let (bed, cancel) = (folder.path().join("c.bed"), Cancel::default());
        let memory = Budget::default();
        let stores =
            Stores::open(std::slice::from_ref(&bed), None, MissingChunk::Error, None, false, memory, &cancel);
        let mut stores = stores.expect("it is a store");
        stores.take(&ContigArgs::default(), &cancel).expect("it has contigs");
        stores.ploidy_mismatch = Some(PloidyMismatch { stored: 3, ploidy: 2, calls: 7 });
        let bed = bed.canonicalize().expect("it is there");
        let expected = "[[\".\"]] Some(Contigs { autosomes: Karyotype(Some(22)), said: false, asked: None, left_out: 0, \
                        autosomal: 1, sex: {\"X\": 1}, mitochondrial: 0, unplaced: 0, other: 0, absent: [] }) \
                        Some(PloidyMismatch { stored: 3, ploidy: 2, calls: 7 }) Some(1) true Plink 2";
        assert_eq!(job(&stores, true), format!("[{bed:?}] {expected}"));
    }
}
