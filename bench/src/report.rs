//! Results, as they are written and read.

use std::{collections::BTreeMap, fs, path::Path};

use serde::{Deserialize, Serialize};
use teatime::{Device, ListedDevice};

use crate::{
    system::{System, date},
    table::{self, number},
};

/// Ends the name of a product by our own kernel where the vendor's library made the other.
pub(crate) const OWN: &str = ", own kernel";

/// Version of the file's layout.
const SCHEMA: u32 = 1;

/// All that one run of the program found.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    /// Version of the library.
    pub(crate) teatime: String,
    /// Commit it was built from, where the build said.
    pub(crate) commit: Option<String>,
    /// Start, in UTC.
    pub(crate) date: String,
    pub(crate) system: System,
    /// About how long each device was to take.
    pub(crate) seconds: f64,
    pub(crate) devices: Vec<DeviceReport>,
    /// Devices that could have been there and are not.
    pub(crate) absent: Vec<Note>,
}

/// The measurements of one device.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct DeviceReport {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) backend: String,
    pub(crate) api: String,
    pub(crate) kind: String,
    pub(crate) vendor: String,
    /// PCI address or UUID, where the driver tells.
    pub(crate) identity: String,
    pub(crate) driver: String,
    pub(crate) memory: Option<u64>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) skipped: Vec<Note>,
    pub(crate) failed: Vec<Note>,
    /// SHA-256 of exact results: equal on all devices.
    pub(crate) digests: BTreeMap<String, String>,
    /// Results in floating point: close on all devices.
    pub(crate) values: BTreeMap<String, Vec<f64>>,
}

/// One measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Entry {
    pub(crate) id: String,
    /// The size it was measured at.
    pub(crate) size: String,
    pub(crate) unit: Unit,
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    pub(crate) runs: usize,
    /// The median as a fraction of another measurement's.
    pub(crate) fraction: Option<Fraction>,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Fraction {
    pub(crate) value: f64,
    pub(crate) of: String,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) enum Unit {
    #[serde(rename = "GB/s")]
    Bandwidth,
    #[serde(rename = "GFLOP/s")]
    Flops,
    #[serde(rename = "ms")]
    Milliseconds,
}

/// Something by name, and why.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Note {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl Entry {
    /// The line that is printed.
    pub(crate) fn line(&self) -> String {
        let Self { id, size, unit, median, min, max, runs, fraction } = self;
        let fraction = fraction.as_ref().map(|f| format!("  {:.2} of {}", f.value, f.of)).unwrap_or_default();
        let spread = format!("{}..{} in {runs}", number(*min), number(*max));
        format!("  {id:<44} {size:>16} {:>9} {:<7} {spread:<26}{fraction}", number(*median), unit.text())
            .trim_end()
            .to_owned()
    }
}

impl Unit {
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Bandwidth => "GB/s",
            Self::Flops => "GFLOP/s",
            Self::Milliseconds => "ms",
        }
    }

    /// The quantity for `work` (bytes, operations) done in `seconds`.
    pub(crate) fn quantity(self, work: f64, seconds: f64) -> f64 {
        match self {
            Self::Bandwidth | Self::Flops => work / seconds / 1e9,
            Self::Milliseconds => seconds * 1e3,
        }
    }
}

impl Report {
    /// A report without devices.
    pub(crate) fn new(seconds: f64) -> Self {
        Self {
            schema: SCHEMA,
            teatime: env!("CARGO_PKG_VERSION").into(),
            commit: option_env!("TEATIME_COMMIT").map(Into::into),
            date: date(),
            system: System::here(),
            seconds,
            devices: Vec::new(),
            absent: Vec::new(),
        }
    }

    /// # Errors
    /// The file and what is wrong with it.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let report: Self =
            serde_json::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if report.schema != SCHEMA {
            return Err(format!("{}: layout {}, not {SCHEMA}", path.display(), report.schema));
        }
        Ok(report)
    }

    /// # Errors
    /// The file and why it cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Lines about exact results that differ between devices.
    pub(crate) fn differences<'a>(devices: impl Iterator<Item = (String, &'a DeviceReport)>) -> Vec<String> {
        let mut first = BTreeMap::<&str, (String, &str)>::new();
        let mut lines = Vec::new();
        let mut values = BTreeMap::<&str, (String, &[f64])>::new();
        for (name, device) in devices {
            for (id, digest) in &device.digests {
                let (other, expected) = first.entry(plain(id)).or_insert_with(|| (name.clone(), digest));
                if expected != digest {
                    lines.push(format!("{id}: {name} and {other} differ"));
                }
            }
            for (id, found) in &device.values {
                let (other, expected) = values.entry(plain(id)).or_insert_with(|| (name.clone(), found));
                let apart = distance(found, expected);
                // Written so that NaN differs.
                if apart.is_none_or(|apart| apart > TOLERANCE) {
                    let apart = apart.map_or("not comparable".into(), table::small);
                    lines.push(format!("{id}: {name} and {other} differ: {apart} of the largest"));
                }
            }
        }
        lines
    }
}

/// A result's name whichever kernels made it, since all must agree.
fn plain(id: &str) -> &str {
    id.strip_suffix(OWN).unwrap_or(id)
}

/// Largest difference allowed between results in floating point, as a fraction of the largest.
pub(crate) const TOLERANCE: f64 = 1e-5;

/// The largest difference as a fraction of the largest magnitude; none for other lengths and for NaN.
pub(crate) fn distance(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let scale = largest(b.iter().copied())?;
    let apart = largest(a.iter().zip(b).map(|(a, b)| a - b))?;
    Some(if apart > 0.0 { apart / scale } else { 0.0 })
}

/// The largest magnitude; none where a number is not finite.
fn largest(mut values: impl Iterator<Item = f64>) -> Option<f64> {
    values.try_fold(0.0, |largest: f64, value| value.is_finite().then(|| largest.max(value.abs())))
}

impl DeviceReport {
    /// A device of which nothing is measured yet.
    pub(crate) fn new(device: &Device) -> Self {
        let info = device.info();
        Self {
            name: info.name.clone(),
            description: info.description.clone(),
            backend: info.backend.to_string(),
            api: info.api.clone(),
            kind: info.kind.to_string(),
            vendor: info.vendor.clone(),
            identity: info.identity.clone(),
            driver: info.driver.clone(),
            memory: info.memory,
            entries: Vec::new(),
            skipped: Vec::new(),
            failed: Vec::new(),
            digests: BTreeMap::new(),
            values: BTreeMap::new(),
        }
    }

    /// The measurement of that name.
    pub(crate) fn entry(&self, id: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }
}

/// The devices of a list that are not there, and why.
pub(crate) fn absent(listed: &[ListedDevice]) -> Vec<Note> {
    let why = |listed: &ListedDevice| {
        listed.info.as_ref().err().map(|why| Note { name: listed.name.clone(), why: why.clone() })
    };
    listed.iter().filter_map(why).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance(&[1.0, 2.0], &[1.0, 2.0]), Some(0.0));
        assert_eq!(distance(&[1.0, 2.5], &[1.0, 2.0]), Some(0.25));
        assert_eq!(distance(&[0.0], &[0.0]), Some(0.0));
        assert_eq!(distance(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(distance(&[f64::NAN], &[f64::NAN]), None);
    }

    #[test]
    fn lines() {
        let mut line = Entry {
            id: "kernel recode".into(),
            size: "64 MiB".into(),
            unit: Unit::Bandwidth,
            median: 50.0,
            min: 40.0,
            max: 60.0,
            runs: 9,
            fraction: None,
        };
        assert!(line.line().ends_with("50.00 GB/s    40.00..60.00 in 9"));
        line.fraction = Some(Fraction { value: 0.5, of: "copy".into() });
        assert!(line.line().ends_with("0.50 of copy"));
    }
}
