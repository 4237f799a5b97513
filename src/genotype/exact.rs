//! Components from the Gram matrix of the samples.

use faer::MatRef;

use super::{pca::PcaOptions, standardized::Standardized};
use crate::{
    Result, Run, Status,
    linalg::{LinearMap, Matrix, Pass, TruncatedSvd, host},
};

/// One pass for the Gram matrix, then its leading eigenvectors in f64.
pub(crate) fn decompose(map: &Standardized<'_>, options: &PcaOptions, run: &Run) -> Result<TruncatedSvd> {
    let [variants, n] = map.shape();
    let n = usize::try_from(n).unwrap_or(usize::MAX);
    let mut gram = map.gram_matrix(&Pass::new(run, Status::new(0, 1, variants)))?;
    let lower = MatRef::from_row_major_slice(&gram, n, n);
    let (values, vectors) = host::eigen("genotype::pca", lower, options.components)?;
    let s: Vec<f64> = values.iter().map(|value| value.max(0.0).sqrt()).collect();
    mirror(&mut gram, n);
    let image = host::product(MatRef::from_row_major_slice(&gram, n, n), vectors.as_ref());
    let residual = |j: usize| {
        let difference = (0..n).map(|i| image[(i, j)] - values[j] * vectors[(i, j)]);
        let norm = difference.map(|x| x * x).sum::<f64>().sqrt();
        if s[j] > 0.0 { norm / (s[j] * s[0]) } else { 0.0 }
    };
    let residuals = (0..s.len()).map(residual).collect();
    let v = Matrix::from_faer(vectors.as_ref());
    let converged = vec![true; s.len()];
    let mut svd = TruncatedSvd { s, v, residuals, converged, passes: 1 };
    options.svd.sign.apply(map, &mut svd, run)?;
    Ok(svd)
}

/// Copies the lower triangle to the upper.
fn mirror(a: &mut [f64], n: usize) {
    for i in 0..n {
        for j in 0..i {
            a[j * n + i] = a[i * n + j];
        }
    }
}
