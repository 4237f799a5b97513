//! Page-locked blocks of host memory, and a pool of blocks that are kept for the next copies.
#![allow(
    unsafe_code,
    reason = "page-locked memory is a raw pointer, and cudarc's wrapper races on streams it does not track"
)]

use std::{
    collections::VecDeque,
    ptr::NonNull,
    slice,
    sync::{Arc, Mutex},
};

use cudarc::driver::{CudaContext, CudaEvent, DriverError, result, sys};

use crate::waiting::lock;

/// The maximum number of bytes that are kept for the next copies: enough for one large copy and some small ones.
const MOST: usize = 96 << 20;
/// The minimum number of bytes of a block that is kept.
const LEAST: usize = 64 << 10;

/// A block of page-locked memory.
#[derive(Debug)]
pub(super) struct Pinned {
    context: Arc<CudaContext>,
    pointer: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory belongs to this value alone, and CUDA frees it from any thread.
unsafe impl Send for Pinned {}
// SAFETY: shared access only reads the memory.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates zeroed memory. The context must be current on the calling thread.
    pub(super) fn new(context: &Arc<CudaContext>, len: usize) -> Result<Self, DriverError> {
        // No flags are set: write-combined memory is slow to read, and decoders read the bytes that they wrote.
        // SAFETY: the memory is initialised below, before any other code reads it.
        let pointer = unsafe { result::malloc_host(len, 0) }?.cast::<u8>();
        let pointer = NonNull::new(pointer).ok_or(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))?;
        // SAFETY: the memory has `len` bytes.
        unsafe { pointer.write_bytes(0, len) };
        Ok(Self { context: context.clone(), pointer, len })
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn bytes(&self) -> &[u8] {
        // SAFETY: the memory has `len` initialised bytes and lives as long as self; callers wait for copies that write it.
        unsafe { slice::from_raw_parts(self.pointer.as_ptr(), self.len) }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and self is borrowed exclusively.
        unsafe { slice::from_raw_parts_mut(self.pointer.as_ptr(), self.len) }
    }

    /// Enqueues a copy of the first `len` bytes to the device; the caller must not change these bytes until an event after the copy.
    pub(super) fn copy_to(
        &self,
        stream: sys::CUstream,
        to: sys::CUdeviceptr,
        len: usize,
    ) -> Result<(), DriverError> {
        // SAFETY: `to` has enough memory (the caller checked the window), and callers keep the block unchanged until an event after the copy.
        unsafe { result::memcpy_htod_async(to, &self.bytes()[..len], stream) }
    }

    /// Enqueues a copy of `len` bytes from the device.
    pub(super) fn copy_from(
        &mut self,
        stream: sys::CUstream,
        from: sys::CUdeviceptr,
        len: usize,
    ) -> Result<(), DriverError> {
        // SAFETY: as in `copy_to`.
        unsafe { result::memcpy_dtoh_async(&mut self.bytes_mut()[..len], from, stream) }
    }

    /// Waits until no copy uses the block, which is about to be freed.
    pub(super) fn wait(&self, event: &CudaEvent) {
        // There is no caller to return an error to: the next call on the context returns it. An earlier error is taken
        // out first, since it would prevent the wait.
        let left = self.context.check_err();
        self.context.record_err(event.synchronize());
        self.context.record_err(left);
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.context.record_err(self.context.bind_to_thread());
        // SAFETY: the memory was allocated by `malloc_host` and is freed once; holders have waited for its copies.
        self.context.record_err(unsafe { result::free_host(self.pointer.as_ptr().cast()) });
    }
}

/// Page-locked blocks that are kept for the next small copy, since making a block takes longer than most copies.
#[derive(Debug, Default)]
pub(super) struct PinnedPool(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// The blocks, oldest first, each with the event at the end of its last copy.
    blocks: VecDeque<(Pinned, Option<CudaEvent>)>,
    bytes: usize,
}

impl PinnedPool {
    /// Returns a block of at least `len` bytes with the event to wait for before its use, or the size of the block to make if there is none.
    pub(super) fn take(&self, len: usize) -> Result<(Pinned, Option<CudaEvent>), usize> {
        let len = len.next_power_of_two().max(LEAST);
        let mut kept = lock(&self.0);
        let fits = |block: &Pinned| (len..=4 * len).contains(&block.len);
        let idle = |event: &Option<CudaEvent>| {
            event.as_ref().is_none_or(|event| event.try_is_complete().unwrap_or(false))
        };
        let mut place = kept.blocks.iter().position(|(block, event)| fits(block) && idle(event));
        if place.is_none() && kept.bytes + len > MOST {
            // It is better to wait for a block than to lock more memory.
            place = kept.blocks.iter().position(|(block, _)| fits(block));
        }
        let (block, event) = place.and_then(|at| kept.blocks.remove(at)).ok_or(len)?;
        kept.bytes -= block.len;
        Ok((block, event))
    }

    /// Keeps a block whose last copy ends at `event`.
    pub(super) fn keep(&self, block: Pinned, event: Option<CudaEvent>) {
        let mut dropped = Vec::new();
        let mut kept = lock(&self.0);
        kept.bytes += block.len;
        kept.blocks.push_back((block, event));
        while kept.bytes > MOST
            && let Some((block, event)) = kept.blocks.pop_front()
        {
            kept.bytes -= block.len;
            dropped.push((block, event));
        }
        drop(kept);
        finish(dropped);
    }

    /// Waits for the copies of all kept blocks and frees the blocks.
    pub(super) fn clear(&self) {
        let kept = std::mem::take(&mut *lock(&self.0));
        finish(kept.blocks);
    }
}

/// Waits until no copy uses the blocks, and frees them.
fn finish(blocks: impl IntoIterator<Item = (Pinned, Option<CudaEvent>)>) {
    for (block, event) in blocks {
        if let Some(event) = event {
            block.wait(&event);
        }
    }
}
