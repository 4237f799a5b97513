//! Another try of a sweep.

use crate::{Budget, Device, Error, MemoryKind, Result};

/// Memory for another try, where the device had less than a plan counted on.
pub(super) struct Retry {
    pub(super) memory: Budget,
    /// Bytes of the device that the last plan took; 0 before there was one.
    pub(super) taken: u64,
    /// True once the memory is the least that would do.
    is_least: bool,
}

impl Retry {
    pub(super) fn new(memory: Budget) -> Self {
        Self { memory, taken: 0, is_least: false }
    }

    /// Takes half of the device's memory, or at last the least that will do.
    ///
    /// # Errors
    /// `error`, where another try is of no use.
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
