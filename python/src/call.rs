//! Runs calls from Python: without the interpreter's lock, stopped by Ctrl-C, and with panics and errors as exceptions.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

use pyo3::{
    exceptions::{PyRuntimeError, PyValueError},
    prelude::*,
};
use teatime::{Budget, Cancel, Device, Progress, Result, Run, Status, store::StorageOptions};

use crate::{
    context::CurrentContext,
    device::Wanted,
    errors::{exception, forked, locked},
};

/// The time between checks for Ctrl-C, which also report progress. Each may wait milliseconds for the interpreter's lock.
const BETWEEN: Duration = Duration::from_millis(50);

/// The options of a long call.
#[derive(Debug, Default, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct RunOptions {
    device: Wanted,
    /// The progress callback, which is called with (pass, passes, rows, total).
    progress: Option<Py<PyAny>>,
    /// The maximum number of bytes of host memory.
    memory: Option<Size>,
}

impl RunOptions {
    /// Fails as [`Wanted::open`] does.
    pub(crate) fn device(&self, py: Python<'_>) -> PyResult<Device> {
        self.device.open(py)
    }
}

/// A number of bytes, or a text such as the command line's `--memory` takes.
#[derive(Debug, FromPyObject)]
pub(crate) enum Size {
    Bytes(u64),
    Text(String),
}

impl Size {
    /// Fails with `ValueError` if the text is not a size.
    fn bytes(self) -> PyResult<u64> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Text(text) => teatime_cli::size(&text)
                .map_err(|why| PyValueError::new_err(format!("`memory` of {text:?}: {why}"))),
        }
    }
}

/// Does the same as [`call`], on a device whose operations stop at Ctrl-C even if they take no [`Run`].
/// Fails as [`call`] does.
pub(crate) fn call_on<T: Send>(
    py: Python<'_>,
    device: &Device,
    options: RunOptions,
    work: impl FnOnce(&Device, &Run) -> Result<T> + Send,
) -> PyResult<T> {
    call(py, options, |run| work(&device.cancelled_by(&run.cancel), run))
}

/// Runs `work` without the interpreter's lock.
/// Fails with the exception of `work`, of the progress callback or of a signal handler; `RuntimeError` for a panic.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    options: RunOptions,
    work: impl FnOnce(&Run) -> Result<T> + Send,
) -> PyResult<T> {
    forked()?;
    let _kept = CurrentContext::kept_for_devices();
    let looking = Arc::new(Looking::from_here(py)?);
    let asking = Arc::clone(&looking);
    let cancel = Cancel::asking(move || {
        let is_due = asking.main == Some(thread::current().id()) && locked(&asking.last).elapsed() >= BETWEEN;
        is_due && asking.look(|_| Ok(()))
    });
    let (told, last) = (options.progress.as_ref().map(|callback| callback.clone_ref(py)), Arc::default());
    let progress = progress(options.progress, Arc::clone(&last), cancel.clone(), Arc::clone(&looking));
    let memory = Budget::default().host(options.memory.map(Size::bytes).transpose()?);
    let run = Run::default().cancel(cancel).progress(progress).memory(memory);
    let result = py.detach(|| catch_unwind(AssertUnwindSafe(|| work(&run))));
    if let Some(error) = locked(&looking.raised).take() {
        return Err(error);
    }
    match result {
        Ok(result) => {
            let result = result.map_err(exception)?;
            if let (Some(told), Some(end)) = (told, end_of(&last)) {
                told.call1(py, end)?;
            }
            Ok(result)
        }
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(PyRuntimeError::new_err(format!("teatime panicked, which is a defect of it: {words}")))
        }
    }
}

/// Runs `work` on a thread of its own, which is left to itself after Ctrl-C: remote stores may answer late or never.
/// Fails with the exception of `work` or of a signal handler; `RuntimeError` for a panic.
pub(crate) fn aside<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> PyResult<T> {
    forked()?;
    let (sender, mut receiver) = mpsc::channel();
    // The error of sending means that nobody waits any more.
    thread::spawn(move || drop(sender.send(work())));
    loop {
        let done;
        (done, receiver) = py.detach(move || (receiver.recv_timeout(BETWEEN), receiver));
        match done {
            Ok(done) => return done.map_err(exception),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("teatime panicked, which is a defect of it"));
            }
        }
    }
}

/// Returns the options of remote stores from pairs of keys and values.
pub(crate) fn storage_options(pairs: Option<HashMap<String, String>>) -> StorageOptions {
    let pairs = pairs.into_iter().flatten();
    pairs.fold(StorageOptions::default(), |options, (key, value)| options.option(key, value))
}

/// The state of regular checks for signals.
struct Looking {
    /// The calling thread, if it is Python's main thread: only that thread runs signal handlers.
    main: Option<ThreadId>,
    last: Mutex<Instant>,
    /// The exception that a signal handler or the progress callback raised.
    raised: Mutex<Option<PyErr>>,
}

impl Looking {
    /// Fails with any exception raised by Python's `threading`.
    fn from_here(py: Python<'_>) -> PyResult<Self> {
        let threading = py.import("threading")?;
        let main = threading.call_method0("main_thread")?.getattr("ident")?;
        let is_main = main.eq(threading.call_method0("get_ident")?)?;
        let main = is_main.then(|| thread::current().id());
        Ok(Self { main, last: Mutex::new(Instant::now()), raised: Mutex::default() })
    }

    /// Checks for signals, then calls `also` with the interpreter's lock. Returns true if a signal handler or `also` raised an exception.
    fn look(&self, also: impl FnOnce(Python<'_>) -> PyResult<()>) -> bool {
        *locked(&self.last) = Instant::now();
        let Err(error) = Python::attach(|py| py.check_signals().and_then(|()| also(py))) else {
            return false;
        };
        locked(&self.raised).get_or_insert(error);
        true
    }
}

/// The last reported status of a call.
type Last = Mutex<Option<Status>>;

/// Returns the final status to report, unless it was: all passes (fewer may have been needed), or one if nothing was reported.
fn end_of(last: &Last) -> Option<(u32, u32, u64, u64)> {
    let Some(Status { pass, passes, rows, total, .. }) = *locked(last) else {
        return Some((1, 1, 0, 1));
    };
    (u64::from(pass) * total + rows < u64::from(passes) * total).then_some((passes, passes, 0, total))
}

/// Returns a progress that calls `callback` regularly and at the end of each pass. An exception cancels the call.
fn progress(callback: Option<Py<PyAny>>, last: Arc<Last>, cancel: Cancel, looking: Arc<Looking>) -> Progress {
    let Some(callback) = callback else { return Progress::default() };
    let told_at = Mutex::new(Instant::now());
    Progress::new(move |status: Status| {
        *locked(&last) = Some(status);
        let mut told_at = locked(&told_at);
        if told_at.elapsed() < BETWEEN && status.rows < status.total {
            return;
        }
        *told_at = Instant::now();
        let arguments = (status.pass, status.passes, status.rows, status.total);
        if looking.look(|py| callback.call1(py, arguments).map(drop)) {
            cancel.cancel();
        }
    })
}
