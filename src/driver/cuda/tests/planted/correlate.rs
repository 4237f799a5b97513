//! Bugs in sums of neighbours.

use super::{each_bug_shows, numbers};
use crate::{
    DType, Element, Result, Tensor,
    device::Device,
    filter::taps::Taps,
    kernel::{Grid, Kernel, small},
    kernels::correlate::{CORRELATE, Edge, Params, TILE_X, TILE_Y, spec},
};

const SHAPE: [u32; 3] = [9, 21, 45];
/// Weights of z, y and x: whole numbers, so that sums are exact.
const WEIGHTS: [&[f32]; 3] = [&[1.0, 2.0, 1.0], &[-1.0, -3.0, 0.0, 3.0, 1.0], &[2.0, 0.0, 5.0]];
const EDGES: [Edge; 3] = [Edge::Mirror, Edge::Constant, Edge::Reflect];
/// Weights of y alone: opposite on both sides, or the same.
const ODD: [&[f32]; 3] = [&[], WEIGHTS[1], &[]];
const EVEN: [&[f32]; 3] = [&[], &[1.0, 3.0, 2.0, 3.0, 1.0], &[]];
/// Constants beyond the edges of z, y and x.
const CONSTANTS: [f32; 3] = [5.0, 7.0, 6.0];

/// Sums along the axes that have weights, one after another.
fn expected(x: &[f32], weights: [&[f32]; 3]) -> Vec<f32> {
    let mut x = x.to_vec();
    for axis in 0..3 {
        if weights[axis].is_empty() {
            continue;
        }
        let n = SHAPE[axis] as usize;
        let inner: usize = SHAPE[axis + 1..].iter().product::<u32>() as usize;
        let sum = |place: usize| {
            let at = place / inner % n;
            let tap = |(t, weight): (usize, &f32)| {
                let at_tap = (at + t) as i64 - weights[axis].len() as i64 / 2;
                let source = EDGES[axis].source(at_tap, n);
                weight * source.map_or(CONSTANTS[axis], |source| x[place - at * inner + source * inner])
            };
            weights[axis].iter().enumerate().map(tap).sum()
        };
        x = (0..x.len()).map(sum).collect();
    }
    x
}

/// Along all axes by tiles, or along y alone where others have no weights, with sums of R; the input and output begin behind others.
fn sums<T: Element, R: Element + From<f32>>(
    device: &Device,
    kernel: &'static Kernel<Params>,
    weights: [&[f32]; 3],
    stored: fn(f32) -> T,
) -> Result<bool> {
    const BEFORE: u32 = 3;
    let len: u32 = SHAPE.iter().product();
    let x: Vec<f32> = numbers(len);
    let tiled = !weights[0].is_empty();
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
    let [nz, ny, nx] = SHAPE;
    let [wz, wy, wx] = weights.map(|weights| small(weights.len() as u64));
    let code = |codes: [u32; 3]| codes.into_iter().rev().fold(0, |all, code| 16 * all + code);
    let kinds = taps.map(|taps| taps.map_or(0, |taps| taps.kind(false) as u32));
    let mut params = Params {
        x0: BEFORE,
        out0: BEFORE,
        x_type: DType::F16.code(),
        out_type: T::DTYPE.code(),
        outer: 1,
        nz,
        ny,
        nx,
        mz: nz,
        my: ny,
        mx: nx,
        wz,
        wy,
        wx,
        count: nz,
        step: 1,
        edges: code(EDGES.map(|edge| edge as u32)),
        kinds: code(kinds),
        run: 6,
        ..Params::default()
    };
    let mut groups =
        u64::from(nz.div_ceil(6)) * u64::from(ny).div_ceil(TILE_Y) * u64::from(nx).div_ceil(TILE_X);
    if !tiled {
        (params.outer, params.nz, params.mz, params.count, params.run) = (nz, 1, 1, ny, 8);
        let items = if T::DTYPE.size() < 4 { len.div_ceil(4) + 1 } else { nz * ny.div_ceil(8) * nx };
        groups = u64::from(items).div_ceil(256);
    }
    let rest = vec![stored(99.0); BEFORE as usize];
    let old = vec![stored(99.0); (len + 2 * BEFORE) as usize];
    let mut out = Tensor::from_slice(device, &old, &[old.len() as u64])?;
    let all = 0..out.len();
    let args = [tx.window(0..tx.len()).arg, given.window(0..given.len()).arg, out.window_update(all).arg];
    device.launch(
        kernel,
        &spec(tiled, R::DTYPE == DType::F64),
        // Folded in rows that are not all full, so that there are workgroups beyond the last.
        Grid::linear(groups, if tiled { 3 } else { small(groups / 2 + 1) }, 0)?,
        &args,
        &params,
    )?;
    let expected: Vec<T> = expected(&x, weights).into_iter().map(stored).collect();
    Ok(out.read()? == [&rest[..], &expected, &rest].concat())
}

#[test]
fn bugs_in_sums_of_neighbours_show() {
    let shared = [("kind == ODD ? -value", "kind == ODD ? value"), ("if (edge == CONSTANT) return -1;", "")];
    let tiles = [
        ("        __syncthreads();\n        if (p.wz > 0) advance", "        if (p.wz > 0) advance"),
        ("columns);\n        __syncthreads();\n        sum_rows", "columns);\n        sum_rows"),
        ("columns, rows);\n        __syncthreads();", "columns, rows);"),
        ("|| tile.first_x + element >= line", ""),
        ("? place : n - 1 - place", "? place : n - 2 - place"),
        ("if (tile.array >= p.outer) return;", ""),
        ("numbers + 3 + p.wz + p.wy", "numbers + 3 + p.wz"),
        ("place == BEYOND ? numbers[1]", "place == BEYOND ? numbers[0]"),
        ("before = planes[REACH - d],", "before = planes[REACH - d + 1],"),
        ("            before -= planes[REACH - d + 1];\n", ""),
        ("(i32)(z + 1 + REACH), end)", "(i32)(z + REACH), end)"),
    ];
    let f32s = |x: f32| x;
    each_bug_shows(19, &CORRELATE, &tiles, |device, kernel| sums::<_, f32>(device, kernel, WEIGHTS, f32s));
    let runs = [
        ("min(p.my, i + p.run)", "i + p.run"),
        ("i + MANY <= end", "i < end"),
        ("(i32)(y + p.oy)", "(i32)(y + p.oy + 1)"),
        ("at(t + N + one)", "at(t + N - 1)"),
        ("at(end - 1 - t - one)", "at(end - t)"),
    ];
    let runs: Vec<_> = runs.into_iter().chain(shared).collect();
    each_bug_shows(19, &CORRELATE, &runs, |device, kernel| sums::<_, f32>(device, kernel, ODD, f32s));
    let apart = [
        ("at(t + N + one)", "at(t + N)"),
        ("at(end - 1 - t - one)", "at(end - 1 - t)"),
        ("at(first + k), weights[first], sums[k])", "at(first), weights[first], sums[k])"),
        ("    right = at(end - one);\n", ""),
    ];
    each_bug_shows(19, &CORRELATE, &apart, |device, kernel| sums::<_, f32>(device, kernel, EVEN, f32s));
    let wide = [("rounded_product(x, y) + z", "rounded_product(x, y) - z")];
    each_bug_shows(19, &CORRELATE, &wide, |device, kernel| {
        sums::<_, f64>(device, kernel, WEIGHTS, f64::from)
    });
    let words = [
        ("min(item * each + each - p.out0, p.outer * p.my * line)", "item * each + each - p.out0"),
        ("max(item * each, p.out0) - p.out0", "item * each - p.out0"),
    ];
    let bytes = |x: f32| (0..=u8::MAX).rev().find(|&byte| f32::from(byte) <= x).unwrap_or(0);
    each_bug_shows(19, &CORRELATE, &words, |device, kernel| sums::<_, f32>(device, kernel, ODD, bytes));
}
