//! Rows of a matrix, centred and scaled, in f32.

use crate::{
    Error, InF32, Result, Tensor,
    extent::to_usize,
    kernel::{Grid, small},
    kernels::{
        WG,
        standardize::{Params, STANDARDIZE, spec},
    },
};

/// Returns `(x[i, j] - shift) scale` in f32, or `fill` if x[i, j] is missing, with [shift, scale, fill] = `table[i]`. NaN is missing, and so
/// is an element below 0 if `negative_is_missing`. Enqueues; does not wait.
///
/// # Shapes
/// `x`: (rows, columns) of a type that f32 holds ([`Tensor::to_f32`] converts other types); `table`: an entry for each row.
///
/// # Cost
/// One pass over `x`, and memory for a matrix of f32 of the same shape.
///
/// # Errors
/// [`Error::Shape`] unless `x` is a matrix and the table has as many rows as `x`; [`Error::Limit`] when one row does not fit a binding, or
/// the result does not fit a buffer; [`Error::OutOfMemory`].
///
/// ```
/// use teatime::{Device, Tensor, linalg::standardize};
/// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, -3.0, f32::NAN, 4.0], &[2, 2])?;
/// let table = [[-1.0, 2.0, 0.0], [4.0, 1.0, 7.0]];
/// assert_eq!(standardize(&x, &table, false)?.read()?, [4.0, -4.0, 7.0, 0.0]);
/// assert_eq!(standardize(&x, &table, true)?.read()?, [4.0, 0.0, 7.0, 0.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn standardize<T: InF32>(
    x: &Tensor<T>,
    table: &[[f32; 3]],
    negative_is_missing: bool,
) -> Result<Tensor<f32>> {
    let [rows, cols] = x.matrix("standardize")?;
    if table.len() as u64 != rows {
        return Err(Error::shape("standardize", format_args!("a table of {rows} rows"), table.len()));
    }
    let device = x.device();
    let table = Tensor::from_slice(device, table.as_flattened(), &[rows, 3])?;
    let mut out = Tensor::empty(device, x.shape())?;
    if x.is_empty() {
        return Ok(out);
    }
    let limits = device.limits();
    let step = limits.rows_per_launch(cols.max(3), WG)?;
    for first in (0..rows).step_by(to_usize(step)) {
        let end = rows.min(first.saturating_add(step));
        let [count, width] = [end - first, cols].map(small);
        let (x, t) = (x.window(first * cols..end * cols), table.window(first * 3..end * 3));
        let target = out.window_mut(first * cols..end * cols);
        let params = Params {
            rows: count,
            cols: width,
            x0: x.start,
            table0: t.start,
            out0: target.start,
            x_type: T::DTYPE.code(),
            negative_is_missing: negative_is_missing.into(),
        };
        let items = (end - first) * cols;
        let grid = Grid::linear(items.div_ceil(WG.into()), limits.groups_per_axis, items)?;
        device.launch(&STANDARDIZE, &spec(T::DTYPE), grid, &[x.arg, t.arg, target.arg], &params)?;
    }
    Ok(out)
}
