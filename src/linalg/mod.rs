//! Linear algebra on devices.

mod dots;
pub(crate) mod eigen;
pub(crate) mod gram;
mod gram_svd;
pub(crate) mod host;
mod krylov;
pub(crate) mod map;
pub(crate) mod map_tensor;
pub(crate) mod matmul;
mod matrix;
mod qr;
pub(crate) mod reduce;
mod rows;
mod rsvd;
pub(crate) mod scale_columns;
mod sign;
pub(crate) mod standardize;
mod svd;
pub(crate) mod threads;
mod truncated;

pub use gram::BlockSum;
pub use gram_svd::{gram_svd, gram_svd_seconds};
pub use map::{LinearMap, Pass};
pub use matmul::{gram_lower, matmul, matmul_nt, matmul_tn};
pub use matrix::Matrix;
pub use qr::{Qr, qr};
pub use reduce::{PendingStats, Stats, column_stats, pending_column_stats, pending_row_stats, row_stats};
pub use rsvd::{RightSvd, Stop, SvdOptions, left_vectors, randomized_svd};
pub use scale_columns::scale_columns;
pub use sign::SignRule;
pub use standardize::standardize;
pub use svd::{Svd, svd};
pub use truncated::{TruncatedSvd, truncated_svd};
