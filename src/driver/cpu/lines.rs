//! Memory of the cpu device, and what of it was freed.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::{Error, Result, extent::to_usize, fresh};

/// Bytes of a buffer.
#[derive(Debug)]
pub(super) enum CpuBytes {
    /// Zeros at first, from the start of a cache line on: aligned for any element type and vector.
    ///
    /// Fresh pages come as zeros from the system where an allocation asks for no more than the allocator's own alignment; for
    /// more, each would be written once before its first use.
    Own { room: Vec<u8>, first: usize, len: usize },
    /// An application's, which are only read.
    Lent(&'static [u8]),
}

impl Default for CpuBytes {
    fn default() -> Self {
        Self::Own { room: Vec::new(), first: 0, len: 0 }
    }
}

impl CpuBytes {
    /// A buffer of `bytes` bytes or a few more: it has one of few sizes, so that freed ones serve again.
    pub(super) fn new(bytes: u64) -> Result<Self> {
        let len = to_usize(Self::size(bytes));
        let lacking = |_| Error::OutOfMemory { requested: bytes, free: None };
        let room = fresh::zeros::<u8>(len.saturating_add(63)).map_err(lacking)?;
        Ok(Self::Own { first: room.as_ptr().align_offset(64), len, room })
    }

    /// The size of a buffer of so many bytes: at most an eighth more, which nobody touches.
    fn size(bytes: u64) -> u64 {
        let step = bytes.max(1).ilog2().saturating_sub(3);
        bytes.max(1).next_multiple_of((1 << step).max(64))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own { room, first, len } => &room[*first..][..*len],
            Self::Lent(bytes) => bytes,
        }
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own { room, first, len } => &mut room[*first..][..*len],
            Self::Lent(_) => unreachable!("views of an application's memory should only be read"),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }
}

/// A buffer that the host has: freed ones serve again.
#[derive(Debug)]
pub(crate) struct HostLines {
    lines: CpuBytes,
    free: Arc<FreeList>,
}

impl HostLines {
    pub(super) fn new(lines: CpuBytes, free: Arc<FreeList>) -> Self {
        Self { lines, free }
    }

    pub(super) fn swap(&mut self, other: &mut CpuBytes) {
        std::mem::swap(&mut self.lines, other);
    }

    pub(super) fn len(&self) -> usize {
        self.lines.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.lines.bytes()
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        self.lines.bytes_mut()
    }
}

impl Drop for HostLines {
    fn drop(&mut self) {
        self.free.keep(std::mem::take(&mut self.lines));
    }
}

/// Freed buffers, kept for the next allocation of their size: the blocks of a stream repeat, and fresh pages cost
/// more to map than the kernels' work on them.
#[derive(Debug, Default)]
pub(super) struct FreeList(Mutex<Vec<CpuBytes>>);

/// The maximum number of bytes of freed buffers that are kept.
pub(crate) const FREE_BYTES: usize = 64 << 20;

/// Bytes of the smallest that is: an allocator has smaller ones at hand.
const LEAST_KEPT: usize = 16 << 10;

/// The maximum number of buffers that are kept.
const MOST_KEPT: usize = 64;

impl FreeList {
    pub(super) fn take(&self, bytes: u64) -> Option<CpuBytes> {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = buffers.iter().position(|buffer| buffer.len() as u64 == CpuBytes::size(bytes))?;
        Some(buffers.remove(at))
    }

    /// Keeps a buffer for later, or frees it where another thread has locked the list, or had when the process was forked.
    pub(super) fn keep(&self, buffer: CpuBytes) {
        if !(LEAST_KEPT..=FREE_BYTES).contains(&buffer.len()) || matches!(buffer, CpuBytes::Lent(_)) {
            return;
        }
        // Unmapped after the lock is gone.
        let mut gone = Vec::new();
        let mut buffers = match self.0.try_lock() {
            Ok(buffers) => buffers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        buffers.push(buffer);
        // The oldest go first.
        while buffers.len() > MOST_KEPT || buffers.iter().map(CpuBytes::len).sum::<usize>() > FREE_BYTES {
            gone.push(buffers.remove(0));
        }
        drop(buffers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_start_at_a_line_and_are_zeros() {
        for bytes in [0, 1, 16, 63, 64, 65, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 10_000_019] {
            let lines = CpuBytes::new(bytes).unwrap();
            let held = lines.bytes();
            assert!(
                (held.as_ptr() as usize).is_multiple_of(64) && held.iter().all(|&byte| byte == 0),
                "{bytes}"
            );
            let len = held.len() as u64;
            assert!(
                len >= bytes && len <= bytes + bytes / 8 + 64 && len.is_multiple_of(64),
                "{bytes}: {len}"
            );
            assert_eq!((lines.len() as u64, CpuBytes::size(len)), (len, len));
        }
        assert!(matches!(CpuBytes::new(u64::MAX / 2), Err(Error::OutOfMemory { .. })));
    }

    #[test]
    fn freed_buffers_serve_others_of_about_their_size() {
        let free = FreeList::default();
        let mut lines = CpuBytes::new(1_000_000).unwrap();
        lines.bytes_mut()[7] = 1;
        free.keep(lines);
        assert!(free.take(500_000).is_none());
        assert_eq!(free.take(999_000).unwrap().bytes()[7], 1);
        assert!(free.take(999_000).is_none());
        // The oldest go first.
        for bytes in [20, 30, 40] {
            free.keep(CpuBytes::new(bytes << 20).unwrap());
        }
        assert!([20, 30].iter().all(|bytes| free.take(bytes << 20).is_none()));
        assert!(free.take(40 << 20).is_some());
        // Small buffers are not kept, and of large ones a limited number.
        free.keep(CpuBytes::new(1000).unwrap());
        assert!(free.take(1000).is_none());
        (0..100).for_each(|_| free.keep(CpuBytes::new(20_000).unwrap()));
        assert_eq!((0..100).filter(|_| free.take(20_000).is_some()).count(), MOST_KEPT);
    }

    /// As in a forked child, in which nobody unlocks what was locked in its parent.
    #[test]
    fn a_locked_list_frees() {
        let free = Arc::new(FreeList::default());
        let locked = free.0.lock().unwrap();
        drop(HostLines::new(CpuBytes::new(1 << 20).unwrap(), Arc::clone(&free)));
        drop(locked);
        assert!(free.take(1 << 20).is_none());
    }
}
