//! The files that the result of `teatime blur` goes to.

use std::{path::Path, sync::Arc};

use teatime::{
    MissingChunk, Result,
    store::{
        ArraySpec, ArrayWriter, Attributes, Compression, Folder, NpyWriter, ZarrArray, ZarrFormat,
        read_attributes, read_json,
    },
};
use teatime_image::{ImageSpec, MultiscaleWriter, OmeVersion, Pyramid};

use super::{args::BlurArgs, input::Input};

/// Most pixels along an axis of the planes of an image's smallest level.
const PLANE: u64 = 256;

/// Attributes that are of the numbers as they were stored, or of how they were written. What is missing of a result is NaN, and any of its
/// numbers may be one that marked missing ones.
const OWN: [&str; 7] = [
    "_FillValue",
    "missing_value",
    "scale_factor",
    "add_offset",
    "_Unsigned",
    "_ARRAY_DIMENSIONS",
    "teatime",
];

/// Starts a .npy file.
pub(super) fn npy(args: &BlurArgs, input: &Input, path: &Path) -> Result<NpyWriter> {
    NpyWriter::create(path, args.result_type(input.stored.array.dtype()), input.stored.array.shape())
}

/// Starts an array, or goes on with one; of an image, level 0 of another.
pub(super) fn zarr(
    args: &BlurArgs,
    input: &Input,
    path: &Path,
    job: &str,
) -> Result<(ArrayWriter, Option<MultiscaleWriter>)> {
    let shape = input.stored.array.shape();
    let within = |extents: &[u64]| {
        extents.iter().zip(shape).map(|(&chunk, &extent)| chunk.min(extent.max(1))).collect()
    };
    let (stored, inner) = (input.stored.array.chunk_shape(), &input.stored.inner_chunk);
    // Shards stay, with their chunks, unless one of them is given.
    let shards = inner.as_ref().filter(|_| args.chunks.is_none()).map(|_| stored.to_vec());
    let chunks = args.chunks.clone().or_else(|| inner.clone()).unwrap_or_else(|| within(stored));
    let mut spec = ArraySpec::new(args.result_type(input.stored.array.dtype()), shape, &chunks);
    spec.shard_shape = args.shards.clone().or(shards);
    spec.compression = args.compression.unwrap_or(Compression::Zstd { level: 1 });
    spec.job =
        Some(if args.resume { format!("{} {job}", input.stored.files.words()?) } else { job.to_owned() });
    let Some(source) = &input.image else {
        let place = &input.stored.files.place;
        if place.is_dir() {
            keep(&mut spec, place)?;
        }
        with_checksum(&mut spec, args);
        return Ok((ArrayWriter::resume(Arc::new(Folder::new(path).durable()), "", spec)?, None));
    };
    if source.version() == OmeVersion::V04 {
        spec.format = ZarrFormat::V2;
    }
    with_checksum(&mut spec, args);
    let mut spec = ImageSpec::like(source, args.level.unwrap_or(0), spec)?;
    if args.pyramid {
        spec.pyramid = Pyramid::UntilWithin(PLANE);
    }
    let image = MultiscaleWriter::resume(path, spec)?;
    Ok((image.base()?, Some(image)))
}

/// Has chunks that may be gone on with tell whether they are whole, as those of zstd do by themselves. Version 2 has no way.
fn with_checksum(spec: &mut ArraySpec, args: &BlurArgs) {
    let is_zstd = matches!(spec.compression, Compression::Zstd { .. });
    spec.checksum = args.resume && spec.format == ZarrFormat::V3 && !is_zstd;
}

/// Has an array keep what a Zarr array at `path` has besides elements: the version of Zarr, but that shards are of version 3, the names of
/// axes, and attributes.
fn keep(spec: &mut ArraySpec, path: &Path) -> Result<()> {
    let (folder, array) = (Folder::new(path), ZarrArray::open(path, "", MissingChunk::Error)?);
    let names = array.dimension_names();
    if names.len() == spec.shape.len() {
        spec.axes = names.to_vec();
    }
    if read_json(&folder, "zarr.json")?.is_none() && spec.shard_shape.is_none() {
        spec.format = ZarrFormat::V2;
        // xarray takes that of version 2 for missing numbers.
        spec.fill = serde_json::Value::Null;
    }
    let attributes = read_attributes(&folder, "")?.as_object().cloned().unwrap_or_default();
    spec.attributes =
        attributes.into_iter().filter(|(name, _)| !OWN.contains(&&**name)).collect::<Attributes>();
    Ok(())
}
