//! Start-up: opening a device in a new process.

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use teatime::{Device, random::random_words};

use crate::{flight, measure::Session, report::Unit};

/// The number of processes for each median.
const RUNS: usize = 5;

/// Measures opening the session's device, and opening it with one launch; on CUDA also creating a bare context.
pub(crate) fn startup(session: &mut Session<'_>) {
    let id = "open in a new process";
    if !session.wants(id) {
        return;
    }
    let name = session.device.info().name.clone();
    let Some([open, first]) = measured(session, id, &["--startup", &name]) else { return };
    session.record(id, "", Unit::Milliseconds, 1.0, &open);
    session.record("open and launch in a new process", "", Unit::Milliseconds, 1.0, &first);
    if let Some(number) = name.strip_prefix("cuda:") {
        let id = "CUDA context in a new process";
        if let Some([context, _]) = measured(session, id, &["--startup-context", number]) {
            session.record(id, "", Unit::Milliseconds, 1.0, &context);
        }
    }
}

/// Runs processes with these arguments, and returns the two numbers of seconds that each prints.
fn measured(session: &mut Session<'_>, id: &str, args: &[&str]) -> Option<[Vec<f64>; 2]> {
    let runs = (0..=RUNS).map(|_| again(args).and_then(numbers::<2>)).collect::<Result<Vec<_>, _>>();
    let runs = runs.inspect_err(|why| session.failed(id, why)).ok()?;
    // The first process fills the caches of files and kernels.
    Some([0, 1].map(|i| runs[1..].iter().map(|seconds| seconds[i]).collect()))
}

/// Returns a command that runs this program again.
pub(crate) fn again(args: &[&str]) -> Result<Command, String> {
    let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
    command.args(args);
    Ok(command)
}

/// Runs a process and returns the numbers that it prints.
pub(crate) fn numbers<const N: usize>(mut command: Command) -> Result<[f64; N], String> {
    let text = output(&mut command)?;
    let numbers: Vec<f64> = text.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    numbers.try_into().map_err(|_| format!("not {N} numbers: {text}"))
}

/// Runs a process and returns what it prints.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns the seconds until the device is open, until a launch on it is done, and, unless `rows` is 0, until `rows` rows of the headline are
/// made and decomposed.
pub(crate) fn open(name: &str, rows: u64) -> Result<Vec<f64>, String> {
    let text = |error: teatime::Error| error.to_string();
    let started = Instant::now();
    let device = Device::open(name).map_err(text)?;
    let mut seconds = vec![started.elapsed().as_secs_f64()];
    random_words(&device, 1, 0, 4).and_then(|words| words.read()).map_err(text)?;
    seconds.push(started.elapsed().as_secs_f64());
    if rows > 0 {
        flight::svd(&device, rows).map_err(text)?;
        seconds.push(started.elapsed().as_secs_f64());
    }
    Ok(seconds)
}

/// Returns the seconds until a bare CUDA context exists, twice.
#[cfg(feature = "cuda")]
pub(crate) fn context(number: usize) -> Result<Vec<f64>, String> {
    let started = Instant::now();
    // This panics without libcuda, but it is only called if the library found a CUDA device.
    let context = cudarc::driver::CudaContext::new(number).map_err(|error| error.to_string())?;
    let seconds = started.elapsed().as_secs_f64();
    drop(context);
    Ok(vec![seconds; 2])
}

/// Fails: a build without CUDA has no context.
#[cfg(not(feature = "cuda"))]
pub(crate) fn context(_: usize) -> Result<Vec<f64>, String> {
    Err("this build has no CUDA (cargo feature `cuda`)".into())
}
