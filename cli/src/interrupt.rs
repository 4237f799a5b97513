//! Signals that ask the process to terminate.

use std::{
    io::{self, IsTerminal},
    sync::atomic::{AtomicU8, Ordering},
};

use teatime::Cancel;

use crate::note;

/// The exit code after Ctrl-C: 128 plus the signal's number, as in shells.
const CTRL_C: u8 = 130;

static CODE: AtomicU8 = AtomicU8::new(CTRL_C);

/// Returns the exit code of a run that a signal stopped.
pub(crate) fn code() -> u8 {
    CODE.load(Ordering::Relaxed)
}

/// Handles Ctrl-C: the first asks the command to stop and to remove what it has written; the second ends the process.
fn ctrl_c(cancel: &Cancel) {
    if cancel.is_cancelled() {
        std::process::exit(code().into());
    }
    cancel.cancel();
    if io::stderr().is_terminal() {
        note("\nstopping; Ctrl-C again ends it at once");
    }
}

/// Makes Ctrl-C cancel the command.
#[cfg(not(unix))]
pub(crate) fn watch(cancel: &Cancel) -> io::Result<()> {
    let cancel = cancel.clone();
    ctrlc::set_handler(move || ctrl_c(&cancel)).map_err(io::Error::other)
}

/// Makes Ctrl-C (and on Unix SIGTERM and SIGHUP) cancel the command.
#[cfg(unix)]
pub(crate) fn watch(cancel: &Cancel) -> io::Result<()> {
    use signal_hook::{
        consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
        iterator::Signals,
    };
    let cancel = cancel.clone();
    // Signals that the process was started to ignore stay ignored; if that is unknown, SIGHUP does. With a handler for SIGXFSZ, a write beyond
    // the file size limit is an error instead of the end of the process.
    let wanted = [(SIGINT, false), (SIGTERM, false), (SIGHUP, true), (SIGXFSZ, false)];
    let wanted = wanted.into_iter().filter(|(signal, unknown)| !ignored(*signal).unwrap_or(*unknown));
    let mut signals = Signals::new(wanted.map(|(signal, _)| signal))?;
    let watch = move || {
        for signal in signals.forever() {
            if signal == SIGXFSZ {
                continue;
            }
            if signal == SIGINT {
                ctrl_c(&cancel);
            } else if !cancel.is_cancelled() {
                CODE.store(128 + u8::try_from(signal).unwrap_or_default(), Ordering::Relaxed);
                cancel.cancel();
            } else if signal == SIGTERM {
                // SIGHUP does not end it: terminals send it twice.
                std::process::exit(code().into());
            }
        }
    };
    std::thread::Builder::new().name("teatime-signals".into()).spawn(watch).map(drop)
}

/// Returns the value after `name` in Linux's status of this process.
pub(crate) fn own_status(name: &str) -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned()))
}

/// Returns true if the process was started to ignore a signal, as `nohup` does for SIGHUP; `None` if the system does not say.
#[cfg(unix)]
fn ignored(signal: i32) -> Option<bool> {
    let mask = u64::from_str_radix(&own_status("SigIgn:")?, 16).ok()?;
    Some(mask >> (signal - 1) & 1 == 1)
}
