//! NVIDIA GPUs through CUDA's driver interface, which is loaded at run time.

mod blas;
mod cache;
#[cfg(all(any(test, feature = "suite"), feature = "cuda-emulator"))]
pub(crate) mod emulated;
#[cfg(test)]
mod gate;
mod gpu;
mod images;
mod libraries;
mod memory;
mod modules;
mod nvrtc;
mod page_locked;
mod pinned;
mod pool;
mod select;
mod source;
#[cfg(test)]
#[cfg(feature = "cuda-emulator")]
mod tests;
mod times;
mod trail;
mod tuning;

use std::sync::Arc;

use cudarc::driver::{CudaSlice, result, sys};

use self::{blas::Blas, gpu::Gpu, modules::Modules};
use super::{ArgSlice, Caller, Download, Driver, Fence, GemmCall, Memory, Slice, Staging, foreign};
use crate::{
    DeviceInfo, Element, Error, Limits, Result,
    extent::to_usize,
    kernel::{Grid, KernelDef, Spec},
    timeline::{Stage, Timeline},
};

pub(crate) use self::{
    images::write_kernels,
    memory::CudaMemory,
    pinned::{CudaDownload, CudaStaging},
    select::{best, lent, list, open, place_of, versions},
};

/// The CUDA driver.
#[derive(Debug)]
pub(crate) struct CudaDriver {
    modules: Modules,
    blas: Blas,
    gpu: Arc<Gpu>,
    info: DeviceInfo,
    limits: Limits,
    /// True if products use this crate's own kernel and not cuBLAS.
    own_kernels: bool,
    /// True if f32 may be multiplied with 10 bits of mantissa (TF32).
    tf32: bool,
}

impl CudaDriver {
    /// Takes over an application's slice as memory. Fails with [`Error::WrongDevice`] if the slice belongs to another
    /// context; [`Error::Argument`] if it is not aligned to 16 bytes.
    pub(crate) fn lend<T: Element>(&self, op: &'static str, slice: CudaSlice<T>) -> Result<CudaMemory> {
        self.gpu.enter()?;
        if slice.context().cu_ctx() != self.gpu.context.cu_ctx() {
            let on = format_args!("another context of cuda:{}", slice.context().ordinal());
            return Err(Error::wrong_device(op, "slice", on, &self.info.name));
        }
        CudaMemory::lend(&self.gpu, op, slice)
    }

    /// Wraps memory of another library.
    ///
    /// # Safety
    /// The memory belongs to this context, and stays valid until all work that is enqueued with it has ended.
    #[allow(unsafe_code, reason = "nothing tells whose memory an address is")]
    pub(crate) unsafe fn borrow(&self, address: u64) -> CudaMemory {
        CudaMemory::borrowed(&self.gpu, address)
    }

    /// Copies from another library's memory to `dst`, as many bytes as `dst` has.
    ///
    /// # Safety
    /// The requirements of [`borrow`](Self::borrow) hold.
    #[allow(unsafe_code, reason = "nothing tells whose memory an address is")]
    pub(crate) unsafe fn copy_from(&self, address: u64, dst: Slice<'_>) -> Result<()> {
        self.gpu.enter()?;
        memory::copy_from(&self.gpu, address, dst)
    }

    /// Blocks the host until everything that another library has enqueued on a stream has ended.
    ///
    /// # Safety
    /// The stream is valid.
    #[allow(unsafe_code, reason = "cudarc waits for its own streams alone")]
    pub(crate) unsafe fn wait_for(&self, stream: u64) -> Result<()> {
        self.gpu.enter()?;
        let stream = std::ptr::with_exposed_provenance_mut::<sys::CUstream_st>(
            usize::try_from(stream).unwrap_or_default(),
        );
        // SAFETY: the caller promises that the stream is valid.
        self.gpu.check(unsafe { result::stream::synchronize(stream) })
    }

    /// Converts memory without other owners to an application's slice of its first `len` elements.
    pub(crate) fn give_back<T: Element>(&self, memory: CudaMemory, len: usize) -> Result<CudaSlice<T>> {
        self.gpu.enter()?;
        Ok(memory.give_back(len))
    }
}

impl Drop for CudaDriver {
    /// Waits for running kernels, since their code is unloaded next. Memory may outlive the driver.
    fn drop(&mut self) {
        // There is no caller to return an error to.
        let _ = self.gpu.synchronize();
    }
}

impl Driver for CudaDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc(&self, bytes: u64) -> Result<Memory> {
        self.gpu.enter()?;
        Ok(Memory::Cuda(CudaMemory::alloc(&self.gpu, bytes)?))
    }

    fn alloc_for_upload(&self, bytes: u64) -> Result<Memory> {
        self.gpu.enter()?;
        Ok(Memory::Cuda(CudaMemory::alloc_for_upload(&self.gpu, bytes)?))
    }

    fn clear(&self, dst: Slice<'_>) -> Result<()> {
        self.gpu.enter()?;
        memory::clear(&self.gpu, dst)
    }

    fn copy(&self, src: Slice<'_>, dst: Slice<'_>) -> Result<()> {
        self.gpu.enter()?;
        memory::copy(&self.gpu, src, dst)
    }

    fn write(&self, dst: Slice<'_>, bytes: &[u8]) -> Result<()> {
        self.gpu.enter()?;
        pinned::write(&self.gpu, memory::pointer(dst)?, bytes)
    }

    fn download(&self, src: Slice<'_>, timeline: Option<&Timeline>) -> Result<Download> {
        self.gpu.enter()?;
        let len = to_usize(src.bytes);
        let asked = timeline.map(|timeline| timeline.asked(Stage::Copy, "download", src.bytes));
        pinned::download(&self.gpu, memory::pointer(src)?, len, asked)
    }

    fn read(&self, src: Slice<'_>, out: &mut [u8]) -> Result<()> {
        self.gpu.enter()?;
        pinned::read(&self.gpu, memory::pointer(src)?, out)
    }

    fn prepare(&self, kernel: &'static KernelDef, spec: Spec<'_>) -> Result<()> {
        self.gpu.enter()?;
        self.modules.get(&self.gpu, kernel, spec).map(drop)
    }

    fn launch(
        &self,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
        grid: Grid,
        args: &[ArgSlice<'_>],
        params: &[u8],
        caller: Caller<'_>,
    ) -> Result<()> {
        self.gpu.enter()?;
        let pointers: Result<Vec<_>> = args.iter().map(|arg| memory::pointer(arg.slice)).collect();
        let bytes = args.iter().map(|arg| arg.slice.bytes).sum();
        let asked = caller.timeline.map(|timeline| timeline.asked(Stage::Kernel, kernel.name, bytes));
        self.modules.launch(&self.gpu, kernel, spec, grid, (&mut pointers?, params), asked)
    }

    fn staging(&self, bytes: u64) -> Result<Staging> {
        Ok(Staging::Cuda(CudaStaging::new(&self.gpu, bytes)?))
    }

    fn upload(&self, slot: &mut Staging, dst: Slice<'_>, timeline: Option<&Timeline>) -> Result<Fence> {
        self.gpu.enter()?;
        let Staging::Cuda(slot) = slot else { return Err(foreign("cuda")) };
        if !slot.belongs_to(&self.gpu) || !memory::cuda(dst)?.belongs_to(&self.gpu) {
            return Err(foreign("cuda"));
        }
        let asked = timeline.map(|timeline| timeline.asked(Stage::Copy, "upload", dst.bytes));
        let copied = slot.upload(memory::upload_pointer(&self.gpu, dst)?, dst.bytes, asked)?;
        memory::cuda(dst)?.copied_until(copied.clone());
        Ok(Fence::Cuda(copied))
    }

    fn order_after(&self, fence: &Fence) -> Result<()> {
        self.gpu.enter()?;
        match fence {
            Fence::Cuda(event) => self.gpu.check(self.gpu.compute.wait(event)),
            Fence::Passed => Ok(()),
        }
    }

    fn tells_times(&self) -> bool {
        true
    }

    fn is_lost(&self) -> bool {
        self.gpu.is_lost()
    }

    fn synchronize(&self) -> Result<()> {
        self.gpu.synchronize()
    }

    fn gemm(&self, call: &GemmCall<'_>, timeline: Option<&Timeline>) -> Option<Result<()>> {
        if self.own_kernels {
            return None;
        }
        match self.gpu.enter() {
            Ok(()) => self.blas.gemm(&self.gpu, call, self.tf32 || call.tf32, timeline),
            Err(error) => Some(Err(error)),
        }
    }

    fn cuda(&self) -> Option<&CudaDriver> {
        Some(self)
    }
}
