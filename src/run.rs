//! Options of a long call: a flag that stops it, a callback for its progress, and its memory.

use std::{fmt, sync::Arc};

use crate::{Cancel, Device, DeviceInfo, Error, MemoryKind, Needs, Result, available::available_memory};

/// The progress of a long call.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Status {
    /// Passes over the data that ended.
    pub pass: u32,
    /// The maximum number of passes.
    pub passes: u32,
    /// Rows done in this pass.
    pub rows: u64,
    /// Rows of one pass.
    pub total: u64,
    /// Largest relative residual of the wanted components, once there is one.
    pub residual: Option<f64>,
}

impl Status {
    /// The start of pass `pass` of at most `passes`, over `total` rows.
    pub const fn new(pass: u32, passes: u32, total: u64) -> Self {
        Self { pass, passes, rows: 0, total, residual: None }
    }
}

/// A callback that is told about progress, from the calling thread.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(Status) + Send + Sync>>);

impl Progress {
    /// Calls `tell` once per block.
    pub fn new(tell: impl Fn(Status) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(tell)))
    }

    /// Tells, if anyone listens.
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

/// The maximum memory that a long call may hold at once, in bytes. Planned before any data is read.
///
/// ```
/// let memory = teatime::Budget::default().host(2 << 30);
/// assert_eq!((memory.host_bytes(), memory.device), (2 << 30, None));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Budget {
    /// Host memory for chunks, staging and small factorisations. Default: half of what the system can give without swapping
    /// or, where that is less, of what the memory limits of the process's cgroups leave.
    pub host: Option<u64>,
    /// Memory of the device. Default: three quarters of what the device reports; on the cpu device `host` counts.
    pub device: Option<u64>,
    /// Bytes of it that are held already.
    pub(crate) held: Needs,
    /// True for the host's, and the device's, where it is a default.
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

    /// The host budget, or its default.
    pub fn host_bytes(&self) -> u64 {
        self.host.unwrap_or_else(|| available_memory() / 2)
    }

    /// The device budget, or its default; 2 GiB where the device does not say what it has.
    pub fn device_bytes(&self, device: &DeviceInfo) -> u64 {
        self.device.unwrap_or_else(|| device.memory.map_or(2 << 30, |bytes| bytes / 4 * 3))
    }

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
        Ok(Self {
            device: Some(budget),
            held: Needs { device: minimum, ..rest.held },
            assumed: [rest.assumed[0], !given],
            ..rest
        })
    }

    /// [`fit`](Self::fit) for work without a device.
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

    /// Bytes that are not [held](Self::fit); of the device none where it has the host's memory.
    pub fn left(&self, device: &Device) -> Needs {
        let own = if device.shares_host_memory() { 0 } else { self.device_bytes(device.info()) };
        Needs { host: self.left_of_host(), device: own.saturating_sub(self.held.device) }
    }

    /// Bytes of the host's memory that are not held.
    pub(crate) fn left_of_host(&self) -> u64 {
        self.host_bytes().saturating_sub(self.held.host)
    }

    /// The budget with its defaults in place; of the device none where it has the host's memory.
    pub(crate) fn planned(&self, device: &Device) -> Self {
        let own = (!device.shares_host_memory()).then(|| self.device_bytes(device.info()));
        Self::default().host(self.host_bytes()).device(own)
    }
}

/// Checks a budget.
///
/// # Errors
/// [`Error::Budget`] for a budget below the minimum.
fn enough(memory: MemoryKind, budget: u64, minimum: u64, given: bool) -> Result<()> {
    if budget < minimum { Err(Error::Budget { memory, what: None, budget, minimum, given }) } else { Ok(()) }
}

/// Options of a long call. The default never stops, is silent, and takes a stated share of memory.
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
    /// Is told how far the call is.
    pub progress: Progress,
    /// Bounds the call's memory.
    pub memory: Budget,
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
        // A default stays one.
        let rest = Budget::default().fit_host(1).unwrap();
        assert!(matches!(rest.fit_host(u64::MAX), Err(Error::Budget { given: false, .. })));
        assert_eq!(Needs::host(u64::MAX) * 2 + Needs::device(1), Needs { host: u64::MAX, device: 1 });
    }
}
