//! How a call of Python's runs: without the interpreter's lock, ended by Ctrl-C, and with panics and errors as exceptions.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use pyo3::{
    exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError},
    prelude::*,
};
use teatime::{Budget, Cancel, Error, Progress, Result, Run, Status};

use crate::device::forked;

/// How often Ctrl-C is looked for and progress told: each time takes the interpreter's lock, which other threads may hold for milliseconds.
const BETWEEN: Duration = Duration::from_millis(50);

/// What a caller says about a long call.
#[derive(Debug, Default, FromPyObject)]
pub(crate) struct RunOptions {
    /// Called with how far the call is: (pass, passes, rows, total).
    #[pyo3(item("progress"))]
    pub(crate) progress: Option<Py<PyAny>>,
    /// Most bytes of the host's memory.
    #[pyo3(item("memory"))]
    pub(crate) memory: Option<u64>,
    /// Most bytes of the device's memory.
    #[pyo3(item("device_memory"))]
    pub(crate) device_memory: Option<u64>,
}

/// Runs `work` without the interpreter's lock.
///
/// # Errors
/// What `work` returns, as Python has it; what the progress callback or a signal's handler raised; `RuntimeError` for a panic.
pub(crate) fn call<T: Send>(
    py: Python<'_>,
    options: RunOptions,
    work: impl FnOnce(&Run) -> Result<T> + Send,
) -> PyResult<T> {
    forked()?;
    let raised = Arc::new(Mutex::new(None));
    let cancel = Cancel::default();
    let progress = progress(options.progress, cancel.clone(), Arc::clone(&raised));
    let memory = Budget::default().host(options.memory).device(options.device_memory);
    let run = Run::default().cancel(cancel).progress(progress).memory(memory);
    let result = py.detach(|| catch_unwind(AssertUnwindSafe(|| work(&run))));
    if let Some(error) = raised.lock().unwrap_or_else(PoisonError::into_inner).take() {
        return Err(error);
    }
    match result {
        Ok(result) => result.map_err(exception),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str);
            let words = words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(PyRuntimeError::new_err(format!("teatime panicked, which is a defect of it: {words}")))
        }
    }
}

/// Calls `callback` and looks for signals, now and then; what is raised ends the call.
fn progress(callback: Option<Py<PyAny>>, cancel: Cancel, raised: Arc<Mutex<Option<PyErr>>>) -> Progress {
    let last = Mutex::new(Instant::now());
    Progress::new(move |status: Status| {
        let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.elapsed() < BETWEEN && status.rows < status.total {
            return;
        }
        *last = Instant::now();
        let called = Python::attach(|py| {
            py.check_signals()?;
            let arguments = (status.pass, status.passes, status.rows, status.total);
            callback.as_ref().map_or(Ok(()), |callback| callback.call1(py, arguments).map(drop))
        });
        if let Err(error) = called {
            raised.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            cancel.cancel();
        }
    })
}

/// The exception of an error.
pub(crate) fn exception(error: Error) -> PyErr {
    let words = error.to_string();
    match error {
        Error::Shape { .. } | Error::Argument { .. } | Error::NoF64 { .. } | Error::WrongDevice { .. } => {
            PyValueError::new_err(words)
        }
        Error::Budget { .. }
        | Error::Limit { .. }
        | Error::OutOfMemory { .. }
        | Error::OutOfHostMemory { .. } => PyMemoryError::new_err(words),
        Error::Io { path, source } => match source.raw_os_error() {
            Some(code) => PyOSError::new_err((code, source.to_string(), path.into_string())),
            None => PyOSError::new_err(words),
        },
        Error::Store { .. } | Error::Chunk { .. } => PyOSError::new_err(words),
        _ => PyRuntimeError::new_err(words),
    }
}
