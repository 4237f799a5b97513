//! Settings for how the C library's allocator keeps freed memory.

/// Makes all threads allocate from one heap. With a heap for each thread, every thread keeps up to tens of megabytes of freed memory that no
/// budget counts and that other threads cannot use.
///
/// Has to be called before other threads start.
#[allow(unsafe_code, reason = "the C library has no safe way")]
pub(crate) fn share() {
    // SAFETY: sets a parameter of the allocator, while no other thread allocates.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}
