//! Devices of the emulator for tests, here and in other packages.

use std::collections::BTreeSet;

pub use cuda_emulator::control::{lose, memory};

use super::select;
use crate::{Device, DeviceOptions, kernels::KERNELS};

/// The emulated device of that number, counted or not.
pub fn device(place: usize) -> Device {
    open(place, &DeviceOptions::default())
}

/// The same, with options.
///
/// # Panics
/// When it does not open.
pub fn open(place: usize, options: &DeviceOptions) -> Device {
    let driver = select::open_place(KERNELS[0], place, options);
    Device::from_driver(driver.expect("an emulated device should open"), options)
}

/// The programs that a CUDA device has loaded: the name and the constants of each.
///
/// # Panics
/// For a device of another backend.
pub fn loaded(device: &Device) -> BTreeSet<String> {
    device.driver().cuda().expect("a CUDA device").modules.loaded()
}
