//! Loops compiled for the processor at hand.

/// Runs a loop with the widest vectors of this processor: a plain x86-64 build stops at SSE2.
///
/// Only what is inlined into `op` gains. A closure that is large may not be inlined itself; a struct with
/// `#[inline(always)]` on its `call` is.
#[inline(always)]
pub(crate) fn wide<Op: pulp::NullaryFnOnce>(op: Op) -> Op::Output {
    pulp::Arch::new().dispatch(op)
}
