//! Arguments that have to be one of several names.

use pyo3::{exceptions::PyValueError, prelude::*};

/// Returns the value for the name `given`, out of a few, of the argument `argument`.
///
/// # Errors
/// `ValueError` for an unknown name; it lists all names.
pub(crate) fn either<T, const N: usize>(argument: &str, given: &str, names: [(&str, T); N]) -> PyResult<T> {
    value(given, names, |names| {
        let (last, others) = names.split_last().expect("there should be names");
        format!("`{argument}` is {} or {last}", others.join(", "))
    })
}

/// Does the same as [`either`], for many names.
pub(crate) fn one_of<T, const N: usize>(argument: &str, given: &str, names: [(&str, T); N]) -> PyResult<T> {
    value(given, names, |names| format!("`{argument}` is one of {}", names.join(", ")))
}

fn value<T, const N: usize>(
    given: &str,
    names: [(&str, T); N],
    wanted: impl FnOnce([&str; N]) -> String,
) -> PyResult<T> {
    let known = names.each_ref().map(|(name, _)| *name);
    let value = names.into_iter().find_map(|(name, value)| (name == given).then_some(value));
    value.ok_or_else(|| PyValueError::new_err(format!("{}, not {given:?}", wanted(known))))
}
