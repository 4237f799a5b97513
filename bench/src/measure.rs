//! Timing: sizes that fit a device's memory and the time there is, warm-up, medians.

use std::{fmt::Display, time::Instant};

use teatime::{Device, Error};

use crate::{
    report::{DeviceReport, Entry, Fraction, Note, OWN, Unit},
    table,
};

/// Work that is enqueued, on data that was made before.
pub(crate) type Job = Box<dyn FnMut() -> Result<(), Error>>;

/// The maximum number of runs that a median is taken over, and the minimum.
const RUNS: [usize; 2] = [25, 3];
/// A run is repeated until it takes this long, so that waiting for the device counts little.
const LEAST_SECONDS: f64 = 2e-3;
/// The maximum number of repetitions within a run, since devices may hold the results of all until it ends.
const REPEATS: u32 = 8;
/// Measurements that share the time of a device.
const ENTRIES: f64 = 30.0;

/// The measurements of one device.
pub(crate) struct Session<'a> {
    pub(crate) device: &'a Device,
    pub(crate) report: &'a mut DeviceReport,
    /// Part of a measurement's name without which it is left out.
    only: &'a str,
    /// Seconds for one measurement.
    pub(crate) budget: f64,
    /// Bytes that one measurement may take.
    pub(crate) room: u64,
}

/// One size at which something is measured.
pub(crate) struct Size {
    pub(crate) text: String,
    /// Bytes or operations of one run.
    pub(crate) work: f64,
    /// Bytes of device memory that it takes.
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
    /// Seconds that another size is likely to take, its data and the least number of runs.
    fn expected(&self, size: &Size) -> f64 {
        let [_, least] = RUNS;
        let runs = (2 + least) as f64 * self.seconds * size.work / self.work;
        runs + self.setup * size.memory as f64 / self.memory as f64
    }
}

impl<'a> Session<'a> {
    /// `seconds` for the whole device; for one measurement a sixteenth of its memory, in tensors within its limits.
    pub(crate) fn new(device: &'a Device, report: &'a mut DeviceReport, only: &'a str, seconds: f64) -> Self {
        let limits = device.limits();
        let room = (memory(device) / 16).min(limits.buffer.min(limits.binding));
        Self { device, report, only, budget: seconds / ENTRIES, room }
    }

    /// A session of some measurements that share the seconds, each of which may take five eighths of the memory, in tensors
    /// of any number.
    pub(crate) fn sharing(self, seconds: f64, entries: f64) -> Self {
        let room = memory(self.device) / 8 * 5;
        Self { budget: seconds / entries, room, ..self }
    }

    /// True where the measurement was asked for.
    pub(crate) fn wants(&self, id: &str) -> bool {
        id.contains(self.only)
    }

    /// Measures at the largest of the sizes, which grow, that fits the memory and the time; which one that was.
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
            // The memory of the smaller size is free before the larger one is made.
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
        self.finish(id, &size, unit, &mut tried);
        last
    }

    /// Measures each of some sizes, in order, and skips those that the one before says would take too long.
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
            // The smallest always runs.
            if before.is_some() && next_size.memory > self.room {
                self.skipped(&id, &format!("it takes {} of the device", table::bytes(next_size.memory)));
                continue;
            }
            match self.attempt(&next_size, |device| make(device, next)) {
                Ok(mut tried) => {
                    self.finish(&id, &next_size, unit, &mut tried);
                    // Its data is free before the next is made.
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

    /// Seconds of one of `repeats` jobs in a row, the wait at their end shared.
    fn run(&self, job: &mut Job, repeats: u32) -> Result<f64, Error> {
        self.device.synchronize()?;
        let started = Instant::now();
        for _ in 0..repeats {
            job()?;
        }
        self.device.synchronize()?;
        Ok(started.elapsed().as_secs_f64() / f64::from(repeats))
    }

    /// Runs a job as often as time allows, and keeps the result.
    fn finish(&mut self, id: &str, size: &Size, unit: Unit, tried: &mut Tried) {
        let Tried { job, seconds, .. } = tried;
        let enough = |&repeats: &u32| f64::from(repeats) * *seconds >= LEAST_SECONDS;
        let repeats = (1..REPEATS).find(enough).unwrap_or(REPEATS);
        let [most, least] = RUNS;
        let started = Instant::now();
        let mut runs = Vec::new();
        while runs.len() < most {
            let spent = started.elapsed().as_secs_f64();
            // The least number of runs unless a single one takes the time of all.
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

    /// Keeps a result: `work` done in each of `seconds`, which rise.
    pub(crate) fn record(&mut self, id: &str, size: &str, unit: Unit, work: f64, seconds: &[f64]) {
        let mut quantities: Vec<f64> = seconds.iter().map(|&s| unit.quantity(work, s)).collect();
        quantities.sort_by(f64::total_cmp);
        let [Some(&min), Some(&median), Some(&max)] =
            [quantities.first(), quantities.get(quantities.len() / 2), quantities.last()]
        else {
            return;
        };
        let mut entry = Entry {
            id: id.into(),
            size: size.into(),
            unit,
            median,
            min,
            max,
            runs: quantities.len(),
            fraction: None,
        };
        entry.fraction = self.fraction(&entry);
        table::print(&entry.line());
        self.report.entries.push(entry);
    }

    /// Keeps the difference of two measurements in milliseconds, of which one is a part of the other.
    pub(crate) fn difference(&mut self, id: &str, whole: &str, part: &str) {
        let [Some(whole), Some(part)] = [whole, part].map(|id| self.report.entry(id)) else { return };
        let (size, seconds) = (whole.size.clone(), (whole.median - part.median) / 1e3);
        if whole.size == part.size && seconds > 0.0 {
            self.record(id, &size, Unit::Milliseconds, 1.0, &[seconds]);
        }
    }

    /// Kernels against the copy, our products against the vendor library's.
    fn fraction(&self, entry: &Entry) -> Option<Fraction> {
        let peer = match entry.unit {
            Unit::Bandwidth if entry.id.starts_with("kernel ") => COPY.to_owned(),
            Unit::Flops => entry.id.strip_suffix(OWN)?.to_owned(),
            _ => return None,
        };
        let value = entry.median / self.report.entry(&peer)?.median;
        Some(Fraction { value, of: peer })
    }

    /// Measures sizes, each a name and how many rows, that grow, up to one that the one before says would take longer than what
    /// is left of these seconds, or that takes more of the device's memory than there is room.
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

    /// Notes what was not measured, and why.
    pub(crate) fn skipped(&mut self, id: &str, why: &str) {
        table::print(&format!("  {id:<44} skipped: {why}"));
        self.report.skipped.push(Note { name: id.into(), why: why.into() });
    }

    /// Notes what went wrong.
    pub(crate) fn failed(&mut self, id: &str, why: &str) {
        table::print(&format!("  {id:<44} FAILED: {why}"));
        self.report.failed.push(Note { name: id.into(), why: why.into() });
    }
}

/// Memory of a device in bytes, or as much as any has.
pub(crate) fn memory(device: &Device) -> u64 {
    device.info().memory.unwrap_or(2 << 30)
}

/// The measurement that kernels are compared with: bytes read and written by a copy.
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
