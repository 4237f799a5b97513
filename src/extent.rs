//! Extents as the host counts them.

/// The same number; the largest that the host has for more, which nothing of it can have.
pub(crate) fn to_usize(extent: u64) -> usize {
    usize::try_from(extent).unwrap_or(usize::MAX)
}
