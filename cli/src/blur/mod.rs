//! `teatime blur`: Gaussian filters of arrays of any size.

mod args;
mod input;
mod output;

use serde_json::json;
use teatime::{
    Cancel, Device, Run,
    filter::{GaussianOptions, write_gaussian},
    stream::Swept,
};

pub(crate) use self::args::BlurArgs;
use self::{args::Format, input::Input};
use crate::{failure::Failure, output::Output, progress::Bar, report::Report, text};

const COMMAND: &str = "blur";

/// Runs `teatime blur`.
pub(crate) fn run(args: &BlurArgs, cancel: &Cancel) -> Result<(), Failure> {
    let (mut report, run) = Report::start(&args.resources, cancel);
    args.refuse_input()?;
    args.refuse_options()?;
    let input = Input::open(args)?;
    // The path within OUT.zarr of the filtered array: level 0 of an image, or OUT.zarr itself.
    let resumed = args.resume.then(|| if input.image.is_some() { "0" } else { "" });
    let mut output = args.out.open(COMMAND, &[], args.overwrite, resumed)?;
    let options = input.options(args)?;
    let device = args.resources.open()?;
    let (bar, run) = Bar::over(&run, "Filter", input.stored.array.shape().iter().product(), "elements");
    report.stage("open");
    let written = write(args, &input, &options, &device, &run, &mut output)?;
    drop(bar);
    if written.found == 0 {
        input.stored.check_found()?;
    }
    input.stored.files.check()?;
    let shape: Vec<String> = input.stored.array.shape().iter().map(ToString::to_string).collect();
    let size = format!("{} of {}", shape.join(" x "), input.stored.type_name());
    report.head((&device, &output), (written.memory, written.stats), &input.stored.path, &size);
    describe(&mut report, args, &input, &written);
    report.seconds();
    report.streamed("time", &format!("{:.2} s: ", report.wall), "");
    report.finish(output, args.json)
}

fn describe(report: &mut Report, args: &BlurArgs, input: &Input, written: &Swept) {
    let stored = &input.stored;
    report.warn(stored.warnings("they are NaN, and so is the result where weights reach one"));
    let Swept { boxes, found: earlier_boxes, times_covered, times_decoded, .. } = *written;
    let mut of_input =
        json!({ "path": stored.path, "shape": stored.array.shape(), "dtype": stored.type_name() });
    stored.record_gaps(&mut of_input);
    report.put(json!({
        "input": of_input,
        "sigma": args.sigma,
        // The number of boxes filtered now, the number that an earlier run had done, and the elements read for each element filtered.
        "boxes": { "filtered": boxes, "found": earlier_boxes, "times_covered": times_covered, "times_decoded": times_decoded },
    }));
    let sigma: Vec<String> = args.sigma.iter().map(ToString::to_string).collect();
    report.line("sigma", sigma.join(", ") + &report.peaks("; "));
    let earlier = if earlier_boxes > 0 {
        format!("; {} were there", text::count(earlier_boxes))
    } else {
        String::new()
    };
    let read = format!("elements read {times_covered:.2} times, chunks decoded {times_decoded:.2} times");
    report.line("boxes", format!("{}: {read}{earlier}", text::count(boxes)));
}

fn write(
    args: &BlurArgs,
    input: &Input,
    options: &GaussianOptions,
    device: &Device,
    run: &Run,
    output: &mut Output,
) -> Result<Swept, Failure> {
    let (x, sigma, path) = (&input.stored.array, input.sigma(args)?, args.result(output));
    if args.resume {
        output.written_in_place(&args.out.name);
    }
    let mut image = None;
    let written = match args.out.format {
        Format::Npy => write_gaussian(x, sigma, options, device, run, |_| output::npy(args, input, &path)),
        Format::Zarr => write_gaussian(x, sigma, options, device, run, |job| {
            let (array, made) = output::zarr(args, input, &path, job)?;
            image = made;
            Ok(array)
        }),
    };
    let written = written.and_then(|written| {
        if let Some(image) = image {
            let (_bar, run) = Bar::over(run, "Pyramid", 0, "rows");
            image.finish(device, &run)?;
        }
        Ok(written)
    });
    written.map_err(|error| {
        if args.resume {
            args.out.note_unfinished(&error);
        }
        input.named(error)
    })
}
