//! The driver on the emulator: the order of what it enqueues, and what it makes of faults.
//!
//! Each test has a device of its own, so that what it plants there meets no other test.

mod faults;
mod order;

use super::{emulator::control, select};
use crate::{Device, DeviceOptions};

/// An emulated device, counted or not.
fn device(place: usize) -> Device {
    open(place, &DeviceOptions::default())
}

fn open(place: usize, options: &DeviceOptions) -> Device {
    Device::from_driver(select::open_place(place, options).unwrap(), options)
}
