//! Host memory that the device copies from and to by itself: page-locked, and cached as other memory is.
#![allow(
    unsafe_code,
    reason = "page-locked memory is a raw pointer, and cudarc's wrapper races on streams it does not track"
)]

use std::{
    collections::VecDeque,
    ptr::NonNull,
    slice,
    sync::{Arc, Mutex, PoisonError},
    thread,
};

use cudarc::driver::{CudaContext, CudaEvent, result, sys};

use super::gpu::{Gpu, Mark};
use crate::{Error, Result, driver::Download};

/// Bytes of host data that travel at once, where they go through memory of ours.
const PIECE: usize = 4 << 20;
/// Most bytes that are kept for small copies.
const KEPT: usize = 64 << 20;
/// Downloads up to this size are asynchronous; larger copies either way are shared by threads.
const LARGE: usize = 32 << 20;
/// Threads that share a copy.
const THREADS: usize = 4;
/// Least bytes of page-locked memory.
const LEAST: usize = 64 << 10;

/// A block of page-locked memory.
#[derive(Debug)]
struct Pinned {
    context: Arc<CudaContext>,
    pointer: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, and CUDA frees it from any thread.
unsafe impl Send for Pinned {}
// SAFETY: shared access only reads.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Zeroed memory.
    fn new(gpu: &Gpu, len: usize) -> Result<Self> {
        gpu.enter()?;
        // Without flags: write-combined memory is slow to read, and decoders read what they wrote.
        // SAFETY: the memory is initialised below, before anyone sees it.
        let allocated = unsafe { result::malloc_host(len, 0) };
        if matches!(&allocated, Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY) {
            return Err(Error::OutOfMemory { requested: len as u64, free: None });
        }
        let pointer = gpu.check(allocated)?.cast::<u8>();
        let pointer =
            NonNull::new(pointer).ok_or(Error::OutOfMemory { requested: len as u64, free: None })?;
        // SAFETY: the memory has `len` bytes.
        unsafe { pointer.write_bytes(0, len) };
        Ok(Self { context: gpu.context().clone(), pointer, len })
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes that live as long as self; callers wait for copies that write them.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and self is borrowed alone.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }

    /// Enqueues a copy of the first `len` bytes to the device; they must stay as they are until an event after it.
    fn copy_to(&self, gpu: &Gpu, stream: sys::CUstream, to: sys::CUdeviceptr, len: usize) -> Result<()> {
        // SAFETY: `to` has room (checked by the caller against the window), and callers keep the memory alive and
        // unchanged until an event that follows the copy.
        gpu.check(unsafe { result::memcpy_htod_async(to, &self.bytes()[..len], stream) })
    }

    /// Enqueues a copy of `len` bytes from the device.
    fn copy_from(
        &mut self,
        gpu: &Gpu,
        stream: sys::CUstream,
        from: sys::CUdeviceptr,
        len: usize,
    ) -> Result<()> {
        // SAFETY: as in `copy_to`.
        gpu.check(unsafe { result::memcpy_dtoh_async(&mut self.bytes_mut()[..len], from, stream) })
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: allocated by `malloc_host`, freed once; holders waited for the copies.
        self.context.record_err(unsafe { result::free_host(self.pointer.as_ptr().cast()) });
    }
}

/// Page-locked blocks kept for the next small copy, since making one takes longer than most copies.
#[derive(Debug, Default)]
pub(super) struct PinnedPool(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Oldest first, each with the end of its last copy.
    blocks: VecDeque<(Pinned, Option<CudaEvent>)>,
    bytes: usize,
}

impl PinnedPool {
    /// A block of at least `len` bytes that no copy uses.
    fn take(&self, gpu: &Gpu, len: usize) -> Result<Pinned> {
        let len = len.next_power_of_two().max(LEAST);
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |block: &Pinned| (len..=4 * len).contains(&block.len);
        let idle = |event: &Option<CudaEvent>| {
            event.as_ref().is_none_or(|event| event.try_is_complete().unwrap_or(false))
        };
        let mut found = kept.blocks.iter().position(|(block, event)| fits(block) && idle(event));
        if found.is_none() && kept.bytes + len > KEPT {
            // Rather wait for a block than lock more memory.
            found = kept.blocks.iter().position(|(block, _)| fits(block));
        }
        if let Some((block, event)) = found.and_then(|at| kept.blocks.remove(at)) {
            kept.bytes -= block.len;
            drop(kept);
            event.map_or(Ok(()), |event| gpu.wait(&event))?;
            return Ok(block);
        }
        drop(kept);
        Pinned::new(gpu, len)
    }

    /// Keeps a block whose last copy ends at the event.
    fn keep(&self, block: Pinned, event: Option<CudaEvent>) {
        let mut dropped = Vec::new();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += block.len;
        kept.blocks.push_back((block, event));
        while kept.bytes > KEPT
            && let Some((block, event)) = kept.blocks.pop_front()
        {
            kept.bytes -= block.len;
            dropped.push((block, event));
        }
        drop(kept);
        finish(dropped);
    }

    /// Waits for the copies and frees the blocks.
    pub(super) fn clear(&self) {
        let kept = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        finish(kept.blocks);
    }
}

/// Waits until no copy uses the blocks, and frees them.
fn finish(blocks: impl IntoIterator<Item = (Pinned, Option<CudaEvent>)>) {
    for (block, event) in blocks {
        if let Some(event) = event {
            await_copy(&block, &event);
        }
    }
}

/// Waits until no copy uses a block that is about to be freed.
fn await_copy(block: &Pinned, event: &CudaEvent) {
    // There is no caller to tell; the next call on the context does.
    // An error that an earlier drop left would keep this from waiting.
    let left = block.context.check_err();
    block.context.record_err(event.synchronize());
    block.context.record_err(left);
}

/// Copies host data to the device in the order of the compute stream; `bytes` is free again on return.
///
/// Through page-locked pieces, since the driver may read other memory after the call has returned.
pub(super) fn write(gpu: &Gpu, to: sys::CUdeviceptr, bytes: &[u8]) -> Result<()> {
    let stream = gpu.compute();
    share(gpu, bytes.len(), bytes.chunks(PIECE).enumerate(), |(i, bytes)| {
        let mut piece = gpu.pinned.take(gpu, bytes.len())?;
        piece.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let copied = piece.copy_to(gpu, stream.cu_stream(), to + (i * PIECE) as u64, bytes.len());
        let end = gpu.event(stream)?;
        gpu.pinned.keep(piece, Some(end));
        copied
    })
}

/// Gives the pieces of a copy to `f`, those of a large one on several threads: one alone moves a fifth of what the device
/// takes. All of them enqueue on one stream, so what the caller enqueues before and after keeps its place.
fn share<T: Send>(
    gpu: &Gpu,
    bytes: usize,
    pieces: impl Iterator<Item = T> + Send,
    f: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let pieces = Mutex::new(pieces);
    let next = || pieces.lock().unwrap_or_else(PoisonError::into_inner).next();
    let copy = || {
        gpu.enter()?;
        while let Some(piece) = next() {
            f(piece)?;
        }
        Ok(())
    };
    if bytes <= LARGE {
        return copy();
    }
    thread::scope(|scope| {
        // A thread that the system does not give is done without.
        let others = (1..THREADS).map_while(|_| thread::Builder::new().spawn_scoped(scope, copy).ok());
        let others: Vec<_> = others.collect();
        let own = copy();
        let others = others.into_iter().map(|other| match other.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        others.fold(own, Result::and)
    })
}

/// Bytes on their way to the host.
#[derive(Debug)]
pub(crate) struct CudaDownload {
    gpu: Arc<Gpu>,
    block: Option<Pinned>,
    end: Option<Mark>,
    len: usize,
}

/// Starts a copy to the host, in the order of the compute stream; large ones are complete on return.
pub(super) fn download(gpu: &Arc<Gpu>, from: sys::CUdeviceptr, len: usize) -> Result<Download> {
    if len > LARGE {
        return Ok(Download::Ready(read_in_pieces(gpu, from, len)?));
    }
    let mut block = gpu.pinned.take(gpu, len)?;
    let copied = block.copy_from(gpu, gpu.compute().cu_stream(), from, len);
    let end = gpu.mark()?;
    let download = CudaDownload { gpu: gpu.clone(), block: Some(block), end: Some(end), len };
    copied?;
    Ok(Download::Cuda(download))
}

impl CudaDownload {
    /// Waits for the bytes.
    pub(crate) fn wait(self) -> Result<Vec<u8>> {
        if let Some(end) = &self.end {
            self.gpu.wait_until(end)?;
        }
        let bytes = self.block.as_ref().map(|block| block.bytes()[..self.len].to_vec());
        Ok(bytes.unwrap_or_default())
    }
}

impl Drop for CudaDownload {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            self.gpu.pinned.keep(block, self.end.take().map(|end| end.event));
        }
    }
}

/// A copy too large to lock memory for: some pieces travel while others are copied out.
fn read_in_pieces(gpu: &Gpu, from: sys::CUdeviceptr, len: usize) -> Result<Vec<u8>> {
    let mut bytes = bytemuck::try_zeroed_vec(len)
        .map_err(|()| Error::OutOfMemory { requested: len as u64, free: None })?;
    let stream = gpu.compute();
    share(gpu, len, bytes.chunks_mut(PIECE).enumerate(), |(i, to)| {
        let mut piece = gpu.pinned.take(gpu, to.len())?;
        let copied = piece.copy_from(gpu, stream.cu_stream(), from + (i * PIECE) as u64, to.len());
        let end = gpu.mark()?;
        let done = gpu.wait_until(&end);
        to.copy_from_slice(&piece.bytes()[..to.len()]);
        gpu.pinned.keep(piece, Some(end.event));
        copied.and(done)
    })?;
    Ok(bytes)
}

/// A slot of page-locked memory that uploads are made from.
#[derive(Debug)]
pub(crate) struct CudaStaging {
    gpu: Arc<Gpu>,
    block: Pinned,
    len: usize,
    /// The end of the last upload.
    in_flight: Option<Arc<CudaEvent>>,
    /// What waiting for the last upload found, for the next call that can tell.
    failed: Option<Error>,
}

impl CudaStaging {
    pub(super) fn new(gpu: &Arc<Gpu>, len: u64) -> Result<Self> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let block = Pinned::new(gpu, len.max(1))?;
        Ok(Self { gpu: gpu.clone(), block, len, in_flight: None, failed: None })
    }

    /// Whether it is that device's.
    pub(super) fn belongs_to(&self, gpu: &Arc<Gpu>) -> bool {
        Arc::ptr_eq(&self.gpu, gpu)
    }

    /// The slot's bytes; waits until the last upload has read them.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if let Some(event) = self.in_flight.take()
            && let Err(error) = self.gpu.wait(&event)
        {
            self.failed = Some(error);
        }
        &mut self.block.bytes_mut()[..self.len]
    }

    /// Enqueues a copy of the first `len` bytes on the copy stream.
    pub(super) fn upload(&mut self, to: sys::CUdeviceptr, len: u64) -> Result<Arc<CudaEvent>> {
        self.failed.take().map_or(Ok(()), Err)?;
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(self.block.len);
        let copy = self.gpu.copy();
        let copied = self.block.copy_to(&self.gpu, copy.cu_stream(), to, len);
        let end = Arc::new(self.gpu.event(copy)?);
        self.in_flight = Some(end.clone());
        copied?;
        Ok(end)
    }
}

impl Drop for CudaStaging {
    fn drop(&mut self) {
        if let Some(event) = self.in_flight.take() {
            await_copy(&self.block, &event);
        }
    }
}
