//! Results of `teatime pairwise` as files.

use std::{
    fs,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use serde_json::Value;
use teatime::{
    Device, Error, Run, StoredType,
    bytemuck::cast_slice,
    distance::{Metric, Missing, Options, WrittenDistances, write_pairwise_stored},
    linalg::Matrix,
    store::{
        ArraySpec, ArrayWriter, Attributes, BoxWriter, Compression, Folder, NewStore, NpyWriter,
        WritableStorage, ZarrFormat, is_free, write_group, write_npy,
    },
};

use super::{
    Found, PairwiseArgs, exponent,
    input::{Input, extents},
};
use crate::{
    failure::Failure,
    output::{Output, target::NEIGHBORS},
    text,
};

/// The number of observations along each side of a tile, independent of memory.
const SIDE: u64 = 1024;
pub(super) const DISTANCE: &str = "distance";
const SHARED: &str = "shared_features";

/// The format of a file of distances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Table,
    Zarr,
}

pub(super) const FORMATS: [(&str, Format); 3] =
    [(".zarr", Format::Zarr), (".tsv", Format::Table), (".npy", Format::Npy)];

/// Writes the results that are not yet on disk.
pub(super) fn write(
    output: &Output,
    args: &PairwiseArgs,
    metric: Metric,
    found: &Found,
) -> Result<(), Failure> {
    let (target, path) = (&args.out, output.path(&args.out.name));
    let store = || NewStore::create(&path, &attributes(args, metric));
    let shape = |matrix: &Matrix| [matrix.rows(), matrix.cols()];
    let matrix =
        |matrix: &Matrix| -> Result<(), Failure> { Ok(write_npy(&path, matrix.data(), shape(matrix))?) };
    match (found, target.format) {
        (Found::Tiles(..), _) => {}
        (Found::Distances(found), Format::Npy) => matrix(&found.distances)?,
        (Found::Distances(found), Format::Table) => {
            let numbers: String = (0..found.distances.cols()).map(|number| format!("\t{number}")).collect();
            let (header, names) =
                (format!("observation{numbers}"), (0..).map(|number: u64| number.to_string()));
            output.numbers(&target.name, &header, names, &found.distances, |_, x| text::exact(x))?;
        }
        (Found::Distances(found), Format::Zarr) => {
            let (store, axes, shape) = (store()?, axes(args), shape(&found.distances));
            store.put_matrix(DISTANCE, axes, found.distances.data(), shape, |distance| distance)?;
            if let Some(shared) = &found.shared {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "counts of features"
                )]
                store.put_matrix(SHARED, axes, shared.data(), shape, |count| count as u64)?;
            }
            store.finish()?;
        }
        (Found::Neighbors(found), Format::Npy) => {
            let nearest = &found.nearest;
            matrix(&nearest.distances)?;
            write_npy(
                output.path(&target.file(NEIGHBORS)),
                nearest.signed_indices(),
                shape(&nearest.distances),
            )?;
        }
        (Found::Neighbors(found), Format::Table) => {
            let (nearest, k) = (&found.nearest, found.nearest.distances.cols());
            output.put(&target.name, |file| {
                writeln!(file, "observation\trank\tneighbor\tdistance")?;
                let pairs = nearest.indices.iter().zip(nearest.distances.data()).enumerate();
                pairs.into_iter().try_for_each(|(at, (neighbor, distance))| {
                    writeln!(file, "{}\t{}\t{neighbor}\t{}", at / k, at % k + 1, text::exact(*distance))
                })
            })?;
        }
        (Found::Neighbors(found), Format::Zarr) => {
            let (store, nearest) = (store()?, &found.nearest);
            let (axes, shape) = (["observations", "neighbors"], shape(&nearest.distances));
            store.put_matrix("neighbor", axes, nearest.signed_indices(), shape, |number| number)?;
            store.put_matrix(DISTANCE, axes, nearest.distances.data(), shape, |distance| distance)?;
            store.finish()?;
        }
    }
    Ok(())
}

/// Distances that are written tile by tile.
pub(super) struct Job<'a> {
    pub(super) args: &'a PairwiseArgs,
    pub(super) input: &'a Input,
    pub(super) metric: Metric,
    pub(super) options: &'a Options,
    pub(super) device: &'a Device,
    pub(super) run: &'a Run,
}

impl Job<'_> {
    /// Writes D.zarr at its final path, or resumes it.
    pub(super) fn store(&self, output: &mut Output) -> Result<Found, Error> {
        let Self { args, metric, .. } = *self;
        let path = args.out.path();
        let is_new = is_free(&path, DISTANCE)?;
        output.written_in_place(&args.out.name);
        let counted = args.missing != Missing::Propagate;
        let begin = |job: &str, shape: &[u64], tile: &[u64]| {
            let storage: Arc<dyn WritableStorage> = Arc::new(Folder::new(&path).durable());
            let start = |name, dtype| {
                let mut spec = ArraySpec::new(dtype, shape, tile).of_results(&axes(args));
                // Frames of zstd have a checksum; those of blosc have none.
                spec.compression = Compression::Zstd { level: 1 };
                spec.job = Some(job.to_owned());
                ArrayWriter::resume(storage.clone(), name, spec)
            };
            let distances = start(DISTANCE, StoredType::F64)?;
            let shared = counted.then(|| start(SHARED, StoredType::U64)).transpose()?;
            // The store belongs to this job. An earlier process may have been killed while it wrote the group.
            storage.sweep("").map_err(|source| Error::io(path.display(), source))?;
            write_group(&*storage, "", ZarrFormat::V2, &attributes(args, metric))?;
            Ok((distances, shared))
        };
        let written = self.write(counted, begin).inspect_err(|error| {
            if is_new && matches!(error, Error::Budget { .. }) {
                // The store is still empty. If the removal fails, a later run resumes the rest.
                fs::remove_dir_all(&path).ok();
            } else {
                args.out.note_unfinished(error);
            }
        })?;
        Ok(Found::Tiles(written, None))
    }

    /// Writes D.npy.
    pub(super) fn npy(&self, output: &Output) -> Result<Found, Error> {
        let path = output.path(&self.args.out.name);
        let counts = [AtomicU64::new(0), AtomicU64::new(0)];
        let begin = |_: &str, shape: &[u64], tile: &[u64]| {
            let npy = NpyWriter::create(&path, StoredType::F64, shape)?.tile(tile);
            Ok((Counted { npy, counts: &counts }, None))
        };
        let written = self.write(false, begin)?;
        Ok(Found::Tiles(written, Some(counts.map(AtomicU64::into_inner))))
    }

    /// Writes distances to the arrays that `begin` starts, given the job's text, the shape and the tiles; two arrays if `counted`.
    fn write<W: BoxWriter>(
        &self,
        counted: bool,
        begin: impl FnOnce(&str, &[u64], &[u64]) -> Result<(W, Option<W>), Error>,
    ) -> Result<WrittenDistances, Error> {
        let Self { args, input, metric, options, device, run } = *self;
        let y = input.y.as_ref();
        let shape = [&input.x, y.unwrap_or(&input.x)].map(|array| extents(array, args.observations)[0]);
        let tile = shape.map(|extent| SIDE.min(extent.max(1)));
        let begin = |job: &str| begin(job, &shape, &tile);
        let y = y.map(|y| &y.array);
        write_pairwise_stored(&input.x.array, y, metric, options, device, run, tile, counted, begin)
    }
}

/// Returns the numbers of distances that are NaN and that are infinite.
pub(super) fn not_finite(distances: &[f64]) -> [u64; 2] {
    distances.iter().fold([0, 0], |[nan, infinite], x| {
        [nan + u64::from(x.is_nan()), infinite + u64::from(x.is_infinite())]
    })
}

/// A .npy file of distances, with the numbers of those that are NaN and infinite.
struct Counted<'a> {
    npy: NpyWriter,
    counts: &'a [AtomicU64; 2],
}

impl BoxWriter for Counted<'_> {
    fn dtype(&self) -> Option<StoredType> {
        self.npy.dtype()
    }
    fn shape(&self) -> &[u64] {
        self.npy.shape()
    }
    fn tile_shape(&self) -> Vec<u64> {
        self.npy.tile_shape()
    }
    fn has_box(&self, ranges: &[Range<u64>]) -> Result<bool, Error> {
        self.npy.has_box(ranges)
    }
    fn write_box_bytes(&self, ranges: &[Range<u64>], elements: &[u8]) -> Result<(), Error> {
        for (count, more) in self.counts.iter().zip(not_finite(cast_slice(elements))) {
            count.fetch_add(more, Relaxed);
        }
        self.npy.write_box_bytes(ranges, elements)
    }
    fn finish(self) -> Result<(), Error> {
        self.npy.finish()
    }
}

const fn axes(args: &PairwiseArgs) -> [&'static str; 2] {
    if args.with.is_some() {
        ["observations", "observations_with"]
    } else {
        ["observations_0", "observations_1"]
    }
}

fn attributes(args: &PairwiseArgs, metric: Metric) -> Attributes {
    let entries: [(&str, Value); 4] = [
        ("source", concat!("teatime-", env!("CARGO_PKG_VERSION")).into()),
        ("metric", metric.name().into()),
        ("p", exponent(metric).into()),
        ("missing", args.missing.name().into()),
    ];
    entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
