//! Linear algebra on devices.

pub(crate) mod map;
pub(crate) mod matmul;
pub(crate) mod reduce;
mod rsvd;
pub(crate) mod scale_columns;

pub use map::{LinearMap, Matrix, Pass};
pub use matmul::{matmul, matmul_nt, matmul_tn};
pub use reduce::{Stats, column_stats, row_stats};
pub(crate) use rsvd::apply_sign_rule;
pub use rsvd::{RandomizedSvd, SignRule, Stop, TruncatedSvd, randomized_svd};
