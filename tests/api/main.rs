//! Tests of the public interface as an application uses it, without access to private items, on every device of this machine.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::cast_possible_truncation,
    reason = "tests panic, say on which device, and have small sizes"
)]

#[cfg(feature = "zarr")]
mod bucket;
mod own_kernel;
mod programs;
mod stores;

use std::sync::OnceLock;

use teatime::{Device, DeviceOptions};

/// Returns every usable device, each card once.
fn devices() -> Vec<Device> {
    let usable =
        Device::all().into_iter().filter(|listed| listed.info.is_ok() && listed.same_card_as.is_none());
    let devices: Vec<_> = usable.map(|listed| Device::open(&listed.name).unwrap()).collect();
    assert!(devices.iter().any(|device| device.info().name == "cpu"), "{devices:?}");
    devices
}

/// Returns true if a missing backend is a failure: `TEATIME_REQUIRE_DEVICES=cpu,wgpu`.
fn is_required(backend: &str) -> bool {
    let required = std::env::var("TEATIME_REQUIRE_DEVICES").unwrap_or_default();
    required.split(',').any(|required| required == backend)
}

/// Runs a test on every device, and again with low limits.
fn on_each_device(test: fn(&Device)) {
    static OPEN: OnceLock<Vec<Device>> = OnceLock::new();
    let devices = OPEN.get_or_init(|| {
        let usable = Device::all().into_iter().filter(|listed| listed.info.is_ok());
        let options = DeviceOptions::default().checked(true);
        let low = options.clone().binding(64 << 10).groups_per_axis(16);
        let open = |name: String| [&options, &low].map(|options| Device::open_with(&name, options).unwrap());
        usable.flat_map(|listed| open(listed.name)).collect()
    });
    for backend in ["cpu", "wgpu", "cuda"].into_iter().filter(|name| is_required(name)) {
        assert!(devices.iter().any(|device| device.info().backend.to_string() == backend), "no {backend}");
    }
    for device in devices {
        println!("{device:?} with {:?}", device.limits());
        test(device);
    }
}

/// This test runs itself again in a process with the variable.
#[test]
fn a_variable_that_names_no_number_of_threads() {
    let name = "a_variable_that_names_no_number_of_threads";
    let again = "TEATIME_TEST_AGAIN";
    if std::env::var_os(again).is_some() {
        let refused = Device::open("cpu").unwrap_err().to_string();
        assert!(refused.contains("`TEATIME_THREADS`: none; it is 1 to 1024"), "{refused}");
        // This call cannot fail.
        assert!(Device::cpu().threads() > 0);
        return;
    }
    let mut test = std::process::Command::new(std::env::current_exe().unwrap());
    let output =
        test.args(["--exact", name]).env(again, "1").env("TEATIME_THREADS", "none").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}
