//! `--preview`: one slice, before and after side by side, as a PNG.

use std::path::{self, Path};

use rayon::prelude::*;
use serde_json::{Value, json};
use teatime::{
    ChunkedArray, Device, Error, MissingChunk, Run, StoredType,
    filter::{GaussianOptions, PerAxis},
    store::{NpyArray, ZarrArray},
    to_usize,
};
use teatime_image::{AxisKind, Multiscale};

use super::{
    COMMAND,
    args::{BlurArgs, Format},
    input::Input,
};
use crate::{
    failure::Failure,
    output::{
        Output, listed,
        target::{RECORD, Target},
    },
    text,
};

pub(super) const PNG: &str = ".png";

/// Most pixels along a side of a slice; longer sides are shown by means.
const SIDE: u64 = 1024;
/// White pixels between the two slices.
const GAP: usize = 8;
/// Which shares of the pixels are black, and not white: few odd pixels do not hide the others.
const SHARES: [f64; 2] = [0.005, 0.995];
/// Colours of a pixel.
const COLOURS: u64 = 3;

/// A file beside the result.
#[derive(Clone, Debug)]
pub(super) struct Png {
    pub(super) name: String,
}

impl Png {
    /// The name of a path in that folder.
    pub(super) fn beside(path: &Path, folder: &Path) -> Result<Self, Failure> {
        let refuse = |why: String| Err(Failure::Usage(format!("--preview {}: {why}", path.display())));
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if name.strip_suffix(PNG).is_none_or(str::is_empty) {
            return refuse(format!("expected a name that ends with {PNG}"));
        }
        let of = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if path::absolute(of).ok() != path::absolute(folder).ok() {
            return refuse(format!("all results are in one folder, that of OUT: {}", folder.display()));
        }
        Ok(Self { name: name.to_owned() })
    }
}

/// The file of a preview, and those of earlier ones, which may have any name: each with whether it is written.
pub(super) fn files(png: Option<&Png>, out: &Target<Format>) -> Vec<(String, bool)> {
    let earlier = listed(&out.folder.join(out.file(RECORD)), COMMAND);
    let earlier = earlier.into_iter().filter(|name| name.ends_with(PNG));
    let own = png.map(|png| (png.name.clone(), true));
    own.into_iter().chain(earlier.map(|name| (name, false))).collect()
}

/// Which elements of an array are shown.
#[derive(Debug)]
pub(super) struct Slice {
    /// The axes of rows and columns.
    plane: [usize; 2],
    /// The axis of colours, red first.
    colours: Option<usize>,
    /// Where the slice is along the other axes.
    at: Vec<u64>,
    /// How many elements along a row, and along a column, a pixel is the mean of.
    each: u64,
}

/// Pixels, with their colours one after another; NaN where no element is finite.
struct Picture {
    width: usize,
    colours: usize,
    pixels: Vec<f64>,
}

impl Slice {
    /// The last two axes that are filtered, in the middle of the others.
    ///
    /// # Errors
    /// [`Failure::Error`] for an array of no elements or of less than two such axes.
    pub(super) fn new(args: &BlurArgs, input: &Input, options: &GaussianOptions) -> Result<Self, Failure> {
        let shape = input.stored.array.shape();
        let refuse = |why: &str| {
            Err(Failure::Error(format!("--preview: {} of shape {shape:?} {why}", input.stored.path)))
        };
        if shape.contains(&0) {
            return refuse("has no elements");
        }
        let all: Vec<usize> = (0..shape.len()).collect();
        let named = options.axes.as_deref().unwrap_or(&all);
        let sigmas = match input.sigma(args)? {
            PerAxis::All(sigma) => vec![sigma; named.len()],
            PerAxis::Each(sigmas) => sigmas,
        };
        // What does not fit the array is refused when it is filtered.
        let filtered = named.iter().zip(sigmas).filter(|(axis, sigma)| **axis < shape.len() && *sigma != 0.0);
        let mut filtered: Vec<usize> = filtered.map(|(axis, _)| *axis).collect();
        filtered.sort_unstable();
        let is_colours = |axis: &usize| (COLOURS..=COLOURS + 1).contains(&shape[*axis]);
        let of_image = || {
            let axes = input.image.as_ref().map_or(&[][..], Multiscale::axes);
            axes.iter().position(|axis| axis.kind == AxisKind::Channel)
        };
        // As pixels of red, green and blue lie.
        let last = || all.last().copied().filter(|last| is_colours(last) && !filtered.contains(last));
        let channels = args.channel(shape.len())?.or_else(of_image).or_else(last);
        let mut plane: Vec<usize> = Vec::new();
        for &axis in filtered.iter().rev().chain(all.iter().rev()) {
            if plane.len() < 2 && !plane.contains(&axis) && channels != Some(axis) {
                plane.push(axis);
            }
        }
        plane.sort_unstable();
        let [y, x] = plane[..] else { return refuse("has less than two axes for a picture") };
        Ok(Self {
            plane: [y, x],
            colours: channels.filter(is_colours),
            at: shape.iter().map(|extent| extent / 2).collect(),
            each: shape[y].max(shape[x]).div_ceil(SIDE),
        })
    }

    /// Writes the slice of the input, and that of the result, which is at `path`. What it shows, in the record and in a line.
    pub(super) fn write(
        &self,
        args: &BlurArgs,
        input: &Input,
        path: &Path,
        png: &Png,
        (device, run, output): (&Device, &Run, &Output),
    ) -> Result<(Value, String), Failure> {
        let result: Box<dyn ChunkedArray> = match args.out.format {
            Format::Npy => Box::new(NpyArray::open(path)?),
            Format::Zarr if input.image.is_some() => {
                Box::new(Multiscale::open(path)?.level(0, MissingChunk::Error)?)
            }
            Format::Zarr => Box::new(ZarrArray::open(path, "", MissingChunk::Error)?),
        };
        let pictures = [self.read(&*input.stored.array, device, run)?, self.read(&*result, device, run)?];
        let bytes_in_colour = self.colours.is_some() && input.stored.array.dtype() == StoredType::U8;
        let before = if bytes_in_colour { [0.0, 255.0] } else { pictures[0].range() };
        let after = if args.is_derivative() { pictures[1].range() } else { before };
        let bytes = encoded(&pictures, [before, after])
            .map_err(|error| Failure::Error(format!("{}: {error}", png.name)))?;
        output.table(&png.name, |file| file.write_all(&bytes))?;
        let at = self.at.iter().enumerate().map(|(axis, &at)| (!self.shows(axis)).then_some(at));
        let (at, colours): (Vec<_>, _) = (at.collect(), self.colours.is_some());
        // Coordinates are null along the axes that are shown; of a range the first is black, the second white.
        let shown = json!({
            "file": png.name, "slice": at, "means_of": self.each, "colours": colours, "before": before, "after": after,
        });
        let at: Vec<String> =
            at.iter().map(|at| at.map_or_else(|| ":".into(), |at| at.to_string())).collect();
        let means = if self.each > 1 { format!(", means of {0} x {0}", self.each) } else { String::new() };
        let range = |range: [f64; 2]| range.map(|end| text::general(end, 4)).join(" to ");
        let shades = if colours { "dark to light" } else { "black to white" };
        let own = if before == after { String::new() } else { format!(" before, {} after", range(after)) };
        let line = format!("{}: [{}]{means}; {shades} is {}{own}", png.name, at.join(", "), range(before));
        Ok((shown, line))
    }

    fn shows(&self, axis: usize) -> bool {
        self.plane.contains(&axis) || self.colours == Some(axis)
    }

    /// Reads the chunks that have some of the slice, and no others.
    fn read(&self, array: &dyn ChunkedArray, device: &Device, run: &Run) -> Result<Picture, Error> {
        let (shape, chunk, dtype) = (array.shape(), array.chunk_shape(), array.dtype());
        let mut indices: Vec<Vec<u64>> = vec![Vec::new()];
        for axis in 0..shape.len() {
            let at = self.at[axis] / chunk[axis];
            let along = if self.shows(axis) { 0..shape[axis].div_ceil(chunk[axis]) } else { at..at + 1 };
            let longer = |index: &Vec<u64>| {
                let index = index.clone();
                along.clone().map(move |at| [&index[..], &[at]].concat())
            };
            indices = indices.iter().flat_map(longer).collect();
        }
        let bytes = chunk.iter().fold(dtype.size() as u64, |bytes, n| bytes.saturating_mul(*n));
        let at_once = (run.memory.host_bytes() / 2 / bytes.max(1)).clamp(1, device.threads() as u64);
        let [height, width] = self.plane.map(|axis| to_usize(shape[axis].div_ceil(self.each)));
        let colours = to_usize(if self.colours.is_some() { COLOURS } else { 1 });
        // Of each pixel the sum of its finite elements, and how many they are.
        let mut sums = vec![[0.0; 2]; height * width * colours];
        for indices in indices.chunks(to_usize(at_once)) {
            run.cancel.check()?;
            let read = || -> Result<Vec<_>, Error> {
                indices.par_iter().map(|index| array.read_chunk(index)).collect()
            };
            let chunks = device.pool()?.install(read)?;
            for (index, chunk) in indices.iter().zip(chunks) {
                self.add(array, index, &chunk.bytes, [width, colours], &mut sums);
            }
        }
        let pixels = sums.iter().map(|[sum, count]| sum / count).collect();
        Ok(Picture { width, colours, pixels })
    }

    /// Adds what a chunk has of the slice.
    fn add(
        &self,
        array: &dyn ChunkedArray,
        index: &[u64],
        bytes: &[u8],
        [width, colours]: [usize; 2],
        sums: &mut [[f64; 2]],
    ) {
        let (shape, chunk, size) = (array.shape(), array.chunk_shape(), array.dtype().size());
        let value = number(array.dtype());
        let held = |axis: usize| {
            let first = index[axis] * chunk[axis];
            first..shape[axis].min(first + chunk[axis])
        };
        let place = |axis: usize, at: u64| {
            let stride: u64 = chunk[axis + 1..].iter().product();
            to_usize((at - index[axis] * chunk[axis]) * stride) * size
        };
        let others = (0..shape.len()).filter(|&axis| !self.shows(axis));
        let start: usize = others.map(|axis| place(axis, self.at[axis])).sum();
        let [y, x] = self.plane;
        let columns: Vec<(usize, usize)> =
            held(x).map(|column| (to_usize(column / self.each), place(x, column))).collect();
        let channels: Vec<(usize, usize)> = match self.colours {
            Some(axis) => {
                held(axis).filter(|at| *at < COLOURS).map(|at| (to_usize(at), place(axis, at))).collect()
            }
            None => vec![(0, 0)],
        };
        for row in held(y) {
            let (pixels, row) = (to_usize(row / self.each) * width, start + place(y, row));
            for (column, across) in &columns {
                for (channel, deep) in &channels {
                    let value = value(&bytes[row + across + deep..][..size]);
                    if value.is_finite() {
                        let [sum, count] = &mut sums[(pixels + column) * colours + channel];
                        *sum += value;
                        *count += 1.0;
                    }
                }
            }
        }
    }
}

impl Picture {
    /// Between which numbers most pixels are.
    #[allow(clippy::cast_possible_truncation, reason = "a share of an index")]
    fn range(&self) -> [f64; 2] {
        let mut finite: Vec<f64> = self.pixels.iter().copied().filter(|pixel| pixel.is_finite()).collect();
        finite.sort_unstable_by(f64::total_cmp);
        let last = finite.len().saturating_sub(1) as f64;
        SHARES.map(|share| finite.get((share * last).round() as usize).copied().unwrap_or(0.0))
    }
}

/// Two pictures of one size, side by side; what is no number is black.
#[allow(clippy::cast_possible_truncation, reason = "between 0 and 255")]
fn encoded(pictures: &[Picture; 2], ranges: [[f64; 2]; 2]) -> Result<Vec<u8>, png::EncodingError> {
    let [Picture { width, colours, .. }, _] = pictures;
    let line = width * colours;
    let height = pictures[0].pixels.len() / line;
    let shades = |of: usize, row: usize| {
        let [least, most] = ranges[of];
        let shade = move |value: &f64| ((value - least) / (most - least) * 255.0).round() as u8;
        pictures[of].pixels[row * line..][..line].iter().map(shade)
    };
    let mut bytes = Vec::with_capacity(height * (2 * width + GAP) * colours);
    for row in 0..height {
        bytes.extend(shades(0, row));
        bytes.extend([u8::MAX; GAP].repeat(*colours));
        bytes.extend(shades(1, row));
    }
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, (2 * width + GAP) as u32, height as u32);
    encoder.set_color(if *colours > 1 { png::ColorType::Rgb } else { png::ColorType::Grayscale });
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&bytes)?;
    writer.finish()?;
    Ok(out)
}

/// What the bytes of an element mean.
fn number(dtype: StoredType) -> fn(&[u8]) -> f64 {
    macro_rules! with {
        ($($dtype:ident $type:ty),*) => {
            match dtype {
                $(StoredType::$dtype => |bytes| <$type>::from_ne_bytes(bytes.try_into().unwrap_or_default()) as f64,)*
                StoredType::F16 => |bytes| half::f16::from_ne_bytes(bytes.try_into().unwrap_or_default()).to_f64(),
                // Any type that is filtered stands above.
                _ => |_| f64::NAN,
            }
        };
    }
    with!(Bool u8, U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, U64 u64, I64 i64, F32 f32, F64 f64)
}
