//! Options of a long call: a flag that stops it, a callback for its progress, and its memory.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{Cancel, Device, DeviceInfo, Error, MemoryKind, Needs, Result, available::available_memory};

/// The progress of a long call.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// The number of completed passes over the data.
    pub pass: u32,
    /// The maximum number of passes.
    pub passes: u32,
    /// The number of rows done in this pass.
    pub rows: u64,
    /// The number of rows of one pass.
    pub total: u64,
    /// The largest relative residual of the wanted components; none before the first.
    pub residual: Option<f64>,
}

impl Status {
    /// Creates the status at the start of pass `pass` of at most `passes`, over `total` rows.
    pub const fn new(pass: u32, passes: u32, total: u64) -> Self {
        Self { pass, passes, rows: 0, total, residual: None }
    }
}

/// A callback that receives progress, on the calling thread.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(Status) + Send + Sync>>);

impl Progress {
    /// Creates a callback; `tell` is called once per block.
    pub fn new(tell: impl Fn(Status) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    /// Returns a callback for two searches, the second of which begins anew: it tells no fewer rows than before.
    pub(crate) fn rising(&self) -> Self {
        let Some(tell) = self.0.clone() else { return Self::default() };
        let most = AtomicU64::new(0);
        Self::new(move |status| {
            if status.rows >= most.fetch_max(status.rows, Ordering::Relaxed) {
                tell(status);
            }
        })
    }

    /// Reports the status, if there is a callback.
    pub fn tell(&self, status: Status) {
        if let Some(tell) = &self.0 {
            tell(status);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Progress(..)" } else { "Progress(silent)" })
    }
}

/// The maximum memory that a long call may hold at once, in bytes. Calls plan their memory before they read any data.
///
/// ```
/// let memory = teatime::Budget::default().host(2 << 30);
/// assert_eq!((memory.host_bytes(), memory.device), (2 << 30, None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// Host memory for chunks, staging and small factorisations. Default: half of the memory that the system can give without swapping, or that
    /// the process's cgroup limits leave if that is less.
    pub host: Option<u64>,
    /// Memory of the device. Default: three quarters of the memory that the device reports. The cpu device uses `host` instead.
    pub device: Option<u64>,
    /// The number of members of a group that share the host's memory, of which the defaults are a part; 0 counts as 1.
    pub(crate) members: u64,
    /// The bytes of the budget that are held already.
    pub(crate) held: Needs,
    /// For host and device, true if the budget is a default.
    pub(crate) assumed: [bool; 2],
}

impl Budget {
    /// Sets [`host`](#structfield.host).
    #[must_use]
    pub fn host(mut self, host: impl Into<Option<u64>>) -> Self {
        (self.host, self.assumed[0]) = (host.into(), false);
        self
    }

    /// Sets [`device`](#structfield.device).
    #[must_use]
    pub fn device(mut self, device: impl Into<Option<u64>>) -> Self {
        (self.device, self.assumed[1]) = (device.into(), false);
        self
    }

    /// Returns the host budget, or its default.
    pub fn host_bytes(&self) -> u64 {
        self.host.unwrap_or_else(|| available_memory() / 2 / self.members.max(1))
    }

    /// Returns the device budget, or its default; 2 GiB if the device does not report its memory.
    pub fn device_bytes(&self, device: &DeviceInfo) -> u64 {
        self.device.unwrap_or_else(|| device.memory.map_or(2 << 30, |bytes| bytes / 4 * 3))
    }

    /// Returns the budget with `needs` held in addition. [`left`](Self::left) is the remainder; a later `fit` includes the held bytes in its
    /// error.
    ///
    /// # Errors
    /// [`Error::Budget`] if host memory, or else device memory, is less than the held and needed bytes together.
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
        Ok(Self {
            device: Some(budget),
            held: Needs { device: minimum, ..rest.held },
            assumed: [rest.assumed[0], !given],
            ..rest
        })
    }

    /// Holds host memory as [`fit`](Self::fit), for work without a device.
    ///
    /// # Errors
    /// [`Error::Budget`].
    pub fn fit_host(&self, bytes: u64) -> Result<Self> {
        let given = self.host.is_some() && !self.assumed[0];
        let (budget, minimum) = (self.host_bytes(), self.held.host.saturating_add(bytes));
        enough(MemoryKind::Host, budget, minimum, given)?;
        Ok(Self {
            host: Some(budget),
            held: Needs { host: minimum, ..self.held },
            assumed: [!given, self.assumed[1]],
            ..*self
        })
    }

    /// Returns the part of each of `count` members of a group: host memory is divided, device memory is each member's.
    pub(crate) fn shared_by(&self, count: u64) -> Self {
        let held = Needs { host: self.held.host / count, ..self.held };
        let members = self.members.max(1) * count;
        Self { host: self.host.map(|bytes| bytes / count), held, members, ..*self }
    }

    /// Converts an error of a part that [`shared_by`](Self::shared_by) made: it names the memory of all parts together.
    pub(crate) fn error_of_part(&self, count: u64, error: Error) -> Error {
        match error {
            Error::Budget { memory: memory @ MemoryKind::Host, what, minimum, given, .. } => Error::Budget {
                memory,
                what,
                budget: self.host_bytes(),
                minimum: minimum.saturating_mul(count),
                given,
            },
            error => error,
        }
    }

    /// Returns the bytes that are not [held](Self::fit); no device bytes if the device shares the host's memory.
    pub fn left(&self, device: &Device) -> Needs {
        let own = if device.shares_host_memory() { 0 } else { self.device_bytes(device.info()) };
        Needs { host: self.left_of_host(), device: own.saturating_sub(self.held.device) }
    }

    /// Returns the bytes of host memory that are not held.
    pub(crate) fn left_of_host(&self) -> u64 {
        self.host_bytes().saturating_sub(self.held.host)
    }

    /// Returns the budget with defaults filled in; without a device budget if the device shares the host's memory.
    pub(crate) fn planned(&self, device: &Device) -> Self {
        let own = (!device.shares_host_memory()).then(|| self.device_bytes(device.info()));
        Self::default().host(self.host_bytes()).device(own)
    }
}

/// Fails with [`Error::Budget`] for a budget below the minimum.
fn enough(memory: MemoryKind, budget: u64, minimum: u64, given: bool) -> Result<()> {
    if budget < minimum { Err(Error::Budget { memory, what: None, budget, minimum, given }) } else { Ok(()) }
}

/// Options of a long call. By default a call never stops early, reports no progress, and uses the default share of memory.
///
/// ```
/// use teatime::{Budget, Cancel, Progress, Run};
/// let cancel = Cancel::default();
/// let progress = Progress::new(|status| eprintln!("{} of {} rows", status.rows, status.total));
/// let run = Run::default().cancel(cancel.clone()).progress(progress).memory(Budget::default().host(2 << 30));
/// // From another thread, or when the user presses Ctrl-C:
/// cancel.cancel();
/// assert!(run.cancel.check().is_err());
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Run {
    /// Stops the call.
    pub cancel: Cancel,
    /// Receives the call's progress.
    pub progress: Progress,
    /// Limits the call's memory.
    pub memory: Budget,
}

impl Run {
    /// Calls `work` with one of `count` equal parts of the host memory. Fails as `work` does, and with
    /// [`Error::Budget`] for the memory of all parts together.
    pub(crate) fn with_part<T>(&self, count: u64, work: impl FnOnce(&Self) -> Result<T>) -> Result<T> {
        let part = Self { memory: self.memory.shared_by(count), ..self.clone() };
        work(&part).map_err(|error| self.memory.error_of_part(count, error))
    }
}

crate::setters! {
    Run {
        cancel(Cancel),
        progress(Progress),
        memory(Budget),
    }
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
        let Error::Budget { memory: MemoryKind::Host, budget: 100, minimum: 101, given: true, .. } = error
        else {
            panic!("{error}")
        };
        let error = Budget::default().fit_host(u64::MAX).unwrap_err();
        assert!(matches!(error, Error::Budget { minimum: u64::MAX, given: false, .. }), "{error}");
        // A default stays marked as such.
        let rest = Budget::default().fit_host(1).unwrap();
        assert!(matches!(rest.fit_host(u64::MAX), Err(Error::Budget { given: false, .. })));
        assert_eq!(Needs::host(u64::MAX) * 2 + Needs::device(1), Needs { host: u64::MAX, device: 1 });
    }
}
