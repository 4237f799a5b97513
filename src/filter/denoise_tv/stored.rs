//! Total variation denoising of stored arrays, box by box.

use std::{
    ops::Range,
    sync::{Arc, Mutex, PoisonError},
};

use super::{
    OP, TvOptions,
    projection::{Core, Frame, Projection, Rule, Sum},
};
use crate::{
    DType, Device, Element, Error, Needs, Real, Result, Run, SharedArray, StoredType, Tensor,
    driver::HostBytes,
    dtype::with_dtype,
    extent::to_usize,
    filter::stored::scale,
    kernels::WG,
    stable_text::StableText,
    store::BoxWriter,
    stream::{Beyond, Block, Narrow, Narrowed, Place, Sweep, Swept, UntypedOperation},
    timeline::Stage,
    waiting::lock,
};

/// The numbers of iterations of [`write_denoised_tv`], and the boxes, memory and time that it took.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DenoisedTv {
    /// The number of iterations for each image, in C order of the axes that are not denoised; 0 for images that were written before, if
    /// images are denoised as a whole.
    pub iterations: Vec<u64>,
    /// The counts of the last pass.
    pub swept: Swept,
}

/// The largest multiple of the weight that an element may be: the square of a difference of two must be finite in f32.
const MOST: f64 = 1e18;
/// The maximum number of images, each of which has its own energies.
const MAX_IMAGES: u64 = 1 << 20;
/// The maximum number of energies of the first pass that measures them, and the factor for each further pass.
const ENERGIES: u64 = 8;
const MORE: u64 = 3;
/// The target bytes of a box as read, for each element of its halo: halos are computed as often as boxes, so they should be a small part.
const BYTES_PER_HALO: u64 = 32 << 20;

/// Writes [`denoise_tv`](super::denoise_tv) of a stored array into another, box by box: neither has to fit memory. Waits for the device.
///
/// `begin` receives the job, a text that names all that the result depends on besides the elements, and returns the writer of an array of
/// f32 or f64. Boxes that are written already are not computed again, but energies are.
///
/// If memory holds an image and its fields, each image is read and denoised at once. Otherwise it is cut into boxes with a halo of one
/// element for each iteration, so that the result is the same to the bit however it is cut: no state is kept between boxes or passes. With
/// an [`eps`](TvOptions::eps), passes before that measure the energies of the first 8, 24, 72... iterations of the whole image until
/// they end the iteration. Their sums have 106 bits, so that the number of iterations does not depend on the cut either.
///
/// # Shapes and types
/// `x`: one to five axes. Computation is in f32, and in f64 for f64 and integers of 32 and 64 bits, unless [`TvOptions::narrow`] is set.
///
/// # Errors
/// The errors of [`denoise_tv`](super::denoise_tv), with [`Error::Chunk`] for elements that are infinite, NaN or above 10^18 times the
/// weight, and for integers above 2^53 - 1; the errors of [`Sweep::map`], of which [`Error::Budget`] with an `eps` names memory that is enough
/// for any number of iterations, and may come after the energies are measured, since these decide how large a halo is; [`Error::Limit`] if
/// a tile with its halo does not fit a binding of the device; [`Error::Argument`] for more than 2^20 images; errors of `begin`.
///
/// # Cost
/// The cost of a [`Sweep`] with a halo of as many elements as there are iterations, less 1, and with larger boxes: the device holds two
/// numbers for each element and axis of a box and its halo; for a whole image of f32 on the cpu, memory takes 16 + 8 n bytes for each
/// element. A box of s elements along each of n axes computes (1 + 2 i / s)^n times as many elements as it has, for i iterations.
///
/// ```
/// # #[cfg(feature = "zarr")] {
/// use std::sync::Arc;
/// use teatime::{
///     Device, Run, StoredType,
///     filter::{TvOptions, write_denoised_tv},
///     store::{ArraySpec, ArrayWriter, Folder, MemoryArray},
/// };
///
/// let x = Arc::new(MemoryArray::new("image", &[9u8, 11, 10, 250, 249, 252], &[6], &[4])?);
/// # let folder = tempfile::tempdir()?;
/// let storage = Arc::new(Folder::new(folder.path()));
/// let begin = |job: &str| {
///     let mut spec = ArraySpec::new(StoredType::F32, &[6], &[3]);
///     spec.job = Some(job.to_owned());
///     ArrayWriter::resume(storage, "denoised", spec)
/// };
/// let denoised = write_denoised_tv(&x, &TvOptions::default(), &Device::cpu(), &Run::default(), begin)?;
/// assert!(denoised.iterations[0] > 1);
/// # }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_denoised_tv<W: BoxWriter>(
    x: &impl SharedArray,
    options: &TvOptions,
    device: &Device,
    run: &Run,
    begin: impl FnOnce(&str) -> Result<W>,
) -> Result<DenoisedTv> {
    let x = &x.shared();
    let (shape, stored) = (x.shape(), x.dtype());
    let scale = scale(stored).unwrap_or(1.0);
    let axes = options.image_axes(shape, scale)?;
    let others = (0..shape.len()).filter(|axis| !axes.contains(axis)).map(|axis| shape[axis]);
    let count = if shape.contains(&0) { 0 } else { others.fold(1, u64::saturating_mul) };
    if count > MAX_IMAGES {
        let why = format_args!("{count} images along the other axes; at most {MAX_IMAGES}");
        return Err(Error::argument(OP, "axes", why));
    }
    // The iterations of a box take long: each of them looks at the flag of the device's handle.
    let device = &device.also_cancelled_by(&run.cancel);
    let (read, narrowed) = match options.computed_type(stored) {
        StoredType::F64 => (DType::F64, Narrowed::F64),
        _ => (DType::F32, Narrowed::F32),
    };
    if read == DType::F64 {
        device.computes_f64(OP)?;
    }
    let words = [stored.stable_text(), options.stable_text()];
    let writer = begin(&format!("{OP} {shape:?} {} {} {}", words[0], words[1], device.info().name))?;
    let Some(to) =
        writer.dtype().and_then(StoredType::element).filter(|to| [DType::F32, DType::F64].contains(to))
    else {
        let why = format_args!("an array of {:?}; F32 and F64 are possible", writer.dtype());
        return Err(Error::argument(OP, "writer", why));
    };
    let is_integer = scale != 1.0 && stored != StoredType::Bool;
    let finite = if read == DType::F64 { f64::MAX } else { f32::MAX.into() };
    let exact = if is_integer && !options.narrow { narrowed.whole() } else { finite };
    let most = (MOST * options.weight / scale).min(finite).min(exact);
    let convert =
        Narrow { to: narrowed, range: [-most, most], negative_is_missing: false, nan_is_missing: false };
    let sweep = Sweep::new(x, device, run).named(OP).convert(Arc::new(convert));
    sweep.check_shape(&writer)?;
    let (shape, count) = (shape.to_vec(), to_usize(count));
    let images = Images { axes, shape, scale, weight: options.weight, types: [read, to], count };
    let denoised = images.write(&sweep, &Rule::new(options), device, &writer)?;
    let _span = device.span(Stage::Flush, "");
    writer.finish()?;
    Ok(denoised)
}

/// The images of a stored array, and their computation.
struct Images {
    axes: Vec<usize>,
    shape: Vec<u64>,
    scale: f64,
    weight: f64,
    /// The types of the elements that are read, and of those that are written.
    types: [DType; 2],
    /// The number of images; 0 for an array without elements.
    count: usize,
}

impl Images {
    fn write(
        &self,
        sweep: &Sweep<'_>,
        rule: &Rule,
        device: &Device,
        writer: &impl BoxWriter,
    ) -> Result<DenoisedTv> {
        if rule.measures() && self.image_fits(device) {
            let iterations = Mutex::new(vec![0; self.count]);
            let swept = sweep.map_untyped(&self.boxes(Until::Rule(rule, &iterations)), writer);
            let iterations = iterations.into_inner().unwrap_or_else(PoisonError::into_inner);
            let is_untouched = iterations.iter().all(|count| *count == 0);
            match swept {
                // A writer may refuse a second pass over boxes that it has.
                Err(Error::Budget { .. } | Error::OutOfMemory { .. } | Error::Limit { .. })
                    if is_untouched => {}
                swept => return Ok(DenoisedTv { iterations, swept: swept? }),
            }
        }
        let short =
            |error| if rule.measures() { self.enough(error, sweep, rule, device, writer) } else { error };
        let updates = if rule.measures() {
            self.updates(sweep, rule).map_err(short)?
        } else {
            vec![rule.most; self.count]
        };
        let swept = sweep.map_untyped(&self.boxes(Until::Updates(&updates)), writer).map_err(short)?;
        Ok(DenoisedTv { iterations: updates.into_iter().map(|updates| updates + 1).collect(), swept })
    }

    /// Puts memory that is enough into the error of a pass that has too little: that of a whole image, or of the longest iteration.
    fn enough(
        &self,
        mut error: Error,
        sweep: &Sweep<'_>,
        rule: &Rule,
        device: &Device,
        writer: &impl BoxWriter,
    ) -> Error {
        if let Error::Budget { memory, minimum, .. } = &mut error {
            let (none, most) = (Mutex::default(), vec![rule.most; self.count]);
            let sums = Mutex::default();
            let nowhere = Nowhere { shape: &self.shape };
            let whole = self.boxes(Until::Rule(rule, &none));
            let whole = self.image_fits(device).then(|| sweep.least(&whole, writer, *memory)).flatten();
            let measured = sweep.least(&self.boxes(Until::Energies(rule.most, &sums)), &nowhere, *memory);
            let written = sweep.least(&self.boxes(Until::Updates(&most)), writer, *memory);
            let longest = measured.zip(written).map(|(measured, written)| measured.max(written));
            let enough = [whole, longest].into_iter().flatten().min().unwrap_or(0);
            *minimum = enough.max(*minimum);
        }
        error
    }

    /// True if the fields of a whole image fit a binding of the device.
    fn image_fits(&self, device: &Device) -> bool {
        let count = self.axes.iter().fold(1, |count: u64, &axis| count.saturating_mul(self.shape[axis]));
        count.saturating_mul(self.axes.len() as u64 * self.types[0].size()) <= device.limits().room()
    }

    /// Returns the number of updates for each image, from the energies of the whole images.
    fn updates(&self, sweep: &Sweep<'_>, rule: &Rule) -> Result<Vec<u64>> {
        let mut times = ENERGIES;
        loop {
            times = times.min(rule.most);
            let energies = Mutex::new(vec![vec![Sum::default(); to_usize(times)]; self.count]);
            let boxes = self.boxes(Until::Energies(times, &energies));
            sweep.map_untyped(&boxes, &Nowhere { shape: &self.shape })?;
            let energies = energies.into_inner().unwrap_or_else(PoisonError::into_inner);
            let updates = energies
                .iter()
                .map(|sums| rule.updates(&sums.iter().map(|sum| sum.value()).collect::<Vec<_>>()));
            if let Some(updates) = updates.collect() {
                return Ok(updates);
            }
            times *= MORE;
        }
    }

    fn boxes<'a>(&'a self, until: Until<'a>) -> ImageBoxes<'a> {
        ImageBoxes { images: self, until }
    }
}

/// The end of the updates of the fields, and the numbers that are gathered.
enum Until<'a> {
    /// A rule for images that boxes hold as a whole; the numbers of iterations of the images.
    Rule(&'a Rule, &'a Mutex<Vec<u64>>),
    /// The number of updates for each image.
    Updates(&'a [u64]),
    /// The number of energies to measure, and their sums for each image.
    Energies(u64, &'a Mutex<Vec<Vec<Sum>>>),
}

/// The denoising of images as an operation on boxes.
struct ImageBoxes<'a> {
    images: &'a Images,
    until: Until<'a>,
}

impl ImageBoxes<'_> {
    /// Returns the number of halo elements along an axis of an image with `extent` elements.
    fn reach(&self, extent: u64) -> u64 {
        match &self.until {
            Until::Rule(..) => extent,
            Until::Updates(updates) => updates.iter().copied().max().unwrap_or(0),
            Until::Energies(times, _) => *times,
        }
    }

    fn run_in<R: Real>(&self, block: Block<'_>, place: &Place, device: &Device) -> Result<HostBytes> {
        let (Images { axes, scale, weight, .. }, extents) = (self.images, place.extents());
        let in_image = |values: &[u64], lacking: u64| {
            let mut out = [lacking; 3];
            axes.iter().enumerate().for_each(|(i, &axis)| out[3 - axes.len() + i] = values[axis]);
            out
        };
        let core = Core { start: in_image(&place.before, 0), extents: in_image(&extents, 1) };
        let (frame, out_frame) = (Frame::new(axes, &place.shape), Frame::new(axes, &extents));
        let of_energies = match &self.until {
            Until::Rule(..) => Core { start: [0; 3], extents: frame.extents },
            _ => core,
        };
        let f = block.tensor::<R>(&place.shape)?;
        let mut out = Tensor::<R>::empty(device, if self.writes() { &extents } else { &[0] })?;
        let mut projection = Projection::new(&f, (frame, axes.len()), of_energies, [*scale, *weight])?;
        // A box that fails is computed again, so its energies count only when all its images are done.
        let mut measured = Vec::new();
        for (image, number) in self.numbers(&place.core).into_iter().enumerate() {
            projection.begin(image)?;
            match &self.until {
                Until::Rule(rule, iterations) => {
                    let updates = projection.iterate(rule)?;
                    lock(iterations)[number] = updates + 1;
                }
                Until::Updates(updates) => projection.update(updates[number])?,
                Until::Energies(times, _) => {
                    measured.push((number, projection.measure(*times)?));
                    continue;
                }
            }
            projection.result(core, &mut out, (&out_frame, image))?;
        }
        if let Until::Energies(_, energies) = &self.until {
            let mut energies = lock(energies);
            for (number, sums) in measured {
                energies[number].iter_mut().zip(sums).for_each(|(total, sum)| total.join(sum));
            }
        }
        match self.types()[1] {
            _ if !self.writes() => Ok(HostBytes::Owned(Vec::new())),
            to if to == R::DTYPE => out.into_bytes(),
            DType::F32 => out.to_f32()?.into_bytes(),
            _ => out.to_f64()?.into_bytes(),
        }
    }

    fn writes(&self) -> bool {
        !matches!(self.until, Until::Energies(..))
    }

    /// Returns the numbers of the images of a box, in C order.
    fn numbers(&self, core: &[Range<u64>]) -> Vec<usize> {
        let Images { axes, shape, .. } = self.images;
        let others = (0..shape.len()).filter(|axis| !axes.contains(axis));
        others.fold(vec![0], |numbers, axis| {
            let along = |number: usize| {
                core[axis].clone().map(move |at| number * to_usize(shape[axis]) + to_usize(at))
            };
            numbers.into_iter().flat_map(along).collect()
        })
    }
}

impl UntypedOperation for ImageBoxes<'_> {
    fn types(&self) -> [DType; 2] {
        let [read, to] = self.images.types;
        [read, if self.writes() { to } else { DType::U8 }]
    }

    fn halo(&self, axis: usize) -> [u64; 2] {
        let is_image = self.images.axes.contains(&axis);
        [if is_image { self.reach(self.images.shape[axis]) } else { 0 }; 2]
    }

    fn beyond(&self, _: usize) -> Beyond {
        Beyond::Clip
    }

    fn knows_whole_axes(&self) -> bool {
        true
    }

    fn widest(&self) -> u64 {
        self.images.axes.len() as u64 * self.images.types[0].size()
    }

    fn box_bytes(&self) -> u64 {
        match self.until {
            Until::Rule(..) => u64::MAX,
            _ => BYTES_PER_HALO.saturating_mul(1 + self.reach(0)),
        }
    }

    fn tile(&self, written: Vec<u64>) -> Vec<u64> {
        let Images { axes, shape, .. } = self.images;
        let extent = |(axis, (written, &extent)): (usize, (u64, &u64))| match self.until {
            Until::Rule(..) if axes.contains(&axis) => extent.max(1),
            // Whole groups of a row, and few rows, so that a box with its halo is small.
            Until::Energies(..) if axes.last() == Some(&axis) => extent.min(WG.into()),
            Until::Energies(..) => extent.min(if axes.contains(&axis) { 16 } else { 1 }),
            _ => written,
        };
        written.into_iter().zip(shape).enumerate().map(extent).collect()
    }

    fn needs(&self, shape: &[u64], _: &Device) -> Needs {
        let Images { axes, types: [read, to], .. } = self.images;
        let needs = with_dtype!(*read, T => Projection::<<T as Element>::Real>::needs(shape, axes));
        let converted = if read == to { 0 } else { read.size() };
        needs + shape.iter().fold(Needs::device(converted), |needs, &extent| needs * extent)
    }

    fn run(&self, block: Block<'_>, place: &Place, device: &Device) -> Result<HostBytes> {
        match self.images.types[0] {
            DType::F64 => self.run_in::<f64>(block, place, device),
            _ => self.run_in::<f32>(block, place, device),
        }
    }
}

/// The writer of passes that only measure.
struct Nowhere<'a> {
    shape: &'a [u64],
}

impl BoxWriter for Nowhere<'_> {
    fn dtype(&self) -> Option<StoredType> {
        None
    }

    fn shape(&self) -> &[u64] {
        self.shape
    }

    fn tile_shape(&self) -> Vec<u64> {
        self.shape.to_vec()
    }

    fn write_box_bytes(&self, _: &[Range<u64>], _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn finish(self) -> Result<()> {
        Ok(())
    }
}
