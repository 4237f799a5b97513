//! Distances written into a stored array tile by tile, so that they need not fit host memory.

use std::{borrow::Cow, ops::Range, sync::Arc};

use rayon::{ThreadPool, prelude::*};

use super::{
    Metric, Missing, Options, condensed_len, condensed_place,
    job::{DistanceBlock, Job},
    matrix, mirror, symmetric, zeros,
};
use crate::{
    Device, Element, Error, Needs, Progress, Result, Run, Status, StoredType, Tensor, dtype::nearest_f32,
    extent::to_usize, linalg::Matrix, store::ArrayWriter,
};

/// Writes the result of [`pairwise`](super::pairwise), the same to the bit, into an array of f64 or f32, and finishes the array. Waits.
///
/// Computes tile by tile and skips tiles that are written already: after [`ArrayWriter::resume`] it continues where another process was stopped.
/// The job text of the array should name everything that the distances depend on: the data, the metric, the options and the device. Without `y`,
/// if the metric is symmetric and tiles are squares, each tile above the diagonal is written as the transpose of the tile below. Progress is
/// reported as a share of the rows.
///
/// # Shapes
/// As [`pairwise`](super::pairwise); the array has the shape of its result.
///
/// # Errors
/// As [`pairwise`](super::pairwise), with [`Error::Budget`] for the memory stated below; [`Error::Argument`] for an array of another type;
/// [`Error::Shape`] for an array of another shape; [`Error::Io`] and [`Error::Chunk`] for a tile that cannot be written. Written tiles stay.
///
/// # Cost
/// As [`pairwise`](super::pairwise), but without `y` each pair is computed twice unless tiles are squares. Host memory: instead of 8 bytes for
/// each pair, up to 24 for each element of a tile, or 48 if two tiles are written at once. Tiles whose sides are multiples of 64 waste no
/// computation.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{
///     ChunkedArray, Device, MissingChunk, Run, StoredType, Tensor,
///     distance::{Metric, Options, write_condensed, write_pairwise},
///     store::{ArraySpec, ArrayWriter, Folder, ZarrArray},
/// };
/// # let folder = tempfile::tempdir()?;
/// let storage = Arc::new(Folder::new(folder.path()));
/// let (options, run) = (Options::default(), Run::default());
/// let x = Tensor::from_slice(&Device::best()?, &[0u8, 1, 3, 7], &[4, 1])?;
///
/// let writer = ArrayWriter::create(storage.clone(), "square", ArraySpec::new(StoredType::F64, &[4, 4], &[4, 4]))?;
/// write_pairwise(&x, None, Metric::CityBlock, &options, &run, writer)?;
/// let writer = ArrayWriter::create(storage, "condensed", ArraySpec::new(StoredType::F32, &[6], &[6]))?;
/// write_condensed(&x, Metric::CityBlock, &options, &run, writer)?;
///
/// let bytes = ZarrArray::open(folder.path(), "condensed", MissingChunk::Error)?.read_chunk(&[0])?.bytes;
/// let distances: Vec<f32> = teatime::bytemuck::pod_collect_to_vec(&bytes);
/// assert_eq!(distances, [1.0, 3.0, 7.0, 2.0, 6.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_pairwise<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    metric: Metric,
    options: &Options,
    run: &Run,
    writer: ArrayWriter,
) -> Result<()> {
    write_squares((x, y), metric, options, run, writer, None)
}

/// Writes the result of [`pairwise_counted`](super::pairwise_counted) if elements may be missing: the distances as [`write_pairwise`] does, and
/// into `shared` of u64 the number of features that both observations have. Each tile of `shared` is written before that of the distances.
///
/// # Errors
/// As [`write_pairwise`]; [`Error::Argument`] if missing elements are propagated, and if the two arrays have different tile shapes.
pub fn write_pairwise_counted<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    metric: Metric,
    options: &Options,
    run: &Run,
    [distances, shared]: [ArrayWriter; 2],
) -> Result<()> {
    let refuse = |name, why: &dyn std::fmt::Display| Err(Error::argument("write distances", name, why));
    if options.missing == Missing::Propagate {
        return refuse("options", &"nothing is counted where missing elements are propagated");
    }
    let (spec, of_distances) = (shared.spec(), distances.spec());
    if spec.dtype != Some(StoredType::U64)
        || (&spec.shape, spec.tile_shape()) != (&of_distances.shape, of_distances.tile_shape())
    {
        let got = format_args!("{:?} {:?} in {:?}", spec.dtype, spec.shape, spec.tile_shape());
        return refuse("shared", &format_args!("{got}: u64 in the tiles of the distances"));
    }
    write_squares((x, y), metric, options, run, distances, Some(shared))
}

fn write_squares<T: Element>(
    (x, y): (&Tensor<T>, Option<&Tensor<T>>),
    metric: Metric,
    options: &Options,
    run: &Run,
    writer: ArrayWriter,
    shared: Option<ArrayWriter>,
) -> Result<()> {
    let job = Job::new(x, y, metric, options)?;
    let [m, n] = job.extents().map(|extent| extent as u64);
    let tile = tile_shape(&writer, [m, n])?;
    let by_two = job.is_lower() && tile[0] == tile[1];
    let needs = tile_needs(job.is_lower(), tile, [m, n], shared.is_some());
    let is_written = |index: &[u64]| {
        Ok(writer.is_written(index)?
            && shared.as_ref().map_or(Ok(true), |shared| shared.is_written(index))?)
    };
    let mut tiles = Tiles::new(job, x.device(), run, &writer, needs, is_written)?;
    for index in writer.tiles() {
        if is_written(&index)? {
            continue;
        }
        let [rows, columns] = [0, 1].map(|axis| {
            let start = index[axis] * tile[axis];
            start..start + writer.extent(&index)[axis]
        });
        let (distances, counts) = tiles.square(rows, columns, shared.is_some())?;
        let other = [index[1], index[0]];
        let is_copied = by_two && index[0] != index[1] && !is_written(&other)?;
        // Counts are written first, so that every written tile of distances has its counts.
        let counted = shared.as_ref().zip(counts.as_ref());
        for (writer, values) in counted.into_iter().chain([(&writer, &distances)]) {
            let put = || put(writer, &index, values.data());
            if is_copied {
                let put_copy = || self::put(writer, &other, &transposed(values.data(), values.cols()));
                let (one, two) = tiles.pool.install(|| rayon::join(put, put_copy));
                one.and(two)?;
            } else {
                put()?;
            }
        }
        tiles.tell(1 + u64::from(is_copied));
    }
    shared.map_or(Ok(()), ArrayWriter::finish)?;
    writer.finish()
}

/// Writes the result of [`condensed`](super::condensed), the same to the bit, into an array of f64 or f32 with one axis, and finishes the array.
/// Waits. Otherwise the same as [`write_pairwise`], which has an example.
///
/// # Shapes
/// As [`condensed`](super::condensed); the array has m (m - 1) / 2 elements.
///
/// # Errors
/// As [`write_pairwise`]; [`Error::Argument`] for a metric that is not symmetric.
///
/// # Cost
/// As [`condensed`](super::condensed), but host memory is up to 24 bytes for each element of a tile instead of 8 for each pair. A tile is a
/// range of consecutive pairs. A tile of fewer than 64 m pairs still computes whole blocks of 64 x 64 pairs.
pub fn write_condensed<T: Element>(
    x: &Tensor<T>,
    metric: Metric,
    options: &Options,
    run: &Run,
    writer: ArrayWriter,
) -> Result<()> {
    symmetric(metric)?;
    let job = Job::new(x, None, metric, options)?;
    let m = job.extents()[0];
    let tile = tile_shape(&writer, [condensed_len(m) as u64])?;
    let needs = Needs::host(3 * 8) * tile[0].min(writer.spec().shape[0]);
    let mut tiles = Tiles::new(job, x.device(), run, &writer, needs, |index| writer.is_written(index))?;
    for index in writer.left() {
        let start = index[0] * tile[0];
        let pairs = to_usize(start)..to_usize(start + writer.extent(&index)[0]);
        put(&writer, &index, &tiles.run_of_pairs(m, pairs)?)?;
        tiles.tell(1);
    }
    writer.finish()
}

/// Returns the host memory for a tile of distances: computed, transposed and encoded. The memory doubles if the mirrored tile is written at the
/// same time, and doubles again if feature counts are written.
pub(super) fn tile_needs(is_lower: bool, tile: [u64; 2], shape: [u64; 2], counted: bool) -> Needs {
    let tiles = if is_lower && tile[0] == tile[1] { 2 } else { 1 } * if counted { 2 } else { 1 };
    Needs::host(3 * 8 * tiles) * tile[0].min(shape[0]) * tile[1].min(shape[1])
}

/// Returns the extents of a whole tile, after a check of the array's type and shape.
fn tile_shape<const N: usize>(writer: &ArrayWriter, shape: [u64; N]) -> Result<[u64; N]> {
    let spec = writer.spec();
    if !matches!(spec.dtype, Some(StoredType::F32 | StoredType::F64)) {
        let why = format_args!("an array of {:?}: distances are f32 or f64", spec.dtype);
        return Err(Error::argument("write distances", "writer", why));
    }
    <[u64; N]>::try_from(spec.tile_shape()).ok().filter(|_| spec.shape == shape).ok_or_else(|| {
        Error::shape(
            "write distances",
            format_args!("an array of {shape:?}"),
            format_args!("{:?}", spec.shape),
        )
    })
}

/// The state of one call.
struct Tiles<'a, 'w, T: Element> {
    job: Job<'a, T>,
    pool: Arc<ThreadPool>,
    side: u64,
    /// The run, without progress reports.
    run: Run,
    progress: &'w Progress,
    /// The total number of tiles, and the number of written tiles.
    count: u64,
    written: u64,
}

impl<'a, 'w, T: Element> Tiles<'a, 'w, T> {
    /// Prepares tiles that take `needs`; `is_written` returns whether a tile is written already.
    ///
    /// # Errors
    /// As [`Measure::side`](super::job::Measure::side).
    fn new(
        job: Job<'a, T>,
        device: &Device,
        run: &'w Run,
        writer: &'w ArrayWriter,
        needs: Needs,
        is_written: impl Fn(&[u64]) -> Result<bool>,
    ) -> Result<Self> {
        let side = job.measure.side(needs, &run.memory)?;
        let pool = device.pool()?.clone();
        let silent = Run { progress: Progress::default(), ..run.clone() };
        let count = writer.tiles().count() as u64;
        // Checking a written tile reads it, which takes time.
        let whole = |tile: Vec<u64>| run.cancel.check().and_then(|()| is_written(&tile));
        let written =
            writer.tiles().try_fold(0, |written, tile| Ok::<_, Error>(written + u64::from(whole(tile)?)))?;
        Ok(Self { job, pool, side, run: silent, progress: &run.progress, count, written })
    }

    /// Returns the distances from some observations of x to some of y, and the numbers of features that both have if `counted`.
    fn square(
        &self,
        rows: Range<u64>,
        columns: Range<u64>,
        counted: bool,
    ) -> Result<(Matrix, Option<Matrix>)> {
        let [top, left] = [rows.start, columns.start].map(to_usize);
        let extents @ [_, width] = [&rows, &columns].map(|range| to_usize(range.end - range.start));
        let (mut out, mut counts) = (matrix(extents)?, counted.then(|| matrix(extents)).transpose()?);
        let is_lower = self.job.is_lower();
        self.job.each_block_of([rows.clone(), columns.clone()], self.side, &self.run, |block| {
            let first = block.columns.start;
            for (out, values) in each(&mut out, &mut counts, block) {
                for (row, values) in block.rows.clone().zip(values.chunks(block.columns.len())) {
                    let end = if is_lower { block.columns.end.min(row + 1) } else { block.columns.end };
                    let len = end.saturating_sub(first);
                    out.data_mut()[(row - top) * width + first - left..][..len]
                        .copy_from_slice(&values[..len]);
                }
            }
        })?;
        if is_lower && rows == columns {
            [Some(&mut out), counts.as_mut()].into_iter().flatten().for_each(mirror);
        } else if is_lower && rows.start + 1 < columns.end {
            // Distances above the diagonal are computed below the diagonal and transposed.
            self.job.each_block_of([columns, rows], self.side, &self.run, |block| {
                for (out, values) in each(&mut out, &mut counts, block) {
                    let turned = self.pool.install(|| transposed(&values, block.columns.len()));
                    for (row, values) in block.columns.clone().zip(turned.chunks(block.rows.len())) {
                        let first = block.rows.start.max(row + 1).min(block.rows.end);
                        let values = &values[first - block.rows.start..];
                        out.data_mut()[(row - top) * width + first - left..][..values.len()]
                            .copy_from_slice(values);
                    }
                }
            })?;
        }
        Ok((out, counts))
    }

    /// Returns the distances of a range of pairs of the condensed form.
    fn run_of_pairs(&self, m: usize, pairs: Range<usize>) -> Result<Vec<f64>> {
        let mut out = zeros(pairs.len())?;
        let [(first, row), (last, last_row)] = [pairs.start, pairs.end - 1].map(|pair| observations(m, pair));
        let rows = if first == last { row..last_row + 1 } else { first + 1..m };
        let area = [rows, first..last + 1].map(|range| range.start as u64..range.end as u64);
        self.job.each_block_of(area, self.side, &self.run, |block| {
            let turned = self.pool.install(|| transposed(&block.distances, block.columns.len()));
            for (col, values) in block.columns.clone().zip(turned.chunks(block.rows.len())) {
                let row = block.rows.start.max(col + 1);
                if row >= block.rows.end {
                    continue;
                }
                let values = &values[row - block.rows.start..];
                let start = condensed_place(m, col, row);
                let [from, to] = [start, start + values.len()].map(|pair| pair.clamp(pairs.start, pairs.end));
                if from < to {
                    out[from - pairs.start..to - pairs.start]
                        .copy_from_slice(&values[from - start..to - start]);
                }
            }
        })?;
        Ok(out)
    }

    /// Reports that `more` tiles are written, as a share of the rows.
    fn tell(&mut self, more: u64) {
        self.written += more;
        let mut status = Status::new(0, 1, self.job.extents()[0] as u64);
        let rows = u128::from(status.total) * u128::from(self.written) / u128::from(self.count);
        status.rows = u64::try_from(rows).unwrap_or(status.total);
        self.progress.tell(status);
    }
}

/// Returns the matrices that a block fills, each with the block's values for it.
fn each<'a>(
    distances: &'a mut Matrix,
    counts: &'a mut Option<Matrix>,
    block: &'a DistanceBlock,
) -> impl Iterator<Item = (&'a mut Matrix, Cow<'a, [f64]>)> {
    let counts = counts.as_mut().map(|counts| (counts, block.shared().collect()));
    [(distances, Cow::Borrowed(&block.distances[..]))].into_iter().chain(counts)
}

fn put(writer: &ArrayWriter, index: &[u64], values: &[f64]) -> Result<()> {
    match writer.spec().dtype {
        Some(StoredType::F64) => writer.write(index, values),
        Some(StoredType::U64) => {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of features")]
            let counts: Vec<u64> = values.iter().map(|&count| count as u64).collect();
            writer.write(index, &counts)
        }
        _ => {
            let rounded: Vec<f32> = values.iter().copied().map(nearest_f32).collect();
            writer.write(index, &rounded)
        }
    }
}

/// Returns the two observations of a pair of the condensed form, the lower index first.
fn observations(m: usize, pair: usize) -> (usize, usize) {
    let (mut first, mut end) = (0, m);
    while end - first > 1 {
        let middle = usize::midpoint(first, end);
        if condensed_place(m, middle, middle + 1) <= pair { first = middle } else { end = middle }
    }
    (first, pair - condensed_place(m, first, first + 1) + first + 1)
}

/// Transposes rows and columns, in tiles that fit a cache.
fn transposed(values: &[f64], width: usize) -> Vec<f64> {
    const TILE: usize = 64;
    let height = values.len() / width;
    let mut out = vec![0.0; values.len()];
    out.par_chunks_mut(TILE * height).enumerate().for_each(|(strip, out)| {
        for top in (0..height).step_by(TILE) {
            for (col, out) in out.chunks_mut(height).enumerate() {
                for row in top..height.min(top + TILE) {
                    out[row] = values[row * width + strip * TILE + col];
                }
            }
        }
    });
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::distance::{condensed_len, condensed_place};

    /// Includes pair counts beyond 2^30, 2^31 and 2^32.
    #[test]
    fn pairs_of_many_observations() {
        for m in [2, 3, 64, 65, 46_341, 46_342, 65_536, 65_537, 92_683, 3_000_000_000] {
            let len = condensed_len(m);
            assert_eq!(condensed_place(m, m - 2, m - 1), len - 1);
            let near = [0, 1 << 30, 1 << 31, 1 << 32, len - 1, len / 2].into_iter();
            for pair in
                near.flat_map(|pair: usize| pair.saturating_sub(2)..pair + 3).filter(|&pair| pair < len)
            {
                let (first, second) = observations(m, pair);
                assert!(first < second && second < m, "{m} {pair}: {first} {second}");
                assert_eq!(condensed_place(m, first, second), pair);
            }
        }
    }
}
