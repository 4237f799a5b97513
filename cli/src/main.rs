//! Command line of teatime: PCA of genotypes in Zarr stores or PLINK files on any GPU or the CPU.

mod args;
mod contig;
mod contigs;
mod demo;
mod devices;
mod ends;
mod failure;
mod grm;
mod loadings;
mod output;
mod pca;
mod plot;
mod progress;
mod project;
mod report;
mod simulate;
mod store;
mod store_args;
mod stores;
mod text;
mod variants;

use std::{
    io::{IsTerminal, Write},
    process::ExitCode,
};

use clap::Parser;
use teatime::Cancel;

use crate::{
    args::{Cli, Command},
    failure::Failure,
};

fn main() -> ExitCode {
    let cli = Cli::parse();
    let cancel = Cancel::default();
    match on_interrupt(&cancel).and_then(|()| run(&cli.command, &cancel)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            note(&failure.to_string());
            ExitCode::from(failure.code())
        }
    }
}

fn run(command: &Command, cancel: &Cancel) -> Result<(), Failure> {
    match command {
        Command::Pca(args) => pca::run(args, cancel),
        Command::Project(args) => project::run(args, cancel),
        Command::Grm(args) => grm::run(args, cancel),
        Command::Demo(args) => demo::run(args, cancel),
        Command::Devices(args) => devices::run(args),
    }
}

/// The first Ctrl-C asks the work to stop, which removes what it has written; the second ends the process.
fn on_interrupt(cancel: &Cancel) -> Result<(), Failure> {
    let cancel = cancel.clone();
    let handler = move || {
        if cancel.is_cancelled() {
            std::process::exit(Failure::Interrupted.code().into());
        }
        cancel.cancel();
        if std::io::stderr().is_terminal() {
            note("\nstopping; Ctrl-C again ends it at once");
        }
    };
    ctrlc::set_handler(handler).map_err(|error| Failure::Error(format!("no handler for Ctrl-C: {error}")))
}

/// Prints to standard output. A reader that has gone, such as `head`, is no error.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::Error(format!("standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Prints a line to standard error. There is nowhere to tell that this fails.
fn note(line: &str) {
    drop(writeln!(std::io::stderr(), "{line}"));
}
