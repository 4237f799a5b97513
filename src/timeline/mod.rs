//! Timelines: which thread and which device did what at which time, for a trace file and a page.

mod merge;
#[cfg(feature = "nvtx")]
mod nvtx;
mod page;
mod stage;
mod summary;
#[cfg(test)]
mod tests;
mod trace;

use std::{
    collections::{HashMap, VecDeque},
    fmt,
    io::Write,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant, SystemTime},
};

pub use self::page::About;
pub(crate) use self::stage::Stage;
use crate::{Result, files::write_whole, waiting::lock};

/// The number of events that a [`Timeline`] holds by default, in at most 32 MB.
const EVENTS: usize = 1_000_000;

/// The name with which threads of a group's members begin.
pub(crate) const MEMBER: &str = "teatime-member-";

/// The item of [`Event`]s without one.
const NO_ITEM: u32 = u32::MAX;

/// A recording of what each thread and each GPU did when: chunks that were fetched and decoded, blocks that were converted and uploaded, kernels
/// by name, waits, results that were written. It says what a run waits for. Clones refer to one timeline, and any thread may use them.
///
/// A device whose handle [records](crate::Device::recorded_by) adds what it and the passes with that handle do. The newest events are kept, in
/// bounded memory; the number of older ones that were dropped is told.
///
/// Times of threads are the host's. The cpu device computes a kernel within its launch, so the span of the kernel is its time. On a GPU a
/// launch only enqueues, and the kernel has a span on a lane of the GPU's queue or stream, by the GPU's clock: CUDA's events, or the timestamps
/// of a wgpu adapter. That clock is mapped to the host's, so that no kernel begins before it was submitted or ends after a wait that proved it
/// done; the span is there after that wait. Adapters without timestamps, and GL's, tell no times: their launches are marked as untimed, and the
/// time of the GPU shows in the waits.
///
/// # Cost
/// About a microsecond for an event, of which a block, a chunk or a launch makes a few. 32 bytes of memory for each that is kept. A first launch
/// on CUDA also waits for the work before it.
///
/// ```
/// use teatime::{Device, Tensor, Timeline, linalg};
/// let timeline = Timeline::default();
/// let device = Device::best()?.recorded_by(&timeline);
/// let x = Tensor::from_slice(&device, &[3.0f32, 4.0], &[1, 2])?;
/// assert_eq!(linalg::matmul_nt(&x, &x)?.read()?, [25.0]);
/// let folder = std::env::temp_dir();
/// timeline.write_trace(folder.join("teatime-example.json"))?;
/// timeline.write_report(folder.join("teatime-example.html"), &Default::default())?;
/// println!("{}", timeline.bound());
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Clone)]
pub struct Timeline(Arc<Inner>);

struct Inner {
    began: Instant,
    began_at: SystemTime,
    has_ended: AtomicBool,
    ring: Mutex<Ring>,
}

/// A span of time or, at one time, a number of bytes held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Event {
    /// The time since the timeline began, and the duration, in nanoseconds.
    start: u64,
    took: u64,
    bytes: u64,
    /// The number of the chunk or block, or [`NO_ITEM`].
    item: u32,
    label: u16,
    lane: u16,
}

/// A thread, or a queue or stream of a device.
#[derive(Clone, Debug)]
struct Lane {
    name: Box<str>,
    is_device: bool,
}

/// The stage of events, and the name of what they work on: an array, a kernel, a decomposition; often none.
#[derive(Clone, Debug)]
struct Label {
    stage: Stage,
    name: Box<str>,
}

#[derive(Default)]
struct Ring {
    most: usize,
    events: VecDeque<Event>,
    dropped: u64,
    labels: Vec<Label>,
    /// For each stage, the index of the label of each name.
    named: [HashMap<Box<str>, u16>; Stage::COUNT],
    lanes: Vec<Lane>,
    threads: HashMap<ThreadId, u16>,
    /// The lane of each queue, stream or member of a group.
    named_lanes: HashMap<Box<str>, u16>,
    /// The number of chunks along each axis of each array.
    grids: HashMap<Box<str>, Box<[u64]>>,
}

impl Ring {
    fn label(&mut self, stage: Stage, name: &str) -> u16 {
        let named = &mut self.named[stage as usize];
        if let Some(&label) = named.get(name) {
            return label;
        }
        // Names beyond the numbers of labels share the last label.
        let label = u16::try_from(self.labels.len()).unwrap_or(u16::MAX);
        if self.labels.len() <= usize::from(u16::MAX) {
            self.labels.push(Label { stage, name: name.into() });
            named.insert(name.into(), label);
        }
        label
    }

    /// Returns the lane of a queue, or of the calling thread.
    fn lane(&mut self, queue: Option<&str>) -> u16 {
        let thread = thread::current();
        // Each pass starts its own threads for the members of a group, which come one after the other.
        let of_member = || thread.name().filter(|name| name.starts_with(MEMBER));
        if let Some(name) = queue.or_else(of_member) {
            return self.named_lanes.get(name).copied().unwrap_or_else(|| {
                let lane = self.new_lane(Lane { name: name.into(), is_device: queue.is_some() });
                self.named_lanes.insert(name.into(), lane);
                lane
            });
        }
        self.threads.get(&thread.id()).copied().unwrap_or_else(|| {
            let name = thread.name().unwrap_or("thread").into();
            let lane = self.new_lane(Lane { name, is_device: false });
            self.threads.insert(thread.id(), lane);
            lane
        })
    }

    /// Adds a lane, and returns its index. Lanes beyond the numbers of lanes share the last.
    fn new_lane(&mut self, lane: Lane) -> u16 {
        let index = u16::try_from(self.lanes.len()).unwrap_or(u16::MAX);
        if self.lanes.len() <= usize::from(u16::MAX) {
            self.lanes.push(lane);
        }
        index
    }

    fn push(&mut self, event: Event) {
        if self.events.len() >= self.most {
            self.events.pop_front();
            self.dropped += 1;
        }
        self.events.push_back(event);
    }
}

impl Default for Timeline {
    /// Creates a timeline that keeps the newest million events.
    fn default() -> Self {
        Self::new(EVENTS)
    }
}

impl Timeline {
    /// Creates a timeline that keeps the newest `events` events, at least one.
    pub fn new(events: usize) -> Self {
        let ring = Ring { most: events.max(1), ..Ring::default() };
        let (began, began_at, has_ended) = (Instant::now(), SystemTime::now(), AtomicBool::new(false));
        Self(Arc::new(Inner { began, began_at, has_ended, ring: Mutex::new(ring) }))
    }

    /// Returns the number of events that are kept, and the number of older ones that were dropped.
    pub fn events(&self) -> (u64, u64) {
        let ring = lock(&self.0.ring);
        (ring.events.len() as u64, ring.dropped)
    }

    /// Ends the recording: what devices do from now on is not added.
    pub fn end(&self) {
        self.0.has_ended.store(true, Ordering::Relaxed);
    }

    /// Adds a phase of the run from `began` until now, such as an application's own step. Phases have a lane of their own.
    pub fn phase(&self, name: &str, began: Instant) {
        self.add(Stage::Phase, name, began, began.elapsed(), (0, NO_ITEM));
    }

    /// Returns a sentence on what took the time, such as "bound by decode: 71 % of 2 threads".
    pub fn bound(&self) -> String {
        self.summary().bound()
    }

    /// Writes the events as a file in the Trace Event Format, which <https://ui.perfetto.dev> and Chrome's `chrome://tracing` show. The file
    /// appears as a whole, and replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io), after which no part of the file is left.
    pub fn write_trace(&self, path: impl AsRef<Path>) -> Result<()> {
        let summary = self.summary();
        write_whole(path, |file| trace::write(&summary, file))
    }

    /// Writes a page of HTML that needs no other file and no script: what took the time, a picture of the lanes, tables of the stages and the
    /// threads, bytes held over time, and what `about` adds. The file appears as a whole, and replaces an existing one.
    ///
    /// # Errors
    /// As [`write_trace`](Self::write_trace).
    pub fn write_report(&self, path: impl AsRef<Path>, about: &About) -> Result<()> {
        let page = page::page(&self.summary(), about);
        write_whole(path, |file: &mut dyn Write| file.write_all(page.as_bytes()))
    }

    /// Returns the microseconds from 1970 to the beginning of the timeline.
    fn began_at_micros(&self) -> u64 {
        let since = self.0.began_at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn add(&self, stage: Stage, name: &str, began: Instant, took: Duration, moved: (u64, u32)) {
        self.add_to(None, stage, name, (began, took), moved);
    }

    /// Adds an event to the lane of a queue, or else of the calling thread.
    fn add_to(
        &self,
        queue: Option<&str>,
        stage: Stage,
        name: &str,
        (began, took): (Instant, Duration),
        (bytes, item): (u64, u32),
    ) {
        if self.0.has_ended.load(Ordering::Relaxed) {
            return;
        }
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let start = nanoseconds(began.saturating_duration_since(self.0.began));
        let took = nanoseconds(took);
        let mut ring = lock(&self.0.ring);
        let (label, lane) = (ring.label(stage, name), ring.lane(queue));
        ring.push(Event { start, took, bytes, item, label, lane });
    }

    /// Adds the number of bytes of a kind that are held from now on.
    pub(crate) fn hold(&self, name: &str, bytes: u64) {
        self.add(Stage::Bytes, name, Instant::now(), Duration::ZERO, (bytes, NO_ITEM));
    }

    /// Returns the span of work that a device is asked for, without its times.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        allow(dead_code, reason = "only GPUs tell times")
    )]
    pub(crate) fn asked(&self, stage: Stage, name: &'static str, bytes: u64) -> Asked {
        Asked { timeline: self.clone(), stage, name, bytes }
    }

    /// Notes an array's number of chunks along each axis, by which the trace gives the indices of chunks.
    pub(crate) fn grid(&self, array: &str, grid: impl Iterator<Item = u64>) {
        lock(&self.0.ring).grids.insert(array.into(), grid.collect());
    }
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kept, dropped) = self.events();
        write!(f, "Timeline({kept} events, {dropped} dropped)")
    }
}

/// Work that a device was asked for, whose span is added when the device has told its times.
#[cfg_attr(not(any(feature = "cuda", feature = "wgpu")), allow(dead_code, reason = "only GPUs tell times"))]
#[derive(Debug)]
pub(crate) struct Asked {
    timeline: Timeline,
    stage: Stage,
    name: &'static str,
    bytes: u64,
}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl Asked {
    /// Adds the span to the lane of a queue.
    pub(crate) fn ran(self, queue: &str, began: Instant, ended: Instant) {
        let took = ended.saturating_duration_since(began);
        self.timeline.add_to(Some(queue), self.stage, self.name, (began, took), (self.bytes, NO_ITEM));
    }
}

/// A span of the calling thread's time, which a timeline gets when the span is dropped. Does nothing without a timeline.
#[derive(Debug)]
#[must_use = "a span lasts until it is dropped"]
pub(crate) struct Span<'a> {
    open: Option<(&'a Timeline, Instant)>,
    stage: Stage,
    name: &'a str,
    /// The number of bytes that the span moves or makes.
    pub(crate) bytes: u64,
    item: u32,
}

impl<'a> Span<'a> {
    pub(crate) fn new(timeline: Option<&'a Timeline>, stage: Stage, name: &'a str) -> Self {
        let open = timeline.map(|timeline| (timeline, Instant::now()));
        #[cfg(feature = "nvtx")]
        if open.is_some() {
            nvtx::push(stage.name(), name);
        }
        Self { open, stage, name, bytes: 0, item: NO_ITEM }
    }

    pub(crate) fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    pub(crate) fn item(mut self, item: u64) -> Self {
        self.item = u32::try_from(item).unwrap_or(NO_ITEM);
        self
    }

    /// Drops the span without adding it.
    pub(crate) fn discard(mut self) {
        #[cfg(feature = "nvtx")]
        if self.open.is_some() {
            nvtx::pop();
        }
        self.open = None;
    }

    /// Adds the first part of the span's time as another stage, of as many bytes, and leaves the rest to this span.
    pub(crate) fn split(&mut self, stage: Stage, name: &str, took: Duration, bytes: u64) {
        if let Some((timeline, began)) = &mut self.open
            && !took.is_zero()
        {
            timeline.add(stage, name, *began, took, (bytes, self.item));
            *began += took;
        }
    }
}

impl Drop for Span<'_> {
    fn drop(&mut self) {
        if let Some((timeline, began)) = self.open {
            timeline.add(self.stage, self.name, began, began.elapsed(), (self.bytes, self.item));
            #[cfg(feature = "nvtx")]
            nvtx::pop();
        }
    }
}
