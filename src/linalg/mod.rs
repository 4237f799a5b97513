//! Linear algebra on devices.

pub(crate) mod matmul;
pub(crate) mod reduce;
pub(crate) mod scale_columns;

pub use matmul::{matmul, matmul_nt, matmul_tn};
pub use reduce::{Stats, column_stats, row_stats};
