//! Counts of transfers between the host and a device.

use std::sync::atomic::{AtomicU64, Ordering};

use super::Device;

/// Counts of a device since it was opened ([`Device::traffic`]). The difference of two counts is the traffic in between.
///
/// ```
/// use teatime::{Device, Tensor, linalg::qr};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[3.0f32, 1.0, 4.0, 2.0, 0.0, 2.0], &[3, 2])?;
/// let before = device.traffic();
/// let q = qr(&x)?.q;
/// let moved = device.traffic() - before;
/// // It reads sums of squares and small factors alone.
/// assert!(moved.to_host < 1024 && moved.waits < 20);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Bytes from the host: uploads and writes. Excludes kernel parameters and memory that a tensor of the cpu device borrows.
    pub to_device: u64,
    /// Bytes to the host.
    pub to_host: u64,
    /// Bytes from one tensor to another on the device.
    pub between: u64,
    /// The number of waits: downloads, reads, and calls of [`Device::synchronize`].
    pub waits: u64,
    /// The number of launched kernels and of matrix products by a vendor's library.
    pub launches: u64,
}

impl std::ops::Sub for Traffic {
    type Output = Self;

    /// Returns the counts since `before`, an earlier count of the same device; 0 if `before` is larger.
    fn sub(self, before: Self) -> Self {
        Self {
            to_device: self.to_device.saturating_sub(before.to_device),
            to_host: self.to_host.saturating_sub(before.to_host),
            between: self.between.saturating_sub(before.between),
            waits: self.waits.saturating_sub(before.waits),
            launches: self.launches.saturating_sub(before.launches),
        }
    }
}

/// The live counters of a device.
#[derive(Debug, Default)]
pub(super) struct Counts([AtomicU64; 5]);

impl Device {
    /// Returns the counts so far, over all handles of the device. The cpu device counts its copies as transfers.
    pub fn traffic(&self) -> Traffic {
        let [to_device, to_host, between, waits, launches] =
            [0, 1, 2, 3, 4].map(|i| self.inner.counts.0[i].load(Ordering::Relaxed));
        Traffic { to_device, to_host, between, waits, launches }
    }

    fn count(&self, i: usize, more: u64) {
        self.inner.counts.0[i].fetch_add(more, Ordering::Relaxed);
    }

    pub(crate) fn count_to_device(&self, bytes: u64) {
        self.count(0, bytes);
    }

    /// Counts a download, and a wait for it.
    pub(crate) fn count_to_host(&self, bytes: u64) {
        self.count(1, bytes);
        self.count_wait();
    }

    pub(crate) fn count_between(&self, bytes: u64) {
        self.count(2, bytes);
    }

    pub(crate) fn count_wait(&self) {
        self.count(3, 1);
    }

    pub(crate) fn count_launch(&self) {
        self.count(4, 1);
    }
}
