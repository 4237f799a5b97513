//! Loops that are compiled for the processor on which they run.

/// Runs a loop with the widest vectors of this processor: a plain x86-64 build uses only SSE2.
///
/// Only code that is inlined into `op` benefits. A large closure may not be inlined; a struct whose `call` has `#[inline(always)]` is.
#[inline(always)]
pub(crate) fn wide<Op: pulp::NullaryFnOnce>(op: Op) -> Op::Output {
    pulp::Arch::new().dispatch(op)
}
