//! Loops that are compiled for the processor on which they run.

/// Runs a loop with the widest vectors of this processor: a plain x86-64 build uses only SSE2.
///
/// Only code that is inlined into `op` benefits. A large closure may not be inlined; a struct whose `call` has `#[inline(always)]` is.
#[inline(always)]
pub(crate) fn wide<Op: pulp::NullaryFnOnce>(op: Op) -> Op::Output {
    pulp::Arch::new().dispatch(op)
}

/// Marks the upper parts of this thread's wide registers as unused, as compilers do where code for them ends. faer's products do not, and then
/// a plain x86-64 build (SSE2) that calls libm takes ten times as long, until other code does it.
#[inline]
pub(crate) fn end_wide() {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        simd.avx._mm256_zeroupper();
    }
}
