//! The times at which the queue ran launches: timestamp queries of the passes that a timeline records, a set for each submission.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use super::{Gpu, LAUNCHES, scoped};
use crate::{
    driver::times::{Clock, Lane, nanoseconds},
    timeline::Asked,
    waiting::lock,
};

/// The number of queries of a submission: one before and one after each launch.
const QUERIES: u32 = 2 * LAUNCHES;
const BYTES: u64 = 8 * QUERIES as u64;

/// A set of queries, the buffers through which the host gets their values, and the recorded launches of one submission.
#[derive(Debug)]
pub(super) struct Round {
    queries: wgpu::QuerySet,
    resolved: wgpu::Buffer,
    read: wgpu::Buffer,
    launches: Vec<Asked>,
}

impl Round {
    fn new(device: &wgpu::Device) -> Self {
        let buffer = |usage| {
            let label = Some("teatime times");
            device.create_buffer(&wgpu::BufferDescriptor {
                label,
                size: BYTES,
                usage,
                mapped_at_creation: false,
            })
        };
        Self {
            queries: device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("teatime times"),
                ty: wgpu::QueryType::Timestamp,
                count: QUERIES,
            }),
            resolved: buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC),
            read: buffer(wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ),
            launches: Vec::with_capacity(LAUNCHES as usize),
        }
    }

    /// Returns the number of queries that passes write.
    fn written(&self) -> u32 {
        u32::try_from(2 * self.launches.len()).expect("launches of a submission should be few")
    }

    /// Adds a launch, and returns the queries that its pass writes.
    pub(super) fn add(&mut self, asked: Asked) -> wgpu::ComputePassTimestampWrites<'_> {
        let first = self.written();
        self.launches.push(asked);
        wgpu::ComputePassTimestampWrites {
            query_set: &self.queries,
            beginning_of_pass_write_index: Some(first),
            end_of_pass_write_index: Some(first + 1),
        }
    }

    /// Records the copy of the times, at the end of the submission.
    pub(super) fn resolve(&self, encoder: &mut wgpu::CommandEncoder) {
        let count = self.written();
        encoder.resolve_query_set(&self.queries, 0..count, &self.resolved, 0);
        encoder.copy_buffer_to_buffer(&self.resolved, 0, &self.read, 0, 8 * u64::from(count));
    }
}

/// The submissions whose times are not read yet.
#[derive(Debug)]
pub(super) struct Times {
    /// The nanoseconds of a tick of the device's clock.
    period: f64,
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    lane: Lane,
    free: Vec<Round>,
    submitted: VecDeque<Submitted>,
}

#[derive(Debug)]
struct Submitted {
    round: Round,
    at: Instant,
    /// The time when the buffer was mapped, which is after the submission; `None` if the device was lost.
    mapped: Arc<OnceLock<Option<Instant>>>,
}

impl Times {
    /// Returns `None` for a device without timestamps, and for one of GL, where reading them would wait within a submission.
    pub(super) fn new(device: &wgpu::Device, queue: &wgpu::Queue, name: &str) -> Option<Self> {
        let is_gl = device.adapter_info().backend == wgpu::Backend::Gl;
        if is_gl || !device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return None;
        }
        let (clock, lane) = (Clock::new(), Lane::new(format!("{name} queue")));
        let inner = Inner { clock, lane, free: Vec::new(), submitted: VecDeque::new() };
        Some(Self { period: queue.get_timestamp_period().into(), inner: Mutex::new(inner) })
    }

    /// Returns a round without launches; `None` if the device has no memory for it, or is lost.
    pub(super) fn round(&self, gpu: &Gpu) -> Option<Round> {
        let free = lock(&self.inner).free.pop();
        free.or_else(|| scoped(&gpu.device, Round::new).ok())
    }

    /// Requests the times of a round that was submitted after `at`.
    pub(super) fn submitted(&self, round: Round, at: Instant) {
        let mapped = Arc::new(OnceLock::new());
        let tell = mapped.clone();
        let used = 8 * u64::from(round.written());
        round.read.map_async(wgpu::MapMode::Read, ..used, move |result| {
            // It is set once.
            let _ = tell.set(result.ok().map(|()| Instant::now()));
        });
        lock(&self.inner).submitted.push_back(Submitted { round, at, mapped });
    }

    /// Adds the spans of the launches whose submissions were seen done. Waits for none.
    pub(super) fn collect(&self, gpu: &Gpu) {
        let mut inner = lock(&self.inner);
        while let Some(mapped) = inner.submitted.front().and_then(|next| next.mapped.get().copied()) {
            let Some(Submitted { mut round, at, .. }) = inner.submitted.pop_front() else { return };
            let Some(seen) = mapped else { continue };
            let used = 8 * u64::from(round.written());
            let Ok(view) = round.read.get_mapped_range(..used) else { continue };
            let (ticks, rest) = view.as_chunks();
            debug_assert!(rest.is_empty());
            let time = |tick: &[u8; 8]| nanoseconds(u64::from_le_bytes(*tick) as f64, self.period);
            let ticks: Vec<i64> = ticks.iter().map(time).collect();
            drop(view);
            let (Some(first), Some(last)) = (ticks.first(), ticks.last()) else { continue };
            let Inner { clock, lane, .. } = &mut *inner;
            clock.ran([*first, *last], [at, seen]);
            for (asked, ran) in round.launches.drain(..).zip(ticks.as_chunks().0) {
                lane.add(asked, clock, *ran, [at, seen]);
            }
            if scoped(&gpu.device, |_| round.read.unmap()).is_ok() {
                inner.free.push(round);
            }
        }
    }
}
