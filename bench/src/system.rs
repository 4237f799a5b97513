//! Where and when.

use std::{
    fs,
    time::{SystemTime, UNIX_EPOCH},
};

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
    utc(SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

/// Seconds since 1970 as a date and time in UTC.
///
/// Days to a date as Hinnant, "chrono-compatible low-level date algorithms": years begin in March, eras have 400.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400 + 719_468, seconds % 86_400);
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year_of_era + next;
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn dates() {
        assert_eq!(utc(0), "1970-01-01T00:00:00Z");
        assert_eq!(utc(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(utc(1_798_761_599), "2026-12-31T23:59:59Z");
    }
}
