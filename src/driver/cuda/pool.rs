//! The pool of device memory: a pool of this crate, since the whole process shares the default one.
#![allow(unsafe_code, reason = "cudarc has no safe calls for pools")]

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

/// A pool that keeps freed memory for the next allocations: allocating from the system again costs more than most kernels.
#[derive(Debug)]
pub(super) struct Pool {
    handle: sys::CUmemoryPool,
    context: Arc<CudaContext>,
}

// SAFETY: CUDA's calls on a pool may come from any thread.
unsafe impl Send for Pool {}
// SAFETY: any thread may call CUDA's functions on a pool; they lock internally.
unsafe impl Sync for Pool {}

impl Pool {
    pub(super) fn new(context: Arc<CudaContext>) -> Result<Self, DriverError> {
        context.bind_to_thread()?;
        let properties = sys::CUmemPoolProps {
            allocType: sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED,
            handleTypes: sys::CUmemAllocationHandleType::CU_MEM_HANDLE_TYPE_NONE,
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: context.cu_device(),
            },
            win32SecurityAttributes: std::ptr::null_mut(),
            maxSize: 0,
            usage: 0,
            reserved: [0; 54],
        };
        let mut threshold = u64::MAX;
        // SAFETY: the properties are complete; this attribute's value is a 64-bit integer, which outlives the call.
        unsafe {
            let pool = Self { handle: result::mem_pool::create(&raw const properties)?, context };
            result::mem_pool::set_attribute(
                pool.handle,
                sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                (&raw mut threshold).cast(),
            )?;
            Ok(pool)
        }
    }

    /// Allocates memory in the order of a stream, which `cuMemFreeAsync` frees. Its content is undefined.
    pub(super) fn take(&self, stream: &CudaStream, bytes: usize) -> Result<sys::CUdeviceptr, DriverError> {
        let mut pointer = 0;
        // SAFETY: the stream and the pool are alive.
        unsafe { sys::cuMemAllocFromPoolAsync(&raw mut pointer, bytes, self.handle, stream.cu_stream()) }
            .result()
            .map(|()| pointer)
    }

    /// Gives the pool's unused memory back to the system.
    pub(super) fn trim(&self) -> Result<(), DriverError> {
        // SAFETY: the pool is alive.
        unsafe { result::mem_pool::trim_to(self.handle, 0) }
    }
}

impl Drop for Pool {
    /// Destroys the pool. Memory of the pool that an application holds stays valid.
    fn drop(&mut self) {
        let bound = self.context.bind_to_thread();
        // SAFETY: the pool is destroyed once.
        self.context.record_err(bound.and_then(|()| unsafe { result::mem_pool::destroy(self.handle) }));
    }
}
