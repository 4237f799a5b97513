//! Weighted sums of neighbours along one axis, or along several axes of a box in one launch.
//! All elements are computed by the same operations, so results do not depend on how the work is divided.

pub(crate) use super::cpu::correlate::{Combine, Edge, Kind};
use super::{
    WG,
    cpu::correlate::{Axis, Correlation, Real},
};
use crate::{
    Cancel, DType,
    kernel::{CpuArg, CpuLaunch, Kernel, kernel, params},
};

params! {
    /// Parameters of the kernel. For the axes z, y and x of a box: the extents `n` of the input and `m` of the output,
    /// the input's coordinate `o` (i32) of the first output, and the number `w` of weights (0 if nothing is summed
    /// along the axis). GPUs sum along y and x only, and their extent along z is 1.
    ///
    /// The weights of z, y and x, in this order, follow the three constants beyond the edges.
    pub(crate) struct Params {
        /// The indices of the first elements.
        pub(crate) x0: u32,
        pub(crate) out0: u32,
        /// Codes of the element types.
        pub(crate) x_type: u32,
        pub(crate) out_type: u32,
        /// The number of consecutive boxes.
        pub(crate) outer: u32,
        pub(crate) nz: u32,
        pub(crate) ny: u32,
        pub(crate) nx: u32,
        pub(crate) mz: u32,
        pub(crate) my: u32,
        pub(crate) mx: u32,
        pub(crate) oz: u32,
        pub(crate) oy: u32,
        pub(crate) ox: u32,
        pub(crate) wz: u32,
        pub(crate) wy: u32,
        pub(crate) wx: u32,
        /// The part of the first axis with weights that the input holds: its start and its length.
        pub(crate) first: u32,
        pub(crate) count: u32,
        /// The number of independent elements at each x.
        pub(crate) step: u32,
        /// An [`Edge`] and a [`Kind`] for each axis, four bits each; those of z are the lowest.
        pub(crate) edges: u32,
        pub(crate) kinds: u32,
        /// A [`Combine`].
        pub(crate) combine: u32,
        /// The code, plus 1, of the type to which sums along each axis are truncated (towards 0); 0 for no truncation.
        pub(crate) truncate: u32,
        /// The numbers of a strip's workgroup: elements of a row that it reads, rows that it computes at once, rows that it computes in
        /// all, and elements from one column of cells to the next.
        pub(crate) columns: u32,
        pub(crate) rows: u32,
        pub(crate) run: u32,
        pub(crate) apart: u32,
    }
}

pub(crate) static CORRELATE: Kernel<Params> = kernel!(
    "correlate" + "sums" + "direct" + "strip",
    Params,
    [Read, Read, ReadWrite],
    correlate,
    specs,
    [Edge, Kind, Combine]
);

/// The number of adjacent outputs that an invocation computes at once.
pub(crate) const MANY: u64 = 8;

/// The number of constants before the weights.
pub(crate) const BEFORE_WEIGHTS: usize = 3;

/// Returns the number of elements that fit a workgroup's memory: f64 if `wide`, otherwise f32. Devices that compute in f64 have at least 32 KiB.
pub(crate) const fn room(wide: bool, workgroup_memory: u32) -> u32 {
    match wide {
        true => 4096,
        false if workgroup_memory < 32 << 10 => 4000,
        false => 8192,
    }
}

/// Returns the constants of a program: for strips that sum along y, along x, or both; or, if neither is set, for
/// separate outputs along y, which need no workgroup memory. It computes in f64 if `wide`.
pub(crate) const fn spec([along, across]: [bool; 2], wide: bool, room: u32) -> [(&'static str, u32); 5] {
    let room = if along || across { room } else { 1 };
    [("WG", WG), ("ALONG", along as u32), ("ACROSS", across as u32), ("WIDE", wide as u32), ("ROOM", room)]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    let strips = [[true, false], [false, true], [true, true]];
    let rooms = [room(false, u32::MAX), room(false, 0)];
    let narrow = rooms.into_iter().flat_map(|room| strips.map(|axes| spec(axes, false, room)));
    let wide = strips.map(|axes| spec(axes, true, room(true, u32::MAX)));
    let direct = [false, true].map(|wide| spec([false; 2], wide, 1));
    narrow.chain(wide).chain(direct).map(Vec::from).collect()
}

fn correlate(launch: CpuLaunch<'_>) {
    if launch.constant("WIDE") != 0 { correlate_in::<f64>(launch) } else { correlate_in::<f32>(launch) }
}

/// The minimum number of adjacent elements of a line for sums of whole lines; shorter lines are summed as elements that are a line apart.
const LINE: usize = 64;

fn correlate_in<R: Real>(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let cancel = launch.cancel();
    let [x, numbers, out] = launch.args();
    let numbers = numbers.read();
    let (axes, outer, line) = (axes::<R>(&p, numbers), p.outer as usize, (p.nx * p.step) as usize);
    let shape = if p.wz > 0 || p.wx > 0 {
        (outer, axes, p.step as usize)
    } else if line < LINE {
        (1, [Axis::plain(1), Axis::plain(outer), axes[1]], line)
    } else {
        (outer, [Axis::plain(1), axes[1], Axis::plain(line)], 1)
    };
    run(&p, &x, out, shape, cancel);
}

fn axes<'a, R: Real>(p: &Params, numbers: &'a [R]) -> [Axis<'a, R>; 3] {
    let (constants, mut weights) = numbers.split_at(BEFORE_WEIGHTS);
    let mut is_first = true;
    let mut axis = |i: usize, n: u32, m: u32, offset: u32, count: u32| {
        let part = |packed: u32| packed >> (4 * i) & 15;
        let kind = (part(p.kinds) != 0).then(|| Kind::from_code(part(p.kinds)));
        let mut axis = Axis::plain(n as usize);
        if kind.is_none() {
            return axis;
        }
        (axis.weights, weights) = weights.split_at(count as usize);
        (axis.m, axis.offset, axis.kind) = (m as usize, offset.cast_signed().into(), kind);
        (axis.edge, axis.constant) = (Edge::from_code(part(p.edges)), constants[i]);
        if std::mem::take(&mut is_first) {
            (axis.first, axis.count) = (p.first as usize, p.count as usize);
        }
        axis
    };
    [axis(0, p.nz, p.mz, p.oz, p.wz), axis(1, p.ny, p.my, p.oy, p.wy), axis(2, p.nx, p.mx, p.ox, p.wx)]
}

fn run<R: Real>(
    p: &Params,
    x: &CpuArg<'_>,
    out: CpuArg<'_>,
    (outer, axes, step): (usize, [Axis<'_, R>; 3], usize),
    cancel: Option<&Cancel>,
) {
    let out_type = DType::from_code(p.out_type);
    let size = usize::try_from(out_type.size()).unwrap_or(usize::MAX);
    let len = axes.iter().fold(outer * step, |len, axis| len * axis.m);
    let out = &mut out.write::<u8>()[p.out0 as usize * size..][..len * size];
    let correlation = Correlation {
        x,
        x_type: DType::from_code(p.x_type),
        x0: p.x0 as usize,
        out_type,
        outer,
        axes,
        step,
        truncate: p.truncate.checked_sub(1).map(DType::from_code),
        combine: Combine::from_code(p.combine),
        cancel,
    };
    correlation.run(out);
}
