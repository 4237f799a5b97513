//! `teatime blur`: Gaussian filters of arrays of any size.

use clap::Args;
use serde_json::json;
use teatime::{
    Cancel, StoredType,
    filter::{GaussianOptions, Mode, PerAxis, write_gaussian},
    store::BoxWriter,
};

use crate::{
    args::{Named, default_of, named, refuse, with_exits},
    failure::Failure,
    filter::{ArrayArgs, Filter, Input, Made, On, ResultArgs, Task},
    report::Report,
};

/// Gaussian filter of an image or volume of any size, or a derivative of it
///
/// Takes one to five axes and numbers of any kind: a .npy file, a Zarr array (its own folder, within a store or alone), or an OME-Zarr
/// image, of which the axes along space are filtered, and the result is one, too. By scipy's conventions; the values are those of the whole array, to the last bit, however it is cut into boxes.
#[derive(Args, Debug)]
#[command(after_long_help = with_exits(HELP, Some("an OUT.zarr that is written with --resume stays")))]
pub(crate) struct BlurArgs {
    /// Standard deviation in elements: one for all filtered axes, or one for each; 0 leaves an axis alone
    #[arg(long, value_name = "S,...", required = true, value_delimiter = ',', allow_negative_numbers = true)]
    sigma: Vec<f64>,
    /// Standard deviations are in the units of the image's axes, such as micrometers, and not in pixels
    #[arg(long, conflicts_with_all = ["axes", "channel_axis"])]
    physical: bool,
    #[command(flatten)]
    pub(crate) array: ArrayArgs,
    /// Values beyond the ends of an axis `a b c d`: one mode for all, or one for each filtered axis
    ///
    /// reflect: d c b a | a b c d | d c b a. mirror: d c b | a b c d | c b a. nearest: a a a | a b c d | d d d. wrap: b c d | a b c d | a b c. constant: --cval.
    #[arg(long, value_name = "MODE,...", value_parser = named(MODES), default_value = default_of(MODES), value_delimiter = ',')]
    mode: Vec<Mode>,
    /// Value beyond the ends with --mode constant
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    cval: f64,
    /// Reach of the weights, in standard deviations: radius = truncate x sigma + 0.5 without its fraction
    #[arg(long, value_name = "T", default_value_t = GaussianOptions::default().truncate, allow_negative_numbers = true)]
    truncate: f64,
    /// Reach of the weights, in elements, instead of --truncate: one for all filtered axes, or one for each
    #[arg(
        long,
        value_name = "R,...",
        value_delimiter = ',',
        conflicts_with = "truncate",
        allow_negative_numbers = true
    )]
    radius: Option<Vec<u32>>,
    /// 0 for the Gaussian, 1 for its derivative, and so on: one for all filtered axes, or one for each
    #[arg(
        long,
        value_name = "O,...",
        default_value = "0",
        value_delimiter = ',',
        allow_negative_numbers = true
    )]
    order: Vec<u32>,
    /// Type of the result: that of the input, integers rounded to the nearest, or floating point, which has NaN for what is missing
    /// [default: same; of derivatives of unsigned integers, which are negative too, f32, and f64 of 32 bits]
    #[arg(long, value_name = "TYPE", value_parser = named(TYPES))]
    dtype: Option<Dtype>,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Dtype {
    Same,
    F32,
    F64,
}

const TYPES: Named<Dtype> = &[("same", Dtype::Same), ("f32", Dtype::F32), ("f64", Dtype::F64)];

/// Returns the result's type for `--dtype same`.
const fn same(stored: StoredType) -> StoredType {
    match stored {
        StoredType::Bool => StoredType::U8,
        StoredType::I64 | StoredType::U64 => StoredType::F64,
        dtype => dtype,
    }
}

/// Converts one value for all axes, or one for each axis.
fn per_axis<T: Clone>(values: &[T]) -> PerAxis<T> {
    match values {
        [value] => PerAxis::All(value.clone()),
        values => PerAxis::Each(values.to_vec()),
    }
}

pub(crate) fn run(args: &BlurArgs, cancel: &Cancel) -> Result<(), Failure> {
    let task = Task {
        command: "blur",
        array: &args.array,
        result: &args.result,
        of_images: &[(args.physical, "--physical")],
        result_type: &|stored| args.result_type(stored),
        of_missing: "they are NaN, and so is the result where weights reach one",
    };
    task.run(cancel, |input| {
        let (options, sigma) = (args.options(input)?, args.sigma_in_pixels(input)?);
        Ok(Gaussian { given: &args.sigma, sigma, options })
    })
}

/// A Gaussian filter; `given` are the standard deviations as the user gave them.
struct Gaussian<'a> {
    given: &'a [f64],
    sigma: PerAxis<f64>,
    options: GaussianOptions,
}

impl Filter for Gaussian<'_> {
    fn write<W: BoxWriter>(&self, on: On<'_>, begin: impl FnOnce(&str) -> teatime::Result<W>) -> Made {
        let (x, device, run) = on;
        let swept = write_gaussian(x, self.sigma.clone(), &self.options, device, run, begin)?;
        Ok((swept, Vec::new()))
    }

    fn describe(&self, _: &[u64], report: &mut Report) {
        report.put(json!({ "sigma": self.given }));
        let sigma: Vec<String> = self.given.iter().map(ToString::to_string).collect();
        report.line("sigma", sigma.join(", ") + &report.peaks("; "));
    }
}

impl BlurArgs {
    /// Returns the options of the filter, including the axes that are filtered.
    fn options(&self, input: &Input) -> Result<GaussianOptions, Failure> {
        let has_constant = self.mode.contains(&Mode::Constant(0.0));
        refuse(&[(self.cval != 0.0 && !has_constant, "--cval is of --mode constant alone")])?;
        if self.dtype == Some(Dtype::Same) && self.loses_negatives(input.stored.array.dtype()) {
            let why = "derivatives are negative too, which the input's type is not; give f32 or f64";
            return Err(Failure::Error(format!("--dtype same: {why}")));
        }
        let mode = |mode: &Mode| match mode {
            Mode::Constant(_) => Mode::Constant(self.cval),
            mode => *mode,
        };
        let options = GaussianOptions::default()
            .axes(input.axes(&self.array)?)
            .order(per_axis(&self.order))
            .mode(per_axis(&self.mode.iter().map(mode).collect::<Vec<_>>()))
            .truncate(self.truncate)
            .narrow(self.result.narrow);
        Ok(match &self.radius {
            Some(radius) => options.radius(per_axis(radius)),
            None => options,
        })
    }

    fn sigma_in_pixels(&self, input: &Input) -> Result<PerAxis<f64>, Failure> {
        match &input.image {
            Some(image) if self.physical => {
                let sigma = image
                    .sigma_in_pixels(self.array.level.unwrap_or(0), &self.sigma)
                    .map_err(|error| input.named(error))?;
                Ok(PerAxis::Each(image.spatial_axes().into_iter().map(|axis| sigma[axis]).collect()))
            }
            _ => Ok(per_axis(&self.sigma)),
        }
    }

    /// Returns the type of the result for an input of type `stored`.
    fn result_type(&self, stored: StoredType) -> StoredType {
        match self.dtype {
            Some(Dtype::F32) => StoredType::F32,
            Some(Dtype::F64) => StoredType::F64,
            None if self.loses_negatives(stored) && stored == StoredType::U32 => StoredType::F64,
            None if self.loses_negatives(stored) => StoredType::F32,
            Some(Dtype::Same) | None => same(stored),
        }
    }

    /// Returns true if the input's type cannot hold the negative values of a derivative, which would become 0.
    fn loses_negatives(&self, stored: StoredType) -> bool {
        self.order.iter().any(|&order| order > 0)
            && matches!(same(stored), StoredType::U8 | StoredType::U16 | StoredType::U32)
    }
}
