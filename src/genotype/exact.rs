//! Components from the Gram matrix of the samples.

use super::{
    options::PcaOptions,
    pair_sums::{PairSums, Wanted},
    standardized::Standardized,
};
use crate::{
    Result, Run, Status,
    linalg::{FLOOR, LinearMap, Matrix, Pass, TruncatedSvd, eigen::largest, threads::Threads},
};

/// One pass for the Gram matrix, then its leading eigenvectors in f64.
pub(crate) fn decompose(map: &Standardized<'_>, options: &PcaOptions, run: &Run) -> Result<TruncatedSvd> {
    let [variants, _] = map.shape();
    let pass = Pass::new(run, Status::new(0, 1, variants));
    let gram = PairSums::new(map, Wanted::default(), &pass)?.products;
    let threads = Threads::of(Some(map.device()))?;
    let (values, vectors) = largest("genotype::pca", gram.as_faer(), options.components, threads)?;
    // What sums of f32 products cannot tell from zero, as in the randomized method.
    let floor = values.first().map_or(0.0, |largest| FLOOR * largest.max(0.0));
    let s: Vec<f64> = values.iter().map(|&value| if value <= floor { 0.0 } else { value.sqrt() }).collect();
    let image = threads.inner(gram.as_faer().transpose(), vectors.as_ref());
    let n = gram.rows();
    let residual = |j: usize| {
        let difference = (0..n).map(|i| image[(i, j)] - values[j] * vectors[(i, j)]);
        let norm = difference.map(|x| x * x).sum::<f64>().sqrt();
        if s[j] > 0.0 { norm / (s[j] * s[0]) } else { 0.0 }
    };
    let residuals = (0..s.len()).map(residual).collect();
    let v = Matrix::from_faer(vectors.as_ref());
    let converged = vec![true; s.len()];
    let mut svd = TruncatedSvd { s, v, residuals, converged, passes: 1 };
    options.svd.sign.apply(map, &mut svd.v, &mut svd.passes, run)?;
    Ok(svd)
}
