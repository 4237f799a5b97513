//! Finds CUDA devices and opens them.
#![allow(unsafe_code, reason = "questions about a device that cudarc's safe layer asks only of an open one")]

use std::{cmp::Reverse, sync::Arc};

use cudarc::driver::{CudaContext, CudaStream, DriverError, result, sys};

use super::{
    CudaDriver,
    blas::Blas,
    gpu::Gpu,
    images::Images,
    libraries,
    modules::Modules,
    nvrtc::Nvrtc,
    tuning::{Card, LEAST_LIMITS},
};
use crate::{
    Backend, DeviceInfo, DeviceKind, DeviceOptions, Error, Limits, Result, driver::Driver, kernel::KernelDef,
};

/// The oldest CUDA version that a driver may have: the version whose PTX is shipped.
const OLDEST_DRIVER: i32 = 12_000;
/// The oldest supported generation of GPUs (Turing): the newest compiler supports no older one.
const LEAST_CAPABILITY: (i32, i32) = (7, 5);

/// The prefix of the name of an emulated device, whose kernels run on the CPU.
const EMULATOR: &str = "CUDA emulator";

/// The name of a device that an application lends.
const LENT: &str = "cuda:lent";

/// Opens the device with the most memory that works and is not emulated; `skipped` gets the devices that could not be used, with reasons.
pub(crate) fn best(
    sample: &'static KernelDef,
    options: &DeviceOptions,
    skipped: &mut Vec<(String, String)>,
) -> Option<Box<dyn Driver>> {
    let devices = match Devices::find(sample) {
        Ok(devices) => devices,
        Err(Absent::Nothing(_)) => return None,
        Err(Absent::Unusable(why)) => {
            skipped.push(("cuda".into(), why));
            return None;
        }
    };
    let mut usable = Vec::new();
    for place in 0..devices.count {
        match devices.describe(place) {
            Ok(info) if info.kind == DeviceKind::Software => {}
            Ok(info) => usable.push((place, info.memory)),
            Err(why) => skipped.push((format!("cuda:{place}"), why)),
        }
    }
    // The sort is stable: devices with equal memory keep their order.
    usable.sort_by_key(|&(_, memory)| Reverse(memory));
    usable.into_iter().find_map(|(place, _)| match devices.open(place, options) {
        Ok(driver) => Some(driver),
        Err(refused) => {
            skipped.push((format!("cuda:{place}"), refused.why()));
            None
        }
    })
}

/// Opens the device that `selector` names: a number, or an empty text for the first device. Fails with
/// [`Error::NoDevice`] with the reason if there is no such device or it cannot be used.
pub(crate) fn open(
    sample: &'static KernelDef,
    selector: &str,
    options: &DeviceOptions,
) -> Result<Box<dyn Driver>> {
    let wanted = if selector.is_empty() { "cuda".into() } else { format!("cuda:{selector}") };
    let refuse = |tried| Error::NoDevice { wanted: wanted.as_str().into(), tried };
    let Ok(devices) = Devices::find(sample) else { return Err(refuse(Vec::new())) };
    let place = if selector.is_empty() { Some(0) } else { selector.parse().ok() };
    let Some(place) = place.filter(|&place| place < devices.count) else { return Err(refuse(Vec::new())) };
    devices.open(place, options).map_err(|why| match why {
        Refused::Why(why) => refuse(vec![(format!("cuda:{place}"), why)]),
        Refused::Failed(error) => error,
    })
}

/// Opens the device with this number, even if the number is above the device count.
#[cfg(all(any(test, feature = "suite"), feature = "cuda-emulator"))]
pub(crate) fn open_place(
    sample: &'static KernelDef,
    place: usize,
    options: &DeviceOptions,
) -> Result<Box<dyn Driver>> {
    let devices = Devices::find(sample).unwrap_or_else(|absent| panic!("{}", absent.why()));
    devices.open(place, options).map_err(|why| match why {
        Refused::Why(why) => panic!("device {place} should open: {why}"),
        Refused::Failed(error) => error,
    })
}

/// Lists every device with the name that [`open`] takes, or the reason why there is none.
pub(crate) fn list(sample: &'static KernelDef) -> Vec<(String, Result<DeviceInfo, String>)> {
    match Devices::find(sample) {
        Ok(devices) => {
            (0..devices.count).map(|place| (format!("cuda:{place}"), devices.describe(place))).collect()
        }
        Err(absent) => vec![("cuda".into(), Err(absent.why()))],
    }
}

/// Makes a driver from a context and a stream that an application made. Fails with [`Error::Argument`] if the stream
/// belongs to another context or the device cannot run the kernels.
pub(crate) fn lent(
    sample: &'static KernelDef,
    context: Arc<CudaContext>,
    stream: Arc<CudaStream>,
    options: &DeviceOptions,
) -> Result<Box<dyn Driver>> {
    let op = "Device::from_cuda";
    if stream.context().cu_ctx() != context.cu_ctx() {
        return Err(Error::argument(op, "stream", "it belongs to another context"));
    }
    let refuse = |why: String| Error::argument(op, "context", why);
    let device = Device::new(context.ordinal()).map_err(refuse)?;
    device.usable(sample).map_err(refuse)?;
    let info = DeviceInfo { name: LENT.into(), ..device.describe().map_err(refuse)? };
    let driver = device.driver(context, stream, info, options);
    Ok(Box::new(driver.map_err(super::gpu::driver_error)?))
}

/// Returns the number of the device that has the memory at an address. Fails with [`Error::NoDevice`] if there is no
/// CUDA; [`Error::Argument`] if no device has the memory.
pub(crate) fn place_of(op: &'static str, address: u64) -> Result<i32> {
    let none = |why| Error::NoDevice { wanted: "cuda".into(), tried: vec![("cuda".into(), why)] };
    libraries::driver().map_err(none)?;
    let asked = some_context().and_then(|_kept| {
        let mut place = -1;
        let wanted = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        // SAFETY: the library is loaded, and the attribute's type is int.
        unsafe { sys::cuPointerGetAttribute((&raw mut place).cast(), wanted, address) }.result()?;
        Ok(place)
    });
    asked.map_err(|error| {
        Error::argument(
            op,
            "address",
            format_args!("{address:#x} is in the memory of no CUDA device: {error}"),
        )
    })
}

/// Makes a context current if the thread has none. Uses a context that exists already, since a new one would take memory of a device.
fn some_context() -> Result<Option<Arc<CudaContext>>, DriverError> {
    result::init()?;
    if result::ctx::get_current()?.is_some() {
        return Ok(None);
    }
    for place in 0..CudaContext::device_count()? {
        let (mut flags, mut active) = (0, 0);
        // SAFETY: the library is loaded, and the device number is below the device count.
        unsafe {
            sys::cuDevicePrimaryCtxGetState(result::device::get(place)?, &raw mut flags, &raw mut active)
        }
        .result()?;
        if active != 0 {
            let context = CudaContext::new(usize::try_from(place).unwrap_or_default())?;
            context.bind_to_thread()?;
            return Ok(Some(context));
        }
    }
    Ok(None)
}

/// Returns NVRTC and cuBLAS with their versions, or how to install them.
pub(crate) fn versions() -> Vec<String> {
    let version = libraries::driver_version();
    let nvrtc = match Nvrtc::best(version) {
        Ok(nvrtc) => {
            let (major, minor) = nvrtc.version();
            format!("NVRTC {major}.{minor}")
        }
        Err(why) => format!("NVRTC: {why}"),
    };
    let cublas = match super::blas::version(version) {
        Ok(version) => format!("cuBLAS {version}"),
        Err(why) => format!("cuBLAS: {why}"),
    };
    vec![nvrtc, cublas]
}

/// The reason why a device did not open.
enum Refused {
    Why(String),
    Failed(Error),
}

impl Refused {
    fn why(self) -> String {
        match self {
            Self::Why(why) => why,
            Self::Failed(error) => error.to_string(),
        }
    }
}

/// The reason why there are no devices.
enum Absent {
    /// There is no driver, or no GPU.
    Nothing(String),
    /// There is a driver, but it cannot be used.
    Unusable(String),
}

impl Absent {
    fn why(self) -> String {
        match self {
            Self::Nothing(why) | Self::Unusable(why) => why,
        }
    }
}

/// The devices that CUDA shows this process.
struct Devices {
    count: usize,
    sample: &'static KernelDef,
}

impl Devices {
    /// Loads and initialises CUDA; never panics.
    fn find(sample: &'static KernelDef) -> Result<Self, Absent> {
        libraries::driver().map_err(Absent::Nothing)?;
        // SAFETY: the library is loaded. The version is checked first, since an older driver lacks functions that are called later.
        let version = unsafe {
            let mut version = 0;
            sys::cuDriverGetVersion(&raw mut version).result().map(|()| version)
        };
        let version = version.map_err(|error| Absent::Unusable(said(error)))?;
        if version < OLDEST_DRIVER {
            return Err(Absent::Unusable(format!(
                "the NVIDIA driver is for CUDA {}, and CUDA {} is the oldest that will do: please update the driver",
                version_text(version),
                version_text(OLDEST_DRIVER)
            )));
        }
        let none = || Absent::Nothing("the NVIDIA driver is installed, and there is no GPU".into());
        match CudaContext::device_count() {
            Ok(count @ 1..) => Ok(Self { count: usize::try_from(count).unwrap_or_default(), sample }),
            Ok(_) => Err(none()),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_NO_DEVICE => Err(none()),
            Err(error) => Err(Absent::Unusable(format!("the NVIDIA driver does not start: {error}"))),
        }
    }

    fn describe(&self, place: usize) -> Result<DeviceInfo, String> {
        let device = Device::new(place)?;
        device.usable(self.sample)?;
        device.describe()
    }

    fn open(&self, place: usize, options: &DeviceOptions) -> Result<Box<dyn Driver>, Refused> {
        let device = Device::new(place).map_err(Refused::Why)?;
        device.usable(self.sample).map_err(Refused::Why)?;
        let info = device.describe().map_err(Refused::Why)?;
        let opened = CudaContext::new(place).and_then(|context| {
            let stream = context.new_stream()?;
            device.driver(context, stream, info, options)
        });
        match opened {
            Ok(driver) => Ok(Box::new(driver)),
            Err(error) if error.0 == sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY => {
                Err(Refused::Failed(Error::OutOfMemory { requested: 0, free: None }))
            }
            Err(error) => Err(Refused::Why(said(error))),
        }
    }
}

/// A device, which may not be open.
struct Device {
    place: usize,
    handle: sys::CUdevice,
}

impl Device {
    fn new(place: usize) -> Result<Self, String> {
        let ordinal = i32::try_from(place).map_err(|error| error.to_string())?;
        result::init()
            .and_then(|()| result::device::get(ordinal))
            .map_err(said)
            .map(|handle| Self { place, handle })
    }

    fn attribute(&self, attribute: sys::CUdevice_attribute) -> Result<i32, String> {
        // SAFETY: the handle came from the driver.
        unsafe { result::device::get_attribute(self.handle, attribute) }.map_err(said)
    }

    fn capability(&self) -> Result<(i32, i32), String> {
        use sys::CUdevice_attribute as A;
        let major = self.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Ok((major, self.attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
    }

    /// Refuses a device that cannot run kernels. If there is code for `sample`, there is code for all kernels of this version.
    fn usable(&self, sample: &'static KernelDef) -> Result<(), String> {
        let name = || result::device::get_name(self.handle).unwrap_or_else(|_| "this GPU".into());
        let (major, minor) = self.capability()?;
        if (major, minor) < LEAST_CAPABILITY {
            return Err(format!(
                "{}: compute capability {major}.{minor}, and kernels need 7.5, the oldest that NVIDIA's compiler 13 knows",
                name()
            ));
        }
        if self.attribute(sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)? == 0 {
            return Err(format!("{}: it has no memory pools", name()));
        }
        self.images()
            .any(sample)
            .map_err(|why| format!("{}: there is no code for its kernels: {why}", name()))
    }

    fn images(&self) -> Images {
        Images::new(self.capability().unwrap_or(LEAST_CAPABILITY), libraries::driver_version())
    }

    fn describe(&self) -> Result<DeviceInfo, String> {
        use sys::CUdevice_attribute as A;
        let description = result::device::get_name(self.handle).map_err(said)?;
        let (major, minor) = self.capability()?;
        let bus = [
            A::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID,
            A::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID,
            A::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID,
        ];
        let [domain, bus, slot] = bus.map(|id| self.attribute(id).unwrap_or_default());
        let kind = if description.starts_with(EMULATOR) {
            DeviceKind::Software
        } else if self.attribute(A::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0 {
            DeviceKind::Integrated
        } else {
            DeviceKind::Discrete
        };
        // SAFETY: the handle came from the driver.
        let memory = unsafe { result::device::total_mem(self.handle) }.map_err(said)?;
        Ok(DeviceInfo {
            name: format!("cuda:{}", self.place),
            backend: Backend::Cuda,
            api: format!("CUDA {}", version_text(libraries::driver_version())),
            kind,
            vendor: if kind == DeviceKind::Software { String::new() } else { "NVIDIA".into() },
            driver: kernel_module(),
            memory: Some(memory as u64),
            compute_capability: Some((major.unsigned_abs(), minor.unsigned_abs())),
            // The address is written as Vulkan's drivers write it, so that a card has the same identity in both.
            identity: format!("{domain:04x}:{bus:02x}:{slot:02x}.0"),
            description,
        })
    }

    fn driver(
        &self,
        context: Arc<CudaContext>,
        stream: Arc<CudaStream>,
        info: DeviceInfo,
        options: &DeviceOptions,
    ) -> Result<CudaDriver, DriverError> {
        let granted = self.limits(&info).unwrap_or(LEAST_LIMITS);
        Ok(CudaDriver {
            gpu: Arc::new(Gpu::new(context, stream, info.name.clone())?),
            limits: options.lower(granted),
            info,
            modules: Modules::new(self.images()),
            blas: Blas::default(),
            own_kernels: options.own_kernels,
            tf32: options.tf32,
        })
    }

    fn limits(&self, info: &DeviceInfo) -> Result<Limits, String> {
        use sys::CUdevice_attribute as A;
        let attribute = |which| self.attribute(which).map(i32::unsigned_abs);
        let card = Card {
            memory: info.memory.unwrap_or(LEAST_LIMITS.buffer),
            capability: self.capability()?,
            multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
            kilohertz: attribute(A::CU_DEVICE_ATTRIBUTE_CLOCK_RATE)?,
            has_watchdog: attribute(A::CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT)? != 0,
        };
        Ok(Limits {
            workgroup_memory: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?,
            workgroup_size: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK)?,
            groups_per_axis: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y)?,
            ..card.limits()
        })
    }
}

/// Formats a version: 13010 as 13.1.
fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// Returns the version of the operating system's kernel module if the system reports it: `580.159.03`.
fn kernel_module() -> String {
    let text = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    // The line has this form: NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue ...
    let version = line
        .split_whitespace()
        .find(|word| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.'));
    version.unwrap_or_default().into()
}

fn said(error: DriverError) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        assert_eq!(version_text(13_000), "13.0");
        assert_eq!(version_text(12_080), "12.8");
    }
}
