//! Memory of the cpu device.

use crate::{Error, Result, extent::to_usize, fresh};

/// The bytes of a buffer.
#[derive(Debug)]
pub(crate) enum CpuBytes {
    /// Memory that starts at a cache line, so that it is aligned for any element type and vector.
    ///
    /// The system provides fresh pages as zeros if an allocation needs no more than the allocator's own alignment. With
    /// a larger alignment, the allocator would write each page once before its first use.
    Own { room: Vec<u8>, first: usize, len: usize },
    /// An application's bytes, which are only read.
    Lent(&'static [u8]),
}

impl CpuBytes {
    /// Makes a buffer of at least `bytes` bytes: zeros, or what a freed buffer held. Sizes are rounded up to few different ones, so that
    /// freed buffers can be used again.
    pub(super) fn new(bytes: u64) -> Result<Self> {
        let len = to_usize(Self::size(bytes));
        let lacking = |_| Error::OutOfMemory { requested: bytes, free: None };
        let padded = len.saturating_add(63);
        let mut room =
            fresh::DEVICES.take(padded).map_or_else(|| fresh::zeros::<u8>(padded).map_err(lacking), Ok)?;
        room.resize(room.len().max(padded), 0);
        Ok(Self::Own { first: room.as_ptr().align_offset(64), len, room })
    }

    /// Returns the size of a buffer for `bytes` bytes: larger by at most an eighth, whose pages are hardly ever touched.
    fn size(bytes: u64) -> u64 {
        let step = bytes.max(1).ilog2().saturating_sub(3);
        bytes.max(1).next_multiple_of((1 << step).max(64))
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own { room, first, len } => &room[*first..][..*len],
            Self::Lent(bytes) => bytes,
        }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own { room, first, len } => &mut room[*first..][..*len],
            Self::Lent(_) => unreachable!("views of an application's memory should only be read"),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Returns the bytes of memory that the buffer takes, with those by which it is aligned.
    pub(super) fn capacity(&self) -> u64 {
        match self {
            Self::Own { room, .. } => room.capacity() as u64,
            Self::Lent(bytes) => bytes.len() as u64,
        }
    }
}

impl Drop for CpuBytes {
    fn drop(&mut self) {
        if let Self::Own { room, .. } = self {
            fresh::DEVICES.keep(std::mem::take(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::cpu::FREE_BYTES;

    /// Buffers of 64 MiB together are kept when they are freed.
    #[test]
    fn there_is_room_for_the_ends_of_buffers() {
        for count in [1, 2, 64] {
            let buffer = CpuBytes::new((64 << 20) / count).unwrap();
            assert!(count * buffer.capacity() <= FREE_BYTES, "{count} of {}", buffer.capacity());
        }
    }

    #[test]
    fn buffers_start_at_a_line() {
        for bytes in [0, 1, 16, 63, 64, 65, 1000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 10_000_019] {
            let lines = CpuBytes::new(bytes).unwrap();
            let held = lines.bytes();
            assert!((held.as_ptr() as usize).is_multiple_of(64), "{bytes}");
            let len = held.len() as u64;
            assert!(
                len >= bytes && len <= bytes + bytes / 8 + 64 && len.is_multiple_of(64),
                "{bytes}: {len}"
            );
            assert_eq!((lines.len() as u64, CpuBytes::size(len)), (len, len));
        }
        assert!(matches!(CpuBytes::new(u64::MAX / 2), Err(Error::OutOfMemory { .. })));
    }
}
