//! Command line of teatime: PCA of genotypes in Zarr stores or PLINK files on any GPU or the CPU.
//!
//! A library for programs that include this command line, such as the Python package. It has two functions, [`main`] and [`size`].

mod args;
mod array;
mod blur;
mod calls;
mod checkpoint;
mod chosen;
mod contigs;
mod demo;
mod denoise;
mod devices;
mod distance;
mod ends;
mod failure;
mod filter;
mod foreign;
mod grm;
#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod heap;
mod interrupt;
mod iteration;
mod lists;
mod matched;
mod output;
mod pairwise;
mod pca;
mod plot;
mod progress;
mod project;
mod remote;
mod report;
mod simulate;
mod store;
mod store_args;
mod stores;
mod svd;
mod text;
mod timeline;

use std::{ffi::OsString, io::Write};

use clap::{Parser, Subcommand};
use teatime::Cancel;

pub use crate::args::size;
use crate::failure::Failure;

/// GPU math for arrays bigger than memory, on any GPU or the CPU: PCA, relationships and distances of genotypes in Zarr stores or
/// PLINK files; singular values, distances and Gaussian filters of any array.
#[derive(Debug, Parser)]
#[command(name = "teatime", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "`teatime demo` shows what it does, without any data.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Pca(Box<pca::PcaArgs>),
    Project(Box<project::ProjectArgs>),
    Grm(Box<grm::GrmArgs>),
    Distance(Box<distance::DistanceArgs>),
    Pairwise(Box<pairwise::PairwiseArgs>),
    Svd(Box<svd::SvdArgs>),
    Blur(Box<blur::BlurArgs>),
    Denoise(Box<denoise::DenoiseArgs>),
    Demo(Box<demo::DemoArgs>),
    Devices(devices::DevicesArgs),
}

/// Runs the command line on `arguments`, which start with the program's name, and returns the exit status.
///
/// Ends the process for `--help` and for invalid arguments. Installs handlers of SIGINT and SIGTERM, which stay, so the process should end after
/// this function.
///
/// `is_alone` says that the process has no other thread and was started with these arguments. Then this function configures the allocator and
/// may restart the process with another environment.
pub fn main(arguments: impl IntoIterator<Item = OsString>, is_alone: bool) -> u8 {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    if is_alone {
        heap::share();
    }
    // Only glibc's allocator is configured.
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    let _ = is_alone;
    let cli = Cli::parse_from(arguments);
    let cancel = Cancel::default();
    let watched = interrupt::watch(&cancel);
    let watched = watched.map_err(|error| Failure::Error(format!("no handler for signals: {error}")));
    match watched.and_then(|()| run(&cli.command, &cancel)) {
        Ok(()) => 0,
        // A request that was cancelled fails in the words of the store.
        Err(Failure::Error(_)) if cancel.is_cancelled() => {
            note(&Failure::Interrupted.to_string());
            Failure::Interrupted.code()
        }
        Err(failure) => {
            note(&failure.to_string());
            failure.code()
        }
    }
}

/// Runs a command, and writes what its `--trace` and `--report` ask for, however it ends.
fn run(command: &Command, cancel: &Cancel) -> Result<(), Failure> {
    let (resources, run): (_, &dyn Fn() -> Result<(), Failure>) = match command {
        Command::Pca(args) => (&args.resources, &move || pca::run(args, cancel)),
        Command::Project(args) => (&args.resources, &move || project::run(args, cancel)),
        Command::Grm(args) => (&args.resources, &move || grm::run(args, cancel)),
        Command::Distance(args) => (&args.resources, &move || distance::run(args, cancel)),
        Command::Pairwise(args) => (&args.resources, &move || pairwise::run(args, cancel)),
        Command::Svd(args) => (&args.resources, &move || svd::run(args, cancel)),
        Command::Blur(args) => (&args.result.resources, &move || blur::run(args, cancel)),
        Command::Denoise(args) => (&args.result.resources, &move || denoise::run(args, cancel)),
        Command::Demo(args) => (&args.resources, &move || demo::run(args, cancel)),
        Command::Devices(args) => return devices::run(args),
    };
    resources.remote.set(cancel);
    resources.record()?.finish(run())
}

/// Prints to standard output. A closed pipe, such as to `head`, is no error.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Error(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a line to standard error and ignores failures.
fn note(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
