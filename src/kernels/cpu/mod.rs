//! Code that the cpu functions of several kernels share.

pub(crate) mod bits;
pub(crate) mod correlate;
pub(crate) mod dot;
pub(crate) mod dots;
pub(crate) mod limbs;
pub(crate) mod load;
pub(crate) mod quads;
pub(crate) mod simd;
pub(crate) mod sparse;
pub(crate) mod vectors;
