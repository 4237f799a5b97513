//! Timelines of several processes in one.

use super::{Event, Label, Lane, Ring, Stage, Timeline};
use crate::{Error, Result, waiting::lock};

/// The start of a recording as bytes.
const MAGIC: &[u8] = b"teatime timeline 2\n";

/// The rest of a recording as bytes: numbers of 8 bytes, and texts after their lengths.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn number(&mut self) -> Option<u64> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*number))
    }

    fn text(&mut self) -> Option<Box<str>> {
        let len = usize::try_from(self.number()?).ok()?;
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(str::from_utf8(text).ok()?.into())
    }

    /// Returns as many items as the next number says. Each takes at least a byte, so a wrong number ends early.
    fn items<T>(&mut self, item: impl Fn(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        (0..self.number()?).map(|_| item(self)).collect()
    }
}

/// The recording of another process.
struct Other {
    began_at: u64,
    dropped: u64,
    labels: Vec<Label>,
    lanes: Vec<Lane>,
    grids: Vec<(Box<str>, Vec<u64>)>,
    events: Vec<Event>,
}

impl Other {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut rest = Rest(bytes.strip_prefix(MAGIC)?);
        let stage = |rest: &mut Rest<'_>| Stage::ALL.get(usize::try_from(rest.number()?).ok()?).copied();
        let event = |rest: &mut Rest<'_>| {
            let (start, took, bytes, packed) =
                (rest.number()?, rest.number()?, rest.number()?, rest.number()?);
            let [item, label, lane] = [packed & 0xffff_ffff, packed >> 32 & 0xffff, packed >> 48];
            let (label, lane) = (u16::try_from(label).ok()?, u16::try_from(lane).ok()?);
            Some(Event { start, took, bytes, item: u32::try_from(item).ok()?, label, lane })
        };
        let other = Self {
            began_at: rest.number()?,
            dropped: rest.number()?,
            labels: rest.items(|rest| Some(Label { stage: stage(rest)?, name: rest.text()? }))?,
            lanes: rest.items(|rest| Some(Lane { is_device: rest.number()? != 0, name: rest.text()? }))?,
            grids: rest.items(|rest| Some((rest.text()?, rest.items(Rest::number)?)))?,
            events: rest.items(event)?,
        };
        let is_known = |event: &Event| {
            usize::from(event.label) < other.labels.len()
                && usize::from(event.lane) < other.lanes.len()
                && event.start.checked_add(event.took).is_some_and(|end| end < 1 << 62)
        };
        (rest.0.is_empty() && other.events.iter().all(is_known)).then_some(other)
    }
}

impl Timeline {
    /// Returns the recording as bytes, which [`merge`](Self::merge) takes in another process.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Ring { events, dropped, labels, lanes, grids, .. } = &*lock(&self.0.ring);
        let mut bytes = MAGIC.to_vec();
        let mut put = |numbers: &[u64], text: Option<&str>| {
            let length = text.map(|text| text.len() as u64);
            bytes.extend(numbers.iter().chain(&length).flat_map(|number| number.to_le_bytes()));
            bytes.extend_from_slice(text.unwrap_or_default().as_bytes());
        };
        put(&[self.began_at_micros(), *dropped, labels.len() as u64], None);
        labels.iter().for_each(|label| put(&[label.stage as u64], Some(&label.name)));
        put(&[lanes.len() as u64], None);
        lanes.iter().for_each(|lane| put(&[lane.is_device.into()], Some(&lane.name)));
        put(&[grids.len() as u64], None);
        for (name, grid) in grids {
            put(&[], Some(name));
            put(&[grid.len() as u64], None);
            put(grid, None);
        }
        put(&[events.len() as u64], None);
        for Event { start, took, bytes, item, label, lane } in events {
            let packed = u64::from(*item) | u64::from(*label) << 32 | u64::from(*lane) << 48;
            put(&[*start, *took, *bytes, packed], None);
        }
        bytes
    }

    /// Adds the recording of another process, whose threads, phases and bytes are named `process`. Times are ordered by the clocks of the
    /// machines.
    ///
    /// # Errors
    /// [`Error::Argument`] for bytes that are not a recording of this version of teatime.
    ///
    /// ```
    /// use std::time::Instant;
    /// use teatime::Timeline;
    /// let (worker, timeline) = (Timeline::default(), Timeline::default());
    /// worker.phase("task", Instant::now());
    /// timeline.merge("worker 1", &worker.to_bytes())?;
    /// assert_eq!(timeline.events(), (1, 0));
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn merge(&self, process: &str, recorded: &[u8]) -> Result<()> {
        let refused =
            || Error::argument("Timeline::merge", "recorded", "is not what `Timeline::to_bytes` makes");
        let other = Other::parse(recorded).ok_or_else(refused)?;
        let later =
            i64::try_from(i128::from(other.began_at) - i128::from(self.began_at_micros())).unwrap_or(0);
        let mut ring = lock(&self.0.ring);
        ring.dropped += other.dropped;
        let of_process = |name: &str| format!("{process}: {name}");
        let label = |Label { stage, name }: &Label| match stage {
            Stage::Phase | Stage::Bytes => ring.label(*stage, &of_process(name)),
            stage => ring.label(*stage, name),
        };
        let labels: Vec<u16> = other.labels.iter().map(label).collect();
        let lane = |Lane { name, is_device }: &Lane| {
            ring.new_lane(Lane { name: of_process(name).into(), is_device: *is_device })
        };
        let lanes: Vec<u16> = other.lanes.iter().map(lane).collect();
        ring.grids.extend(other.grids.into_iter().map(|(name, grid)| (name, grid.into())));
        // Each process keeps its own events.
        ring.most = ring.most.saturating_add(other.events.len());
        for event in other.events {
            let start = event.start.saturating_add_signed(later.saturating_mul(1000));
            let (label, lane) = (labels[usize::from(event.label)], lanes[usize::from(event.lane)]);
            ring.push(Event { start, label, lane, ..event });
        }
        Ok(())
    }
}
