//! The pool of the device's memory.
#![allow(unsafe_code, reason = "cudarc has no safe calls for pools")]

use cudarc::driver::{CudaContext, DriverError, result, sys};

fn pool(context: &CudaContext) -> Result<sys::CUmemoryPool, DriverError> {
    // SAFETY: the device is that of a live context.
    unsafe { result::device::get_default_mem_pool(context.cu_device()) }
}

/// Gives what the device's pool holds and nobody uses back to the system.
pub(super) fn trim(context: &CudaContext) -> Result<(), DriverError> {
    // SAFETY: the default pool lives as long as the device.
    unsafe { result::mem_pool::trim_to(pool(context)?, 0) }
}

/// Lets the pool keep what is freed: by default it returns all of it to the system at each synchronisation, and taking
/// it again costs more than most kernels.
pub(super) fn keep_freed(context: &CudaContext) -> Result<(), DriverError> {
    let mut threshold = u64::MAX;
    // SAFETY: this attribute's value is a 64-bit number, which outlives the call.
    unsafe {
        result::mem_pool::set_attribute(
            pool(context)?,
            sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
            (&raw mut threshold).cast(),
        )
    }
}
