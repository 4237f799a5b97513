//! Bytes that work needs.

use std::{
    iter::Sum,
    ops::{Add, Mul},
};

use crate::Device;

/// Bytes that work holds at once, of the host's memory and of a device's. Sums and products saturate.
///
/// ```
/// use teatime::{Budget, Device, Needs};
/// let needs = Needs::host(100) + Needs::device(50) * 2;
/// let device = Device::cpu();
/// // The memory of the cpu device is the host's.
/// let rest = Budget::default().host(1000).fit(&device, needs)?;
/// assert_eq!(rest.left(&device), Needs::host(800));
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Bytes of the host's memory.
    pub host: u64,
    /// Bytes of the device's memory; on a device that shares the host's, they count as the host's.
    pub device: u64,
}

impl Needs {
    /// Bytes of the host's memory.
    pub const fn host(bytes: u64) -> Self {
        Self { host: bytes, device: 0 }
    }

    /// Bytes of the device's memory.
    pub const fn device(bytes: u64) -> Self {
        Self { host: 0, device: bytes }
    }

    /// The larger of both, for work that comes after other work.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { host: self.host.max(other.host), device: self.device.max(other.device) }
    }

    /// Bytes of the memory that tensors of `device` are in.
    pub fn of_tensors(self, device: &Device) -> u64 {
        if device.shares_host_memory() { self.host } else { self.device }
    }

    /// The needs as `device` meets them: all of them the host's where it has no memory of its own.
    #[must_use]
    pub fn on(self, device: &Device) -> Self {
        if device.shares_host_memory() { Self::host(self.host.saturating_add(self.device)) } else { self }
    }
}

impl Add for Needs {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { host: self.host.saturating_add(other.host), device: self.device.saturating_add(other.device) }
    }
}

impl Sum for Needs {
    fn sum<I: Iterator<Item = Self>>(needs: I) -> Self {
        needs.fold(Self::default(), Add::add)
    }
}

impl Mul<u64> for Needs {
    type Output = Self;

    fn mul(self, times: u64) -> Self {
        Self { host: self.host.saturating_mul(times), device: self.device.saturating_mul(times) }
    }
}
