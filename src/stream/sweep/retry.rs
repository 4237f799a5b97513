//! Retries of a sweep.

use crate::{Budget, Device, Error, MemoryKind, Result};

/// The memory for a retry after the device had less memory than the plan assumed.
pub(super) struct Retry {
    pub(super) memory: Budget,
    /// The number of bytes of device memory that the last plan took; 0 before the first plan.
    pub(super) taken: u64,
    /// True if the memory is already the required minimum.
    is_least: bool,
}

impl Retry {
    pub(super) fn new(memory: Budget) -> Self {
        Self { memory, taken: 0, is_least: false }
    }

    /// Halves the device memory, or finally sets the required minimum. Fails with `error` if a retry is useless.
    pub(super) fn smaller(&mut self, error: Error, device: &Device) -> Result<()> {
        let budget = match error {
            Error::OutOfMemory { .. } if self.taken > 0 && !self.is_least && !device.shares_host_memory() => {
                self.taken / 2
            }
            Error::Budget { memory: MemoryKind::Device, minimum, .. } if self.taken > 0 && !self.is_least => {
                self.is_least = true;
                minimum
            }
            error => return Err(error),
        };
        self.memory = self.memory.device(budget);
        Ok(())
    }
}
