//! An open CUDA device: its context, its two streams, and the handling of its errors.

use std::{
    collections::VecDeque,
    num::NonZero,
    sync::{Arc, Mutex, OnceLock},
    time::Instant,
};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, sys};

use super::{
    page_locked::PinnedPool,
    pool::Pool,
    times::Times,
    trail::{Launch, Trail},
};
use crate::{Error, Result, timeline::Asked, waiting::lock};

/// A device that is open.
///
/// Work is enqueued on two streams. Uploads go to `copy`, so that the copy of a block overlaps the kernels of the block before. All other work goes
/// to `compute`, in program order. Events order the two streams if one needs the other's results.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// The context that all memory and both streams belong to.
    pub(super) context: Arc<CudaContext>,
    /// The stream that keeps program order.
    pub(super) compute: Arc<CudaStream>,
    /// The stream of uploads.
    pub(super) copy: Arc<CudaStream>,
    name: String,
    pub(super) pool: Pool,
    /// The reason why the device is lost, once it is lost.
    lost: OnceLock<String>,
    pub(super) pinned: PinnedPool,
    trail: Trail,
    times: Times,
    /// Points of the compute stream, one for each upload whose data the compute stream may still be using.
    pace: Mutex<VecDeque<Mark>>,
    /// The flags of the events that are recorded.
    events: sys::CUevent_flags,
}

/// A point of the compute stream.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) event: CudaEvent,
    /// The number of launches before this point.
    launches: u64,
}

/// The number of uploads whose kernels may be running when the next upload is prepared. With one, a block is computed
/// while the next is copied. More would only hold more memory.
const AHEAD: usize = 1;

impl Gpu {
    /// Makes a device of a context and of `compute`, a stream of that context.
    pub(super) fn new(
        context: Arc<CudaContext>,
        compute: Arc<CudaStream>,
        name: String,
    ) -> Result<Self, DriverError> {
        let copy = context.new_stream()?;
        Ok(Self {
            pool: Pool::new(context.clone())?,
            context,
            compute,
            copy,
            lost: OnceLock::new(),
            pinned: PinnedPool::default(),
            trail: Trail::new(),
            times: Times::new(&name),
            name,
            pace: Mutex::default(),
            events: event_flags(std::thread::available_parallelism().map_or(1, NonZero::get)),
        })
    }

    /// Makes the context current on the calling thread. Fails with [`Error::DeviceLost`] once the device is lost.
    pub(super) fn enter(&self) -> Result<()> {
        self.alive()?;
        self.take_left_error();
        self.alive()?;
        self.check(self.context.bind_to_thread())
    }

    /// Takes the error that a drop left in the context. Otherwise an unrelated call would return that error and do nothing. A fatal error marks the
    /// device as lost. Any other error is discarded, since no call is there to return it.
    pub(super) fn take_left_error(&self) {
        drop(self.check(self.context.check_err()));
    }

    /// Blocks the host until an event has passed.
    pub(super) fn wait(&self, event: &CudaEvent) -> Result<()> {
        self.take_left_error();
        self.check(event.synchronize())?;
        self.times.collect();
        Ok(())
    }

    /// Blocks the host until a point of the compute stream has passed.
    pub(super) fn wait_until(&self, mark: &Mark) -> Result<()> {
        self.wait(&mark.event)?;
        self.trail.ended(mark.launches);
        Ok(())
    }

    /// Enqueues a launch on the compute stream by `enqueue`, which returns false if it enqueued nothing. Waits for the launch to end if
    /// `TEATIME_SYNC` asks for that.
    pub(super) fn launch(
        &self,
        launch: Launch,
        asked: Option<Asked>,
        enqueue: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let alone = self.trail.alone();
        let enqueued = self.trail.enqueue(launch, || self.timed(&self.compute, asked, enqueue))?;
        if alone.is_some() {
            self.wait_until(&self.mark()?)?;
        }
        Ok(enqueued)
    }

    /// Enqueues work on a stream, which returns false if it enqueued nothing. Its span gets the stream's times.
    pub(super) fn timed(
        &self,
        stream: &CudaStream,
        asked: Option<Asked>,
        enqueue: impl FnOnce() -> Result<bool>,
    ) -> Result<bool> {
        let Some(asked) = asked else { return enqueue() };
        let (place, at) = (usize::from(stream.cu_stream() == self.copy.cu_stream()), Instant::now());
        let begin = self.check(self.times.begin(stream, place))?;
        let enqueued = enqueue()?;
        if enqueued {
            self.check(self.times.end(stream, place, (asked, at, begin)))?;
        }
        Ok(enqueued)
    }

    /// Returns true once the device is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    fn alive(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |why| Err(self.gone(why)))
    }

    fn gone(&self, why: &str) -> Error {
        Error::DeviceLost { device: self.name.as_str().into(), why: why.into() }
    }

    /// Converts a call's result to this crate's. An error that the context cannot recover from marks the device as lost.
    pub(super) fn check<T>(&self, result: Result<T, DriverError>) -> Result<T> {
        result.map_err(|error| match fatal(error.0) {
            Some(what) => {
                let why = || format!("{what} ({error}){}", self.trail.suspects());
                self.gone(self.lost.get_or_init(why))
            }
            None if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                // The pool was not asked for this memory: code or the driver needed it. Trimming the pool makes space for the next attempt.
                let full = self.full(0);
                self.context.record_err(self.pool.trim());
                full
            }
            None => driver_error(error),
        })
    }

    /// Returns the error for a failed request of `requested` bytes (0 if the driver does not report the number).
    pub(super) fn full(&self, requested: u64) -> Error {
        let free = self.context.mem_get_info().ok().map(|(free, _)| free as u64);
        Error::OutOfMemory { requested, free }
    }

    /// Records an event at the end of a stream.
    pub(super) fn event(&self, stream: &CudaStream) -> Result<CudaEvent> {
        self.check(stream.record_event(Some(self.events)))
    }

    /// Records a point at the end of the compute stream.
    pub(super) fn mark(&self) -> Result<Mark> {
        // Launches are counted before the event is recorded: a launch of another thread in between may come after the event.
        let launches = self.trail.launched();
        Ok(Mark { event: self.event(&self.compute)?, launches })
    }

    /// Blocks the host until the kernels of all but the last uploads have ended, so that the memory of their blocks is
    /// free before the next block is allocated. Without this, the host may run far ahead of the device.
    pub(super) fn keep_pace(&self) -> Result<()> {
        let here = self.mark()?;
        let passed = {
            let mut pace = lock(&self.pace);
            pace.push_back(here);
            if pace.len() > AHEAD { pace.pop_front() } else { None }
        };
        passed.map_or(Ok(()), |mark| self.wait_until(&mark))
    }

    /// Blocks the host until everything enqueued on both streams has ended.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.enter()?;
        // A wait for a stream would spin whatever the number of cores.
        let (copied, here) = (self.event(&self.copy)?, self.mark()?);
        self.wait(&copied)?;
        self.wait_until(&here)
    }
}

/// Returns the flags of events on a machine with this number of cores. A thread that waits for an event spins, but
/// sleeps if cores are few, so that decoders can use its core.
const fn event_flags(cores: usize) -> sys::CUevent_flags {
    if cores <= 4 {
        sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC
    } else {
        sys::CUevent_flags::CU_EVENT_DISABLE_TIMING
    }
}

impl Drop for Gpu {
    /// Waits for enqueued work, since copies may be using page-locked memory, and then frees the pool's unused memory for other processes.
    fn drop(&mut self) {
        self.take_left_error();
        self.pinned.clear();
        let idle = self.copy.synchronize().and_then(|()| self.compute.synchronize());
        self.context.record_err(idle.and_then(|()| self.pool.trim()));
    }
}

/// Returns the error of a failure that belongs to one call only.
pub(super) fn driver_error(error: DriverError) -> Error {
    // A forked child has a copy of the library's memory, but none of the library's threads.
    let forked = if error.0 == sys::CUresult::CUDA_ERROR_NOT_INITIALIZED {
        "; a process that was forked from one that used CUDA cannot use it: start it anew (\"spawn\")"
    } else {
        ""
    };
    Error::Driver { backend: "cuda", source: format!("{error}{forked}").into() }
}

/// Returns a text for an error after which the context is no longer usable: one for which CUDA's documentation says so,
/// or one of hardware or drivers that are gone. Returns `None` for any other error.
fn fatal(code: sys::CUresult) -> Option<&'static str> {
    use sys::CUresult as C;
    Some(match code {
        C::CUDA_ERROR_ILLEGAL_ADDRESS | C::CUDA_ERROR_MISALIGNED_ADDRESS => {
            "a kernel used memory that it should not"
        }
        C::CUDA_ERROR_ASSERT
        | C::CUDA_ERROR_HARDWARE_STACK_ERROR
        | C::CUDA_ERROR_ILLEGAL_INSTRUCTION
        | C::CUDA_ERROR_INVALID_ADDRESS_SPACE
        | C::CUDA_ERROR_INVALID_PC
        | C::CUDA_ERROR_LAUNCH_FAILED
        | C::CUDA_ERROR_TENSOR_MEMORY_LEAK => "a kernel failed",
        C::CUDA_ERROR_LAUNCH_TIMEOUT => "a kernel ran longer than the system's watchdog allows",
        C::CUDA_ERROR_ECC_UNCORRECTABLE | C::CUDA_ERROR_NVLINK_UNCORRECTABLE | C::CUDA_ERROR_CONTAINED => {
            "the hardware reported an error"
        }
        C::CUDA_ERROR_DEVICE_UNAVAILABLE
        | C::CUDA_ERROR_CONTEXT_IS_DESTROYED
        | C::CUDA_ERROR_EXTERNAL_DEVICE
        | C::CUDA_ERROR_MPS_CLIENT_TERMINATED
        | C::CUDA_ERROR_DEINITIALIZED
        | C::CUDA_ERROR_UNKNOWN => "the driver gave it up",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_sleep_where_cores_are_few() {
        let sleeps = |cores| event_flags(cores) == sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC;
        assert_eq!([1, 2, 4, 5, 16, 224].map(sleeps), [true, true, true, false, false, false]);
    }
}
