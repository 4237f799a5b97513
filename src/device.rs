//! Devices: choosing one, and what it is.

mod memory;
mod traffic;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, PoisonError, Weak, atomic::Ordering},
};

use rayon::{ThreadPool, prelude::*};

pub(crate) use self::memory::{Buffer, POISON};
pub use self::traffic::Traffic;
use self::{memory::Usage, traffic::Counts};
#[cfg(feature = "cuda")]
use crate::kernels::KERNELS;
use crate::{
    Backend, Cancel, DeviceInfo, DeviceOptions, Error, Limits, ListedDevice, Real, Result,
    driver::{
        Driver,
        cpu::{CpuDriver, FREE_BYTES},
    },
    waiting::install,
};

/// A processor that computes: a GPU or the CPU. Clones are the same device.
///
/// Operations enqueue in program order and mostly do not wait; reading a tensor waits. All methods can be called
/// from any thread.
///
/// ```
/// let device = teatime::Device::cpu();
/// let x = teatime::Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0], &[3])?;
/// assert_eq!(x.read()?, [1.0, 2.0, 3.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Clone)]
pub struct Device {
    inner: Arc<Inner>,
    /// The flag that ends calls with this handle.
    cancel: Option<Cancel>,
    /// The devices that were tried before this one and could not be used, and why.
    skipped: Arc<[(String, String)]>,
}

/// Devices that were opened by name and are in use, with their options.
static OPENED: Mutex<Vec<(DeviceOptions, Weak<Inner>)>> = Mutex::new(Vec::new());

struct Inner {
    driver: Box<dyn Driver>,
    usage: Arc<Usage>,
    counts: Counts,
    checked: bool,
    threads: Option<usize>,
    pool: OnceLock<Arc<ThreadPool>>,
    /// The host as a device with these threads, once it is asked for.
    host: OnceLock<Arc<Self>>,
}

/// A backend's fastest device, if it is worth taking; what could not be used is added to the list.
type Best = fn(&DeviceOptions, &mut Vec<(String, String)>) -> Option<Box<dyn Driver>>;

/// The backends with devices faster than the CPU, in the order in which they are asked.
const BEST: &[Best] = &[
    #[cfg(feature = "cuda")]
    |options, skipped| crate::driver::cuda::best(KERNELS[0], options, skipped),
    #[cfg(feature = "wgpu")]
    crate::driver::wgpu::best,
];

impl Device {
    /// The device that is fastest for most work: a GPU through CUDA (of several, the one with most memory), a discrete GPU
    /// or Apple's through wgpu, else the CPU. One that cannot be used, as a GPU for which there is no code of kernels, is
    /// [`skipped`](Self::skipped).
    ///
    /// The environment variable `TEATIME_DEVICE` names another. Integrated and software adapters are chosen only by
    /// name.
    ///
    /// # Errors
    /// [`Error::NoDevice`] when `TEATIME_DEVICE` names a device that does not exist.
    pub fn best() -> Result<Self> {
        Self::best_with(&DeviceOptions::default())
    }

    /// [`best`](Self::best) with options.
    ///
    /// # Errors
    /// As [`best`](Self::best).
    pub fn best_with(options: &DeviceOptions) -> Result<Self> {
        if let Some(name) = std::env::var("TEATIME_DEVICE").ok().filter(|name| !name.is_empty()) {
            return Self::open_with(&name, options);
        }
        let mut skipped = Vec::new();
        let driver = BEST.iter().find_map(|best| best(options, &mut skipped));
        let device = match driver {
            Some(driver) => Self::opened(driver, options),
            None => Self::open_with("cpu", options)?,
        };
        Ok(Self { skipped: skipped.into(), ..device })
    }

    /// The devices that [`best`](Self::best) would have chosen before this one and could not use: the name of each, and
    /// why. None on a device that was opened by name.
    pub fn skipped(&self) -> &[(String, String)] {
        &self.skipped
    }

    /// The device of that name: `cpu`, `cuda`, `cuda:N`, `wgpu`, `wgpu:N`, `wgpu:vulkan` (or `metal`, `dx12`, `gl`), `wgpu:vulkan:N`,
    /// or `wgpu:` and a part of the hardware's name or its [identity](DeviceInfo::identity), as `wgpu:0000:65:00.0`. One that is open is
    /// [the same](Self::is_same) device.
    ///
    /// # Errors
    /// [`Error::NoDevice`] with the names that exist, of every backend.
    pub fn open(name: &str) -> Result<Self> {
        Self::open_with(name, &DeviceOptions::default())
    }

    /// [`open`](Self::open) with options.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::Argument`] for zero threads or limits below those of any device.
    pub fn open_with(name: &str, options: &DeviceOptions) -> Result<Self> {
        options.check()?;
        let opened = match name.split_once(':').map_or(name, |(backend, _)| backend) {
            "cpu" if name == "cpu" => {
                let pool = Arc::new(thread_pool(options.threads)?);
                let driver = CpuDriver::new(
                    pool.clone(),
                    options.lower(CpuDriver::limits(pool.current_num_threads())),
                );
                let device = Self::from_driver(Box::new(driver), options);
                // A new device has no pool yet, so this one is set.
                device.inner.pool.get_or_init(|| pool);
                return Ok(device);
            }
            #[cfg(feature = "cuda")]
            "cuda" => {
                let selector = name.strip_prefix("cuda").unwrap_or_default().trim_start_matches(':');
                crate::driver::cuda::open(KERNELS[0], selector, options)
            }
            #[cfg(feature = "wgpu")]
            "wgpu" => {
                let selector = name.strip_prefix("wgpu").unwrap_or_default().trim_start_matches(':');
                crate::driver::wgpu::open(selector, options)
            }
            _ => Err(Error::NoDevice { wanted: name.into(), tried: Vec::new() }),
        };
        match opened {
            Ok(driver) => Ok(Self::opened(driver, options)),
            Err(error) => Err(Self::with_all(error)),
        }
    }

    /// The CPU with as many threads as the process may run at once. Each call starts threads of its own.
    ///
    /// # Panics
    /// When the system can start no thread.
    pub fn cpu() -> Self {
        Self::open("cpu").expect("the system should be able to start threads")
    }

    /// Every device of this machine, and for what could be there and is not, why.
    pub fn all() -> Vec<ListedDevice> {
        let cpu = Self::open("cpu").map(|device| device.info().clone());
        let mut list = vec![("cpu".to_owned(), cpu.map_err(|error| error.to_string()))];
        #[cfg(feature = "cuda")]
        list.extend(crate::driver::cuda::list(KERNELS[0]));
        #[cfg(not(feature = "cuda"))]
        list.push(("cuda".into(), Err("this build has no CUDA driver (cargo feature `cuda`)".into())));
        #[cfg(feature = "wgpu")]
        list.extend(crate::driver::wgpu::list());
        #[cfg(not(feature = "wgpu"))]
        list.push(("wgpu".into(), Err("this build has no wgpu driver (cargo feature `wgpu`)".into())));
        let mut devices: Vec<ListedDevice> = Vec::new();
        for (name, info) in list {
            let same = info.as_ref().ok().and_then(|info: &DeviceInfo| {
                devices.iter().find(|other| other.info.as_ref().is_ok_and(|o| o.identity == info.identity))
            });
            let same_card_as = same.map(|other| other.name.clone());
            devices.push(ListedDevice { name, info, same_card_as });
        }
        devices
    }

    /// Adds the devices of other backends to the error for a missing device.
    fn with_all(error: Error) -> Error {
        let Error::NoDevice { wanted, mut tried } = error else { return error };
        for ListedDevice { name, info, .. } in Self::all() {
            if tried.iter().all(|(tried, _)| *tried != name) {
                tried.push((
                    name,
                    info.map_or_else(|why| format!("not here: {why}"), |info| info.description),
                ));
            }
        }
        Error::NoDevice { wanted, tried }
    }

    pub(crate) fn from_driver(driver: Box<dyn Driver>, options: &DeviceOptions) -> Self {
        let inner = Inner {
            driver,
            usage: Arc::default(),
            counts: Counts::default(),
            checked: options.checked,
            threads: options.threads,
            pool: OnceLock::new(),
            host: OnceLock::new(),
        };
        Self { inner: Arc::new(inner), cancel: None, skipped: Arc::default() }
    }

    /// The device of a driver that was opened by name: one that is in use already, if it is the same, had the same options and is not lost.
    fn opened(driver: Box<dyn Driver>, options: &DeviceOptions) -> Self {
        let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
        opened.retain(|(_, inner)| inner.strong_count() > 0);
        let same = opened.iter().filter(|(with, _)| with == options).find_map(|(_, inner)| {
            inner.upgrade().filter(|inner| inner.driver.info() == driver.info() && !inner.driver.is_lost())
        });
        if let Some(inner) = same {
            return Self { inner, cancel: None, skipped: Arc::default() };
        }
        let device = Self::from_driver(driver, options);
        opened.push((options.clone(), Arc::downgrade(&device.inner)));
        device
    }

    /// The name and properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        self.inner.driver.info()
    }

    /// The limits that the device was granted.
    pub fn limits(&self) -> &Limits {
        self.inner.driver.limits()
    }

    /// # Errors
    /// [`Error::NoF64`] unless kernels compute in f64 there.
    pub(crate) fn computes_f64(&self, op: &'static str) -> Result<()> {
        match self.limits().f64 {
            true => Ok(()),
            false => Err(Error::NoF64 { op, device: self.info().name.as_str().into() }),
        }
    }

    /// # Errors
    /// [`Error::NoF64`] where R is f64 and kernels do not compute in it there.
    pub(crate) fn computes<R: Real>(&self, op: &'static str) -> Result<()> {
        if R::DTYPE.is_wide() { self.computes_f64(op) } else { Ok(()) }
    }

    /// Bytes that tensors hold on the device now.
    pub fn allocated_bytes(&self) -> u64 {
        self.inner.usage.now.load(Ordering::Relaxed)
    }

    /// The maximum number of bytes that tensors held on the device at once since it was opened.
    pub fn peak_bytes(&self) -> u64 {
        self.inner.usage.peak.load(Ordering::Relaxed)
    }

    /// Threads that decode and, on the cpu device, compute.
    pub fn threads(&self) -> usize {
        threads(self.inner.threads)
    }

    /// Waits until everything is done that was enqueued by calls which have returned.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], or what a driver reports only then.
    pub fn synchronize(&self) -> Result<()> {
        self.count_wait();
        self.inner.driver.synchronize()
    }

    /// True where both are one device, so that their tensors can meet in one call: the CPU is, however often it was opened, and so are devices
    /// that were opened by one name with the same options. A device that an application lends is one as long as its clones are.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || self.shares_host_memory() && other.shares_host_memory()
    }

    /// # Errors
    /// [`Error::WrongDevice`] unless an argument on `other` can meet tensors of this device.
    pub(crate) fn has(&self, op: &'static str, name: &'static str, other: &Self) -> Result<()> {
        match self.is_same(other) {
            true => Ok(()),
            false => Err(Error::wrong_device(op, name, &other.info().name, &self.info().name)),
        }
    }

    /// This device, for calls that `cancel` ends, also those that take no [`Run`](crate::Run): once it is set, operations on tensors
    /// that were made with this handle, or by operations on such tensors, return [`Error::Cancelled`] before their next launch, allocation,
    /// copy to or from the host, or decomposition on the host. A decomposition that is under way goes on in a thread of its own until it is
    /// done; what was enqueued is done too. Other handles of the device are left alone. `cancel` replaces a flag that this handle has.
    ///
    /// ```
    /// use teatime::{Cancel, Device, Error, Tensor, filter::{GaussianOptions, gaussian}};
    /// let (device, cancel) = (Device::best()?, Cancel::default());
    /// let x = Tensor::from_slice(&device.cancelled_by(&cancel), &[0.0f32, 9.0, 0.0], &[3])?;
    /// // From another thread, or when the user presses Ctrl-C:
    /// cancel.cancel();
    /// assert!(matches!(gaussian::<f32, f32>(&x, 1.0, &GaussianOptions::default()), Err(Error::Cancelled)));
    /// assert!(x.device().is_same(&device) && Tensor::<f32>::zeros(&device, &[3]).is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn cancelled_by(&self, cancel: &Cancel) -> Self {
        Self { cancel: Some(cancel.clone()), ..self.clone() }
    }

    /// The flag that ends calls with this handle.
    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.cancel.as_ref()
    }

    /// # Errors
    /// [`Error::Cancelled`] where calls with this handle are to end.
    pub(crate) fn check(&self) -> Result<()> {
        self.cancel.as_ref().map_or(Ok(()), Cancel::check)
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.inner.driver
    }

    /// The threads that decode chunks and convert what is uploaded, and that compute on the cpu device; started when they are first
    /// asked for. Use these beside a device, rather than others that compete with them.
    ///
    /// # Errors
    /// [`Error::Driver`] where the system gives no threads.
    pub fn pool(&self) -> Result<&Arc<ThreadPool>> {
        if let Some(pool) = self.inner.pool.get() {
            return Ok(pool);
        }
        let pool = Arc::new(thread_pool(self.inner.threads)?);
        Ok(self.inner.pool.get_or_init(|| pool))
    }

    /// A cpu device with the threads of this one, whose calls end as those of this handle do. Of the cpu, the device itself.
    ///
    /// # Errors
    /// As [`pool`](Self::pool).
    pub(crate) fn host(&self) -> Result<Self> {
        if self.shares_host_memory() {
            return Ok(self.clone());
        }
        let pool = self.pool()?;
        let inner = self.inner.host.get_or_init(|| {
            let driver = CpuDriver::new(pool.clone(), CpuDriver::limits(pool.current_num_threads()));
            let (threads, checked) = (self.inner.threads, self.inner.checked);
            let options = DeviceOptions { threads, checked, ..DeviceOptions::default() };
            let device = Self::from_driver(Box::new(driver), &options);
            device.inner.pool.get_or_init(|| pool.clone());
            device.inner
        });
        Ok(Self { inner: inner.clone(), cancel: self.cancel.clone(), skipped: Arc::default() })
    }

    /// Calls `f`, which launches several kernels in a row: on the cpu device from one of its threads, so that none of them begins by waking one.
    /// It may write only what no other call uses: while one of its kernels runs, the thread may take up the work of another call.
    pub(crate) fn in_a_row<T: Send>(&self, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        if self.shares_host_memory() { install(self.pool()?, self.cancel(), f) } else { f() }
    }

    /// True where the host's memory and threads are the device's too: then one budget holds for both.
    pub fn shares_host_memory(&self) -> bool {
        self.info().backend == Backend::Cpu
    }

    /// The maximum number of bytes of freed memory that the device keeps of the host's. For plans of memory in other packages of this workspace.
    #[doc(hidden)]
    pub fn kept_host_bytes(&self) -> u64 {
        if self.shares_host_memory() { FREE_BYTES as u64 } else { 0 }
    }

    /// The number of items that [`each`](Self::each) works on at once.
    pub(crate) fn at_once(&self) -> usize {
        let pool = self.inner.pool.get().filter(|_| self.shares_host_memory());
        pool.map_or(1, |pool| pool.current_num_threads())
    }

    /// Calls `f`, which launches kernels that wait for nothing another call launches, with each item: in order, and where the
    /// host's threads are the device, as many at once.
    ///
    /// # Errors
    /// One that `f` returns.
    pub(crate) fn each<T: Send>(
        &self,
        items: &mut [T],
        f: impl Fn(&mut T) -> Result<()> + Send + Sync,
    ) -> Result<()> {
        if self.at_once() == 1 {
            return items.iter_mut().try_for_each(f);
        }
        // No thread begins an item while it waits in the kernel of another, as it might with parts of a slice.
        install(self.pool()?, self.cancel(), || items.iter_mut().par_bridge().try_for_each(f))
    }
}

impl ListedDevice {
    /// The libraries that the device's driver takes at need, each with its version, or what is missing and how to get it:
    /// on CUDA the kernels' compiler (NVRTC) and cuBLAS; none on other backends. Loads them, which takes a second.
    pub fn libraries(&self) -> Vec<String> {
        #[cfg(feature = "cuda")]
        if self.info.as_ref().is_ok_and(|info| info.backend == Backend::Cuda) {
            return crate::driver::cuda::versions();
        }
        Vec::new()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Device({}: {})", self.info().name, self.info().description)
    }
}

/// So many, or as many as the process may run at once.
fn threads(wanted: Option<usize>) -> usize {
    wanted.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1)
}

fn thread_pool(wanted: Option<usize>) -> Result<ThreadPool> {
    let builder =
        rayon::ThreadPoolBuilder::new().num_threads(threads(wanted)).thread_name(|i| format!("teatime-{i}"));
    builder.build().map_err(|source| Error::Driver { backend: "cpu", source: Box::new(source) })
}
