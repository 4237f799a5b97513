//! Plants bugs in weighted sums of neighbours.

use super::{each_bug_shows, numbers};
use crate::{
    DType, Element, Result, Tensor,
    device::Device,
    filter::taps::Taps,
    kernel::{Grid, Kernel, small},
    kernels::correlate::{CORRELATE, Edge, Params, room, spec},
};

/// The number of arrays, and their extents along y and x.
const SHAPE: [u32; 3] = [5, 53, 45];
/// Weights along y and x: whole numbers, so that sums are exact.
const WEIGHTS: [&[f32]; 2] = [&[-1.0, -3.0, 0.0, 3.0, 1.0], &[2.0, 0.0, 5.0]];
/// Weights along y alone that are opposite (`ODD`) or equal (`EVEN`) on both sides, and weights along x alone.
const ODD: [&[f32]; 2] = [WEIGHTS[0], &[]];
const EVEN: [&[f32]; 2] = [&[1.0, 3.0, 2.0, 3.0, 1.0], &[]];
const ACROSS: [&[f32]; 2] = [&[], WEIGHTS[1]];
/// The edges along y and x.
const EDGES: [Edge; 2] = [Edge::Reflect, Edge::Constant];
/// The constants beyond the edges along z, y and x.
const CONSTANTS: [f32; 3] = [5.0, 7.0, 6.0];
/// For a strip: the number of elements of a row, the number of rows that are computed at once, and the number of rows in all.
const WIDTH: u32 = 16;
const ROWS: u32 = 16;
const RUN: u32 = 32;

/// Computes sums along the axes that have weights, one axis after the other.
fn expected(x: &[f32], weights: [&[f32]; 2], edges: [Edge; 2]) -> Vec<f32> {
    let mut x = x.to_vec();
    for axis in 0..2 {
        if weights[axis].is_empty() {
            continue;
        }
        let n = SHAPE[axis + 1] as usize;
        let inner: usize = SHAPE[axis + 2..].iter().product::<u32>() as usize;
        let sum = |place: usize| {
            let at = place / inner % n;
            let tap = |(t, weight): (usize, &f32)| {
                let at_tap = (at + t) as i64 - weights[axis].len() as i64 / 2;
                let source = edges[axis].source(at_tap, n);
                weight * source.map_or(CONSTANTS[axis + 1], |source| x[place - at * inner + source * inner])
            };
            weights[axis].iter().enumerate().map(tap).sum()
        };
        x = (0..x.len()).map(sum).collect();
    }
    x
}

/// Computes sums of type `R` along the axes that have weights, by strips, or each output separately. Input and output start behind other elements.
fn sums<T: Element, R: Element + From<f32>>(
    device: &Device,
    kernel: &'static Kernel<Params>,
    (weights, edges, direct): ([&[f32]; 2], [Edge; 2], bool),
    stored: fn(f32) -> T,
) -> Result<bool> {
    const BEFORE: u32 = 3;
    let len: u32 = SHAPE.iter().product();
    let x: Vec<f32> = numbers(len);
    let halves: Vec<half::f16> =
        [&[99.0; BEFORE as usize], &x[..]].concat().iter().copied().map(half::f16::from_f32).collect();
    let tx = Tensor::from_slice(device, &halves, &[(BEFORE + len).into()])?;
    let taps = weights.map(|weights| {
        let weights: Vec<f64> = weights.iter().copied().map(f64::from).collect();
        (!weights.is_empty()).then(|| Taps::new(weights, Edge::Wrap, 0.0))
    });
    let numbers = taps.iter().flatten().flat_map(|taps| taps.narrow(false));
    let given: Vec<R> = CONSTANTS.into_iter().chain(numbers).map(R::from).collect();
    let given = Tensor::from_slice(device, &given, &[given.len() as u64])?;
    let [outer, ny, nx] = SHAPE;
    let [wy, wx] = weights.map(|weights| small(weights.len() as u64));
    let code = |[y, x]: [u32; 2]| y << 4 | x << 8;
    let kinds = taps.map(|taps| taps.map_or(0, |taps| taps.kind(false) as u32));
    // If sums are along x alone, all rows belong to one array.
    let [outer, ny, count] = if wy == 0 { [1, outer * ny, nx] } else { [outer, ny, ny] };
    let params = Params {
        x0: BEFORE,
        out0: BEFORE,
        x_type: DType::F16.code(),
        out_type: T::DTYPE.code(),
        outer,
        nz: 1,
        ny,
        nx,
        mz: 1,
        my: ny,
        mx: nx,
        wy,
        wx,
        count,
        step: 1,
        edges: code(edges.map(|edge| edge as u32)),
        kinds: code(kinds),
        columns: WIDTH + wx.saturating_sub(1),
        rows: ROWS,
        run: RUN,
        apart: ROWS + 2,
        ..Params::default()
    };
    let strips = outer * ny.div_ceil(RUN) * nx.div_ceil(WIDTH);
    let groups = u64::from(if direct { len.div_ceil(256) } else { strips });
    let rest = vec![stored(99.0); BEFORE as usize];
    let old = vec![stored(99.0); (len + 2 * BEFORE) as usize];
    let mut out = Tensor::from_slice(device, &old, &[old.len() as u64])?;
    let all = 0..out.len();
    let args = [tx.window(0..tx.len()).arg, given.window(0..given.len()).arg, out.window_update(all).arg];
    let filtered = if direct { [false; 2] } else { [wy > 0, wx > 0] };
    let wide = R::DTYPE == DType::F64;
    device.launch(
        kernel,
        &spec(filtered, wide, room(wide, u32::MAX)),
        // The grid is folded into rows, the last of which is incomplete, so that there are workgroups beyond the last one needed.
        Grid::linear(groups, 8, 0)?,
        &args,
        &params,
    )?;
    let expected: Vec<T> = expected(&x, weights, edges).into_iter().map(stored).collect();
    Ok(out.read()? == [&rest[..], &expected, &rest].concat())
}

#[test]
fn bugs_in_sums_of_neighbours_show() {
    let f32s = |x: f32| x;
    let both = [
        (
            "ring);\n        __syncthreads();\n        if (seen < before)",
            "ring);\n        if (seen < before)",
        ),
        ("sum;\n                }\n                __syncthreads();", "sum;\n                }"),
        ("sums);\n    __syncthreads();", "sums);"),
        ("= sums[k];\n    }\n    __syncthreads();", "= sums[k];\n    }"),
        ("= min(strip.width, strip.out_line - strip.first_x);", "= strip.width;"),
        ("? place : n - 1 - place", "? place : n - 2 - place"),
        ("if (strip.array < params.outer) make_strip", "make_strip"),
        ("numbers + 3 + p.wy, p.wx", "numbers + 3, p.wx"),
        ("place == BEYOND ? numbers[2] : truncated", "truncated"),
        ("around(start + t, strip.ring)", "(start + t)"),
        ("min(p.rows, strip.end - y)", "p.rows"),
    ];
    let sums_of = |weights| (weights, EDGES, false);
    each_bug_shows(19, &CORRELATE, &both, |device, kernel| {
        sums::<_, f32>(device, kernel, sums_of(WEIGHTS), f32s)
    });
    let across = [("place == BEYOND ? numbers[2] : 0", "0"), ("(ALONG == 1 ? 0 : p.first)", "1")];
    each_bug_shows(19, &CORRELATE, &across, |device, kernel| {
        sums::<_, f32>(device, kernel, sums_of(ACROSS), f32s)
    });
    let along = [
        ("(i32)(strip.first + p.oy)", "(i32)(strip.first + p.oy + 1)"),
        ("at(t + N + ONE)", "at(t + N - 1)"),
        ("at(end - 1 - t - ONE)", "at(end - t)"),
        ("kind == ODD ? -value", "kind == ODD ? value"),
        ("if (k < count) store_real", "store_real"),
        ("if constexpr (ACROSS == 0) __syncthreads();", ""),
    ];
    each_bug_shows(19, &CORRELATE, &along, |device, kernel| {
        sums::<_, f32>(device, kernel, sums_of(ODD), f32s)
    });
    let constant = [("if (edge == CONSTANT) return -1;", ""), ("row_at < 0 ? beyond", "row_at < 0 ? 0")];
    each_bug_shows(19, &CORRELATE, &constant, |device, kernel| {
        sums::<_, f32>(device, kernel, (ODD, [Edge::Constant; 2], false), f32s)
    });
    let apart = [
        ("at(t + N + ONE)", "at(t + N)"),
        ("at(end - 1 - t - ONE)", "at(end - 1 - t)"),
        ("at(first + k), weights[first], sums[k])", "at(first), weights[first], sums[k])"),
        ("    right = at(end - ONE);\n", ""),
    ];
    each_bug_shows(19, &CORRELATE, &apart, |device, kernel| {
        sums::<_, f32>(device, kernel, sums_of(EVEN), f32s)
    });
    let wide = [("rounded_product(x, y) + z", "rounded_product(x, y) - z")];
    each_bug_shows(19, &CORRELATE, &wide, |device, kernel| {
        sums::<_, f64>(device, kernel, sums_of(WEIGHTS), f64::from)
    });
    let words =
        [("if (array >= p.outer) return;", ""), ("(i32)(row - array * p.my + p.oy)", "(i32)(row + p.oy)")];
    let bytes = |x: f32| (0..=u8::MAX).rev().find(|&byte| f32::from(byte) <= x).unwrap_or(0);
    each_bug_shows(19, &CORRELATE, &words, |device, kernel| {
        sums::<_, f32>(device, kernel, (ODD, EDGES, true), bytes)
    });
}
