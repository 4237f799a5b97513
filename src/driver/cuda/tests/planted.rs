//! Plants bugs in the kernels that ship: a test must detect each.

mod array;
mod correlate;
mod distance;
mod nearest;
mod packed;
mod reduce_axis;

use std::fmt::Debug;

use bytemuck::Pod;

use super::open;
use crate::{
    DType, DeviceOptions, Element, Real, Result, Tensor,
    device::Device,
    kernel::{Grid, Kernel, KernelDef, Spec},
    kernels::{
        matmul::{self, MATMUL, MATMUL_F64},
        reduce::{self, REDUCE},
        transpose::{self, TRANSPOSE},
    },
};

/// Returns a kernel in whose CUDA source a bug replaces a text that occurs once.
fn plant<P: Pod + Debug>(kernel: &Kernel<P>, sound: &str, bug: &str) -> &'static Kernel<P> {
    let def = &kernel.def;
    assert_eq!(def.cuda.matches(sound).count(), 1, "{}: {sound}", def.name);
    let source = String::leak(def.cuda.replace(sound, bug));
    Box::leak(Box::new(Kernel { def: KernelDef { cuda: source, ..*def }, lengths: None }))
}

/// Runs the sound kernel, whose result must be right, and the kernel with each bug, which must give a wrong result or
/// fail. Each runs on a device of its own, since a device keeps the kernels that it has loaded.
fn each_bug_shows<P: Pod + Debug>(
    place: usize,
    kernel: &'static Kernel<P>,
    bugs: &[(&str, &str)],
    right: impl Fn(&Device, &'static Kernel<P>) -> Result<bool>,
) {
    // The devices do not check bounds: guard words behind tensors would hide accesses beyond the end.
    let device = || open(place, &DeviceOptions::default());
    assert!(right(&device(), kernel).unwrap(), "{}", kernel.def.name);
    let unseen =
        |(sound, bug): &&(&str, &str)| matches!(right(&device(), plant(kernel, sound, bug)), Ok(true));
    let unseen: Vec<_> = bugs.iter().filter(unseen).collect();
    assert!(unseen.is_empty(), "{}: these do not show: {unseen:?}", kernel.def.name);
}

fn numbers(len: u32) -> Vec<f32> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as f32 - 100.0).collect()
}

/// Multiplies an operand of type `A`, which `stored` makes from whole numbers, by an operand of type `R`.
fn product<A: Element, R: Real>(
    device: &Device,
    kernel: &'static Kernel<matmul::Params>,
    spec: Spec<'_>,
    tile: u32,
    stored: fn(f32) -> A,
) -> Result<bool> {
    let [m, n, k] = [tile + 13, tile + 22, 41];
    let a: Vec<A> = numbers(m * k).into_iter().map(stored).collect();
    let b: Vec<R> = numbers(k * n).into_iter().map(R::of).collect();
    let ta = Tensor::from_slice(device, &a, &[m.into(), k.into()])?;
    let tb = Tensor::from_slice(device, &b, &[k.into(), n.into()])?;
    let mut c = Tensor::<R>::zeros(device, &[m.into(), n.into()])?;
    let a_type = A::DTYPE.code();
    let params = matmul::Params { m, n, k, lda: k, ldb: n, ldc: n, a_type, ..Default::default() };
    let args =
        [ta.window(0..ta.len()).arg, tb.window(0..tb.len()).arg, c.window_update(0..u64::from(m * n)).arg];
    device.launch(kernel, spec, Grid::tiles(n.div_ceil(tile), m.div_ceil(tile), 0), &args, &params)?;
    let at = |i: u32, j: u32, l: u32| a[(i * k + l) as usize].to_f64() * b[(l * n + j) as usize].to_f64();
    let sum = |place: u32| R::of((0..k).map(|l| at(place / n, place % n, l)).sum::<f64>());
    let expected: Vec<R> = (0..m * n).map(sum).collect();
    // Sums of whole numbers below 2^24 are exact in any order.
    Ok(c.read()? == expected)
}

#[test]
fn bugs_in_products_show() {
    let bugs = [
        ("copy_wait<0>();\n        __syncthreads();", "copy_wait<0>();"),
        ("copy_wait<0>();\n", "\n"),
        ("WHOLE || x.depth + 8 * (i % 2) < left", "true"),
        ("if (row >= params.m || col >= params.n) return;", "if (col >= params.n) return;"),
        ("if (row >= params.m || col >= params.n) return;", "if (row >= params.m) return;"),
        ("j < params.n - col", "true"),
        ("a_slices + SLICE - next + row", "a_slices + next + row"),
        ("SHARED(float, a_slices, 2 * SLICE)", "SHARED(float, a_slices, SLICE)"),
        ("first_row + row + (i < 4 ? i : TILE / 2 + i - 4)", "first_row + row + i"),
    ];
    for tile in [matmul::TILE, matmul::LARGE_TILE] {
        let spec = [("TILE", tile), ("TRANS_A", 0), ("TRANS_B", 0), ("NARROW", 0)];
        each_bug_shows(13, &MATMUL, &bugs, |device, kernel| {
            product::<f32, f32>(device, kernel, &spec, tile, |x| x)
        });
    }
    let narrow = [
        ("= decode<TYPE>(x.bits[i])", "= (float)x.bits[i]"),
        ("put(a_operand, a_slices + next);", ""),
        ("fetch_as<WHOLE, U16>", "fetch_as<WHOLE, U8>"),
        ("put_as<TYPE>(x, slice)", "put_as<U16>(x, slice)"),
    ];
    let spec = [("TILE", matmul::TILE), ("TRANS_A", 0), ("TRANS_B", 0), ("NARROW", 1)];
    each_bug_shows(13, &MATMUL, &narrow, |device, kernel| {
        product::<half::f16, f32>(device, kernel, &spec, matmul::TILE, half::f16::from_f32)
    });
    let wide = [
        ("        __syncthreads();\n        fetch", "        fetch"),
        ("k0, params.k);\n        __syncthreads();", "k0, params.k);"),
        ("&& k0 + depth < k ? array", "? array"),
        ("SHARED(double, a_slice, DEPTH * STRIDE)", "SHARED(double, a_slice, DEPTH * TILE)"),
        ("c_row >= params.m || c_col", "c_col"),
        ("|| c_col >= params.n", ""),
        ("row + i * SIDE;", "4 * row + i;"),
    ];
    each_bug_shows(13, &MATMUL_F64, &wide, |device, kernel| {
        product::<f64, f64>(device, kernel, &spec, matmul::TILE, f64::from)
    });
}

fn sums(device: &Device, kernel: &'static Kernel<reduce::Params>, dtype: DType) -> Result<bool> {
    const ROWS: u32 = 3;
    // Rows start at any byte of a word.
    const COLS: u32 = 2501;
    let x: Vec<i8> = (0..ROWS * COLS).map(|i| (i.wrapping_mul(2_654_435_761) >> 30) as i8).collect();
    let exact = (dtype == DType::I8).into();
    let names = ["WG", "BLOCK", "BY_ROW", "NARROW", "EXACT", "MISSING"];
    let spec: Vec<_> = names.into_iter().zip([64, reduce::BLOCK, 1, 0, exact, 0]).collect();
    let parts = COLS.div_ceil(reduce::BLOCK);
    let mut out = Tensor::<u32>::zeros(device, &[(4 * ROWS * parts).into()])?;
    let params = reduce::Params { rows: ROWS, cols: COLS, x0: 0, out0: 0, x_type: dtype.code() };
    let grid = Grid::linear((ROWS * parts).into(), 5, 0)?;
    let shape = [ROWS.into(), COLS.into()];
    let words = out.window_mut(0..u64::from(4 * ROWS * parts)).arg;
    if dtype == DType::I8 {
        let tensor = Tensor::from_slice(device, &x, &shape)?;
        device.launch(kernel, &spec, grid, &[tensor.window(0..tensor.len()).arg, words], &params)?;
    } else {
        let floats: Vec<f32> = x.iter().map(|&x| x.into()).collect();
        let tensor = Tensor::from_slice(device, &floats, &shape)?;
        device.launch(kernel, &spec, grid, &[tensor.window(0..tensor.len()).arg, words], &params)?;
    }
    let sum = |word: u32| match dtype == DType::I8 {
        true => f64::from(word.cast_signed()),
        false => f64::from(f32::from_bits(word)),
    };
    let got: Vec<[f64; 2]> = out.read()?.chunks(4).map(|part| [sum(part[0]), sum(part[2])]).collect();
    let expected = x
        .chunks(COLS as usize)
        .flat_map(|row| row.chunks(reduce::BLOCK as usize))
        .map(|part| [part.iter().map(|&x| f64::from(x)).sum(), part.len() as f64]);
    Ok(expected.eq(got))
}

#[test]
fn bugs_in_sums_show() {
    let floats = [
        (
            "partial[threadIdx.x / WARP] = sums;\n        __syncthreads();",
            "partial[threadIdx.x / WARP] = sums;",
        ),
        ("mask > 0; mask /= 2", "mask > 1; mask /= 2"),
        ("warp < THREADS / WARP", "warp < THREADS / WARP - 1"),
        ("if (row >= params.rows) return;", ""),
        ("min(params.cols - col, BLOCK)", "BLOCK"),
        ("if (i < count) add(", "add("),
    ];
    each_bug_shows(14, &REDUCE, &floats, |device, kernel| sums(device, kernel, DType::F32));
    let bytes = [
        ("if (row >= params.rows) return;", ""),
        ("min(params.cols - col, BLOCK)", "BLOCK"),
        ("0xffffffffu << before & 0xffffffffu >> after", "0xffffffffu << before"),
        ("8 * (first % 4) : 0", "0 : 0"),
        ("i * THREADS < count ? array[place + i * THREADS] : 0", "array[place + i * THREADS]"),
    ];
    each_bug_shows(14, &REDUCE, &bytes, |device, kernel| sums(device, kernel, DType::I8));
}

fn turned(device: &Device, kernel: &'static Kernel<transpose::Params>) -> Result<bool> {
    const TILE: u32 = transpose::TILE;
    let [m, n] = [TILE + 9, 2 * TILE + 5];
    let x = numbers(m * n);
    let tx = Tensor::from_slice(device, &x, &[m.into(), n.into()])?;
    let mut out = Tensor::<f32>::zeros(device, &[n.into(), m.into()])?;
    let params = transpose::Params { m, n, ldx: n, ldo: m, x0: 0, out0: 0 };
    let args = [tx.window(0..tx.len()).arg, out.window_update(0..u64::from(m * n)).arg];
    let grid = Grid::tiles(n.div_ceil(TILE), m.div_ceil(TILE), 0);
    device.launch(kernel, &transpose::spec(1), grid, &args, &params)?;
    let expected = (0..m * n).map(|place| x[(place % m * n + place / m) as usize]);
    Ok(expected.eq(out.read()?))
}

#[test]
fn bugs_in_transposes_show() {
    let bugs = [
        ("    __syncthreads();\n", ""),
        ("SHARED(Element, tile, TILE * STRIDE)", "SHARED(Element, tile, TILE * TILE)"),
        ("row < params.m && col < params.n ? x", "row < params.m ? x"),
        ("if (row < params.m && col < params.n) out", "if (row < params.m) out"),
        ("if (row < params.m && col < params.n) out", "if (col < params.n) out"),
        ("tile[along * STRIDE + line + part * LINES]", "tile[(line + part * LINES) * STRIDE + along]"),
    ];
    each_bug_shows(30, &TRANSPOSE, &bugs, turned);
}
