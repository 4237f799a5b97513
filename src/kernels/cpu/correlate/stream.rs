//! One task: rows of the input come, rows of the output go.

use super::{
    Correlation, Kind, REPLACE, Task,
    axis::{Axis, Part, Plan},
    real::Real,
    taps::{Along, GROUP, Lines, PAD},
};
use crate::Cancel;

/// What a task keeps; the memory is that of the task before.
#[derive(Default)]
pub(super) struct Kept<R> {
    /// Elements from one line to the next.
    stride: usize,
    /// The planes' lines of one row of the input.
    planes: Vec<R>,
    /// Rows that are summed across the planes: a line for each plane of the output.
    rows: Vec<R>,
    /// Lines that are summed across the rows.
    lines: Vec<R>,
    /// A line of sums.
    sums: Vec<R>,
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
        let sums = (task.columns.len() * self.step).next_multiple_of(PAD);
        let stride = (sums + 2 * x.radius() * self.step).next_multiple_of(PAD);
        let planes = if z.kind.is_some() { plans.planes.count } else { 0 };
        kept.stride = stride;
        kept.planes.resize(planes * stride, R::default());
        kept.rows.resize(plans.rows.count * depth * stride, R::default());
        kept.lines.resize(GROUP * stride, R::default());
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
                let rows = plane * task.rows.len() + first;
                for (i, out) in task.out[rows..][..count].iter_mut().enumerate() {
                    self.finish_line(&plans.parts, i, kept, out);
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
                self.load_line(&plans.parts, [array, plane, row], line);
            }
            return;
        };
        for (&source, place) in plans.planes.fills.iter().zip(&plans.planes.places) {
            if let Some(plane) = source {
                self.load_line(
                    &plans.parts,
                    [array, plane, row],
                    &mut kept.planes[place * stride..][..stride],
                );
            }
        }
        let places: Vec<usize> = plans.planes.places.iter().map(|place| place * stride).collect();
        sum_lines(&kept.planes, &places, 0, (z.weights, kind), rows, stride);
        if let Some(dtype) = self.truncate {
            R::truncate(rows, dtype);
        }
    }

    /// What the taps along a line meet, but for the constant.
    fn load_line(&self, parts: &[Part], [array, plane, row]: [usize; 3], line: &mut [R]) {
        let [z, y, x] = &self.axes;
        let plane = array * z.count + plane - z.first;
        let start = (plane * y.count + row - y.first) * x.count;
        for Part { to, len, from } in parts {
            if let Some(from) = from {
                let start = self.x0 + (start + from - x.first) * self.step;
                R::load(self.x, self.x_type, start, &mut line[to * self.step..][..len * self.step]);
            }
        }
    }

    /// Some lines of one plane, summed across the rows.
    fn sum_rows(&self, places: &[usize], shift: usize, count: usize, kept: &mut Kept<R>) {
        let (y, stride) = (&self.axes[1], kept.stride);
        let lines = &mut kept.lines[..count * stride];
        match y.kind {
            Some(kind) => {
                sum_lines(&kept.rows, places, shift, (y.weights, kind), lines, stride);
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

    /// One line summed along itself, to the output.
    fn finish_line(&self, parts: &[Part], i: usize, kept: &mut Kept<R>, out: &mut [u8]) {
        let Axis { weights, kind, constant, .. } = self.axes[2];
        let line = &mut kept.lines[i * kept.stride..][..kept.stride];
        let count = out.len() / usize::try_from(self.out_type.size()).unwrap_or(usize::MAX);
        let sums = match kind {
            Some(kind) => {
                for Part { to, len, .. } in parts.iter().filter(|part| part.from.is_none()) {
                    line[to * self.step..][..len * self.step].fill(constant);
                }
                Along { line, step: self.step, weights, kind, out: &mut kept.sums }.make();
                &mut kept.sums[..count]
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

/// Lines next to each other, of those at some places.
fn sum_lines<R: Real>(
    from: &[R],
    places: &[usize],
    shift: usize,
    (weights, kind): (&[R], Kind),
    out: &mut [R],
    stride: usize,
) {
    let whole = out.len() / stride / GROUP * GROUP;
    let (groups, rest) = out.split_at_mut(whole * stride);
    for (i, out) in groups.chunks_exact_mut(GROUP * stride).enumerate() {
        Lines::<R, GROUP> { from, places: &places[i * GROUP..], shift, weights, kind, out }.make();
    }
    for (i, out) in rest.chunks_exact_mut(stride).enumerate() {
        Lines::<R, 1> { from, places: &places[whole + i..], shift, weights, kind, out }.make();
    }
}
