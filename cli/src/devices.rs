//! `teatime devices`.

use serde::Serialize;
use teatime::{Device, ListedDevice};

use crate::{args::DevicesArgs, failure::Failure, record::DeviceRecord, say, text};

/// One line of the list.
#[derive(Debug, Serialize)]
struct Entry {
    /// What --device takes.
    name: String,
    /// Whether it is taken when none is named.
    default: bool,
    /// The first entry that is the same card.
    same_card_as: Option<String>,
    device: Option<DeviceRecord>,
    /// What its driver takes at need, with versions, or what is missing.
    libraries: Vec<String>,
    /// Why it cannot be used.
    why_not: Option<String>,
}

/// Runs `teatime devices`.
pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let default = Device::best();
    let best = default.as_ref().map(|device| device.info().name.as_str()).unwrap_or_default();
    let entries: Vec<Entry> = Device::all().into_iter().map(|listed| entry(listed, best)).collect();
    if args.json {
        let json = serde_json::to_string_pretty(&entries);
        return say(&(json.map_err(|error| Failure::Error(error.to_string()))? + "\n"));
    }
    say(&table(&entries))?;
    // TEATIME_DEVICE may name a device that is not there.
    default.map(drop).map_err(Failure::from)
}

fn entry(listed: ListedDevice, best: &str) -> Entry {
    let libraries = listed.libraries();
    let ListedDevice { name, info, same_card_as, .. } = listed;
    let (device, why_not) = match info {
        Ok(info) => (Some(DeviceRecord::from(&info)), None),
        Err(why) => (None, Some(why)),
    };
    Entry { default: name == best, name, same_card_as, device, libraries, why_not }
}

fn table(entries: &[Entry]) -> String {
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or_default();
    let mut out = String::new();
    for Entry { name, default, same_card_as, device, libraries, why_not } in entries {
        out += &format!("{} {name:width$}  ", if *default { '*' } else { ' ' });
        if let Some(device) = device {
            let memory = device.memory.map(|bytes| format!(", {}", text::bytes(bytes))).unwrap_or_default();
            out += &format!("{} ({}, {}{memory})", device.description, device.kind, device.api);
            if let Some((major, minor)) = device.compute_capability {
                out += &format!(", compute capability {major}.{minor}");
            }
            if !device.driver.is_empty() {
                out += &format!(", driver {}", device.driver);
            }
            for library in libraries {
                out += &format!(", {library}");
            }
        }
        if let Some(other) = same_card_as {
            out += &format!(", the same card as {other}");
        }
        if let Some(why) = why_not {
            out += &format!("not here: {why}");
        }
        out.push('\n');
    }
    out + "\n* is used when --device names none. Also understood: cuda, wgpu:vulkan (or metal, dx12, gl), wgpu:vulkan:N, and \
           wgpu: with a part of the description or a PCI address.\n"
}
