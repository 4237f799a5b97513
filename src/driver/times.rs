//! Times of a device on the host's clock, for timelines.

use std::time::{Duration, Instant};

use crate::timeline::Asked;

/// The difference between a device's clock and the host's: the last one by which no work ran before it was submitted or after it was seen done.
/// So it follows clocks that drift.
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    /// The host's nanoseconds since `began`, less the device's nanoseconds; `None` before the first work.
    ahead: Option<i64>,
}

impl Clock {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), ahead: None }
    }

    fn since(&self, time: Instant) -> i64 {
        i64::try_from(time.saturating_duration_since(self.began).as_nanos()).unwrap_or(i64::MAX)
    }

    /// Takes account of work that ran within these nanoseconds of the device, and between these times of the host.
    pub(super) fn ran(&mut self, [first, last]: [i64; 2], [submitted, seen]: [Instant; 2]) {
        let least = self.since(submitted).saturating_sub(first);
        let most = self.since(seen).saturating_sub(last);
        self.ahead = Some(self.ahead.unwrap_or(least).max(least).min(most));
    }

    /// Returns the host's time of a nanosecond of the device.
    pub(super) fn host(&self, nanosecond: i64) -> Instant {
        let since = nanosecond.saturating_add(self.ahead.unwrap_or(0)).max(0).unsigned_abs();
        self.began.checked_add(Duration::from_nanos(since)).unwrap_or(self.began)
    }
}

/// Returns the nanoseconds of ticks of a clock, each of `tick` nanoseconds.
#[allow(clippy::cast_possible_truncation, reason = "nanoseconds of centuries fit")]
pub(super) fn nanoseconds(ticks: f64, tick: f64) -> i64 {
    (ticks * tick) as i64
}

/// A queue or stream, which runs one thing at a time, in a timeline.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) name: String,
    /// The end of the last work.
    ended: Option<Instant>,
}

impl Lane {
    pub(super) const fn new(name: String) -> Self {
        Self { name, ended: None }
    }

    /// Adds the span of work that ran within these nanoseconds of the device, and between these times of the host. Work that overlaps earlier
    /// work begins at the end of that.
    pub(super) fn add(
        &mut self,
        asked: Asked,
        clock: &Clock,
        ran: [i64; 2],
        [submitted, seen]: [Instant; 2],
    ) {
        let least = self.ended.map_or(submitted, |ended| ended.max(submitted)).min(seen);
        let [began, ended] = ran.map(|time| clock.host(time).max(least).min(seen));
        asked.ran(&self.name, began, ended.max(began));
        self.ended = Some(ended.max(began));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Stage, Timeline};

    #[test]
    fn a_clock_keeps_work_between_its_submission_and_the_wait_for_it() {
        let mut clock = Clock::new();
        let at = |clock: &Clock, nanoseconds| clock.began + Duration::from_nanos(nanoseconds);
        let ran = |clock: &mut Clock, ran: [i64; 2], [from, to]: [u64; 2]| {
            clock.ran(ran, [at(clock, from), at(clock, to)]);
            ran.map(|time| clock.since(clock.host(time)))
        };
        // The first work begins when it was submitted.
        assert_eq!(ran(&mut clock, [5000, 5100], [1000, 2000]), [1000, 1100]);
        // This one was submitted while it would have run by then, so the clock was late.
        assert_eq!(ran(&mut clock, [6000, 6100], [2300, 3000]), [2300, 2400]);
        // One that waited in the queue keeps the difference.
        assert_eq!(ran(&mut clock, [8000, 8100], [2500, 9000]), [4300, 4400]);
        // One that was seen done earlier than the clock says: the device's clock runs fast.
        assert_eq!(ran(&mut clock, [20_000, 20_100], [15_000, 16_000]), [15_900, 16_000]);
        // A clock that began anew.
        assert_eq!(ran(&mut clock, [3, 103], [17_000, 18_000]), [17_000, 17_100]);
        // Times further apart than the host's: the wait decides.
        assert_eq!(ran(&mut clock, [200, 5200], [19_000, 20_000]), [15_000, 20_000]);
    }

    #[test]
    fn a_lane_runs_one_thing_at_a_time() {
        let (mut clock, timeline, mut lane) = (Clock::new(), Timeline::default(), Lane::new("q".into()));
        let within = [0, 1_000_000].map(|time| clock.began + Duration::from_nanos(time));
        clock.ran([0, 0], within);
        let mut ends = Vec::new();
        for ran in [[100, 300], [200, 400], [50, 60], [900_000, 2_000_000]] {
            lane.add(timeline.asked(Stage::Kernel, "k", 8), &clock, ran, within);
            ends.push(clock.since(lane.ended.unwrap()));
        }
        assert_eq!((ends, timeline.events()), (vec![300, 400, 400, 1_000_000], (4, 0)));
    }
}
