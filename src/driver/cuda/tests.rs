//! The driver on the emulator: the order of what it enqueues, and what it makes of faults.
//!
//! Each test has a device of its own, so that what it plants there meets no other test.

mod faults;
mod order;
mod planted;

use cuda_emulator::control;

pub(super) use crate::openings::emulated::device;
use crate::openings::emulated::open;

/// The suite's lent device.
#[test]
fn one_device_is_a_large_card() {
    let fill = |place| device(place).limits().fill;
    assert_eq!((fill(1), fill(2)), (8 * 132, 8 * 2));
}
