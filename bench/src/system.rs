//! The machine and the time of a measurement.

use std::{fs, time::SystemTime};

use serde::{Deserialize, Serialize};

/// The machine that measured.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct System {
    /// The operating system: `linux`, `macos` or `windows`.
    pub(crate) os: String,
    /// The architecture of the processor.
    pub(crate) arch: String,
    /// The name of the distribution, if the system reports it.
    pub(crate) release: Option<String>,
    /// The number of threads that the process can run at once.
    pub(crate) threads: usize,
}

impl System {
    /// Describes this machine.
    pub(crate) fn here() -> Self {
        let release = fs::read_to_string("/etc/os-release").ok().and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
            Some(line.trim_matches('"').to_owned())
        });
        Self {
            os: std::env::consts::OS.into(),
            arch: std::env::consts::ARCH.into(),
            release,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// Returns the current time, such as `2026-11-21T14:55:00Z`.
pub(crate) fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
