//! Functions of elements, sums along an axis and rows by number, for what stands between the operations of a chain: what starts on a device
//! stays there until it is read.
//!
//! | | | as in numpy |
//! |---|---|---|
//! | each element | [`map()`] | `-x`, `abs`, `sqrt`, `exp`, `log` |
//! | each two | [`zip`], [`compare`] | `+ - * /`, `minimum`, `maximum`, `< <= > >= == !=` |
//! | each three | [`clamp`], [`select`] | `clip`, `where` |
//! | another type | [`cast`], [`cast_lossy`] | `astype` |
//! | along an axis | [`sum`], [`mean`], [`min`], [`max`], [`argmin`], [`argmax`], [`any`] | methods of these names |
//! | rows by number | [`gather()`], [`gather_by`] | `x[indices]` |
//! | one behind another | [`concat()`] | `concatenate` |
//! | axes exchanged | [`linalg::transpose`](crate::linalg::transpose()) | `x.T` |
//! | random | [`random::uniform`](crate::random::uniform), [`random::normal`](crate::random::normal) | `random.Generator` |
//!
//! Elements are computed in f32; of f64, `u32` and `i32` in f64, where the device [can](crate::Limits::f64). A function of
//! elements makes one pass; a [kernel](crate::kernel) of your own makes one of many.

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
