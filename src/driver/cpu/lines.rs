//! Memory of the cpu device, and the list of freed buffers that are used again.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use crate::{Error, Result, extent::to_usize, fresh};

/// The bytes of a buffer.
#[derive(Debug)]
pub(super) enum CpuBytes {
    /// Memory that is zero at first and starts at a cache line, so that it is aligned for any element type and vector.
    ///
    /// The system provides fresh pages as zeros if an allocation needs no more than the allocator's own alignment. With
    /// a larger alignment, the allocator would write each page once before its first use.
    Own { room: Vec<u8>, first: usize, len: usize },
    /// An application's bytes, which are only read.
    Lent(&'static [u8]),
}

impl Default for CpuBytes {
    fn default() -> Self {
        Self::Own { room: Vec::new(), first: 0, len: 0 }
    }
}

impl CpuBytes {
    /// Makes a buffer of at least `bytes` bytes. Sizes are rounded up to few different ones, so that freed buffers can be used again.
    pub(super) fn new(bytes: u64) -> Result<Self> {
        let len = to_usize(Self::size(bytes));
        let lacking = |_| Error::OutOfMemory { requested: bytes, free: None };
        let room = fresh::zeros::<u8>(len.saturating_add(63)).map_err(lacking)?;
        Ok(Self::Own { first: room.as_ptr().align_offset(64), len, room })
    }

    /// Returns the size of a buffer for `bytes` bytes: larger by at most an eighth, whose pages are never touched.
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

/// A buffer that the host holds. When it is dropped, its memory is used again.
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

/// Freed buffers, kept for the next allocation of the same size. A stream allocates the same sizes again and again, and
/// mapping fresh pages costs more than the kernels' work on them.
#[derive(Debug, Default)]
pub(super) struct FreeList(Mutex<Vec<CpuBytes>>);

/// The maximum number of bytes of freed buffers that are kept.
pub(crate) const FREE_BYTES: usize = 64 << 20;

/// The minimum number of bytes of a buffer that is kept: an allocator serves smaller ones quickly.
const LEAST_KEPT: usize = 16 << 10;

/// The maximum number of buffers that are kept.
const MOST_KEPT: usize = 64;

impl FreeList {
    pub(super) fn take(&self, bytes: u64) -> Option<CpuBytes> {
        let mut buffers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = buffers.iter().position(|buffer| buffer.len() as u64 == CpuBytes::size(bytes))?;
        Some(buffers.remove(at))
    }

    /// Keeps a buffer for later use. Frees it if another thread has locked the list, or had locked it when the process was forked.
    pub(super) fn keep(&self, buffer: CpuBytes) {
        if !(LEAST_KEPT..=FREE_BYTES).contains(&buffer.len()) || matches!(buffer, CpuBytes::Lent(_)) {
            return;
        }
        // Dropped buffers are unmapped after the lock is released.
        let mut gone = Vec::new();
        let mut buffers = match self.0.try_lock() {
            Ok(buffers) => buffers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        buffers.push(buffer);
        // The oldest buffers are dropped first.
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
        // The oldest buffers are dropped first.
        for bytes in [20, 30, 40] {
            free.keep(CpuBytes::new(bytes << 20).unwrap());
        }
        assert!([20, 30].iter().all(|bytes| free.take(bytes << 20).is_none()));
        assert!(free.take(40 << 20).is_some());
        // Small buffers are not kept, and only a limited number of large ones is.
        free.keep(CpuBytes::new(1000).unwrap());
        assert!(free.take(1000).is_none());
        (0..100).for_each(|_| free.keep(CpuBytes::new(20_000).unwrap()));
        assert_eq!((0..100).filter(|_| free.take(20_000).is_some()).count(), MOST_KEPT);
    }

    /// Checks a locked list, as in a forked child, where nobody unlocks a mutex that was locked in the parent.
    #[test]
    fn a_locked_list_frees() {
        let free = Arc::new(FreeList::default());
        let locked = free.0.lock().unwrap();
        drop(HostLines::new(CpuBytes::new(1 << 20).unwrap(), Arc::clone(&free)));
        drop(locked);
        assert!(free.take(1 << 20).is_none());
    }
}
