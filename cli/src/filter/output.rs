//! The files that filters write.

use std::{path::Path, sync::Arc};

use teatime::{
    MissingChunk, Result,
    store::{
        ArraySpec, ArrayWriter, Attributes, Compression, Folder, NpyWriter, ZarrArray, ZarrFormat,
        read_attributes, read_json,
    },
};
use teatime_image::{ImageSpec, MultiscaleWriter, OmeVersion, Pyramid};

use super::{Task, args::ResultArgs, input::Input};
use crate::remote;

/// Attributes that describe the stored elements or their encoding, and that results do not keep. A result has NaN for missing elements, and any
/// of its elements may equal the input's missing value.
const OWN: [&str; 7] = [
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "_Unsigned",
    "_ARRAY_DIMENSIONS",
    "teatime",
];

pub(super) fn npy(task: &Task<'_>, input: &Input, path: &Path) -> Result<NpyWriter> {
    NpyWriter::create(path, (task.result_type)(input.stored.array.dtype()), input.stored.array.shape())
}

/// Starts the array of the result, or resumes it. For an image, the array is level 0 of a new image.
pub(super) fn zarr(
    task: &Task<'_>,
    input: &Input,
    path: &Path,
    job: &str,
) -> Result<(ArrayWriter, Option<MultiscaleWriter>)> {
    let args = task.result;
    let shape = input.stored.array.shape();
    let within = |extents: &[u64]| {
        extents.iter().zip(shape).map(|(&chunk, &extent)| chunk.min(extent.max(1))).collect()
    };
    let (stored, shard) = (input.stored.array.chunk_shape(), &input.stored.shard);
    // Shards and their chunks keep the input's shapes unless --shards or --chunks is given.
    let shards = shard.clone().filter(|_| args.chunks.is_none());
    let of_input = || if shard.is_some() { stored.to_vec() } else { within(stored) };
    let chunks = args.chunks.clone().unwrap_or_else(of_input);
    let mut spec = ArraySpec::new((task.result_type)(input.stored.array.dtype()), shape, &chunks);
    spec.shard_shape = args.shards.clone().or(shards);
    spec.compression = args.compression.unwrap_or(Compression::Zstd { level: 1 });
    spec.job =
        Some(if args.resume { format!("{} {job}", input.stored.files.words()?) } else { job.to_owned() });
    let Some(source) = &input.image else {
        let place = &input.stored.files.place;
        if !remote::is_file(place) {
            keep(&mut spec, place)?;
        }
        with_checksum(&mut spec, args);
        return Ok((ArrayWriter::resume(Arc::new(Folder::new(path).durable()), "", spec)?, None));
    };
    if source.version() != OmeVersion::V05 {
        spec.format = ZarrFormat::V2;
    }
    with_checksum(&mut spec, args);
    let mut spec = ImageSpec::like(source, task.array.level.unwrap_or(0), spec)?;
    if task.array.pyramid {
        spec.pyramid = Pyramid::USUAL;
    }
    let image = MultiscaleWriter::resume(path, spec)?;
    Ok((image.base()?, Some(image)))
}

/// Adds checksums to chunks of a resumable result, so that partly written chunks are detected; zstd has its own. Zarr version 2 has no
/// checksums.
fn with_checksum(spec: &mut ArraySpec, args: &ResultArgs) {
    let is_zstd = matches!(spec.compression, Compression::Zstd { .. });
    spec.checksum = args.resume && spec.format == ZarrFormat::V3 && !is_zstd;
}

/// Copies to `spec` what the Zarr array at `path` has in addition to elements: axis names, attributes, and the version of Zarr (always 3 for
/// shards).
fn keep(spec: &mut ArraySpec, path: &Path) -> Result<()> {
    let folder = remote::open(path)?;
    let array = ZarrArray::open_in(&folder, "", MissingChunk::Error)?;
    let names = array.dimension_names();
    if names.len() == spec.shape.len() {
        spec.axes = names.to_vec();
    }
    if read_json(&*folder, "zarr.json")?.is_none() && spec.shard_shape.is_none() {
        spec.format = ZarrFormat::V2;
        // xarray takes the fill value of a version 2 array for a missing value.
        spec.fill = serde_json::Value::Null;
    }
    let attributes = read_attributes(&*folder, "")?.as_object().cloned().unwrap_or_default();
    let is_kept = |(name, _): &(String, _)| !OWN.contains(&name.as_str());
    spec.attributes = attributes.into_iter().filter(is_kept).collect::<Attributes>();
    Ok(())
}
