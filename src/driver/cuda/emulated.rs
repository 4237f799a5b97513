//! Emulated CUDA devices for the tests of this package and of others.

use std::collections::BTreeSet;

pub use cuda_emulator::control::{fail_allocation, lose, memory};

use super::select;
use crate::{Device, DeviceOptions, kernels::KERNELS};

/// Opens the emulated device with this number, even if the number is above the device count.
pub fn device(place: usize) -> Device {
    open(place, &DeviceOptions::default())
}

/// Opens the emulated device with this number, with options.
///
/// # Panics
/// Panics if the device does not open.
pub fn open(place: usize, options: &DeviceOptions) -> Device {
    let driver = select::open_place(KERNELS[0], place, options);
    Device::from_driver(driver.expect("an emulated device should open"), options)
}

/// Returns the programs that a CUDA device has loaded: the name and the constants of each.
///
/// # Panics
/// Panics if the device belongs to another backend.
pub fn loaded(device: &Device) -> BTreeSet<String> {
    device.driver().cuda().expect("a CUDA device").modules.loaded()
}
