//! Tests of bugs planted in correct kernels: the emulator must detect each.

use std::ptr;

use bytemuck::{Pod, bytes_of, cast_slice};
use cudarc::driver::sys::CUresult;

use super::{
    Context, OK, compile, control,
    control::Order::{Alternating, Ascending, Descending},
    kernel_file, numbers,
};

const PRODUCT: &str = kernel_file!("product.cu");
const TOTAL: &str = kernel_file!("total.cu");
const BLOCKS: &str = kernel_file!("blocks.cu");
const VECTORS: &str = kernel_file!("vectors.cu");

/// The instruction that waits for all groups of copies but the newest.
const WAIT: &str = "ptx_cp_async_wait_group<1>();";

/// The outcome of a launch.
#[derive(Debug, PartialEq)]
enum Outcome {
    Right,
    Wrong,
    Fault(CUresult, String),
}

/// Launches a kernel with inputs that fill their memory to the last byte, and compares the output.
fn outcome<T: Pod + PartialEq>(
    device: i32,
    [name, source]: [&str; 2],
    inputs: &[&[u8]],
    want: &[T],
    params: &[u32],
    (grid, threads): ([u32; 2], u32),
) -> Outcome {
    let image = compile(&format!("{name}.cu"), source).unwrap();
    let context = Context::new(device);
    let function = context.function(&image, name);
    let mut places: Vec<u64> = inputs.iter().map(|bytes| context.upload(bytes)).collect();
    let out = context.alloc(size_of_val(want));
    places.push(out);
    let mut arguments: Vec<&[u8]> = places.iter().map(bytes_of).collect();
    arguments.push(cast_slice(params));
    assert_eq!(context.launch(ptr::null_mut(), function, grid, threads, &arguments), OK);
    match context.download::<T>(out, want.len()) {
        Ok(got) if got == want => Outcome::Right,
        Ok(_) => Outcome::Wrong,
        Err(code) => {
            // The error persists in this context.
            assert_eq!(context.synchronize(), code);
            Outcome::Fault(code, control::fault(device))
        }
    }
}

fn product(device: i32, source: &str) -> Outcome {
    let (m, n, k) = (37, 21, 43);
    let (a, b) = (numbers(m * k, 1), numbers(k * n, 2));
    let entry = |i: usize| (0..k).map(|p| a[i / n * k + p] * b[p * n + i % n]).sum();
    let want: Vec<f32> = (0..m * n).map(entry).collect();
    let inputs = [cast_slice(&a), cast_slice(&b)];
    outcome(device, ["product", source], &inputs, &want, &[37, 21, 43], ([2, 3], 64))
}

fn total(device: i32, source: &str) -> Outcome {
    let values = numbers(1000, 3);
    let want: Vec<f32> = values.chunks(256).map(|block| block.iter().sum()).collect();
    outcome(device, ["total", source], &[cast_slice(&values)], &want, &[1000], ([2, 2], 256))
}

/// The word that unwritten memory holds.
const POISON: u32 = 0xabab_abab;

fn blocks(device: i32, source: &str) -> Outcome {
    let values: Vec<u32> =
        numbers(1300, 4).iter().map(|&value| 0xc000_0000 | value.to_bits() >> 12).collect();
    let sum = values.iter().fold(POISON, |sum, &value| sum.wrapping_add(value));
    let first = [sum, values.iter().copied().max().unwrap()];
    let want: Vec<u32> =
        first.into_iter().chain(values.iter().map(|&value| POISON.wrapping_add(value))).collect();
    outcome(device, ["blocks", source], &[cast_slice(&values)], &want, &[1300], ([7, 6], 32))
}

fn vectors(device: i32, source: &str) -> Outcome {
    let values: Vec<u32> = numbers(128, 5).iter().map(|value| value.to_bits()).collect();
    let pairs = values[..64].iter().copied();
    let quads = (0..128).map(|i| values[i % 64]);
    let matrices = values.iter().copied();
    let want: Vec<u32> = pairs.chain(quads).chain(matrices).collect();
    outcome(device, ["vectors", source], &[cast_slice(&values)], &want, &[0], ([1, 1], 32))
}

/// Returns a source with a bug in place of a text that occurs once.
fn plant(source: &str, sound: &str, bug: &str) -> String {
    assert_eq!(source.matches(sound).count(), 1, "{sound}");
    source.replace(sound, bug)
}

#[test]
fn sound_kernels_are_right_in_every_order() {
    for order in [Alternating, Ascending, Descending] {
        control::order(46, order);
        assert_eq!(product(46, PRODUCT), Outcome::Right, "{order:?}");
        assert_eq!(total(46, TOTAL), Outcome::Right, "{order:?}");
        assert_eq!(blocks(46, BLOCKS), Outcome::Right, "{order:?}");
        assert_eq!(vectors(46, VECTORS), Outcome::Right, "{order:?}");
    }
}

/// Runs a kernel with a bug in ascending, descending and alternating order; the last, which the suite uses, must show the bug.
fn seen(device: i32, run: fn(i32, &str) -> Outcome, source: &str) -> [Outcome; 3] {
    let outcomes = [Ascending, Descending, Alternating].map(|order| {
        control::order(device, order);
        run(device, source)
    });
    assert_ne!(outcomes[2], Outcome::Right, "{outcomes:?}");
    outcomes
}

/// Runs a kernel as [`seen`] does; each outcome must be a fault with this code and a report that contains `text`.
fn faults(device: i32, run: fn(i32, &str) -> Outcome, source: &str, code: CUresult, text: &str) {
    for outcome in seen(device, run, source) {
        match &outcome {
            Outcome::Fault(got, report) if *got == code && report.contains(text) => {}
            _ => panic!("{outcome:?}, not {text}"),
        }
    }
}

#[test]
fn a_dropped_barrier_before_reads() {
    seen(45, product, &plant(PRODUCT, &format!("{WAIT}\n        __syncthreads();"), WAIT));
    seen(45, total, &plant(TOTAL, "__syncthreads();", ""));
}

#[test]
fn a_dropped_barrier_before_writes() {
    let sound = "__syncthreads();  // The next fetch overwrites these tiles.";
    seen(44, product, &plant(PRODUCT, sound, ""));
}

#[test]
fn a_dropped_wait() {
    seen(43, product, &plant(PRODUCT, WAIT, ""));
    // A wait that exempts the newest two groups waits for too few.
    seen(43, product, &plant(PRODUCT, WAIT, "ptx_cp_async_wait_group<2>();"));
}

#[test]
fn a_wrong_index() {
    seen(42, product, &plant(PRODUCT, "&a[row * params.k + p]", "&a[row * params.n + p]"));
    seen(42, total, &plant(TOTAL, "block * 256", "blockIdx.x * 256"));
    let source = plant(TOTAL, "in[i]", "in[i + 4]");
    faults(42, total, &source, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, "past the end of m");
}

#[test]
fn a_missing_tail_guard() {
    let code = CUresult::CUDA_ERROR_ILLEGAL_ADDRESS;
    let source = plant(PRODUCT, "if (row < params.m && place < params.n) c", "c");
    faults(41, product, &source, code, "past the end of m");
    let guard = "inside ? &b[p * params.n + column] : b, inside ? 4 : 0";
    let source = plant(PRODUCT, guard, "&b[p * params.n + column], 4");
    faults(41, product, &source, code, "past the end of m");
}

#[test]
fn a_wrong_size_of_shared_memory() {
    let source = plant(PRODUCT, "tiles_b, 2 * DEPTH * TILE", "tiles_b, DEPTH * TILE");
    let text = "past the end of the shared array `tiles_b` of 512";
    faults(40, product, &source, CUresult::CUDA_ERROR_ILLEGAL_ADDRESS, text);
    let source = plant(TOTAL, "sums, 8)", "sums, 13000)");
    faults(40, total, &source, CUresult::CUDA_ERROR_INVALID_VALUE, "52000 bytes of shared memory");
}

#[test]
fn a_divergent_barrier() {
    let code = CUresult::CUDA_ERROR_LAUNCH_FAILED;
    let source = plant(TOTAL, "__syncthreads();", "if (threadIdx.x != 200) __syncthreads();");
    faults(39, total, &source, code, "255 threads wait at the barrier of line 12; 1 threads have ended");
    let bug = "if (threadIdx.x < 64) __syncthreads();\n    else __syncthreads();";
    faults(39, total, &plant(TOTAL, "__syncthreads();", bug), code, "the barriers of lines");
}

#[test]
fn a_shuffle_that_some_threads_miss() {
    let source = plant(TOTAL, "if (threadIdx.x < 32) {", "if (threadIdx.x < 8) {");
    let text = "8 threads wait at line 15 for the other threads of their warps";
    faults(38, total, &source, CUresult::CUDA_ERROR_LAUNCH_FAILED, text);
}

#[test]
fn a_sum_of_blocks_that_is_not_atomic() {
    let code = CUresult::CUDA_ERROR_LAUNCH_FAILED;
    let source = plant(BLOCKS, "atomicAdd(out, value);", "out[0] += value;");
    faults(51, blocks, &source, code, "both change m");
    let source = plant(BLOCKS, "atomicMax(out + 1, value);", "if (out[1] < value) out[1] = value;");
    faults(51, blocks, &source, code, "both change m");
    let source = plant(BLOCKS, "    atomicMax", "    if (i == 700) out[0] = 1;\n    atomicMax");
    faults(51, blocks, &source, code, "the second by an atomic operation");
}

#[test]
fn blocks_that_write_the_same_place() {
    let source = plant(BLOCKS, "out[2 + i] = before", "out[2 + i % 1200] = before");
    faults(52, blocks, &source, CUresult::CUDA_ERROR_LAUNCH_FAILED, "both change m");
}

#[test]
fn blocks_that_wait_for_none() {
    // Each block reads words that the block before it should have written, or that the next block should not have written yet.
    let source = plant(BLOCKS, "out[2 + i];", "i < 32 ? out[2 + i] : out[2 + i - 32] - in[i - 32];");
    seen(53, blocks, &source);
    let source = plant(BLOCKS, "out[2 + i];", "out[2 + (i + 32 < len ? i + 32 : i)];");
    seen(53, blocks, &source);
}

#[test]
fn misaligned_vectors() {
    let code = CUresult::CUDA_ERROR_MISALIGNED_ADDRESS;
    let slips = [
        ("(const uint2*)(in + 2 * lane)", "(const uint2*)(in + 2 * lane + 1)", "uint2'"),
        ("(const uint4*)(in + 4 * lane % 64)", "(const uint4*)(in + 4 * lane % 64 + 2)", "uint4'"),
        ("(uint2*)(out + 2 * lane)", "(uint2*)(out + 2 * lane + 1)", "store to"),
        ("(float4*)(out + 64 + 4 * lane)", "(float4*)(out + 64 + 4 * lane + 2)", "store to"),
        ("rows + 4 * lane, in + 4 * lane, 16", "rows + 4 * lane + 2, in + 4 * lane, 16", "cp.async"),
        ("rows + 4 * lane, in + 4 * lane, 16", "rows + 4 * lane, in + 4 * lane % 64 + 1, 16", "cp.async"),
        ("(matrices, rows + 4 * lane)", "(matrices, rows + 4 * lane + 1)", "row of a matrix"),
        ("= matrices[m];", "= *(const unsigned*)((const char*)in + 4 * lane + 1);", "load of"),
    ];
    for (sound, bug, text) in slips {
        faults(54, vectors, &plant(VECTORS, sound, bug), code, text);
    }
}
