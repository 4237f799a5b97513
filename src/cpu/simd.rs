//! Loops compiled for the processor at hand.

/// Runs a loop with the widest vectors of this processor: a plain x86-64 build stops at SSE2.
///
/// Only what is inlined into `f` gains, and only while `f` is small enough that the compiler inlines it: a large loop goes
/// to `pulp` as a type whose `call` is inlined always.
#[inline(always)]
pub(super) fn wide<R>(f: impl FnOnce() -> R) -> R {
    pulp::Arch::new().dispatch(f)
}
