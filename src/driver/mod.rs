//! The interface of a backend: allocate, move bytes, launch a named kernel.
//!
//! A driver knows no operation, element type or shape. Its functions are called through `dyn Driver`; its objects are closed enums. So a driver
//! unwraps its own variant and returns [`foreign`] for any other one, which operations refuse before.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod times;
#[cfg(feature = "wgpu")]
pub(crate) mod wgpu;

use std::fmt;

pub(crate) use self::cpu::CpuBytes;
use crate::{
    Cancel, DeviceInfo, Error, Limits, Result,
    kernel::{Access, Grid, KernelDef, Spec},
    timeline::Timeline,
};

/// Returns the error for memory of another device.
pub(crate) fn foreign(backend: &'static str) -> Error {
    Error::argument(backend, "memory", "is of another device")
}

/// A device's memory. It is freed on drop, after the last use that was enqueued.
#[derive(Debug)]
pub(crate) enum Memory {
    /// Host memory of the cpu driver.
    Cpu(cpu::CpuMemory),
    /// Memory of a CUDA device.
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaMemory),
    /// A buffer of a wgpu device.
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuMemory),
}

impl Memory {
    /// Returns true if both memories are one buffer: several tensors can share an application's buffer. A launch may
    /// not write such a buffer and also use it as another argument: wgpu would refuse it too late, with all other recorded commands.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            #[cfg(feature = "wgpu")]
            (Self::Wgpu(a), Self::Wgpu(b)) => *a.buffer == *b.buffer,
            _ => std::ptr::eq(self, other),
        }
    }
}

/// Host memory from which the copy queue can upload.
#[derive(Debug)]
pub(crate) enum Staging {
    /// Host memory that is swapped with a buffer's memory.
    Cpu(cpu::CpuStaging),
    /// Page-locked host memory.
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaStaging),
    /// Host memory, and a buffer that can be mapped.
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuStaging),
}

impl Staging {
    /// Returns the slot's bytes, to be filled for the next upload. Waits until the last upload from the slot has ended.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Cpu(staging) => staging.bytes_mut(),
            #[cfg(feature = "cuda")]
            Self::Cuda(staging) => staging.bytes_mut(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(staging) => staging.bytes_mut(),
        }
    }
}

/// A point in a copy queue.
#[derive(Debug)]
pub(crate) enum Fence {
    /// The point has been passed already, or the queue itself keeps the order.
    Passed,
    /// An event of the copy stream.
    #[cfg(feature = "cuda")]
    Cuda(std::sync::Arc<cudarc::driver::CudaEvent>),
}

/// Bytes that are being copied from the device.
#[derive(Debug)]
pub(crate) enum Download {
    /// The bytes have arrived.
    Ready(Vec<u8>),
    /// Page-locked memory that is being filled.
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaDownload),
    /// A buffer that is being mapped.
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuDownload),
}

impl Download {
    /// Waits for the bytes and returns them.
    pub(crate) fn wait(self) -> Result<Vec<u8>> {
        match self {
            Self::Ready(bytes) => Ok(bytes),
            #[cfg(feature = "cuda")]
            Self::Cuda(download) => download.wait(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(download) => download.wait(),
        }
    }

    /// Waits for the bytes, and copies the first of them to `out`.
    fn wait_into(self, out: &mut [u8]) -> Result<()> {
        match self {
            #[cfg(feature = "wgpu")]
            Self::Wgpu(download) => download.wait_into(out),
            other => {
                out.copy_from_slice(&other.wait()?[..out.len()]);
                Ok(())
            }
        }
    }

    /// Waits like [`wait`](Self::wait), in a thread that enqueues nothing, without blocking the threads that enqueue.
    pub(crate) fn wait_aside(self) -> Result<Vec<u8>> {
        match self {
            #[cfg(feature = "wgpu")]
            Self::Wgpu(download) => download.wait_aside(),
            other => other.wait(),
        }
    }
}

/// Bytes on the host.
#[derive(Debug)]
pub(crate) enum HostBytes {
    /// The bytes were copied to the host.
    Owned(Vec<u8>),
    /// The given number of first bytes of memory that belonged to the device.
    Cpu(CpuBytes, usize),
}

impl HostBytes {
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(bytes) => bytes,
            Self::Cpu(lines, bytes) => &lines.bytes()[..*bytes],
        }
    }
}

/// A window of a device's memory, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice<'a> {
    pub(crate) memory: &'a Memory,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// One argument of a launch: exactly the bytes of its elements. It starts at a multiple of the device's alignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArgSlice<'a> {
    pub(crate) slice: Slice<'a>,
    pub(crate) access: Access,
}

/// A matrix product for a vendor's library: row-major `c[m, n] (+)= op(a) op(b)`, in f32, or in f64 if both operands are f64.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only the CUDA driver has a vendor's library"))]
pub(crate) struct GemmCall<'a> {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
    /// For each operand: its storage type, its memory, and the number of elements from one row to the next.
    pub(crate) a: (crate::DType, Slice<'a>, u32),
    pub(crate) b: (crate::DType, Slice<'a>, u32),
    pub(crate) c: (Slice<'a>, u32),
    /// For each operand, true if it is stored transposed.
    pub(crate) transpose: [bool; 2],
    /// True if the product is added to `c`.
    pub(crate) accumulate: bool,
    /// True if f32 may be rounded to TF32's 10 bits of mantissa.
    pub(crate) tf32: bool,
}

/// The flag and the timeline of the handle that a launch is made with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Caller<'a> {
    pub(crate) cancel: Option<&'a Cancel>,
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        allow(dead_code, reason = "only GPUs tell times")
    )]
    pub(crate) timeline: Option<&'a Timeline>,
}

impl GemmCall<'_> {
    /// The name of the product in timelines.
    pub(crate) const NAME: &'static str = "vendor's matrix product";
}

/// A device. Calls enqueue work in program order and may return before it is done. Any thread may call them.
pub(crate) trait Driver: fmt::Debug + Send + Sync {
    /// Returns the name and properties of the device.
    fn info(&self) -> &DeviceInfo;
    /// Returns the limits that were granted, or lower ones if the device was opened with lower limits.
    fn limits(&self) -> &Limits;
    /// Allocates at least `bytes` bytes (a multiple of 16, never 0) of undefined content.
    fn alloc(&self, bytes: u64) -> Result<Memory>;
    /// Allocates like [`alloc`](Self::alloc) memory that an upload fills first, so that the upload need not wait for
    /// enqueued work. May block the host until earlier uploads have been used, so that uploads do not accumulate.
    fn alloc_for_upload(&self, bytes: u64) -> Result<Memory> {
        self.alloc(bytes)
    }
    /// Zeroes a window; offset and length are multiples of 4.
    fn clear(&self, dst: Slice<'_>) -> Result<()>;
    /// Copies between windows of equal length in different memories; offsets and lengths are multiples of 4.
    fn copy(&self, src: Slice<'_>, dst: Slice<'_>) -> Result<()>;
    /// Copies small host data to a window; the caller may reuse `bytes` on return. Offset and length are multiples of 4.
    fn write(&self, dst: Slice<'_>, bytes: &[u8]) -> Result<()>;
    /// Starts a copy to the host, after everything that is enqueued. Offset and length are multiples of 4. The timeline gets the copy's times if
    /// the device tells them.
    fn download(&self, src: Slice<'_>, timeline: Option<&Timeline>) -> Result<Download>;
    /// Waits for everything that is enqueued and copies the first bytes of a window. The window's offset and length are multiples of 4.
    fn read(&self, src: Slice<'_>, out: &mut [u8]) -> Result<()> {
        self.download(src, None)?.wait_into(out)
    }
    /// Wraps host bytes as read-only memory if the device can use them in place. The bytes are valid only as long as
    /// the memory: nothing may keep references to them.
    fn lend(&self, _bytes: &'static [u8]) -> Option<Memory> {
        None
    }
    /// Returns the first bytes of some memory to the host, after waiting for enqueued work. Copies nothing if the host can use the memory itself.
    fn take(&self, memory: Memory, bytes: usize) -> Result<HostBytes> {
        let words = bytes.next_multiple_of(4) as u64;
        let mut taken = self.download(Slice { memory: &memory, offset: 0, bytes: words }, None)?.wait()?;
        taken.truncate(bytes);
        Ok(HostBytes::Owned(taken))
    }
    /// Compiles and loads a kernel, so that a launch does not wait for the compiler. Without this call, the first launch compiles it.
    fn prepare(&self, _kernel: &'static KernelDef, _spec: Spec<'_>) -> Result<()> {
        Ok(())
    }
    /// Runs a kernel. If the caller's flag is set meanwhile, its outputs may be incomplete. The caller's timeline gets the kernel's times if the
    /// device [tells](Self::tells_times) them.
    /// [`Device::launch`](crate::Device::launch) has checked window sizes, access, grid and parameters.
    fn launch(
        &self,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
        grid: Grid,
        args: &[ArgSlice<'_>],
        params: &[u8],
        caller: Caller<'_>,
    ) -> Result<()>;
    /// Makes a slot for uploads of up to `bytes` bytes.
    fn staging(&self, bytes: u64) -> Result<Staging>;
    /// Enqueues, on the copy queue, a copy of the slot's first `dst.bytes` bytes. The timeline is as in [`download`](Self::download).
    fn upload(&self, slot: &mut Staging, dst: Slice<'_>, timeline: Option<&Timeline>) -> Result<Fence>;
    /// Makes all work that is enqueued from now on wait for the fence.
    fn order_after(&self, fence: &Fence) -> Result<()>;
    /// Returns true if timelines get times of the device itself, after waits that prove the work done.
    fn tells_times(&self) -> bool {
        false
    }
    /// Returns true once a call has found that the device is lost.
    fn is_lost(&self) -> bool {
        false
    }
    /// Submits all pending work and waits for it.
    fn synchronize(&self) -> Result<()>;
    /// Computes a product by the vendor's library. Returns `None` if there is no library, or if it does not support this call.
    fn gemm(&self, _call: &GemmCall<'_>, _timeline: Option<&Timeline>) -> Option<Result<()>> {
        None
    }
    /// Returns this driver if it is the CUDA driver, for slices that an application shares.
    #[cfg(feature = "cuda")]
    fn cuda(&self) -> Option<&cuda::CudaDriver> {
        None
    }
    /// Returns this driver if it is the wgpu driver, for buffers that an application shares.
    #[cfg(feature = "wgpu")]
    fn wgpu(&self) -> Option<&wgpu::WgpuDriver> {
        None
    }
}
