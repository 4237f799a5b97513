//! Device memory: allocations from the device's pool, or slices that an application lends.
#![allow(unsafe_code, reason = "cudarc has no safe call for memory whose frees are ordered by hand")]

use std::{
    any::Any,
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use cudarc::driver::{CudaEvent, CudaSlice, CudaStream, DevicePtrMut, DriverError, result, sys};

use super::gpu::Gpu;
use crate::{
    Error, Result,
    driver::{Memory, Slice, foreign},
    extent::to_usize,
    waiting::lock,
};

/// Memory of a CUDA device.
#[derive(Debug)]
pub(crate) struct CudaMemory(Box<Allocation>);

#[derive(Debug)]
struct Allocation {
    gpu: Arc<Gpu>,
    pointer: sys::CUdeviceptr,
    owner: Owner,
    /// True if the compute stream may have used the memory.
    used: AtomicBool,
    /// The last event of the copy stream after a use of the memory.
    copied: Mutex<Option<Arc<CudaEvent>>>,
}

/// The owner, who frees the memory.
#[derive(Debug)]
enum Owner {
    Pool,
    Application(Box<dyn Lent>),
    /// Nobody frees it here: it was given to an application, or borrowed from one.
    Nobody,
}

/// An application's slice of elements of any type.
trait Lent: fmt::Debug + Send + Sync {
    /// Marks the slice as used by everything enqueued on `stream`, and makes `stream` wait for the slice's other uses.
    fn settle(&mut self, stream: &CudaStream) -> Result<sys::CUdeviceptr, DriverError>;
    fn into_any(self: Box<Self>) -> Box<dyn Any>;
}

#[derive(Debug)]
struct LentSlice<T>(CudaSlice<T>);

impl<T: fmt::Debug + Send + Sync + 'static> Lent for LentSlice<T> {
    fn settle(&mut self, stream: &CudaStream) -> Result<sys::CUdeviceptr, DriverError> {
        // The slice's own stream is joined explicitly: cudarc orders streams by events only if it knows of several, and tracking is on.
        let own = self.0.stream().clone();
        stream.join(&own)?;
        own.join(stream)?;
        // When the guard is dropped, it records the slice's event.
        let (pointer, _guard) = self.0.device_ptr_mut(stream);
        Ok(pointer)
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        Box::new(self.0)
    }
}

impl CudaMemory {
    fn new(gpu: &Arc<Gpu>, pointer: sys::CUdeviceptr, owner: Owner) -> Self {
        let (used, copied) = (AtomicBool::new(false), Mutex::default());
        Self(Box::new(Allocation { gpu: gpu.clone(), pointer, owner, used, copied }))
    }

    /// Allocates memory from the pool, in the order of the compute stream: memory that this stream freed before can be used at once.
    pub(super) fn alloc(gpu: &Arc<Gpu>, bytes: u64) -> Result<Self> {
        Ok(Self::new(gpu, take(gpu, &gpu.compute, bytes)?, Owner::Pool))
    }

    /// Allocates memory that an upload fills, in the order of the copy stream, so that the copy need not wait for enqueued kernels.
    pub(super) fn alloc_for_upload(gpu: &Arc<Gpu>, bytes: u64) -> Result<Self> {
        gpu.keep_pace()?;
        let memory = Self::new(gpu, take(gpu, &gpu.copy, bytes)?, Owner::Pool);
        memory.copied_until(Arc::new(gpu.event(&gpu.copy)?));
        Ok(memory)
    }

    /// Wraps a slice that an application lends, until [`give_back`](Self::give_back).
    pub(super) fn lend<T: fmt::Debug + Send + Sync + 'static>(
        gpu: &Arc<Gpu>,
        op: &'static str,
        slice: CudaSlice<T>,
    ) -> Result<Self> {
        let mut slice = LentSlice(slice);
        let pointer = gpu.check(slice.settle(&gpu.compute))?;
        if !pointer.is_multiple_of(16) {
            // Kernels load 16 bytes at once.
            return Err(Error::argument(
                op,
                "slice",
                format_args!("it starts at {pointer:#x}, within 16 bytes"),
            ));
        }
        let memory = Self::new(gpu, pointer, Owner::Application(Box::new(slice)));
        memory.0.used.store(true, Ordering::Relaxed);
        Ok(memory)
    }

    /// Wraps memory of another library, which is not freed here.
    pub(super) fn borrowed(gpu: &Arc<Gpu>, pointer: sys::CUdeviceptr) -> Self {
        let memory = Self::new(gpu, pointer, Owner::Nobody);
        memory.0.used.store(true, Ordering::Relaxed);
        memory
    }

    pub(crate) fn address(&self) -> sys::CUdeviceptr {
        self.0.pointer
    }

    /// Returns the memory as a slice of `len` elements that the application owns.
    pub(super) fn give_back<T: 'static>(self, len: usize) -> CudaSlice<T> {
        let mut allocation = self.0;
        allocation.order_compute();
        let stream = allocation.gpu.compute.clone();
        match std::mem::replace(&mut allocation.owner, Owner::Nobody) {
            Owner::Application(mut slice) => {
                allocation.gpu.context.record_err(slice.settle(&stream));
                match slice.into_any().downcast::<CudaSlice<T>>() {
                    Ok(slice) if slice.len() == len => *slice,
                    _ => unreachable!("a tensor's elements should be those of the slice it was made of"),
                }
            }
            Owner::Pool => {
                // SAFETY: the pointer is a live allocation of at least `len` elements of any bit pattern; since the
                // owner was taken, only the slice frees the memory, on the stream that used it last.
                let mut slice = unsafe { stream.upgrade_device_ptr(allocation.pointer, len) };
                // The slice's events are new: this records the enqueued work, so that other streams wait for it.
                drop(slice.device_ptr_mut(&stream));
                slice
            }
            Owner::Nobody => unreachable!("memory is given back once"),
        }
    }

    /// Stores the event of the copy stream after which the memory is complete.
    pub(super) fn copied_until(&self, event: Arc<CudaEvent>) {
        *lock(&self.0.copied) = Some(event);
    }

    pub(super) fn belongs_to(&self, gpu: &Arc<Gpu>) -> bool {
        Arc::ptr_eq(&self.0.gpu, gpu)
    }
}

impl Allocation {
    /// Makes the compute stream wait for the copy stream's uses of the memory.
    fn order_compute(&mut self) {
        if let Some(event) = self.copied.get_mut().unwrap_or_else(PoisonError::into_inner).take() {
            self.gpu.context.record_err(self.gpu.compute.wait(&event));
        }
    }

    fn free(&mut self) -> Result<(), DriverError> {
        // Otherwise an error that an earlier drop left would make these calls do nothing.
        self.gpu.take_left_error();
        self.order_compute();
        let stream = self.gpu.compute.clone();
        match &mut self.owner {
            Owner::Nobody => Ok(()),
            Owner::Application(slice) => slice.settle(&stream).map(drop),
            Owner::Pool => {
                self.gpu.context.bind_to_thread()?;
                // SAFETY: the pointer came from the pool, and is freed once, in stream order after all uses.
                unsafe { result::free_async(self.pointer, stream.cu_stream()) }
            }
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // There is no caller to return an error to: the next call on the context returns it.
        let freed = self.free();
        self.gpu.context.record_err(freed);
    }
}

/// Allocates memory from the pool. If there is not enough, tries again after all dropped memory is free.
fn take(gpu: &Gpu, stream: &CudaStream, bytes: u64) -> Result<sys::CUdeviceptr> {
    let size = to_usize(bytes);
    let attempt = || gpu.pool.take(stream, size);
    let full = |result: &Result<_, DriverError>| matches!(result, Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY);
    let mut pointer = attempt();
    if full(&pointer) {
        gpu.synchronize()?;
        gpu.check(gpu.pool.trim())?;
        pointer = attempt();
    }
    if full(&pointer) {
        return Err(gpu.full(bytes));
    }
    gpu.check(pointer)
}

/// Returns the address of a window that the compute stream is about to use.
pub(super) fn pointer(slice: Slice<'_>) -> Result<sys::CUdeviceptr> {
    let memory = cuda(slice)?;
    memory.0.used.store(true, Ordering::Relaxed);
    Ok(memory.0.pointer + slice.offset)
}

/// Returns the address of a window that the copy stream is about to fill, after the compute stream's earlier uses.
pub(super) fn upload_pointer(gpu: &Gpu, slice: Slice<'_>) -> Result<sys::CUdeviceptr> {
    let memory = cuda(slice)?;
    if memory.0.used.load(Ordering::Relaxed) {
        gpu.check(gpu.copy.wait(&gpu.event(&gpu.compute)?))?;
    }
    Ok(memory.0.pointer + slice.offset)
}

/// Zeroes a window.
pub(super) fn clear(gpu: &Gpu, dst: Slice<'_>) -> Result<()> {
    let (to, bytes) = (pointer(dst)?, to_usize(dst.bytes));
    // SAFETY: the window lies in live memory, and the call is in the order of the stream that frees the memory.
    gpu.check(unsafe { result::memset_d8_async(to, 0, bytes, gpu.compute.cu_stream()) })
}

/// Copies a window to another of the same length.
pub(super) fn copy(gpu: &Gpu, src: Slice<'_>, dst: Slice<'_>) -> Result<()> {
    copy_from(gpu, pointer(src)?, dst)
}

/// Copies from an address to a window, as many bytes as the window has.
pub(super) fn copy_from(gpu: &Gpu, from: sys::CUdeviceptr, dst: Slice<'_>) -> Result<()> {
    let (to, bytes) = (pointer(dst)?, to_usize(dst.bytes));
    // SAFETY: as in `clear`; the source and the destination are different memory.
    gpu.check(unsafe { result::memcpy_dtod_async(to, from, bytes, gpu.compute.cu_stream()) })
}

/// Returns the CUDA memory of a window, or an error if the memory is of another backend.
pub(super) fn cuda(slice: Slice<'_>) -> Result<&CudaMemory> {
    match slice.memory {
        Memory::Cuda(memory) => Ok(memory),
        _ => Err(foreign("cuda")),
    }
}
