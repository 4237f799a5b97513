//! Sums of terms over features, for each pair of observations.

use std::{ops::Range, sync::Arc};

use super::{
    Metric, Missing, Options,
    frame::{Frame, Moments, near_one},
    metric::{Prepare, Scaling},
    precision::{PLAIN, is_normal, is_wide, shares, table},
    results::zeros,
};
use crate::{
    DType, Element, Error, Result, Tensor,
    dtype::{joined, nearest_f32},
    extent::to_usize,
    kernel::{Grid, small},
    kernels::distance::{BLOCK, DISTANCE, Params, TILE, Term, spec},
    linalg::reduce,
    packed::pair_products::{exponent, power_of_two},
    tensor::Window,
};

/// Rounding leaves a constant observation with a length below this share of its mean; an element that differs leaves more. `CONSTANT` is for
/// f32, `CONSTANT_WIDE` for f64.
const CONSTANT: f64 = 1.0 / (1u64 << 30) as f64;
const CONSTANT_WIDE: f64 = 1.0 / (1u64 << 60) as f64;

/// f32 may not hold integers of this size and beyond.
const WHOLE: f64 = (1u32 << 24) as f64;

/// The observations of one operand.
pub(super) struct PreparedObservations<'a, T: Element> {
    pub(super) x: &'a Tensor<T>,
    name: &'static str,
    by_column: bool,
    /// The index of the first observation, if these observations are a part of a larger matrix.
    first: u64,
    pub(super) count: u64,
    /// True if all sums are computed in f64.
    pub(super) wide: bool,
    /// A [`table`] with three entries for each observation: two parts of the value to subtract, and the factor of the difference.
    pub(super) table: Arc<Tensor<f32>>,
    /// For each observation, true if all distances from it are NaN.
    pub(super) undefined: Vec<bool>,
    /// For each observation, the largest magnitude of its elements, or up to √features times as much. Empty for metrics without scaling.
    pub(super) sizes: Vec<f64>,
}

/// Returns the extents of a matrix: observations, then features.
pub(super) fn extents<T: Element>(x: &Tensor<T>, columns: bool) -> Result<[u64; 2]> {
    let [rows, cols] = x.matrix("distance")?;
    Ok(if columns { [cols, rows] } else { [rows, cols] })
}

pub(super) fn features<T: Element>(x: &Tensor<T>, columns: bool) -> Result<u64> {
    Ok(extents(x, columns)?[1])
}

impl<'a, T: Element> PreparedObservations<'a, T> {
    /// Checks the observations, the first of which has the index `first`, and prepares them as the metric requires.
    pub(super) fn new(
        (name, x, first): (&'static str, &'a Tensor<T>, u64),
        metric: Metric,
        prepare: Prepare,
        wide: bool,
        options: &Options,
    ) -> Result<Self> {
        let masked = options.missing != Missing::Propagate;
        let mut operand = Self { first, ..Self::plain((name, x), wide, options)? };
        operand.check(metric, masked, options)?;
        operand.prepare(prepare, options)?;
        Ok(operand)
    }

    fn plain((name, x): (&'static str, &'a Tensor<T>), wide: bool, options: &Options) -> Result<Self> {
        let len = to_usize(extents(x, options.columns)?[0]);
        let mut plain = zeros(len)?;
        plain.fill(PLAIN);
        let table = table(x.device(), &plain, wide)?.into();
        Ok(Self { undefined: zeros(len)?, ..Self::prepared((name, x, 0), table, wide, options)? })
    }

    /// Creates observations whose table is computed already.
    pub(super) fn prepared(
        (name, x, first): (&'static str, &'a Tensor<T>, u64),
        table: Arc<Tensor<f32>>,
        wide: bool,
        options: &Options,
    ) -> Result<Self> {
        let [count, _] = extents(x, options.columns)?;
        let (undefined, sizes) = (Vec::new(), Vec::new());
        Ok(Self { x, name, by_column: options.columns, first, count, wide, table, undefined, sizes })
    }

    /// Finds NaN and the largest elements, and refuses elements for which the metric is undefined.
    fn check(&mut self, metric: Metric, masked: bool, options: &Options) -> Result<()> {
        let refused = |number: usize, why: &str| {
            let number = self.first + number as u64;
            Err(Error::argument("distance", self.name, format_args!("observation {number}: {why}")))
        };
        // Under this rule NaN elements are left out, and infinite elements are not.
        let rule = Options { missing: Missing::Ignore, negative: false, ..*options };
        // The statistics are over finite elements, converted to f32.
        let stats = |missing| -> Result<[Vec<f64>; 2]> {
            let stats = reduce::enqueue("distance", self.x, false, [!self.by_column, missing])?.wait()?;
            let sizes = stats.iter().map(|stats| stats.sum_squares.sqrt()).collect();
            Ok([stats.iter().map(|stats| stats.count as f64).collect(), sizes])
        };
        let negative = masked && options.negative;
        let feature_count = features(self.x, options.columns)? as f64;
        if matches!(T::DTYPE, DType::U32 | DType::I32) && !self.wide && !options.narrow {
            let largest = self.alone(Term::Largest, &rule)?;
            if let Some(number) = largest.iter().position(|&largest| largest >= WHOLE) {
                let why = "an integer of 2^24 or beyond, not all of which f32 holds, where sums are of f32: the \
                           option `narrow` asks for the nearest f32";
                return refused(number, why);
            }
        }
        let (known, infinite, mut sizes) = if self.wide {
            let largest = self.alone(Term::Largest, &rule)?;
            let infinite = largest.iter().position(|largest| largest.is_infinite());
            (self.alone(Term::Count, &rule)?, infinite, largest)
        } else {
            let [finite, sizes] = stats(false)?;
            match finite.iter().any(|&count| count < feature_count) {
                true => {
                    let known = self.alone(Term::Count, &rule)?;
                    let infinite = known.iter().zip(finite).position(|(known, finite)| finite < *known);
                    (known, infinite, sizes)
                }
                false => (finite, None, sizes),
            }
        };
        if let Some(number) = infinite {
            return refused(number, "an infinite element");
        }
        if metric.needs_nonnegative() {
            let kept = match self.wide {
                true => self.alone(Term::Count, &Options { negative: true, ..rule })?,
                false => {
                    let [kept, _] = stats(true)?;
                    kept
                }
            };
            if let Some(number) = known.iter().zip(kept).position(|(known, kept)| kept < *known) {
                return refused(number, &format!("a negative element, of which {metric} knows no distance"));
            }
        }
        let undefined = self.undefined.iter_mut().zip(known);
        undefined.for_each(|(undefined, known)| *undefined = !masked && known < feature_count);
        let scaling = metric.scaling(self.wide);
        if scaling == Scaling::None {
            return Ok(());
        }
        if negative && !self.wide {
            [_, sizes] = stats(true)?;
        }
        // For other sizes, squares overflow or underflow f32, or all elements are 0.
        let is_known = |size: &f64| if self.wide { !negative } else { (1e-15..1e18).contains(size) };
        if !sizes.iter().all(is_known) {
            let largest = self.alone(Term::Largest, &Options { negative, ..rule })?;
            let others = sizes.iter_mut().zip(largest).filter(|(size, _)| !is_known(size));
            others.for_each(|(size, largest)| *size = largest);
        }
        self.sizes = sizes;
        Ok(())
    }

    /// Multiplies all elements by `scale`.
    pub(super) fn scale(&mut self, scale: f64) -> Result<()> {
        let [shift, rest, _] = PLAIN;
        self.set_table(&vec![[shift, rest, scale]; to_usize(self.count)])
    }

    pub(super) fn set_table(&mut self, entries: &[[f64; 3]]) -> Result<()> {
        self.table = table(self.x.device(), entries, self.wide)?.into();
        Ok(())
    }

    /// Returns the indices of all observations.
    pub(super) fn range(&self) -> Range<u64> {
        self.first..self.first + self.count
    }

    /// Finds a value near the mean of each observation, over the features from `before` on: the first 256 features, or the first block in which
    /// the observation has any. The division into chunks does not matter.
    pub(super) fn find_shifts(&mut self, frames: &mut [Frame], before: u64, options: &Options) -> Result<()> {
        let (features, masked) = (features(self.x, options.columns)?, options.missing != Missing::Propagate);
        let is_whole = !matches!(T::DTYPE, DType::F64 | DType::F32 | DType::F16 | DType::BF16);
        let mut next = 0;
        while next < features && frames.iter().zip(&self.undefined).any(|(frame, no)| !(frame.is_final | no))
        {
            let end = features.min((before + next + 1).next_multiple_of(BLOCK as u64) - before);
            let block = next..end;
            let counts = match masked {
                true => self.alone_of(Term::Count, block.clone(), options)?,
                false => vec![(end - next) as f64; frames.len()],
            };
            let mut seen = frames.iter().zip(&self.undefined).zip(&counts);
            if !seen.any(|((frame, no), count)| !(frame.is_final | no) && *count > 0.0) {
                // An observation without any elements must not slow down the search: a block that adds nothing is skipped.
                next = end;
                continue;
            }
            let mut entries: Vec<_> = frames.iter().map(|frame| [0.0, 0.0, frame.factor()]).collect();
            self.set_table(&entries)?;
            let sums = self.alone_of(Term::X, block.clone(), options)?;
            for (entry, (sum, count)) in entries.iter_mut().zip(sums.iter().zip(&counts)) {
                entry[0] = self.rounded(if *count > 0.0 { sum / count / entry[2] } else { 0.0 });
            }
            self.set_table(&entries)?;
            let squares = self.alone_of(Term::XSquare, block, options)?;
            let ends = (before + end).is_multiple_of(BLOCK as u64);
            for (number, frame) in frames.iter_mut().enumerate().filter(|(_, frame)| !frame.is_final) {
                let [mean, _, scale] = entries[number];
                let squares = squares[number] / scale / scale;
                frame.seen = frame.seen.with(Moments { count: counts[number], mean, squares });
                frame.shift = self.rounded(frame.seen.near_mean(is_whole));
                frame.is_final = ends && frame.seen.count > 0.0;
            }
            next = end;
        }
        Ok(())
    }

    /// Rounds a value to the device's type.
    fn rounded(&self, value: f64) -> f64 {
        if self.wide { value } else { nearest_f32(value).into() }
    }

    /// Fills the table as `prepare` says.
    fn prepare(&mut self, prepare: Prepare, options: &Options) -> Result<()> {
        let mut entries = vec![PLAIN; self.undefined.len()];
        if matches!(prepare, Prepare::Scale | Prepare::Centre | Prepare::CentreAndUnit) {
            for (entry, size) in entries.iter_mut().zip(&self.sizes) {
                entry[2] = near_one(*size, self.wide);
            }
            self.set_table(&entries)?;
        }
        if matches!(prepare, Prepare::Centre | Prepare::CentreAndUnit) {
            self.centre(&mut entries, options)?;
        }
        if matches!(prepare, Prepare::Unit | Prepare::CentreAndUnit) {
            self.scale_to_unit(&mut entries, options)?;
        }
        if prepare == Prepare::Shares {
            let sums = self.alone(Term::X, options)?;
            let entries = shares((self.name, self.first), &sums, &mut self.undefined, self.wide)?;
            self.set_table(&entries)?;
        }
        Ok(())
    }

    /// Subtracts means in three steps. Each step subtracts the mean of the remainder, which removes the rounding error of the previous step.
    fn centre(&mut self, entries: &mut [[f64; 3]], options: &Options) -> Result<()> {
        let counts = if options.missing == Missing::Propagate {
            vec![features(self.x, options.columns)? as f64; entries.len()]
        } else {
            self.alone(Term::Count, options)?
        };
        for part in [0, 1, 1] {
            for ((entry, sum), count) in entries.iter_mut().zip(self.alone(Term::X, options)?).zip(&counts) {
                let mean = self.rounded(if *count > 0.0 { sum / count / entry[2] } else { 0.0 });
                entry[part] = self.rounded(entry[part] + mean);
            }
            self.set_table(entries)?;
        }
        Ok(())
    }

    /// Divides observations by their lengths. Elements are scaled to at most 1 before they are squared.
    fn scale_to_unit(&mut self, entries: &mut [[f64; 3]], options: &Options) -> Result<()> {
        for (entry, largest) in entries.iter_mut().zip(self.alone(Term::Largest, options)?) {
            let largest = largest / entry[2];
            entry[2] =
                if largest > 0.0 { self.rounded(power_of_two((-exponent(largest)).max(-1022))) } else { 0.0 };
        }
        self.set_table(entries)?;
        let constant = if self.wide { CONSTANT_WIDE } else { CONSTANT };
        let squares = self.alone(Term::XSquare, options)?;
        for (number, (entry, square)) in entries.iter_mut().zip(squares).enumerate() {
            let length = square.sqrt() / entry[2];
            // NaN if all elements are 0 (0 / 0).
            let is_nothing = length.is_nan() || length <= constant * entry[0].abs();
            self.undefined[number] |= is_nothing;
            entry[2] = if self.undefined[number] { 0.0 } else { self.rounded(length.recip()) };
            if !self.undefined[number] && !is_normal(entry[2], self.wide) {
                let number = self.first + number as u64;
                let why = format_args!("observation {number} has the length {length:e}");
                return Err(Error::argument("distance", self.name, why));
            }
        }
        self.set_table(entries)?;
        Ok(())
    }

    /// Returns the sum of a term for each single observation.
    fn alone(&self, term: Term, options: &Options) -> Result<Vec<f64>> {
        self.alone_of(term, 0..features(self.x, options.columns)?, options)
    }

    /// Returns the sums of a term over `range`.
    fn alone_of(&self, term: Term, range: Range<u64>, options: &Options) -> Result<Vec<f64>> {
        let device = self.x.device();
        let features = features(self.x, options.columns)?;
        let zeros = Tensor::zeros(device, &if self.by_column { [features, 1] } else { [1, features] })?;
        let zero = PreparedObservations::plain(("zero", &zeros), self.wide, options)?;
        let mut sums = Tensor::empty(device, &[self.count, 2])?;
        let (x, y) = ((self, self.range()), (&zero, 0..1));
        let pairs = ObservationPairs { x, y, features: range, accumulate: false, sums0: 0, y_step: 0 };
        pairs.add(term, 1.0, options, false, &mut sums)?;
        let sums = sums.read()?;
        Ok(sums.as_chunks().0.iter().map(|sum| joined(sum, self.wide)).collect())
    }

    /// Returns the window of stored rows or columns that hold some observations and features, and the position of the first element.
    fn window(&self, observations: &Range<u64>, features: &Range<u64>) -> (Window<'_>, u32) {
        let observations = &self.places(observations);
        let (lines, first) = match self.by_column {
            true => (features, observations.start),
            false => (observations, features.start),
        };
        let line = self.x.shape()[1];
        let window = self.x.window(lines.start * line..lines.end * line);
        let start = window.start + small(first);
        (window, start)
    }

    /// Returns the positions, in this operand, of observations with these indices.
    fn places(&self, observations: &Range<u64>) -> Range<u64> {
        observations.start - self.first..observations.end - self.first
    }

    /// Returns the maximum number of stored lines for a launch.
    fn most_lines(&self) -> Result<u64> {
        let max = self.x.device().limits().room();
        let line = (self.x.shape()[1] * T::DTYPE.size()).max(1);
        match max / line {
            0 => Err(Error::Limit { what: "bytes in one row of a matrix", requested: line, max }),
            lines => Ok(lines),
        }
    }
}

/// Returns the largest of some sizes, 0 if there are none.
pub(super) fn largest(sizes: &[f64]) -> f64 {
    sizes.iter().copied().fold(0.0, f64::max)
}

/// Returns the sum of each observation, NaN if one of its elements is NaN. Fails with [`Error::NoF64`]; [`Error::Limit`] when one row
/// does not fit a binding; with what the device reports.
pub(super) fn observation_sums<T: Element>(x: &Tensor<T>, options: &Options) -> Result<Vec<f64>> {
    let plain = Options { missing: Missing::Propagate, negative: false, ..*options };
    let wide = is_wide::<T>(x.device(), &[Term::X], Prepare::Nothing, options)?;
    PreparedObservations::plain(("x", x), wide, options)?.alone(Term::X, &plain)
}

/// Pairs of some observations of x and some observations of y.
pub(super) struct ObservationPairs<'a, T: Element> {
    pub(super) x: (&'a PreparedObservations<'a, T>, Range<u64>),
    pub(super) y: (&'a PreparedObservations<'a, T>, Range<u64>),
    pub(super) features: Range<u64>,
    /// True if sums are added to the tensor, false if they overwrite it.
    pub(super) accumulate: bool,
    /// The number of pairs in the tensor of sums before these pairs.
    pub(super) sums0: u64,
    /// 0, or the number of observations of y from those that [`TILE`] observations of x are paired with to those of the next.
    pub(super) y_step: u64,
}

impl<T: Element> ObservationPairs<'_, T> {
    /// Writes or adds a term's sums for all pairs or the lower triangle, in as many launches as bindings require. Enqueues; does not wait.
    pub(super) fn add(
        &self,
        term: Term,
        power: f64,
        options: &Options,
        lower: bool,
        sums: &mut Tensor<f32>,
    ) -> Result<()> {
        let ((x, rows), (y, columns)) = (&self.x, &self.y);
        let features = self.features.end - self.features.start;
        let lines = x.most_lines()?.min(y.most_lines()?);
        let limits = x.x.device().limits();
        let axis = u64::from(limits.groups_per_axis).saturating_mul(TILE.into());
        // The shader needs fewer than 2 iterations for each feature.
        let deepest = u64::from(limits.iterations / 2);
        let [mut height, mut width, mut depth] = [axis, axis, features.clamp(1, deepest)];
        if options.columns {
            depth = depth.min(lines);
        } else {
            (height, width) = (height.min(lines), width.min(lines));
        }
        // A binding limits the number of rows of sums.
        height = height.min(limits.room() / (8 * (columns.end - columns.start).max(1))).max(1);
        // The kernel computes whole tiles and blocks even for few observations.
        let (tile, block) = (u64::from(TILE), BLOCK as u64);
        let work = limits.work_of(if x.wide { DType::F64 } else { DType::F32 }) / term.cost();
        width = width.min(columns.end - columns.start).clamp(1, (work / (tile * block)).max(1));
        let tiles = width.next_multiple_of(tile);
        depth = depth.min((work / (tiles * tile)).max(1));
        if depth < features && depth > block {
            depth -= depth % block;
        }
        height = height.min((work / (tiles * depth)).max(tile));
        if self.y_step > 0 {
            height = (height / tile).max(1) * tile;
        }
        for row in rows.clone().step_by(to_usize(height)) {
            for col in columns.clone().step_by(to_usize(width)) {
                let Range { start, end } = self.features;
                for feature in (start..end.max(start + 1)).step_by(to_usize(depth)) {
                    let (rows, columns) =
                        (row..rows.end.min(row + height), col..columns.end.min(col + width));
                    let features = feature..end.min(feature + depth);
                    self.launch([rows, columns, features], (term, power), options, lower, sums)?;
                }
            }
        }
        Ok(())
    }

    /// Returns the observations of y that some observations of x are paired with: from the first column of the first to the last of the last.
    fn others(&self, rows: &Range<u64>, columns: &Range<u64>) -> Range<u64> {
        let [first, last] = [rows.start, rows.end - 1].map(|row| (row - self.x.1.start) / u64::from(TILE));
        self.y_step * first + columns.start..self.y_step * last + columns.end
    }

    fn launch(
        &self,
        [rows, columns, features]: [Range<u64>; 3],
        (term, power): (Term, f64),
        options: &Options,
        lower: bool,
        sums: &mut Tensor<f32>,
    ) -> Result<()> {
        let ((x, all_rows), (y, all_columns)) = (&self.x, &self.y);
        let [m, n] = [&rows, &columns].map(|range| range.end - range.start);
        let (x_window, x0) = x.window(&rows, &features);
        let others = self.others(&rows, &columns);
        let (y_window, y0) = y.window(&others, &features);
        let words = if x.wide { 2 } else { 1 };
        let [x_table, y_table] = [(x, &rows), (y, &others)].map(|(operand, range)| {
            let places = operand.places(range);
            operand.table.window(3 * words * places.start..3 * words * places.end)
        });
        // Only the differences between indices matter; the indices themselves may exceed the kernel's u32.
        let [row0, col0] = [&rows, &columns].map(|range| range.start - rows.start.min(columns.start));
        let lds = all_columns.end - all_columns.start;
        let [first, end] = [rows.start, rows.end].map(|row| 2 * (self.sums0 + lds * (row - all_rows.start)));
        let target = sums.window_update(first..end);
        let masked = options.missing != Missing::Propagate;
        let params = Params {
            m: small(m),
            n: small(n),
            k: small(features.end - features.start),
            ldx: small(x.x.shape()[1]),
            ldy: small(y.x.shape()[1]),
            lds: small(lds),
            x0,
            y0,
            x_table0: x_table.start / small(words),
            y_table0: y_table.start / small(words),
            sums0: target.start / 2 + small(columns.start - all_columns.start),
            x_type: T::DTYPE.code(),
            y_type: T::DTYPE.code(),
            by_column: options.columns.into(),
            negative: options.negative.into(),
            accumulate: (self.accumulate || features.start > self.features.start).into(),
            lower: lower.into(),
            row0: small(row0),
            col0: small(col0),
            term: term as u32,
            power: nearest_f32(power),
            power_low: small(power.to_bits() & u64::from(u32::MAX)),
            power_high: small(power.to_bits() >> 32),
            y_step: small(self.y_step),
        };
        let tile = u64::from(TILE);
        let work = 2 * term.cost() * m * n * (features.end - features.start);
        let grid = Grid::tiles(small(n.div_ceil(tile)), small(m.div_ceil(tile)), work);
        let args = [x_window.arg, y_window.arg, x_table.arg, y_table.arg, target.arg];
        x.x.device().launch(&DISTANCE, &spec(term, masked, x.wide), grid, &args, &params)
    }
}
