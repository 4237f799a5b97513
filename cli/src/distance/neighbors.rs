//! The nearest samples of each, instead of the matrix of distances.

use serde::Serialize;
use teatime_genotype::SampleNeighbors;

use super::{
    DistanceArgs, Results,
    bands::{Alleles, Found},
    target::{Format, Target},
};
use crate::{failure::Failure, output::Output, target::NEIGHBORS, text};

/// How neighbors were found.
#[derive(Debug, Serialize)]
pub(super) struct NeighborsRecord {
    /// Of each sample.
    k: usize,
    /// Bands of samples whose distances were computed, each in one pass; null where all distances were a matrix.
    bands: Option<u32>,
}

impl NeighborsRecord {
    /// In words.
    pub(super) fn summary(&self) -> String {
        let how = self.bands.map_or_else(
            || "of the matrix of all distances".to_owned(),
            |bands| format!("of distances in {}", text::plural(bands.into(), "band")),
        );
        format!("{} of each sample, {how}", text::count(self.k as u64))
    }
}

/// # Errors
/// [`Failure::Usage`] for a file of neighbors in a format of matrices.
pub(super) fn check(args: &DistanceArgs) -> Result<(), Failure> {
    match args.out.format {
        Format::Plink | Format::PlinkBinary if args.neighbors.is_some() => Err(no_format()),
        _ => Ok(()),
    }
}

fn no_format() -> Failure {
    Failure::Usage("--neighbors is for --out D.npy, D.tsv or D.zarr".into())
}

/// Of what was found, the record and the results.
pub(super) fn found(result: SampleNeighbors) -> (Found, Option<Results>) {
    let SampleNeighbors { undefined, counts, multiallelic, merged, digest, memory, stats, bands, .. } =
        result;
    let alleles = Alleles { multiallelic, merged };
    let neighbors = Some(NeighborsRecord { k: result.nearest.distances.cols(), bands });
    let found = Found { undefined, counts, alleles, digest, memory, stats, bands: None, neighbors };
    (found, Some(Results::Neighbors(result)))
}

pub(super) fn write(
    output: &Output,
    target: &Target,
    result: &SampleNeighbors,
    samples: &[String],
    others: Option<&[String]>,
) -> Result<(), Failure> {
    let path = output.path(&target.name);
    match target.format {
        Format::Npy => result.write_npy(path, output.path(&target.file(NEIGHBORS)))?,
        Format::Table => result.write_table(path, samples, others, text::exact)?,
        Format::Zarr => result.write_zarr(path, samples, others)?,
        Format::Plink | Format::PlinkBinary => return Err(no_format()),
    }
    Ok(())
}
