//! Linear algebra on devices: products, QR, singular values, statistics of rows and columns.
//!
//! Matrices that take part in computations are [`Tensor`](crate::Tensor)s on a device. Small factors that are returned, and the right
//! singular vectors of matrices known only through products, are a [`Matrix`] of f64 on the host.
//!
//! | for | take | |
//! |---|---|---|
//! | a product | [`matmul()`], [`matmul_tn`] (`aᵀ b`), [`matmul_nt`] (`a bᵀ`), [`gram_lower`] (`xᵀ x`) | sums in f32, or in f64 for f64 and 32-bit integers; by cuBLAS if it is available |
//! | all singular values of a matrix of at most 16,384 rows or columns | [`svd()`] | exact |
//! | the largest singular values of a resident matrix, with the vectors of both sides | [`truncated_svd`] | some passes |
//! | the largest singular values of a matrix that is packed, streamed or your own | [`randomized_svd`], then [`left_vectors`] | takes any [`LinearMap`]; [`SvdOptions::left`] saves the pass of the left vectors, and a [`Checkpoint`] the passes of a call that was stopped |
//! | the largest singular values of a matrix whose products are made elsewhere | [`SvdSteps`] | takes one product at a time |
//! | the largest singular values, from a Gram matrix that you added up | [`BlockSum`], then [`gram_svd()`] | one pass over the matrix |
//! | orthonormal columns | [`qr()`] | |
//! | sums, means and variances | [`row_stats`], [`column_stats`] | |
//! | centring and scaling | [`standardize()`], for columns [`zip`](crate::array::zip) | |
//! | a transpose | [`transpose()`] | products take transposes as they are |
//!
//! Sums are taken over blocks that depend on the shape alone, so on one device results are the same to the bit for all numbers of threads and
//! panels.
//!
//! # Principal components
//!
//! The rows of the matrix are variables and its columns are observations. Each variable is centred, and the decomposition gives the rest.
//!
//! ```
//! use teatime::{Device, Run, Tensor, linalg::{SvdOptions, row_stats, standardize, truncated_svd}};
//!
//! // Two variables of four observations, which are the columns.
//! let x = [1.0f32, 2.0, 3.0, 4.0, -1.0, 1.0, -1.0, 1.0];
//! let x = Tensor::from_slice(&Device::best()?, &x, &[2, 4])?;
//! // Shift, scale (1: covariances; 1 / standard deviation: correlations), and what a missing element becomes.
//! let terms = row_stats(&x)?.into_iter().map(|row| [(row.sum / row.count as f64) as f32, 1.0, 0.0]);
//! let centred = standardize(&x, &terms.collect::<Vec<_>>(), false)?;
//! let svd = truncated_svd(&centred, 2, &SvdOptions::default(), &Run::default())?;
//! // Scores of the observations are V diag(s), loadings of the variables U, variances s² / (n - 1).
//! let variances: f64 = svd.s.iter().map(|s| s * s / 3.0).sum();
//! assert!((variances - (5.0 + 4.0) / 3.0).abs() < 1e-5);
//! # Ok::<(), teatime::Error>(())
//! ```

mod checkpoint;
pub(crate) mod eigen;
pub(crate) mod gram;
pub(crate) mod gram_svd;
pub(crate) mod group_matrix;
pub(crate) mod host;
mod kept;
mod krylov;
pub(crate) mod map;
pub(crate) mod map_tensor;
pub(crate) mod matmul;
pub(crate) mod matrix;
pub(crate) mod qr;
pub(crate) mod reduce;
mod right_svd;
pub(crate) mod rows;
pub(crate) mod rsvd;
mod sign;
pub(crate) mod standardize;
mod steps;
mod svd;
pub(crate) mod svd_plan;
pub(crate) mod threads;
mod transpose;
pub(crate) mod truncated;

pub use checkpoint::Checkpoint;
pub use gram::BlockSum;
pub use gram_svd::{gram_svd, gram_svd_seconds};
pub use group_matrix::GroupMatrix;
pub use map::{LinearMap, Pass, RowSink};
pub use matmul::{ProductOf, gram_lower, matmul, matmul_nt, matmul_tn};
pub use matrix::Matrix;
pub use qr::{Qr, qr};
pub use reduce::{PendingStats, Stats, column_stats, pending_column_stats, pending_row_stats, row_stats};
pub use right_svd::{RightSvd, Stop, SvdOptions};
pub use rsvd::{left_vectors, randomized_svd, randomized_svd_with_checkpoint};
pub use sign::SignRule;
pub use standardize::standardize;
pub use steps::SvdSteps;
pub use svd::{Svd, svd};
pub use transpose::transpose;
pub use truncated::{TruncatedSvd, truncated_svd};
