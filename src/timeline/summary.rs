//! The contents of a timeline's trace and page: lanes of spans, the time of each stage, and what bounds the run.

use std::{collections::BTreeMap, ops::Range};

use super::{Event, Label, Lane, Ring, Stage, Timeline};
use crate::{extent::index_at, waiting::lock};

/// A copy of a timeline's events, by lane.
#[derive(Default)]
pub(super) struct Summary {
    pub(super) labels: Vec<Label>,
    /// The phases, and a lane for each thread and each queue; threads that ran one after another under one name share a lane.
    pub(super) phases: Vec<Event>,
    pub(super) lanes: Vec<LaneOf>,
    /// For each kind of bytes, the times and the numbers of bytes held from then on.
    pub(super) held: Vec<(String, Vec<(u64, u64)>)>,
    /// The time from the first event to the end of the last.
    pub(super) within: Range<u64>,
    pub(super) dropped: u64,
    /// The microseconds from 1970 to the beginning of the timeline.
    pub(super) began_at: u64,
    grids: std::collections::HashMap<Box<str>, Box<[u64]>>,
}

/// The spans of a thread or queue in the order of their starts, each before those within it.
pub(super) struct LaneOf {
    pub(super) name: String,
    /// True if the times are a device's.
    pub(super) is_device: bool,
    pub(super) events: Vec<Event>,
    end: u64,
    /// The lane's time, cut where a span begins or ends: each piece with the label of the innermost span.
    pub(super) pieces: Vec<(Range<u64>, u16)>,
}

/// The time of a stage, of one name or of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Total {
    pub(super) events: u64,
    pub(super) bytes: u64,
    /// The time of all lanes, without that of spans within.
    pub(super) busy: u64,
    /// The time in which at least one lane was at it.
    pub(super) covered: u64,
    /// The number of lanes with such a span.
    pub(super) lanes: u64,
}

impl Timeline {
    pub(super) fn summary(&self) -> Summary {
        let (labels, events, names, dropped, grids) = {
            let Ring { labels, events, lanes, dropped, grids, .. } = &*lock(&self.0.ring);
            (labels.clone(), Vec::from_iter(events.iter().copied()), lanes.clone(), *dropped, grids.clone())
        };
        let (start, end) =
            (events.iter().map(|e| e.start).min(), events.iter().map(|e| e.start + e.took).max());
        let (within, began_at) = (start.unwrap_or(0)..end.unwrap_or(0), self.began_at_micros());
        let mut summary = Summary { labels, within, dropped, began_at, grids, ..Summary::default() };
        let (mut threads, mut held) = (vec![Vec::new(); names.len()], BTreeMap::<u16, Vec<_>>::new());
        for event in events {
            match summary.labels[usize::from(event.label)].stage {
                Stage::Phase => summary.phases.push(event),
                Stage::Bytes => held.entry(event.label).or_default().push((event.start, event.bytes)),
                _ => threads[usize::from(event.lane)].push(event),
            }
        }
        summary.phases.sort_by_key(|phase| phase.start);
        for (label, mut values) in held {
            values.sort_by_key(|(time, _)| *time);
            summary.held.push((summary.labels[usize::from(label)].name.to_string(), values));
        }
        summary.lanes = lanes(threads.into_iter().zip(names));
        summary
    }
}

/// Returns a lane for each thread or queue with events, and one lane for threads of one name that ran one after another.
fn lanes(threads: impl Iterator<Item = (Vec<Event>, Lane)>) -> Vec<LaneOf> {
    let mut threads: Vec<_> = threads.filter(|(events, _)| !events.is_empty()).collect();
    for (events, _) in &mut threads {
        events.sort_by_key(|event| (event.start, std::cmp::Reverse(event.took)));
    }
    threads.sort_by_key(|(events, _)| events[0].start);
    let mut lanes: Vec<LaneOf> = Vec::new();
    for (events, Lane { name, is_device }) in threads {
        let end = events.iter().map(|event| event.start + event.took).max().unwrap_or(0);
        match lanes.iter_mut().find(|lane| *lane.name == *name && lane.end <= events[0].start) {
            Some(lane) => {
                lane.events.extend(events);
                lane.end = end;
            }
            None => lanes.push(LaneOf { name: name.into(), is_device, events, end, pieces: Vec::new() }),
        }
    }
    for lane in &mut lanes {
        lane.pieces = pieces(&lane.events);
    }
    // Threads of a pool stand together, in the order of their numbers, after the device's queues.
    let number = |name: &str| name.rsplit('-').next().and_then(|last| last.parse::<u32>().ok());
    let process = |name: &str| name.rsplit_once(": ").map(|(process, _)| process.to_owned());
    lanes.sort_by_cached_key(|lane| {
        let number = number(&lane.name);
        (process(&lane.name), number.is_some(), lane.is_device, number)
    });
    lanes
}

/// Cuts the time of nested spans.
fn pieces(events: &[Event]) -> Vec<(Range<u64>, u16)> {
    let (mut pieces, mut open, mut now) = (Vec::new(), Vec::<(u64, u16)>::new(), 0);
    let mut cut = |from: &mut u64, to: u64, label: u16| {
        if *from < to {
            pieces.push((*from..to, label));
            *from = to;
        }
    };
    for event in events {
        while let Some((end, label)) = open.pop_if(|(end, _)| *end <= event.start) {
            cut(&mut now, end, label);
        }
        if let Some(&(_, label)) = open.last() {
            cut(&mut now, event.start, label);
        }
        now = event.start;
        open.push((event.start + event.took, event.label));
    }
    while let Some((end, label)) = open.pop() {
        cut(&mut now, end, label);
    }
    pieces
}

impl Summary {
    pub(super) fn label(&self, label: u16) -> &Label {
        &self.labels[usize::from(label)]
    }

    /// Returns the duration of all, at least a nanosecond.
    pub(super) fn wall(&self) -> u64 {
        (self.within.end - self.within.start).max(1)
    }

    /// Returns the index of a chunk along each axis, of an array whose grid is known.
    pub(super) fn index(&self, event: &Event) -> Option<Vec<u64>> {
        let grid = self.grids.get(&self.label(event.label).name).filter(|grid| !grid.contains(&0))?;
        Some(index_at(event.item.into(), grid))
    }

    /// Returns the total of the labels that `of` selects.
    pub(super) fn total(&self, of: impl Fn(&Label) -> bool) -> Total {
        let (mut total, mut covered) = (Total::default(), Vec::new());
        for lane in &self.lanes {
            let events = lane.events.iter().filter(|event| of(self.label(event.label)));
            let (before, bytes) = (total.events, &mut total.bytes);
            total.events += events.inspect(|event| *bytes += event.bytes).count() as u64;
            total.lanes += u64::from(total.events > before);
            let pieces = lane.pieces.iter().filter(|(_, label)| of(self.label(*label)));
            covered.extend(pieces.map(|(piece, _)| piece.clone()));
        }
        total.busy = covered.iter().map(|piece| piece.end - piece.start).sum();
        covered.sort_by_key(|piece| piece.start);
        let mut end = 0;
        for piece in covered {
            total.covered += piece.end.saturating_sub(piece.start.max(end));
            end = end.max(piece.end);
        }
        total
    }

    /// Returns the totals of each stage and name, in the order of the stages.
    pub(super) fn totals(&self) -> Vec<(Label, Total)> {
        let mut labels: Vec<&Label> = self.labels.iter().collect();
        labels.retain(|label| !matches!(label.stage, Stage::Phase | Stage::Bytes));
        labels.sort_by(|a, b| (a.stage, &a.name).cmp(&(b.stage, &b.name)));
        let total =
            |label: &Label| self.total(|other| (other.stage, &other.name) == (label.stage, &label.name));
        let totals = labels.into_iter().map(|label| (label.clone(), total(label)));
        totals.filter(|(_, total)| total.events > 0).collect()
    }

    /// Returns the sentence on what takes the time: of the stages of the threads that ask for blocks and launch kernels, the longest; if that
    /// is waiting for other threads, what these do.
    pub(super) fn bound(&self) -> String {
        use Stage::{
            Chunks, Compile, Convert, Decode, Download, Enqueue, Fetch, Flush, Host, Kernel, Slot, Untimed,
            Upload, Wait, Write, Writers,
        };
        if self.within.is_empty() {
            return "nothing was recorded".into();
        }
        // The time of a device shows in launches that wait for earlier ones too.
        let device: &[_] = &[Enqueue, Untimed, Slot, Wait, Download];
        let single = [Chunks, Convert, Upload, Compile, Kernel, Host, Writers, Write, Flush];
        let groups = single.iter().map(std::slice::from_ref).chain([device]);
        let covered = |group: &[Stage]| self.total(|label| group.contains(&label.stage)).covered;
        let longest = groups.map(|group| (covered(group), group[0])).max();
        let outside = self.wall().saturating_sub(covered(&[&single[..], device].concat()));
        let Some((covered, stage)) = longest.filter(|(covered, _)| *covered > outside) else {
            let share = percent(outside, self.wall(), 0);
            return format!("bound by what no stage covers: {share} of the time");
        };
        let share = percent(covered, self.wall(), 0);
        let producers = match stage {
            Chunks => self.busiest([Fetch, Decode]),
            Writers | Write | Flush => self.busiest([Write, Flush]),
            _ => None,
        };
        let kernels = |covered| {
            let longest = self.totals().into_iter().filter(|(label, _)| label.stage == Kernel);
            let longest = longest.max_by_key(|(_, total)| total.busy);
            let name = longest.map_or_else(String::new, |(label, _)| label.name.into());
            format!("bound by kernels: {} of the time, most of it {name}", percent(covered, self.wall(), 0))
        };
        producers.unwrap_or_else(|| match stage {
            // The kernels' own times say more than the waits for them.
            Enqueue => match self.total(|label| label.stage == Kernel).covered {
                ran if 2 * ran >= covered => kernels(ran),
                ran => {
                    let waits = format!("the host launches to it or waits for it {share} of the time");
                    let ran = match ran {
                        0 => String::new(),
                        ran => format!(", in which kernels run {}", percent(ran, self.wall(), 0)),
                    };
                    format!("bound by the device: {waits}{ran}")
                }
            },
            Kernel => kernels(covered),
            stage => format!("bound by {}: {share} of the time", stage.name()),
        })
    }

    /// Returns sentences on the clocks of the times.
    pub(super) fn clocks(&self) -> String {
        let devices: Vec<&str> =
            self.lanes.iter().filter(|lane| lane.is_device).map(|lane| &*lane.name).collect();
        let mut text = match &devices[..] {
            [] => "All times are the host's.".to_owned(),
            names => {
                let names = names.join(", ");
                format!(
                    "Times of {names} are the device's own, on the host's clock to within a wait. All other times are the host's."
                )
            }
        };
        if self.total(|label| label.stage == Stage::Untimed).events > 0 {
            text += " A launch that is untimed went to a device that tells no times: the kernel's time shows as waiting for the device.";
        }
        text
    }

    /// Returns the sentence on the busier of two stages of other threads; `None` if they have no time.
    fn busiest(&self, stages: [Stage; 2]) -> Option<String> {
        let busy = |stage: Stage| self.total(|label| label.stage == stage).busy;
        let (busy, stage) =
            stages.map(|stage| (busy(stage), stage)).into_iter().max().filter(|(busy, _)| *busy > 0)?;
        let lanes = self.total(|label| stages.contains(&label.stage)).lanes;
        let threads = if lanes == 1 { "1 thread".to_owned() } else { format!("{lanes} threads") };
        Some(format!("bound by {}: {} of {threads}", stage.name(), percent(busy, self.wall() * lanes, 0)))
    }
}

/// Formats a share in percent, with so many digits after the point.
pub(super) fn percent(part: u64, whole: u64, digits: usize) -> String {
    format!("{:.digits$} %", 100.0 * part as f64 / whole.max(1) as f64)
}
