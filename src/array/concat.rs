//! Concatenation of tensors.

use super::gather::{CopiedRows, Most, copy_rows, units_of};
use crate::{Element, Error, Result, Tensor, extent::blocks};

/// Concatenates tensors along an axis, as `numpy.concatenate`. Enqueues; does not wait.
///
/// # Shapes
/// All extents are equal except along `axis`, where the result has the sum. Along axis 1: (m, n), (m, k) -> (m, n + k).
///
/// # Cost
/// One pass over the result. Along the first axis, the driver copies elements that are whole words; otherwise each tensor takes one launch or
/// more.
///
/// # Errors
/// [`Error::Argument`] for no tensors, or an axis that they do not have; [`Error::Shape`] for shapes that differ along another axis;
/// [`Error::WrongDevice`]; [`Error::Limit`] when the result does not fit a buffer, or when it has several rows (a row is everything behind one
/// index of the axes before `axis`) and one does not fit a binding; [`Error::OutOfMemory`].
///
/// ```
/// use teatime::{Device, Tensor, array::concat};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[1.0f32, 2.0], &[2, 1])?;
/// let y = Tensor::from_slice(&device, &[3.0f32, 4.0, 5.0, 6.0], &[2, 2])?;
/// let both = concat(&[&x, &y], 1)?;
/// assert_eq!((both.shape(), both.read()?), (&[2, 3][..], vec![1.0, 3.0, 4.0, 2.0, 5.0, 6.0]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn concat<T: Element>(tensors: &[&Tensor<T>], axis: usize) -> Result<Tensor<T>> {
    let op = "concat";
    let Some((first, others)) = tensors.split_first() else {
        return Err(Error::argument(op, "tensors", "none given"));
    };
    let (device, rank) = (first.device(), first.shape().len());
    if axis >= rank {
        return Err(Error::argument(op, "axis", format_args!("{axis}, of tensors of {rank} axes")));
    }
    let mut shape = first.shape().to_vec();
    for other in others {
        let mut along = other.shape().iter().zip(first.shape()).enumerate();
        if other.shape().len() != rank || along.any(|(i, (a, b))| i != axis && a != b) {
            let expected = format_args!("{:?} but for axis {axis}", first.shape());
            return Err(Error::shape(op, expected, format_args!("{:?}", other.shape())));
        }
        device.has(op, "tensors", other.device())?;
        shape[axis] = shape[axis].saturating_add(other.shape()[axis]);
    }
    let mut out = Tensor::empty(device, &shape)?;
    if out.is_empty() {
        return Ok(out);
    }
    let mut count = Tensor::empty(device, &[1])?;
    let outer: u64 = shape[..axis].iter().product();
    let mut column = 0;
    for x in tensors.iter().filter(|x| !x.is_empty()) {
        if outer == 1 {
            append(x, column, &mut out, &mut count)?;
        } else {
            fill_columns(x, outer, column, &mut out, &mut count)?;
        }
        column += x.len() / outer;
    }
    Ok(out)
}

/// Copies all elements of `x` to `out`, from element `first` on.
fn append<T: Element>(x: &Tensor<T>, first: u64, out: &mut Tensor<T>, count: &mut Tensor<u32>) -> Result<()> {
    let (device, size) = (x.device(), T::DTYPE.size());
    let [from, to] = [x.slice(0, x.bytes()), out.slice(first * size, x.bytes())];
    if [from.offset, to.offset, to.bytes].iter().all(|bytes| bytes.is_multiple_of(4)) {
        device.check()?;
        device.count_between(to.bytes);
        return device.driver().copy(from, to);
    }
    for elements in blocks(x.len(), Most::new(device.limits()).bytes / size) {
        let span = elements.end - elements.start;
        let part = CopiedRows { segments: 1, span, pitch: span, cols: span };
        let to = out.window_update(first + elements.start..first + elements.end);
        copy_rows::<T>(&part, None, x.window(elements), to, count.window_update(0..1).arg)?;
    }
    Ok(())
}

/// Copies the `rows` rows of `x` to the columns of `out` from `column` on.
fn fill_columns<T: Element>(
    x: &Tensor<T>,
    rows: u64,
    column: u64,
    out: &mut Tensor<T>,
    count: &mut Tensor<u32>,
) -> Result<()> {
    let [cols, pitch] = [x.len(), out.len()].map(|elements| elements / rows);
    let most = Most::new(x.device().limits());
    let step = most.rows(pitch * T::DTYPE.size())?.min(most.units / units_of::<T>(cols));
    for rows in blocks(rows, step) {
        let part = CopiedRows { segments: rows.end - rows.start, span: cols, pitch, cols };
        let from = x.window(rows.start * cols..rows.end * cols);
        let first = rows.start * pitch + column;
        let to = out.window_update(first..first + (part.segments - 1) * pitch + cols);
        copy_rows::<T>(&part, None, from, to, count.window_update(0..1).arg)?;
    }
    Ok(())
}
