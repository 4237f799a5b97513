//! Matrix products by cuBLAS.
#![allow(
    unsafe_code,
    reason = "cuBLAS takes raw pointers, and cudarc's safe layer knows only slices of its own"
)]

use std::{
    ptr,
    sync::{Arc, Mutex},
};

use cudarc::cublas::{
    result::{self, CublasError},
    sys,
};

use super::{gpu::Gpu, libraries, memory, trail::Launch};
use crate::{DType, Error, Result, Timeline, driver::GemmCall, timeline::Stage, waiting::lock};

/// The cuBLAS handle of one device. It is opened at the first product, since loading cuBLAS takes longer than opening the device.
#[derive(Debug, Default)]
pub(super) struct Blas(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    Unknown,
    Absent,
    Open(Handle),
}

#[derive(Debug)]
struct Handle(sys::cublasHandle_t, Arc<Gpu>);

// SAFETY: a handle may move between threads; the mutex around it lets only one thread use it at a time.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        self.1.take_left_error();
        self.1.context.record_err(self.1.context.bind_to_thread());
        // SAFETY: the handle was created by `create_handle` and is destroyed once. Nothing can be done about a failure.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

impl Handle {
    fn new(gpu: &Arc<Gpu>) -> Result<Self> {
        let handle = Self(result::create_handle().map_err(|error| failed(gpu, error))?, gpu.clone());
        // SAFETY: the handle and the stream are alive; the handle keeps the device, and so the stream.
        unsafe { result::set_stream(handle.0, gpu.compute.cu_stream().cast()) }
            .map_err(|error| failed(gpu, error))?;
        Ok(handle)
    }
}

/// Returns the version of cuBLAS, or the reason why there is none.
pub(super) fn version(driver_version: i32) -> Result<String, String> {
    libraries::cublas(driver_version)?;
    let part = |which| {
        let mut value = 0;
        // SAFETY: the library is loaded, and writes one integer.
        unsafe { sys::cublasGetProperty(which, &raw mut value) }.result().map(|()| value)
    };
    let version = part(sys::libraryPropertyType::MAJOR_VERSION).and_then(|major| {
        part(sys::libraryPropertyType::MINOR_VERSION).map(|minor| format!("{major}.{minor}"))
    });
    version.map_err(|error| error.to_string())
}

/// Returns the error of a failed call. If the context is lost, its own error says better what happened.
fn failed(gpu: &Gpu, error: CublasError) -> Error {
    let lost = gpu.enter().err();
    lost.unwrap_or_else(|| match error.0 {
        sys::cublasStatus_t::CUBLAS_STATUS_ALLOC_FAILED => gpu.full(0),
        _ => Error::Driver { backend: "cuda", source: error.to_string().into() },
    })
}

/// Returns the library's name for an element type whose products it adds in f32 (for f64: in f64).
fn kind(dtype: DType) -> Option<sys::cudaDataType> {
    match dtype {
        DType::F32 => Some(sys::cudaDataType::CUDA_R_32F),
        DType::F16 => Some(sys::cudaDataType::CUDA_R_16F),
        DType::BF16 => Some(sys::cudaDataType::CUDA_R_16BF),
        DType::F64 => Some(sys::cudaDataType::CUDA_R_64F),
        _ => None,
    }
}

impl Blas {
    /// Computes the product. Returns `None` if cuBLAS is absent or does not support these types and sizes. f32 is
    /// multiplied as f32 unless `tf32` is set; sums are f32, or f64 for f64 operands.
    pub(super) fn gemm(
        &self,
        gpu: &Arc<Gpu>,
        call: &GemmCall<'_>,
        tf32: bool,
        timeline: Option<&Timeline>,
    ) -> Option<Result<()>> {
        let ((a_type, a, lda), (b_type, b, ldb), (c, ldc)) = (call.a, call.b, call.c);
        let element = kind(a_type).filter(|_| a_type == b_type)?;
        let int = |extent: u32| i32::try_from(extent).ok();
        let (m, n, k) = (int(call.m)?, int(call.n)?, int(call.k)?);
        let (lda, ldb, ldc) = (int(lda)?, int(ldb)?, int(ldc)?);
        let mut state = lock(&self.0);
        if matches!(*state, State::Unknown) {
            *state = match libraries::cublas(libraries::driver_version()).map(|_| Handle::new(gpu)) {
                Ok(Ok(handle)) => State::Open(handle),
                // The next product tries again, since memory may be free by then.
                Ok(Err(error)) => return Some(Err(error)),
                Err(_) => State::Absent,
            };
        }
        let State::Open(handle) = &*state else { return None };
        let pointers = memory::pointer(a).and_then(|a| Ok((a, memory::pointer(b)?, memory::pointer(c)?)));
        let (a, b, c) = match pointers {
            Ok(pointers) => pointers,
            Err(error) => return Some(Err(error)),
        };
        let operation = |transposed| match transposed {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        };
        let compute = match a_type {
            DType::F64 => sys::cublasComputeType_t::CUBLAS_COMPUTE_64F,
            // f16 and bf16 have no more bits than TF32's 10, and no TF32 product.
            DType::F32 if tf32 => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            _ => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let (alpha, beta) = (1.0f32, f32::from(u8::from(call.accumulate)));
        let wide = [alpha, beta].map(f64::from);
        // The scalars have the type of the sums.
        let (sums, [alpha, beta]) = match a_type {
            DType::F64 => (element, wide.each_ref().map(|scalar| ptr::from_ref(scalar).cast())),
            _ => (sys::cudaDataType::CUDA_R_32F, [&alpha, &beta].map(|scalar| ptr::from_ref(scalar).cast())),
        };
        let extents = [("m", call.m), ("n", call.n), ("k", call.k)];
        let launch = Launch { name: "cuBLAS", spec: extents.into(), grid: None };
        // The library's matrices are column-major: it reads the same memory as the transpose, so it computes cᵀ = op(b)ᵀ op(a)ᵀ.
        // SAFETY: the pointers are windows of live memory of this context with the extents and strides of the call, which
        // `linalg::matmul` takes from the tensors' shapes; the scalars are read during the call (host pointer mode).
        let product = || unsafe {
            result::gemm_ex(
                handle.0,
                operation(call.transpose[1]),
                operation(call.transpose[0]),
                n,
                m,
                k,
                alpha,
                b as *const _,
                element,
                ldb,
                a as *const _,
                element,
                lda,
                beta,
                c as *mut _,
                sums,
                ldc,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        let bytes = call.a.1.bytes + call.b.1.bytes + call.c.0.bytes;
        let asked = timeline.map(|timeline| timeline.asked(Stage::Kernel, GemmCall::NAME, bytes));
        let launched = gpu.launch(launch, asked, || match product() {
            Ok(()) => Ok(true),
            // The library refused a product that it does not support, before it enqueued anything.
            Err(error) if error.0 == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => Ok(false),
            Err(error) => Err(failed(gpu, error)),
        });
        launched.map(|launched| launched.then_some(())).transpose()
    }
}
