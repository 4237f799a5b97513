//! Bugs planted in the crate's own kernels: each must be seen.

use bytemuck::cast_slice;
use cudarc::driver::sys::CUresult;

use super::{
    control,
    control::Order::{Alternating, Ascending, Descending},
    numbers,
    planted::{Outcome, faults, outcome, plant, seen},
};

const MATMUL: &str = crate::linalg::matmul::MATMUL.def.cuda;
const REDUCE: &str = crate::linalg::reduce::REDUCE.def.cuda;
const DOSAGE: &str = crate::genotype::dosage::DOSAGE.def.cuda;

const ILLEGAL: CUresult = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;

/// Two blocks, with an end in each direction that is no tile's.
fn matmul(device: i32, source: &str) -> Outcome {
    product(device, source, [70, 50, 37], ([1, 2], 64))
}

/// The same for tiles of 128.
fn large_matmul(device: i32, source: &str) -> Outcome {
    product(device, source, [140, 115, 37], ([1, 2], 256))
}

fn product(device: i32, source: &str, [m, n, k]: [usize; 3], launch: ([u32; 2], u32)) -> Outcome {
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let entry = |i: usize| (0..k).map(|p| a[i / n * k + p] * b[p * n + i % n]).sum();
    let want: Vec<f32> = (0..m * n).map(entry).collect();
    let inputs = [cast_slice(&a), cast_slice(&b)];
    let [rows, cols, depth] = [m, n, k].map(|extent| extent as u32);
    let params = [rows, cols, depth, depth, cols, cols, 0, 0, 0, 0, 0, 0];
    outcome(device, ["matmul", source], &inputs, &want, &params, launch)
}

/// Sums of three rows of bytes, in blocks of which one is not whole, on a grid that is folded and too large.
fn reduce_bytes(device: i32, source: &str) -> Outcome {
    let values: Vec<i8> = numbers(3 * 1501, 5).into_iter().map(|value| value as i8 % 16).collect();
    let parts = values.chunks(1501).flat_map(|row| row.chunks(1024));
    let sum = |part: &[i8], of: fn(i32) -> i32| part.iter().map(|&x| of(x.into())).sum();
    let of = |part: &[i8]| [sum(part, |x| x), sum(part, |x| x * x), part.len() as i32, 0];
    let want: Vec<i32> = parts.flat_map(of).collect();
    outcome(device, ["reduce", source], &[cast_slice(&values)], &want, &[3, 1501, 0, 0], ([4, 2], WARP))
}

/// Threads of a block for bytes by row.
const WARP: u32 = 32;

/// Sums of two rows, in blocks of which one is not whole.
fn reduce(device: i32, source: &str) -> Outcome {
    let values: Vec<f32> = numbers(2 * 1500, 3).into_iter().map(|value| value % 16.0).collect();
    let parts = values.chunks(1500).flat_map(|row| row.chunks(1024));
    let of = |part: &[f32]| [part.iter().sum(), part.iter().map(|x| x * x).sum(), part.len() as f32, 0.0];
    let want: Vec<f32> = parts.flat_map(of).collect();
    outcome(device, ["reduce", source], &[cast_slice(&values)], &want, &[2, 1500, 0, 0], ([4, 1], 64))
}

fn dosage(device: i32, source: &str) -> Outcome {
    let calls: Vec<i8> = numbers(2 * 1013, 4).into_iter().map(|value| value as i8 % 4 - 1).collect();
    let of = |call: &[i8]| match call.iter().min() {
        Some(&lowest) if lowest < 0 => lowest,
        _ => call.iter().map(|&allele| i8::from(allele > 0)).sum(),
    };
    // Outputs are whole words.
    let want: Vec<i8> = calls.chunks(2).map(of).chain([0; 3]).collect();
    outcome(device, ["dosage", source], &[cast_slice(&calls)], &want, &[1013, 2], ([1, 1], 256))
}

#[test]
fn they_are_right_without() {
    for order in [Alternating, Ascending, Descending] {
        control::order(51, order);
        assert_eq!(matmul(51, MATMUL), Outcome::Right, "{order:?}");
        assert_eq!(reduce(51, REDUCE), Outcome::Right, "{order:?}");
        assert_eq!(dosage(51, DOSAGE), Outcome::Right, "{order:?}");
    }
}

#[test]
fn a_dropped_barrier() {
    seen(52, matmul, &plant(MATMUL, "copy_wait<0>();\n        __syncthreads();", "copy_wait<0>();"));
    seen(52, reduce, &plant(REDUCE, "__syncthreads();", ""));
}

#[test]
fn a_missing_wait() {
    seen(53, matmul, &plant(MATMUL, "copy_wait<0>();", ""));
}

#[test]
fn a_wrong_index() {
    seen(54, matmul, &plant(MATMUL, "b_slices + SLICE - next + col", "b_slices + next + col"));
    seen(
        54,
        reduce,
        &plant(REDUCE, "params.x0 + row * params.cols + col;", "params.x0 + row * params.cols;"),
    );
}

#[test]
fn a_missing_tail_guard() {
    let source = plant(MATMUL, "if (row >= params.m || col >= params.n) return;", "");
    faults(55, matmul, &source, ILLEGAL, "past the end of m");
    seen(55, reduce, &plant(REDUCE, "first + min(params.cols - col, BLOCK)", "first + BLOCK"));
    let source = plant(DOSAGE, "if (place >= div_ceil(params.len, 4)) return;", "");
    faults(55, dosage, &source, ILLEGAL, "kernel dosage, block (0, 0, 0), thread (");
}

/// Those above are the kinds; these are one for each line that is easy to get wrong.
#[test]
fn other_slips() {
    let slips = [
        ("WHOLE || x.depth + 8 * (i % 2) < left", "true"),
        ("if (row >= params.m || col >= params.n) return;", "if (row >= params.m) return;"),
        ("j < params.n - col", "true"),
        ("first_row + row + (i < 4 ? i : TILE / 2 + i - 4)", "first_row + row + i"),
        ("bool wide = params.n - first_col > TILE / 2", "bool wide = false"),
    ];
    for (sound, bug) in slips {
        seen(57, matmul, &plant(MATMUL, sound, bug));
    }
    // Both tiles, and sums of bytes that start anywhere in a word.
    let large = plant(MATMUL, "constexpr u32 TILE = 64;", "constexpr u32 TILE = 128;");
    assert_eq!(large_matmul(57, &large), Outcome::Right);
    for (sound, bug) in &slips[..4] {
        seen(57, large_matmul, &plant(&large, sound, bug));
    }
    let bytes = plant(REDUCE, "constexpr u32 X_TYPE = 0;", "constexpr u32 X_TYPE = 4;");
    assert_eq!(reduce_bytes(57, &bytes), Outcome::Right);
    for (sound, bug) in [
        ("mask > 0; mask /= 2", "mask > 1; mask /= 2"),
        ("0xffffffffu << before & 0xffffffffu >> after", "0xffffffffu << before"),
        ("threadIdx.x == 0 ? 8 * (first % 4) : 0", "0"),
        ("i * THREADS < count ? array[place + i * THREADS] : 0", "array[place + i * THREADS]"),
        ("if (row >= params.rows) return;", ""),
    ] {
        seen(57, reduce_bytes, &plant(&bytes, sound, bug));
    }
}

#[test]
fn a_wrong_size_of_shared_memory() {
    let source = plant(MATMUL, "b_slices, 2 * SLICE", "b_slices, SLICE");
    faults(56, matmul, &source, ILLEGAL, "past the end of the shared array `b_slices`");
}
