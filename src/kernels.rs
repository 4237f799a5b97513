//! Single kernels for the benchmarks, which measure them against the bandwidth of a copy. No part of the API: what is
//! here may change in any version.

use crate::{
    DType, Element, Error, Result, Tensor,
    genotype::{dosage as calls, standardize as table},
    kernel::Grid,
    linalg::{
        reduce::{BLOCK, Params, REDUCE},
        scale_columns as columns,
    },
};

/// Dosages of calls (variants, samples, ploidy). Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless `x` has three axes; [`Error::Limit`] and [`Error::OutOfMemory`].
pub fn dosage(x: &Tensor<i8>) -> Result<Tensor<i8>> {
    calls::dosage(x)
}

/// Dosages (variants, samples) to f32, with [shift, scale, fill] of each row. Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless `rows` has one entry for each row; [`Error::Limit`] and [`Error::OutOfMemory`].
pub fn standardize(x: &Tensor<i8>, rows: &[[f32; 3]]) -> Result<Tensor<f32>> {
    table::standardize(x, rows)
}

/// A matrix with its columns multiplied by numbers. Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless there is a factor for each column; [`Error::Limit`] and [`Error::OutOfMemory`].
pub fn scale_columns(x: &Tensor<f32>, factors: &[f32]) -> Result<Tensor<f32>> {
    columns::scale_columns(x, factors)
}

/// One launch of the sums by row or by column, whose blocks are left on the device. Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless `x` is a matrix; [`Error::Limit`] when it does not fit one binding.
pub fn block_sums<T: Element>(x: &Tensor<T>, by_row: bool) -> Result<Tensor<u32>> {
    let [rows, cols] = x.matrix("block_sums")?;
    let limits = x.device().limits();
    let blocks = |n: u64| n.div_ceil(BLOCK.into());
    let shape = if by_row { [rows, blocks(cols), 4] } else { [blocks(rows), cols, 4] };
    let words = shape.iter().product::<u64>();
    let bytes = x.bytes().max(4 * words);
    let (Ok(height), Ok(width), true) = (rows.try_into(), cols.try_into(), bytes <= limits.binding) else {
        return Err(Error::Limit {
            what: "bytes of a matrix in one launch",
            requested: bytes,
            max: limits.binding,
        });
    };
    let mut out = Tensor::<u32>::empty(x.device(), &shape)?;
    const WG: u32 = 64;
    let spec = [
        ("WG", WG),
        ("BLOCK", BLOCK),
        ("X_TYPE", T::DTYPE.code()),
        ("BY_ROW", u32::from(by_row)),
        ("MISSING", u32::from(T::DTYPE == DType::I8)),
    ];
    let groups = if by_row { rows * blocks(cols) } else { blocks(rows) * cols.div_ceil(WG.into()) };
    let grid = Grid::linear(groups, limits.groups_per_axis, rows * cols)?;
    let params = Params { rows: height, cols: width, x0: 0, out0: 0 };
    let args = [x.window(0..x.len()).arg, out.window_mut(0..words).arg];
    x.device().launch(&REDUCE, &spec, grid, &args, &params)?;
    Ok(out)
}
