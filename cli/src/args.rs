//! Arguments that several commands share, and the parsers of their values.

#[cfg(test)]
mod tests;

use std::{path::PathBuf, sync::OnceLock};

use clap::{
    Args,
    builder::{PathBufValueParser, PossibleValue, PossibleValuesParser, TypedValueParser},
};
use teatime::{Budget, Cancel, Device, DeviceOptions, Run};
use teatime_genotype::{MatchBy, VariantFilter};

use crate::{failure::Failure, remote::RemoteArgs, timeline::Recording};

/// Returns a command's `help` with its last section: the exit codes, and which files a failed run leaves. `stays` names what else a failed run
/// leaves beside a result file; without `stays`, the command writes a folder of results.
pub(crate) fn with_exits(help: &str, stays: Option<&str>) -> String {
    let ends = match stays {
        Some(stays) => &format!(
            "; {stays}).\nThe record is written last and removed first: where it is, all\nresults are there."
        ),
        None => {
            "). run.json is written last and removed first: where it is, all
results are there. While a run writes to DIR, another that would is refused."
        }
    };
    format!(
        "{help}

Exit codes: 0 done, 1 error, 2 wrong usage, 130, 143 and 129 stopped by Ctrl-C,
SIGTERM and SIGHUP. Unless the code is 0, no result is left behind (but where
only the summary could not be printed, or an error names the folder that has
what is done{ends}"
    )
}

/// Options of a result in a file or a store.
#[derive(Args, Debug)]
pub(crate) struct FileArgs {
    /// Replace the results of this command that are there, in any of its formats, as the record beside them lists them
    ///
    /// Any other file of the name of a result is an error. The earlier results stay until the new ones are there.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print the record instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of the results in a folder.
#[derive(Args, Debug)]
pub(crate) struct FolderArgs {
    /// Replace the results of this command that the folder holds, as its run.json lists them
    ///
    /// Any other file of the name of a result is an error. The earlier results stay until the new ones are there.
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Print run.json instead of the summary
    #[arg(long)]
    pub(crate) json: bool,
}

/// The options that choose the variants that take part.
#[derive(Args, Debug)]
pub(crate) struct FilterArgs {
    /// Leave out variants with a minor allele frequency below X (0 to 0.5)
    #[arg(long, value_name = "X", default_value_t = VariantFilter::default().min_maf, value_parser = between(0.0, 0.5), allow_negative_numbers = true)]
    pub(crate) maf: f64,
    /// Leave out variants with more than this fraction of missing calls (0 to 1)
    #[arg(long, value_name = "X", default_value_t = VariantFilter::default().max_missing, value_parser = between(0.0, 1.0), allow_negative_numbers = true)]
    pub(crate) geno: f64,
}

impl From<&FilterArgs> for VariantFilter {
    fn from(args: &FilterArgs) -> Self {
        Self::default().min_maf(args.maf).max_missing(args.geno)
    }
}

/// The options for the device, the threads and the memory.
#[derive(Args, Debug)]
pub(crate) struct Resources {
    /// Device to compute on, as `teatime devices` names it: cpu, cuda:0, wgpu:0 ...
    ///
    /// Also cuda, wgpu:vulkan (or metal, dx12, gl), wgpu:vulkan:N, wgpu:software, and wgpu: with a part of the description. By
    /// default the one that the environment variable `TEATIME_DEVICE` names, else a GPU through CUDA, else a discrete GPU, else cpu.
    ///
    /// cuda:*, or names with commas, are several cards: pca, grm, project, blur, denoise and pairwise to .zarr share their work,
    /// with the same results; other commands take the first.
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Option<String>,
    /// Threads that decode, and compute on the cpu device; changes no result [default: as `TEATIME_THREADS` says, else all]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Most host memory to plan with [default: half of what is free]
    ///
    /// Free memory is what the system can give without swapping, or what the memory limit of the cgroup (container, batch
    /// job) leaves, where that is less.
    ///
    /// 512M, 2G, 1.5GiB (powers of 1024), 2GB (powers of 1000). A budget below what one block needs is an error that
    /// says the least.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) memory: Option<u64>,
    /// Most memory of the device to plan with [default: three quarters of it]
    ///
    /// On the cpu device, --memory counts.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) device_memory: Option<u64>,
    /// Write what each thread and the GPU did when, for ui.perfetto.dev
    ///
    /// Also of a run that fails or is stopped. An existing file is replaced if it is such a trace.
    #[arg(long, value_name = "F.json", value_parser = local())]
    trace: Option<PathBuf>,
    /// Write a page of what the run waited for: threads and the GPU over time, stages, memory, plots, the record
    ///
    /// One file of HTML, which opens in any browser. Also of a run that fails or is stopped. An existing file is replaced if it is
    /// such a page.
    #[arg(long, value_name = "F.html", value_parser = local())]
    report: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) remote: RemoteArgs,
    #[arg(skip)]
    recording: OnceLock<Recording>,
}

impl Resources {
    /// Begins the recording that the options ask for.
    pub(crate) fn record(&self) -> Result<&Recording, Failure> {
        let recording = Recording::begin(self.trace.clone(), self.report.clone())?;
        Ok(self.recording.get_or_init(|| recording))
    }

    /// Returns the recording that was begun.
    pub(crate) fn recording(&self) -> Recording {
        self.recording.get().cloned().unwrap_or_default()
    }

    /// Opens the device, which records if a file of that is asked for.
    pub(crate) fn open(&self) -> Result<Device, Failure> {
        let options = DeviceOptions::default().threads(self.threads);
        let device = match &self.device {
            Some(name) => Device::open_with(name, &options),
            None => Device::best_with(&options),
        };
        Ok(self.recording().recorded(device?))
    }

    /// Returns a warning for each device that would have been chosen but could not be used.
    pub(crate) fn warnings(device: &Device) -> Vec<String> {
        device.skipped().iter().map(|(name, why)| format!("{name} is not used: {why}")).collect()
    }

    /// Returns the run that these resources bound, without a progress bar.
    pub(crate) fn run(&self, cancel: &Cancel) -> Run {
        let memory = Budget::default().host(self.memory).device(self.device_memory);
        Run::default().cancel(cancel.clone()).memory(memory)
    }
}

/// Refuses the command line with the text of the first condition in `reasons` that holds.
pub(crate) fn refuse(reasons: &[(bool, &str)]) -> Result<(), Failure> {
    let first = reasons.iter().find(|(holds, _)| *holds);
    first.map_or(Ok(()), |(_, why)| Err(Failure::Usage((*why).into())))
}

/// Pairs of a name on the command line and the value that it stands for.
pub(crate) type Named<T> = &'static [(&'static str, T)];

/// Returns a parser that accepts the names of `values`.
pub(crate) fn named<T: Copy + Send + Sync>(values: Named<T>) -> impl TypedValueParser<Value = T> {
    by_name(values, |(name, _)| name).map(|(_, value)| value)
}

/// Returns a parser that accepts the library's names of `values`.
pub(crate) fn by_name<T: Copy + Send + Sync>(
    values: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(values.iter().map(|value| name(*value))).try_map(move |text| {
        values.iter().copied().find(|value| name(*value) == text).ok_or("not a possible value")
    })
}

/// Returns the name of the value that the library has as default.
pub(crate) fn default_of<T: Copy + Default + PartialEq>(values: Named<T>) -> &'static str {
    let default = T::default();
    values.iter().find(|(_, value)| *value == default).map_or("", |(name, _)| name)
}

/// Returns a parser of the property that variants are matched by.
pub(crate) fn match_by() -> impl TypedValueParser<Value = MatchBy> {
    let position = "Contig and position, both in the same genome build";
    let id = "Names of variants, such as rs numbers, wherever they are";
    let values = [(MatchBy::Position, position), (MatchBy::Id, id)];
    let values = values.map(|(by, help)| PossibleValue::new(by.name()).help(help));
    PossibleValuesParser::new(values)
        .map(|name| if name == MatchBy::Id.name() { MatchBy::Id } else { MatchBy::Position })
}

/// Parses a whole number of at least 1.
pub(crate) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("at least 1 is needed".into()),
        Ok(n) => Ok(n),
        Err(_) => Err("not a whole number".into()),
    }
}

/// Returns a parser of numbers from `low` to `high`.
pub(crate) fn between(low: f64, high: f64) -> impl Fn(&str) -> Result<f64, String> + Clone {
    move |text| match text.parse::<f64>() {
        Ok(value) if (low..=high).contains(&value) => Ok(value),
        _ => Err(format!("not a number from {low} to {high}")),
    }
}

/// Returns a parser of local paths, which refuses URLs.
pub(crate) fn local() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        let remote = path.to_str().is_some_and(|text| text.contains("://")) && !path.exists();
        let why = "results are on disks alone: copy a remote one to a disk, or mount it";
        if remote { Err(why) } else { Ok(path) }
    })
}

/// Returns the number of bytes that a text such as `512M`, `2G`, `1.5GiB` or `2GB` names. K, M, G and T are powers of 1024, as KiB, MiB, GiB and
/// TiB are; KB, MB, GB and TB are powers of 1000.
///
/// # Errors
/// Says why the text is not a size.
pub fn size(text: &str) -> Result<u64, String> {
    let wrong = || "not a size such as 512M, 2G, 1.5GiB or 2GB".to_owned();
    let at = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(at);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim().to_ascii_uppercase();
    let mut letters = unit.chars();
    let power = match letters.next() {
        None | Some('B') => 0,
        Some(letter) => 1 + "KMGT".find(letter).ok_or_else(wrong)?,
    };
    let base: f64 = match (power, letters.as_str()) {
        (0, "") | (1.., "" | "IB") => 1024.0,
        (1.., "B") => 1000.0,
        _ => return Err(wrong()),
    };
    let bytes = number * base.powi(i32::try_from(power).unwrap_or_default());
    if !(1.0..1e18).contains(&bytes) {
        return Err(format!("{text} is not between 1 byte and 1e18 bytes"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "just checked")]
    Ok(bytes as u64)
}
