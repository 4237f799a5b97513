//! Matrix products by cuBLAS.
#![allow(
    unsafe_code,
    reason = "cuBLAS takes raw pointers, and cudarc's safe layer knows only slices of its own"
)]

use std::sync::{Mutex, OnceLock, PoisonError};

use cudarc::cublas::{result, sys};

use super::{gpu::Gpu, libraries, memory, select};
use crate::{DType, Error, Result, driver::GemmCall};

/// cuBLAS on one device, opened at the first product: loading it takes longer than opening the device.
#[derive(Debug, Default)]
pub(super) struct Blas(OnceLock<Option<Mutex<Handle>>>);

#[derive(Debug)]
struct Handle(sys::cublasHandle_t);

// SAFETY: a handle may move between threads; the mutex around it keeps it to one at a time.
unsafe impl Send for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: created by `create_handle`, destroyed once. A failure leaves nothing to do.
        let _ = unsafe { result::destroy_handle(self.0) };
    }
}

impl Handle {
    fn new(gpu: &Gpu) -> Option<Self> {
        libraries::cublas(select::driver_version()).ok()?;
        let handle = Self(result::create_handle().ok()?);
        // SAFETY: both are alive; the stream lives as long as the driver that holds the handle.
        unsafe { result::set_stream(handle.0, gpu.compute().cu_stream().cast()) }.ok()?;
        Some(handle)
    }
}

/// The version of cuBLAS, or why there is none.
pub(super) fn version(driver_version: i32) -> Result<String, String> {
    libraries::cublas(driver_version)?;
    let part = |which| {
        let mut value = 0;
        // SAFETY: the library is loaded, and writes one number.
        unsafe { sys::cublasGetProperty(which, &raw mut value) }.result().map(|()| value)
    };
    let version = part(sys::libraryPropertyType::MAJOR_VERSION).and_then(|major| {
        part(sys::libraryPropertyType::MINOR_VERSION).map(|minor| format!("{major}.{minor}"))
    });
    version.map_err(|error| error.to_string())
}

/// The library's name for an element type that it multiplies with f32 sums.
fn kind(dtype: DType) -> Option<sys::cudaDataType> {
    match dtype {
        DType::F32 => Some(sys::cudaDataType::CUDA_R_32F),
        DType::F16 => Some(sys::cudaDataType::CUDA_R_16F),
        DType::BF16 => Some(sys::cudaDataType::CUDA_R_16BF),
        _ => None,
    }
}

impl Blas {
    /// The product, or none where cuBLAS is absent or has none for these types and sizes. f32 is multiplied as f32
    /// unless `tf32`; sums are f32.
    pub(super) fn gemm(&self, gpu: &Gpu, call: &GemmCall<'_>, tf32: bool) -> Option<Result<()>> {
        let ((a_type, a, lda), (b_type, b, ldb), (c, ldc)) = (call.a, call.b, call.c);
        let element = kind(a_type).filter(|_| a_type == b_type)?;
        let int = |extent: u32| i32::try_from(extent).ok();
        let (m, n, k) = (int(call.m)?, int(call.n)?, int(call.k)?);
        let (lda, ldb, ldc) = (int(lda)?, int(ldb)?, int(ldc)?);
        let handle = self.0.get_or_init(|| Handle::new(gpu).map(Mutex::new)).as_ref()?;
        let pointers = memory::pointer(a).and_then(|a| Ok((a, memory::pointer(b)?, memory::pointer(c)?)));
        let (a, b, c) = match pointers {
            Ok(pointers) => pointers,
            Err(error) => return Some(Err(error)),
        };
        let operation = |transposed| match transposed {
            true => sys::cublasOperation_t::CUBLAS_OP_T,
            false => sys::cublasOperation_t::CUBLAS_OP_N,
        };
        let compute = match tf32 {
            true => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F_FAST_TF32,
            false => sys::cublasComputeType_t::CUBLAS_COMPUTE_32F,
        };
        let (alpha, beta) = (1.0f32, f32::from(u8::from(call.accumulate)));
        let handle = handle.lock().unwrap_or_else(PoisonError::into_inner);
        // The library's matrices are column-major: the same memory read so is the transpose, and cᵀ = op(b)ᵀ op(a)ᵀ.
        // SAFETY: the pointers are windows of live memory of this context with the extents and strides of the call, which
        // `linalg::matmul` takes from the tensors' shapes; the scalars are read during the call (host pointer mode).
        let result = unsafe {
            result::gemm_ex(
                handle.0,
                operation(call.transpose[1]),
                operation(call.transpose[0]),
                n,
                m,
                k,
                (&raw const alpha).cast(),
                b as *const _,
                element,
                ldb,
                a as *const _,
                element,
                lda,
                (&raw const beta).cast(),
                c as *mut _,
                sys::cudaDataType::CUDA_R_32F,
                ldc,
                compute,
                sys::cublasGemmAlgo_t::CUBLAS_GEMM_DEFAULT,
            )
        };
        match result {
            Ok(()) => Some(Ok(())),
            // Refused before anything was enqueued: a product it does not have.
            Err(error) if error.0 == sys::cublasStatus_t::CUBLAS_STATUS_NOT_SUPPORTED => None,
            Err(error) => {
                // The context knows better what happened, where it is lost.
                let lost = gpu.enter().err();
                Some(Err(lost.unwrap_or(Error::Driver { backend: "cuda", source: error.to_string().into() })))
            }
        }
    }
}
