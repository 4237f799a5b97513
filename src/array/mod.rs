//! Functions of elements, reductions along an axis, and rows by index, for the steps between other operations.
//! Results stay on the device until they are read.
//!
//! | applies to | functions | as in numpy |
//! |---|---|---|
//! | each element | [`map()`] | `-x`, `abs`, `sqrt`, `exp`, `log` |
//! | two operands | [`zip`], [`compare`] | `+ - * /`, `minimum`, `maximum`, `< <= > >= == !=` |
//! | three operands | [`clamp`], [`select`] | `clip`, `where` |
//! | conversion to another type | [`cast`], [`cast_lossy`] | `astype` |
//! | along an axis | [`sum`], [`mean`], [`min`], [`max`], [`argmin`], [`argmax`], [`any`] | methods of these names |
//! | rows by index | [`gather()`], [`gather_by`] | `x[indices]` |
//! | concatenation | [`concat()`] | `concatenate` |
//! | axes exchanged | [`linalg::transpose`](crate::linalg::transpose()) | `x.T` |
//! | random | [`random::uniform`](crate::random::uniform), [`random::normal`](crate::random::normal) | `random.Generator` |
//!
//! Elements are computed in f32; elements of f64, `u32` and `i32` in f64 if the device [can](crate::Limits::f64). Each function of elements
//! takes one pass; a [kernel](crate::kernel) of your own can fuse several passes into one.

pub(crate) mod broadcast;
mod concat;
mod convert;
pub(crate) mod elementwise;
mod gather;
mod reduce;

pub use concat::concat;
pub use elementwise::{
    Compare, Map, Operand, RealOf, Zip, cast, cast_lossy, clamp, compare, map, select, zip,
};
pub use gather::{gather, gather_by};
pub(crate) use reduce::sum_pairs;
pub use reduce::{any, argmax, argmin, max, mean, min, sum};
