//! Tests of full memory, faults of kernels, and lost devices.

use bytemuck::{Pod, Zeroable};
use cudarc::driver::{CudaContext, result, sys};

use super::{control, device, open};
use crate::{
    Device, DeviceOptions, Error, Real, Tensor, Timeline,
    dtype::nearest_f32,
    extent::to_usize,
    kernel::{Access, Binding, Grid, Kernel},
    linalg,
    random::philox,
};

const MIB: u64 = 1 << 20;

#[test]
fn full_memory_is_told_and_the_device_stays_usable() {
    let device = device(8);
    control::memory(8, 8 * MIB);
    let held = Tensor::<f32>::zeros(&device, &[MIB]).unwrap();
    let Err(Error::OutOfMemory { requested, free }) = Tensor::<f32>::zeros(&device, &[5 * MIB / 4]) else {
        panic!("there should be no room")
    };
    assert_eq!((requested, free), (5 * MIB, Some(4 * MIB)));
    // Memory that is dropped is free for the next allocation.
    drop(held);
    let x = Tensor::<f32>::zeros(&device, &[5 * MIB / 4]).unwrap();
    assert_eq!(linalg::row_stats(&x.reshape(&[1, 5 * MIB / 4]).unwrap()).unwrap()[0].sum, 0.0);
}

/// Returns the reserved bytes and the release threshold of the process's default pool, and the free memory of the device.
#[allow(unsafe_code, reason = "cudarc has no safe calls for pools")]
fn of_the_process(place: i32) -> ([u64; 2], usize) {
    use sys::CUmemPool_attribute::{CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT};
    let asked = [CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD].map(|which| {
        let mut value = u64::MAX;
        // SAFETY: the device is open, and both attributes are 64-bit integers.
        unsafe {
            let pool = result::device::get_default_mem_pool(place).unwrap();
            result::mem_pool::get_attribute(pool, which, (&raw mut value).cast()).unwrap();
        }
        value
    });
    (asked, result::mem_get_info().unwrap().0)
}

#[test]
fn freed_memory_is_kept_apart_from_the_pool_of_the_process() {
    let opened = device(29);
    let context = CudaContext::new(29).unwrap();
    let free = || {
        context.bind_to_thread().unwrap();
        let (pool, free) = of_the_process(29);
        assert_eq!(pool, [0, 0]);
        free as u64
    };
    let all = free();
    drop(Tensor::<f32>::zeros(&opened, &[MIB]).unwrap());
    opened.synchronize().unwrap();
    assert_eq!(free(), all - 4 * MIB);
    drop(opened);
    assert_eq!(free(), all);
}

fn words(count: u64) -> Vec<u32> {
    (0..count.div_ceil(4)).flat_map(|block| philox([7, 0], block)).collect()
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Place {
    i: u32,
}

fn no_constants() -> Vec<Vec<(&'static str, u32)>> {
    vec![vec![]]
}

static STRAY: Kernel<Place> = Kernel::built_in(
    "stray",
    [
        "#include \"dev.cuh\"\nstruct Params { u32 i; };\nKERNEL(stray, 64)(u32* out, Params params) { out[params.i] = 1; }\nEXPORT(stray)\n",
        "",
    ],
    None,
    &[Binding::any(Access::Write)],
    no_constants,
);

#[test]
fn a_fault_of_a_kernel_sticks() {
    let timeline = Timeline::default();
    let device = device(10).recorded_by(&timeline);
    let mut x = Tensor::<u32>::zeros(&device, &[64]).unwrap();
    let grid = Grid::linear(1, 65_535, 0).unwrap();
    device.launch(&STRAY, &[], grid, &[x.window_mut(0..64).arg], &Place { i: 63 }).unwrap();
    assert_eq!(x.read().unwrap()[63], 1);
    device.launch(&STRAY, &[], grid, &[x.window_mut(0..64).arg], &Place { i: 64 }).unwrap();
    let lost = |error: Option<Error>| match error {
        Some(Error::DeviceLost { device, why }) => {
            assert!(&*device == "cuda:10" && why.contains("memory that it should not"), "{device}: {why}");
        }
        other => panic!("{other:?}"),
    };
    lost(x.read().err());
    assert!(
        device.synchronize().unwrap_err().to_string().contains("what was running is stray, grid 1 x 1 x 1")
    );
    lost(Tensor::<u32>::zeros(&device, &[4]).err());
    lost(device.synchronize().err());
    assert!(control::fault(10).contains("stray"), "{}", control::fault(10));
    // The timeline has the first launch, and no times of the faulty one.
    let trace = tempfile::NamedTempFile::new().unwrap();
    timeline.write_trace(trace.path()).unwrap();
    let trace = std::fs::read_to_string(trace.path()).unwrap();
    let count = |kind: &str| {
        trace.matches(&format!("\"cat\":\"{kind}\",\"args\":{{\"bytes\":256,\"of\":\"stray\"")).count()
    };
    assert_eq!([count("enqueue"), count("kernel")], [2, 1], "{trace}");
}

/// Launches correct kernels, then a faulty one, then a correct one; returns the error that reports the fault.
fn stray_among(device: &Device) -> String {
    let mut x = Tensor::<u32>::zeros(device, &[64]).unwrap();
    let grid = |x| Grid::tiles(x, 1, 0);
    let mut launch =
        |i, x_groups| device.launch(&STRAY, &[], grid(x_groups), &[x.window_mut(0..64).arg], &Place { i });
    launch(1, 1).unwrap();
    device.synchronize().unwrap();
    let launched = launch(2, 1).and_then(|()| launch(64, 1)).and_then(|()| launch(3, 1));
    launched.and_then(|()| device.synchronize()).unwrap_err().to_string()
}

#[test]
fn a_fault_names_the_launches_under_way() {
    let why = stray_among(&device(19));
    let expected = "one of 3 launches was running (TEATIME_SYNC=1 tells which), from the last on: stray, grid 1 x 1 x 1;";
    assert!(why.contains(expected), "{why}");
}

/// Runs in a process of its own, which reads the variable.
#[test]
fn a_fault_names_the_launch_that_was_waited_for() {
    if std::env::var_os("TEATIME_SYNC").is_some() {
        let why = stray_among(&device(20));
        assert!(why.contains("; what was running is stray, grid 1 x 1 x 1"), "{why}");
        return;
    }
    let name = "driver::cuda::tests::faults::a_fault_names_the_launch_that_was_waited_for";
    let test = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env("TEATIME_SYNC", "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&test.stdout).into_owned();
    assert!(test.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn errors_that_end_a_context_stick() {
    use cudarc::driver::sys::CUresult as C;
    // These are all errors for which CUDA's documentation says that further work returns the same error.
    let codes = [
        C::CUDA_ERROR_CONTAINED,
        C::CUDA_ERROR_ILLEGAL_ADDRESS,
        C::CUDA_ERROR_LAUNCH_TIMEOUT,
        C::CUDA_ERROR_ASSERT,
        C::CUDA_ERROR_HARDWARE_STACK_ERROR,
        C::CUDA_ERROR_ILLEGAL_INSTRUCTION,
        C::CUDA_ERROR_MISALIGNED_ADDRESS,
        C::CUDA_ERROR_INVALID_ADDRESS_SPACE,
        C::CUDA_ERROR_INVALID_PC,
        C::CUDA_ERROR_LAUNCH_FAILED,
        C::CUDA_ERROR_TENSOR_MEMORY_LEAK,
        C::CUDA_ERROR_EXTERNAL_DEVICE,
    ];
    for code in codes {
        let device = device(21);
        let mut x = Tensor::<u32>::zeros(&device, &[64]).unwrap();
        control::lose(21, 0, code as i32);
        let grid = Grid::tiles(1, 1, 0);
        let launched = device.launch(&STRAY, &[], grid, &[x.window_mut(0..64).arg], &Place { i: 0 });
        // The fault is also reported if nothing more is asked of the device.
        control::lose(21, 0, 0);
        let again = device.synchronize();
        for result in [launched, again] {
            assert!(matches!(result, Err(Error::DeviceLost { .. })), "{code:?}: {result:?}");
        }
    }
}

/// Checks that the emulator's cuBLAS rounds to 10 bits only if `tf32` is set.
#[test]
fn products_are_rounded_to_tf32_only_when_asked() {
    let a: Vec<f32> = words(64 * 64).iter().map(|&word| (word >> 8) as f32 / 1e7).collect();
    let product = |options: &DeviceOptions| {
        let device = open(12, options);
        let x = Tensor::from_slice(&device, &a, &[64, 64]).unwrap();
        control::log_start(12);
        let c = linalg::matmul(&x, &x).unwrap().read().unwrap();
        (c, control::log_take(12).iter().any(|line| line.contains("cublas")))
    };
    let (own, by_library) = product(&DeviceOptions { own_kernels: true, ..Default::default() });
    assert!(!by_library);
    let (exact, by_library) = product(&DeviceOptions::default());
    assert!(by_library);
    let (rounded, _) = product(&DeviceOptions { tf32: true, ..Default::default() });
    let error = |c: &[f32]| c.iter().zip(&own).map(|(x, y)| (x - y).abs() / y).fold(0.0, f32::max);
    assert!(error(&exact) < 1e-6, "{}", error(&exact));
    assert!(error(&rounded) > 1e-5 && error(&rounded) < 1e-2, "{}", error(&rounded));
}

/// Products of the library are cut by rows and columns where the work of a launch asks for it. Products of f64 are cut more often. All bits
/// stay with the emulator's library.
#[test]
fn products_of_the_library_keep_to_the_work_of_a_launch() {
    fn products<T: Real>(device: &Device, values: &[T]) -> ([Vec<T>; 3], usize) {
        let of = |rows: u64, cols: u64| {
            Tensor::from_slice(device, &values[..to_usize(rows * cols)], &[rows, cols]).unwrap()
        };
        control::log_start(35);
        let products = [
            linalg::matmul(&of(200, 90), &of(90, 130)),
            linalg::matmul_tn(&of(90, 200), &of(90, 130)),
            linalg::matmul_nt(&of(200, 90), &of(130, 90)),
        ];
        let products = products.map(|product| product.unwrap().cast::<T>().read().unwrap());
        let calls = |line: &&String| line.starts_with("cublasGemmEx");
        (products, control::log_take(35).iter().filter(calls).count())
    }
    let values: Vec<f64> = words(200 * 130).iter().map(|&word| f64::from(word) / 1e7 - 200.0).collect();
    let whole = open(35, &DeviceOptions::default());
    let cut = open(35, &DeviceOptions { work: Some(1 << 20), ..Default::default() });
    let (expected, calls) = products(&whole, &values);
    assert_eq!((calls, products(&cut, &values)), (3, (expected, 3 * 3 * 4)));
    let values: Vec<f32> = values.iter().map(|&value| nearest_f32(value)).collect();
    let (expected, calls) = products(&whole, &values);
    assert_eq!((calls, products(&cut, &values)), (3, (expected, 3 * 4)));
}
