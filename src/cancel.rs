//! The flag that stops long calls.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{Error, Result};

/// A flag that stops long calls; clones share the flag. The flag is checked once per block, and before each launch on a device that is
/// [cancelled by](crate::Device::cancelled_by) it.
#[derive(Clone, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    ask: Option<Arc<dyn Fn() -> bool + Send + Sync>>,
}

impl Cancel {
    /// Creates a flag that is also set once `ask` returns true. Every check of the flag calls `ask`, from the calling thread and from other
    /// threads, also before each launch, so `ask` must return at once.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// let end = Instant::now() + Duration::from_secs(60);
    /// let cancel = teatime::Cancel::asking(move || Instant::now() > end);
    /// assert!(!cancel.is_cancelled());
    /// ```
    pub fn asking(ask: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        Self { flag: Arc::default(), ask: Some(Arc::new(ask)) }
    }

    /// Asks every call that holds a clone to return [`Error::Cancelled`].
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// True once [`cancel`](Self::cancel) was called, or the function given to [`asking`](Self::asking) returned true.
    pub fn is_cancelled(&self) -> bool {
        if !self.flag.load(Ordering::Relaxed) && self.ask.as_ref().is_some_and(|ask| ask()) {
            self.cancel();
        }
        self.flag.load(Ordering::Relaxed)
    }

    /// Returns a flag that is set once this one is, or `other` if there is one.
    pub(crate) fn or(&self, other: Option<&Self>) -> Self {
        let Some(other) = other.cloned() else { return self.clone() };
        let own = self.clone();
        Self::asking(move || own.is_cancelled() || other.is_cancelled())
    }

    /// True if there is a flag and it is set.
    pub(crate) fn is_set(cancel: Option<&Self>) -> bool {
        cancel.is_some_and(Self::is_cancelled)
    }

    /// # Errors
    /// [`Error::Cancelled`] once the flag [is set](Self::is_cancelled).
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::Cancelled) } else { Ok(()) }
    }
}

impl fmt::Debug for Cancel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cancel({})", self.flag.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_flag() {
        let cancel = Cancel::default();
        let clone = cancel.clone();
        assert!(clone.check().is_ok());
        cancel.cancel();
        assert!(matches!(clone.check(), Err(Error::Cancelled)));
    }

    #[test]
    fn what_is_asked_sets_the_flag_for_good() {
        let asked = Arc::new(AtomicBool::new(false));
        let answer = Arc::clone(&asked);
        let cancel = Cancel::asking(move || answer.swap(false, Ordering::Relaxed));
        let clone = cancel.clone();
        assert!(cancel.check().is_ok());
        asked.store(true, Ordering::Relaxed);
        assert!(clone.is_cancelled() && cancel.is_cancelled());
    }
}
