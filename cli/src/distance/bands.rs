//! Distances computed band by band and written at their final path, so that a stopped run can be resumed.

use teatime::{Device, Error, Run, stable_text::StableText};
use teatime_genotype::{DistanceBands, DistanceOptions, distances};

use super::{
    DistanceArgs,
    write::{Format, Results},
};
use crate::{failure::Failure, output::Output, stores::Stores};

/// The number of samples along each side of a square that is written at once. Bands are multiples of it. It does not depend on memory budgets.
const SIDE: u64 = 1024;

/// Computes the distances at once and returns them, or computes them in bands and writes each to its final place in D.zarr.
pub(super) fn compute(
    output: &mut Output,
    args: &DistanceArgs,
    stores: &Stores,
    device: &Device,
    options: &DistanceOptions,
    run: &Run,
) -> Result<Results, Failure> {
    let mut in_place = || {
        let bands = DistanceBands::new(&stores.genotypes, device, options, SIDE, run)?;
        output.written_in_place(&args.out.name);
        let written = bands
            .write_zarr(args.out.path(), &stores.samples, &job(stores, args.haplotypes), run)
            .inspect_err(|error| args.out.note_unfinished(error))?;
        Ok(Results::Written(written))
    };
    if args.resume {
        return in_place().map_err(Error::into);
    }
    let too_large = match distances(&stores.genotypes, device, options, run) {
        Err(error @ (Error::Budget { .. } | Error::OutOfMemory { .. })) => error,
        result => return Ok(Results::Matrix(result?)),
    };
    if args.out.format != Format::Zarr {
        return Err(too_large.into());
    }
    args.out.refuse_to_lose(args.results.overwrite)?;
    match in_place() {
        // The user gave no such argument.
        Err(Error::Argument { name, .. }) if name != "merge_alleles" => Err(too_large.into()),
        Err(error @ Error::Budget { .. }) => Err(error.or_of_less_memory(too_large).into()),
        written => Ok(written?),
    }
}

/// Describes everything that the distances depend on in addition to what the library records.
fn job(stores: &Stores, haplotypes: bool) -> String {
    let paths = stores.paths.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    format!("{} {}", paths.collect::<Vec<_>>().stable_text(), stores.words(Some(haplotypes)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use teatime::Cancel;

    use super::*;
    use crate::{calls::PloidyMismatch, contigs::ContigArgs, stores::Opening};

    /// Stores that were begun with this text are gone on with.
    #[test]
    fn words_of_a_job_stay() {
        let folder = tempfile::tempdir().expect("the temporary folder should be writable");
        let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("a file");
        write("c.bed", &[0x6c, 0x1b, 1, 0b1011, 0b1110]);
        write("c.bim", b"1 v 0 1 A C\nX w 0 2 A C\n");
        write("c.fam", b"f a 0 0 0 -9\nf b 0 0 0 -9\n");
        let bed = folder.path().join("c.bed");
        let stores = Stores::open(std::slice::from_ref(&bed), &Opening::default(), &Run::default());
        let mut stores = stores.expect("it is a store");
        stores.take(&ContigArgs::default(), &Cancel::default()).expect("it has contigs");
        stores.ploidy_mismatch = Some(PloidyMismatch { stored: 3, ploidy: 2, calls: 7 });
        let bed = bed.canonicalize().expect("it is there");
        let expected = "[[\".\"]] Some(Contigs { autosomes: Karyotype(Some(22)), said: false, asked: None, left_out: 0, \
                        autosomal: 1, sex: {\"X\": 1}, mitochondrial: 0, unplaced: 0, other: 0, absent: [] }) \
                        Some(PloidyMismatch { stored: 3, ploidy: 2, calls: 7 }) Some(1) true Plink 2";
        assert_eq!(job(&stores, true), format!("[{bed:?}] {expected}"));
    }
}
