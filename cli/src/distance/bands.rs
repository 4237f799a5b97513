//! Distances of some samples at a time, written where they stay: a run goes on where another was stopped.

use teatime::{Device, Error, Run};
use teatime_genotype::{DistanceBands, DistanceOptions, distances};

use super::{DistanceArgs, target::Format, write::Results};
use crate::{failure::Failure, output::Output, stores::Stores};

/// Samples on a side of the squares that are written, and what bands are multiples of: whatever the budgets.
const SIDE: u64 = 1024;

/// The distances, all at once, or in bands of D.zarr that are written in its place by then.
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
            .write_zarr(args.out.path(), &stores.samples, &job(args, stores), run)
            .inspect_err(|error| args.out.note_unfinished(error))?;
        Ok(Results::Written(Box::new(bands), written))
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
    args.out.refuse_to_lose(args.overwrite)?;
    match in_place() {
        // Not of what is asked for.
        Err(Error::Argument { name, .. }) if name != "merge_alleles" => Err(too_large.into()),
        written => Ok(written?),
    }
}

/// All that distances depend on besides what the library knows.
fn job(args: &DistanceArgs, stores: &Stores) -> String {
    let paths = stores.paths.iter().map(|path| path.canonicalize().unwrap_or_else(|_| path.clone()));
    let (paths, genotypes) = (paths.collect::<Vec<_>>(), &stores.genotypes);
    format!(
        "{paths:?} {:?} {:?} {:?} {:?} {} {:?} {}",
        stores.arrays,
        stores.contigs,
        stores.ploidy_mismatch,
        genotypes.counted_allele(),
        args.haplotypes,
        genotypes.kind(),
        genotypes.variants()
    )
}
