//! Properties of devices, the limits that devices grant, and options for opening them.

use std::{env, fmt};

use crate::{DType, Error, Result};

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

/// The kind of hardware of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the host's memory.
    Integrated,
    /// A GPU lent by a hypervisor.
    Virtual,
    /// A GPU interface emulated on the processor (lavapipe, WARP).
    Software,
    /// The processor itself.
    Cpu,
    /// A kind that the driver does not report.
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
    /// The driver that the device runs on.
    pub backend: Backend,
    /// The underlying programming interface: `vulkan`, `metal`, `dx12`, `gl`, or the processor's architecture.
    pub api: String,
    /// The kind of hardware.
    pub kind: DeviceKind,
    /// The maker, if known.
    pub vendor: String,
    /// The name and version of the hardware's driver.
    pub driver: String,
    /// The memory of the device in bytes, if the driver reports it.
    pub memory: Option<u64>,
    /// The compute capability (major, minor) of an NVIDIA GPU, if the driver reports it.
    pub compute_capability: Option<(u32, u32)>,
    /// An identity that entries of the same card share: its PCI address, such as `0000:65:00.0`, if the driver reports it.
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
    /// The number of bytes of memory that a workgroup shares.
    pub workgroup_memory: u32,
    /// The maximum number of invocations of a workgroup.
    pub workgroup_size: u32,
    /// The number of bytes that the start of a kernel argument is a multiple of.
    pub alignment: u64,
    /// The number of bytes that each of several consecutive launches should touch if work can be divided freely: the size of a processor's
    /// cache, or enough to fill a GPU.
    pub(crate) step: u64,
    /// The minimum number of workgroups of a launch if work can be divided freely: several for each processor of the device, so that none is
    /// idle.
    pub(crate) fill: u32,
    /// The number of multiprocessors, each of which runs several workgroups at a time. Launches of whole waves of workgroups leave none idle. 0
    /// if unknown.
    pub(crate) processors: u32,
    /// The number of bytes of memory that all workgroups of a multiprocessor share; 0 if unknown.
    pub(crate) processor_memory: u32,
    /// The maximum number of terms (a multiplication and an addition) of a launch if work can be divided freely: low enough that no display
    /// stalls and no watchdog ends the launch.
    pub(crate) work: u64,
    /// The number of terms in f32 that take as long as a term in f64.
    pub(crate) f64_cost: u64,
    /// The maximum number of terms that a launch of a product in f32 adds up before it begins another sum: 2^32 - 1 if it adds up all.
    pub(crate) terms: u32,
    /// The maximum number of iterations of all loops of one invocation together. Mesa's software Vulkan ends loops at this number without an
    /// error.
    pub(crate) iterations: u32,
    /// True if each element of a product in f32 is the same sum whatever the product's extents are. False if the cpu's code, or a vendor's
    /// library, chooses a way by them.
    pub(crate) same_sums: bool,
    /// True if a vendor's library may round the factors of a product in f32 to TF32, for callers that allow it.
    pub(crate) tf32: bool,
    /// True if kernels can compute in f64. All devices can store f64.
    pub f64: bool,
    /// True if kernels can store single bytes instead of whole words.
    pub(crate) stores_bytes: bool,
}

impl Limits {
    /// The number of terms of a sum in f32 on the cpu device, before it is added to other sums.
    pub(crate) const TERMS: u32 = 256;
    /// The number of terms of a launch on an unknown device: about 50 ms at 340 GFLOP/s.
    pub(crate) const SMALL_WORK: u64 = 1 << 33;

    /// Returns the number of bytes that each of several consecutive launches should touch. For benchmarks.
    #[doc(hidden)]
    pub const fn step(&self) -> u64 {
        self.step
    }

    /// Returns the minimum number of workgroups of a launch if work can be divided freely. For benchmarks.
    #[doc(hidden)]
    pub const fn fill(&self) -> u32 {
        self.fill
    }

    /// Returns the maximum number of terms of a launch if work can be divided freely and terms are of this type.
    pub(crate) fn work_of(&self, dtype: DType) -> u64 {
        if dtype == DType::F64 { (self.work / self.f64_cost).max(1) } else { self.work }
    }

    /// Returns true if this number of large workgroups fills three quarters of the device. A large workgroup takes the place of four others.
    pub(crate) fn is_filled_by_large(&self, groups: u64) -> bool {
        16 * groups >= 3 * u64::from(self.fill)
    }

    /// Returns the maximum number of bytes of a tensor that one launch can see, wherever the bytes start: a window begins at the preceding
    /// alignment and ends with a whole word, and kernels count in 32 bits.
    pub(crate) fn room(&self) -> u64 {
        self.binding.saturating_sub(self.alignment + 4).min(u32::MAX.into())
    }

    /// Returns the maximum number of rows of `cols` f32 for one launch, with an element for each invocation and `wg`
    /// invocations in a group. Fails with [`Error::Limit`] when one row does not fit a binding.
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
pub(crate) const MAX_THREADS: usize = 1024;

/// Options for opening a device.
///
/// ```
/// use teatime::{Device, DeviceOptions};
/// let device = Device::open_with("cpu", &DeviceOptions::default().threads(2))?;
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// The number of threads that decode and, on the cpu device, compute. Default: the number that the environment variable `TEATIME_THREADS`
    /// names, otherwise as many as the process may run at once.
    pub threads: Option<usize>,
    /// Lowers [`Limits::binding`], in bytes; for tests of the division of work.
    pub(crate) binding: Option<u64>,
    /// Lowers [`Limits::groups_per_axis`], and on wgpu a workgroup's memory to the minimum of all adapters; for tests of the division of work.
    pub(crate) groups_per_axis: Option<u32>,
    /// Sets `Limits::step`, in bytes, for benchmarks. Packed products stay the same to the bit.
    pub(crate) step: Option<u64>,
    /// Sets `Limits::fill`, and marks the number of multiprocessors as unknown, for benchmarks. Packed products stay the same to the bit.
    pub(crate) fill: Option<u32>,
    /// Sets `Limits::work`, in terms (a multiplication and an addition), for benchmarks. Results of this crate's own kernels stay the same
    /// to the bit.
    pub(crate) work: Option<u64>,
    /// Fills new memory with NaN and appends guard words, which every read checks; for testing kernels.
    pub checked: bool,
    /// Uses this crate's own kernels for matrix products in place of a vendor's library (cuBLAS); for benchmarks.
    pub own_kernels: bool,
    /// Lets cuBLAS multiply f32 as TF32, with 10 bits of mantissa instead of 23: faster, with errors of 1e-3 instead of 1e-7. Off by default.
    pub tf32: bool,
}

/// An entry in the list of all devices.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListedDevice {
    /// The name for [`Device::open`](crate::Device::open), present even if the device is not usable.
    pub name: String,
    /// The device's properties, or the reason why it cannot be used.
    pub info: Result<DeviceInfo, String>,
    /// The name of the first entry of the list that is the same card.
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
        checked(bool),
        own_kernels(bool),
        tf32(bool),
    }
}

impl DeviceOptions {
    /// Returns the options, with the number of threads that the environment names unless they have one. Fails with
    /// [`Error::Argument`] for options that no device can have, and for a variable that is not a number of threads.
    pub(crate) fn resolved(&self) -> Result<Self> {
        let (op, variable) = ("Device::open_with", "TEATIME_THREADS");
        let mut options = self.clone();
        let named = env::var_os(variable).filter(|text| !text.is_empty() && self.threads.is_none());
        let (argument, threads) = match &named {
            Some(text) => (variable, Some(text.to_string_lossy().into_owned())),
            None => ("threads", self.threads.map(|threads| threads.to_string())),
        };
        if let Some(text) = threads {
            let threads = text.trim().parse().ok().filter(|threads| (1..=MAX_THREADS).contains(threads));
            let why = || Error::argument(op, argument, format_args!("{text}; it is 1 to {MAX_THREADS}"));
            options.threads = Some(threads.ok_or_else(why)?);
        }
        let (groups, fill) = (self.groups_per_axis.map(u64::from), self.fill.map(u64::from));
        let least = [
            ("binding", self.binding, 16 << 10, "below 16 KiB, less than any device has"),
            ("groups_per_axis", groups, 16, "below 16, less than any device has"),
            ("step", self.step, 1, "0; a launch touches at least one byte"),
            ("work", self.work, 1, "0; a launch has at least one term"),
            ("fill", fill, 1, "0; a launch has at least one workgroup"),
        ];
        match least.into_iter().find(|&(_, value, least, _)| value.is_some_and(|value| value < least)) {
            Some((name, _, _, why)) => Err(Error::argument(op, name, why)),
            None => Ok(options),
        }
    }

    /// Returns the granted limits, lowered or changed by the options.
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
