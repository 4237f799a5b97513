//! Large buffers of host memory, and a list of freed buffers that are used again. A stream needs the same sizes again and again, and mapping
//! fresh pages costs more than a copy to them, or than most kernels' work on them.

use std::{
    collections::TryReserveError,
    mem,
    sync::{
        Mutex, MutexGuard, TryLockError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
};

use bytemuck::Zeroable;

use crate::{Error, Result, extent::to_usize};

/// The minimum number of bytes for requesting large pages.
#[cfg(target_os = "linux")]
const LARGE: usize = 8 << 20;

/// Allocates `len` zeros, in pages of 2 MiB if the memory is large and Linux has such pages. Creating a page of 4 KiB at its first write takes
/// longer than a copy to the page, or than most kernels take for their work on it. Fails with [`Error::OutOfHostMemory`].
pub(crate) fn zeros<T: Zeroable>(len: usize) -> Result<Vec<T>> {
    let requested = len.saturating_mul(size_of::<T>()) as u64;
    let lacking = |()| Error::OutOfHostMemory { what: "elements of a device".into(), requested };
    let mut values = bytemuck::try_zeroed_vec(len).map_err(lacking)?;
    ask_for_large_pages(&mut values);
    Ok(values)
}

/// Freed memory of cpu devices.
pub(crate) static DEVICES: FreeList = FreeList::new();

/// Freed chunks of stored arrays.
pub(crate) static CHUNKS: FreeList = FreeList::new();

/// Returns an empty vector with room for `bytes` bytes: a freed chunk of this size, or new memory, for which other chunks are freed if there
/// is no room for both.
pub(crate) fn chunk(bytes: usize) -> Result<Vec<u8>, TryReserveError> {
    let mut buffer = CHUNKS.take(bytes).unwrap_or_default();
    buffer.clear();
    if buffer.capacity() < bytes {
        CHUNKS.make_way(bytes);
    }
    buffer.try_reserve_exact(bytes)?;
    ask_for_large_pages(buffer.spare_capacity_mut());
    Ok(buffer)
}

/// Room for freed buffers. A list keeps at most as many bytes as all its rooms have together, so a memory plan that makes room counts it.
#[derive(Debug)]
pub(crate) struct Room {
    list: &'static FreeList,
    bytes: usize,
}

impl Room {
    /// Makes room for `bytes` bytes in a list, until this is dropped.
    pub(crate) fn new(list: &'static FreeList, bytes: u64) -> Self {
        let mut room = Self { list, bytes: 0 };
        room.set(bytes);
        room
    }

    /// Changes the number of bytes. Buffers that are too many then are freed when the list is used next.
    pub(crate) fn set(&mut self, bytes: u64) {
        // A plan without a bound has no more, so that the sum of all rooms is a number; differences may wrap.
        let before = mem::replace(&mut self.bytes, to_usize(bytes).min(usize::MAX / 64));
        self.list.room.fetch_add(self.bytes.wrapping_sub(before), Relaxed);
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.set(0);
        self.list.make_way(0);
    }
}

/// The minimum number of bytes of a buffer that is kept: an allocator serves smaller ones quickly.
const LEAST_KEPT: usize = 16 << 10;

/// The maximum number of buffers that are kept.
const MOST_KEPT: usize = 64;

/// Freed buffers, oldest first, and the number of bytes that there is room for.
#[derive(Debug)]
pub(crate) struct FreeList {
    buffers: Mutex<Vec<Vec<u8>>>,
    room: AtomicUsize,
}

impl FreeList {
    const fn new() -> Self {
        Self { buffers: Mutex::new(Vec::new()), room: AtomicUsize::new(0) }
    }

    /// Takes the newest buffer of `bytes` bytes, with its old content.
    pub(crate) fn take(&self, bytes: usize) -> Option<Vec<u8>> {
        if bytes < LEAST_KEPT {
            return None;
        }
        let mut buffers = self.lock()?;
        let at = buffers.iter().rposition(|buffer| buffer.capacity() == bytes)?;
        Some(buffers.remove(at))
    }

    /// Frees buffers until there is room for `bytes` bytes beside those that are kept.
    fn make_way(&self, bytes: usize) {
        if let Some(buffers) = self.lock() {
            self.trim(buffers, bytes);
        }
    }

    /// Keeps a buffer for later use, if there is room for it.
    pub(crate) fn keep(&self, buffer: Vec<u8>) {
        if buffer.capacity() >= LEAST_KEPT
            && let Some(mut buffers) = self.lock()
        {
            buffers.push(buffer);
            self.trim(buffers, 0);
        }
    }

    /// Frees the oldest buffers if there are too many, or if there is no room for them and `more` bytes.
    fn trim(&self, mut buffers: MutexGuard<'_, Vec<Vec<u8>>>, more: usize) {
        let room = self.room.load(Relaxed).saturating_sub(more);
        let mut bytes: usize = buffers.iter().map(Vec::capacity).sum();
        let mut gone = Vec::new();
        while buffers.len() > MOST_KEPT || bytes > room {
            let oldest = buffers.remove(0);
            bytes -= oldest.capacity();
            gone.push(oldest);
        }
        // Unmapping takes long, so others can use the list meanwhile.
        drop(buffers);
        drop(gone);
    }

    /// Locks the list. Returns `None` if it stays locked, as it does in a forked child if another thread of the parent held the lock.
    fn lock(&self) -> Option<MutexGuard<'_, Vec<Vec<u8>>>> {
        for _ in 0..100 {
            match self.buffers.try_lock() {
                Ok(buffers) => return Some(buffers),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => thread::yield_now(),
            }
        }
        None
    }
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no safe call advises of memory that an allocator gave")]
fn ask_for_large_pages<T>(values: &mut [T]) {
    const PAGE: usize = 2 << 20;
    let (start, bytes) = (values.as_mut_ptr().cast::<libc::c_void>(), size_of_val(values));
    let before = start.align_offset(PAGE);
    if bytes < LARGE {
        return;
    }
    // SAFETY: the range begins within an allocation that the caller owns and that is longer than a page. The advice also covers the rest of its
    // last page, but affects only speed. If the advice is refused, pages stay small.
    unsafe { libc::madvise(start.byte_add(before), bytes - before, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages<T>(_: &mut [T]) {}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(room: u64) -> Room {
        Room::new(Box::leak(Box::new(FreeList::new())), room)
    }

    #[test]
    fn freed_buffers_serve_others_of_their_size() {
        let room = list(64 << 20);
        let free = room.list;
        let mut buffer = vec![0; 1_000_000];
        buffer[7] = 1;
        free.keep(buffer);
        assert!(free.take(999_999).is_none() && free.take(1_000_001).is_none());
        assert_eq!(free.take(1_000_000).unwrap()[7], 1);
        assert!(free.take(1_000_000).is_none());
        // The oldest buffers are dropped first.
        for bytes in [20, 30, 40] {
            free.keep(Vec::with_capacity(bytes << 20));
        }
        assert!(free.take(40 << 20).is_some());
        assert!([20, 30].iter().all(|bytes| free.take(bytes << 20).is_none()));
        // Small buffers are not kept, and only a limited number of large ones is.
        free.keep(vec![0; 1000]);
        assert!(free.take(1000).is_none());
        (0..100).for_each(|_| free.keep(vec![0; 20_000]));
        assert_eq!((0..100).filter(|_| free.take(20_000).is_some()).count(), MOST_KEPT);
    }

    #[test]
    fn the_list_has_as_much_as_all_rooms() {
        let mut room = list(1 << 20);
        let free = room.list;
        let other = Room::new(free, 0);
        let keep = |count: usize| {
            (0..count).for_each(|_| free.keep(vec![0; 1 << 20]));
            free.buffers.lock().unwrap().len()
        };
        assert_eq!(keep(3), 1);
        room.set(3 << 20);
        assert_eq!(keep(3), 3);
        room.set(2 << 20);
        assert!(free.take(1 << 19).is_none());
        assert_eq!(keep(0), 3);
        // New memory of 512 KiB, with those that are kept, is within the room.
        free.make_way(1 << 19);
        assert_eq!(keep(0), 1);
        drop((room, other));
        assert_eq!((keep(0), keep(2)), (0, 0));
    }

    /// Checks a locked list, as in a forked child, where nobody unlocks a mutex that was locked in the parent.
    #[test]
    fn a_locked_list_frees() {
        let room = list(1 << 30);
        let locked = room.list.buffers.lock().unwrap();
        room.list.keep(vec![0; 1 << 20]);
        assert!(room.list.take(1 << 20).is_none());
        drop(locked);
        assert!(room.list.take(1 << 20).is_none());
    }
}
