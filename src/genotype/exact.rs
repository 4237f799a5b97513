//! Components from the Gram matrix of the samples.

use crate::{
    Device, Result,
    linalg::{FLOOR, Matrix, TruncatedSvd, eigen::largest, threads::Threads},
};

/// The leading eigenvectors of a Gram matrix, in f64. No pass: their signs may take one.
pub(crate) fn decompose(gram: &Matrix, device: &Device, components: usize) -> Result<TruncatedSvd> {
    let threads = Threads::of(Some(device))?;
    let (values, vectors) = largest("genotype::pca", gram.as_faer(), components, threads)?;
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
    Ok(TruncatedSvd { s, v, residuals, converged, passes: 0 })
}
