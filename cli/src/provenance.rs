//! What every record says of how a run came about.

use std::time::{Instant, SystemTime};

use serde::Serialize;
use teatime::{Budget, Device};

/// How a command was started, and with how much.
#[derive(Debug, Serialize)]
pub(crate) struct Provenance {
    /// The program and its arguments.
    command_line: Vec<String>,
    /// When it started: UTC, as RFC 3339 has it.
    started: String,
    /// Threads that decode and, on the cpu device, compute.
    threads: usize,
    budgets: Budgets,
}

/// Memory that was planned with.
#[derive(Debug, Serialize)]
struct Budgets {
    host: Option<Share>,
    /// Null where the device shares the host's memory.
    device: Option<Share>,
}

#[derive(Debug, Serialize)]
struct Share {
    bytes: u64,
    /// Whether it was asked for; else it is the default.
    given: bool,
}

impl Provenance {
    /// Of a run that started then, was given these budgets, and planned with those.
    pub(crate) fn new(started: Instant, device: &Device, given: Budget, planned: Budget) -> Self {
        let share = |bytes: Option<u64>, given: Option<u64>| {
            bytes.map(|bytes| Share { bytes, given: given.is_some() })
        };
        let started = SystemTime::now() - started.elapsed();
        Self {
            command_line: std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect(),
            started: humantime::format_rfc3339_seconds(started).to_string(),
            threads: device.threads(),
            budgets: Budgets {
                host: share(planned.host, given.host),
                device: share(planned.device, given.device),
            },
        }
    }
}
