//! The times at which the streams ran launches and copies that a timeline records: pairs of events.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::Instant,
};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, sys};

use crate::{
    driver::times::{Clock, Lane, nanoseconds},
    timeline::Asked,
    waiting::lock,
};

/// The maximum number of launches of a stream whose times are not read: more than a stream holds before it makes the host wait. Tests reach it.
const MOST: usize = if cfg!(test) { 8 } else { 4096 };
/// The milliseconds from an event after which another one takes its place, since differences of events are f32. Tests reach them.
const NEAR: f32 = if cfg!(test) { 1.0 } else { 1000.0 };

#[derive(Debug)]
pub(super) struct Times(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    clock: Clock,
    /// An event that has passed, and its time in nanoseconds after the first one's.
    base: Option<(CudaEvent, i64)>,
    free: Vec<CudaEvent>,
    /// The compute stream and the copy stream.
    streams: [Stream; 2],
}

#[derive(Debug)]
struct Stream {
    lane: Lane,
    pending: VecDeque<Pending>,
}

/// Work between two events.
#[derive(Debug)]
struct Pending {
    asked: Asked,
    at: Instant,
    begin: CudaEvent,
    end: CudaEvent,
}

impl Times {
    pub(super) fn new(device: &str) -> Self {
        let streams = ["kernels", "uploads"]
            .map(|what| Stream { lane: Lane::new(format!("{device} {what}")), pending: VecDeque::new() });
        Self(Mutex::new(Inner { clock: Clock::new(), base: None, free: Vec::new(), streams }))
    }

    /// Records the event before some work, after reading the times of earlier work if much is unread. The first call waits for the stream.
    pub(super) fn begin(&self, stream: &CudaStream, place: usize) -> Result<CudaEvent, DriverError> {
        let mut inner = lock(&self.0);
        if inner.base.is_none() {
            let (base, at) = (event(stream.context())?, Instant::now());
            base.record(stream)?;
            base.synchronize()?;
            inner.clock.ran([0, 0], [at, Instant::now()]);
            inner.base = Some((base, 0));
        }
        if inner.streams[place].pending.len() >= MOST {
            if let Some(oldest) = inner.streams[place].pending.front() {
                oldest.end.synchronize()?;
            }
            inner.collect();
        }
        let begin = inner.event(stream.context())?;
        begin.record(stream)?;
        Ok(begin)
    }

    /// Records the event after the work that began with `begin`, and was asked for after `at`.
    pub(super) fn end(
        &self,
        stream: &CudaStream,
        place: usize,
        (asked, at, begin): (Asked, Instant, CudaEvent),
    ) -> Result<(), DriverError> {
        let mut inner = lock(&self.0);
        let end = inner.event(stream.context())?;
        end.record(stream)?;
        inner.streams[place].pending.push_back(Pending { asked, at, begin, end });
        Ok(())
    }

    /// Adds the spans of the work that has ended. Waits for none.
    pub(super) fn collect(&self) {
        lock(&self.0).collect();
    }
}

fn event(context: &Arc<CudaContext>) -> Result<CudaEvent, DriverError> {
    context.new_event(Some(sys::CUevent_flags::CU_EVENT_DEFAULT))
}

impl Inner {
    fn event(&mut self, context: &Arc<CudaContext>) -> Result<CudaEvent, DriverError> {
        self.free.pop().map_or_else(|| event(context), Ok)
    }

    fn collect(&mut self) {
        for place in 0..self.streams.len() {
            while let Some(next) = self.streams[place].pending.front() {
                match next.end.try_is_complete() {
                    Ok(false) => break,
                    // The device is lost, which the next call returns.
                    Err(_) => return self.streams.iter_mut().for_each(|stream| stream.pending.clear()),
                    Ok(true) => {}
                }
                let Some(ended) = self.streams[place].pending.pop_front() else { break };
                // Without times, the span is left out.
                let _ = self.add(place, ended);
            }
        }
    }

    fn add(&mut self, place: usize, ended: Pending) -> Result<(), DriverError> {
        let Pending { asked, at, begin, end } = ended;
        let Some((base, since)) = &mut self.base else { return Ok(()) };
        let (after, took) = (base.elapsed_ms(&begin)?, begin.elapsed_ms(&end)?);
        let nanoseconds = |milliseconds: f32| nanoseconds(milliseconds.into(), 1e6);
        let first = *since + nanoseconds(after);
        let (ran, within) = ([first, first + nanoseconds(took)], [at, Instant::now()]);
        self.clock.ran(ran, within);
        self.streams[place].lane.add(asked, &self.clock, ran, within);
        let begin = if after > NEAR {
            *since = first;
            std::mem::replace(base, begin)
        } else {
            begin
        };
        self.free.extend([begin, end]);
        Ok(())
    }
}
