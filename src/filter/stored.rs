//! Gaussians of stored arrays, box by box: neither the array nor the result has to fit memory.

use std::{ops::Range, sync::Arc};

use super::{
    axis::BoxAxis,
    boxes::Filter,
    gaussian::{gaussian_of, image_scale},
    options::{GaussianOptions, PerAxis},
};
use crate::{
    ChunkedArray, DType, Device, Element, Error, Needs, Result, Run, SharedArray, StoredType,
    driver::HostBytes,
    dtype::with_dtype,
    kernels::correlate::Edge,
    stable_text::StableText,
    store::BoxWriter,
    stream::{
        AsStored, Beyond, Block, Convert, Misfit, Narrow, Narrowed, Place, Sweep, Swept, UntypedOperation,
    },
    timeline::Stage,
    untyped::{Untyped, empty_of},
};

const OP: &str = "gaussian";

/// Writes the [`gaussian`](super::gaussian()) of a stored array into another array, box by box, and finishes that array. Waits for the
/// device.
///
/// The values equal those of filtering the whole array, to the last bit, whatever the boxes are. `begin` creates or resumes the array
/// (`ArrayWriter::resume`, of [Zarr](crate::store)); its argument is a text for the job that describes everything that the values depend
/// on, except for the elements of `x`. Existing boxes are not computed again. Progress counts elements.
///
/// # Shapes and types
/// `x`: one to five axes. The array that `begin` creates has the same shape, and is of f32, f64 or the type of `x`. Booleans are read as
/// the numbers 0 and 1 of one byte, also as images ([`GaussianOptions::preserve_range`]). 64-bit integers are filtered as f64, and the
/// output is then f32 or f64.
///
/// # Errors
/// The errors of [`gaussian`](super::gaussian()) and of `begin`; [`Error::Shape`] for an array of another shape; [`Error::Argument`] for an
/// array of another type, and for a halo that wraps an axis more than 1024 times; [`Error::Chunk`] for a chunk that cannot be read, and
/// for integers that sums would round: above 2^53 - 1, or 2^24 in f32; [`Error::Budget`], with the required minimum, if boxes of one tile
/// do not fit; [`Error::Io`] for a tile that cannot be written, for example because the disk is full, which ends the pass;
/// [`Error::Cancelled`]. Boxes already written are kept.
///
/// # Cost
/// The cost of a [`Sweep`]; on the device, a box takes what [`gaussian`](super::gaussian()) takes for an array of its size.
///
/// ```
/// # #[cfg(feature = "zarr")] {
/// use std::sync::Arc;
/// use teatime::{
///     ChunkedArray, Device, MissingChunk, Run, StoredType,
///     filter::{GaussianOptions, write_gaussian},
///     store::{ArraySpec, ArrayWriter, Folder, MemoryArray, ZarrArray},
/// };
///
/// let x = Arc::new(MemoryArray::new("image", &[0u8, 0, 9, 0, 0, 0], &[2, 3], &[1, 2])?);
/// # let folder = tempfile::tempdir()?;
/// let storage = Arc::new(Folder::new(folder.path()));
/// let begin = |job: &str| {
///     let mut spec = ArraySpec::new(StoredType::F32, &[2, 3], &[2, 2]);
///     spec.job = Some(job.to_owned());
///     ArrayWriter::resume(storage, "blurred", spec)
/// };
/// let options = GaussianOptions::default().radius(1);
/// let written = write_gaussian(&x, [0.0, 1.0], &options, &Device::cpu(), &Run::default(), begin)?;
/// assert_eq!((written.boxes, written.times_decoded), (1, 1.0));
/// let blurred = ZarrArray::open(folder.path(), "blurred", MissingChunk::Error)?;
/// let first: Vec<f32> = teatime::bytemuck::pod_collect_to_vec(&blurred.read_chunk(&[0, 0])?.bytes);
/// assert!(first[0] == 0.0 && (first[1] - 9.0 * 0.27407).abs() < 1e-4);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_gaussian<W: BoxWriter>(
    x: &impl SharedArray,
    sigma: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
    device: &Device,
    run: &Run,
    begin: impl FnOnce(&str) -> Result<W>,
) -> Result<Swept> {
    let (x, sigma) = (&x.shared(), sigma.into());
    let job = job(x.shape(), x.dtype(), &sigma, options, &device.info().name);
    let wide = !options.narrow && device.limits().f64;
    let read = read_type(x.dtype(), wide);
    let filter = |to| gaussian_of(OP, x.shape(), to, scale(x.dtype()), (&sigma, options), Some(&run.cancel));
    // This check precedes the creation of the array.
    filter(DType::F32)?;
    let (writer, sweep) = (begin(&job)?, sweep(x, (read, wide), device, run));
    sweep.check_shape(&writer)?;
    let Some(to) = out_type(writer.dtype(), read) else {
        let (to, from) = (writer.dtype(), x.dtype());
        let why =
            format_args!("an array of {to:?} for one of {from:?}; F32, F64 and its own type are possible");
        return Err(Error::argument(OP, "writer", why));
    };
    let operation = StoredFilter::new(filter(to)?, [read, to], device)?;
    let swept = sweep.map_untyped(&operation, &writer)?;
    let _span = device.span(Stage::Flush, "");
    writer.finish()?;
    Ok(swept)
}

/// Returns the text of the job for an array of this shape and type.
fn job(
    shape: &[u64],
    dtype: StoredType,
    sigma: &PerAxis<f64>,
    options: &GaussianOptions,
    device: &str,
) -> String {
    let [dtype, sigma, options] = [dtype.stable_text(), sigma.stable_text(), options.stable_text()];
    format!("{shape:?} {dtype} {sigma} {options} {device}")
}

/// Returns the elements of a box of the [`gaussian`](super::gaussian()) of a stored array, in C order. Waits for the device.
///
/// The values equal those of filtering the whole array, to the last bit. This serves programs that handle the results of
/// [`write_gaussian`] themselves, such as the tasks of a cluster, or a viewer. Progress counts elements.
///
/// # Shapes and types
/// `x`: one to five axes; `within`: a range along each axis. Types are those of [`write_gaussian`].
///
/// # Errors
/// The errors of [`gaussian`](super::gaussian()) and [`write_gaussian`]; [`Error::Argument`] for a wrong number of ranges, and for a range
/// that exceeds `x`; [`Error::OutOfHostMemory`].
///
/// # Cost
/// The cost of [`write_gaussian`] for the chunks that hold the box and the elements within the radius around it, and host memory for the
/// result.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, filter::{GaussianOptions, gaussian_box}, store::MemoryArray};
///
/// let x = Arc::new(MemoryArray::new("image", &[0u8, 0, 9, 0, 0, 0], &[2, 3], &[1, 2])?);
/// let (options, run) = (GaussianOptions::default().radius(1), Run::default());
/// let blurred: Vec<f32> = gaussian_box(&x, [0.0, 1.0], &options, &[0..1, 1..3], &Device::cpu(), &run)?;
/// assert!((blurred[0] - 9.0 * 0.27407).abs() < 1e-4 && (blurred[1] - 9.0 * 0.72593).abs() < 1e-4);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn gaussian_box<U: Element>(
    x: &impl SharedArray,
    sigma: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
    within: &[Range<u64>],
    device: &Device,
    run: &Run,
) -> Result<Vec<U>> {
    let x = &x.shared();
    let wide = !options.narrow && device.limits().f64;
    let types @ [read, _] = [read_type(x.dtype(), wide), U::DTYPE];
    let filter =
        gaussian_of(OP, x.shape(), U::DTYPE, scale(x.dtype()), (&sigma.into(), options), Some(&run.cancel))?;
    filter.check_type(types)?;
    let sweep = sweep(x, (read, wide), device, run).within(within)?;
    sweep.map_untyped_to_host(&StoredFilter::new(filter, types, device)?)
}

/// Returns the type that elements are read as: the stored type if possible, or else f64, or f32 unless sums may be `wide`.
fn read_type(dtype: StoredType, wide: bool) -> DType {
    let real = if wide { DType::F64 } else { DType::F32 };
    if dtype == StoredType::Bool { DType::U8 } else { dtype.element().unwrap_or(real) }
}

/// Makes a sweep of elements that are read as `read`. Integers that sums would round are refused.
fn sweep<'a>(
    x: &Arc<dyn ChunkedArray>,
    (read, wide): (DType, bool),
    device: &'a Device,
    run: &'a Run,
) -> Sweep<'a> {
    let sweep = Sweep::new(x, device, run).named(OP);
    match read {
        DType::I32 | DType::U32 if !wide => sweep.convert(Arc::new(Checked(x.dtype()))),
        _ => sweep,
    }
}

/// Keeps 32-bit integers as stored, and refuses those that f32 does not represent.
#[derive(Debug)]
struct Checked(StoredType);

/// The conversion that refuses integers that f32 does not represent.
const IN_F32: Narrow = {
    let most = Narrowed::F32.whole();
    Narrow { to: Narrowed::F32, range: [-most, most], negative_is_missing: false, nan_is_missing: false }
};

impl Convert for Checked {
    fn accepts(&self, array: &dyn ChunkedArray) -> Result<()> {
        AsStored(self.0).accepts(array)
    }

    fn bytes(&self, elements: u64) -> u64 {
        AsStored(self.0).bytes(elements)
    }

    fn convert(&self, array: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit> {
        // This conversion only checks the elements; its output has the same size, and is overwritten.
        IN_F32.convert(array, from, to)?;
        AsStored(self.0).convert(array, from, to)
    }
}

/// Returns the factor that skimage applies to elements, if any; booleans are the values 0 and 1 of an image.
pub(super) fn scale(dtype: StoredType) -> Option<f64> {
    match dtype {
        StoredType::Bool => Some(1.0),
        StoredType::I64 => Some((i64::MAX as f64).recip()),
        StoredType::U64 => Some((u64::MAX as f64).recip()),
        _ => dtype.element().and_then(image_scale),
    }
}

/// Returns the element type of an array that is written, if the filter supports it for the type `read`.
fn out_type(dtype: Option<StoredType>, read: DType) -> Option<DType> {
    dtype?.element().filter(|to| [read, DType::F32, DType::F64].contains(to))
}

/// A filter as an operation on boxes.
struct StoredFilter {
    filter: Filter,
    /// The types of the elements that are read, and of those that are written.
    types: [DType; 2],
    /// True if sums are in f64.
    wide: bool,
}

impl StoredFilter {
    /// Fails with [`Error::NoF64`].
    fn new(filter: Filter, types: [DType; 2], device: &Device) -> Result<Self> {
        let wide = filter.is_wide(types);
        if wide {
            device.computes_f64(OP)?;
        }
        Ok(Self { filter, types, wide })
    }

    fn axis(&self, axis: usize) -> &BoxAxis {
        &self.filter.axes[axis]
    }

    /// Returns the number of bytes of a sum.
    fn real(&self) -> u64 {
        if self.wide { 8 } else { 4 }
    }
}

impl UntypedOperation for StoredFilter {
    fn types(&self) -> [DType; 2] {
        self.types
    }

    fn halo(&self, axis: usize) -> [u64; 2] {
        [self.axis(axis).radius(); 2]
    }

    fn beyond(&self, axis: usize) -> Beyond {
        let wraps = self.axis(axis).taps.as_ref().is_some_and(|taps| taps.edge == Edge::Wrap);
        if wraps { Beyond::Wrap } else { Beyond::Clip }
    }

    fn knows_whole_axes(&self) -> bool {
        true
    }

    fn widest(&self) -> u64 {
        self.types.map(DType::size).into_iter().fold(self.real(), u64::max)
    }

    fn needs(&self, shape: &[u64], device: &Device) -> Needs {
        let sums = self.filter.arrays_between(shape, device, self.types) * self.real();
        shape.iter().fold(Needs::device(sums), |needs, &extent| needs * extent)
    }

    fn run(&self, block: Block<'_>, place: &Place, device: &Device) -> Result<HostBytes> {
        let of_box = self.filter.of_box(&place.shape, &place.core, &place.before);
        let mut out = empty_of(self.types[1], device, &place.extents())?;
        let x: Box<dyn Untyped> = with_dtype!(self.types[0], T => Box::new(block.tensor::<T>(&place.shape)?));
        of_box.run(&*x, &mut *out)?;
        out.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::{Mode, Rounding};

    /// The text must not change, so that arrays that were begun with it can be resumed.
    #[test]
    fn words_of_a_job_stay() {
        let sigma = PerAxis::Each(vec![1.5, 1e-7]);
        let options = GaussianOptions::default()
            .axes([0, 2])
            .order([0, 1])
            .mode([Mode::Constant(-1.0), Mode::Mirror])
            .radius(3)
            .rounding(Rounding::Scipy);
        let expected = "[4, 5, 6] U16 Each([1.5, 1e-7]) GaussianOptions { axes: Some([0, 2]), order: Each([0, 1]), \
                        mode: Each([Constant(-1.0), Mirror]), truncate: 4.0, radius: Some(All(3)), rounding: Scipy, \
                        preserve_range: true, narrow: false } cpu";
        assert_eq!(job(&[4, 5, 6], StoredType::U16, &sigma, &options, "cpu"), expected);
    }
}
