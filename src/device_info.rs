//! Properties of devices, the limits that they grant, and options to open one.

use std::fmt;

use crate::{Error, Result};

/// The driver that a device runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// Vectorised Rust on this machine's processor.
    Cpu,
    /// An NVIDIA GPU through CUDA.
    Cuda,
    /// Vulkan, Metal, DX12 or GL through wgpu.
    Wgpu,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Wgpu => "wgpu",
        })
    }
}

/// The sort of hardware that a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU lent by a hypervisor.
    Virtual,
    /// A GPU interface computed on the processor (lavapipe, WARP).
    Software,
    /// The processor itself.
    Cpu,
    /// The driver does not say.
    Other,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Virtual => "virtual",
            Self::Software => "software",
            Self::Cpu => "cpu",
            Self::Other => "other",
        })
    }
}

/// The name and properties of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// The exact name to give to [`Device::open`](crate::Device::open).
    pub name: String,
    /// The hardware's own name.
    pub description: String,
    /// The driver it runs on.
    pub backend: Backend,
    /// The programming interface below: `vulkan`, `metal`, `dx12`, `gl`, or the processor's architecture.
    pub api: String,
    /// Sort of hardware.
    pub kind: DeviceKind,
    /// Maker, where known.
    pub vendor: String,
    /// Name and version of the hardware's driver.
    pub driver: String,
    /// Memory of the device in bytes, where the driver tells.
    pub memory: Option<u64>,
    /// Compute capability (major, minor) of an NVIDIA GPU, where the driver tells.
    pub compute_capability: Option<(u32, u32)>,
    /// Equal for two entries that are the same card: its PCI address, as `0000:65:00.0`, where the driver tells.
    pub identity: String,
}

/// The limits that a device was granted when it was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The maximum number of bytes that one kernel argument can see.
    pub binding: u64,
    /// The maximum number of bytes of one allocation.
    pub buffer: u64,
    /// The maximum number of workgroups along one axis of a grid.
    pub groups_per_axis: u32,
    /// Bytes of memory that a workgroup shares.
    pub workgroup_memory: u32,
    /// The maximum number of invocations of a workgroup.
    pub workgroup_size: u32,
    /// Bytes that the start of a kernel argument is a multiple of.
    pub alignment: u64,
    /// Bytes that one of two launches after each other should touch, where work can be cut anywhere: what stays in a
    /// processor's cache, or what fills a GPU.
    pub(crate) step: u64,
    /// Workgroups that one launch should have at least, where work can be cut anywhere: several for each processor of the
    /// device, so that none is idle.
    pub(crate) fill: u32,
    /// Multiprocessors, each of which runs some workgroups at a time: launches of whole waves of those leave none idle. 0 where that is
    /// not known.
    pub(crate) processors: u32,
    /// The maximum number of terms (a multiplication and an addition) that one launch should have, where work can be cut anywhere: so few that no
    /// display stalls and no watchdog bites, where there may be one.
    pub(crate) work: u64,
    /// The maximum number of iterations of all loops of one invocation together: Mesa's software Vulkan ends them after as many, and reports nothing.
    pub(crate) iterations: u32,
    /// True where kernels can compute in f64. All devices store it.
    pub f64: bool,
    /// True where kernels store single bytes, and not only words.
    pub(crate) stores_bytes: bool,
}

impl Limits {
    /// Terms of a launch on a device of which nothing is known: some 50 ms at 340 GFLOP/s.
    pub(crate) const SMALL_WORK: u64 = 1 << 33;

    /// For benchmarks: workgroups that one launch should have at least, where work can be cut anywhere.
    #[doc(hidden)]
    pub const fn fill(&self) -> u32 {
        self.fill
    }

    /// The maximum number of bytes of a tensor that one launch can see, wherever they start: a window begins at the alignment before them and
    /// ends with a whole word, and kernels count in 32 bits.
    pub(crate) fn room(&self) -> u64 {
        self.binding.saturating_sub(self.alignment + 4).min(u32::MAX.into())
    }

    /// The maximum number of rows of `cols` f32 that one launch of `wg` invocations a group, an element each, can see and write.
    ///
    /// # Errors
    /// [`Error::Limit`] when one row does not fit a binding.
    pub(crate) fn rows_per_launch(&self, cols: u64, wg: u32) -> Result<u64> {
        let room = self.room();
        let items = u64::from(self.groups_per_axis).saturating_pow(2).saturating_mul(wg.into());
        let rows = (room / 4).min(items) / cols.max(1);
        if rows == 0 {
            return Err(Error::Limit {
                what: "bytes in one row of a matrix",
                requested: cols * 4,
                max: room,
            });
        }
        Ok(rows)
    }
}

/// The maximum number of threads of a device.
const MAX_THREADS: usize = 1024;

/// Options to open a device with.
///
/// ```
/// use teatime::{Device, DeviceOptions};
/// let device = Device::open_with("cpu", &DeviceOptions::default().threads(2))?;
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// Threads that decode and, on the cpu device, compute. Default: as many as the process may run at once.
    pub threads: Option<usize>,
    /// Lowers [`Limits::binding`], in bytes; for testing how work is split.
    pub(crate) binding: Option<u64>,
    /// Lowers [`Limits::groups_per_axis`], and on wgpu a workgroup's memory to the least that adapters have; for testing how work is split.
    pub(crate) groups_per_axis: Option<u32>,
    /// Sets `Limits::step`, in bytes, for benchmarks that compare. Packed products stay the same to the bit.
    pub(crate) step: Option<u64>,
    /// Sets `Limits::fill`, and that it is not known how many workgroups run at a time, for benchmarks that compare. Packed products stay the same
    /// to the bit.
    pub(crate) fill: Option<u32>,
    /// Sets `Limits::work`, in multiplications with an addition, for benchmarks that compare. Results stay the same to the bit.
    pub(crate) work: Option<u64>,
    /// Fills new memory with NaN and puts guard words behind it, which every read checks; for testing kernels.
    pub checked: bool,
    /// Keeps matrix products to our own kernels where a vendor's library (cuBLAS) would make them; for comparing the two.
    pub own_kernels: bool,
    /// Lets cuBLAS multiply f32 as TF32, with 10 bits of mantissa instead of 23: faster, and errors of 1e-3 instead of
    /// 1e-7. Never done unless asked for here.
    pub tf32: bool,
}

/// A device in a list of all there are.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedDevice {
    /// The name to give to [`Device::open`](crate::Device::open), also where it is not usable.
    pub name: String,
    /// Its properties, or the reason why it cannot be used.
    pub info: Result<DeviceInfo, String>,
    /// The first entry of the list that is the same card.
    pub same_card_as: Option<String>,
}

crate::setters! {
    DeviceOptions {
        threads(impl Into<Option<usize>>) = threads.into(),
        #[doc(hidden)]
        binding(impl Into<Option<u64>>) = binding.into(),
        #[doc(hidden)]
        groups_per_axis(impl Into<Option<u32>>) = groups_per_axis.into(),
        #[doc(hidden)]
        step(impl Into<Option<u64>>) = step.into(),
        #[doc(hidden)]
        fill(impl Into<Option<u32>>) = fill.into(),
        #[doc(hidden)]
        work(impl Into<Option<u64>>) = work.into(),
        checked(bool),
        own_kernels(bool),
        tf32(bool),
    }
}

impl DeviceOptions {
    pub(crate) fn check(&self) -> Result<()> {
        let op = "Device::open_with";
        if let Some(threads) = self.threads.filter(|threads| !(1..=MAX_THREADS).contains(threads)) {
            return Err(Error::argument(op, "threads", format_args!("{threads}; it is 1 to {MAX_THREADS}")));
        }
        if self.binding.is_some_and(|bytes| bytes < 16 << 10) {
            return Err(Error::argument(op, "binding", "below 16 KiB, less than any device has"));
        }
        if self.groups_per_axis.is_some_and(|groups| groups < 16) {
            return Err(Error::argument(op, "groups_per_axis", "below 16, less than any device has"));
        }
        if self.step == Some(0) {
            return Err(Error::argument(op, "step", "0; a launch touches at least one byte"));
        }
        if self.work == Some(0) {
            return Err(Error::argument(op, "work", "0; a launch has at least one term"));
        }
        if self.fill == Some(0) {
            return Err(Error::argument(op, "fill", "0; a launch has at least one workgroup"));
        }
        Ok(())
    }

    /// The limits that were granted, as the options change them.
    pub(crate) fn lower(&self, granted: Limits) -> Limits {
        Limits {
            binding: self.binding.unwrap_or(u64::MAX).min(granted.binding),
            groups_per_axis: self.groups_per_axis.unwrap_or(u32::MAX).min(granted.groups_per_axis),
            step: self.step.unwrap_or(granted.step),
            fill: self.fill.unwrap_or(granted.fill),
            processors: if self.fill.is_some() { 0 } else { granted.processors },
            work: self.work.unwrap_or(granted.work),
            ..granted
        }
    }
}
