//! The machine and the time of a measurement.

use std::{fs, time::SystemTime};

use serde::{Deserialize, Serialize};

/// The machine that measured.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct System {
    /// `linux`, `macos`, `windows`.
    pub(crate) os: String,
    /// Architecture of the processor.
    pub(crate) arch: String,
    /// The distribution, where the system says.
    pub(crate) release: Option<String>,
    /// Threads that the process may run at once.
    pub(crate) threads: usize,
}

impl System {
    /// This machine.
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

/// The time, as `2026-11-21T14:55:00Z`.
pub(crate) fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
