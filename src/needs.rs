//! The memory that work needs, in bytes.

use std::{
    iter::Sum,
    ops::{Add, Mul},
};

use crate::{Device, driver::cpu::FREE_BYTES};

/// The bytes that work holds at once, of host memory and of device memory. Sums and products saturate.
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
    /// Bytes of the device's memory; they count as host memory if the device shares it.
    pub device: u64,
}

impl Needs {
    /// Creates needs of host memory.
    pub const fn host(bytes: u64) -> Self {
        Self { host: bytes, device: 0 }
    }

    /// Creates needs of device memory.
    pub const fn device(bytes: u64) -> Self {
        Self { host: 0, device: bytes }
    }

    /// Returns the maximum of both, for consecutive work.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self { host: self.host.max(other.host), device: self.device.max(other.device) }
    }

    /// Returns the bytes of the memory that holds tensors of `device`.
    pub fn of_tensors(self, device: &Device) -> u64 {
        if device.shares_host_memory() { self.host } else { self.device }
    }

    /// Returns the memory that freed tensors of `bytes` bytes still take: the cpu device keeps up to 64 MiB of them for later tensors.
    pub fn of_freed(device: &Device, bytes: u64) -> Self {
        Self::device(if device.shares_host_memory() { bytes.min(FREE_BYTES) } else { 0 })
    }

    /// Returns the needs for `device`: all count as host memory if the device shares it.
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
