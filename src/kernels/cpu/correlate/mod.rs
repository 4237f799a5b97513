//! Sums of taps along one to three axes of a box, by streaming lines through the processor's caches.
//!
//! A task computes the outputs of some planes, rows and columns, row by row. For each new input row, it loads the row's lines in all planes, sums
//! across the planes, and keeps the sums as long as output rows need them. Then it sums across the rows, and at last along the line. So each element
//! is loaded about once, and intermediate sums stay in a cache.

mod axis;
mod real;
mod stream;
mod taps;

use std::ops::Range;

use rayon::prelude::*;

pub(crate) use self::{
    axis::{Axis, Edge},
    real::Real,
};
use self::{stream::Kept, taps::GROUP};
use crate::{
    Cancel, DType,
    kernel::{CpuArg, codes},
};

codes! {
    /// The way in which sums along an axis are computed, and the meaning of the axis's coefficients, of which there are as many as weights.
    pub(crate) enum Kind {
        /// Weights are symmetric. The sum is the centre times the sum of all weights, plus differences of neighbours, each times the sum of the
        /// weights from the outermost to the outer neighbour's, so that errors are relative to differences of elements. The left coefficients are
        /// these partial sums, the middle one is the sum of all weights, and the right ones are the weights.
        Even = 1,
        /// Weights are antisymmetric: elements at the same distance from the centre are subtracted first.
        Odd,
        /// Weights have no symmetry: each element is multiplied by its weight.
        Any,
        /// Weights are symmetric: elements at the same distance from the centre are added first, as in scipy.
        Paired,
    }
}

codes! {
    /// A rule that combines a result with the value that the output holds.
    pub(crate) enum Combine {
        Replace,
        Add,
        /// The root of the sum of both squares.
        Length,
    }
}

/// Adjacent arrays of planes, rows and columns, with several independent elements at each place.
#[derive(Debug)]
pub(crate) struct Correlation<'a, R> {
    pub(crate) x: &'a CpuArg<'a>,
    pub(crate) x_type: DType,
    pub(crate) x0: usize,
    pub(crate) out_type: DType,
    pub(crate) outer: usize,
    pub(crate) axes: [Axis<'a, R>; 3],
    pub(crate) step: usize,
    /// The type to which sums along each axis are truncated, towards 0.
    pub(crate) truncate: Option<DType>,
    pub(crate) combine: Combine,
    /// The flag that ends the work early, before all outputs are written.
    pub(crate) cancel: Option<&'a Cancel>,
}

/// Sums of elements below this are finite if the axes' coefficients are within [`GAIN`].
const SAFE: f32 = (1u128 << 96) as f32;
/// The largest product, over the axes, of four times the sum of the coefficients' magnitudes with which sums of such elements are finite.
const GAIN: f64 = (1u64 << 30) as f64;

/// The number of bytes of the rows that a task keeps, which fit a level 2 cache.
const KEPT: usize = 512 << 10;
/// The maximum number of planes of a task.
const PLANES: usize = 64;
/// The number of tasks to aim at, so that each of many threads has some.
const TASKS: usize = 32;

/// The part of the output that a task computes, and the lines that it fills: those of the first plane, then those of the next.
struct Task<'a> {
    array: usize,
    planes: Range<usize>,
    rows: Range<usize>,
    columns: Range<usize>,
    out: Vec<&'a mut [u8]>,
}

impl<R: Real> Correlation<'_, R> {
    /// Writes all outputs to `out`, unless the work is cancelled.
    pub(crate) fn run(&self, out: &mut [u8]) {
        let [planes, rows, columns] = self.axes.map(|axis| axis.m);
        if self.outer * planes * rows * columns * self.step == 0 {
            return;
        }
        let may_overflow = self.may_overflow();
        let kept = || Kept::new(may_overflow);
        self.tasks(out).into_par_iter().for_each_init(kept, |kept, task| self.make(task, kept));
    }

    /// Returns true if sums may be infinite even for small elements.
    fn may_overflow(&self) -> bool {
        let axes = || self.axes.iter().filter(|axis| axis.kind.is_some());
        let gain =
            |axis: &Axis<'_, R>| -> f64 { axis.weights.iter().map(|weight| weight.to_f64().abs()).sum() };
        // A term combines at most four elements.
        let gain: f64 = axes().map(|axis| (4.0 * gain(axis)).max(1.0)).product();
        gain > GAIN || axes().any(|axis| axis.constant.may_overflow())
    }

    /// Returns the number of planes, rows and columns of a task, from the shapes alone. Extents are divided evenly, rows into whole groups.
    fn tile(&self) -> [usize; 3] {
        let [z, y, x] = &self.axes;
        let evenly = |extent: usize, most: usize| extent.div_ceil(extent.div_ceil(most.max(1)));
        let planes = evenly(z.m, PLANES);
        let lines = (2 * y.radius() + GROUP) * planes;
        let width = (KEPT / size_of::<R>() / lines).saturating_sub(2 * x.radius() * self.step);
        let columns = evenly(x.m, width.clamp(256, 4096) / self.step);
        let others = self.outer * z.m.div_ceil(planes) * x.m.div_ceil(columns);
        let rows = evenly(y.m, y.m.div_ceil(TASKS.div_ceil(others)).max(8 * y.radius()).max(16));
        [planes, rows.next_multiple_of(GROUP), columns]
    }

    fn tasks<'o>(&self, out: &'o mut [u8]) -> Vec<Task<'o>> {
        let extents = self.axes.map(|axis| axis.m);
        let tile = self.tile();
        let cut = |axis: usize| {
            let ranges = (0..extents[axis]).step_by(tile[axis]);
            ranges.map(|first| first..extents[axis].min(first + tile[axis])).collect::<Vec<_>>()
        };
        let (planes, rows, columns) = (cut(0), cut(1), cut(2));
        let mut tasks = Vec::with_capacity(self.outer * planes.len() * rows.len() * columns.len());
        for array in 0..self.outer {
            for planes in &planes {
                for rows in &rows {
                    tasks.extend(columns.iter().map(|columns| Task {
                        array,
                        planes: planes.clone(),
                        rows: rows.clone(),
                        columns: columns.clone(),
                        out: Vec::with_capacity(planes.len() * rows.len()),
                    }));
                }
            }
        }
        let size = usize::try_from(self.out_type.size()).unwrap_or(usize::MAX) * self.step;
        let tasks_of = |line: usize| {
            let [row, plane] = [line % extents[1], line / extents[1]];
            let [array, plane] = [plane / extents[0], plane % extents[0]];
            ((array * planes.len() + plane / tile[0]) * rows.len() + row / tile[1]) * columns.len()
        };
        for (line, mut out) in out.chunks_exact_mut(extents[2] * size).enumerate() {
            for (task, columns) in tasks[tasks_of(line)..].iter_mut().zip(&columns) {
                let part;
                (part, out) = out.split_at_mut(columns.len() * size);
                task.out.push(part);
            }
        }
        tasks
    }
}
