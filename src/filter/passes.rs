//! Plans of passes: the axes that a pass filters together, and the part of them that one launch computes.

use std::ops::Range;

use super::axis::BoxAxis;
use crate::{
    DType, Limits,
    kernels::{
        WG,
        correlate::{MANY, room},
    },
};

/// The maximum number of outputs along an unfiltered last axis that are treated as elements of one position; more outputs make it an axis
/// of its own.
const fn most_step(limits: &Limits) -> u64 {
    if has_workgroups(limits) { 8 } else { 16 }
}

/// True for devices with workgroups. The cpu has none: its kernel takes whole arrays.
const fn has_workgroups(limits: &Limits) -> bool {
    limits.workgroup_memory < u32::MAX
}

/// True if several outputs share a word, and kernels can store only whole words.
pub(super) const fn shares_words(limits: &Limits, output: DType) -> bool {
    output.size() < 4 && !limits.stores_bytes
}

/// The cpu filters an axis together with the axes before it only if a task has at most this number of elements around its outputs along
/// that axis; a task has 256 outputs or more. The number is lower with two axes before it, since sums along both are repeated.
const AROUND: u64 = 192;
const AROUND_OF_THREE: u64 = 64;
/// The maximum number of times that an invocation goes through the weights of an axis for its adjacent outputs: half of the weights for
/// all outputs together, and all weights again for each output whose sum is not finite.
const AGAIN: u64 = MANY + 1;

/// A pass over arrays of up to three axes, with several elements at each position.
pub(super) struct Pass {
    pub(super) outer: u64,
    pub(super) axes: [BoxAxis; 3],
    pub(super) step: u64,
    /// The type of the sums.
    real: DType,
    /// The strips; `None` if each output is computed separately.
    pub(super) strip: Option<Strip>,
}

/// The block of outputs that a workgroup computes at once: `width` elements of each of `rows` rows, whose sums cover `columns` elements
/// of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Strip {
    pub(super) columns: u64,
    pub(super) rows: u64,
    width: u64,
}

impl Strip {
    const fn outputs(self) -> u64 {
        self.rows * self.width
    }
}

/// Returns the distance between consecutive columns of `rows` rows in workgroup memory, padded so that concurrent invocations cause few
/// bank conflicts.
pub(super) const fn apart(rows: u64) -> u64 {
    rows + if rows == 16 { 2 } else { 1 }
}

/// The minimum number of outputs of a strip; with fewer outputs, most of a workgroup is idle.
const LEAST: u64 = 512;

/// Returns the axes of each pass, in ascending order, with as many axes as possible in the last pass.
pub(super) fn steps(
    axes: &[BoxAxis],
    limits: &Limits,
    [input, output]: [DType; 2],
    real: DType,
) -> Vec<Range<usize>> {
    let filtered: Vec<usize> = (0..axes.len()).filter(|&i| axes[i].taps.is_some()).collect();
    let end = filtered.last().map_or(0, |last| last + 1);
    let neighbours = filtered.iter().rev().enumerate().take_while(|&(i, &at)| at + i + 1 == end).count();
    let most = neighbours.min(match (has_workgroups(limits), inner(&axes[end..]) > most_step(limits)) {
        (true, true) => 1,
        (false, false) => 3,
        _ => 2,
    });
    let fits = |&count: &usize| {
        let before = filtered.len() - count;
        let input = if before == 0 { input } else { real };
        let pass = Pass::new(axes, &(end - count..end), limits, [output, real]);
        pass.takes_axes_together(limits) && pass.fits_row(limits, [input.size(), output.size()])
    };
    let together = (2..=most).rev().find(fits).unwrap_or(1);
    let (alone, _) = filtered.split_at(filtered.len() - together);
    let mut steps: Vec<_> = alone.iter().map(|&axis| axis..axis + 1).collect();
    steps.push(end - together..end);
    steps
}

/// Returns the number of elements in these axes.
fn inner(axes: &[BoxAxis]) -> u64 {
    axes.iter().map(|axis| axis.n).product()
}

impl Pass {
    /// Makes a pass along the adjacent axes `step`, with outputs and sums of these types.
    pub(super) fn new(
        axes: &[BoxAxis],
        step: &Range<usize>,
        limits: &Limits,
        [output, real]: [DType; 2],
    ) -> Self {
        let outer = inner(&axes[..step.start]);
        let within = inner(&axes[step.end..]);
        let plain = |n: u64| BoxAxis::whole(n, None);
        let with_strip = |mut pass: Self| {
            pass.strip = pass.strip(limits, output);
            pass
        };
        let is_short = within <= most_step(limits);
        if let [axis] = &axes[step.clone()] {
            let across = [plain(1), plain(1), axis.clone()];
            let across = Self { outer, axes: across, step: within, real, strip: None };
            let across = (has_workgroups(limits) && is_short).then(|| with_strip(across));
            return across.filter(|pass| pass.strip.is_some()).unwrap_or_else(|| {
                let along = [plain(1), axis.clone(), plain(within)];
                with_strip(Self { outer, axes: along, step: 1, real, strip: None })
            });
        }
        let mut last: Vec<BoxAxis> = axes[step.clone()].to_vec();
        if !is_short {
            last.push(plain(within));
        }
        let x = last.pop().unwrap_or_else(|| plain(1));
        let y = last.pop().unwrap_or_else(|| plain(1));
        let z = last.pop().unwrap_or_else(|| plain(1));
        let step = if is_short { within } else { 1 };
        with_strip(Self { outer, axes: [z, y, x], step, real, strip: None })
    }

    /// Returns the strips of the pass. There are none on the cpu, for sums along z, for very many weights, and if rows of outputs end
    /// within a shared word. There are also none if separate outputs are faster, which depends only on the weights, so that the boxes of
    /// an array use the same passes as the array.
    fn strip(&self, limits: &Limits, output: DType) -> Option<Strip> {
        let [z, _, x] = &self.axes;
        let line = x.m * self.step;
        let shares_words = shares_words(limits, output);
        let is_whole = !shares_words || (line * output.size()).is_multiple_of(4);
        let has_room = self.iterations() < limits.iterations.into();
        if !has_workgroups(limits) || z.taps.is_some() || !is_whole || !has_room {
            return None;
        }
        let room = room(self.real == DType::F64, limits.workgroup_memory).into();
        let of_any = self.largest_strip(room, shares_words, 1 << 40)?;
        let is_wide = x.taps.is_none() || 2 * of_any.width >= of_any.columns;
        let is_worth = is_wide && of_any.outputs() >= LEAST;
        is_worth.then(|| self.largest_strip(room, shares_words, line)).flatten()
    }

    /// Returns the strip with the most outputs, for rows of `line` elements, that fits in `room` cells of workgroup memory.
    fn largest_strip(&self, room: u64, shares_words: bool, line: u64) -> Option<Strip> {
        let [_, y, x] = &self.axes;
        let wg = u64::from(WG);
        let reach = |axis: &BoxAxis| axis.weights().saturating_sub(1);
        let [below, aside] = [reach(y), reach(x) * self.step];
        let is_across = x.taps.is_some();
        // An invocation computes adjacent outputs along x together, and also the bytes of a word.
        let unit = match (is_across, shares_words) {
            (true, _) => MANY * self.step,
            (false, true) => 4,
            (false, false) => 1,
        };
        let strip = |rows: u64, columns: u64| {
            let width = columns.min(line.next_multiple_of(unit) + aside).saturating_sub(aside) / unit * unit;
            (width > 0).then_some(Strip { columns: width + aside, rows, width })
        };
        if y.taps.is_some() {
            let strips = (1..=wg).filter_map(|groups| {
                let rows = MANY * groups;
                let beside = if is_across || shares_words { apart(rows) } else { 0 };
                strip(rows, (wg / groups).min(room / (below + rows + beside)))
            });
            return strips.rev().max_by_key(|strip| strip.outputs());
        }
        let heights = [8, 16, 32, 64, 4, 2, 1].into_iter().filter(|&rows| rows < 2 * self.outer);
        let strips =
            heights.filter_map(|rows| strip(rows, (room / apart(rows)).min(MANY * wg / rows + aside)));
        // Fewer than eight rows cause bank conflicts, and elements to the side of a strip are an extra load.
        let worth = |strip: &Strip| strip.rows.min(8) * strip.outputs() * strip.width / strip.columns;
        strips.rev().max_by_key(worth)
    }

    /// Returns the first filtered axis.
    pub(super) fn first(&self) -> usize {
        self.axes.iter().position(|axis| axis.taps.is_some()).unwrap_or(0)
    }

    /// Returns the number of elements that the pass computes.
    pub(super) fn outputs(&self) -> u64 {
        self.outer * self.step * self.axes.iter().map(|axis| axis.m).product::<u64>()
    }

    /// Returns the distance in elements between adjacent positions along the first filtered axis.
    pub(super) fn unit(&self, extent: fn(&BoxAxis) -> u64) -> u64 {
        self.axes[self.first() + 1..].iter().map(extent).product::<u64>() * self.step
    }

    /// Returns the number of workgroups, and the number of rows that a workgroup computes one after another: all rows, or as few as keep a
    /// GPU busy, since each workgroup first reads rows that another one has read too. `outputs` is the number of outputs along the first
    /// filtered axis, each of `size` bytes.
    pub(super) fn groups(&self, arrays: u64, outputs: u64, size: u64, limits: &Limits) -> [u64; 2] {
        let Some(strip) = self.strip else {
            // Each word belongs to one invocation, and the first word may begin in another panel.
            let each = if limits.stores_bytes { 1 } else { (4 / size).max(1) };
            let words = (arrays * outputs * self.unit(|axis| axis.m) + each - 1).div_ceil(each);
            return [words.div_ceil(WG.into()), 0];
        };
        let [_, _, x] = &self.axes;
        let [arrays, rows, line] = match self.first() {
            2 => [1, arrays, outputs * self.step],
            _ => [arrays, outputs, x.m * self.step],
        };
        let others = arrays * line.div_ceil(strip.width);
        // The grids of tests are small, which makes the runs long.
        let busy = (4 * u64::from(limits.fill)).min(limits.groups_per_axis.into());
        let wanted = rows.div_ceil(busy.div_ceil(others.max(1)));
        let most = u64::from(limits.iterations) / self.iterations() * strip.rows;
        let run = wanted.next_multiple_of(strip.rows).min(most).max(strip.rows);
        [others * rows.div_ceil(run), run]
    }

    /// Returns the maximum number of iterations of an invocation for a block of rows: over the weights, and over loads and stores.
    fn iterations(&self) -> u64 {
        AGAIN * self.axes.iter().map(BoxAxis::weights).sum::<u64>() + 512
    }

    /// True if one launch may compute this number of arrays, with these numbers of inputs and outputs along the first filtered axis.
    pub(super) fn fits(&self, [arrays, inputs, outputs]: [u64; 3], limits: &Limits, sizes: [u64; 2]) -> bool {
        let bytes = |count: u64, unit: u64, size: u64| {
            count.checked_mul(arrays).and_then(|count| count.checked_mul(unit)?.checked_mul(size))
        };
        let read = bytes(inputs, self.unit(|axis| axis.n), sizes[0]);
        let written = bytes(outputs, self.unit(|axis| axis.m), sizes[1]);
        let (Some(read), Some(written)) = (read, written) else { return false };
        let taps: u64 = self.axes.iter().map(BoxAxis::weights).sum();
        read.max(written) <= limits.room()
            && (written / sizes[1]).saturating_mul(taps)
                <= limits.work_of(self.real).max(taps.saturating_mul(1 << 20))
            && self.groups(arrays, outputs, sizes[1], limits)[0]
                <= u64::from(limits.groups_per_axis).saturating_pow(2)
    }

    /// Returns the largest number up to `count` for which the extents fit a launch; 0 if none fits.
    pub(super) fn most(
        &self,
        count: u64,
        limits: &Limits,
        sizes: [u64; 2],
        extents: impl Fn(u64) -> [u64; 3],
    ) -> u64 {
        let (mut least, mut beyond) = (0, count + 1);
        while least + 1 < beyond {
            let middle = least.midpoint(beyond);
            if self.fits(extents(middle), limits, sizes) {
                least = middle;
            } else {
                beyond = middle;
            }
        }
        least
    }

    /// True if one output along the first filtered axis fits a launch.
    pub(super) fn fits_row(&self, limits: &Limits, sizes: [u64; 2]) -> bool {
        let axis = &self.axes[self.first()];
        self.fits([1, axis.n.min(axis.weights()), axis.m.min(1)], limits, sizes)
    }

    /// True if sums along all axes of the pass are computed in one pass. The cpu then repeats sums along an axis for the elements around
    /// a task that the next axis needs, which must cost less than a separate pass.
    fn takes_axes_together(&self, limits: &Limits) -> bool {
        let [z, y, x] = &self.axes;
        let reach = |axis: &BoxAxis| axis.weights().saturating_sub(1);
        if has_workgroups(limits) {
            return self.strip.is_some();
        }
        reach(x) * self.step <= AROUND && (z.taps.is_none() || reach(y) <= AROUND_OF_THREE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Device, filter::taps::Taps, kernels::correlate::Edge};

    /// Checks that a strip fits in workgroup memory, and that each of its outputs has an invocation.
    fn check(pass: &Pass, memory: u32, [output, real]: [DType; 2], limits: &Limits) -> bool {
        let Some(strip) = pass.strip else { return false };
        let [along, across] = [1, 2].map(|i| pass.axes[i].taps.is_some());
        let ring = pass.axes[1].weights().saturating_sub(1) + strip.rows;
        let by_columns = if across || output == DType::U8 { strip.columns * apart(strip.rows) } else { 0 };
        let cells = by_columns + if along { ring * strip.columns } else { 0 };
        assert!(cells <= room(real == DType::F64, memory).into(), "{strip:?}");
        let eights = strip.rows / MANY * strip.columns;
        assert!(!along || eights <= WG.into() && strip.rows.is_multiple_of(MANY), "{strip:?}");
        assert!(!across || strip.rows * strip.width / MANY <= WG.into(), "{strip:?}");
        assert!(!across || strip.width.is_multiple_of(MANY * pass.step), "{strip:?}");
        let [groups, run] = pass.groups(pass.outer, pass.axes[pass.first()].m, output.size(), limits);
        assert!(groups > 0 && run.is_multiple_of(strip.rows), "{strip:?} {groups} {run}");
        true
    }

    #[test]
    fn strips_fit_a_workgroup() {
        let axis = |n: u64, radius: usize| {
            BoxAxis::whole(n, Some(Taps::new(vec![1.0; 2 * radius + 1], Edge::Reflect, 0.0)))
        };
        let shapes = [[1, 1, 1], [1, 5000, 1], [50, 1104, 1104], [3, 7, 9], [100_000, 20, 1], [4, 512, 3]];
        let radii = [0, 1, 4, 12, 40, 300, 2000];
        let types = [[DType::F32, DType::F32], [DType::U8, DType::F32], [DType::F64, DType::F64]];
        let mut made = 0;
        for memory in [16 << 10, 32 << 10, 48 << 10] {
            let cpu = Device::cpu().limits().clone();
            let limits = Limits { workgroup_memory: memory, iterations: 65_535, stores_bytes: false, ..cpu };
            for ([a, b, c], radius) in shapes.into_iter().flat_map(|shape| radii.map(|r| (shape, r))) {
                let axes = [axis(a, radius), axis(b, radius), BoxAxis::whole(c, None)];
                for (step, types) in [0..1, 1..2, 0..2].iter().flat_map(|step| types.map(|t| (step, t))) {
                    let pass = Pass::new(&axes, step, &limits, types);
                    made += usize::from(check(&pass, memory, types, &limits));
                }
            }
        }
        assert!(made > 200, "{made}");
    }
}
