//! Runs one task, which streams rows of the input to rows of the output.

use super::{
    Combine, Correlation, Kind, Task,
    axis::{Axis, Part, Plan},
    real::Real,
    taps::{GROUP, LANES, LineGroup, LineSums, Numbers, PAD},
};
use crate::Cancel;

/// The maximum radius for which each sum computes the differences itself.
const FEW: usize = 8;
/// The numbers of lines that can be computed at once.
const GROUPS: [usize; 3] = [1, GROUP / 2, GROUP];

/// The lines that a task keeps. The next task uses the same memory.
#[derive(Default)]
pub(super) struct Kept<R> {
    /// The number of elements from one line to the next.
    stride: usize,
    /// The number of elements of each line that sums read.
    width: usize,
    /// The lines of one input row in all planes.
    planes: Vec<R>,
    /// Rows that are summed across the planes, with a line for each plane of the output.
    rows: Vec<R>,
    /// Lines that are summed across the rows.
    lines: Vec<R>,
    /// Differences of these lines: each element less the element that is a step behind.
    apart: Vec<R>,
    /// A line of sums.
    sums: Vec<R>,
    /// True if sums may be infinite, though their exact values are finite, even for small elements.
    may_overflow: bool,
}

impl<R: Real> Kept<R> {
    pub(super) fn new(may_overflow: bool) -> Self {
        Self { may_overflow, ..Self::default() }
    }
}

/// The places of a task's lines along the three axes.
struct Plans {
    planes: Plan,
    rows: Plan,
    parts: Vec<Part>,
}

impl<R: Real> Correlation<'_, R> {
    /// Computes the outputs of a task. If the work is cancelled, returns before the next line.
    pub(super) fn make(&self, mut task: Task<'_>, kept: &mut Kept<R>) {
        if Cancel::is_set(self.cancel) {
            return;
        }
        let [z, y, x] = &self.axes;
        let plans = Plans {
            planes: z.plan(&task.planes, usize::MAX),
            rows: y.plan(&task.rows, GROUP),
            parts: x.parts(&task.columns),
        };
        let (depth, radius) = (task.planes.len(), y.radius());
        let [count, reach] = [task.columns.len(), 2 * x.radius()].map(|elements| elements * self.step);
        let sums = count.next_multiple_of(LANES);
        let stride = (sums + reach).next_multiple_of(PAD);
        let planes = if z.kind.is_some() { plans.planes.count } else { 0 };
        (kept.stride, kept.width) = (stride, count + reach);
        kept.planes.resize(planes * stride, R::default());
        kept.rows.resize(plans.rows.count * depth * stride, R::default());
        kept.lines.resize(GROUP * stride, R::default());
        let is_apart = x.kind == Some(Kind::Even) && x.radius() > FEW;
        kept.apart.resize(if is_apart { GROUP * stride } else { 0 }, R::default());
        kept.sums.resize(sums, R::default());
        // The last places hold the constant.
        let last = kept.planes.len().saturating_sub(stride);
        kept.planes[last..].fill(z.constant);
        let last = kept.rows.len() - depth * stride;
        kept.rows[last..].fill(y.constant);
        let mut fills = plans.rows.fills.iter().zip(&plans.rows.places);
        let mut filled = 0;
        for first in (0..task.rows.len()).step_by(GROUP) {
            let count = GROUP.min(task.rows.len() - first);
            let needed = first + count + 2 * radius;
            for (source, place) in fills.by_ref().take(needed - filled) {
                if Cancel::is_set(self.cancel) {
                    return;
                }
                if let Some(row) = *source {
                    self.load_row(&plans, task.array, row, *place, depth, kept);
                }
            }
            filled = needed;
            let places: Vec<usize> =
                plans.rows.places[first..needed].iter().map(|place| place * depth * stride).collect();
            for plane in 0..depth {
                if Cancel::is_set(self.cancel) {
                    return;
                }
                let rows = plane * task.rows.len() + first;
                let out = &mut task.out[rows..][..count];
                // If outputs are combined or truncated, one call must be enough.
                let care = self.combine != Combine::Replace || self.truncate.is_some();
                if !self.make_rows((&places, plane * stride), &plans.parts, kept, out, care) {
                    self.make_rows((&places, plane * stride), &plans.parts, kept, out, true);
                }
            }
        }
    }

    /// Computes lines of the output from rows of the input at these places of a plane. Returns false if the caller has
    /// to call again with `care`, since sums are infinite and their exact values may be finite.
    fn make_rows(
        &self,
        (places, shift): (&[usize], usize),
        parts: &[Part],
        kept: &mut Kept<R>,
        out: &mut [&mut [u8]],
        care: bool,
    ) -> bool {
        self.sum_rows(places, shift, out.len(), kept, care);
        self.prepare_lines(parts, out.len(), kept);
        let mut are_finite = true;
        for (i, out) in out.iter_mut().enumerate() {
            are_finite &= self.finish_line(i, kept, out, care);
        }
        let is_large = |place: &usize| R::any_may_overflow(&kept.rows[place + shift..][..kept.width]);
        are_finite || care || !(kept.may_overflow || places.iter().any(is_large))
    }

    /// Loads the lines of an input row, sums them across the planes, and stores the sums at the row's place.
    fn load_row(
        &self,
        plans: &Plans,
        array: usize,
        row: usize,
        place: usize,
        depth: usize,
        kept: &mut Kept<R>,
    ) {
        let (z, stride) = (&self.axes[0], kept.stride);
        let rows = &mut kept.rows[place * depth * stride..][..depth * stride];
        let Some(kind) = z.kind else {
            for (plane, line) in rows.chunks_exact_mut(stride).enumerate() {
                self.load_line(&plans.parts, [array, plane, row], line);
            }
            return;
        };
        for (&source, place) in plans.planes.fills.iter().zip(&plans.planes.places) {
            if let Some(plane) = source {
                let line = &mut kept.planes[place * stride..][..stride];
                self.load_line(&plans.parts, [array, plane, row], line);
            }
        }
        let places: Vec<usize> = plans.planes.places.iter().map(|place| place * stride).collect();
        let numbers = Numbers { weights: z.weights, kind, may_overflow: kept.may_overflow };
        let lines = LineGroup { from: &kept.planes, places: &places, shift: 0, width: kept.width, numbers };
        sum_lines(lines, rows, stride, true);
        if let Some(dtype) = self.truncate {
            R::truncate(rows, dtype);
        }
    }

    /// Loads the elements that the taps along a line read, except the constant.
    fn load_line(&self, parts: &[Part], [array, plane, row]: [usize; 3], line: &mut [R]) {
        let [z, y, x] = &self.axes;
        let plane = array * z.count + plane - z.first;
        let start = (plane * y.count + row - y.first) * x.count;
        for Part { to, len, from } in parts {
            if let Some(from) = from {
                let start = self.x0 + (start + from - x.first) * self.step;
                let line = &mut line[to * self.step..][..len * self.step];
                R::load(self.x, self.x_type, start, line);
            }
        }
    }

    /// Sums some lines of one plane across the rows.
    fn sum_rows(&self, places: &[usize], shift: usize, count: usize, kept: &mut Kept<R>, care: bool) {
        let (y, stride) = (&self.axes[1], kept.stride);
        let lines = &mut kept.lines[..count * stride];
        match y.kind {
            Some(kind) => {
                let numbers = Numbers { weights: y.weights, kind, may_overflow: kept.may_overflow };
                let rows = LineGroup { from: &kept.rows, places, shift, width: kept.width, numbers };
                sum_lines(rows, lines, stride, care);
                if let Some(dtype) = self.truncate {
                    R::truncate(lines, dtype);
                }
            }
            None => {
                for (line, place) in lines.chunks_exact_mut(stride).zip(places) {
                    line.copy_from_slice(&kept.rows[place + shift..][..stride]);
                }
            }
        }
    }

    /// Writes the constant beyond the ends of lines, and computes the lines' differences.
    fn prepare_lines(&self, parts: &[Part], count: usize, kept: &mut Kept<R>) {
        let Axis { kind: Some(_), constant, .. } = self.axes[2] else { return };
        let Kept { lines, apart, stride, .. } = kept;
        for line in lines.chunks_exact_mut(*stride).take(count) {
            for Part { to, len, .. } in parts.iter().filter(|part| part.from.is_none()) {
                line[to * self.step..][..len * self.step].fill(constant);
            }
        }
        for (line, apart) in lines.chunks_exact(*stride).zip(apart.chunks_exact_mut(*stride)).take(count) {
            R::subtract(line, self.step, apart);
        }
    }

    /// Sums one line along itself to `out`. With `care`, repeats sums that are infinite and may be finite. Returns true if all were finite.
    fn finish_line(&self, i: usize, kept: &mut Kept<R>, out: &mut [u8], care: bool) -> bool {
        let Axis { weights, kind, .. } = self.axes[2];
        let line = &mut kept.lines[i * kept.stride..][..kept.stride];
        let size = usize::try_from(self.out_type.size()).unwrap_or(usize::MAX);
        let count = out.len() / size;
        let (mut out, mut are_finite) = (out, true);
        let sums = match kind {
            Some(kind) => {
                let apart = kept.apart.chunks_exact(kept.stride).nth(i).unwrap_or_default();
                let numbers = Numbers { weights, kind, may_overflow: kept.may_overflow };
                let along = LineSums { line, step: self.step, numbers, apart };
                let is_plain =
                    self.out_type == R::DTYPE && self.truncate.is_none() && self.combine == Combine::Replace;
                // Whole vectors are written to the output directly; the remainder, and sums that need conversion, go through a line of sums.
                let whole = if is_plain { count / LANES * LANES } else { 0 };
                let (at_once, rest) = out.split_at_mut(whole * size);
                if whole > 0 {
                    are_finite &= along.make(bytemuck::cast_slice_mut(at_once), care);
                }
                out = rest;
                are_finite &= along.from(whole).make(&mut kept.sums[whole..], care);
                &mut kept.sums[whole..count]
            }
            None => {
                are_finite = R::are_finite(&line[..count]);
                &mut line[..count]
            }
        };
        if let Some(dtype) = self.truncate {
            R::truncate(sums, dtype);
        }
        if self.combine != Combine::Replace {
            R::combine(self.combine, out, sums);
        }
        R::store(sums, self.out_type, out);
        are_finite
    }
}

/// Computes adjacent lines, as many as `out` holds.
fn sum_lines<R: Real>(lines: LineGroup<'_, R>, out: &mut [R], stride: usize, care: bool) {
    let count = out.len() / stride;
    // Differences of adjacent lines gain more from large groups than plain sums do.
    let most = if lines.numbers.kind == Kind::Even { GROUP } else { GROUP / 2 };
    let mut first = 0;
    while first < count {
        let left = (count - first).min(most);
        // The last group may overlap the one before: computing lines twice costs less than computing them one by one.
        let again = GROUPS.into_iter().find(|group| (left..=count).contains(group));
        let group = again.or(GROUPS.into_iter().rfind(|&group| group <= left)).unwrap_or(1);
        first = first.min(count - group);
        let lines = lines.from(first);
        let out = &mut out[first * stride..][..group * stride];
        first += group;
        match group {
            GROUP => lines.make::<GROUP>(out, care),
            1 => lines.make::<1>(out, care),
            _ => lines.make::<{ GROUP / 2 }>(out, care),
        }
    }
}
