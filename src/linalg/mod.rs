//! Linear algebra on devices.

mod dots;
pub(crate) mod eigen;
pub(crate) mod gram;
pub(crate) mod host;
mod krylov;
pub(crate) mod map;
mod map_tensor;
pub(crate) mod matmul;
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

pub use map::{LinearMap, Matrix, Pass};
pub use matmul::{matmul, matmul_nt, matmul_tn};
pub use qr::{Qr, qr};
pub use reduce::{Stats, column_stats, row_stats};
pub(crate) use rsvd::FLOOR;
pub use rsvd::{RandomizedSvd, Stop, TruncatedSvd, left_vectors, randomized_svd};
pub use sign::SignRule;
pub use svd::{Svd, svd};
pub use truncated::truncated_svd;
