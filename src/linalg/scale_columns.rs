//! Columns of a matrix, multiplied by factors.

use crate::{
    Error, Real, Result, Tensor,
    array::{Zip, zip},
    extent::to_usize,
    kernel::{Grid, small},
    kernels::{
        WG, WG_ALONE,
        scale_columns::{Params, SCALE_COLUMNS},
    },
};

/// Returns `x` with column j multiplied by `factors[j]`, in the type of `x`. Enqueues; does not wait.
///
/// # Shapes
/// `x`: (n, m) of f32 or f64, m factors -> (n, m).
///
/// # Cost
/// One pass over `x`, and memory for a second matrix of the same size.
///
/// # Errors
/// [`Error::Shape`] unless `x` is a matrix and there are m factors; [`Error::Limit`] when one row does not fit a binding, or the result does
/// not fit a buffer; [`Error::NoF64`]; [`Error::OutOfMemory`].
///
/// ```
/// use teatime::{Device, Tensor, linalg::scale_columns};
/// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// assert_eq!(scale_columns(&x, &[10.0, -1.0])?.read()?, [10.0, -2.0, 30.0, -4.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn scale_columns<R: Real>(x: &Tensor<R>, factors: &[R]) -> Result<Tensor<R>> {
    let [rows, cols] = x.matrix("scale_columns")?;
    if factors.len() as u64 != cols {
        return Err(Error::shape("scale_columns", format_args!("{cols} factors"), factors.len()));
    }
    let device = x.device();
    device.computes::<R>("scale_columns")?;
    let factors = Tensor::from_slice(device, factors, &[cols])?;
    if R::DTYPE.is_wide() {
        // The product is of type R too, which the compiler cannot see.
        return Ok(zip(Zip::Multiply, x, &factors)?.cast());
    }
    let mut out = Tensor::empty(device, x.shape())?;
    if x.is_empty() {
        return Ok(out);
    }
    let limits = device.limits();
    let step = limits.rows_per_launch(cols, WG)?;
    for first in (0..rows).step_by(to_usize(step)) {
        let end = rows.min(first + step);
        let [count, width] = [end - first, cols].map(small);
        let (x, s) = (x.window(first * cols..end * cols), factors.window(0..cols));
        let target = out.window_mut(first * cols..end * cols);
        let params = Params { rows: count, cols: width, x0: x.start, out0: target.start };
        let items = (end - first) * cols;
        let grid = Grid::linear(items.div_ceil(WG.into()), limits.groups_per_axis, items)?;
        device.launch(&SCALE_COLUMNS, &WG_ALONE, grid, &[x.arg, s.arg, target.arg], &params)?;
    }
    Ok(out)
}
