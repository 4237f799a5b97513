//! Which axes are filtered together, and how much of them one launch takes.

use std::ops::Range;

use super::axis::BoxAxis;
use crate::{
    DType, Limits,
    kernels::{
        WG,
        correlate::{MANY, REACH, ROOM, TILE_X, TILE_Y},
    },
};

/// Outputs along a last axis that is left alone are elements of a place, up to so many; else it is an axis of its own.
const fn most_step(limits: &Limits) -> u64 {
    if has_workgroups(limits) { TILE_X / MANY } else { 16 }
}

/// The cpu has none: its kernel takes whole arrays.
const fn has_workgroups(limits: &Limits) -> bool {
    limits.workgroup_memory < u32::MAX
}

/// Most products of a launch, so that none takes long.
const WORK: u64 = 1 << 35;
/// Elements around a task's outputs at most, along an axis, where the cpu filters it together with one before: a task is of 256 or more.
/// With two before it, fewer, since both are summed again there.
const AROUND: u64 = 192;
const AROUND_OF_THREE: u64 = 64;
/// Times that an invocation goes through the weights at most for a block of neighbours or two: half of them for all neighbours together, and
/// all for each whose sum is not finite, which is made again by itself.
const AGAIN: u64 = 9;
/// Workgroups that a GPU is busy with.
const BUSY: u64 = 1 << 10;

/// Arrays of up to three axes, of several elements at each place.
pub(super) struct Pass {
    pub(super) outer: u64,
    pub(super) axes: [BoxAxis; 3],
    pub(super) step: u64,
    /// Whether it is along up to three axes, and not along the second alone.
    pub(super) tiled: bool,
}

/// The axes of each pass, in ascending order: as many as possible in the last one.
pub(super) fn steps(
    axes: &[BoxAxis],
    limits: &Limits,
    [input, output]: [DType; 2],
    real: DType,
) -> Vec<Range<usize>> {
    let filtered: Vec<usize> = (0..axes.len()).filter(|&i| axes[i].taps.is_some()).collect();
    let end = filtered.last().map_or(0, |last| last + 1);
    let neighbours = filtered.iter().rev().enumerate().take_while(|&(i, &at)| at + i + 1 == end).count();
    let most = neighbours.min(if inner(&axes[end..]) > most_step(limits) { 2 } else { 3 });
    let fits = |&count: &usize| {
        let before = filtered.len() - count;
        let input = if before == 0 { input } else { real };
        let pass = Pass::new(axes, &(end - count..end), limits);
        pass.fits_workgroup(limits, output, real) && pass.fits_row(limits, [input.size(), output.size()])
    };
    let together = (2..=most).rev().find(fits).unwrap_or(1);
    let (alone, _) = filtered.split_at(filtered.len() - together);
    let mut steps: Vec<_> = alone.iter().map(|&axis| axis..axis + 1).collect();
    steps.push(end - together..end);
    steps
}

/// How many elements stand at each place of the axes before.
fn inner(axes: &[BoxAxis]) -> u64 {
    axes.iter().map(|axis| axis.n).product()
}

impl Pass {
    /// Along some neighbouring axes.
    pub(super) fn new(axes: &[BoxAxis], step: &Range<usize>, limits: &Limits) -> Self {
        let outer = inner(&axes[..step.start]);
        let within = inner(&axes[step.end..]);
        let plain = |n: u64| BoxAxis::whole(n, None);
        if let [axis] = &axes[step.clone()] {
            return Self { outer, axes: [plain(1), axis.clone(), plain(within)], step: 1, tiled: false };
        }
        let mut last: Vec<BoxAxis> = axes[step.clone()].to_vec();
        let step = if within > most_step(limits) {
            last.push(plain(within));
            1
        } else {
            within
        };
        let x = last.pop().unwrap_or_else(|| plain(1));
        let y = last.pop().unwrap_or_else(|| plain(1));
        let z = last.pop().unwrap_or_else(|| plain(1));
        Self { outer, axes: [z, y, x], step, tiled: true }
    }

    /// The first axis that sums are along.
    pub(super) fn first(&self) -> usize {
        self.axes.iter().position(|axis| axis.taps.is_some()).unwrap_or(0)
    }

    /// The number of elements that it makes.
    pub(super) fn outputs(&self) -> u64 {
        self.outer * self.step * self.axes.iter().map(|axis| axis.m).product::<u64>()
    }

    /// Elements from one place of the first filtered axis to the next.
    pub(super) fn unit(&self, extent: fn(&BoxAxis) -> u64) -> u64 {
        self.axes[self.first() + 1..].iter().map(extent).product::<u64>() * self.step
    }

    /// Workgroups for some arrays, and some outputs along the first filtered axis, of elements of that size; and how many outputs a
    /// workgroup or an invocation makes one after another: all that there are, or so few that a GPU is busy, since each such run
    /// begins with elements that another has seen.
    pub(super) fn groups(&self, arrays: u64, outputs: u64, size: u64, limits: &Limits) -> [u64; 2] {
        // Grids of tests are small, so that runs are long.
        let busy = u64::from(WG) * BUSY.min(limits.groups_per_axis.into());
        let run = |others: u64, unit: u64, iterations: u64| {
            let all = outputs.div_ceil(busy.div_ceil(others.max(1)));
            let most = u64::from(limits.iterations) / iterations / unit * unit;
            all.next_multiple_of(unit).min(most).max(unit)
        };
        if self.tiled {
            let mut extents = [0, 1, 2].map(|i| self.axes[i].m);
            extents[self.first()] = outputs;
            let [z, y, x] = extents;
            let tiles = arrays * y.div_ceil(TILE_Y) * (x * self.step).div_ceil(self.tile_x());
            // Without weights along z there is one plane.
            let run = if self.first() == 0 { run(tiles * u64::from(WG), 1, self.iterations()) } else { 1 };
            return [tiles * z.div_ceil(run), run];
        }
        let each = 4 / size;
        if each > 1 {
            // The first word may be that of another panel.
            let words = (arrays * outputs * self.unit(|axis| axis.m) + each - 1).div_ceil(each);
            return [words.div_ceil(WG.into()), 1];
        }
        let lines = arrays * self.unit(|axis| axis.m);
        let run = run(lines, MANY, AGAIN * self.axes[1].weights() + MANY);
        [(lines * outputs.div_ceil(run)).div_ceil(WG.into()), run]
    }

    /// Elements along x of a tile: blocks of as many neighbours as an invocation makes, of each element of a place.
    fn tile_x(&self) -> u64 {
        let block = MANY * self.step;
        (TILE_X / block).max(1) * block
    }

    /// Iterations of a tile's invocation for a plane at most.
    fn iterations(&self) -> u64 {
        let rounds = ROOM.div_ceil(WG.into());
        AGAIN * self.axes.iter().map(BoxAxis::weights).sum::<u64>() + 8 * rounds
    }

    /// Whether one launch may take some arrays, and inputs and outputs along the first filtered axis.
    pub(super) fn fits(&self, [arrays, inputs, outputs]: [u64; 3], limits: &Limits, sizes: [u64; 2]) -> bool {
        let bytes = |count: u64, unit: u64, size: u64| {
            count.checked_mul(arrays).and_then(|count| count.checked_mul(unit)?.checked_mul(size))
        };
        let read = bytes(inputs, self.unit(|axis| axis.n), sizes[0]);
        let written = bytes(outputs, self.unit(|axis| axis.m), sizes[1]);
        let (Some(read), Some(written)) = (read, written) else { return false };
        let taps: u64 = self.axes.iter().map(BoxAxis::weights).sum();
        read.max(written) <= limits.room()
            && (written / sizes[1]).saturating_mul(taps) <= WORK.max(taps.saturating_mul(1 << 20))
            && self.groups(arrays, outputs, sizes[1], limits)[0]
                <= u64::from(limits.groups_per_axis).saturating_pow(2)
    }

    /// The most of a number up to `all` for which extents fit a launch; 0 where none does.
    pub(super) fn most(
        &self,
        all: u64,
        limits: &Limits,
        sizes: [u64; 2],
        extents: impl Fn(u64) -> [u64; 3],
    ) -> u64 {
        let (mut least, mut beyond) = (0, all + 1);
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

    /// Whether one output along the first axis fits a launch.
    fn fits_row(&self, limits: &Limits, sizes: [u64; 2]) -> bool {
        let axis = &self.axes[self.first()];
        self.fits([1, axis.n.min(axis.weights()), axis.m.min(1)], limits, sizes)
    }

    /// Whether what a tile's sums see, and these sums, fit what a workgroup shares; and where there are weights along z, whether the planes
    /// that its sums need fit the registers of its invocations, of which each then has [`MANY`] cells.
    ///
    /// The cpu sums along an axis once more for what the next one sees around a task: that stays below what another pass costs.
    fn fits_workgroup(&self, limits: &Limits, output: DType, real: DType) -> bool {
        let [z, y, x] = &self.axes;
        let reach = |axis: &BoxAxis| axis.weights().saturating_sub(1);
        if !has_workgroups(limits) {
            return reach(x) * self.step <= AROUND && (z.taps.is_none() || reach(y) <= AROUND_OF_THREE);
        }
        let width = self.tile_x() + reach(x) * self.step;
        let seen = (TILE_Y + reach(y)) * width;
        let is_whole = output.size() >= 4 || (x.m * self.step * output.size()).is_multiple_of(4);
        is_whole
            && seen + (TILE_Y + 1) * width + TILE_Y * (TILE_X + 1) <= ROOM
            && ROOM * real.size() <= limits.workgroup_memory.into()
            && (z.taps.is_none() || reach(z) <= 2 * REACH && seen <= MANY * u64::from(WG))
            && self.iterations() < limits.iterations.into()
    }
}
