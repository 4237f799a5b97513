//! What a PCA computes, and how.

use super::{filter::VariantFilter, scaler::Scaler};
use crate::linalg::RandomizedSvd;

/// How the components are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Exact where the Gram matrix of the samples fits the memory budget and costs less than the passes that the
    /// randomized method is expected to make; else randomized.
    #[default]
    Auto,
    /// Eigenvectors of the Gram matrix of the samples, formed in one pass.
    Exact,
    /// Randomized block Krylov iteration, some passes.
    Randomized,
}

/// What to compute, and how.
#[derive(Clone, Debug, Default)]
pub struct PcaOptions {
    /// Number of components.
    pub components: usize,
    /// How they are computed.
    pub method: Method,
    /// Centring and scaling of the dosages.
    pub scaler: Scaler,
    /// Which variants take part.
    pub filter: VariantFilter,
    /// The randomized method's settings; its sign rule holds for the exact method too. Its passes are those of products.
    pub svd: RandomizedSvd,
}
