//! `teatime denoise`: total variation denoising of images of any size.

use clap::Args;
use serde_json::json;
use teatime::{
    Cancel, StoredType,
    filter::{DenoisedTv, TvOptions, write_denoised_tv},
    store::BoxWriter,
};

use crate::{
    args::{Named, named, with_exits},
    failure::Failure,
    filter::{ArrayArgs, Filter, Made, On, ResultArgs, Task},
    report::Report,
};

/// Total variation denoising of an image or volume of any size: noise goes, edges stay
///
/// Takes what `teatime blur` takes; one to three axes are those of an image, and images along the others, such as channels, are denoised one by one. By skimage's definition (`denoise_tv_chambolle`), with integers divided by the maximum of their type; the values are the same to the last bit however the array is cut into boxes.
#[derive(Args, Debug)]
#[command(after_long_help = with_exits(HELP, Some("an OUT.zarr that is written with --resume stays")))]
pub(crate) struct DenoiseArgs {
    /// Weight of the total variation, in the units of the image as floats: the larger, the smoother
    #[arg(long, value_name = "W", default_value_t = TvOptions::default().weight, allow_negative_numbers = true)]
    weight: f64,
    /// End when the energy changes by less than this factor of its first value
    #[arg(long, value_name = "E", default_value_t = TvOptions::default().eps, allow_negative_numbers = true)]
    eps: f64,
    /// Take exactly that many iterations, instead of --eps [default: up to 200, by --eps]
    #[arg(long, value_name = "N", conflicts_with = "eps", value_parser = clap::value_parser!(u64).range(1..))]
    iterations: Option<u64>,
    #[command(flatten)]
    pub(crate) array: ArrayArgs,
    /// Type of the result [default: f32; of f64 and integers of 32 and 64 bits f64, unless --narrow is given]
    #[arg(long, value_name = "TYPE", value_parser = named(TYPES))]
    dtype: Option<StoredType>,
    #[command(flatten)]
    pub(crate) result: ResultArgs,
}

const TYPES: Named<StoredType> = &[("f32", StoredType::F32), ("f64", StoredType::F64)];

const HELP: &str = "\
OUT.run.json, named like OUT without its ending, is the record of the run:
command line, date, device, iterations, budgets, times, memory.
f64 and integers of 32 and 64 bits are computed in f64 on the cpu and CUDA.
Other devices need --narrow. Missing elements and NaN are an error.

Examples:
  teatime denoise volume.zarr smooth.zarr
  teatime denoise image.npy smooth.npy --weight 0.2 --iterations 100
  teatime denoise rgb.zarr smooth.zarr --channel-axis -1 --memory 2G --resume";

pub(crate) fn run(args: &DenoiseArgs, cancel: &Cancel) -> Result<(), Failure> {
    let computed = TvOptions::default().narrow(args.result.narrow);
    let task = Task {
        command: "denoise",
        array: &args.array,
        result: &args.result,
        of_images: &[],
        result_type: &|stored| args.dtype.unwrap_or_else(|| computed.computed_type(stored)),
        of_missing: "missing elements cannot be denoised",
    };
    task.run(cancel, |input| {
        let options = computed.clone().axes(input.axes(&args.array)?).weight(args.weight);
        Ok(TotalVariation(match args.iterations {
            Some(iterations) => options.eps(0.0).max_iterations(iterations),
            None => options.eps(args.eps),
        }))
    })
}

struct TotalVariation(TvOptions);

impl Filter for TotalVariation {
    fn write<W: BoxWriter>(&self, on: On<'_>, begin: impl FnOnce(&str) -> teatime::Result<W>) -> Made {
        let (x, device, run) = on;
        let DenoisedTv { swept, iterations, .. } = write_denoised_tv(x, &self.0, device, run, begin)?;
        Ok((swept, iterations))
    }

    fn describe(&self, iterations: &[u64], report: &mut Report) {
        let TvOptions { weight, eps, max_iterations, .. } = self.0;
        report.put(json!({
            "weight": weight,
            "eps": eps,
            "max_iterations": max_iterations,
            // One for each image; 0 for an image that an earlier run had denoised.
            "iterations": iterations,
        }));
        let (least, most) = (iterations.iter().min(), iterations.iter().max());
        let range = match (least, most) {
            (Some(least), Some(most)) if least < most => format!("{least} to {most}"),
            (_, most) => most.copied().unwrap_or(0).to_string(),
        };
        report.line("iterated", format!("{range} times, weight {weight}{}", report.peaks("; ")));
    }
}
