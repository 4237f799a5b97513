//! Uploads and downloads through page-locked host memory, which the device copies directly. It is cached as other memory is.

use std::{
    num::NonZero,
    sync::{Arc, Mutex},
    thread,
};

use cudarc::driver::{CudaEvent, sys};

use super::{
    gpu::{Gpu, Mark},
    page_locked::Pinned,
};
use crate::{Error, Result, driver::Download, extent::to_usize, fresh, timeline::Asked, waiting::lock};

/// The number of bytes of one piece of a copy between the device and host memory that is not page-locked.
const PIECE: usize = 4 << 20;
/// The maximum number of bytes of an asynchronous download.
const LARGE: usize = 32 << 20;
/// The minimum and the maximum number of threads that share a copy. One thread alone moves a seventh of what the device
/// takes, and less if the destination's pages are new.
const FEWEST_THREADS: usize = 4;
const MOST_THREADS: usize = 16;

/// Allocates a new block.
fn lock_pages(gpu: &Gpu, len: usize) -> Result<Pinned> {
    gpu.enter()?;
    match Pinned::new(&gpu.context, len) {
        Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
            Err(Error::OutOfMemory { requested: len as u64, free: None })
        }
        made => gpu.check(made),
    }
}

/// Returns a block of at least `len` bytes that no copy uses.
fn take(gpu: &Gpu, len: usize) -> Result<Pinned> {
    match gpu.pinned.take(len) {
        Ok((block, event)) => event.map_or(Ok(()), |event| gpu.wait(&event)).map(|()| block),
        Err(len) => lock_pages(gpu, len),
    }
}
/// Copies host data to the device in the order of the compute stream. On return, the caller may reuse `bytes`.
///
/// The data goes through page-locked pieces, since the driver may read other memory after the call has returned.
pub(super) fn write(gpu: &Gpu, to: sys::CUdeviceptr, bytes: &[u8]) -> Result<()> {
    let stream = &gpu.compute;
    share(gpu, bytes.len(), bytes.chunks(PIECE).enumerate(), |(i, bytes)| {
        let mut piece = take(gpu, bytes.len())?;
        piece.bytes_mut()[..bytes.len()].copy_from_slice(bytes);
        let copied = gpu.check(piece.copy_to(stream.cu_stream(), to + (i * PIECE) as u64, bytes.len()));
        let end = gpu.event(stream)?;
        gpu.pinned.keep(piece, Some(end));
        copied
    })
}

/// Calls `f` for each piece of a copy, on several threads if there are several pieces. All threads enqueue on one
/// stream, so the copy keeps its place in the order of the caller's other work.
fn share<T: Send>(
    gpu: &Gpu,
    bytes: usize,
    pieces: impl Iterator<Item = T> + Send,
    f: impl Fn(T) -> Result<()> + Sync,
) -> Result<()> {
    let pieces = Mutex::new(pieces);
    let next = || lock(&pieces).next();
    let copy = || {
        gpu.enter()?;
        while let Some(piece) = next() {
            f(piece)?;
        }
        Ok(())
    };
    if bytes <= PIECE {
        return copy();
    }
    let threads = thread::available_parallelism().map_or(FEWEST_THREADS, NonZero::get);
    let threads = threads.clamp(FEWEST_THREADS, MOST_THREADS).min(bytes.div_ceil(PIECE));
    thread::scope(|scope| {
        // If the system cannot start a thread, the copy continues with fewer.
        let others = (1..threads).map_while(|_| thread::Builder::new().spawn_scoped(scope, copy).ok());
        let others: Vec<_> = others.collect();
        let own = copy();
        let others = others.into_iter().map(|other| match other.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        others.fold(own, Result::and)
    })
}

/// Bytes that are being copied to the host.
#[derive(Debug)]
pub(crate) struct CudaDownload {
    gpu: Arc<Gpu>,
    block: Option<Pinned>,
    end: Option<Mark>,
    len: usize,
}

/// Starts a copy to the host, in the order of the compute stream. A large copy is complete on return.
pub(super) fn download(
    gpu: &Arc<Gpu>,
    from: sys::CUdeviceptr,
    len: usize,
    asked: Option<Asked>,
) -> Result<Download> {
    if len > LARGE {
        let mut bytes = fresh::zeros(len)?;
        read(gpu, from, &mut bytes)?;
        return Ok(Download::Ready(bytes));
    }
    let mut block = take(gpu, len)?;
    let copy = || gpu.check(block.copy_from(gpu.compute.cu_stream(), from, len)).map(|()| true);
    let copied = gpu.timed(&gpu.compute, asked, copy);
    let end = gpu.mark()?;
    let download = CudaDownload { gpu: gpu.clone(), block: Some(block), end: Some(end), len };
    copied?;
    Ok(Download::Cuda(download))
}

impl CudaDownload {
    /// Waits for the bytes and returns them.
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

/// Copies from the device to host data, in the order of the compute stream, and waits. Some pieces travel while others are copied to `bytes`.
pub(super) fn read(gpu: &Gpu, from: sys::CUdeviceptr, bytes: &mut [u8]) -> Result<()> {
    let stream = &gpu.compute;
    // Only this thread waits for earlier work, so that the other threads need not.
    gpu.wait_until(&gpu.mark()?)?;
    share(gpu, bytes.len(), bytes.chunks_mut(PIECE).enumerate(), |(i, to)| {
        let mut piece = take(gpu, to.len())?;
        let copied = gpu.check(piece.copy_from(stream.cu_stream(), from + (i * PIECE) as u64, to.len()));
        let end = gpu.mark()?;
        let done = gpu.wait_until(&end);
        to.copy_from_slice(&piece.bytes()[..to.len()]);
        gpu.pinned.keep(piece, Some(end.event));
        copied.and(done)
    })
}

/// A slot of page-locked memory from which uploads are made.
#[derive(Debug)]
pub(crate) struct CudaStaging {
    gpu: Arc<Gpu>,
    block: Pinned,
    len: usize,
    /// The event at the end of the last upload.
    in_flight: Option<Arc<CudaEvent>>,
    /// The error of waiting for the last upload, which the next call that can fail returns.
    failed: Option<Error>,
}

impl CudaStaging {
    pub(super) fn new(gpu: &Arc<Gpu>, len: u64) -> Result<Self> {
        let len = to_usize(len);
        let block = lock_pages(gpu, len.max(1))?;
        Ok(Self { gpu: gpu.clone(), block, len, in_flight: None, failed: None })
    }

    pub(super) fn belongs_to(&self, gpu: &Arc<Gpu>) -> bool {
        Arc::ptr_eq(&self.gpu, gpu)
    }

    /// Returns the slot's bytes, after the last upload has read them.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        if let Some(event) = self.in_flight.take()
            && let Err(error) = self.gpu.wait(&event)
        {
            self.failed = Some(error);
        }
        &mut self.block.bytes_mut()[..self.len]
    }

    /// Enqueues a copy of the first `len` bytes on the copy stream.
    pub(super) fn upload(
        &mut self,
        to: sys::CUdeviceptr,
        len: u64,
        asked: Option<Asked>,
    ) -> Result<Arc<CudaEvent>> {
        self.failed.take().map_or(Ok(()), Err)?;
        let len = to_usize(len).min(self.block.len());
        let copy = &self.gpu.copy;
        let enqueue = || self.gpu.check(self.block.copy_to(copy.cu_stream(), to, len)).map(|()| true);
        let copied = self.gpu.timed(copy, asked, enqueue);
        let end = Arc::new(self.gpu.event(copy)?);
        self.in_flight = Some(end.clone());
        copied?;
        Ok(end)
    }
}

impl Drop for CudaStaging {
    fn drop(&mut self) {
        if let Some(event) = self.in_flight.take() {
            self.block.wait(&event);
        }
    }
}
