//! The arguments of commands that filter arrays.

use std::path::{Path, PathBuf};

use clap::{Args, builder::TypedValueParser};
use teatime::{
    MissingChunk,
    store::{Compression, Shuffle},
};

use crate::{
    args::{FileArgs, Named, Resources, local, named, refuse},
    failure::Failure,
    output::{Output, target::Target},
    remote::input,
    store_args::MISSING_CHUNKS,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Npy,
    Zarr,
}

pub(super) const FORMATS: [(&str, Format); 2] = [(".zarr", Format::Zarr), (".npy", Format::Npy)];

pub(super) const COMPRESSIONS: Named<Compression> = &[
    ("zstd", Compression::Zstd { level: 1 }),
    ("blosc", Compression::Blosc { level: 1, shuffle: Shuffle::Bytes }),
    ("none", Compression::None),
];

/// The array that is filtered, and its axes.
#[derive(Args, Debug)]
pub(crate) struct ArrayArgs {
    /// The array: a .npy file, or the folder or .zip file of a Zarr array or of an OME-Zarr image
    #[arg(value_name = "IN", value_parser = input())]
    pub(crate) input: PathBuf,
    /// File for the result: its ending, .npy or .zarr, says what it is
    #[arg(value_name = "OUT", value_parser = local().try_map(|path| Target::new(&path, &FORMATS)))]
    pub(crate) out: Target<Format>,
    /// The level of an OME-Zarr image, 0 being that of full size [default: 0]
    #[arg(long, value_name = "N")]
    pub(crate) level: Option<usize>,
    /// Write smaller levels of an OME-Zarr image too, each of means of the one before, until they fit 256 x 256 pixels
    #[arg(long)]
    pub(crate) pyramid: bool,
    /// The axes that are filtered, by their numbers from 0, or from -1 back from the last [default: all but that of --channel-axis; of an
    /// image, those along space]
    #[arg(
        long,
        value_name = "A,...",
        value_delimiter = ',',
        conflicts_with = "channel_axis",
        allow_hyphen_values = true
    )]
    pub(crate) axes: Option<Vec<i64>>,
    /// An axis that is left alone, as those of an image are that are not along space; -1 is the last
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    pub(crate) channel_axis: Option<i64>,
}

/// The computation and the result.
#[derive(Args, Debug)]
pub(crate) struct ResultArgs {
    /// Compute f64 and integers of 32 and 64 bits in f32: faster, and what devices do that do not compute in f64
    #[arg(long)]
    pub(crate) narrow: bool,
    /// Meaning of a chunk of a Zarr array that is not there: the array's fill value, or damage
    ///
    /// Most programs leave out chunks that hold nothing else, as of the background of an image.
    #[arg(long, value_name = "MEANS", value_parser = named(MISSING_CHUNKS), default_value = "fill")]
    pub(crate) missing_chunk: MissingChunk,
    /// Extents of a chunk of OUT.zarr [default: those of the input, within shards too]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) chunks: Option<Vec<u64>>,
    /// Extents of a shard of OUT.zarr, a file of several chunks: multiples of theirs [default: those of the input, else each chunk is a file]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) shards: Option<Vec<u64>>,
    /// Compression of the chunks of OUT.zarr [default: zstd]
    #[arg(long, value_name = "HOW", value_parser = named(COMPRESSIONS))]
    pub(crate) compression: Option<Compression>,
    #[command(flatten)]
    pub(crate) file: FileArgs,
    /// Go on with OUT.zarr where a run was stopped, or begin one that can be gone on with
    ///
    /// Ends with the same bytes wherever runs were stopped. The device, the version of teatime and all options but those of memory have to be the same, and the
    /// input's files: where they are, their names, sizes and times of change.
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) resume: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

/// Returns the index of axis `number` of `axes` axes; negative numbers count from the end.
pub(super) fn axis(flag: &str, number: i64, axes: usize) -> Result<usize, Failure> {
    let place = if number < 0 { number.checked_add_unsigned(axes as u64) } else { Some(number) };
    let axis = place.and_then(|place| usize::try_from(place).ok()).filter(|place| *place < axes);
    let last = axes.saturating_sub(1);
    let why = format!("{flag}: {number} of {axes} axes, which are 0 to {last}, or -{axes} to -1");
    axis.ok_or(Failure::Error(why))
}

impl ArrayArgs {
    /// Fails if the result would replace the input.
    pub(super) fn refuse_input(&self) -> Result<(), Failure> {
        let real = |path: &Path| path.canonicalize().ok();
        let (input, out) = (real(&self.input), self.out.path());
        if real(&out).is_some_and(|out| input.is_some_and(|input| input.starts_with(out))) {
            let why = "holds the input; choose another name for the result";
            return Err(Failure::Error(format!("{}: {why}", out.display())));
        }
        Ok(())
    }

    /// Refuses options that only Zarr results have, if the result is a .npy file.
    pub(super) fn refuse_options(&self, result: &ResultArgs) -> Result<(), Failure> {
        let is_other = self.out.format != Format::Zarr;
        refuse(&[
            (is_other && self.pyramid, "--pyramid is for OUT.zarr alone"),
            (is_other && result.chunks.is_some(), "--chunks is for OUT.zarr alone"),
            (is_other && result.shards.is_some(), "--shards is for OUT.zarr alone"),
            (is_other && result.compression.is_some(), "--compression is for OUT.zarr alone"),
        ])
    }

    /// Returns the path that the result is written to.
    pub(super) fn result(&self, resume: bool, output: &Output) -> PathBuf {
        if resume { self.out.path() } else { output.path(&self.out.name) }
    }
}
