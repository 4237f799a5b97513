//! Bugs planted in sound kernels: each must be seen. The driver's tests plant some in the kernels that ship.

use std::ptr;

use bytemuck::{Pod, bytes_of, cast_slice};
use cudarc::driver::sys::CUresult;

use super::{
    Context, HEADER, OK, compile, control,
    control::Order::{Alternating, Ascending, Descending},
    kernel_file, numbers,
};

const PRODUCT: &str = kernel_file!("product.cu");
const TOTAL: &str = kernel_file!("total.cu");

/// How a launch went.
#[derive(Debug, PartialEq)]
enum Outcome {
    Right,
    Wrong,
    Fault(CUresult, String),
}

/// Launches with inputs that fill their memory to the last byte, and compares what comes out.
fn outcome<T: Pod + PartialEq>(
    device: i32,
    [name, source]: [&str; 2],
    inputs: &[&[u8]],
    want: &[T],
    params: &[u32],
    (grid, threads): ([u32; 2], u32),
) -> Outcome {
    let image = compile(&format!("{name}.cu"), source, HEADER).unwrap();
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
            // For good, in this context.
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

/// A source with a bug in place of a text that stands there once.
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
    }
}

/// Runs a kernel with a bug from the first warp on, from the last, and as the suite does, which must show it.
fn seen(device: i32, run: fn(i32, &str) -> Outcome, source: &str) -> [Outcome; 3] {
    let outcomes = [Ascending, Descending, Alternating].map(|order| {
        control::order(device, order);
        run(device, source)
    });
    assert_ne!(outcomes[2], Outcome::Right, "{outcomes:?}");
    outcomes
}

/// The same; each must be a fault of a code whose report has a text.
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
    seen(45, product, &plant(PRODUCT, "copy_wait<1>();\n        __syncthreads();", "copy_wait<1>();"));
    seen(45, total, &plant(TOTAL, "__syncthreads();", ""));
}

#[test]
fn a_dropped_barrier_before_writes() {
    let sound = "__syncthreads();  // The next fetch overwrites these tiles.";
    seen(44, product, &plant(PRODUCT, sound, ""));
}

#[test]
fn a_dropped_wait() {
    seen(43, product, &plant(PRODUCT, "copy_wait<1>();", ""));
    // For all groups but two: too few.
    seen(43, product, &plant(PRODUCT, "copy_wait<1>();", "copy_wait<2>();"));
}

#[test]
fn a_wrong_index() {
    seen(42, product, &plant(PRODUCT, "&a[row * params.k + p]", "&a[row * params.n + p]"));
    seen(42, total, &plant(TOTAL, "linear_block() * 256", "blockIdx.x * 256"));
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
    let source = plant(TOTAL, "SHARED(float, sums, 8)", "SHARED(float, sums, 13000)");
    faults(40, total, &source, CUresult::CUDA_ERROR_INVALID_VALUE, "52000 bytes of shared memory");
}

#[test]
fn a_divergent_barrier() {
    let code = CUresult::CUDA_ERROR_LAUNCH_FAILED;
    let source = plant(TOTAL, "__syncthreads();", "if (threadIdx.x != 200) __syncthreads();");
    faults(39, total, &source, code, "255 threads wait at the barrier of line 18; 1 threads have ended");
    let bug = "if (threadIdx.x < 64) __syncthreads();\n    else __syncthreads();";
    faults(39, total, &plant(TOTAL, "__syncthreads();", bug), code, "the barriers of lines");
}

#[test]
fn a_shuffle_that_some_threads_miss() {
    let source = plant(TOTAL, "if (threadIdx.x < 32) {", "if (threadIdx.x < 8) {");
    let text = "8 threads wait at line 21 for the other threads of their warps";
    faults(38, total, &source, CUresult::CUDA_ERROR_LAUNCH_FAILED, text);
}
