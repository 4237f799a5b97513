//! Components from the Gram matrix of the samples.

use faer::{
    MatMut, MatRef, Par,
    diag::DiagMut,
    dyn_stack::{MemBuffer, MemStack},
    linalg::evd::{ComputeEigenvectors, self_adjoint_evd, self_adjoint_evd_scratch},
};

use super::{
    pca::{Decomposition, PcaOptions, fix_signs},
    standardized::Standardized,
};
use crate::{
    Error, Result,
    linalg::{LinearMap, Matrix, Pass},
};

/// One pass for the Gram matrix, then its leading eigenvectors in f64.
pub(crate) fn decompose(
    map: &Standardized<'_>,
    options: &PcaOptions,
    pass: &Pass<'_>,
) -> Result<Decomposition> {
    let n = usize::try_from(map.shape()[1]).unwrap_or(usize::MAX);
    let k = options.components;
    let gram = map.gram_matrix(pass)?;
    let (values, vectors) = symmetric_eigen(&gram, n)?;
    let s: Vec<f64> = values[..k].iter().map(|value| value.max(0.0).sqrt()).collect();
    let mut v = Matrix::zeros(n, k);
    for (row, vectors) in v.data_mut().chunks_mut(k.max(1)).zip(vectors.chunks(n)) {
        row.copy_from_slice(&vectors[..k]);
    }
    fix_signs(&mut v, options.svd.sign);
    let residuals = residuals(&gram, n, &s, &v);
    let converged = vec![true; k];
    Ok(Decomposition { s, v, residuals, converged })
}

/// Eigenvalues, descending, and eigenvectors (C order, in columns) of the lower triangle of a symmetric matrix.
///
/// On one thread, so that the number of threads changes no bit.
fn symmetric_eigen(lower: &[f64], n: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut values, mut vectors) = (vec![0.0; n], vec![0.0; n * n]);
    let params = Default::default();
    let scratch = self_adjoint_evd_scratch::<f64>(n, ComputeEigenvectors::Yes, Par::Seq, params);
    let out_of_memory =
        |_| Error::OutOfMemory { requested: scratch.unaligned_bytes_required() as u64, free: None };
    let mut buffer = MemBuffer::try_new(scratch).map_err(out_of_memory)?;
    let result = self_adjoint_evd(
        MatRef::from_row_major_slice(lower, n, n),
        DiagMut::from_slice_mut(&mut values),
        Some(MatMut::from_row_major_slice_mut(&mut vectors, n, n)),
        Par::Seq,
        MemStack::new(&mut buffer),
        params,
    );
    result.map_err(|_| {
        Error::argument("genotype::pca", "genotypes", "the Gram matrix has no finite eigenvalues")
    })?;
    values.reverse();
    vectors.chunks_mut(n.max(1)).for_each(<[f64]>::reverse);
    Ok((values, vectors))
}

/// |G v - s² v| / (s s₁) for each column of v.
fn residuals(lower: &[f64], n: usize, s: &[f64], v: &Matrix) -> Vec<f64> {
    let at = |i: usize, j: usize| if i >= j { lower[i * n + j] } else { lower[j * n + i] };
    let residual = |j: usize| {
        let column: Vec<f64> = v.column(j).collect();
        let row = |i: usize| (0..n).map(|c| at(i, c) * column[c]).sum::<f64>() - s[j] * s[j] * column[i];
        let norm = (0..n).map(|i| row(i).powi(2)).sum::<f64>().sqrt();
        if s[j] > 0.0 { norm / (s[j] * s[0]) } else { 0.0 }
    };
    (0..s.len()).map(residual).collect()
}
