//! Where the result of `teatime blur` goes.

use std::{path::Path, sync::Arc};

use teatime::{
    Error, Result, StoredType,
    store::{ArraySpec, ArrayWriter, Compression, Folder, NpyWriter, ZarrFormat},
};
use teatime_image::{ImageSpec, MultiscaleWriter, OmeVersion, Pyramid};

use super::{
    BlurArgs, COMMAND, Dtype,
    input::Input,
    preview::{PNG, Png},
};
use crate::{
    args::Named,
    failure::Failure,
    note,
    output::{Output, listed},
    target::{self, RECORD},
};

/// Most pixels along an axis of the planes of an image's smallest level.
const PLANE: u64 = 256;

/// What a result is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Zarr,
}

pub(super) const FORMATS: [(&str, Format); 2] = [(".zarr", Format::Zarr), (".npy", Format::Npy)];

pub(super) const COMPRESSIONS: Named<Compression> = &[
    ("zstd", Compression::Zstd { level: 1 }),
    ("blosc", Compression::Blosc { level: 1, shuffle: teatime::store::Shuffle::Bytes }),
    ("none", Compression::None),
];

/// Where a result goes.
pub(super) type Target = target::Target<Format>;

impl Target {
    /// The folder of results.
    pub(super) fn prepare(
        &self,
        preview: Option<&Png>,
        resume: bool,
        overwrite: bool,
    ) -> Result<Output, Failure> {
        let record = self.file(RECORD);
        let preview = preview.map(|png| png.name.as_str());
        let written: Vec<&str> = [record.as_str(), self.name.as_str()].into_iter().chain(preview).collect();
        // An earlier preview may have any name.
        let previews = listed(&self.folder.join(&record), COMMAND);
        let previews = previews.into_iter().filter(|name| name.ends_with(PNG));
        let all: Vec<String> = FORMATS.iter().map(|(ending, _)| self.file(ending)).chain(previews).collect();
        let others: Vec<&str> =
            all.iter().map(String::as_str).filter(|name| !written.contains(name)).collect();
        if !resume {
            self.refuse_unfinished()?;
            return Output::prepare(&self.folder, COMMAND, &written, &others, overwrite);
        }
        if self.format != Format::Zarr {
            return Err(Failure::Usage("--resume is for OUT.zarr alone".into()));
        }
        Output::resume(&self.folder, COMMAND, [&written, &others], &self.name)
    }
}

/// The type of the result.
fn dtype(args: &BlurArgs, input: &Input) -> StoredType {
    match (args.dtype, input.array.dtype()) {
        (Dtype::F32, _) => StoredType::F32,
        (Dtype::F64, _) => StoredType::F64,
        (Dtype::Same, StoredType::Bool) => StoredType::U8,
        // They are filtered as f64.
        (Dtype::Same, StoredType::I64 | StoredType::U64) => StoredType::F64,
        (Dtype::Same, dtype) => dtype,
    }
}

/// Starts a .npy file.
pub(super) fn npy(args: &BlurArgs, input: &Input, path: &Path) -> Result<NpyWriter> {
    NpyWriter::create(path, dtype(args, input), input.array.shape())
}

/// Starts an array, or goes on with one; of an image, level 0 of another.
pub(super) fn zarr(
    args: &BlurArgs,
    input: &Input,
    path: &Path,
    job: &str,
) -> Result<(ArrayWriter, Option<MultiscaleWriter>)> {
    let shape = input.array.shape();
    let within = |extents: &[u64]| {
        extents.iter().zip(shape).map(|(&chunk, &extent)| chunk.min(extent.max(1))).collect()
    };
    let chunks: Vec<u64> = args.chunks.clone().unwrap_or_else(|| within(input.array.chunk_shape()));
    let mut spec = ArraySpec::new(dtype(args, input), shape, &chunks);
    spec.shard_shape.clone_from(&args.shards);
    spec.compression = args.compression;
    spec.job = Some(format!("{} {job}", input.path));
    let Some(source) = &input.image else {
        return Ok((ArrayWriter::resume(Arc::new(Folder::new(path).durable()), "", spec)?, None));
    };
    if source.version() == OmeVersion::V04 {
        spec.format = ZarrFormat::V2;
    }
    let mut spec = ImageSpec::like(source, args.level.unwrap_or(0), spec)?;
    if args.pyramid {
        spec.pyramid = Pyramid::UntilWithin(PLANE);
    }
    let image = MultiscaleWriter::resume(path, spec)?;
    Ok((image.base()?, Some(image)))
}

/// Says what an error leaves.
pub(super) fn note_unfinished(args: &BlurArgs, error: &Error) {
    if args.resume && !matches!(error, Error::Store { .. }) && args.out.is_begun() {
        note(&format!("{} is not complete: --resume goes on with it", args.out.path().display()));
    }
}
