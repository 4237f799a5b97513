//! The files that `teatime distance` writes.

use teatime_genotype::{DistanceFacts, Distances, SampleNeighbors, WrittenBands};

use crate::{
    failure::Failure,
    output::{
        Output,
        target::{self, NEIGHBORS},
    },
    stores::Stores,
    text,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Table,
    Zarr,
    Plink,
    PlinkBinary,
}

impl Format {
    /// Returns true for PLINK's formats, which hold only the distances of samples from one another.
    pub(super) const fn is_plinks(self) -> bool {
        matches!(self, Self::Plink | Self::PlinkBinary)
    }
}

/// The file extension of each format; an extension that ends with another comes before it.
pub(super) const FORMATS: [(&str, Format); 5] = [
    (".dist.bin", Format::PlinkBinary),
    (".dist", Format::Plink),
    (".npy", Format::Npy),
    (".tsv", Format::Table),
    (".zarr", Format::Zarr),
];

/// The file extensions of the files beside the result.
const NPY_NAMES: &str = ".id";
const PLINK_NAMES: &str = ".dist.id";
const WITH_NAMES: &str = ".with.id";
const TREE: &str = ".nwk";

pub(super) type Target = target::Target<Format>;

impl Target {
    /// Returns the names of the files beside the result, each with true if a run with these options writes it: with a tree, with neighbors
    /// instead of distances, with another store.
    pub(super) fn beside(&self, tree: bool, neighbors: bool, with: bool) -> [(String, bool); 5] {
        let npy = self.format == Format::Npy;
        [
            (NEIGHBORS, neighbors && npy),
            (NPY_NAMES, npy),
            (PLINK_NAMES, self.format.is_plinks()),
            (WITH_NAMES, with && npy),
            (TREE, tree),
        ]
        .map(|(ending, written)| (self.file(ending), written))
    }
}

/// The distances, in the form in which they were computed.
pub(super) enum Results {
    Matrix(Distances),
    Neighbors(SampleNeighbors),
    /// Distances that were written at their final path, band by band.
    Written(WrittenBands),
}

impl Results {
    /// Returns the number of pairs of samples whose distance is NaN, and the facts on the variants and the passes.
    pub(super) fn facts(&self) -> (u64, &DistanceFacts) {
        match self {
            Self::Matrix(result) => (result.undefined, &result.facts),
            Self::Neighbors(result) => (result.undefined, &result.facts),
            Self::Written(result) => (result.undefined, &result.facts),
        }
    }

    /// Writes the results that are not yet on disk, the names of the samples, and the names of the `others` that distances are to.
    pub(super) fn write(
        &self,
        output: &Output,
        target: &Target,
        stores: &Stores,
        others: Option<&[String]>,
    ) -> Result<(), Failure> {
        let (path, samples) = (output.path(&target.name), &stores.samples);
        match (self, target.format) {
            (Self::Written(..), _) => return Ok(()),
            (Self::Matrix(result), Format::Npy) => result.matrix.write_npy(path)?,
            (Self::Matrix(result), Format::Table) => {
                result.write_table(path, samples, others, text::exact)?
            }
            (Self::Matrix(result), Format::Zarr) => result.write_zarr(path, samples, others)?,
            (Self::Matrix(result), Format::Plink) => {
                result.write_plink(path, |distance| text::general(distance, 6))?
            }
            (Self::Matrix(result), Format::PlinkBinary) => result.write_plink_binary(path)?,
            (Self::Neighbors(near), Format::Npy) => {
                near.nearest.write_npy(path, output.path(&target.file(NEIGHBORS)))?
            }
            (Self::Neighbors(near), Format::Table) => near.write_table(path, samples, others, text::exact)?,
            (Self::Neighbors(near), _) => near.write_zarr(path, samples, others)?,
        }
        if let Self::Matrix(Distances { tree: Some(tree), .. }) = self {
            let tree = tree.newick(samples, text::exact)?;
            output.put(&target.file(TREE), |file| writeln!(file, "{tree}"))?;
        }
        match target.format {
            Format::Npy => {
                others.map_or(Ok(()), |others| output.list(&target.file(WITH_NAMES), others))?;
                output.list(&target.file(NPY_NAMES), samples)
            }
            // PLINK uses a sample's name as its family if the family is unknown.
            Format::Plink | Format::PlinkBinary => output.put(&target.file(PLINK_NAMES), |file| {
                let mut names = stores.families.as_ref().unwrap_or(samples).iter().zip(samples);
                names.try_for_each(|(family, id)| writeln!(file, "{family}\t{id}"))
            }),
            Format::Table | Format::Zarr => Ok(()),
        }
    }
}
