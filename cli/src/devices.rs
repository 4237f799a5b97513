//! `teatime devices`: the list of devices.

use clap::Args;
use serde_json::{Value, json};
use teatime::{Device, ListedDevice};

use crate::{failure::Failure, report::device_entry, say, text};

/// The devices of this machine, by the names that --device takes
#[derive(Args, Debug)]
pub(crate) struct DevicesArgs {
    /// Print a JSON array instead of the table
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let default = Device::best();
    let best = default.as_ref().map(|device| device.info().name.as_str()).unwrap_or_default();
    let listed = Device::all();
    if args.json {
        return say(&format!("{:#}\n", listed.iter().map(|listed| entry(listed, best)).collect::<Value>()));
    }
    say(&table(&listed, best))?;
    // Fails if TEATIME_DEVICE names a device that does not exist.
    default.map(drop).map_err(Failure::from)
}

/// Returns an entry of the JSON array: the device's name for --device, true if it is the default, the earlier entry that is the same card, the
/// libraries that its driver loads on demand (with their versions or the reason why they are missing), and why the device cannot be used.
fn entry(listed: &ListedDevice, best: &str) -> Value {
    json!({
        "name": listed.name,
        "default": listed.name == best,
        "same_card_as": listed.same_card_as,
        "device": listed.info.as_ref().ok().map(device_entry),
        "libraries": listed.libraries(),
        "why_not": listed.info.as_ref().err(),
    })
}

fn table(devices: &[ListedDevice], best: &str) -> String {
    let width = devices.iter().map(|listed| listed.name.len()).max().unwrap_or_default();
    let mut out = String::new();
    for listed in devices {
        let ListedDevice { name, info, same_card_as, .. } = listed;
        out += &format!("{} {name:width$}  ", if name == best { '*' } else { ' ' });
        if let Ok(info) = info {
            let memory = info.memory.map(|bytes| format!(", {}", text::bytes(bytes))).unwrap_or_default();
            out += &format!("{} ({}, {}{memory})", info.description, info.kind, info.api);
            if let Some((major, minor)) = info.compute_capability {
                out += &format!(", compute capability {major}.{minor}");
            }
            if !info.driver.is_empty() {
                out += &format!(", driver {}", info.driver);
            }
            listed.libraries().iter().for_each(|library| out += &format!(", {library}"));
        }
        if let Some(other) = same_card_as {
            out += &format!(", the same card as {other}");
        }
        if let Err(why) = info {
            out += &format!("not here: {why}");
        }
        out.push('\n');
    }
    out + "\n* is used when --device names none. Also understood: cuda, wgpu:vulkan (or metal, dx12, gl), wgpu:vulkan:N, \
           wgpu:software, wgpu: with a part of the description or a PCI address, and several cards: cuda:*, cuda:0,cuda:1.\n"
}
