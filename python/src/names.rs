//! Arguments that have to be one of several names.

use pyo3::{exceptions::PyValueError, prelude::*};

/// Returns the value for the name `given`, out of a few, of the argument `argument`.
/// Fails with `ValueError` for an unknown name; it lists all names.
pub(crate) fn either<T>(
    argument: &str,
    given: &str,
    names: impl IntoIterator<Item = (&'static str, T)>,
) -> PyResult<T> {
    value(given, names, |names| {
        let (last, others) = names.split_last().expect("there should be names");
        format!("`{argument}` is {} or {last}", others.join(", "))
    })
}

/// Does the same as [`either`], for many names.
pub(crate) fn one_of<T>(
    argument: &str,
    given: &str,
    names: impl IntoIterator<Item = (&'static str, T)>,
) -> PyResult<T> {
    value(given, names, |names| format!("`{argument}` is one of {}", names.join(", ")))
}

fn value<T>(
    given: &str,
    names: impl IntoIterator<Item = (&'static str, T)>,
    wanted: impl FnOnce(&[&str]) -> String,
) -> PyResult<T> {
    let (known, values): (Vec<_>, Vec<T>) = names.into_iter().unzip();
    let value = known.iter().zip(values).find_map(|(name, value)| (*name == given).then_some(value));
    value.ok_or_else(|| PyValueError::new_err(format!("{}, not {given:?}", wanted(&known))))
}
