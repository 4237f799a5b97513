//! Plants bugs in sums and extremes along an axis.

use super::each_bug_shows;
use crate::{
    Result, Tensor,
    device::Device,
    kernel::{Grid, Kernel},
    kernels::reduce_axis::{BLOCK, Op, Params, REDUCE_AXIS, Stored, WG, spec},
};

const OUTER: u32 = 3;
const LEN: u32 = 2501;

/// Returns whole numbers, the greatest of which occurs twice in each line.
fn numbers(inner: u32) -> Vec<f32> {
    let x = (0..OUTER * LEN * inner).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32 - 100.0);
    x.collect()
}

/// Launches over elements and then over totals. Returns true if the results are those of the host.
fn along(
    device: &Device,
    kernel: &'static Kernel<Params>,
    inner: u32,
    op: Op,
    stored: Stored,
) -> Result<bool> {
    let (x, parts) = (numbers(inner), LEN.div_ceil(BLOCK));
    let tx = Tensor::from_slice(device, &x, &[x.len() as u64])?;
    let results = u64::from(OUTER * inner);
    let mut totals = Tensor::<u32>::zeros(device, &[results * u64::from(parts) * 4])?;
    let mut out = Tensor::<u32>::zeros(device, &[results])?;
    let mut launch = |partial: bool| {
        let (len, stored) = if partial { (parts, stored) } else { (LEN, Stored::Total) };
        let params = Params {
            outer: OUTER,
            len,
            inner,
            pitch: inner,
            op: op as u32,
            stored: stored as u32,
            count: LEN as f32,
            ..Params::default()
        };
        let by_row = inner == 1;
        let made = OUTER * len.div_ceil(BLOCK);
        let groups = if by_row { made } else { (made * inner).div_ceil(WG) };
        // The grid is folded, so that some workgroups have no work.
        let grid = Grid::linear(groups.into(), if by_row { 5 } else { 3 }, 0)?;
        let spec = spec(by_row, partial, crate::DType::F32);
        if partial {
            let args = [totals.window(0..totals.len()).arg, out.window_update(0..results).arg];
            device.launch(kernel, &spec, grid, &args, &params)
        } else {
            let len = totals.len();
            let args = [tx.window(0..tx.len()).arg, totals.window_update(0..len).arg];
            device.launch(kernel, &spec, grid, &args, &params)
        }
    };
    launch(false)?;
    launch(true)?;
    let at = |o: u32, l: u32, i: u32| x[((o * LEN + l) * inner + i) as usize];
    let expected = (0..OUTER * inner).map(|place| {
        let line = || (0..LEN).map(|l| at(place / inner, l, place % inner));
        match stored {
            Stored::Index => {
                let most = line().fold(f32::NEG_INFINITY, f32::max);
                (0..).zip(line()).find(|(_, x)| *x == most).unwrap().0
            }
            // Sums of whole numbers below 2^24 are exact in any order.
            _ => line().sum::<f32>().to_bits(),
        }
    });
    Ok(expected.eq(out.read()?))
}

#[test]
fn bugs_along_an_axis_show() {
    let sums = [
        ("if (row >= params.outer) return;", ""),
        (
            "partial[threadIdx.x / WARP] = total;\n    __syncthreads();",
            "partial[threadIdx.x / WARP] = total;",
        ),
        ("mask > 0; mask /= 2", "mask > 1; mask /= 2"),
        ("u32 count = min(params.len - start, BLOCK);", "u32 count = BLOCK;"),
        ("if (i < run) total.value", "total.value"),
        ("warp < WG / WARP;", "warp < WG / WARP - 1;"),
    ];
    each_bug_shows(32, &REDUCE_AXIS, &sums, |device, kernel| along(device, kernel, 1, Op::Sum, Stored::One));
    let columns = [
        ("if (outer >= params.outer) return;", ""),
        ("params.pitch, min(params.len - start, BLOCK),", "params.pitch, BLOCK,"),
        ("if (i < run) total.value", "total.value"),
        ("(outer * params.len + start) * params.pitch", "(outer * params.len + start)"),
    ];
    each_bug_shows(32, &REDUCE_AXIS, &columns, |device, kernel| {
        along(device, kernel, 7, Op::Sum, Stored::One)
    });
    let places = [
        ("(a_index < b_index && (a == b || a_is_nan))", "a == b"),
        ("params.first + at, WG}", "params.first + at, 1}"),
        ("line.index += run * line.stride;", ""),
        ("shuffle_xor(total.index, mask)", "total.index"),
    ];
    let right = |device: &Device, kernel| along(device, kernel, 1, Op::Max, Stored::Index);
    each_bug_shows(32, &REDUCE_AXIS, &places, right);
}
