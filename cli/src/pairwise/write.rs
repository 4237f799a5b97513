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
    store::{
        ArraySpec, ArrayWriter, Attributes, BoxWriter, Compression, Folder, NewStore, NpyWriter,
        WritableStorage, ZarrFormat, is_free, write_group,
    },
};

use super::{
    Found, PairwiseArgs, exponent,
    input::{Input, extents},
    number,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Table,
    Zarr,
}

pub(super) const FORMATS: [(&str, Format); 3] =
    [(".zarr", Format::Zarr), (".tsv", Format::Table), (".npy", Format::Npy)];

/// The error for a .npy, which holds one array.
pub(super) const NO_NPY: &str = "--radius is for --out D.tsv or D.zarr";

/// Writes the results that are not yet on disk.
pub(super) fn write(
    output: &Output,
    args: &PairwiseArgs,
    metric: Metric,
    results: &Found,
) -> Result<(), Failure> {
    let (target, path) = (&args.out, output.path(&args.out.name));
    let store = || NewStore::create(&path, &attributes(args, metric));
    match (results, target.format) {
        (Found::Tiles(..), _) => {}
        (Found::Distances(results), Format::Npy) => results.distances.write_npy(path)?,
        (Found::Distances(results), Format::Table) => {
            let numbers: String = (0..results.distances.cols()).map(|number| format!("\t{number}")).collect();
            let (header, names) =
                (format!("observation{numbers}"), (0..).map(|number: u64| number.to_string()));
            output.numbers(&target.name, &header, names, &results.distances, |_, x| text::exact(x))?;
        }
        (Found::Distances(results), Format::Zarr) => {
            let (store, axes, shape) =
                (store()?, axes(args), [results.distances.rows(), results.distances.cols()]);
            store.put_matrix(DISTANCE, axes, results.distances.data(), shape, |distance| distance)?;
            if let Some(shared) = &results.shared {
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "counts of features"
                )]
                store.put_matrix(SHARED, axes, shared.data(), shape, |count| count as u64)?;
            }
            store.finish()?;
        }
        (Found::Neighbors(results), Format::Npy) => {
            results.nearest.write_npy(path, output.path(&target.file(NEIGHBORS)))?;
        }
        (Found::Neighbors(results), Format::Table) => {
            output.put(&target.name, |file| {
                results.nearest.write_table(file, "observation", [&|row| row, &|index| index], text::exact)
            })?;
        }
        (Found::Neighbors(results), Format::Zarr) => {
            let store = store()?;
            results.nearest.write_zarr(&store, "observations")?;
            store.finish()?;
        }
        (Found::Within(_), Format::Npy) => return Err(Failure::Usage(NO_NPY.into())),
        (Found::Within(results), Format::Table) => {
            output.put(&target.name, |file| {
                results.within.write_table(file, "observation", [&|row| row, &|index| index], text::exact)
            })?;
        }
        (Found::Within(results), Format::Zarr) => {
            let store = store()?;
            results.within.write_zarr(&store)?;
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
    let radius = args.radius.map(|radius| ("radius", number(radius)));
    let entries: [(&str, Value); 4] = [
        ("source", concat!("teatime-", env!("CARGO_PKG_VERSION")).into()),
        ("metric", metric.name().into()),
        ("p", exponent(metric).into()),
        ("missing", args.missing.name().into()),
    ];
    entries.into_iter().chain(radius).map(|(name, value)| (name.to_owned(), value)).collect()
}
