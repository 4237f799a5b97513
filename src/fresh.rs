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
/// [`Error::OutOfHostMemory`].
pub(crate) fn zeros<T: Zeroable>(len: usize) -> Result<Vec<T>> {
    let bytes = len.saturating_mul(size_of::<T>());
    let lacking =
        |()| Error::OutOfHostMemory { what: "elements of a device".into(), requested: bytes as u64 };
    #[allow(unused_mut, reason = "Linux alone asks for pages")]
    let mut values: Vec<T> = bytemuck::try_zeroed_vec(len).map_err(lacking)?;
    #[cfg(target_os = "linux")]
    if bytes >= LARGE {
        ask_for_large_pages(values.as_mut_ptr().cast(), bytes);
    }
    Ok(values)
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no safe call advises of memory that an allocator gave")]
fn ask_for_large_pages(start: *mut libc::c_void, bytes: usize) {
    const PAGE: usize = 2 << 20;
    let before = start.align_offset(PAGE);
    // SAFETY: the range begins within an allocation that the caller owns and that is longer than a page. The advice, which is for the rest of
    // its last page too, changes nothing that a program can tell but its speed; pages stay small where it is refused.
    unsafe { libc::madvise(start.byte_add(before), bytes - before, libc::MADV_HUGEPAGE) };
}
