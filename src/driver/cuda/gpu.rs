//! An open device: its context, its two streams, and what its errors mean.

use std::{
    collections::VecDeque,
    num::NonZero,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, DriverError, sys};

use super::{
    page_locked::PinnedPool,
    pool::Pool,
    trail::{Launch, Trail},
};
use crate::{Error, Result};

/// A device that is open.
///
/// Work goes to two streams: everything to `compute`, in program order, but uploads to `copy`, so that the copy of one
/// block overlaps the kernels of the one before it. Events order the two where one needs the other.
#[derive(Debug)]
pub(crate) struct Gpu {
    context: Arc<CudaContext>,
    compute: Arc<CudaStream>,
    copy: Arc<CudaStream>,
    name: String,
    pub(super) pool: Pool,
    /// Why the device is gone, once it is.
    lost: OnceLock<String>,
    pub(super) pinned: PinnedPool,
    trail: Trail,
    /// Points of the compute stream, one for each upload that it may still be working on the data of.
    pace: Mutex<VecDeque<Mark>>,
    /// The kind of events that are recorded.
    events: sys::CUevent_flags,
}

/// A point of the compute stream.
#[derive(Debug)]
pub(super) struct Mark {
    pub(super) event: CudaEvent,
    /// The number of launches before it.
    launches: u64,
}

/// Uploads whose kernels may be under way when the next is prepared: one is computed on while the next is copied. More
/// would only hold more memory.
const AHEAD: usize = 1;

impl Gpu {
    /// `compute` belongs to `context`.
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
            name,
            lost: OnceLock::new(),
            pinned: PinnedPool::default(),
            trail: Trail::new(),
            pace: Mutex::default(),
            events: event_flags(std::thread::available_parallelism().map_or(1, NonZero::get)),
        })
    }

    /// The context that all memory and both streams belong to.
    pub(super) fn context(&self) -> &Arc<CudaContext> {
        &self.context
    }

    /// The stream that keeps program order.
    pub(super) fn compute(&self) -> &Arc<CudaStream> {
        &self.compute
    }

    /// The stream of uploads.
    pub(super) fn copy(&self) -> &Arc<CudaStream> {
        &self.copy
    }

    /// Makes the context the calling thread's, and fails once the device is lost.
    ///
    /// # Errors
    /// [`Error::DeviceLost`].
    pub(super) fn enter(&self) -> Result<()> {
        self.alive()?;
        self.take_left_error();
        self.alive()?;
        self.check(self.context.bind_to_thread())
    }

    /// Takes the error that dropping something left in the context, where it would come out of an unrelated call, which
    /// then does nothing. One that is fatal makes the loss stick; another has no call that it belongs to.
    pub(super) fn take_left_error(&self) {
        drop(self.check(self.context.check_err()));
    }

    /// Waits on the host for an event.
    pub(super) fn wait(&self, event: &CudaEvent) -> Result<()> {
        self.take_left_error();
        self.check(event.synchronize())
    }

    /// Waits on the host for a point of the compute stream.
    pub(super) fn wait_until(&self, mark: &Mark) -> Result<()> {
        self.wait(&mark.event)?;
        self.trail.ended(mark.launches);
        Ok(())
    }

    /// Enqueues a launch on the compute stream by `enqueue`; waits for it where `TEATIME_SYNC` asks for that.
    pub(super) fn launch<T>(&self, launch: Launch, enqueue: impl FnOnce() -> Result<T>) -> Result<T> {
        let alone = self.trail.alone();
        let enqueued = self.trail.enqueue(launch, enqueue)?;
        if alone.is_some() {
            self.check(self.compute.synchronize())?;
            self.trail.ended(self.trail.launched());
        }
        Ok(enqueued)
    }

    /// True once the device is lost.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.get().is_some()
    }

    fn alive(&self) -> Result<()> {
        self.lost.get().map_or(Ok(()), |why| Err(self.gone(why)))
    }

    fn gone(&self, why: &str) -> Error {
        Error::DeviceLost { device: self.name.as_str().into(), why: why.into() }
    }

    /// A call's result as this crate's. What the context cannot recover from makes the loss stick.
    pub(super) fn check<T>(&self, result: Result<T, DriverError>) -> Result<T> {
        result.map_err(|error| match fatal(error.0) {
            Some(what) => {
                let why = || format!("{what} ({error}){}", self.trail.suspects());
                self.gone(self.lost.get_or_init(why))
            }
            None if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                // The request was not to the pool, but for code or the driver itself. The pool's rest makes room for the next try.
                let full = self.full(0);
                self.context.record_err(self.pool.trim());
                full
            }
            None => driver_error(error),
        })
    }

    /// The error for a request of `requested` bytes that found no room; 0 where the driver does not say.
    pub(super) fn full(&self, requested: u64) -> Error {
        let free = self.context.mem_get_info().ok().map(|(free, _)| free as u64);
        Error::OutOfMemory { requested, free }
    }

    /// An event at the end of a stream.
    pub(super) fn event(&self, stream: &CudaStream) -> Result<CudaEvent> {
        self.check(stream.record_event(Some(self.events)))
    }

    /// The end of the compute stream.
    pub(super) fn mark(&self) -> Result<Mark> {
        // Counted first: what another thread launches meanwhile may come after the event.
        let launches = self.trail.launched();
        Ok(Mark { event: self.event(&self.compute)?, launches })
    }

    /// Waits on the host until the kernels of all but the last uploads are done, so that the memory of their blocks is
    /// free before the next block takes some: the host may be far ahead of the device.
    pub(super) fn keep_pace(&self) -> Result<()> {
        let here = self.mark()?;
        let passed = {
            let mut pace = self.pace();
            pace.push_back(here);
            if pace.len() > AHEAD { pace.pop_front() } else { None }
        };
        passed.map_or(Ok(()), |mark| self.wait_until(&mark))
    }

    fn pace(&self) -> MutexGuard<'_, VecDeque<Mark>> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for everything enqueued on both streams.
    pub(super) fn synchronize(&self) -> Result<()> {
        self.enter()?;
        let launches = self.trail.launched();
        self.check(self.copy.synchronize())?;
        self.check(self.compute.synchronize())?;
        self.trail.ended(launches);
        Ok(())
    }
}

/// The kind of events on a machine of so many cores. A thread that waits for an event is awake; but where cores are few it sleeps, so that
/// decoders have its core.
const fn event_flags(cores: usize) -> sys::CUevent_flags {
    if cores <= 4 {
        sys::CUevent_flags::CU_EVENT_BLOCKING_SYNC
    } else {
        sys::CUevent_flags::CU_EVENT_DISABLE_TIMING
    }
}

impl Drop for Gpu {
    /// Waits for what is enqueued, since copies may be using page-locked memory, and leaves no memory in the pool that
    /// another process could use.
    fn drop(&mut self) {
        self.take_left_error();
        self.pinned.clear();
        let idle = self.copy.synchronize().and_then(|()| self.compute.synchronize());
        self.context.record_err(idle.and_then(|()| self.pool.trim()));
    }
}

/// A failure that belongs to one call.
pub(super) fn driver_error(error: DriverError) -> Error {
    // A child that was forked has the library's memory and none of its threads.
    let forked = if error.0 == sys::CUresult::CUDA_ERROR_NOT_INITIALIZED {
        "; a process that was forked from one that used CUDA cannot use it: start it anew (\"spawn\")"
    } else {
        ""
    };
    Error::Driver { backend: "cuda", source: format!("{error}{forked}").into() }
}

/// A text for an error after which the context is no longer usable: for all errors of which CUDA's documentation says so,
/// and those of hardware and drivers that are gone.
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
