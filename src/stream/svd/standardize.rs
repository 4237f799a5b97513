//! Centring and scaling of stored matrices: the moments of rows and columns, and the conversion that applies them.

use std::{marker::PhantomData, sync::Arc};

use pulp::{Arch, NullaryFnOnce};
use rayon::prelude::*;

use super::{Center, OP, StoredSvdOptions};
use crate::{
    ChunkedArray, Device, Error, Hint, Needs, Real, Result, Run, Status, StoredType,
    extent::to_usize,
    linalg::{Pass, map_tensor::BLOCK},
    stream::{
        AsStored, Blocks, Convert, Misfit, Narrow, Narrowed, Plan, Selection, StreamStats, convert::widen,
        digest, load::rows_to_load,
    },
};

/// The number of columns whose moments a task computes.
const COLUMNS: usize = 256;
/// The largest root mean square of elements that stay as stored, and the reciprocal of the least: their squares are far from f32's limits.
const NEAR: f64 = (1u64 << 32) as f64;
/// The number of elements that are converted at a time.
const PIECE: usize = 512;

/// The moments of some values.
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: f64,
    mean: f64,
    /// The sum of the squares of deviations from the mean.
    squares: f64,
}

impl Moments {
    /// Returns the moments of the values that are not NaN.
    fn new(values: impl Iterator<Item = f64> + Clone) -> Self {
        Self::of_columns(1, values.map(|value| [value]))[0]
    }

    /// Returns the moments of the values of each of `n` columns that are not NaN. Columns of equal values have no deviation at all.
    fn of_columns<T: Copy + Into<f64>, R: AsRef<[T]>>(
        n: usize,
        rows: impl Iterator<Item = R> + Clone,
    ) -> Vec<Self> {
        Arch::new().dispatch(Columns { n, rows, elements: PhantomData })
    }

    fn merge(&mut self, other: &Self) {
        let count = self.count + other.count;
        if count > 0.0 {
            let (difference, share) = (other.mean - self.mean, other.count / count);
            self.mean += difference * share;
            self.squares += other.squares + difference * difference * self.count * share;
            self.count = count;
        }
    }

    /// Returns the standard deviation of `count` values of which the others equal the mean, or 1 if rounding alone may explain it, as
    /// scikit-learn's `StandardScaler` does.
    fn scale(&self, count: f64) -> f64 {
        let (variance, error) = (self.squares / count, count * f64::EPSILON);
        let is_constant = variance <= error * variance + (error * self.mean) * (error * self.mean);
        if is_constant { 1.0 } else { variance.sqrt() }
    }
}

/// The work of [`Moments::of_columns`], which is compiled for the widest vectors.
struct Columns<T, I> {
    n: usize,
    rows: I,
    elements: PhantomData<T>,
}

impl<T: Copy + Into<f64>, R: AsRef<[T]>, I: Iterator<Item = R> + Clone> NullaryFnOnce for Columns<T, I> {
    type Output = Vec<Moments>;

    #[inline(always)]
    fn call(self) -> Vec<Moments> {
        let Self { n, rows, .. } = self;
        // Sums are of differences from the first value.
        let (mut first, mut sums, mut counts) = (vec![f64::NAN; n], vec![0.0; n], vec![0.0; n]);
        for row in rows.clone() {
            for (((x, first), sum), count) in
                row.as_ref().iter().zip(&mut first).zip(&mut sums).zip(&mut counts)
            {
                let x: f64 = (*x).into();
                *first = if first.is_nan() { x } else { *first };
                *sum += if x.is_nan() { 0.0 } else { x - *first };
                *count += if x.is_nan() { 0.0 } else { 1.0 };
            }
        }
        let mean = |((first, sum), count): ((&f64, &f64), &f64)| {
            if *count > 0.0 { first + sum / count } else { 0.0 }
        };
        let means: Vec<f64> = first.iter().zip(&sums).zip(&counts).map(mean).collect();
        // The sum of the deviations corrects the mean and the sum of their squares.
        let (mut rest, mut squares) = (vec![0.0; n], vec![0.0; n]);
        for row in rows {
            for (((x, mean), rest), square) in
                row.as_ref().iter().zip(&means).zip(&mut rest).zip(&mut squares)
            {
                let x: f64 = (*x).into();
                let deviation = if x.is_nan() { 0.0 } else { x - mean };
                *rest += deviation;
                *square += deviation * deviation;
            }
        }
        let moments = (0..n).map(|j| {
            let (count, rest) = (counts[j], rest[j]);
            let at_least_one = count.max(1.0);
            let squares = (squares[j] - rest * rest / at_least_one).max(0.0);
            Moments { count, mean: means[j] + rest / at_least_one, squares }
        });
        moments.collect()
    }
}

/// The moments of the columns of stored matrices, and of the rows if these are wanted.
#[derive(Debug, Default)]
struct Measured {
    columns: Vec<Moments>,
    rows: Vec<Moments>,
    /// The row and the column of the first element that is NaN.
    missing: Option<[u64; 2]>,
}

/// Passes that compute moments in f64 on the host, over 1,024 rows each, merged in order: no bit depends on blocks or threads.
#[derive(Debug)]
pub(super) struct Measure<'a> {
    arrays: &'a [Arc<dyn ChunkedArray>],
    pub(super) plan: Plan,
    /// True if elements are read as f32, which they all are as stored; otherwise as f64.
    is_f32: bool,
    columns: u64,
    options: &'a StoredSvdOptions,
    host: Device,
    /// The bytes of chunks that may be kept for later passes.
    pub(super) room: u64,
}

impl<'a> Measure<'a> {
    pub(super) fn new(
        arrays: &'a [Arc<dyn ChunkedArray>],
        [rows, columns]: [u64; 2],
        options: &'a StoredSvdOptions,
        device: &Device,
    ) -> Result<Self> {
        let is_f32 = arrays.iter().all(|array| array.dtype() == StoredType::F32);
        let convert: Arc<dyn Convert> =
            if is_f32 { Arc::new(AsStored(StoredType::F32)) } else { Arc::new(finite()) };
        let block =
            rows_to_load(&*arrays[0], columns.saturating_mul(convert.bytes(1))).next_multiple_of(BLOCK);
        let plan = Plan::of_rows(arrays.to_vec(), Arc::new(Selection::all(rows)), None, convert, block)?
            .reading_in_place();
        Ok(Self { arrays, plan, is_f32, columns, options, host: device.host()?, room: 0 })
    }

    /// True if rows are centred or scaled, each by its own moments.
    fn is_by_row(&self) -> bool {
        matches!(self.options.center, Center::Rows | Center::Both)
    }

    /// Returns the memory of a pass.
    pub(super) fn needs(&self) -> Needs {
        let groups = self.plan.block_rows().min(self.plan.rows()).div_ceil(BLOCK);
        let rows = if self.is_by_row() { self.plan.rows() } else { 0 };
        let moments = Needs::host(size_of::<Moments>() as u64)
            * self.columns.saturating_mul(1 + groups).saturating_add(rows);
        Needs::host(self.plan.largest_need()) + Needs::host(self.plan.block_bytes()) + moments
    }

    /// Returns the memory of the vectors of a [`Standard`], which stay.
    pub(super) fn kept(&self) -> Needs {
        Needs::host(40) * self.columns + Needs::host(16) * if self.is_by_row() { self.plan.rows() } else { 0 }
    }

    /// Makes a pass, `number` of all. With `fill`, one of its elements takes the place of each NaN in the moments of rows.
    fn pass(&self, fill: &[f64], number: [u32; 2], stats: &mut StreamStats, run: &Run) -> Result<Measured> {
        let Self { plan, host, .. } = self;
        let (n, m) = (to_usize(self.columns), plan.rows());
        let mut measured = Measured { columns: vec![Moments::default(); n], ..Measured::default() };
        let rest = run.memory.fit(host, self.needs())?;
        if n == 0 || m == 0 {
            return Ok(measured);
        }
        let left = rest.left(host).host;
        let ahead = plan.ahead(host.pool()?.current_num_threads() as u64).min(left / 2);
        let kept = self.room.min(left - ahead);
        plan.keep_chunks(kept);
        plan.hold_shards(left - ahead - kept);
        let bytes = plan.largest_need().saturating_add(ahead);
        let mut blocks = Blocks::new(plan, host, plan.block_rows(), bytes, &run.cancel)?;
        let pass = Pass::new(run, Status::new(number[0], number[1], m));
        while let Some(mut block) = blocks.next_block()? {
            let range = block.rows();
            if self.is_f32 {
                self.add::<f32>(block.bytes(), range.start, fill, &mut measured)?;
            } else {
                self.add::<f64>(block.bytes(), range.start, fill, &mut measured)?;
            }
            pass.tell(range.end)?;
        }
        stats.add(&blocks.stats);
        Ok(measured)
    }

    /// Adds the moments of the rows of a block, from row `first` on.
    fn add<T: Real + Into<f64>>(
        &self,
        bytes: &[u8],
        first: u64,
        fill: &[f64],
        measured: &mut Measured,
    ) -> Result<()> {
        let (n, elements): (_, &[T]) = (to_usize(self.columns), bytemuck::cast_slice(bytes));
        let mut groups: Vec<Vec<Moments>> = Vec::new();
        self.host.pool()?.install(|| {
            let columns = |group: &[T]| {
                let mut moments = vec![Moments::default(); n];
                moments.par_chunks_mut(COLUMNS).enumerate().for_each(|(at, moments)| {
                    let columns = at * COLUMNS..at * COLUMNS + moments.len();
                    let rows = group.chunks_exact(n).map(|row| &row[columns.clone()]);
                    moments.copy_from_slice(&Moments::of_columns(columns.len(), rows));
                });
                moments
            };
            groups.par_extend(elements.par_chunks(n * to_usize(BLOCK)).map(columns));
            if self.is_by_row() {
                let filled = |row: &[T]| {
                    let row = row.iter().map(|x| (*x).into());
                    match fill {
                        [] => Moments::new(row),
                        fill => {
                            Moments::new(row.zip(fill).map(|(x, fill)| if x.is_nan() { *fill } else { x }))
                        }
                    }
                };
                measured.rows.par_extend(elements.par_chunks_exact(n).map(filled));
            }
        });
        let moments = || groups.iter().flatten();
        if self.is_f32 && moments().any(|moments| !moments.mean.is_finite()) {
            self.check_finite(bytes, first)?;
        }
        let present: f64 = moments().map(|moments| moments.count).sum();
        if measured.missing.is_none() && present < elements.len() as f64 {
            let place = elements.iter().position(|x| (*x).into().is_nan()).map(|at| at as u64);
            measured.missing = place.map(|place| [first + place / self.columns, place % self.columns]);
        }
        for group in &groups {
            measured.columns.iter_mut().zip(group).for_each(|(total, group)| total.merge(group));
        }
        Ok(())
    }

    /// Fails with [`Error::Chunk`] for the first infinity in rows of f32, from row `first` on.
    fn check_finite(&self, bytes: &[u8], first: u64) -> Result<()> {
        for (row, bytes) in (first..).zip(bytes.chunks_exact(4 * to_usize(self.columns))) {
            let array = self.plan.array_of(row);
            let mut room = vec![0; 2 * bytes.len()];
            if let Err(Misfit { at, why, .. }) = finite().convert(&**array, bytes, &mut room) {
                let (column, chunk) = (at as u64, array.chunk_shape());
                let index = [(row - self.before(array)) / chunk[0], column / chunk[1]];
                let place = finite().place(row, column);
                return Err(Error::chunk(array.name(), &index, format_args!("{place}: {why}")));
            }
        }
        Ok(())
    }

    /// Returns the number of rows before those of an array.
    fn before(&self, array: &Arc<dyn ChunkedArray>) -> u64 {
        let is_before = |other: &&Arc<dyn ChunkedArray>| !Arc::ptr_eq(other, array);
        self.arrays.iter().take_while(is_before).map(|array| array.shape()[0]).sum()
    }
}

/// Returns the conversion to f64 that refuses infinity.
fn finite() -> Narrow {
    Narrow::finite(Narrowed::F64, false, true)
}

/// A conversion to centred and scaled elements, in f32 or f64, which are computed in f64.
#[derive(Debug, Default)]
pub(super) struct Standardized {
    is_wide: bool,
    /// The value of each column in place of NaN, the value that is subtracted, and the factor.
    fill: Vec<f64>,
    shift: Vec<f64>,
    factor: Vec<f64>,
    /// The value that is subtracted from each row, and the factor; empty if no row has its own.
    rows: Vec<[f64; 2]>,
    /// True if all elements stay as they are stored.
    pub(super) is_identity: bool,
}

impl Standardized {
    /// Returns a conversion for plans, which has no columns.
    pub(super) fn of_type(is_wide: bool) -> Self {
        Self { is_wide, ..Self::default() }
    }

    /// Returns a digest of what replaces, centres and scales elements, and so of their moments.
    pub(super) fn digest(&self) -> u64 {
        let tables = [&self.fill[..], &self.shift, &self.factor, self.rows.as_flattened()];
        tables.iter().fold(0, |state, values| digest(state, bytemuck::cast_slice(values)))
    }
}

impl Convert for Standardized {
    fn accepts(&self, _: &dyn ChunkedArray) -> Result<()> {
        Ok(())
    }

    fn bytes(&self, elements: u64) -> u64 {
        elements.saturating_mul(if self.is_wide { 8 } else { 4 })
    }

    fn convert(&self, array: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit> {
        // Passes call `convert_at`, which is told the place.
        self.convert_at(array, &|| [0, 0], from, to)
    }

    fn convert_at(
        &self,
        array: &dyn ChunkedArray,
        place: &dyn Fn() -> [u64; 2],
        from: &[u8],
        to: &mut [u8],
    ) -> Result<(), Misfit> {
        let [row, column] = place();
        let (size, width) = (array.dtype().size(), to_usize(self.bytes(1)));
        let [row_shift, row_factor] = self.rows.get(to_usize(row)).copied().unwrap_or([0.0, 1.0]);
        let (mut column, mut room) = (to_usize(column), [0.0; PIECE]);
        for (from, to) in from.chunks(PIECE * size).zip(to.chunks_mut(PIECE * width)) {
            let room = &mut room[..from.len() / size];
            widen(array.dtype(), from, room);
            let columns = column..column + room.len();
            let (fill, shift) = (&self.fill[columns.clone()], &self.shift[columns.clone()]);
            for (((x, fill), shift), factor) in
                room.iter_mut().zip(fill).zip(shift).zip(&self.factor[columns])
            {
                let value = if x.is_nan() { *fill } else { *x };
                *x = ((value - shift) - row_shift) * (factor * row_factor);
            }
            column += room.len();
            if self.is_wide {
                to.copy_from_slice(bytemuck::cast_slice(room));
            } else {
                let to = to.as_chunks_mut::<4>().0;
                #[allow(clippy::cast_possible_truncation, reason = "rounds")]
                to.iter_mut().zip(room).for_each(|(to, x)| *to = (*x as f32).to_ne_bytes());
            }
        }
        Ok(())
    }
}

/// A stored matrix's centring and scaling.
#[derive(Debug)]
pub(super) struct Standard {
    pub(super) convert: Standardized,
    /// The power of two that elements are divided by in addition, so that their squares are near 1; 1 if they stay as they are stored.
    pub(super) power: f64,
    /// The sum of the squares of the centred and scaled elements, which are not divided by `power`.
    pub(super) total: f64,
    pub(super) means: Vec<f64>,
    pub(super) variances: Vec<f64>,
    /// The number of elements that are NaN.
    pub(super) missing: u64,
    /// The number of passes that were made, and their stats.
    pub(super) passes: u32,
    pub(super) stats: StreamStats,
}

impl Standard {
    /// Measures the arrays, in one pass, or in two if elements are missing and rows have their own means. `is_wide` is true for elements in
    /// f64. Fails with [`Error::Store`] for missing elements, unless these become the mean, and for a column without any other;
    /// [`Error::Argument`] for squares beyond f64; the errors of a pass.
    pub(super) fn new(measure: &Measure<'_>, is_wide: bool, run: &Run) -> Result<Self> {
        let (mut stats, mut passes) = (StreamStats::default(), 1);
        let mut measured = measure.pass(&[], [0, 1], &mut stats, run)?;
        let means: Vec<f64> = measured.columns.iter().map(|moments| moments.mean).collect();
        let [m, n] = [measure.plan.rows(), measure.columns];
        let present: f64 = measured.columns.iter().map(|moments| moments.count).sum();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number")]
        let missing = m.saturating_mul(n) - present as u64;
        if let Some(place) = measured.missing {
            measure.check_missing(missing, place, &measured)?;
            if measure.is_by_row() {
                measured.rows = Vec::new();
                measured.rows = measure.pass(&means, [1, 2], &mut stats, run)?.rows;
                passes = 2;
            }
        }
        let (mut convert, total) =
            standardized([m as f64, n as f64], is_wide, &measured, &means, measure.options);
        if !total.is_finite() {
            let why = "the sum of the squares of their elements is beyond f64";
            return Err(Error::argument(OP, "arrays", why));
        }
        let mean_square = total / (m as f64 * n as f64);
        let power = if mean_square > 0.0 { mean_square.sqrt().log2().round().exp2() } else { 1.0 };
        // Elements that stay as they are stored need no conversion, if their squares are far from the limits of the type.
        let stored = if is_wide { StoredType::F64 } else { StoredType::F32 };
        convert.is_identity = measured.missing.is_none()
            && convert.rows.is_empty()
            && convert.shift.iter().all(|shift| *shift == 0.0)
            && convert.factor.iter().all(|factor| *factor == 1.0)
            && measure.arrays.iter().all(|array| array.dtype() == stored)
            && (NEAR.recip()..=NEAR).contains(&power);
        let power = if convert.is_identity { 1.0 } else { power };
        convert.factor.iter_mut().for_each(|factor| *factor /= power);
        let variances = measured.columns.iter().map(|moments| moments.squares / m as f64).collect();
        Ok(Self { convert, power, total, means, variances, missing, passes, stats })
    }
}

impl Measure<'_> {
    /// Fails with [`Error::Store`] for missing elements, unless the mean takes their place, and for a column without any other.
    fn check_missing(&self, missing: u64, [row, column]: [u64; 2], measured: &Measured) -> Result<()> {
        let array = self.plan.array_of(row);
        if !self.options.missing_mean {
            let (s, are) = if missing == 1 { ("", "is") } else { ("s", "are") };
            let of_arrays = if self.arrays.len() > 1 { " of all arrays" } else { "" };
            let place = format!("row {}, column {column}", row - self.before(array));
            let why = format!("{missing} element{s}{of_arrays} {are} NaN or missing, first in {place}");
            let hint = Hint::new("missing_mean", "");
            return Err(Error::store(array.name(), why).hinting(hint));
        }
        let empty = measured.columns.iter().position(|moments| moments.count == 0.0);
        let Some(column) = empty else { return Ok(()) };
        let why = format!("all elements of column {column} are NaN or missing: it has no mean");
        Err(Error::store(array.name(), why))
    }
}

/// Returns the conversion, and the sum of the squares of its elements.
fn standardized(
    [m, n]: [f64; 2],
    is_wide: bool,
    measured: &Measured,
    means: &[f64],
    options: &StoredSvdOptions,
) -> (Standardized, f64) {
    let Measured { columns, rows, .. } = measured;
    let of_rows = options.center == Center::Rows;
    let scale_of =
        |moments: &Moments, is_scaled: bool, count| if is_scaled { moments.scale(count) } else { 1.0 };
    let factor: Vec<f64> =
        columns.iter().map(|moments| scale_of(moments, options.scale && !of_rows, m).recip()).collect();
    let grand = if options.center == Center::Both { means.iter().sum::<f64>() / n } else { 0.0 };
    let of_row =
        |moments: &Moments| [moments.mean - grand, scale_of(moments, options.scale && of_rows, n).recip()];
    let row_terms: Vec<_> = rows.iter().map(of_row).collect();
    let scaled = |(moments, factor): (&Moments, &f64)| moments.squares * factor * factor;
    let squared = |(mean, factor): (&f64, &f64)| m * mean * mean * factor * factor;
    let total = match options.center {
        Center::Columns => columns.iter().zip(&factor).map(scaled).sum(),
        Center::None => {
            columns.iter().zip(&factor).map(scaled).chain(means.iter().zip(&factor).map(squared)).sum()
        }
        Center::Rows => {
            rows.iter().zip(&row_terms).map(|(moments, [_, factor])| scaled((moments, factor))).sum()
        }
        Center::Both => {
            // Either difference is the total; that of smaller numbers has more digits.
            let rest = |lines: &[Moments], others: &[Moments], count: f64| {
                let squares: f64 = lines.iter().map(|moments| moments.squares).sum();
                let of_means = |moments: &Moments| count * (moments.mean - grand) * (moments.mean - grand);
                [squares, squares - others.iter().map(of_means).sum::<f64>()]
            };
            let [by_rows, by_columns] = [rest(rows, columns, m), rest(columns, rows, n)];
            let [_, rest] = if by_rows[0] < by_columns[0] { by_rows } else { by_columns };
            rest.max(0.0)
        }
    };
    let is_centred = matches!(options.center, Center::Columns | Center::Both);
    let shift = if is_centred { means.to_vec() } else { vec![0.0; means.len()] };
    let fill = means.to_vec();
    (Standardized { is_wide, fill, shift, factor, rows: row_terms, is_identity: false }, total)
}
