//! The files that `teatime distance` writes.

use teatime::{Budget, stream::StreamStats};
use teatime_genotype::{
    DistanceBands, Distances, DistancesBetween, SampleNeighbors, VariantCounts, WrittenBands,
};

use crate::{
    failure::Failure,
    output::{
        Output,
        target::{self, NEIGHBORS},
    },
    stores::Stores,
    text,
};

/// The format of a file of distances.
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

/// The file that the distances are written to.
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
    Between(DistancesBetween),
    Neighbors(SampleNeighbors),
    /// Distances that were written at their final path, band by band.
    Written(Box<DistanceBands>, WrittenBands),
}

/// The properties that results of all forms have.
pub(super) struct Facts {
    /// The number of pairs of samples whose distance is NaN.
    pub(super) undefined: u64,
    pub(super) counts: VariantCounts,
    /// The number of variants of which the samples carry two or more different alternate alleles.
    pub(super) multiallelic: u64,
    /// True if all alternate alleles of such a variant count as one.
    pub(super) merged: bool,
    pub(super) digest: u64,
    pub(super) memory: Budget,
    pub(super) stats: StreamStats,
}

impl Results {
    pub(super) fn facts(&self) -> Facts {
        macro_rules! facts {
            ($result:ident, $undefined:expr, $merged:expr) => {
                Facts {
                    undefined: $undefined,
                    counts: $result.counts,
                    multiallelic: $result.multiallelic,
                    merged: $merged,
                    digest: $result.digest,
                    memory: $result.memory,
                    stats: $result.stats,
                }
            };
        }
        match self {
            Self::Matrix(result) => facts!(result, result.undefined(), result.merged),
            Self::Between(result) => facts!(result, result.undefined(), true),
            Self::Neighbors(result) => facts!(result, result.undefined, result.merged),
            Self::Written(bands, written) => Facts {
                undefined: written.undefined,
                counts: *bands.counts(),
                multiallelic: bands.multiallelic(),
                merged: true,
                digest: bands.digest(),
                memory: bands.memory(),
                stats: bands.stats(),
            },
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
        let names = [samples, others.unwrap_or_default()];
        match (self, target.format) {
            (Self::Written(..), _) => return Ok(()),
            (Self::Matrix(result), Format::Npy) => result.write_npy(path)?,
            (Self::Matrix(result), Format::Table) => result.write_table(path, samples, text::exact)?,
            (Self::Matrix(result), Format::Zarr) => result.write_zarr(path, samples)?,
            (Self::Matrix(result), Format::Plink) => {
                result.write_plink(path, |distance| text::general(distance, 6))?
            }
            (Self::Matrix(result), Format::PlinkBinary) => result.write_plink_binary(path)?,
            (Self::Between(result), Format::Npy) => result.write_npy(path)?,
            (Self::Between(result), Format::Table) => result.write_table(path, names, text::exact)?,
            (Self::Between(result), _) => result.write_zarr(path, names)?,
            (Self::Neighbors(near), Format::Npy) => {
                near.write_npy(path, output.path(&target.file(NEIGHBORS)))?
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
