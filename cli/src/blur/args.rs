//! The arguments of `teatime blur`.

use std::path::{Path, PathBuf};

use clap::{Args, builder::TypedValueParser};
use teatime::{
    MissingChunk, StoredType,
    filter::{GaussianOptions, Mode, PerAxis},
    store::{Compression, Shuffle},
};

use crate::{
    args::{Named, Resources, default_of, local, named, refuse, with_exits},
    failure::Failure,
    output::{Output, target::Target},
    store_args::MISSING_CHUNKS,
};

/// The format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Npy,
    Zarr,
}

pub(super) const FORMATS: [(&str, Format); 2] = [(".zarr", Format::Zarr), (".npy", Format::Npy)];

pub(super) const COMPRESSIONS: Named<Compression> = &[
    ("zstd", Compression::Zstd { level: 1 }),
    ("blosc", Compression::Blosc { level: 1, shuffle: Shuffle::Bytes }),
    ("none", Compression::None),
];

/// Gaussian filter of an image or volume of any size, or a derivative of it
///
/// Takes one to five axes and numbers of any kind: a .npy file, a Zarr array (its own folder, within a store or alone), or an OME-Zarr
/// image, of which the axes along space are filtered, and the result is one, too. By scipy's conventions; the values are those of the whole array, to the last bit, however it is cut into boxes.
#[derive(Args, Debug)]
#[command(after_long_help = with_exits(HELP, Some("an OUT.zarr that is written with --resume stays")))]
pub(crate) struct BlurArgs {
    /// The array: a .npy file, or the folder of a Zarr array or of an OME-Zarr image
    #[arg(value_name = "IN", value_parser = local())]
    pub(super) input: PathBuf,
    /// File for the result: its ending, .npy or .zarr, says what it is
    #[arg(value_name = "OUT", value_parser = local().try_map(|path| Target::new(&path, &FORMATS)))]
    pub(super) out: Target<Format>,
    /// Standard deviation in elements: one for all filtered axes, or one for each; 0 leaves an axis alone
    #[arg(long, value_name = "S,...", required = true, value_delimiter = ',', allow_negative_numbers = true)]
    pub(super) sigma: Vec<f64>,
    /// Standard deviations are in the units of the image's axes, such as micrometers, and not in pixels
    #[arg(long, conflicts_with_all = ["axes", "channel_axis"])]
    pub(super) physical: bool,
    /// The level of an OME-Zarr image, 0 being that of full size [default: 0]
    #[arg(long, value_name = "N")]
    pub(super) level: Option<usize>,
    /// Write smaller levels of an OME-Zarr image too, each of means of the one before, until they fit 256 x 256 pixels
    #[arg(long)]
    pub(super) pyramid: bool,
    /// The axes that are filtered, by their numbers from 0, or from -1 back from the last [default: all but that of --channel-axis; of an
    /// image, those along space]
    #[arg(
        long,
        value_name = "A,...",
        value_delimiter = ',',
        conflicts_with = "channel_axis",
        allow_hyphen_values = true
    )]
    pub(super) axes: Option<Vec<i64>>,
    /// An axis that is left alone, as those of an image are that are not along space; -1 is the last
    #[arg(long, value_name = "A", allow_negative_numbers = true)]
    pub(super) channel_axis: Option<i64>,
    /// Values beyond the ends of an axis `a b c d`: one mode for all, or one for each filtered axis
    ///
    /// reflect: d c b a | a b c d | d c b a. mirror: d c b | a b c d | c b a. nearest: a a a | a b c d | d d d. wrap: b c d | a b c d | a b c. constant: --cval.
    #[arg(long, value_name = "MODE,...", value_parser = named(MODES), default_value = default_of(MODES), value_delimiter = ',')]
    pub(super) mode: Vec<Mode>,
    /// Value beyond the ends with --mode constant
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    pub(super) cval: f64,
    /// Reach of the weights, in standard deviations: radius = truncate x sigma + 0.5 without its fraction
    #[arg(long, value_name = "T", default_value_t = GaussianOptions::default().truncate, allow_negative_numbers = true)]
    pub(super) truncate: f64,
    /// Reach of the weights, in elements, instead of --truncate: one for all filtered axes, or one for each
    #[arg(
        long,
        value_name = "R,...",
        value_delimiter = ',',
        conflicts_with = "truncate",
        allow_negative_numbers = true
    )]
    pub(super) radius: Option<Vec<u32>>,
    /// 0 for the Gaussian, 1 for its derivative, and so on: one for all filtered axes, or one for each
    #[arg(
        long,
        value_name = "O,...",
        default_value = "0",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    pub(super) order: Vec<u32>,
    /// Type of the result: that of the input, integers rounded to the nearest, or floating point, which has NaN for what is missing
    /// [default: same; of derivatives of unsigned integers, which are negative too, f32, and f64 of 32 bits]
    #[arg(long, value_name = "TYPE", value_parser = named(TYPES))]
    pub(super) dtype: Option<Dtype>,
    /// Compute f64 and integers of 32 and 64 bits in f32: faster, and what devices do that do not compute in f64
    #[arg(long)]
    pub(super) narrow: bool,
    /// Meaning of a chunk of a Zarr array that is not there: the array's fill value, or damage
    ///
    /// Most programs leave out chunks that hold nothing else, as of the background of an image.
    #[arg(long, value_name = "MEANS", value_parser = named(MISSING_CHUNKS), default_value = "fill")]
    pub(super) missing_chunk: MissingChunk,
    /// Extents of a chunk of OUT.zarr [default: those of the input, within shards too]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) chunks: Option<Vec<u64>>,
    /// Extents of a shard of OUT.zarr, a file of several chunks: multiples of theirs [default: those of the input, else each chunk is a file]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) shards: Option<Vec<u64>>,
    /// Compression of the chunks of OUT.zarr [default: zstd]
    #[arg(long, value_name = "HOW", value_parser = named(COMPRESSIONS))]
    pub(super) compression: Option<Compression>,
    /// Replace the results of this command that are there, in any of its formats, as the record beside them lists them
    ///
    /// Any other file of the name of a result is an error. The earlier results stay until the new ones are there.
    #[arg(long)]
    pub(super) overwrite: bool,
    /// Go on with OUT.zarr where a run was stopped, or begin one that can be gone on with
    ///
    /// Ends with the same bytes wherever runs were stopped. The device, the version of teatime and all options but those of memory have to be the same, and the
    /// input's files: where they are, their names, sizes and times of change.
    #[arg(long, conflicts_with = "overwrite")]
    pub(super) resume: bool,
    /// Print the record instead of the summary
    #[arg(long)]
    pub(super) json: bool,
    #[command(flatten)]
    pub(crate) resources: Resources,
}

const HELP: &str = "\
OUT.run.json, named like OUT without its ending, is the record of the run:
command line, date, device, budgets, times, memory.
f64 and integers of 32 and 64 bits are computed in f64 on the cpu and CUDA.
Other devices need --narrow.

Examples:
  teatime blur volume.zarr blurred.zarr --sigma 3
  teatime blur image.npy edges.npy --sigma 1 --order 0,1 --dtype f32
  teatime blur rgb.zarr soft.zarr --sigma 2 --channel-axis 2 --mode nearest
  teatime blur big.zarr/0 blurred.zarr --sigma 1,4,4 --memory 2G --resume
  teatime blur cells.ome.zarr soft.ome.zarr --sigma 0.5 --physical --pyramid";

const MODES: Named<Mode> = &[
    ("reflect", Mode::Reflect),
    ("mirror", Mode::Mirror),
    ("nearest", Mode::Nearest),
    ("wrap", Mode::Wrap),
    // --cval replaces the 0.0.
    ("constant", Mode::Constant(0.0)),
];

/// The type of the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dtype {
    Same,
    F32,
    F64,
}

const TYPES: Named<Dtype> = &[("same", Dtype::Same), ("f32", Dtype::F32), ("f64", Dtype::F64)];

/// Returns the result's type for `--dtype same`.
const fn same(of: StoredType) -> StoredType {
    match of {
        StoredType::Bool => StoredType::U8,
        StoredType::I64 | StoredType::U64 => StoredType::F64,
        dtype => dtype,
    }
}

/// Returns the index of axis `number` of `axes` axes; negative numbers count from the end.
pub(super) fn axis(flag: &str, number: i64, axes: usize) -> Result<usize, Failure> {
    let place = if number < 0 { number.checked_add_unsigned(axes as u64) } else { Some(number) };
    let axis = place.and_then(|place| usize::try_from(place).ok()).filter(|place| *place < axes);
    axis.ok_or_else(|| {
        Failure::Error(format!(
            "{flag}: {number} of {axes} axes, which are 0 to {}, or -{axes} to -1",
            axes.saturating_sub(1)
        ))
    })
}

/// Converts one value for all axes, or one for each axis.
pub(super) fn per_axis<T: Clone>(values: &[T]) -> PerAxis<T> {
    match values {
        [value] => PerAxis::All(value.clone()),
        values => PerAxis::Each(values.to_vec()),
    }
}

impl BlurArgs {
    /// # Errors
    /// [`Failure::Error`] if the result would replace the input.
    pub(super) fn refuse_input(&self) -> Result<(), Failure> {
        let real = |path: &Path| path.canonicalize().ok();
        let (input, out) = (real(&self.input), self.out.path());
        if real(&out).is_some_and(|out| input.is_some_and(|input| input.starts_with(out))) {
            let why = "holds the input; choose another name for the result";
            return Err(Failure::Error(format!("{}: {why}", out.display())));
        }
        Ok(())
    }

    /// # Errors
    /// [`Failure::Usage`] for options that only Zarr results have, if the result is a .npy file.
    pub(super) fn refuse_options(&self) -> Result<(), Failure> {
        let is_other = self.out.format != Format::Zarr;
        refuse(&[
            (is_other && self.pyramid, "--pyramid is for OUT.zarr alone"),
            (is_other && self.chunks.is_some(), "--chunks is for OUT.zarr alone"),
            (is_other && self.shards.is_some(), "--shards is for OUT.zarr alone"),
            (is_other && self.compression.is_some(), "--compression is for OUT.zarr alone"),
        ])
    }

    /// Returns the path that the result is written to.
    pub(super) fn result(&self, output: &Output) -> PathBuf {
        if self.resume { self.out.path() } else { output.path(&self.out.name) }
    }

    /// Returns the type of the result for an input of type `of`.
    pub(super) fn result_type(&self, of: StoredType) -> StoredType {
        match self.dtype {
            Some(Dtype::F32) => StoredType::F32,
            Some(Dtype::F64) => StoredType::F64,
            None if self.loses_negatives(of) && of == StoredType::U32 => StoredType::F64,
            None if self.loses_negatives(of) => StoredType::F32,
            Some(Dtype::Same) | None => same(of),
        }
    }

    /// Returns true if the input's type cannot hold the negative values of a derivative, which would become 0.
    pub(super) fn loses_negatives(&self, of: StoredType) -> bool {
        self.order.iter().any(|&order| order > 0)
            && matches!(same(of), StoredType::U8 | StoredType::U16 | StoredType::U32)
    }
}
