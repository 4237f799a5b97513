//! Settings for how the C library's allocator keeps freed memory.

/// Has all threads allocate from one heap. With a heap each, every thread keeps up to tens of megabytes of freed chunks to itself:
/// memory that no budget counts, and that the other threads take from the system anew.
///
/// To be called before there are other threads.
#[allow(unsafe_code, reason = "the C library has no safe way")]
pub(crate) fn share() {
    // SAFETY: sets a number of the allocator's, while no other thread allocates.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Has each buffer of 4 MiB or more come from the system, and go back to it. Parts of chunks, of many sizes, leave holes in a heap that
/// no budget counts.
///
/// To be called before there are other threads.
#[allow(unsafe_code, reason = "the C library has no safe way")]
pub(crate) fn return_large() {
    // SAFETY: as above.
    unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, 4 << 20) };
}
