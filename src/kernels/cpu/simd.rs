//! Loops that are compiled for the processor on which they run.

/// Evaluates an expression with the widest vectors of this processor, or with those of a given [`Dot`](super::dot::Dot): a
/// plain x86-64 build uses only SSE2. Only code that is inlined benefits, so the expression calls functions with
/// `#[inline(always)]`.
macro_rules! wide {
    ($value:expr) => {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || $value,
        )
    };
    ($dot:expr, $value:expr) => {
        $dot.vectorize(
            #[inline(always)]
            || $value,
        )
    };
}
pub(crate) use wide;

/// Marks the upper parts of this thread's wide registers as unused, as compilers do where code for them ends. faer's products do not, and then
/// a plain x86-64 build (SSE2) that calls libm takes ten times as long, until other code does it.
#[inline]
pub(crate) fn end_wide() {
    #[cfg(target_arch = "x86_64")]
    if let Some(simd) = pulp::x86::V3::try_new() {
        simd.avx._mm256_zeroupper();
    }
}
