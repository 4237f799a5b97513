//! One task: rows of the input come, rows of the output go.

use super::{
    Correlation, Kind, REPLACE, Task,
    axis::{Axis, Part, Plan},
    real::Real,
    taps::{Along, GROUP, Lines, Numbers, PAD, PAD_ALONG},
};
use crate::Cancel;

/// The radius up to which differences are made again for each sum that meets them.
const FEW: usize = 8;

/// What a task keeps; the memory is that of the task before.
#[derive(Default)]
pub(super) struct Kept<R> {
    /// Elements from one line to the next.
    stride: usize,
    /// Elements of each that sums meet, or a few more.
    width: usize,
    /// The planes' lines of one row of the input.
    planes: Vec<R>,
    /// Rows that are summed across the planes: a line for each plane of the output.
    rows: Vec<R>,
    /// Lines that are summed across the rows.
    lines: Vec<R>,
    /// Differences of these lines: each element less that a step behind it.
    apart: Vec<R>,
    /// A line of sums.
    sums: Vec<R>,
    /// True where sums may not be finite though their exact values are.
    pub(super) may_overflow: bool,
}

/// Where a task's lines are.
struct Plans {
    planes: Plan,
    rows: Plan,
    parts: Vec<Part>,
}

impl<R: Real> Correlation<'_, R> {
    /// The outputs of a task. Where it is cancelled it returns before the next line that it would load or make.
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
        let sums = count.next_multiple_of(PAD_ALONG);
        let stride = (sums + reach).next_multiple_of(PAD);
        let planes = if z.kind.is_some() { plans.planes.count } else { 0 };
        (kept.stride, kept.width) = (stride, (count + reach).next_multiple_of(PAD));
        kept.planes.resize(planes * stride, R::default());
        kept.rows.resize(plans.rows.count * depth * stride, R::default());
        kept.lines.resize(GROUP * stride, R::default());
        let is_apart = x.kind == Some(Kind::Even) && x.radius() > FEW;
        kept.apart.resize(if is_apart { GROUP * stride } else { 0 }, R::default());
        kept.sums.resize(sums, R::default());
        // The last places are those of the constant.
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
                self.sum_rows(&places, plane * stride, count, kept);
                self.prepare_lines(&plans.parts, count, kept);
                let rows = plane * task.rows.len() + first;
                for (i, out) in task.out[rows..][..count].iter_mut().enumerate() {
                    self.finish_line(i, kept, out);
                }
            }
        }
    }

    /// The lines of a row of the input, summed across the planes, to the row's place.
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
                kept.may_overflow |= self.load_line(&plans.parts, [array, plane, row], line);
            }
            return;
        };
        for (&source, place) in plans.planes.fills.iter().zip(&plans.planes.places) {
            if let Some(plane) = source {
                let line = &mut kept.planes[place * stride..][..stride];
                kept.may_overflow |= self.load_line(&plans.parts, [array, plane, row], line);
            }
        }
        let places: Vec<usize> = plans.planes.places.iter().map(|place| place * stride).collect();
        let numbers = Numbers { weights: z.weights, kind };
        sum_lines(
            Lines { from: &kept.planes, places: &places, shift: 0, width: kept.width, numbers },
            rows,
            stride,
            kept.may_overflow,
        );
        if let Some(dtype) = self.truncate {
            R::truncate(rows, dtype);
        }
    }

    /// Loads the elements that the taps along a line meet, but for the constant; true where sums of them may overflow.
    fn load_line(&self, parts: &[Part], [array, plane, row]: [usize; 3], line: &mut [R]) -> bool {
        let [z, y, x] = &self.axes;
        let plane = array * z.count + plane - z.first;
        let start = (plane * y.count + row - y.first) * x.count;
        let mut may_overflow = false;
        for Part { to, len, from } in parts {
            if let Some(from) = from {
                let start = self.x0 + (start + from - x.first) * self.step;
                let line = &mut line[to * self.step..][..len * self.step];
                may_overflow |= R::load(self.x, self.x_type, start, line);
            }
        }
        may_overflow
    }

    /// Some lines of one plane, summed across the rows.
    fn sum_rows(&self, places: &[usize], shift: usize, count: usize, kept: &mut Kept<R>) {
        let (y, stride) = (&self.axes[1], kept.stride);
        let lines = &mut kept.lines[..count * stride];
        match y.kind {
            Some(kind) => {
                let numbers = Numbers { weights: y.weights, kind };
                sum_lines(
                    Lines { from: &kept.rows, places, shift, width: kept.width, numbers },
                    lines,
                    stride,
                    kept.may_overflow,
                );
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

    /// Puts the constant beyond the ends of lines, and makes their differences.
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

    /// One line summed along itself, to the output.
    fn finish_line(&self, i: usize, kept: &mut Kept<R>, out: &mut [u8]) {
        let Axis { weights, kind, .. } = self.axes[2];
        let line = &mut kept.lines[i * kept.stride..][..kept.stride];
        let size = usize::try_from(self.out_type.size()).unwrap_or(usize::MAX);
        let count = out.len() / size;
        let mut out = out;
        let sums = match kind {
            Some(kind) => {
                let apart = kept.apart.chunks_exact(kept.stride).nth(i).unwrap_or_default();
                let along = Along { line, step: self.step, numbers: Numbers { weights, kind }, apart };
                let is_plain =
                    self.out_type == R::DTYPE && self.truncate.is_none() && self.combine == REPLACE;
                // Whole vectors go where they belong at once, the rest and what is not finished yet by way of a line of sums.
                let whole = if is_plain { count / PAD_ALONG * PAD_ALONG } else { 0 };
                let (at_once, rest) = out.split_at_mut(whole * size);
                if whole > 0 {
                    along.make(bytemuck::cast_slice_mut(at_once), kept.may_overflow);
                }
                out = rest;
                along.from(whole).make(&mut kept.sums[whole..], kept.may_overflow);
                &mut kept.sums[whole..count]
            }
            None => &mut line[..count],
        };
        if let Some(dtype) = self.truncate {
            R::truncate(sums, dtype);
        }
        if self.combine != REPLACE {
            R::combine(self.combine, out, sums);
        }
        R::store(sums, self.out_type, out);
    }
}

/// Lines next to each other, as many as `out` holds.
fn sum_lines<R: Real>(lines: Lines<'_, R>, out: &mut [R], stride: usize, may_overflow: bool) {
    let count = out.len() / stride;
    // Differences of lines that are next to each other are worth more lines at once than sums.
    let most = if lines.numbers.kind == Kind::Even { GROUP } else { GROUP / 2 };
    let group = [GROUP, GROUP / 2, 1].into_iter().find(|&group| group <= count.min(most)).unwrap_or(1);
    // The last group may make lines of the one before again, which costs less than lines one by one.
    for first in (0..count).step_by(group).map(|first| first.min(count - group)) {
        let lines = lines.from(first);
        let out = &mut out[first * stride..][..group * stride];
        match group {
            GROUP => lines.make::<GROUP>(out, may_overflow),
            1 => lines.make::<1>(out, may_overflow),
            _ => lines.make::<{ GROUP / 2 }>(out, may_overflow),
        }
    }
}
