//! The lengths of launches, by what a device is: all of them are made here.

#[cfg(test)]
mod plan;

use crate::Limits;

/// A device, as its driver describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    /// Bytes.
    pub(super) memory: u64,
    pub(super) capability: (i32, i32),
    pub(super) multiprocessors: u32,
    /// The clock of those.
    pub(super) kilohertz: u32,
    /// True where a launch of some seconds is ended, as on a card that shows a desktop.
    pub(super) has_watchdog: bool,
}

/// Workgroups for each multiprocessor, so that it has some to change between, and few wait for the last.
const GROUPS: u32 = 8;

/// The limits that every CUDA device has at least.
pub(super) const LEAST_LIMITS: Limits = Limits {
    // Kernels count elements with u32.
    binding: (u32::MAX as u64) & !255,
    buffer: 1 << 46,
    groups_per_axis: 65_535,
    workgroup_memory: 48 << 10,
    workgroup_size: 1024,
    // Kernels load 16 bytes at once.
    alignment: 16,
    step: 64 << 20,
    fill: GROUPS,
    processors: 0,
    work: Limits::SMALL_WORK,
    iterations: u32::MAX,
    f64: true,
    stores_bytes: true,
};

impl Card {
    pub(super) fn limits(self) -> Limits {
        Limits {
            buffer: self.memory & !255,
            // Large devices take long to fill, and have the memory for it.
            step: (self.memory / 24).clamp(LEAST_LIMITS.step, 3 << 30),
            fill: GROUPS * self.multiprocessors.max(1),
            // Older multiprocessors run other numbers of workgroups.
            processors: if self.capability < (8, 0) { 0 } else { self.multiprocessors },
            work: self.work(),
            ..LEAST_LIMITS
        }
    }

    /// Terms of a launch: where no watchdog ends it, what the device's lanes could do in 100 ms, of which kernels take some 250.
    fn work(self) -> u64 {
        if self.has_watchdog {
            return Limits::SMALL_WORK;
        }
        // These have half as many lanes of f32.
        let lanes = if matches!(self.capability, (7, 5) | (8, 0)) { 64 } else { 128 };
        let rate = u64::from(self.multiprocessors) * lanes * u64::from(self.kilohertz) * 1000;
        (rate / 10).max(Limits::SMALL_WORK)
    }
}
