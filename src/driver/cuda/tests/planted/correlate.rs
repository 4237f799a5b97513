//! Bugs in sums of neighbours.

use super::{each_bug_shows, numbers};
use crate::{
    DType, Result, Tensor,
    device::Device,
    kernel::{Grid, Kernel, small},
    kernels::correlate::{CORRELATE, Edge, Kind, Params, TILE_X, TILE_Y, spec},
};

const SHAPE: [u32; 3] = [4, 21, 45];
/// Of z, y and x; whole numbers, so that sums are exact.
const WEIGHTS: [&[f32]; 3] = [&[1.0, 2.0, 1.0], &[-1.0, -3.0, 0.0, 3.0, 1.0], &[2.0, 0.0, 5.0]];
const EDGES: [Edge; 3] = [Edge::Mirror, Edge::Constant, Edge::Reflect];
const CONSTANT: f32 = 7.0;

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
                weight * source.map_or(CONSTANT, |source| x[place - at * inner + source * inner])
            };
            weights[axis].iter().enumerate().map(tap).sum()
        };
        x = (0..x.len()).map(sum).collect();
    }
    x
}

/// Along all axes by tiles, or along y alone; the input and output begin behind others.
fn sums(device: &Device, kernel: &'static Kernel<Params>, tiled: bool) -> Result<bool> {
    const BEFORE: u32 = 3;
    let len: u32 = SHAPE.iter().product();
    let x: Vec<f32> = numbers(len);
    let weights = if tiled { WEIGHTS } else { [&[][..], WEIGHTS[1], &[]] };
    let stored: Vec<half::f16> =
        [&[99.0; BEFORE as usize], &x[..]].concat().iter().copied().map(half::f16::from_f32).collect();
    let tx = Tensor::from_slice(device, &stored, &[(BEFORE + len).into()])?;
    let before = [CONSTANT; 3];
    let given: Vec<f32> = before.into_iter().chain(weights.concat()).collect();
    let given = Tensor::from_slice(device, &given, &[given.len() as u64])?;
    let [nz, ny, nx] = SHAPE;
    let [wz, wy, wx] = weights.map(|weights| small(weights.len() as u64));
    let code = |codes: [u32; 3]| codes.into_iter().rev().fold(0, |all, code| 16 * all + code);
    let kinds = [Kind::Even as u32, Kind::Odd as u32, Kind::Any as u32];
    let kinds = [0, 1, 2].map(|axis| if weights[axis].is_empty() { 0 } else { kinds[axis] });
    let mut params = Params {
        x0: BEFORE,
        out0: BEFORE,
        x_type: DType::F16.code(),
        out_type: DType::F32.code(),
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
        ..Params::default()
    };
    let mut groups = u64::from(nz) * u64::from(ny).div_ceil(TILE_Y) * u64::from(nx).div_ceil(TILE_X);
    if !tiled {
        (params.outer, params.nz, params.mz, params.count) = (nz, 1, 1, ny);
        groups = u64::from(len).div_ceil(256);
    }
    let mut out = Tensor::<f32>::from_slice(
        device,
        &vec![-1.0; (len + 2 * BEFORE) as usize],
        &[(len + 2 * BEFORE).into()],
    )?;
    let all = 0..out.len();
    let args = [tx.window(0..tx.len()).arg, given.window(0..given.len()).arg, out.window_update(all).arg];
    device.launch(
        kernel,
        &spec(tiled, false),
        Grid::linear(groups, if tiled { 6 } else { 5 }, 0)?,
        &args,
        &params,
    )?;
    let rest = vec![-1.0; BEFORE as usize];
    Ok(out.read()? == [&rest[..], &expected(&x, weights), &rest].concat())
}

#[test]
fn bugs_in_sums_of_neighbours_show() {
    let shared = [("at(t) - at(end - t)", "at(t) + at(end - t)"), ("if (edge == CONSTANT) return -1;", "")];
    let tiles = [
        ("    __syncthreads();\n    real* lines", "    real* lines"),
        ("lines[i] = value;\n    }\n    __syncthreads();", "lines[i] = value;\n    }"),
        ("|| first_x + element >= line", ""),
        ("2 * n - 1 - place", "2 * n - 2 - place"),
        ("if (plane >= p.outer * p.mz) return;", ""),
        ("y_weights + p.wy", "y_weights"),
    ];
    each_bug_shows(19, &CORRELATE, &tiles, |device, kernel| sums(device, kernel, true));
    let along = [
        ("min(item * each + each, end)", "item * each + each"),
        ("max(item * each, params.out0)", "item * each - 1"),
        ("(y + p.oy)", "(y + p.oy + 1)"),
    ];
    let along: Vec<_> = along.into_iter().chain(shared).collect();
    each_bug_shows(19, &CORRELATE, &along, |device, kernel| sums(device, kernel, false));
}
