//! Results of `teatime pairwise` as files.

use std::{fs, sync::Arc};

use serde_json::Value;
use teatime::{
    Device, Error, Run, StoredType,
    distance::{Metric, Missing, Options, WrittenDistances, write_pairwise_stored},
    linalg::Matrix,
    store::{
        ArraySpec, ArrayWriter, Attributes, Compression, Folder, NewStore, WritableStorage, ZarrFormat,
        is_free, write_group, write_npy,
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
        (Found::Tiles(_), _) => {}
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

/// Writes D.zarr at its final path, or resumes it.
pub(super) fn tiles(
    args: &PairwiseArgs,
    output: &mut Output,
    input: &Input,
    metric: Metric,
    options: &Options,
    device: &Device,
    run: &Run,
) -> Result<WrittenDistances, Error> {
    let path = args.out.path();
    let is_new = is_free(&path, DISTANCE)?;
    output.written_in_place(&args.out.name);
    let shape = [
        extents(&input.x, args.observations)[0],
        extents(input.y.as_ref().unwrap_or(&input.x), args.observations)[0],
    ];
    let tile = shape.map(|extent| SIDE.min(extent.max(1)));
    let begin = |job: &str| {
        let storage: Arc<dyn WritableStorage> = Arc::new(Folder::new(&path).durable());
        let start = |name, dtype| {
            let mut spec = ArraySpec::new(dtype, &shape, &tile).of_results(&axes(args));
            // Frames of zstd have a checksum; those of blosc have none.
            spec.compression = Compression::Zstd { level: 1 };
            spec.job = Some(job.to_owned());
            ArrayWriter::resume(storage.clone(), name, spec)
        };
        let distances = start(DISTANCE, StoredType::F64)?;
        let counted = args.missing != Missing::Propagate;
        let shared = counted.then(|| start(SHARED, StoredType::U64)).transpose()?;
        // The store belongs to this job. An earlier process may have been killed while it wrote the group.
        storage.sweep("").map_err(|source| Error::io(path.display(), source))?;
        write_group(&*storage, "", ZarrFormat::V2, &attributes(args, metric))?;
        Ok((distances, shared))
    };
    let y = input.y.as_ref().map(|y| &y.array);
    write_pairwise_stored(&input.x.array, y, metric, options, device, run, tile, begin).inspect_err(|error| {
        if is_new && matches!(error, Error::Budget { .. }) {
            // The store is still empty. If the removal fails, a later run resumes the rest.
            fs::remove_dir_all(&path).ok();
        } else {
            args.out.note_unfinished(error);
        }
    })
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
