//! The record of `teatime blur`, and its summary.

use serde::Serialize;
use teatime::filter::WrittenFilter;

use super::{BlurArgs, input::Input, preview::Shown};
use crate::{
    array::Gaps,
    record::{Process, StreamSeconds},
    text,
};

/// The record of a run.
#[derive(Debug, Serialize)]
pub(super) struct Record {
    #[serde(flatten)]
    pub(super) process: Process,
    input: InputRecord,
    sigma: Vec<f64>,
    boxes: Boxes,
    #[serde(skip_serializing_if = "Option::is_none")]
    preview: Option<Shown>,
    seconds: Seconds,
}

#[derive(Debug, Serialize)]
struct InputRecord {
    path: String,
    shape: Vec<u64>,
    dtype: String,
    #[serde(flatten)]
    gaps: Gaps,
}

/// How the array was cut.
#[derive(Debug, Serialize)]
struct Boxes {
    filtered: u64,
    /// Of an earlier run.
    found: u64,
    /// Elements that were read for each that was filtered.
    times_covered: f64,
    times_decoded: f64,
}

#[derive(Debug, Serialize)]
struct Seconds {
    wall: f64,
    open: f64,
    #[serde(flatten)]
    stream: StreamSeconds,
}

impl Record {
    pub(super) fn new(
        process: Process,
        args: &BlurArgs,
        input: &Input,
        written: &WrittenFilter,
        preview: Option<Shown>,
        [wall, open]: [f64; 2],
    ) -> Self {
        let WrittenFilter { boxes, found, times_covered, times_decoded, stats, .. } = *written;
        Self {
            process,
            input: InputRecord {
                path: input.path.clone(),
                shape: input.stored.array.shape().to_vec(),
                dtype: input.stored.name_of_dtype(),
                gaps: input.stored.gaps(),
            },
            sigma: args.sigma.clone(),
            boxes: Boxes { filtered: boxes, found, times_covered, times_decoded },
            preview,
            seconds: Seconds { wall, open, stream: (&stats).into() },
        }
    }

    /// What the command prints when it is done.
    pub(super) fn summary(&self) -> String {
        let Self { process, input, boxes, preview, seconds, .. } = self;
        let extents: Vec<String> = input.shape.iter().map(ToString::to_string).collect();
        let mut out = process.head(&input.path, &format!("{} of {}", extents.join(" x "), input.dtype));
        let mut line = |name: &str, what: String| out += &format!("{name:<10}{what}\n");
        let (peak, on_device) = process.peaks();
        let peak = peak.map_or_else(String::new, |peak| format!("; peak memory {peak}"));
        let sigma: Vec<String> = self.sigma.iter().map(ToString::to_string).collect();
        line("sigma", format!("{}{peak}, of the device {on_device}", sigma.join(", ")));
        let Boxes { filtered, found, times_covered, times_decoded } = boxes;
        let found = if *found > 0 { format!("; {} were there", text::count(*found)) } else { String::new() };
        let read = format!("elements read {times_covered:.2} times, chunks decoded {times_decoded:.2} times");
        line("boxes", format!("{}: {read}{found}", text::count(*filtered)));
        let Seconds { wall, stream: StreamSeconds { read, decode, stalled, upload, compute }, .. } = seconds;
        line(
            "time",
            format!(
                "{wall:.2} s: waiting for chunks {stalled:.2} s, upload {upload:.2} s, compute {compute:.2} s;"
            ),
        );
        line("", format!("meanwhile, summed over threads: read {read:.2} s, decode {decode:.2} s"));
        if let Some(shown) = preview {
            line("preview", shown.line());
        }
        out + &process.wrote()
    }
}
