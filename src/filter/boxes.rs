//! A box of an array, filtered along some of its axes: its passes and their panels.
//!
//! A box has, along each axis, the extents of its input and of its output, and the index in the input of the first output. For a whole
//! array both extents are the same, and the index is 0. For a block with a halo on both sides the output is smaller, and the index is the
//! radius. The terms of a sum depend on nothing else, and the way in which they are added does not depend on the box, so any boxes give
//! the same result to the bit.

use std::ops::Range;

use super::{
    axis::BoxAxis,
    options::Rounding,
    passes::{Pass, apart, shares_words, steps},
    taps::Taps,
};
use crate::{
    DType, Device, Element, Error, Limits, Result, Tensor,
    dtype::nearest_f32,
    extent::to_usize,
    kernel::{Grid, small},
    kernels::correlate::{CORRELATE, Combine, Edge, Params, room, spec},
    untyped::{Untyped, empty_of},
};

/// The filter of a box, with the arithmetic and the rounding that the caller chose.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) op: &'static str,
    pub(crate) axes: Vec<BoxAxis>,
    /// True if sums that would be in f64 are in f32.
    pub(crate) narrow: bool,
    /// True if sums are computed like scipy's: an integer output is truncated to its type after each axis.
    pub(crate) as_scipy: bool,
    /// The way in which sums change the output: they replace it, or, if it has their type, are combined with it.
    pub(crate) combine: Combine,
}

/// The type and the rounding of a pass's sums.
#[derive(Clone, Copy)]
struct End {
    /// The type in which sums are computed: f32 or f64.
    real: DType,
    /// True if the sums are the final outputs.
    is_last: bool,
    /// One more than the code of the type that sums are truncated to; 0 if they are not truncated.
    truncate: u32,
    /// True if elements at the same distance from the centre are added first, as in scipy; also for 8-bit inputs and outputs, where
    /// rounding does not show.
    is_paired: bool,
}

/// The maximum number of elements, and of weights, along a filtered axis: kernels use signed 32-bit integers of up to twice this number.
const EXTENT: u64 = 1 << 29;

impl Filter {
    /// Makes the filter of a whole array of this shape along `axes`. With [`Rounding::Scipy`] sums have the same terms as in scipy, since
    /// a difference in the last bit may change a truncated number. Otherwise weights that reach beyond an axis are
    /// [folded](Taps::folded), and an axis of one element is not filtered if that would not change the element.
    pub(crate) fn new(
        op: &'static str,
        shape: &[u64],
        axes: &[usize],
        taps: Vec<Option<Taps>>,
        rounding: Rounding,
    ) -> Self {
        let as_scipy = rounding == Rounding::Scipy;
        let mut box_axes: Vec<BoxAxis> = shape.iter().map(|&n| BoxAxis::whole(n, None)).collect();
        for (&axis, taps) in axes.iter().zip(taps) {
            let n = shape[axis];
            box_axes[axis].taps = match taps {
                Some(taps) if !as_scipy && n == 1 && taps.keep_one() => None,
                Some(taps) if !as_scipy => taps.folded(n).or(Some(taps)),
                taps => taps,
            };
        }
        Self { op, axes: box_axes, narrow: false, as_scipy, combine: Combine::Replace }
    }

    /// Multiplies the elements by `scale` before they are filtered.
    pub(crate) fn rescale(&mut self, scale: f64) {
        let taps = self.first_taps();
        taps.rescale(scale);
        taps.constant /= scale;
    }

    /// Returns the taps along the first filtered axis; if no axis is filtered, adds identity taps to the last axis.
    fn first_taps(&mut self) -> &mut Taps {
        let first = self.axes.iter().position(|axis| axis.taps.is_some());
        let axis = first.unwrap_or(self.axes.len() - 1);
        self.axes[axis].taps.get_or_insert_with(Taps::identity)
    }

    /// Negates each output.
    pub(crate) fn negate(&mut self) {
        self.axes
            .iter_mut()
            .filter_map(|axis| axis.taps.as_mut())
            .for_each(|taps| taps.constant = -taps.constant);
        self.rescale(-1.0);
    }

    /// Fails with [`Error::Shape`], [`Error::Argument`].
    pub(crate) fn check_output<T: Element, U: Element>(&self, x: &Tensor<T>, out: &Tensor<U>) -> Result<()> {
        if out.shape() != x.shape() {
            let expected = format!("an output of shape {:?}", x.shape());
            return Err(Error::shape(self.op, expected, format_args!("{:?}", out.shape())));
        }
        self.check_type([T::DTYPE, U::DTYPE])
    }

    /// Fails with [`Error::Argument`] for an output type that the filter does not support for this input type.
    pub(crate) fn check_type(&self, [from, to]: [DType; 2]) -> Result<()> {
        if [from, DType::F32, DType::F64].contains(&to) {
            return Ok(());
        }
        let why = format_args!("{to:?} of an array of {from:?}; f32, f64 and the array's type are possible");
        Err(Error::argument(self.op, "out", why))
    }

    /// Filters the input `x` into the output `out`, both in C order. Only enqueues the work, without waiting.
    pub(crate) fn run(&self, x: &dyn Untyped, out: &mut dyn Untyped) -> Result<()> {
        x.device().has(self.op, "out", out.device())?;
        let wide = self.is_wide([x.dtype(), out.dtype()]);
        if wide {
            x.device().computes_f64(self.op)?;
        }
        if out.len() == 0 {
            return Ok(());
        }
        self.run_in(if wide { DType::F64 } else { DType::F32 }, x, out)
    }

    /// True if sums are in f64 for these types of input and output.
    pub(crate) fn is_wide(&self, [from, to]: [DType; 2]) -> bool {
        let wide = from.is_wide() || to.is_wide() || self.as_scipy && to.is_integer();
        wide && !self.narrow
    }

    /// Returns the maximum number of intermediate arrays of sums that exist at the same time for a box of this shape.
    pub(crate) fn arrays_between(&self, shape: &[u64], device: &Device, types: [DType; 2]) -> u64 {
        let core: Vec<Range<u64>> = shape.iter().map(|&n| 0..n).collect();
        let axes = self.of_box(shape, &core, &vec![0; shape.len()]).merged();
        let real = if self.is_wide(types) { DType::F64 } else { DType::F32 };
        let limits = device.limits();
        let made = self.passes(axes.clone(), limits, types, real).len() - 1;
        // The rows of other boxes may end within a word.
        let [from, to] = types;
        let made_of_sums =
            if shares_words(limits, to) { self.passes_to(axes, limits, [from, real], real).len() } else { 0 };
        (made.max(made_of_sums) as u64).min(2)
    }

    /// Returns the filter of a box of shape `shape` that computes its `core`; `before` is the number of halo elements before the core
    /// along each axis.
    pub(crate) fn of_box(&self, shape: &[u64], core: &[Range<u64>], before: &[u64]) -> Self {
        let of_axis = |(i, axis): (usize, &BoxAxis)| BoxAxis {
            n: shape[i],
            m: core[i].end - core[i].start,
            offset: before[i],
            taps: axis.taps.clone(),
        };
        Self { axes: self.axes.iter().enumerate().map(of_axis).collect(), ..self.clone() }
    }

    /// Runs the filter with sums in `real`, which is f32 or f64.
    fn run_in(&self, real: DType, x: &dyn Untyped, out: &mut dyn Untyped) -> Result<()> {
        let axes = self.merged();
        let filtered = |axis: &&BoxAxis| axis.taps.is_some();
        let largest = axes.iter().filter(filtered).map(|axis| axis.n.max(axis.m).max(axis.weights())).max();
        if let Some(requested) = largest.filter(|&largest| largest > EXTENT) {
            return Err(Error::Limit { what: "elements along a filtered axis", requested, max: EXTENT });
        }
        let to = out.dtype();
        let truncate = if self.as_scipy && to.is_integer() { to.code() + 1 } else { 0 };
        let is_paired =
            self.as_scipy || [x.dtype(), to].iter().all(|dtype| dtype.is_integer() && dtype.size() == 1);
        let passes = self.passes(axes, x.device().limits(), [x.dtype(), to], real);
        let mut between: Option<Box<dyn Untyped>> = None;
        for (number, pass) in passes.iter().enumerate() {
            let end = End { real, is_last: number + 1 == passes.len(), truncate, is_paired };
            let from = between.as_deref().unwrap_or(x);
            if end.is_last {
                return self.pass(pass, from, out, end);
            }
            let mut next = empty_of(real, x.device(), &[pass.outputs()])?;
            self.pass(pass, from, &mut *next, end)?;
            between = Some(next);
        }
        Ok(())
    }

    /// Plans the passes. If rows of outputs end within a word, which strips do not support, sums go to an array of their own type, if it
    /// fits the device, and a separate pass converts them to outputs.
    fn passes(&self, axes: Vec<BoxAxis>, limits: &Limits, [from, to]: [DType; 2], real: DType) -> Vec<Pass> {
        let has_strip = |passes: &[Pass]| passes.last().is_some_and(|pass| pass.strip.is_some());
        let passes = self.passes_to(axes.clone(), limits, [from, to], real);
        if !shares_words(limits, to) || has_strip(&passes) {
            return passes;
        }
        let mut of_sums = self.passes_to(axes.clone(), limits, [from, real], real);
        let outputs = axes.iter().fold(real.size(), |bytes, axis| bytes.saturating_mul(axis.m));
        let sizes = |number| [if number == 0 { from.size() } else { real.size() }, real.size()];
        let fits = |(number, pass): (usize, &Pass)| pass.fits_row(limits, sizes(number));
        if !has_strip(&of_sums) || outputs > limits.buffer || !of_sums.iter().enumerate().all(fits) {
            return passes;
        }
        let mut made: Vec<BoxAxis> = axes.iter().map(|axis| BoxAxis::whole(axis.m, None)).collect();
        let last = axes.iter().rposition(|axis| axis.taps.is_some()).unwrap_or(0);
        made[last].taps = Some(Taps::identity());
        of_sums.push(Pass::new(&made, &(last..last + 1), limits, [to, real]));
        of_sums
    }

    /// Plans passes in ascending order of axes. If sums are in f32, axes with derivatives come first, if that gives the same numbers:
    /// otherwise the other axes would round relative to the elements' common offset, which derivatives remove.
    fn passes_to(
        &self,
        mut axes: Vec<BoxAxis>,
        limits: &Limits,
        [from, to]: [DType; 2],
        real: DType,
    ) -> Vec<Pass> {
        let taps = || axes.iter().filter_map(|axis| axis.taps.as_ref());
        let is_first = |taps: &Taps| taps.is_of_differences();
        // The axes commute only if constants beyond the ends are 0.
        let commute = taps().all(|taps| taps.edge != Edge::Constant || taps.constant == 0.0);
        let is_sorted = taps().map(|taps| !is_first(taps)).is_sorted();
        let stages = if real == DType::F64 || self.as_scipy || !commute || is_sorted { 1 } else { 2 };
        let mut passes = Vec::new();
        for stage in 0..stages {
            let is_of_stage = |taps: &Taps| stages == 1 || is_first(taps) == (stage == 0);
            let of_stage: Vec<BoxAxis> = axes
                .iter()
                .map(|axis| BoxAxis { taps: axis.taps.clone().filter(is_of_stage), ..axis.clone() })
                .collect();
            let types = [if stage == 0 { from } else { real }, if stage + 1 == stages { to } else { real }];
            let steps = steps(&of_stage, limits, types, real);
            let last = steps.len() - 1;
            for (number, step) in steps.into_iter().enumerate() {
                let now: Vec<BoxAxis> = axes
                    .iter()
                    .zip(&of_stage)
                    .map(|(axis, now)| BoxAxis { taps: now.taps.clone(), ..axis.clone() })
                    .collect();
                let output = if number == last { types[1] } else { real };
                passes.push(Pass::new(&now, &step, limits, [output, real]));
                for axis in &mut axes[step] {
                    (axis.n, axis.offset) = (axis.m, 0);
                }
            }
        }
        passes
    }

    /// Returns the axes, with adjacent unfiltered axes merged into one; at least one axis of the result is filtered.
    fn merged(&self) -> Vec<BoxAxis> {
        let mut axes: Vec<BoxAxis> = Vec::new();
        for axis in &self.axes {
            match axes.last_mut() {
                Some(last) if last.taps.is_none() && axis.taps.is_none() => {
                    *last = BoxAxis::whole(last.n * axis.n, None);
                }
                _ => axes.push(axis.clone()),
            }
        }
        if let [BoxAxis { taps: taps @ None, .. }] = &mut axes[..] {
            *taps = Some(Taps::identity());
        }
        axes
    }

    /// Computes the sums along the axes of a pass, panel by panel.
    fn pass(&self, pass: &Pass, x: &dyn Untyped, out: &mut dyn Untyped, end: End) -> Result<()> {
        let numbers = numbers(pass, x.device(), end)?;
        let limits = x.device().limits().clone();
        let axis = &pass.axes[pass.first()];
        let sizes = [x.dtype().size(), out.dtype().size()];
        let taps: u64 = pass.axes.iter().map(BoxAxis::weights).sum();
        // An invocation may compute the four outputs of a word separately, each with half of the weights, and then again with all.
        let max = u64::from(limits.iterations) / 6;
        if pass.strip.is_none() && taps >= max {
            return Err(Error::Limit { what: "weights along an axis", requested: taps, max });
        }
        let whole = pass.most(pass.outer, &limits, sizes, |arrays| [arrays, axis.n, axis.m]);
        if whole > 0 {
            for first in (0..pass.outer).step_by(to_usize(whole)) {
                let arrays = first..pass.outer.min(first + whole);
                self.launch(pass, (x, &*numbers), out, (arrays, 0..axis.n, 0..axis.m), end)?;
            }
            return Ok(());
        }
        let reach = axis.weights().saturating_sub(1);
        let rows = pass.most(axis.m, &limits, sizes, |rows| [1, axis.n.min(rows + reach), rows]);
        // A strip begins at a word boundary, and so does each part of a row.
        let unit = if pass.strip.is_some() && shares_words(&limits, out.dtype()) { 4 } else { 1 };
        let rows = (rows / unit * unit).max(unit);
        for array in 0..pass.outer {
            for first in (0..axis.m).step_by(to_usize(rows)) {
                let outputs = first..axis.m.min(first + rows);
                let inputs = axis.needed(&outputs);
                let extents = [1, inputs.end - inputs.start, outputs.end - outputs.start];
                if !pass.fits(extents, &limits, sizes) {
                    let requested = extents[1] * pass.unit(|axis| axis.n) * sizes[0];
                    let what = "bytes of the rows that one output's sum meets";
                    return Err(Error::Limit { what, requested, max: limits.room() });
                }
                self.launch(pass, (x, &*numbers), out, (array..array + 1, inputs, outputs), end)?;
            }
        }
        Ok(())
    }

    /// Launches one panel: some arrays, and along the first filtered axis some inputs and outputs.
    fn launch(
        &self,
        pass: &Pass,
        (x, numbers): (&dyn Untyped, &dyn Untyped),
        out: &mut dyn Untyped,
        (arrays, inputs, outputs): (Range<u64>, Range<u64>, Range<u64>),
        end: End,
    ) -> Result<()> {
        let [z, y, x_axis] = &pass.axes;
        let axis = &pass.axes[pass.first()];
        let [count, made] = [&inputs, &outputs].map(|range| range.end - range.start);
        let part = |extent: u64, unit: u64, range: &Range<u64>| {
            let len = range.end - range.start;
            let first = (arrays.start * extent + range.start) * unit;
            first..first + ((arrays.end - arrays.start - 1) * extent + len) * unit
        };
        let (from, to) = (x.dtype(), out.dtype());
        let window = x.window(part(axis.n, pass.unit(|axis| axis.n), &inputs));
        let target = out.window_update(part(axis.m, pass.unit(|axis| axis.m), &outputs));
        let (window, start) = (window.arg, window.start);
        let codes = |code: &dyn Fn(&Taps) -> u32| {
            let codes = pass.axes.iter().map(|axis| axis.taps.as_ref().map_or(0, code));
            codes.enumerate().fold(0, |packed, (i, code)| packed | code << (4 * i))
        };
        let mut extents = [z.m, y.m, x_axis.m];
        let mut offsets = [z.offset, y.offset, x_axis.offset];
        (extents[pass.first()], offsets[pass.first()]) = (made, axis.offset + outputs.start);
        let limits = x.device().limits();
        let batch = arrays.end - arrays.start;
        let [groups, run] = pass.groups(batch, made, to.size(), limits);
        // Arrays that are summed only along x are treated as the rows of one array.
        let [outer, rows] =
            if pass.first() == 2 && pass.strip.is_some() { [1, batch] } else { [batch, extents[1]] };
        let params = Params {
            x0: start,
            out0: target.start,
            x_type: from.code(),
            out_type: to.code(),
            outer: small(outer),
            nz: small(z.n),
            ny: small(if outer == batch { y.n } else { rows }),
            nx: small(x_axis.n),
            mz: small(extents[0]),
            my: small(rows),
            mx: small(extents[2]),
            oz: small(offsets[0]),
            oy: small(offsets[1]),
            ox: small(offsets[2]),
            wz: small(z.weights()),
            wy: small(y.weights()),
            wx: small(x_axis.weights()),
            first: small(inputs.start),
            count: small(count),
            step: small(pass.step),
            edges: codes(&|taps| taps.edge as u32),
            kinds: codes(&|taps| taps.kind(end.is_paired) as u32),
            combine: if end.is_last { self.combine } else { Combine::Replace } as u32,
            truncate: end.truncate,
            columns: small(pass.strip.map_or(0, |strip| strip.columns)),
            rows: small(pass.strip.map_or(0, |strip| strip.rows)),
            run: small(run),
            apart: small(pass.strip.map_or(0, |strip| apart(strip.rows))),
        };
        let taps: u64 = pass.axes.iter().map(BoxAxis::weights).sum();
        let outputs = batch * made * pass.unit(|axis| axis.m);
        let grid = Grid::linear(groups, limits.groups_per_axis, 2 * taps * outputs)?;
        let filtered = [y, x_axis].map(|axis| pass.strip.is_some() && axis.taps.is_some());
        let wide = end.real == DType::F64;
        let spec = spec(filtered, wide, room(wide, limits.workgroup_memory));
        x.device().launch(
            &CORRELATE,
            &spec,
            grid,
            &[window, numbers.window(0..numbers.len()).arg, target.arg],
            &params,
        )
    }
}

/// Returns the constants and coefficients that the kernel takes.
fn numbers(pass: &Pass, device: &Device, end: End) -> Result<Box<dyn Untyped>> {
    let taps = || pass.axes.iter().filter_map(|axis| axis.taps.as_ref());
    let constant = |axis: &BoxAxis| axis.taps.as_ref().map_or(0.0, |taps| taps.constant);
    let constants = pass.axes.iter().map(constant);
    if end.real == DType::F64 {
        let numbers: Vec<f64> =
            constants.chain(taps().flat_map(|taps| taps.numbers(end.is_paired))).collect();
        return Ok(Box::new(Tensor::from_slice(device, &numbers, &[numbers.len() as u64])?));
    }
    let numbers = taps().flat_map(|taps| taps.narrow(end.is_paired));
    let numbers: Vec<f32> = constants.map(nearest_f32).chain(numbers).collect();
    Ok(Box::new(Tensor::from_slice(device, &numbers, &[numbers.len() as u64])?))
}
