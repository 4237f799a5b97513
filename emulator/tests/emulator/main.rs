//! Tests of the emulator by itself: it computes correctly, and reports the bugs that GPUs show only now and then.
// The emulator is for Linux; elsewhere its crate is empty.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, clippy::unwrap_used, reason = "tests call the driver")]

mod faults;
mod instructions;
mod order;
mod planted;

use std::{
    ffi::{CString, c_void},
    ptr,
};

use bytemuck::Pod;
use cuda_emulator::{control, load};
use cudarc::{
    driver::sys::{self, CUresult, CUstream},
    nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts},
};

const OK: CUresult = CUresult::CUDA_SUCCESS;

fn ok(result: CUresult) {
    assert_eq!(result, OK);
}

/// Compiles a kernel with the emulator's NVRTC; the error is the compiler's log.
fn compile(name: &str, source: &str) -> Result<Vec<u8>, String> {
    load().unwrap();
    let options =
        CompileOptions { name: Some(name.into()), arch: Some("compute_80"), ..CompileOptions::default() };
    match compile_ptx_with_opts(source, options) {
        Ok(image) => Ok(image.as_bytes().unwrap().into()),
        Err(CompileError::CompileError { log, .. }) => Err(log.to_string_lossy().into_owned()),
        Err(error) => panic!("{error}"),
    }
}

/// A context of one test, so that a fault in it affects no other test.
struct Context {
    context: sys::CUcontext,
}

impl Context {
    fn new(device: i32) -> Self {
        load().unwrap();
        let mut context = ptr::null_mut();
        // SAFETY: the pointers are valid for writing the results.
        unsafe {
            ok(sys::cuInit(0));
            ok(sys::cuCtxCreate_v4(&mut context, ptr::null_mut(), 0, device));
        }
        Self { context }
    }

    fn stream(&self) -> CUstream {
        let mut stream = ptr::null_mut();
        // SAFETY: the pointer is valid for writing the result.
        unsafe { ok(sys::cuStreamCreate(&mut stream, 1)) };
        stream
    }

    fn synchronize(&self) -> CUresult {
        // SAFETY: the call takes no arguments.
        unsafe { sys::cuCtxSynchronize() }
    }

    fn alloc(&self, bytes: usize) -> u64 {
        let mut place = 0;
        // SAFETY: the pointer is valid for writing the result.
        unsafe { ok(sys::cuMemAlloc_v2(&mut place, bytes)) };
        place
    }

    fn upload<T: Pod>(&self, values: &[T]) -> u64 {
        let place = self.alloc(size_of_val(values));
        // SAFETY: the pointer and the size are those of `values`.
        unsafe { ok(sys::cuMemcpyHtoD_v2(place, values.as_ptr().cast(), size_of_val(values))) };
        place
    }

    fn download<T: Pod>(&self, place: u64, count: usize) -> Result<Vec<T>, CUresult> {
        let mut values = vec![T::zeroed(); count];
        // SAFETY: `values` has room for the bytes.
        let code = unsafe {
            sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), place, size_of_val(values.as_slice()))
        };
        if code == OK { Ok(values) } else { Err(code) }
    }

    /// Loads a kernel from a compiled image.
    fn function(&self, image: &[u8], name: &str) -> sys::CUfunction {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        let name = CString::new(name).unwrap();
        // SAFETY: the image is complete, and the pointers are valid for writing. The module is never unloaded.
        unsafe {
            ok(sys::cuModuleLoadData(&mut module, image.as_ptr().cast()));
            ok(sys::cuModuleGetFunction(&mut function, module, name.as_ptr()));
        }
        function
    }

    fn launch(
        &self,
        stream: CUstream,
        function: sys::CUfunction,
        grid: [u32; 2],
        threads: u32,
        arguments: &[&[u8]],
    ) -> CUresult {
        let mut places: Vec<*mut c_void> =
            arguments.iter().map(|argument| argument.as_ptr().cast_mut().cast()).collect();
        let ([x, y], places, no_extra) = (grid, places.as_mut_ptr(), ptr::null_mut());
        // SAFETY: each test passes as many arguments as its kernel takes, of the same sizes.
        unsafe { sys::cuLaunchKernel(function, x, y, 1, threads, 1, 1, 0, stream, places, no_extra) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `new` created the context, and nothing of it is used afterwards.
        unsafe { ok(sys::cuCtxDestroy_v2(self.context)) };
    }
}

/// Includes the source of a test's kernel.
macro_rules! kernel_file {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/", $name))
    };
}
use kernel_file;

/// Returns small whole numbers, which every type here and all sums hold exactly.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from((state >> 24) as u8) - 100.0
    };
    (0..count).map(next).collect()
}
