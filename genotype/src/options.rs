//! The options of a PCA.

use teatime::{Error, Result, linalg::SvdOptions};

use super::{
    filter::VariantFilter,
    scaler::Scaler,
    source::{Genotypes, check_extents},
};

pub(super) const OP: &str = "pca";

/// The method by which the components are computed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// Chooses the exact method if the Gram matrix of the samples fits the memory budget and costs less
    /// than the passes that the randomized method is expected to make; otherwise the randomized method.
    #[default]
    Auto,
    /// Eigenvectors of the Gram matrix of the samples, formed in one pass.
    Exact,
    /// Randomized block Krylov iteration, which takes several passes.
    Randomized,
}

/// Options of [`pca`](crate::pca()).
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PcaOptions {
    /// The number of components.
    pub components: usize,
    /// The method by which the components are computed.
    pub method: Method,
    /// The centring and scaling of the dosages.
    pub scaler: Scaler,
    /// The filter of variants.
    pub filter: VariantFilter,
    /// The randomized method's settings; the sign rule holds for the exact method too. Its pass limits count passes of products.
    pub svd: SvdOptions,
}

impl Default for PcaOptions {
    /// Returns options for 10 components.
    fn default() -> Self {
        Self {
            components: 10,
            method: Method::default(),
            scaler: Scaler::default(),
            filter: VariantFilter::default(),
            svd: SvdOptions::default(),
        }
    }
}

teatime::setters! {
    PcaOptions {
        components(usize),
        method(Method),
        scaler(Scaler),
        filter(VariantFilter),
        svd(SvdOptions),
    }
}

impl PcaOptions {
    pub(super) fn check(&self, genotypes: &Genotypes) -> Result<()> {
        check_extents(OP, genotypes)?;
        let (samples, variants) = (genotypes.samples(), genotypes.variants());
        let most = samples.min(variants);
        if self.components as u64 > most {
            let of_most = format_args!("{variants} variants of {samples} samples have at most {most}");
            let why = format!("{}, but {of_most}", self.components);
            return Err(Error::argument(OP, "components", why));
        }
        self.filter.check(OP)
    }
}
