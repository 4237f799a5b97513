//! The CPU as a device: host memory, and a thread pool of its own that is also used for decoding.

mod lines;

use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use rayon::ThreadPool;

pub(crate) use self::lines::CpuBytes;
use super::{ArgSlice, Caller, Download, Driver, Fence, HostBytes, Memory, Slice, Staging, foreign};
use crate::{
    Backend, DeviceInfo, DeviceKind, Limits, Result,
    extent::to_usize,
    fresh::{DEVICES, Room},
    kernel::{Access, CpuArg, CpuLaunch, Grid, KernelDef, Spec},
    timeline::Timeline,
    waiting::{install, lock},
};

/// The number of bytes of freed buffers for which each device makes room: 64 MiB, and 64 for the alignment of each of 64 buffers.
pub(crate) const FREE_BYTES: u64 = (64 << 20) + 64 * 64;

/// The minimum alignment of an application's memory that can be lent: allocators align all but small objects so.
const LENT_ALIGNMENT: usize = 16;

/// Memory of the cpu device.
#[derive(Debug)]
pub(crate) struct CpuMemory {
    lines: RwLock<CpuBytes>,
    /// The number of bytes that the caller asked for.
    bytes: u64,
}

impl CpuMemory {
    fn read(&self) -> RwLockReadGuard<'_, CpuBytes> {
        self.lines.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, CpuBytes> {
        self.lines.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Staging of the cpu device: memory that is swapped with a buffer's own memory, so that an upload copies nothing.
#[derive(Debug)]
pub(crate) struct CpuStaging {
    lines: CpuBytes,
    bytes: u64,
    /// Room for the memory of two blocks, where all devices' room is too small for them.
    _room: Room,
}

impl CpuStaging {
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.lines.bytes_mut()[..to_usize(self.bytes)]
    }
}

/// The cpu driver. A call returns when its work is complete. Several threads can launch at once. A launch waits for another one if one of the two
/// writes a buffer that the other uses. `queue` is locked while a launch locks its buffers, so that two launches cannot deadlock.
#[derive(Debug)]
pub(crate) struct CpuDriver {
    info: DeviceInfo,
    limits: Limits,
    pool: Arc<ThreadPool>,
    queue: Mutex<()>,
    /// Room for freed buffers.
    _room: Room,
}

impl CpuDriver {
    pub(crate) fn new(pool: Arc<ThreadPool>, limits: Limits) -> Self {
        let threads = pool.current_num_threads();
        let plural = if threads == 1 { "" } else { "s" };
        let info = DeviceInfo {
            name: "cpu".into(),
            description: format!("{} ({threads} thread{plural})", processor()),
            backend: Backend::Cpu,
            api: std::env::consts::ARCH.into(),
            kind: DeviceKind::Cpu,
            vendor: String::new(),
            driver: concat!("teatime ", env!("CARGO_PKG_VERSION")).into(),
            memory: None,
            compute_capability: None,
            identity: "cpu".into(),
        };
        Self { info, limits, pool, queue: Mutex::new(()), _room: Room::new(&DEVICES, FREE_BYTES) }
    }

    /// Returns the limits of a CPU with `threads` threads: those of kernels that index with u32.
    pub(crate) fn limits(threads: usize) -> Limits {
        Limits {
            binding: (u32::MAX as u64) & !63,
            buffer: 1 << 46,
            groups_per_axis: u32::MAX,
            workgroup_memory: u32::MAX,
            workgroup_size: 1024,
            alignment: 64,
            step: 8 << 20,
            // Four workgroups for each thread, so that few threads wait for the last one.
            fill: u32::try_from(4 * threads).unwrap_or(u32::MAX),
            processors: 0,
            processor_memory: 0,
            work: Limits::SMALL_WORK,
            f64_cost: 1,
            terms: Limits::TERMS,
            same_sums: false,
            tf32: false,
            iterations: u32::MAX,
            f64: true,
            stores_bytes: true,
        }
    }
}

/// Returns the processor's name if the system reports it, otherwise the architecture.
fn processor() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    model.map_or_else(|| std::env::consts::ARCH.into(), |(_, name)| name.trim().into())
}

fn cpu(memory: &Memory) -> Result<&CpuMemory> {
    match memory {
        Memory::Cpu(memory) => Ok(memory),
        #[cfg(any(feature = "cuda", feature = "wgpu"))]
        _ => Err(foreign("cpu")),
    }
}

/// A lock on a buffer, which is held while a launch uses the buffer.
enum Guard<'a> {
    Read(RwLockReadGuard<'a, CpuBytes>),
    Write(RwLockWriteGuard<'a, CpuBytes>),
}

impl Driver for CpuDriver {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn alloc(&self, bytes: u64) -> Result<Memory> {
        Ok(Memory::Cpu(CpuMemory { lines: RwLock::new(CpuBytes::new(bytes)?), bytes }))
    }

    fn clear(&self, dst: Slice<'_>) -> Result<()> {
        let _queue = lock(&self.queue);
        window_mut(&mut cpu(dst.memory)?.write(), dst).fill(0);
        Ok(())
    }

    fn copy(&self, src: Slice<'_>, dst: Slice<'_>) -> Result<()> {
        let _queue = lock(&self.queue);
        let from = cpu(src.memory)?.read();
        window_mut(&mut cpu(dst.memory)?.write(), dst).copy_from_slice(window(&from, src));
        Ok(())
    }

    fn write(&self, dst: Slice<'_>, bytes: &[u8]) -> Result<()> {
        let _queue = lock(&self.queue);
        window_mut(&mut cpu(dst.memory)?.write(), dst).copy_from_slice(bytes);
        Ok(())
    }

    fn download(&self, src: Slice<'_>, _: Option<&Timeline>) -> Result<Download> {
        let _queue = lock(&self.queue);
        Ok(Download::Ready(window(&cpu(src.memory)?.read(), src).to_vec()))
    }

    fn read(&self, src: Slice<'_>, out: &mut [u8]) -> Result<()> {
        let _queue = lock(&self.queue);
        out.copy_from_slice(&window(&cpu(src.memory)?.read(), src)[..out.len()]);
        Ok(())
    }

    fn lend(&self, bytes: &'static [u8]) -> Option<Memory> {
        // Kernels access whole words.
        let fits = bytes.as_ptr().addr().is_multiple_of(LENT_ALIGNMENT) && bytes.len().is_multiple_of(4);
        let lines = RwLock::new(CpuBytes::Lent(bytes));
        fits.then(|| Memory::Cpu(CpuMemory { lines, bytes: bytes.len() as u64 }))
    }

    fn take(&self, memory: Memory, bytes: usize) -> Result<HostBytes> {
        match memory {
            Memory::Cpu(memory) => {
                let lines = memory.lines.into_inner().unwrap_or_else(PoisonError::into_inner);
                Ok(HostBytes::Cpu(lines, bytes))
            }
            #[cfg(any(feature = "cuda", feature = "wgpu"))]
            _ => Err(foreign("cpu")),
        }
    }

    fn launch(
        &self,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
        _grid: Grid,
        args: &[ArgSlice<'_>],
        params: &[u8],
        Caller { cancel, .. }: Caller<'_>,
    ) -> Result<()> {
        let queue = lock(&self.queue);
        let mut guards = Vec::with_capacity(args.len());
        for arg in args {
            let memory = cpu(arg.slice.memory)?;
            guards.push(match arg.access {
                Access::Read => Guard::Read(memory.read()),
                Access::Write | Access::ReadWrite => Guard::Write(memory.write()),
            });
        }
        drop(queue);
        let args = guards.iter_mut().zip(args).map(|(guard, arg)| match guard {
            Guard::Read(lines) => CpuArg::Read(window(lines, arg.slice)),
            Guard::Write(lines) => CpuArg::Write(window_mut(lines, arg.slice)),
        });
        let launch = CpuLaunch { args: args.collect(), params, spec, cancel };
        kernel.cpu.map_or(Ok(()), |run| {
            install(&self.pool, cancel, || run(launch));
            Ok(())
        })
    }

    fn staging(&self, bytes: u64) -> Result<Staging> {
        let lines = CpuBytes::new(bytes)?;
        let room = Room::new(&DEVICES, lines.capacity().saturating_mul(2).saturating_sub(FREE_BYTES));
        Ok(Staging::Cpu(CpuStaging { lines, bytes, _room: room }))
    }

    fn upload(&self, slot: &mut Staging, dst: Slice<'_>, _: Option<&Timeline>) -> Result<Fence> {
        #[cfg_attr(
            not(any(feature = "cuda", feature = "wgpu")),
            allow(irrefutable_let_patterns, reason = "the only variant then")
        )]
        let Staging::Cpu(slot) = slot else { return Err(foreign("cpu")) };
        let _queue = lock(&self.queue);
        let whole = dst.offset == 0 && dst.bytes.next_multiple_of(16) == cpu(dst.memory)?.bytes;
        let mut memory = cpu(dst.memory)?.write();
        // The guard words behind the elements keep their values.
        if whole && memory.len() == slot.lines.len() {
            std::mem::swap(&mut slot.lines, &mut memory);
        } else {
            // Copies whole words, the last of which may end behind the slot's last byte.
            window_mut(&mut memory, dst).copy_from_slice(&slot.lines.bytes()[..to_usize(dst.bytes)]);
        }
        Ok(Fence::Passed)
    }

    fn order_after(&self, _fence: &Fence) -> Result<()> {
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

fn window<'a>(lines: &'a CpuBytes, slice: Slice<'_>) -> &'a [u8] {
    &lines.bytes()[to_usize(slice.offset)..to_usize(slice.offset + slice.bytes)]
}

fn window_mut<'a>(lines: &'a mut CpuBytes, slice: Slice<'_>) -> &'a mut [u8] {
    &mut lines.bytes_mut()[to_usize(slice.offset)..to_usize(slice.offset + slice.bytes)]
}
