//! Errors as Python's exceptions: those of the crates, forks, panics, and names that an argument does not have.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pyo3::{
    exceptions::{PyMemoryError, PyOSError, PyRuntimeError, PyValueError},
    prelude::*,
};
use teatime::Error;

/// Fails with `RuntimeError` in a child process that was forked after its parent opened a device.
pub(crate) fn forked() -> PyResult<()> {
    static FIRST: OnceLock<u32> = OnceLock::new();
    let (first, now) = (*FIRST.get_or_init(std::process::id), std::process::id());
    if first == now {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(format!(
        "this process ({now}) was forked from one ({first}) that had used teatime: threads and GPUs do not survive that. \
         Start processes with the method `spawn` or `forkserver`"
    )))
}

/// Locks a value that stays usable if a thread panicked with it.
pub(crate) fn locked<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the exception for an error.
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

/// Returns the value for the name `given`, out of a few, of the argument `argument`.
/// Fails with `ValueError` for an unknown name; it lists all names.
pub(crate) fn either<T: Copy>(argument: &str, given: &str, names: &[(&str, T)]) -> PyResult<T> {
    value(given, names, |names| {
        let (last, others) = names.split_last().expect("there should be names");
        format!("`{argument}` is {} or {last}", others.join(", "))
    })
}

/// Does the same as [`either`], for many names.
pub(crate) fn one_of<T: Copy>(argument: &str, given: &str, names: &[(&str, T)]) -> PyResult<T> {
    value(given, names, |names| format!("`{argument}` is one of {}", names.join(", ")))
}

fn value<T: Copy>(given: &str, names: &[(&str, T)], wanted: impl FnOnce(&[&str]) -> String) -> PyResult<T> {
    let known: Vec<_> = names.iter().map(|(name, _)| *name).collect();
    let value = names.iter().find_map(|(name, value)| (*name == given).then_some(*value));
    value.ok_or_else(|| PyValueError::new_err(format!("{}, not {given:?}", wanted(&known))))
}
