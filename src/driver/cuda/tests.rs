//! Tests of the driver on the emulator: the order of what it enqueues, and its handling of faults.
//!
//! Each test has a device of its own, so that a fault in it affects no other test.

mod faults;
mod order;

use cuda_emulator::control;

pub(super) use crate::openings::emulated::device;
use crate::openings::emulated::open;

/// Checks the limits of device 1, which the test suite lends, and of another device.
#[test]
fn one_device_is_a_large_card() {
    let fill = |place| device(place).limits().fill;
    assert_eq!((fill(1), fill(2)), (8 * 132, 8 * 2));
}
