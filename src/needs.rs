//! Bytes that work needs, and the one place where they are compared with a budget.

use std::{
    iter::Sum,
    ops::{Add, Mul},
};

use crate::{Budget, Device, Error, MemoryKind, Result};

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

impl Budget {
    /// The budget with so much more of it held. What is left is [`left`](Self::left); a later `fit` of the rest counts what is held
    /// in its error.
    ///
    /// # Errors
    /// [`Error::Budget`] for the first memory, the host's before the device's, of which there is less than is held and needed.
    pub fn fit(&self, device: &Device, needs: Needs) -> Result<Self> {
        let needs = needs.on(device);
        let rest = self.fit_host(needs.host)?;
        if device.shares_host_memory() {
            return Ok(rest);
        }
        let given = self.device.is_some() && !self.assumed[1];
        let (budget, minimum) =
            (self.device_bytes(device.info()), self.held.device.saturating_add(needs.device));
        enough(MemoryKind::Device, budget, minimum, given)?;
        let mut rest = rest.device(budget);
        (rest.held.device, rest.assumed[1]) = (minimum, !given);
        Ok(rest)
    }

    /// [`fit`](Self::fit) for work without a device.
    ///
    /// # Errors
    /// [`Error::Budget`].
    pub fn fit_host(&self, bytes: u64) -> Result<Self> {
        let given = self.host.is_some() && !self.assumed[0];
        let (budget, minimum) = (self.host_bytes(), self.held.host.saturating_add(bytes));
        enough(MemoryKind::Host, budget, minimum, given)?;
        let mut rest = self.host(budget);
        (rest.held.host, rest.assumed[0]) = (minimum, !given);
        Ok(rest)
    }
}

/// Checks a budget.
///
/// # Errors
/// [`Error::Budget`] for a budget below the minimum.
fn enough(memory: MemoryKind, budget: u64, minimum: u64, given: bool) -> Result<()> {
    if budget < minimum { Err(Error::Budget { memory, budget, minimum, given }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_counts_what_is_held() {
        let cpu = Device::cpu();
        let rest = Budget::default().host(100).fit(&cpu, Needs::host(30) + Needs::device(20)).unwrap();
        assert_eq!(rest.left(&cpu), Needs::host(50));
        assert_eq!(rest.fit_host(50).unwrap().left(&cpu), Needs::default());
        let error = rest.fit(&cpu, Needs::device(51)).unwrap_err();
        let Error::Budget { memory: MemoryKind::Host, budget: 100, minimum: 101, given: true } = error else {
            panic!("{error}")
        };
        let error = Budget::default().fit_host(u64::MAX).unwrap_err();
        assert!(matches!(error, Error::Budget { minimum: u64::MAX, given: false, .. }), "{error}");
        // A default stays one.
        let rest = Budget::default().fit_host(1).unwrap();
        assert!(matches!(rest.fit_host(u64::MAX), Err(Error::Budget { given: false, .. })));
        assert_eq!(Needs::host(u64::MAX) * 2 + Needs::device(1), Needs { host: u64::MAX, device: 1 });
    }
}
