//! Locks that stay of use after a panic.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what threads share. A thread that panicked while it had the lock changes nothing for the others.
pub(crate) fn locked<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}
