//! Sums, means, extremes and their indices, along one axis.

use std::ops::Range;

use super::elementwise::converted;
use crate::{
    Element, Error, Real, Result, Tensor,
    dtype::halves,
    extent::blocks,
    kernel::{Grid, small},
    kernels::reduce_axis::{BLOCK, Op, Params, REDUCE_AXIS, Stored, WG, spec},
};

/// Returns the sums along an axis. Enqueues; does not wait.
///
/// # Shapes
/// (..., n, ...) -> (..., ...): the shape without the axis `axis`, counted from 0. The sum over no elements is 0.
///
/// # Accuracy
/// Elements are added in f64 if the device [computes in f64](crate::Limits::f64), otherwise as pairs of f32, which keep about 47 bits. Then the
/// sum is rounded once: to f32 for element types that f32 holds, otherwise to f64. Without f64, a partial sum beyond f32 becomes infinite, and
/// NaN if an infinity of the opposite sign is added. NaN and infinity propagate as in numpy. The order of addition depends on the device, and on
/// whether further axes follow. The extents of the preceding axes do not affect any bit of a sum.
///
/// # Cost
/// One pass over `x`, in blocks of 1,024 elements along the axis, and 16 bytes for each block.
///
/// # Errors
/// [`Error::Argument`] for an axis that `x` does not have; [`Error::NoF64`] for elements of f64, `u32` and `i32` on a device that does not
/// compute in f64; [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
///
/// ```
/// use teatime::{Device, Tensor, array};
/// let x = Tensor::from_slice(&Device::best()?, &[1u8, 2, 3, 4, 5, 6], &[2, 3])?;
/// assert_eq!(array::sum(&x, 0)?.read()?, [5.0, 7.0, 9.0]);
/// assert_eq!(array::sum(&x, 1)?.read()?, [6.0, 15.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn sum<T: Element>(x: &Tensor<T>, axis: usize) -> Result<Tensor<T::Real>> {
    reduced("sum", x, axis, Op::Sum, value_of::<T>())
}

/// Returns the means along an axis. Enqueues; does not wait.
///
/// # Shapes
/// As [`sum`].
///
/// # Accuracy
/// As [`sum`]. The quotient is rounded once if the device computes in f64, otherwise to one of the two nearest f32, or for sums below 2^-100
/// within 3 units in the last place.
///
/// # Cost
/// As [`sum`].
///
/// # Errors
/// As [`sum`]; [`Error::Argument`] for an axis of no elements.
///
/// ```
/// use teatime::{Device, Tensor, array};
/// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, 2.0, 4.0, 8.0], &[2, 2])?;
/// assert_eq!(array::mean(&x, 1)?.read()?, [1.5, 6.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn mean<T: Element>(x: &Tensor<T>, axis: usize) -> Result<Tensor<T::Real>> {
    reduced("mean", x, axis, Op::Mean, value_of::<T>())
}

/// Returns the minimum along an axis, exactly; NaN if any element is NaN, and the first of 0.0 and -0.0. Enqueues; does not wait.
///
/// # Shapes
/// As [`sum`].
///
/// # Cost
/// As [`sum`].
///
/// # Errors
/// As [`mean`].
///
/// ```
/// use teatime::{Device, Tensor, array};
/// let x = Tensor::from_slice(&Device::best()?, &[3i16, -2, 5, 7], &[2, 2])?;
/// assert_eq!(array::min(&x, 1)?.read()?, [-2.0, 5.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn min<T: Element>(x: &Tensor<T>, axis: usize) -> Result<Tensor<T::Real>> {
    reduced("min", x, axis, Op::Min, value_of::<T>())
}

/// Returns the maximum along an axis, exactly; NaN if any element is NaN, and the first of 0.0 and -0.0. Enqueues; does not wait.
///
/// # Shapes
/// As [`sum`].
///
/// # Cost
/// As [`sum`].
///
/// # Errors
/// As [`mean`].
///
/// ```
/// use teatime::{Device, Tensor, array};
/// let x = Tensor::from_slice(&Device::best()?, &[3i16, -2, 5, 7], &[2, 2])?;
/// assert_eq!(array::max(&x, 0)?.read()?, [5.0, 7.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn max<T: Element>(x: &Tensor<T>, axis: usize) -> Result<Tensor<T::Real>> {
    reduced("max", x, axis, Op::Max, value_of::<T>())
}

/// Returns the index of the minimum along an axis: the first of equal minima, and the first NaN if there is one. Enqueues; does not wait.
///
/// # Shapes
/// As [`sum`]; the elements are indices along the axis, from 0.
///
/// # Cost
/// As [`sum`].
///
/// # Errors
/// As [`mean`]; [`Error::Limit`] for an axis of 2^32 elements or more.
///
/// ```
/// use teatime::{Device, Tensor, array};
/// let x = Tensor::from_slice(&Device::best()?, &[3.0f32, 1.0, 1.0, 2.0], &[4])?;
/// assert_eq!(array::argmin(&x, 0)?.read()?, [1]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn argmin<T: Element>(x: &Tensor<T>, axis: usize) -> Result<Tensor<u32>> {
    reduced("argmin", x, axis, Op::Min, Stored::Index)
}

/// Returns the index of the maximum along an axis: the first of equal maxima, and the first NaN if there is one. Enqueues; does not wait.
///
/// # Shapes
/// As [`argmin`].
///
/// # Cost
/// As [`sum`].
///
/// # Errors
/// As [`argmin`].
///
/// ```
/// use teatime::{Device, Tensor, array};
/// let x = Tensor::from_slice(&Device::best()?, &[3.0f32, f32::NAN, 7.0, 2.0], &[2, 2])?;
/// assert_eq!(array::argmax(&x, 1)?.read()?, [1, 0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn argmax<T: Element>(x: &Tensor<T>, axis: usize) -> Result<Tensor<u32>> {
    reduced("argmax", x, axis, Op::Max, Stored::Index)
}

/// Returns 1 if any element along an axis is nonzero, otherwise 0. NaN counts as nonzero, as in numpy. Enqueues; does not wait.
///
/// # Shapes
/// As [`sum`]. The result is 0 along an axis without elements.
///
/// # Cost
/// As [`sum`], and one pass over the result.
///
/// # Errors
/// As [`sum`].
///
/// ```
/// use teatime::{Device, Tensor, array};
/// let x = Tensor::from_slice(&Device::best()?, &[0i8, 0, 0, -3], &[2, 2])?;
/// assert_eq!(array::any(&x, 1)?.read()?, [0, 1]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn any<T: Element>(x: &Tensor<T>, axis: usize) -> Result<Tensor<u8>> {
    let flags = reduced::<T, f32>("any", x, axis, Op::Any, Stored::One)?;
    if flags.is_empty() {
        return Tensor::empty(flags.device(), flags.shape());
    }
    converted("any", &flags)
}

/// Returns sums over the middle of three extents, each as a pair for [`joined`](crate::dtype::joined): (outer * inner, 2). Enqueues.
pub(crate) fn sum_pairs<R: Real>(x: &Tensor<R>, extents: [u64; 3]) -> Result<Tensor<f32>> {
    let [outer, len, inner] = extents;
    let shape = [outer * inner, 2];
    if len == 0 || outer * inner == 0 {
        return Tensor::zeros(x.device(), &shape);
    }
    let job = Job { op: Op::Sum, stored: Stored::Two, len };
    Ok(job.run(x, extents)?.into_elements(&shape))
}

/// Returns the form in which results of an element type are stored.
fn value_of<T: Element>() -> Stored {
    if T::DTYPE.is_wide() { Stored::Two } else { Stored::One }
}

/// Checks the arguments, and reduces the elements along an axis.
fn reduced<T: Element, R: Element>(
    name: &'static str,
    x: &Tensor<T>,
    axis: usize,
    op: Op,
    stored: Stored,
) -> Result<Tensor<R>> {
    let mut shape = x.shape().to_vec();
    if axis >= shape.len() {
        let why = format!("{axis}, of a tensor with the shape {:?}", x.shape());
        return Err(Error::argument(name, "axis", why));
    }
    let len = shape.remove(axis);
    let refused = |why: &str| Err(Error::argument(name, "x", format_args!("{why}: shape {:?}", x.shape())));
    match op {
        Op::Mean if len == 0 && !shape.contains(&0) => return refused("the mean of nothing"),
        Op::Min | Op::Max if len == 0 => return refused("an axis without elements has no extreme"),
        _ => {}
    }
    if stored == Stored::Index && len > u32::MAX.into() {
        let max = u32::MAX.into();
        return Err(Error::Limit { what: "elements along the axis of places", requested: len, max });
    }
    if T::DTYPE.is_wide() {
        x.device().computes_f64(name)?;
    }
    if x.is_empty() {
        return Tensor::zeros(x.device(), &shape);
    }
    let product = |extents: &[u64]| extents.iter().product::<u64>();
    let extents = [product(&shape[..axis]), len, product(&shape[axis..])];
    Ok(Job { op, stored, len }.run(x, extents)?.into_elements(&shape))
}

/// The maximum length of a row that one invocation reduces alone. Longer rows take a workgroup.
const SHORT: u64 = 64;

/// A reduction of elements along an axis, and their number.
#[derive(Clone, Copy, Debug)]
struct Job {
    op: Op,
    stored: Stored,
    len: u64,
}

impl Job {
    /// Returns the words of the results: reduces blocks to totals, and totals to further totals, until one is left along the axis.
    fn run<T: Element>(self, x: &Tensor<T>, [outer, len, inner]: [u64; 3]) -> Result<Tensor<u32>> {
        let first = Pass { job: self, x, partial: false, extents: [outer, len, inner] };
        let (mut out, mut left) = first.run()?;
        while let Some(len) = left {
            let next = Pass { job: self, x: &out, partial: true, extents: [outer, len, inner] };
            (out, left) = next.run()?;
        }
        Ok(out)
    }
}

/// One pass over elements, or over totals of four words.
struct Pass<'a, T: Element> {
    job: Job,
    x: &'a Tensor<T>,
    partial: bool,
    extents: [u64; 3],
}

/// The division of a pass into launches, with the extents of a launch, and the number of totals that remain along the axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReductionPlan {
    launch: [u64; 3],
    parts: u64,
}

/// Divides a pass over three extents into launches that read at most `read` items and write at most `made` totals.
///
/// Totals are those of blocks of [`BLOCK`], wherever launches begin. If that many rows do not fit one launch, then each launch takes fewer rows
/// and accumulates into the previous totals. This choice is the same for every index of the outer extent.
fn plan([_, len, inner]: [u64; 3], read: u64, made: u64) -> ReductionPlan {
    let block = u64::from(BLOCK);
    let parts = len.div_ceil(block);
    let (row, out_row) = (len.saturating_mul(inner), parts.saturating_mul(inner));
    if row <= read && out_row <= made {
        return ReductionPlan { launch: [(read / row).min(made / out_row), len, inner], parts };
    }
    if len > block && inner <= made && inner <= read / block {
        let blocks = (read / (block * inner)).min(made / inner);
        return ReductionPlan { launch: [1, blocks * block, inner], parts };
    }
    let cols = inner.min(read).min(made);
    ReductionPlan { launch: [1, ((read - cols) / inner + 1).min(block).min(len), cols], parts: 1 }
}

impl<T: Element> Pass<'_, T> {
    /// Returns results or totals. For totals, also returns their number along the axis.
    fn run(&self) -> Result<(Tensor<u32>, Option<u64>)> {
        let [outer, len, inner] = self.extents;
        let limits = self.x.device().limits();
        let groups = u64::from(limits.groups_per_axis).saturating_pow(2);
        // Results take no more memory than totals.
        let most = if self.by_row() { groups } else { groups.saturating_mul(WG.into()) };
        let made = (limits.room() / 16).min(most);
        let plan = plan(self.extents, limits.room() / (T::DTYPE.size() * self.words()), made);
        let joins = plan.parts == 1 && plan.launch[1] < len;
        let stored = if joins || plan.parts > 1 { Stored::Total } else { self.job.stored };
        let mut out = Tensor::empty(self.x.device(), &[outer * plan.parts * inner, stored.words()])?;
        for rows in blocks(outer, plan.launch[0]) {
            for cols in blocks(inner, plan.launch[2]) {
                for axis in blocks(len, plan.launch[1]) {
                    let part = if joins { 0 } else { axis.start / u64::from(BLOCK) };
                    let to = (rows.start * plan.parts + part) * inner + cols.start;
                    let accumulate = joins && axis.start > 0;
                    self.launch([rows.clone(), axis, cols.clone()], &mut out, to, stored, accumulate)?;
                }
            }
        }
        Ok((out, (stored == Stored::Total).then_some(plan.parts)))
    }

    /// Returns the number of tensor elements in an item.
    fn words(&self) -> u64 {
        if self.partial { Stored::Total.words() } else { 1 }
    }

    /// True if a workgroup computes each total, from adjacent elements.
    fn by_row(&self) -> bool {
        self.extents[2] == 1 && self.extents[1] > SHORT
    }

    /// Launches over a part of the extents. Its totals or results are contiguous from `to` on.
    fn launch(
        &self,
        [rows, axis, cols]: [Range<u64>; 3],
        out: &mut Tensor<u32>,
        to: u64,
        stored: Stored,
        accumulate: bool,
    ) -> Result<()> {
        let [_, len, inner] = self.extents;
        let (x, unit) = (self.x, self.words());
        let first = (rows.start * len + axis.start) * inner + cols.start;
        let end = ((rows.end - 1) * len + axis.end - 1) * inner + cols.end;
        let window = x.window(first * unit..end * unit);
        let count = |range: &Range<u64>| range.end - range.start;
        let blocks = count(&rows) * count(&axis).div_ceil(BLOCK.into());
        let made = blocks * count(&cols);
        let target = out.window_update(to * stored.words()..(to + made) * stored.words());
        let [terms, terms_rest] = halves(self.job.len as f64, false);
        let params = Params {
            outer: small(count(&rows)),
            len: small(count(&axis)),
            inner: small(count(&cols)),
            // A single row may have more columns than 32 bits can count.
            pitch: small(if count(&axis) == 1 { count(&cols) } else { inner }),
            x0: window.start / small(unit),
            out0: target.start,
            // Indices along longer axes are never requested.
            first: small(axis.start & u64::from(u32::MAX)),
            x_type: T::DTYPE.code(),
            op: self.job.op as u32,
            stored: stored as u32,
            accumulate: accumulate.into(),
            zero: 0,
            count: terms,
            count_rest: terms_rest,
        };
        let (device, by_row) = (x.device(), self.by_row());
        let groups = if by_row { blocks } else { made.div_ceil(WG.into()) };
        let work = count(&rows) * count(&axis) * count(&cols);
        let grid = Grid::linear(groups, device.limits().groups_per_axis, work)?;
        let spec = spec(by_row, self.partial, T::DTYPE);
        device.launch(&REDUCE_AXIS, &spec, grid, &[window.arg, target.arg], &params)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn launches_fit() {
        let cases = [
            ([7, 100, 2], 10_000, 300),
            ([7, 10, 10], 99, 1000),
            ([7, 5000, 3], 4000, 100),
            ([7, 5000, 3], 4000, 2),
            ([7, 2048, 1], 1024, 9),
            ([7, 1, 50], 20, 10),
        ];
        for (extents, read, made) in cases {
            let plan = plan(extents, read, made);
            let ([_, len, inner], [rows, axis, cols]) = (extents, plan.launch);
            assert!(rows >= 1 && axis >= 1 && cols >= 1, "{plan:?}");
            assert!(((rows - 1) * len + axis - 1) * inner + cols <= read, "{plan:?}");
            assert!(rows * axis.div_ceil(BLOCK.into()) * cols <= made, "{plan:?}");
            // With several totals, each but the last covers a whole block.
            assert!(plan.parts == 1 || axis == len || axis.is_multiple_of(BLOCK.into()), "{plan:?}");
        }
    }
}
