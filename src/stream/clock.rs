//! The time of work that is split among threads.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Measures the time from the beginning of the first part of some work to the end of the last. The time does not count in which the work waits
/// for a thread that reads, or for a thread that took up other work when its part was done.
pub(super) struct Clock {
    made: Instant,
    first: AtomicU64,
    last: AtomicU64,
}

/// A part of the work, which ends when it is dropped.
pub(super) struct Part<'a>(&'a Clock);

impl Clock {
    pub(super) fn new() -> Self {
        Self { made: Instant::now(), first: AtomicU64::new(u64::MAX), last: AtomicU64::new(0) }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Begins a part.
    pub(super) fn part(&self) -> Part<'_> {
        self.first.fetch_min(self.now(), Ordering::Relaxed);
        Part(self)
    }

    /// Returns the time that the parts took, and the rest of the time since the clock was made.
    pub(super) fn took(&self) -> (Duration, Duration) {
        let [first, last] = [&self.first, &self.last].map(|time| time.load(Ordering::Relaxed));
        let took = Duration::from_nanos(last.saturating_sub(first));
        (took, self.made.elapsed().saturating_sub(took))
    }
}

impl Drop for Part<'_> {
    fn drop(&mut self) {
        self.0.last.fetch_max(self.0.now(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    #[test]
    fn what_is_no_part_does_not_count() {
        let (clock, pause) = (Clock::new(), Duration::from_millis(5));
        sleep(pause);
        let began = Instant::now();
        let [one, two] = [clock.part(), clock.part()];
        sleep(pause);
        drop(two);
        drop(one);
        let within = began.elapsed();
        sleep(pause);
        let (took, rest) = clock.took();
        assert!(pause <= took && took <= within && rest >= 2 * pause, "{took:?} {within:?} {rest:?}");
        let (took, rest) = Clock::new().took();
        assert!(took.is_zero() && rest < within);
    }
}
