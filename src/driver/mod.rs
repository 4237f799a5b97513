//! The whole contract of a backend: bytes in, bytes out, launch a named kernel.
//!
//! A driver knows no operation, element type or shape. Verbs go through `dyn Driver`; nouns are closed enums, so a
//! driver unwraps its own variant and answers [`foreign`] for any other, which operations refuse before.

pub(crate) mod cpu;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(feature = "wgpu")]
pub(crate) mod wgpu;

use std::fmt;

pub(crate) use self::cpu::HostLines;
use crate::{
    Cancel, DeviceInfo, Error, Limits, Result,
    kernel::{Access, Grid, KernelDef, Spec},
};

/// The error for memory of another device.
pub(crate) fn foreign(backend: &'static str) -> Error {
    Error::argument(backend, "memory", "is of another device")
}

/// A device's memory. Freed on drop, after the last use that was enqueued.
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
    /// True where both are of one buffer, which no launch may write and use otherwise: wgpu refuses it too late, with all that
    /// is recorded before. An application's buffer can be several tensors.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            #[cfg(feature = "wgpu")]
            (Self::Wgpu(a), Self::Wgpu(b)) => *a.buffer == *b.buffer,
            _ => std::ptr::eq(self, other),
        }
    }
}

/// A host-side slot that the copy queue can read.
#[derive(Debug)]
pub(crate) enum Staging {
    /// Host memory that changes places with a buffer.
    Cpu(cpu::CpuStaging),
    /// Page-locked host memory.
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaStaging),
    /// Host memory with a buffer that can be mapped.
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuStaging),
}

impl Staging {
    /// The slot's bytes, to be filled for the next upload; waits until the last upload from it has ended.
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
    /// Already passed, or ordered by the queue itself.
    Passed,
    /// An event of the copy stream.
    #[cfg(feature = "cuda")]
    Cuda(std::sync::Arc<cudarc::driver::CudaEvent>),
}

/// Bytes on their way from the device.
#[derive(Debug)]
pub(crate) enum Download {
    /// Already here.
    Ready(Vec<u8>),
    /// In page-locked memory that is being filled.
    #[cfg(feature = "cuda")]
    Cuda(cuda::CudaDownload),
    /// In a buffer that is being mapped.
    #[cfg(feature = "wgpu")]
    Wgpu(wgpu::WgpuDownload),
}

impl Download {
    /// Waits for the bytes.
    pub(crate) fn wait(self) -> Result<Vec<u8>> {
        match self {
            Self::Ready(bytes) => Ok(bytes),
            #[cfg(feature = "cuda")]
            Self::Cuda(download) => download.wait(),
            #[cfg(feature = "wgpu")]
            Self::Wgpu(download) => download.wait(),
        }
    }

    /// Waits for the bytes, and copies the first ones.
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

    /// [`wait`](Self::wait) for a thread beside those that enqueue, none of which it holds up.
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
    /// Copied there.
    Owned(Vec<u8>),
    /// The first bytes of memory that was the device's.
    Cpu(HostLines, usize),
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

/// One argument of a launch: exactly the bytes of its elements, from the device's alignment on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArgSlice<'a> {
    pub(crate) slice: Slice<'a>,
    pub(crate) access: Access,
}

/// A matrix product for a vendor's library: row-major `c[m, n] (+)= op(a) op(b)`, of f32, or of f64 where both operands are.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only the CUDA driver has a vendor's library"))]
pub(crate) struct GemmCall<'a> {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
    /// Storage type, memory, and element stride between rows, of each operand.
    pub(crate) a: (crate::DType, Slice<'a>, u32),
    pub(crate) b: (crate::DType, Slice<'a>, u32),
    pub(crate) c: (Slice<'a>, u32),
    /// For each operand, true where it is stored transposed.
    pub(crate) transpose: [bool; 2],
    /// True where the product is added to `c`.
    pub(crate) accumulate: bool,
}

/// One device. Calls enqueue in program order and may return before the work is done; they may come from any thread.
pub(crate) trait Driver: fmt::Debug + Send + Sync {
    /// The name and properties of the device.
    fn info(&self) -> &DeviceInfo;
    /// The limits that were granted, or lower ones if it was opened with those.
    fn limits(&self) -> &Limits;
    /// At least `bytes` bytes (a multiple of 16, never none) of unspecified content.
    fn alloc(&self, bytes: u64) -> Result<Memory>;
    /// [`alloc`](Self::alloc) of memory that an upload fills first, which need not wait for what is enqueued. May wait on the host
    /// for earlier uploads to be used, so that they do not pile up.
    fn alloc_for_upload(&self, bytes: u64) -> Result<Memory> {
        self.alloc(bytes)
    }
    /// Zeroes a window; offset and length are multiples of 4.
    fn clear(&self, dst: Slice<'_>) -> Result<()>;
    /// Copies between windows of equal length in different memories; offsets and lengths are multiples of 4.
    fn copy(&self, src: Slice<'_>, dst: Slice<'_>) -> Result<()>;
    /// Copies small host data; `bytes` may be reused on return. Offset and length are multiples of 4.
    fn write(&self, dst: Slice<'_>, bytes: &[u8]) -> Result<()>;
    /// Starts a copy to the host, ordered after everything enqueued. Offset and length are multiples of 4.
    fn download(&self, src: Slice<'_>) -> Result<Download>;
    /// Waits for everything enqueued and copies the first bytes of a window. Offset and length of that are multiples of 4.
    fn read(&self, src: Slice<'_>, out: &mut [u8]) -> Result<()> {
        self.download(src)?.wait_into(out)
    }
    /// Bytes of the host as memory that is only read, where the device can use them where they are. They are there as long as the memory
    /// is, and no longer: nothing may keep them.
    fn lend(&self, _bytes: &'static [u8]) -> Option<Memory> {
        None
    }
    /// The first bytes of some memory, for the host. Waits. Copies nothing where the host can use the memory itself.
    fn take(&self, memory: Memory, bytes: usize) -> Result<HostBytes> {
        let words = bytes.next_multiple_of(4) as u64;
        let mut taken = self.download(Slice { memory: &memory, offset: 0, bytes: words })?.wait()?;
        taken.truncate(bytes);
        Ok(HostBytes::Owned(taken))
    }
    /// Makes a kernel ready, so that a launch does not wait for a compiler. Without it, the first launch does.
    fn prepare(&self, _kernel: &'static KernelDef, _spec: Spec<'_>) -> Result<()> {
        Ok(())
    }
    /// Runs a kernel. Its outputs may be left half done where `cancel` is set meanwhile. Checked by
    /// [`Device::launch`](crate::Device::launch): window sizes, access, grid, params.
    fn launch(
        &self,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
        grid: Grid,
        args: &[ArgSlice<'_>],
        params: &[u8],
        cancel: Option<&Cancel>,
    ) -> Result<()>;
    /// A slot for uploads of up to `bytes` bytes.
    fn staging(&self, bytes: u64) -> Result<Staging>;
    /// Enqueues a copy of the slot's first `dst.bytes` bytes on the copy queue.
    fn upload(&self, slot: &mut Staging, dst: Slice<'_>) -> Result<Fence>;
    /// Makes what is enqueued from now on wait for the fence.
    fn order_after(&self, fence: &Fence) -> Result<()>;
    /// True once it is gone, as far as calls have found out.
    fn is_lost(&self) -> bool {
        false
    }
    /// Submits what is pending and waits for all of it.
    fn synchronize(&self) -> Result<()>;
    /// The vendor library's product, where there is one that can do this call.
    fn gemm(&self, _call: &GemmCall<'_>) -> Option<Result<()>> {
        None
    }
    /// This driver, where it is the CUDA driver: for slices that an application shares.
    #[cfg(feature = "cuda")]
    fn cuda(&self) -> Option<&cuda::CudaDriver> {
        None
    }
    /// This driver, where it is the wgpu driver: for buffers that an application shares.
    #[cfg(feature = "wgpu")]
    fn wgpu(&self) -> Option<&wgpu::WgpuDriver> {
        None
    }
}
