//! Tests of injected faults, and of errors of the compiler.

use std::ptr;

use bytemuck::bytes_of;
use cudarc::driver::sys::{self, CUresult};

use super::{Context, OK, compile, control, ok};

const NOTHING: &str = "EMULATOR_KERNEL(nothing, 32)(int* out) {}\nEMULATOR_EXPORT(nothing)\n";

fn alloc(bytes: usize) -> CUresult {
    let mut place = 0;
    // SAFETY: the pointer is valid for writing the result.
    unsafe { sys::cuMemAllocAsync(&mut place, bytes, ptr::null_mut()) }
}

#[test]
fn memory_runs_out() {
    let _context = Context::new(48);
    control::memory(48, 1 << 20);
    let out_of_memory = CUresult::CUDA_ERROR_OUT_OF_MEMORY;
    assert_eq!(alloc((1 << 20) + 1), out_of_memory);
    assert_eq!([alloc(1 << 19), alloc(1 << 19), alloc(1)], [OK, OK, out_of_memory]);
    let (mut free, mut total) = (1, 0);
    // SAFETY: the pointers are valid for writing the results.
    unsafe { ok(sys::cuMemGetInfo_v2(&mut free, &mut total)) };
    assert_eq!((free, total), (0, 1 << 20));
    control::memory(48, 2 << 30);
    control::fail_allocation(48, 2);
    assert_eq!([alloc(1), alloc(1), alloc(1)], [OK, out_of_memory, OK]);
}

#[test]
fn a_device_is_lost() {
    let lost = CUresult::CUDA_ERROR_ECC_UNCORRECTABLE;
    {
        let context = Context::new(49);
        let function = context.function(&compile("nothing.cu", NOTHING).unwrap(), "nothing");
        let out = context.alloc(4);
        let launch = || context.launch(ptr::null_mut(), function, [1, 1], 32, &[bytes_of(&out)]);
        control::lose(49, 2, lost as i32);
        assert_eq!([launch(), launch(), launch()], [OK, OK, lost]);
        assert_eq!(context.synchronize(), lost);
        let mut again = ptr::null_mut();
        // SAFETY: the pointer is valid for writing the result.
        assert_eq!(unsafe { sys::cuDevicePrimaryCtxRetain(&mut again, 49) }, lost);
    }
    control::lose(49, 0, 0);
    assert_eq!(Context::new(49).synchronize(), OK);
}

#[test]
fn errors_of_the_compiler_name_the_line() {
    let source = "// A comment.\n__device__ int f() { return nowhere; }\n";
    let log = compile("broken.cu", source).unwrap_err();
    assert!(log.contains("broken.cu:2:") && log.contains("nowhere"), "{log}");
}

#[test]
fn launches_are_checked() {
    let context = Context::new(50);
    let mut image = compile("nothing.cu", NOTHING).unwrap();
    let function = context.function(&image, "nothing");
    let out = context.alloc(4);
    for (grid, threads) in [([1, 1], 64), ([1, 1], 0), ([0, 1], 32), ([1, 65_536], 32)] {
        let code = context.launch(ptr::null_mut(), function, grid, threads, &[bytes_of(&out)]);
        assert_eq!(code, CUresult::CUDA_ERROR_INVALID_VALUE, "{grid:?} {threads}");
    }
    let (mut threads, mut module) = (0, ptr::null_mut());
    let attribute = sys::CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK;
    // SAFETY: the function is live, the pointers are valid for writing, and the image has its terminator.
    unsafe {
        ok(sys::cuFuncGetAttribute(&mut threads, attribute, function));
        image[0] ^= 1;
        let code = sys::cuModuleLoadData(&mut module, image.as_ptr().cast());
        assert_eq!((threads, code), (32, CUresult::CUDA_ERROR_INVALID_IMAGE));
    }
}
