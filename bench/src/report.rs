//! The results in files.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    fs,
    path::Path,
    process::Command,
};

use serde::{Deserialize, Serialize};
use teatime::{Backend, Device, DeviceInfo, ListedDevice};

use crate::{
    system::{System, date},
    table::number,
};

/// The suffix of the name of a product by our own kernel, if the vendor's library is the default.
pub(crate) const OWN: &str = ", own kernel";
/// The suffix of the name of a product whose factors have 11 bits.
pub(crate) const TF32: &str = ", TF32";

/// The version of the file's format.
const SCHEMA: u32 = 1;

/// All results of one run of the program.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Report {
    pub(crate) schema: u32,
    /// The version of the library.
    pub(crate) teatime: String,
    /// The commit that the program was built from, if the build recorded it.
    pub(crate) commit: Option<String>,
    /// The time of the start, in UTC.
    pub(crate) date: String,
    pub(crate) system: System,
    /// The requested number of seconds for each device.
    pub(crate) seconds: f64,
    pub(crate) devices: Vec<DeviceReport>,
    /// Devices that cannot be used, and why.
    pub(crate) absent: Vec<Note>,
}

/// The measurements of one device.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct DeviceReport {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) backend: String,
    pub(crate) api: String,
    pub(crate) kind: String,
    pub(crate) vendor: String,
    /// The PCI address or UUID, if the driver reports it.
    pub(crate) identity: String,
    pub(crate) driver: String,
    pub(crate) memory: Option<u64>,
    /// The limit of the card's power in watts, if `nvidia-smi` reports it.
    #[serde(default)]
    pub(crate) power_limit: Option<f64>,
    /// The names that were asked for by [`Session::wants`](crate::measure::Session::wants).
    #[serde(skip)]
    pub(crate) names: BTreeSet<String>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) skipped: Vec<Note>,
    pub(crate) failed: Vec<Note>,
    /// The SHA-256 of exact results, equal on all devices.
    pub(crate) digests: BTreeMap<String, String>,
    /// Floating-point results, close on all devices.
    pub(crate) values: BTreeMap<String, Vec<f64>>,
}

/// One measurement.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(crate) struct Entry {
    pub(crate) id: String,
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
    /// 10^9 of what the measurement's name counts.
    #[serde(rename = "G/s")]
    Rate,
    #[serde(rename = "ms")]
    Milliseconds,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Note {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl Entry {
    #[cfg(test)]
    pub(crate) fn of_runs(id: &str, size: &str, unit: Unit, [min, median, max]: [f64; 3]) -> Self {
        Self { id: id.into(), size: size.into(), unit, median, min, max, runs: 3, fraction: None }
    }

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
            Self::Rate => "G/s",
            Self::Milliseconds => "ms",
        }
    }

    /// Returns the quantity in this unit, for `work` (bytes or operations) done in `seconds`.
    pub(crate) fn quantity(self, work: f64, seconds: f64) -> f64 {
        match self {
            Self::Bandwidth | Self::Flops | Self::Rate => work / seconds / 1e9,
            Self::Milliseconds => seconds * 1e3,
        }
    }
}

impl Report {
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

    /// Fails with the name of the file, and why it is invalid.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let named = |why: &dyn Display| format!("{}: {why}", path.display());
        let text = fs::read_to_string(path).map_err(|error| named(&error))?;
        let report: Self = serde_json::from_str(&text).map_err(|error| named(&error))?;
        if report.schema != SCHEMA {
            return Err(named(&format_args!("layout {}, not {SCHEMA}", report.schema)));
        }
        Ok(report)
    }

    /// Fails with the name of the file, and why it cannot be written.
    pub(crate) fn write(&self, path: &Path) -> Result<(), String> {
        let text = serde_json::to_string_pretty(self).map_err(|error| error.to_string())?;
        fs::write(path, text + "\n").map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Returns lines about results that differ between devices.
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
            for (id, values_of_id) in &device.values {
                let (other, expected) =
                    values.entry(plain(id)).or_insert_with(|| (name.clone(), values_of_id));
                let apart = distance(values_of_id, expected);
                // NaN counts as different.
                if apart.is_none_or(|apart| apart > TOLERANCE) {
                    let apart = apart.map_or("not comparable".into(), |apart| format!("{apart:.1e}"));
                    lines.push(format!("{id}: {name} and {other} differ: {apart} of the largest"));
                }
            }
        }
        lines
    }
}

/// Returns a result's name without the kernels that computed it, since results of all kernels must agree.
fn plain(id: &str) -> &str {
    id.strip_suffix(OWN).unwrap_or(id)
}

/// The maximum difference between floating-point results, as a fraction of the largest.
pub(crate) const TOLERANCE: f64 = 1e-5;

/// Returns the largest difference as a fraction of the largest magnitude; `None` for different lengths and for NaN.
pub(crate) fn distance(a: &[f64], b: &[f64]) -> Option<f64> {
    if a.len() != b.len() {
        return None;
    }
    let scale = largest(b.iter().copied())?;
    let apart = largest(a.iter().zip(b).map(|(a, b)| a - b))?;
    Some(if apart > 0.0 { apart / scale } else { 0.0 })
}

/// Returns the largest magnitude; `None` if a number is not finite.
fn largest(mut values: impl Iterator<Item = f64>) -> Option<f64> {
    values.try_fold(0.0, |largest: f64, value| value.is_finite().then(|| largest.max(value.abs())))
}

impl DeviceReport {
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
            power_limit: power_limit(info),
            ..Self::default()
        }
    }

    /// True if nothing was measured, skipped or compared.
    pub(crate) fn is_empty(&self) -> bool {
        let notes = self.skipped.is_empty() && self.failed.is_empty();
        notes && self.entries.is_empty() && self.digests.is_empty() && self.values.is_empty()
    }

    pub(crate) fn entry(&self, id: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.id == id)
    }
}

/// Asks `nvidia-smi` for the limit of a CUDA card's power.
fn power_limit(info: &DeviceInfo) -> Option<f64> {
    if info.backend != Backend::Cuda {
        return None;
    }
    let query = ["--query-gpu=power.limit", "--format=csv,noheader,nounits", "--id", &info.identity];
    let output = Command::new("nvidia-smi").args(query).output().ok()?;
    std::str::from_utf8(&output.stdout).ok()?.trim().parse().ok()
}

/// Returns the devices of a list that cannot be used, and why.
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
        let mut line = Entry::of_runs("kernel recode", "64 MiB", Unit::Bandwidth, [40.0, 50.0, 60.0]);
        assert!(line.line().ends_with("50.00 GB/s    40.00..60.00 in 3"));
        line.fraction = Some(Fraction { value: 0.5, of: "copy".into() });
        assert!(line.line().ends_with("0.50 of copy"));
    }
}
