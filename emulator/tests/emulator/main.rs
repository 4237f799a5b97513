//! The emulator tested by itself: what it computes, and that it catches what GPUs would do wrong now and then.
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

/// Compiles a kernel by the emulator's NVRTC; the error is the program's log.
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

/// A context of a test's own: a fault in it is no other test's.
struct Context {
    context: sys::CUcontext,
}

impl Context {
    fn new(device: i32) -> Self {
        load().unwrap();
        let mut context = ptr::null_mut();
        // SAFETY: places for results.
        unsafe {
            ok(sys::cuInit(0));
            ok(sys::cuCtxCreate_v4(&mut context, ptr::null_mut(), 0, device));
        }
        Self { context }
    }

    fn stream(&self) -> CUstream {
        let mut stream = ptr::null_mut();
        // SAFETY: a place for the result.
        unsafe { ok(sys::cuStreamCreate(&mut stream, 1)) };
        stream
    }

    fn synchronize(&self) -> CUresult {
        // SAFETY: no arguments.
        unsafe { sys::cuCtxSynchronize() }
    }

    fn alloc(&self, bytes: usize) -> u64 {
        let mut place = 0;
        // SAFETY: a place for the result.
        unsafe { ok(sys::cuMemAlloc_v2(&mut place, bytes)) };
        place
    }

    fn upload<T: Pod>(&self, values: &[T]) -> u64 {
        let place = self.alloc(size_of_val(values));
        // SAFETY: the bytes of `values`.
        unsafe { ok(sys::cuMemcpyHtoD_v2(place, values.as_ptr().cast(), size_of_val(values))) };
        place
    }

    fn download<T: Pod>(&self, place: u64, count: usize) -> Result<Vec<T>, CUresult> {
        let mut values = vec![T::zeroed(); count];
        // SAFETY: room for the bytes of `values`.
        let code = unsafe {
            sys::cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), place, size_of_val(values.as_slice()))
        };
        if code == OK { Ok(values) } else { Err(code) }
    }

    /// Loads a kernel of an image.
    fn function(&self, image: &[u8], name: &str) -> sys::CUfunction {
        let (mut module, mut function) = (ptr::null_mut(), ptr::null_mut());
        let name = CString::new(name).unwrap();
        // SAFETY: a whole image, and places for results. The module stays.
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
        // SAFETY: as many arguments as each test's kernel takes, of their sizes.
        unsafe {
            sys::cuLaunchKernel(
                function,
                grid[0],
                grid[1],
                1,
                threads,
                1,
                1,
                0,
                stream,
                places.as_mut_ptr(),
                ptr::null_mut(),
            )
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and nothing of it is used after it.
        unsafe { ok(sys::cuCtxDestroy_v2(self.context)) };
    }
}

/// A test's kernel file.
macro_rules! kernel_file {
    ($name:literal) => {
        include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/", $name))
    };
}
use kernel_file;

/// Small whole numbers, exact in every type and sum here.
fn numbers(count: usize, seed: u32) -> Vec<f32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        f32::from((state >> 24) as u8) - 100.0
    };
    (0..count).map(next).collect()
}
