//! Distances written to a file or a stored array tile by tile, so that they need not fit host memory.

use std::{ops::Range, sync::Mutex};

use bytemuck::cast_slice;

use super::{
    Distances, Metric, Missing, Options,
    job::Job,
    members::{Jobs, with_copies},
    pairs::condensed_len,
    symmetric,
};
use crate::{
    Device, Element, Error, Needs, Progress, Result, Run, Status, StoredType, Tensor,
    dtype::nearest_f32,
    extent::{index_at, to_usize},
    linalg::Matrix,
    store::BoxWriter,
    timeline::Stage,
    waiting::lock,
};

/// Writes the result of [`pairwise`](super::pairwise), the same to the bit unless [expanded](Options::expanded), into an array of f64 or f32, and finishes the array. Waits.
///
/// Computes tile by tile and skips tiles that are written already: with an `ArrayWriter` that resumes, it continues where another process was
/// stopped.
/// The job text of the array should name everything that the distances depend on: the data, the metric, the options and the device. Without `y`,
/// if the metric is symmetric and tiles are squares, each tile above the diagonal is written as the transpose of the tile below. Progress is
/// reported as a share of the rows.
///
/// A second array, of u64, takes the number of features that both observations of a pair have, if elements may be missing. Each of its tiles is
/// written before that of the distances.
///
/// # Shapes
/// As [`pairwise`](super::pairwise); the arrays have the shape of its result, and two axes of tiles.
///
/// # Errors
/// As [`pairwise`](super::pairwise), with [`Error::Budget`] for the memory stated below; [`Error::Argument`] for an array of another type,
/// for a second array in other tiles, and for one if missing elements are propagated; [`Error::Shape`] for an array of another shape; [`Error::Io`] and [`Error::Chunk`] for a tile that cannot be written. Written tiles stay.
///
/// # Cost
/// As [`pairwise`](super::pairwise), but without `y` each pair is computed twice unless tiles are squares. The members of a
/// [group](Device::group) take tiles in turn; each has a copy of `x` and `y`. Host memory: instead of 8 bytes for
/// each pair, up to 24 for each element of a tile, or 48 if two tiles are written at once; with a second array, twice that. Tiles whose sides are multiples of 64 waste no
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
/// write_pairwise(&x, None, Metric::CityBlock, &options, &run, (writer, None))?;
/// let writer = ArrayWriter::create(storage, "condensed", ArraySpec::new(StoredType::F32, &[6], &[6]))?;
/// write_condensed(&x, Metric::CityBlock, &options, &run, writer)?;
///
/// let bytes = ZarrArray::open(folder.path(), "condensed", MissingChunk::Error)?.read_chunk(&[0])?.bytes;
/// let distances: Vec<f32> = teatime::bytemuck::pod_collect_to_vec(&bytes);
/// assert_eq!(distances, [1.0, 3.0, 7.0, 2.0, 6.0, 4.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn write_pairwise<T: Element, W: BoxWriter>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    metric: Metric,
    options: &Options,
    run: &Run,
    (writer, shared): (W, Option<W>),
) -> Result<()> {
    if let Some(shared) = &shared {
        check_shared(shared, &writer, options)?;
    }
    let job = Job::new(x, y, metric, options)?;
    let extents = job.extents().map(|extent| extent as u64);
    let (tile, counted) = (tile_shape(&writer, extents)?, shared.is_some());
    let is_lower = job.measure.is_lower();
    let needs = tile_needs(is_lower, tile, extents, counted);
    check_members(&job, &writer, run, needs)?;
    // Counts are written first, so that every written tile of distances has its counts.
    let writers = shared.into_iter().chain([writer]).collect();
    let tiles = Tiles::new(writers, is_lower && tile[0] == tile[1], extents[0], run)?;
    on_members((x, y), job, (run, needs), &tiles, |job, side, ranges, run| {
        let rectangle = [ranges[0].clone(), ranges[1].clone()];
        let Distances { distances, shared } = job.rectangle(rectangle, side, counted, run)?;
        Ok(shared.into_iter().chain([distances]).collect())
    })?;
    tiles.finish(x.device())
}

/// Checks, before a tile is read, that devices are of one kind ([`Error::Argument`]) and a tile fits the memory ([`Error::Budget`]).
fn check_members<T: Element>(
    job: &Job<'_, T>,
    writer: &impl BoxWriter,
    run: &Run,
    needs: Needs,
) -> Result<()> {
    let device = &job.measure.device;
    device.has_one_kind("write distances")?;
    let members = device.first_members(to_usize(grid(writer).iter().product()));
    members.each_member(run, 0, |_, _, run| job.measure.side(needs, &run.memory)).map(drop)
}

/// Computes tiles on each member of the group of x with `make`, which gets the side of a block.
fn on_members<T: Element, W: BoxWriter>(
    operands: (&Tensor<T>, Option<&Tensor<T>>),
    first: Job<'_, T>,
    (run, needs): (&Run, Needs),
    tiles: &Tiles<W>,
    make: impl Fn(&Jobs<'_, '_, T>, u64, &[Range<u64>], &Run) -> Result<Vec<Matrix>> + Sync,
) -> Result<()> {
    // A member without a tile does nothing, and divides no memory.
    with_copies(first, operands, tiles.count() - tiles.found, run, |jobs, device| {
        Jobs::new(device, &jobs).each(run, tiles.rows, |i, job, run| {
            let side = job.measure.side(needs, &run.memory)?;
            let own = Jobs::alone(job);
            tiles.write(i, &job.measure.device, run, |ranges, run| make(&own, side, ranges, run))
        })
    })?;
    // Members tell whole rows, which may add up to fewer.
    run.progress.tell(Status { rows: tiles.rows, ..Status::new(0, 1, tiles.rows) });
    Ok(())
}

/// Fails with [`Error::Argument`] if nothing is counted, or if `shared` is not an array of u64 in the tiles of the distances.
fn check_shared(shared: &impl BoxWriter, distances: &impl BoxWriter, options: &Options) -> Result<()> {
    let refuse = |name, why: &dyn std::fmt::Display| Err(Error::argument("write distances", name, why));
    if options.missing == Missing::Propagate {
        return refuse("options", &"nothing is counted where missing elements are propagated");
    }
    let (dtype, shape, tile) = (shared.dtype(), shared.shape(), shared.tile_shape());
    if dtype != Some(StoredType::U64) || (shape, &tile) != (distances.shape(), &distances.tile_shape()) {
        let got = format_args!("{dtype:?} {shape:?} in {tile:?}");
        return refuse("shared", &format_args!("{got}: u64 in the tiles of the distances"));
    }
    Ok(())
}

/// Writes the result of [`condensed`](super::condensed), the same to the bit unless [expanded](Options::expanded), into an array of f64 or f32 with one axis, and finishes the array.
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
pub fn write_condensed<T: Element, W: BoxWriter>(
    x: &Tensor<T>,
    metric: Metric,
    options: &Options,
    run: &Run,
    writer: W,
) -> Result<()> {
    symmetric(metric)?;
    let job = Job::new(x, None, metric, options)?;
    let m = job.extents()[0];
    let tile = tile_shape(&writer, [condensed_len(m) as u64])?;
    let needs = Needs::host(3 * 8) * tile[0].min(writer.shape()[0]);
    check_members(&job, &writer, run, needs)?;
    let tiles = Tiles::new(vec![writer], false, m as u64, run)?;
    on_members((x, None), job, (run, needs), &tiles, |job, side, pairs, run| {
        let pairs = to_usize(pairs[0].start)..to_usize(pairs[0].end);
        let count = pairs.len();
        Ok(vec![Matrix::from_vec(job.condensed(pairs, side, run)?, 1, count)?])
    })?;
    tiles.finish(x.device())
}

/// The tiles of arrays, which all have the same tiles.
struct Tiles<W> {
    writers: Vec<W>,
    /// True if a tile below the diagonal is the transpose of one above.
    is_mirrored: bool,
    shape: Vec<u64>,
    tile: Vec<u64>,
    grid: Vec<u64>,
    /// The number of rows of which progress is a share.
    rows: u64,
    /// The number of tiles that were written before.
    found: u64,
    /// For each tile, true if it is written or being written; and the number of the first tile that may not be.
    taken: Mutex<(Vec<bool>, u64)>,
}

/// Returns the number of tiles along each axis.
fn grid(writer: &impl BoxWriter) -> Vec<u64> {
    writer.shape().iter().zip(writer.tile_shape()).map(|(extent, tile)| extent.div_ceil(tile)).collect()
}

/// A tile to compute: its range along each axis, and those of its mirrored tile if that is to be written too.
type Tile = (Vec<Range<u64>>, Option<Vec<Range<u64>>>);

impl<W: BoxWriter> Tiles<W> {
    /// Finds the tiles that are written already, which are those that all writers have.
    fn new(writers: Vec<W>, is_mirrored: bool, rows: u64, run: &Run) -> Result<Self> {
        let (shape, tile, grid) = (writers[0].shape().to_vec(), writers[0].tile_shape(), grid(&writers[0]));
        let mut tiles =
            Self { writers, is_mirrored, shape, tile, grid, rows, found: 0, taken: Mutex::default() };
        let mut written = vec![false; to_usize(tiles.count())];
        for (at, written) in (0..).zip(&mut written) {
            // Checking a written tile reads it, which takes time.
            run.cancel.check()?;
            let ranges = tiles.ranges(at);
            let mut writers = tiles.writers.iter();
            *written = writers
                .try_fold(true, |so_far, writer| Ok::<_, Error>(so_far && writer.has_box(&ranges)?))?;
        }
        tiles.found = written.iter().filter(|&&written| written).count() as u64;
        tiles.taken = Mutex::new((written, 0));
        Ok(tiles)
    }

    fn count(&self) -> u64 {
        self.grid.iter().product()
    }

    fn ranges(&self, at: u64) -> Vec<Range<u64>> {
        let range = |((i, tile), extent): ((u64, &u64), &u64)| i * tile..(i * tile + tile).min(*extent);
        index_at(at, &self.grid).into_iter().zip(&self.tile).zip(&self.shape).map(range).collect()
    }

    /// Takes a tile that nobody has taken.
    fn next(&self) -> Option<Tile> {
        let (taken, from) = &mut *lock(&self.taken);
        let at = (*from..self.count()).find(|&at| !taken[to_usize(at)])?;
        // The grid of mirrored tiles is a square.
        let other = if self.is_mirrored { at % self.grid[0] * self.grid[0] + at / self.grid[0] } else { at };
        let is_copied = other != at && !taken[to_usize(other)];
        *from = at + 1;
        (taken[to_usize(at)], taken[to_usize(other)]) = (true, true);
        Some((self.ranges(at), is_copied.then(|| self.ranges(other))))
    }

    /// Computes and writes tiles until none is left, as member `i` of a group. `make` computes the values of a tile for each writer.
    fn write(
        &self,
        i: usize,
        device: &Device,
        run: &Run,
        make: impl Fn(&[Range<u64>], &Run) -> Result<Vec<Matrix>>,
    ) -> Result<()> {
        let (pool, silent) = (device.pool()?, Run { progress: Progress::default(), ..run.clone() });
        let mut done = if i == 0 { self.found } else { 0 };
        let tell = |done: u64| {
            let rows = u128::from(self.rows) * u128::from(done) / u128::from(self.count().max(1));
            let rows = u64::try_from(rows).unwrap_or(self.rows);
            run.progress.tell(Status { rows, ..Status::new(0, 1, self.rows) });
        };
        if done > 0 {
            tell(done);
        }
        while let Some((ranges, other)) = self.next() {
            let made = make(&ranges, &silent)?;
            for (writer, values) in self.writers.iter().zip(made) {
                let put = |ranges: &[Range<u64>], values: &Matrix| {
                    let _span = device.span(Stage::Write, "").bytes(8 * values.data().len() as u64);
                    put(writer, ranges, values.data())
                };
                if let Some(other) = &other {
                    let both = || rayon::join(|| put(&ranges, &values), || put(other, &values.transposed()));
                    let (one, two) = pool.install(both);
                    one.and(two)?;
                } else {
                    put(&ranges, &values)?;
                }
            }
            done += 1 + u64::from(other.is_some());
            tell(done);
        }
        Ok(())
    }

    fn finish(self, device: &Device) -> Result<()> {
        let _span = device.span(Stage::Flush, "");
        self.writers.into_iter().try_for_each(W::finish)
    }
}

/// Returns the host memory for a tile of distances: computed, transposed and encoded. The memory doubles if the mirrored tile is written at the
/// same time, and doubles again if feature counts are written.
pub(super) fn tile_needs(is_lower: bool, tile: [u64; 2], shape: [u64; 2], counted: bool) -> Needs {
    let tiles = if is_lower && tile[0] == tile[1] { 2 } else { 1 } * if counted { 2 } else { 1 };
    Needs::host(3 * 8 * tiles) * tile[0].min(shape[0]) * tile[1].min(shape[1])
}

/// Returns the extents of a whole tile, after a check of the array's type and shape.
fn tile_shape<const N: usize>(writer: &impl BoxWriter, shape: [u64; N]) -> Result<[u64; N]> {
    if !matches!(writer.dtype(), Some(StoredType::F32 | StoredType::F64)) {
        let why = format_args!("an array of {:?}: distances are f32 or f64", writer.dtype());
        return Err(Error::argument("write distances", "writer", why));
    }
    let tile = writer.tile_shape();
    if writer.shape() == shape && (tile.len() != N || tile.contains(&0)) {
        let why = format_args!("has tiles of {tile:?}, expected {N} extents of at least 1");
        return Err(Error::argument("write distances", "writer", why));
    }
    <[u64; N]>::try_from(tile).ok().filter(|_| writer.shape() == shape).ok_or_else(|| {
        Error::shape("write distances", format!("an array of {shape:?}"), format!("{:?}", writer.shape()))
    })
}

fn put(writer: &impl BoxWriter, ranges: &[Range<u64>], values: &[f64]) -> Result<()> {
    match writer.dtype() {
        Some(StoredType::F64) => writer.write_box_bytes(ranges, cast_slice(values)),
        Some(StoredType::U64) => {
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of features")]
            let counts: Vec<u64> = values.iter().map(|&count| count as u64).collect();
            writer.write_box_bytes(ranges, cast_slice(&counts))
        }
        _ => {
            let rounded: Vec<f32> = values.iter().copied().map(nearest_f32).collect();
            writer.write_box_bytes(ranges, cast_slice(&rounded))
        }
    }
}
