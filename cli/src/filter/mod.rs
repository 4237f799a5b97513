//! Commands that filter arrays of any size, or levels of OME-Zarr images: their arguments, input, output and report.

mod args;
mod input;
mod output;

use std::sync::Arc;

use serde_json::json;
use teatime::{Cancel, ChunkedArray, Device, Run, StoredType, store::BoxWriter, stream::Swept};

use self::args::Format;
pub(crate) use self::{
    args::{ArrayArgs, ResultArgs},
    input::Input,
};
use crate::{failure::Failure, output::Output, progress::Bar, report::Report, text};

pub(crate) trait Filter {
    /// Filters an array; `begin` receives the job's text and begins the result.
    fn write<W: BoxWriter>(&self, on: On<'_>, begin: impl FnOnce(&str) -> teatime::Result<W>) -> Made;

    /// Adds the filter's options and iterations to the report.
    fn describe(&self, iterations: &[u64], report: &mut Report);
}

/// The array that a filter reads, the device, and the run that bounds memory.
pub(crate) type On<'a> = (&'a Arc<dyn ChunkedArray>, &'a Device, &'a Run);

/// The counts of a sweep, and the number of iterations for each image, if the filter iterates.
pub(crate) type Made = teatime::Result<(Swept, Vec<u64>)>;

/// A command that filters an array.
pub(crate) struct Task<'a> {
    pub(crate) command: &'static str,
    pub(crate) array: &'a ArrayArgs,
    pub(crate) result: &'a ResultArgs,
    /// The command's own options of OME-Zarr images alone, each with true if it is given.
    pub(crate) of_images: &'a [(bool, &'static str)],
    /// Returns the type of the result for an input of a type.
    pub(crate) result_type: &'a dyn Fn(StoredType) -> StoredType,
    /// The words of the warning that elements are missing.
    pub(crate) of_missing: &'static str,
}

impl Task<'_> {
    /// Runs the command, with the filter that `filter` makes for its input.
    pub(crate) fn run<F: Filter>(
        &self,
        cancel: &Cancel,
        filter: impl FnOnce(&Input) -> Result<F, Failure>,
    ) -> Result<(), Failure> {
        let (mut report, run) = Report::start(&self.result.resources, cancel);
        self.array.refuse_input()?;
        self.array.refuse_options(self.result)?;
        let input = Input::open(self)?;
        // The path within OUT.zarr of the filtered array: level 0 of an image, or OUT.zarr itself.
        let resumed = self.result.resume.then(|| if input.image.is_some() { "0" } else { "" });
        let mut output = self.array.out.open(self.command, &[], self.result.file.overwrite, resumed)?;
        let filter = filter(&input)?;
        let device = self.result.resources.open()?;
        let elements = input.stored.array.shape().iter().product();
        let (bar, run) = Bar::over(&run, "Filter", elements, "elements");
        report.stage("open");
        let (swept, iterations) = self.write(&filter, &input, &device, &run, &mut output)?;
        drop(bar);
        if swept.found == 0 {
            input.stored.check_found()?;
        }
        input.stored.files.check()?;
        let shape: Vec<String> = input.stored.array.shape().iter().map(ToString::to_string).collect();
        let size = format!("{} of {}", shape.join(" x "), input.stored.type_name());
        report.devices = swept.devices;
        report.head((&device, &output), (swept.memory, swept.stats), &input.stored.path, &size);
        self.describe(&mut report, &input, &swept, |report| filter.describe(&iterations, report));
        report.seconds();
        report.streamed("time", &format!("{:.2} s: ", report.wall), "");
        report.finish(output, self.result.file.json)
    }

    /// Adds the input, what `options` adds, and the boxes to the report.
    fn describe(&self, report: &mut Report, input: &Input, swept: &Swept, options: impl FnOnce(&mut Report)) {
        let stored = &input.stored;
        report.warn(stored.warnings(self.of_missing));
        let Swept { boxes, found: earlier_boxes, times_covered, times_decoded, .. } = *swept;
        let mut of_input =
            json!({ "path": stored.path, "shape": stored.array.shape(), "dtype": stored.type_name() });
        stored.record_gaps(&mut of_input);
        report.put(json!({ "input": of_input }));
        options(report);
        // The number of boxes filtered now, the number that an earlier run had done, and the elements read for each element filtered.
        report.put(json!({
            "boxes": { "filtered": boxes, "found": earlier_boxes, "times_covered": times_covered, "times_decoded": times_decoded },
        }));
        let there = format!("; {} were there", text::count(earlier_boxes));
        let earlier = if earlier_boxes > 0 { there } else { String::new() };
        let read = format!("elements read {times_covered:.2} times, chunks decoded {times_decoded:.2} times");
        report.line("boxes", format!("{}: {read}{earlier}", text::count(boxes)));
    }

    fn write<F: Filter>(
        &self,
        filter: &F,
        input: &Input,
        device: &Device,
        run: &Run,
        output: &mut Output,
    ) -> Result<(Swept, Vec<u64>), Failure> {
        let (on, resume) = ((&input.stored.array, device, run), self.result.resume);
        let path = self.array.result(resume, output);
        if resume {
            output.written_in_place(&self.array.out.name);
        }
        let mut image = None;
        let made = match self.array.out.format {
            Format::Npy => filter.write(on, |_| output::npy(self, input, &path)),
            Format::Zarr => filter.write(on, |job| {
                let (array, made) = output::zarr(self, input, &path, job)?;
                image = made;
                Ok(array)
            }),
        };
        let made = made.and_then(|made| {
            if let Some(image) = image {
                let (_bar, run) = Bar::over(run, "Pyramid", 0, "rows");
                image.finish(device, &run)?;
            }
            Ok(made)
        });
        made.map_err(|error| {
            if resume {
                self.array.out.note_unfinished(&error);
            }
            input.named(error)
        })
    }
}
