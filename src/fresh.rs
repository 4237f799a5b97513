//! Memory of the host that is about to be filled.

use bytemuck::Zeroable;

use crate::{Error, Result};

/// Least bytes for which large pages are asked for: below, allocators keep what they gave before.
#[cfg(target_os = "linux")]
const LARGE: usize = 32 << 20;

/// So many zeros, in pages of 2 MiB where they are many and Linux gives such pages: a page is made when it is first written, which
/// takes longer than a copy to it where it has 4 KiB.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub(crate) fn zeros<T: Zeroable>(len: usize) -> Result<Vec<T>> {
    let bytes = len.saturating_mul(size_of::<T>());
    let values: Vec<T> = bytemuck::try_zeroed_vec(len)
        .map_err(|()| Error::OutOfMemory { requested: bytes as u64, free: None })?;
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        ask_for_large_pages(values.as_ptr().cast_mut().cast(), bytes);
    }
    Ok(values)
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no safe call advises of memory that an allocator gave")]
fn ask_for_large_pages(start: *mut libc::c_void, bytes: usize) {
    const PAGE: usize = 2 << 20;
    let before = start.align_offset(PAGE);
    // SAFETY: the range is within an allocation that the caller owns, and the advice changes nothing that a program can tell but its
    // speed; where it is refused, pages stay small.
    unsafe { libc::madvise(start.byte_add(before), bytes.saturating_sub(before), libc::MADV_HUGEPAGE) };
}
