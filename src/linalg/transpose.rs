//! The transpose of a matrix.

use crate::{
    Element, Error, Result, Tensor,
    extent::blocks,
    kernel::{Grid, small},
    kernels::transpose::{Params, TILE, TRANSPOSE, spec},
};

/// Returns the transpose of a matrix: `out[j, i] = x[i, j]`, bit by bit. Enqueues; does not wait.
///
/// Products with a transposed operand do not need it: see [`matmul_tn`](super::matmul_tn) and [`matmul_nt`](super::matmul_nt).
///
/// # Shapes
/// `x`: (m, n) of elements of four or eight bytes -> (n, m).
///
/// # Cost
/// Reads `x` and writes as many bytes, with memory for a second matrix of the same size.
///
/// # Errors
/// [`Error::Shape`] unless `x` is a matrix; [`Error::Argument`] for elements of fewer than four bytes; [`Error::Limit`] when a row or a
/// column does not fit a binding, or the result does not fit a buffer; [`Error::OutOfMemory`].
///
/// ```
/// use teatime::{Device, Tensor, linalg::transpose};
/// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
/// let turned = transpose(&x)?;
/// assert_eq!((turned.shape(), turned.read()?), (&[3, 2][..], vec![1.0, 4.0, 2.0, 5.0, 3.0, 6.0]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn transpose<T: Element>(x: &Tensor<T>) -> Result<Tensor<T>> {
    let [m, n] = x.matrix("transpose")?;
    let size = T::DTYPE.size();
    if size < 4 {
        return Err(Error::argument("transpose", "x", format_args!("elements of {size} bytes; of 4 or 8")));
    }
    let (device, limits) = (x.device(), x.device().limits());
    let mut out = Tensor::empty(device, &[n, m])?;
    if x.is_empty() {
        return Ok(out);
    }
    // A launch reads whole rows of x and writes whole rows of the result.
    let most = u64::from(limits.groups_per_axis).saturating_mul(TILE.into());
    let words = size / 4;
    let [m_step, n_step] = [n, m].map(|extent| limits.rows_per_launch(words * extent, TILE * TILE));
    let [m_step, n_step] = [m_step?, n_step?];
    for rows in blocks(m, m_step.min(most)) {
        for columns in blocks(n, n_step.min(most)) {
            let (from, to) = (
                x.window(rows.start * n..rows.end * n),
                out.window_update(columns.start * m..columns.end * m),
            );
            let [height, width] = [&rows, &columns].map(|range| range.end - range.start);
            let params = Params {
                m: small(height),
                n: small(width),
                ldx: small(n),
                ldo: small(m),
                x0: from.start + small(columns.start),
                out0: to.start + small(rows.start),
            };
            let [across, along] = [width, height].map(|extent| small(extent.div_ceil(TILE.into())));
            let grid = Grid::tiles(across, along, height * width);
            device.launch(&TRANSPOSE, &spec(words), grid, &[from.arg, to.arg], &params)?;
        }
    }
    Ok(out)
}
