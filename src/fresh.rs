//! Host memory that is about to be filled.

use bytemuck::Zeroable;

use crate::{Error, Result};

/// The minimum number of bytes for requesting large pages.
#[cfg(target_os = "linux")]
const LARGE: usize = 8 << 20;

/// Allocates `len` zeros, in pages of 2 MiB if the memory is large and Linux has such pages. Creating a page of 4 KiB at its first write takes
/// longer than a copy to the page, or than most kernels take for their work on it.
///
/// # Errors
/// [`Error::OutOfHostMemory`].
pub(crate) fn zeros<T: Zeroable>(len: usize) -> Result<Vec<T>> {
    let requested = len.saturating_mul(size_of::<T>()) as u64;
    let lacking = |()| Error::OutOfHostMemory { what: "elements of a device".into(), requested };
    let mut values = bytemuck::try_zeroed_vec(len).map_err(lacking)?;
    ask_for_large_pages(&mut values);
    Ok(values)
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no safe call advises of memory that an allocator gave")]
fn ask_for_large_pages<T>(values: &mut [T]) {
    const PAGE: usize = 2 << 20;
    let (start, bytes) = (values.as_mut_ptr().cast::<libc::c_void>(), size_of_val(values));
    if bytes < LARGE {
        return;
    }
    let before = start.align_offset(PAGE);
    // SAFETY: the range begins within an allocation that the caller owns and that is longer than a page. The advice also covers the rest of its
    // last page, but affects only speed. If the advice is refused, pages stay small.
    unsafe { libc::madvise(start.byte_add(before), bytes - before, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages<T>(_: &mut [T]) {}
