//! Device memory, which counts as held while tensors own it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use super::Device;
use crate::{
    Error, Result,
    driver::{Memory, Slice},
    extent::to_usize,
    timeline::Timeline,
};

/// The number of guard bytes behind each allocation of a checked device.
const GUARD_BYTES: u64 = 256;
/// The byte that fills memory on a checked device: NaN as f16 and f32, -1 as an integer.
pub(crate) const POISON: u8 = 0xff;

/// The bytes of device memory that tensors hold, now and at the peak.
#[derive(Debug)]
pub(super) struct Usage {
    /// The name of these bytes in timelines.
    pub(super) name: Box<str>,
    pub(super) now: AtomicU64,
    pub(super) peak: AtomicU64,
}

/// An allocation of device memory, counted until it is dropped.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) memory: Memory,
    /// The number of guard bytes behind the elements.
    pub(crate) guard: u64,
    /// None for memory that belongs to the application.
    _counted: Option<Counted>,
}

/// A number of bytes that count as held until the value is dropped.
#[derive(Debug)]
struct Counted {
    bytes: u64,
    usage: Arc<Usage>,
    timeline: Option<Timeline>,
}

impl Buffer {
    /// Wraps memory of an application, which is neither counted nor guarded.
    pub(crate) fn lent(memory: Memory) -> Self {
        Self { memory, guard: 0, _counted: None }
    }
}

impl Counted {
    fn new(bytes: u64, device: &Device) -> Self {
        let (usage, timeline) = (device.inner.usage.clone(), device.timeline.clone());
        let now = usage.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        usage.peak.fetch_max(now, Ordering::Relaxed);
        let counted = Self { bytes, usage, timeline };
        counted.tell(now);
        counted
    }

    /// Records the number of bytes that are held now.
    fn tell(&self, now: u64) {
        if let Some(timeline) = &self.timeline {
            timeline.hold(&self.usage.name, now);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.tell(self.usage.now.fetch_sub(self.bytes, Ordering::Relaxed) - self.bytes);
    }
}

impl Device {
    /// Allocates `bytes` bytes, poisoned and guarded on a checked device. `for_upload` says that the first use is an upload.
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
        // Poison is written in order with all other work.
        let memory = if for_upload && !self.inner.checked {
            driver.alloc_for_upload(size)?
        } else {
            driver.alloc(size)?
        };
        if self.inner.checked {
            let poison = vec![POISON; to_usize(size)];
            self.inner.driver.write(Slice { memory: &memory, offset: 0, bytes: size }, &poison)?;
        }
        Ok(Buffer { memory, guard, _counted: Some(Counted::new(size, self)) })
    }
}
