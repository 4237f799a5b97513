//! Memory of a device, counted while tensors hold it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::Device;
use crate::{
    Error, Result,
    driver::{Memory, Slice},
    extent::to_usize,
};

/// Bytes behind each allocation of a checked device.
const GUARD_BYTES: u64 = 256;
/// The byte that a checked device fills memory with: NaN as f16 and f32, -1 as an integer.
pub(crate) const POISON: u8 = 0xff;

/// Bytes of a device's memory that its tensors hold.
#[derive(Debug, Default)]
pub(super) struct Usage {
    pub(super) now: AtomicU64,
    pub(super) peak: AtomicU64,
}

/// A device's memory, counted while it lives.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) memory: Memory,
    /// Guard words behind the elements, in bytes.
    pub(crate) guard: u64,
    /// None for memory of an application.
    _counted: Option<Counted>,
}

/// Bytes that count as held until this is dropped.
#[derive(Debug)]
struct Counted {
    bytes: u64,
    usage: Arc<Usage>,
}

impl Buffer {
    /// Memory of an application, which is neither counted nor guarded.
    pub(crate) fn lent(memory: Memory) -> Self {
        Self { memory, guard: 0, _counted: None }
    }
}

impl Counted {
    fn new(bytes: u64, usage: &Arc<Usage>) -> Self {
        let now = usage.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        usage.peak.fetch_max(now, Ordering::Relaxed);
        Self { bytes, usage: usage.clone() }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.usage.now.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Device {
    /// Memory for `bytes` bytes; poisoned and guarded on a checked device. `for_upload` when an upload is the first to use
    /// it.
    pub(crate) fn alloc(&self, bytes: u64, for_upload: bool) -> Result<Buffer> {
        self.check()?;
        let guard = if self.inner.checked { GUARD_BYTES } else { 0 };
        let size = bytes.next_multiple_of(16).max(16) + guard;
        if size > self.limits().buffer {
            return Err(Error::Limit {
                what: "bytes in one buffer",
                requested: size,
                max: self.limits().buffer,
            });
        }
        let driver = &self.inner.driver;
        // Poison is written in the order of all other work.
        let memory = if for_upload && !self.inner.checked {
            driver.alloc_for_upload(size)?
        } else {
            driver.alloc(size)?
        };
        if self.inner.checked {
            let poison = vec![POISON; to_usize(size)];
            self.inner.driver.write(Slice { memory: &memory, offset: 0, bytes: size }, &poison)?;
        }
        Ok(Buffer { memory, guard, _counted: Some(Counted::new(size, &self.inner.usage)) })
    }
}
