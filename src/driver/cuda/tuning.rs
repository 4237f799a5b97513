//! The lengths of launches that depend on the card: parts of its [`Limits`], from which operations take the lengths of their launches.
//!
//! All lengths that depend on the card are set in this file. Other lengths define a result, or belong to a kernel, to a driver's copies or to
//! the host, and stand where they are used.

#[cfg(test)]
mod plan;

use crate::Limits;

/// A device, as its driver describes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Card {
    /// The device's memory in bytes.
    pub(super) memory: u64,
    pub(super) capability: (i32, i32),
    pub(super) multiprocessors: u32,
    /// The clock rate of the multiprocessors.
    pub(super) kilohertz: u32,
    /// True if the system ends a launch that takes some seconds, as on a card that drives a desktop.
    pub(super) has_watchdog: bool,
}

/// The number of workgroups for each multiprocessor, so that it can switch between several, and few multiprocessors wait for the last one.
const GROUPS: u32 = 8;

/// The minimum limits of every CUDA device.
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
    processor_memory: 0,
    work: Limits::SMALL_WORK,
    f64_cost: 64,
    terms: u32::MAX,
    same_sums: false,
    tf32: true,
    iterations: u32::MAX,
    f64: true,
    stores_bytes: true,
};

impl Card {
    pub(super) fn limits(self) -> Limits {
        Limits {
            buffer: self.memory & !255,
            // Large devices need more work to be busy, and have the memory for it.
            step: (self.memory / 24).clamp(LEAST_LIMITS.step, 3 << 30),
            fill: GROUPS * self.multiprocessors.max(1),
            processors: self.multiprocessors,
            // Some multiprocessors from 8.0 on have no more than 100 KiB.
            processor_memory: if self.capability < (8, 0) { 64 << 10 } else { 100 << 10 },
            work: self.work(),
            f64_cost: self.f64_cost(),
            ..LEAST_LIMITS
        }
    }

    /// Returns the maximum number of terms of a launch. Without a watchdog, it is what the device's lanes could compute
    /// in 100 ms; real kernels need about 250 ms for it.
    fn work(self) -> u64 {
        if self.has_watchdog {
            return Limits::SMALL_WORK;
        }
        // Multiprocessors of these capabilities have half as many f32 lanes.
        let lanes = if matches!(self.capability, (7, 5) | (8, 0)) { 64 } else { 128 };
        let rate = u64::from(self.multiprocessors) * lanes * u64::from(self.kilohertz) * 1000;
        (rate / 10).max(Limits::SMALL_WORK)
    }

    /// Returns the lanes of f32 for each lane of f64, by the table of arithmetic instructions in NVIDIA's programming guide. Cards that it did
    /// not have count as the slowest.
    const fn f64_cost(self) -> u64 {
        match self.capability {
            (8..=10, 0) => 2,
            (7, 5) => 32,
            _ => LEAST_LIMITS.f64_cost,
        }
    }
}
