//! The crate as an application has it: through what is public, on every device that is here.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests panic, and say on which device")]

mod own_kernel;

use std::sync::OnceLock;

use teatime::{Device, DeviceOptions};

/// Runs a test on every device, also with low limits. `TEATIME_REQUIRE_DEVICES=cpu,wgpu` makes a missing one a failure.
fn on_each_device(test: fn(&Device)) {
    static OPEN: OnceLock<Vec<Device>> = OnceLock::new();
    let devices = OPEN.get_or_init(|| {
        let usable = Device::all().into_iter().filter(|listed| listed.info.is_ok());
        let options = DeviceOptions { checked: true, ..DeviceOptions::default() };
        let low = DeviceOptions { binding: Some(64 << 10), groups_per_axis: Some(16), ..options.clone() };
        let open = |name: String| [&options, &low].map(|options| Device::open_with(&name, options).unwrap());
        usable.flat_map(|listed| open(listed.name)).collect()
    });
    let required = std::env::var("TEATIME_REQUIRE_DEVICES").unwrap_or_default();
    for backend in ["cpu", "wgpu", "cuda"].into_iter().filter(|name| required.split(',').any(|r| r == *name))
    {
        assert!(devices.iter().any(|device| device.info().backend.to_string() == backend), "no {backend}");
    }
    for device in devices {
        println!("{device:?} with {:?}", device.limits());
        test(device);
    }
}
