//! Timing: sizes that fit a device's memory and the available time, warm-up, medians.

use std::{fmt::Display, time::Instant};

use teatime::{Device, Error};

use crate::{
    report::{DeviceReport, Entry, Fraction, Note, OWN, Unit},
    table,
};

/// A function that enqueues work on data that was prepared before.
pub(crate) type Job = Box<dyn FnMut() -> Result<(), Error>>;

/// The maximum number of runs for a median, and the minimum if time allows.
const RUNS: [usize; 2] = [25, 3];
/// The minimum seconds of a run: a job is repeated until then, so that waiting for the device takes a small part.
const LEAST_SECONDS: f64 = 2e-3;
/// The maximum number of repetitions within a run, since devices may hold the results of all repetitions until it ends.
const REPEATS: u32 = 8;
/// The number of measurements among which a device's time is divided.
const ENTRIES: f64 = 35.0;

/// The measurements of one device.
pub(crate) struct Session<'a> {
    pub(crate) device: &'a Device,
    pub(crate) report: &'a mut DeviceReport,
    /// Measurements whose name does not contain this text are left out.
    only: &'a str,
    /// The seconds for one measurement.
    pub(crate) budget: f64,
    /// The bytes of device memory that one measurement may take.
    pub(crate) room: u64,
}

pub(crate) struct Size {
    pub(crate) text: String,
    /// The bytes or operations of one run.
    pub(crate) work: f64,
    /// The bytes of device memory that a run takes.
    pub(crate) memory: u64,
}

/// A job that ran twice, once to warm up.
struct Tried {
    job: Job,
    /// The time of the second run.
    seconds: f64,
    /// The time for making the data.
    setup: f64,
    work: f64,
    memory: u64,
}

impl Tried {
    /// Returns the expected seconds for another size: for its data and the minimum number of runs.
    fn expected(&self, size: &Size) -> f64 {
        let [_, least] = RUNS;
        let runs = (2 + least) as f64 * self.seconds * size.work / self.work;
        runs + self.setup * size.memory as f64 / self.memory as f64
    }
}

impl<'a> Session<'a> {
    /// Creates a session of `seconds` for the whole device. One measurement may take a sixteenth of its memory, within the limits of one tensor.
    pub(crate) fn new(device: &'a Device, report: &'a mut DeviceReport, only: &'a str, seconds: f64) -> Self {
        let limits = device.limits();
        let room = (memory(device) / 16).min(limits.buffer.min(limits.binding));
        Self { device, report, only, budget: seconds / ENTRIES, room }
    }

    /// Returns a session of `entries` measurements that share `seconds`. Each may take five eighths of the memory, in any number of tensors.
    pub(crate) fn sharing(self, seconds: f64, entries: f64) -> Self {
        let room = memory(self.device) / 8 * 5;
        Self { budget: seconds / entries, room, ..self }
    }

    /// Returns true if the measurement was requested.
    pub(crate) fn wants(&mut self, id: &str) -> bool {
        self.report.names.insert(id.to_owned());
        id.contains(self.only)
    }

    /// Measures at the largest of the increasing sizes that fits the memory and the time, and returns its index.
    pub(crate) fn largest<S>(
        &mut self,
        id: &str,
        unit: Unit,
        sizes: &[S],
        size: impl Fn(&S) -> Size,
        mut make: impl FnMut(&Device, &S) -> Result<Job, Error>,
    ) -> Option<usize> {
        if !self.wants(id) {
            return None;
        }
        let started = Instant::now();
        let mut largest: Option<(Size, Tried)> = None;
        let mut last = None;
        for (i, next) in sizes.iter().enumerate() {
            let next_size = size(next);
            let fits = |(_, tried): &(_, Tried)| {
                tried.expected(&next_size) <= self.budget && next_size.memory <= self.room
            };
            if !largest.as_ref().is_none_or(fits) {
                break;
            }
            // The smaller size's memory is freed before the larger size is prepared.
            drop(largest.take());
            match self.attempt(&next_size, |device| make(device, next)) {
                Ok(tried) => (largest, last) = (Some((next_size, tried)), Some(i)),
                Err(error) => {
                    self.failed(id, &format!("{}: {error}", next_size.text));
                    return None;
                }
            }
        }
        let (size, mut tried) = largest?;
        self.finish(id, &size, unit, &mut tried, started);
        last
    }

    /// Measures each size in order, and skips sizes that would take too long, judged by the previous size.
    pub(crate) fn each<S>(
        &mut self,
        unit: Unit,
        sizes: &[S],
        name: impl Fn(&S) -> String,
        size: impl Fn(&S) -> Size,
        mut make: impl FnMut(&Device, &S) -> Result<Job, Error>,
    ) {
        let mut before: Option<Tried> = None;
        for next in sizes {
            let (id, next_size) = (name(next), size(next));
            if !self.wants(&id) {
                continue;
            }
            let expected = before.as_ref().map_or(0.0, |tried| tried.expected(&next_size));
            if expected > self.budget {
                self.skipped(&id, &format!("it would take about {} s", table::number(expected)));
                continue;
            }
            // The smallest size always runs.
            if before.is_some() && next_size.memory > self.room {
                self.skipped(&id, &format!("it takes {} of the device", table::bytes(next_size.memory)));
                continue;
            }
            let started = Instant::now();
            match self.attempt(&next_size, |device| make(device, next)) {
                Ok(mut tried) => {
                    self.finish(&id, &next_size, unit, &mut tried, started);
                    // This frees its data before the next size is prepared.
                    tried.job = Box::new(|| Ok(()));
                    before = Some(tried);
                }
                Err(error) => self.failed(&id, &error.to_string()),
            }
        }
    }

    fn attempt(&self, size: &Size, make: impl FnOnce(&Device) -> Result<Job, Error>) -> Result<Tried, Error> {
        let started = Instant::now();
        let mut job = make(self.device)?;
        let setup = started.elapsed().as_secs_f64();
        self.run(&mut job, 1)?;
        let seconds = self.run(&mut job, 1)?;
        Ok(Tried { job, seconds, setup, work: size.work, memory: size.memory })
    }

    /// Returns the seconds of one of `repeats` consecutive jobs, which share the wait at their end.
    fn run(&self, job: &mut Job, repeats: u32) -> Result<f64, Error> {
        self.device.synchronize()?;
        let started = Instant::now();
        for _ in 0..repeats {
            job()?;
        }
        self.device.synchronize()?;
        Ok(started.elapsed().as_secs_f64() / f64::from(repeats))
    }

    /// Runs a job as often as time allows, counted from `started`, when its first data were made, and records the result.
    fn finish(&mut self, id: &str, size: &Size, unit: Unit, tried: &mut Tried, started: Instant) {
        let Tried { job, seconds, .. } = tried;
        let enough = |&repeats: &u32| f64::from(repeats) * *seconds >= LEAST_SECONDS;
        let repeats = (1..REPEATS).find(enough).unwrap_or(REPEATS);
        let [most, least] = RUNS;
        let mut runs = Vec::new();
        while runs.len() < most {
            let spent = started.elapsed().as_secs_f64();
            // At least the minimum number of runs is made, unless the time is exceeded threefold.
            if spent > self.budget && (runs.len() >= least || spent > self.budget * 3.0) {
                break;
            }
            match self.run(job, repeats) {
                Ok(seconds) => runs.push(seconds),
                Err(error) => return self.failed(id, &error.to_string()),
            }
        }
        runs.sort_by(f64::total_cmp);
        if runs.is_empty() {
            runs.push(*seconds);
        }
        self.record(id, &size.text, unit, size.work, &runs);
    }

    /// Records a result: `work` was done in each of `seconds`.
    pub(crate) fn record(&mut self, id: &str, size: &str, unit: Unit, work: f64, seconds: &[f64]) {
        let mut quantities: Vec<f64> = seconds.iter().map(|&s| unit.quantity(work, s)).collect();
        quantities.sort_by(f64::total_cmp);
        let [Some(&min), Some(&median), Some(&max)] =
            [quantities.first(), quantities.get(quantities.len() / 2), quantities.last()]
        else {
            return;
        };
        let (id, size, runs) = (id.into(), size.into(), quantities.len());
        let mut entry = Entry { id, size, unit, median, min, max, runs, fraction: None };
        entry.fraction = self.fraction(&entry);
        table::print(&entry.line());
        self.report.entries.push(entry);
    }

    /// Records the difference of two measurements in milliseconds, the second of which is part of the first.
    pub(crate) fn difference(&mut self, id: &str, whole: &str, part: &str) {
        let [Some(whole), Some(part)] = [whole, part].map(|id| self.report.entry(id)) else { return };
        let (size, seconds) = (whole.size.clone(), (whole.median - part.median) / 1e3);
        if whole.size == part.size && seconds > 0.0 {
            self.record(id, &size, Unit::Milliseconds, 1.0, &[seconds]);
        }
    }

    /// Compares kernels with the copy, and our own products with the vendor library's.
    fn fraction(&self, entry: &Entry) -> Option<Fraction> {
        let peer = match entry.unit {
            Unit::Bandwidth if entry.id.starts_with("kernel ") => COPY.to_owned(),
            Unit::Flops => entry.id.strip_suffix(OWN)?.to_owned(),
            _ => return None,
        };
        let value = entry.median / self.report.entry(&peer)?.median;
        Some(Fraction { value, of: peer })
    }

    /// Measures increasing sizes, each a name and a number of rows. Stops at a size that would take longer than the remaining part of `seconds`,
    /// judged by the previous size, or that needs more device memory than the session allows.
    pub(crate) fn grow<E: Display>(
        &mut self,
        seconds: f64,
        sizes: impl IntoIterator<Item = (String, u64)>,
        memory: impl Fn(u64) -> u64,
        mut measure: impl FnMut(&mut Self, &str, u64) -> Result<(), E>,
    ) {
        let started = Instant::now();
        let mut before: Option<(u64, f64)> = None;
        for (id, rows) in sizes {
            let expected = before.map_or(0.0, |(done, seconds)| seconds * rows as f64 / done as f64);
            if before.is_some() && expected > seconds - started.elapsed().as_secs_f64() {
                return self.skipped(&id, &format!("it would take about {} s", table::number(expected)));
            }
            if memory(rows) > self.room {
                return self.skipped(&id, &format!("it takes {} MiB of the device", memory(rows) >> 20));
            }
            let began = Instant::now();
            if let Err(error) = measure(self, &id, rows) {
                return self.failed(&id, &error.to_string());
            }
            before = Some((rows, began.elapsed().as_secs_f64()));
        }
    }

    pub(crate) fn skipped(&mut self, id: &str, why: &str) {
        table::print(&format!("  {id:<44} skipped: {why}"));
        self.report.skipped.push(Note { name: id.into(), why: why.into() });
    }

    pub(crate) fn failed(&mut self, id: &str, why: &str) {
        table::print(&format!("  {id:<44} FAILED: {why}"));
        self.report.failed.push(Note { name: id.into(), why: why.into() });
    }
}

/// Returns the memory of a device in bytes, or 2 GiB if it is unknown.
pub(crate) fn memory(device: &Device) -> u64 {
    device.info().memory.unwrap_or(2 << 30)
}

/// The measurement that kernels are compared with: the bytes per second read and written by a copy.
pub(crate) const COPY: &str = "copy on the device";

#[cfg(test)]
mod tests {
    use std::{thread::sleep, time::Duration};

    use super::*;

    fn sizes(n: &u64) -> Size {
        Size { text: n.to_string(), work: *n as f64, memory: 1 }
    }

    /// A job that sleeps as many milliseconds as its size says.
    fn sleeper(_: &Device, n: &u64) -> Result<Job, Error> {
        let pause = Duration::from_millis(*n);
        Ok(Box::new(move || {
            sleep(pause);
            Ok(())
        }))
    }

    #[test]
    fn sizes_grow_until_the_time_is_spent() {
        let device = Device::cpu();
        let mut report = DeviceReport::new(&device);
        let mut session = Session::new(&device, &mut report, "", 4.8);
        // Other work on the machine may make a pause many times as long.
        session.largest("sleep", Unit::Flops, &[1, 2, 10_000_000], sizes, sleeper);
        session.each(Unit::Flops, &[1, 10_000_000], |n| format!("sleep {n}"), sizes, sleeper);
        let ids: Vec<_> = report.entries.iter().map(|entry| (&*entry.id, &*entry.size)).collect();
        assert_eq!(ids, [("sleep", "2"), ("sleep 1", "1")]);
        assert_eq!(report.skipped.len(), 1, "{:?}", report.skipped);
        assert!(report.entries[0].runs >= 3 && report.entries[0].min <= report.entries[0].median);
    }

    /// Without it, a piece of a flight takes longer than its time on a slow device.
    #[test]
    fn making_data_is_part_of_the_time() {
        let device = Device::cpu();
        let mut report = DeviceReport::new(&device);
        let mut session = Session::new(&device, &mut report, "", 0.01 * ENTRIES);
        let slow = |device: &Device, n: &u64| {
            sleep(Duration::from_millis(50));
            sleeper(device, n)
        };
        session.largest("one", Unit::Flops, &[1], sizes, slow);
        session.each(Unit::Flops, &[1], |n| format!("sleep {n}"), sizes, slow);
        assert!(report.entries.iter().all(|entry| entry.runs == 1), "{:?}", report.entries);
    }

    #[test]
    fn what_fails_is_kept() {
        let device = Device::cpu();
        let mut report = DeviceReport::new(&device);
        let mut session = Session::new(&device, &mut report, "wanted", 1.0);
        let fails = |_: &Device, _: &u64| Err(Error::Cancelled);
        session.largest("wanted", Unit::Bandwidth, &[1], sizes, fails);
        session.largest("other", Unit::Bandwidth, &[1], sizes, fails);
        assert_eq!(report.failed.len(), 1);
        assert_eq!(report.failed[0].name, "wanted");
    }

    #[test]
    fn kernels_are_fractions_of_the_copy() {
        let device = Device::cpu();
        let mut report = DeviceReport::new(&device);
        let mut session = Session::new(&device, &mut report, "", 1.0);
        session.record(COPY, "", Unit::Bandwidth, 4e9, &[1.0]);
        session.record("kernel x", "", Unit::Bandwidth, 3e9, &[1.0, 2.0, 4.0]);
        session.record("product", "", Unit::Flops, 2e9, &[1.0]);
        session.record("product, own kernel", "", Unit::Flops, 1e9, &[1.0]);
        let fractions: Vec<_> =
            report.entries.iter().map(|e| e.fraction.as_ref().map(|f| (f.value, &*f.of))).collect();
        assert_eq!(fractions, [None, Some((0.375, COPY)), None, Some((0.5, "product"))]);
    }
}
