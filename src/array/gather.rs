//! Rows by index.

use crate::{
    Element, Error, Limits, Result, Tensor,
    extent::{blocks, to_usize},
    kernel::{Grid, small},
    kernels::{
        WG,
        copy_rows::{COPY_ROWS, Params, UNIT, spec, units},
    },
    launch::Arg,
    tensor::Window,
};

/// Gathers rows of a tensor (subarrays along the first axis) in the order of `indices`. An index may occur more than once. Enqueues; does not
/// wait.
///
/// # Shapes
/// `x`: (m, ...), k indices -> (k, ...).
///
/// # Cost
/// Reads and writes the elements of the result. If a tensor is larger than a binding, each part of the result looks for its rows in every part
/// of the tensor that one of its indices is in; this is cheapest if indices ascend.
///
/// # Errors
/// [`Error::Argument`] for an index that is not below m; [`Error::Shape`] for a tensor without axes; [`Error::Limit`] when a
/// row does not fit a binding, or the result a buffer; [`Error::OutOfMemory`].
///
/// ```
/// use teatime::{Device, Tensor, array::gather};
/// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
/// let rows = gather(&x, &[2, 0, 2])?;
/// assert_eq!((rows.shape(), rows.read()?), (&[3, 2][..], vec![5.0, 6.0, 1.0, 2.0, 5.0, 6.0]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn gather<T: Element>(x: &Tensor<T>, indices: &[u64]) -> Result<Tensor<T>> {
    let op = "gather";
    let (m, shape) = shape_of(op, x, indices.len() as u64)?;
    if let Some((place, index)) = indices.iter().enumerate().find(|&(_, &index)| index >= m) {
        let why = format_args!("index {index} at place {place}, of a tensor of {m} rows");
        return Err(Error::argument(op, "indices", why));
    }
    let device = x.device();
    let mut out = Tensor::empty(device, &shape)?;
    if out.is_empty() {
        return Ok(out);
    }
    let mut count = Tensor::empty(device, &[1])?;
    // Kernels count rows in u32.
    for rows in blocks(m, u32::MAX.into()) {
        let own = |&index: &u64| if rows.contains(&index) { small(index - rows.start) } else { u32::MAX };
        let listed: Vec<u32> = indices.iter().map(own).collect();
        let on_device = Tensor::from_slice(device, &listed, &[listed.len() as u64])?;
        let part = x.rows(rows)?;
        gather_rows(&part, &on_device, Some(&listed), &mut count, &mut out)?;
    }
    Ok(out)
}

/// Gathers rows by indices that are on the device, as [`gather`]. Waits once, for the number of indices out of range.
///
/// # Shapes
/// `x`: (m, ...), `indices`: (k,) -> (k, ...).
///
/// # Cost
/// As [`gather`], plus a transfer of 4 bytes to the host. If a tensor is larger than a binding, each part of the result searches every part of
/// the tensor.
///
/// # Errors
/// As [`gather`], with an [`Error::Argument`] that gives the number of indices out of range; [`Error::Shape`] unless `indices` has one axis;
/// [`Error::WrongDevice`]; [`Error::Limit`] for 2^32 indices or more.
///
/// ```
/// use teatime::{Device, Tensor, array::gather_by};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
/// let indices = Tensor::from_slice(&device, &[2u32, 0], &[2])?;
/// assert_eq!(gather_by(&x, &indices)?.read()?, [5.0, 6.0, 1.0, 2.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn gather_by<T: Element>(x: &Tensor<T>, indices: &Tensor<u32>) -> Result<Tensor<T>> {
    let (op, device) = ("gather_by", x.device());
    let [k] = *indices.shape() else {
        let got = format_args!("indices of shape {:?}", indices.shape());
        return Err(Error::shape(op, "indices of one axis", got));
    };
    let (m, shape) = shape_of(op, x, k)?;
    device.has(op, "indices", indices.device())?;
    if k > u64::from(u32::MAX) {
        return Err(Error::Limit { what: "indices of one call", requested: k, max: u32::MAX.into() });
    }
    let mut out = Tensor::empty(device, &shape)?;
    let refused: u64 = if !out.is_empty() && m > 0 {
        let mut count = Tensor::zeros(device, &[1])?;
        gather_rows(x, indices, None, &mut count, &mut out)?;
        count.read()?.into_iter().map(u64::from).sum()
    } else if k > 0 {
        // No kernel checks these indices, as there is nothing to copy.
        indices.read()?.into_iter().filter(|&index| u64::from(index) >= m).count() as u64
    } else {
        0
    };
    if refused > 0 {
        let why = format_args!("{refused} of {k} are not below {m}, the number of rows");
        return Err(Error::argument(op, "indices", why));
    }
    Ok(out)
}

/// Returns the number of rows of a tensor, and the shape of `k` rows.
fn shape_of<T: Element>(op: &'static str, x: &Tensor<T>, k: u64) -> Result<(u64, Vec<u64>)> {
    let Some((&m, of_row)) = x.shape().split_first() else {
        return Err(Error::shape(op, "at least one axis", "shape []"));
    };
    Ok((m, [k].iter().chain(of_row).copied().collect()))
}

/// Fills `out`, which is not empty, with rows of `x` by index. `listed` are the indices on the host: each is in range, or stands for a row of
/// `out` that another part fills. Without `listed`, the kernel counts indices out of range.
fn gather_rows<T: Element>(
    x: &Tensor<T>,
    indices: &Tensor<u32>,
    listed: Option<&[u32]>,
    count: &mut Tensor<u32>,
    out: &mut Tensor<T>,
) -> Result<()> {
    let k = indices.len();
    // Indices have 32 bits.
    let (m, cols) = (x.shape()[0].min(1 << 32), out.len() / k);
    let most = Most::new(x.device().limits());
    let step = most.rows(cols * T::DTYPE.size())?;
    for rows in blocks(k, step.min(most.bytes / 4)) {
        for panel in blocks(m, step) {
            let of_rows = listed.map(|listed| &listed[to_usize(rows.start)..to_usize(rows.end)]);
            if of_rows.is_some_and(|listed| !listed.iter().any(|&index| panel.contains(&u64::from(index)))) {
                continue;
            }
            let counts = listed.is_none() && panel.start == 0;
            let chosen = Chosen {
                indices: indices.window(rows.clone()),
                first_row: small(panel.start),
                x_rows: small(panel.end - panel.start),
                last_row: if counts { small(m - 1) } else { u32::MAX },
            };
            let span = (rows.end - rows.start) * cols;
            let part = CopiedRows { segments: 1, span, pitch: span, cols };
            let from = x.window(panel.start * cols..panel.end * cols);
            let to = out.window_update(rows.start * cols..rows.end * cols);
            copy_rows::<T>(&part, Some(&chosen), from, to, count.window_update(0..1).arg)?;
        }
    }
    Ok(())
}

/// The maximum amounts that one launch of the kernel takes.
pub(super) struct Most {
    /// Bytes of rows, including gaps between segments.
    pub(super) bytes: u64,
    /// Units over all segments.
    pub(super) units: u64,
}

impl Most {
    pub(super) fn new(limits: &Limits) -> Self {
        let groups = u64::from(limits.groups_per_axis).saturating_pow(2).min(1 << 21);
        let units = groups * u64::from(WG);
        // Windows start up to an alignment early and end with a whole unit; kernels count in u32.
        let counted = u64::from(u32::MAX).saturating_sub(limits.alignment + 4 * UNIT);
        Self { bytes: limits.room().min(counted).min(UNIT * (units - 2)), units }
    }

    /// Returns the maximum number of rows. Fails with [`Error::Limit`] if one row does not fit.
    pub(super) fn rows(&self, row: u64) -> Result<u64> {
        match self.bytes / row {
            0 => Err(Error::Limit { what: "bytes in one row of a matrix", requested: row, max: self.bytes }),
            rows => Ok(rows),
        }
    }
}

/// The part of `out` that one launch writes, in elements: segments of whole rows of `x`, at a distance of `pitch`.
pub(super) struct CopiedRows {
    pub(super) segments: u64,
    pub(super) span: u64,
    pub(super) pitch: u64,
    pub(super) cols: u64,
}

/// Row indices, and the range of rows of `x` that the launch can see.
pub(super) struct Chosen<'a> {
    indices: Window<'a>,
    first_row: u32,
    x_rows: u32,
    last_row: u32,
}

/// Returns the bytes of a kernel's unit of copying, and the number of these in an element: f64 is two words.
const fn words<T: Element>() -> (u64, u64) {
    let size = T::DTYPE.size();
    if size == 8 { (4, 2) } else { (size, 1) }
}

/// Returns the number of units in a segment of `span` elements.
pub(super) const fn units_of<T: Element>(span: u64) -> u64 {
    let (bytes, per) = words::<T>();
    units(span * per, bytes)
}

/// Launches the kernel. With `chosen`, it copies the chosen rows to contiguous rows; otherwise it copies all rows in order.
pub(super) fn copy_rows<T: Element>(
    part: &CopiedRows,
    chosen: Option<&Chosen<'_>>,
    x: Window<'_>,
    out: Window<'_>,
    count: Arg<'_>,
) -> Result<()> {
    let (bytes, per) = words::<T>();
    let of_elements = [part.span, part.pitch, part.cols, x.start.into(), out.start.into()];
    let [span, pitch, cols, x0, out0] = of_elements.map(|elements| small(elements * per));
    let all_rows = small(part.segments * (part.span / part.cols));
    let params = Params {
        segments: small(part.segments),
        span,
        pitch,
        units: small(units_of::<T>(part.span)),
        cols,
        x0,
        out0,
        index0: chosen.map_or(0, |chosen| chosen.indices.start),
        first_row: chosen.map_or(0, |chosen| chosen.first_row),
        x_rows: chosen.map_or(all_rows, |chosen| chosen.x_rows),
        last_row: chosen.map_or(u32::MAX, |chosen| chosen.last_row),
    };
    let device = x.arg.device;
    let groups = (part.segments * u64::from(params.units)).div_ceil(WG.into());
    let grid = Grid::linear(groups, device.limits().groups_per_axis, part.segments * part.span)?;
    // Without `chosen`, the kernel reads no indices.
    let indices = chosen.map_or(x.arg, |chosen| chosen.indices.arg);
    device.launch(
        &COPY_ROWS,
        &spec(bytes, chosen.is_some()),
        grid,
        &[x.arg, indices, out.arg, count],
        &params,
    )
}
