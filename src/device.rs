//! Devices: their selection and properties.

mod group;
mod memory;
mod traffic;

use std::{
    fmt,
    sync::{Arc, Mutex, OnceLock, Weak, atomic::Ordering},
};

use rayon::{ThreadPool, prelude::*};

pub(crate) use self::memory::{Buffer, POISON};
pub use self::traffic::Traffic;
use self::{memory::Usage, traffic::Counts};
#[cfg(feature = "cuda")]
use crate::kernels::KERNELS;
use crate::{
    Backend, Cancel, DeviceInfo, DeviceOptions, Error, Limits, ListedDevice, Real, Result,
    device_info::MAX_THREADS,
    driver::{Driver, cpu::CpuDriver},
    timeline::{Span, Stage, Timeline},
    waiting::{install, lock},
};

/// A processor that computes: a GPU or the CPU. Clones refer to the same device.
///
/// Operations enqueue in program order and mostly do not wait; reading a tensor waits. All methods can be called from any thread.
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
    /// The flag that cancels calls with this handle.
    cancel: Option<Cancel>,
    /// The timeline that records calls with this handle.
    timeline: Option<Timeline>,
    /// The devices that were tried before this one and could not be used, with reasons.
    skipped: Arc<[(String, String)]>,
    /// The further devices of the group.
    others: Arc<[Arc<Inner>]>,
}

/// Open devices that were opened by name, with their options.
static OPENED: Mutex<Vec<(DeviceOptions, Weak<Inner>)>> = Mutex::new(Vec::new());

struct Inner {
    driver: Box<dyn Driver>,
    usage: Arc<Usage>,
    counts: Counts,
    checked: bool,
    threads: Option<usize>,
    pool: OnceLock<Arc<ThreadPool>>,
    /// A cpu device with the same threads, created on first use.
    host: OnceLock<Arc<Self>>,
}

/// Returns a backend's fastest device if it is worth using; unusable devices are added to the list.
type Best = fn(&DeviceOptions, &mut Vec<(String, String)>) -> Option<Box<dyn Driver>>;

/// The backends with devices faster than the CPU, in the order of preference.
const BEST: &[Best] = &[
    #[cfg(feature = "cuda")]
    |options, skipped| crate::driver::cuda::best(KERNELS[0], options, skipped),
    #[cfg(feature = "wgpu")]
    crate::driver::wgpu::best,
];

impl Device {
    /// Opens the device that is fastest for most work: a GPU through CUDA (the one with the most memory), a discrete GPU or Apple's through
    /// wgpu, otherwise the CPU. A device that cannot be used, such as a GPU for which there is no kernel code, is [`skipped`](Self::skipped).
    ///
    /// The environment variable `TEATIME_DEVICE` selects a device by name instead. Integrated and software adapters are selected only by name.
    ///
    /// # Errors
    /// [`Error::NoDevice`] when `TEATIME_DEVICE` names a device that does not exist; [`Error::Argument`] when `TEATIME_THREADS` is not a number
    /// of threads from 1 to 1,024.
    pub fn best() -> Result<Self> {
        Self::best_with(&DeviceOptions::default())
    }

    /// Opens the [`best`](Self::best) device with options.
    ///
    /// # Errors
    /// As [`best`](Self::best).
    pub fn best_with(options: &DeviceOptions) -> Result<Self> {
        if let Some(name) = std::env::var("TEATIME_DEVICE").ok().filter(|name| !name.is_empty()) {
            return Self::open_with(&name, options);
        }
        let options = &options.resolved()?;
        let mut skipped = Vec::new();
        let driver = BEST.iter().find_map(|best| best(options, &mut skipped));
        let device = match driver {
            Some(driver) => Self::opened(driver, options),
            None => Self::open_with("cpu", options)?,
        };
        Ok(Self { skipped: skipped.into(), ..device })
    }

    /// Returns the devices that [`best`](Self::best) would have preferred to this one but could not use: the name of each, and the reason. Empty
    /// for a device that was opened by name.
    pub fn skipped(&self) -> &[(String, String)] {
        &self.skipped
    }

    /// Opens the device with this name: `cpu`, `cuda`, `cuda:N`, `wgpu`, `wgpu:N`, `wgpu:vulkan` (or `metal`, `dx12`, `gl`), `wgpu:vulkan:N`,
    /// `wgpu:software` (lavapipe or WARP), or `wgpu:` and a part of the hardware's name or its [identity](DeviceInfo::identity), as in
    /// `wgpu:0000:65:00.0`. If the device is open already, returns [the same](Self::is_same) device.
    ///
    /// Several such names with commas between them, and `cuda:*` or `wgpu:*` for all cards of a backend, open a [group](Self::group).
    ///
    /// # Errors
    /// [`Error::NoDevice`] with the existing names of all backends; [`Error::Argument`] when `TEATIME_THREADS` is not a number of threads from 1
    /// to 1,024; those of [`group`](Self::group).
    pub fn open(name: &str) -> Result<Self> {
        Self::open_with(name, &DeviceOptions::default())
    }

    /// Opens a device by name, as [`open`](Self::open), with options.
    ///
    /// # Errors
    /// As [`open`](Self::open); [`Error::Argument`] for zero threads or limits below those of any device.
    pub fn open_with(name: &str, options: &DeviceOptions) -> Result<Self> {
        let options = &options.resolved()?;
        if let Some(names) = group::names(name) {
            return Self::open_group(name, &names, options);
        }
        if name == "cpu" {
            return Ok(Self::on_cpu(&Arc::new(thread_pool(options.threads)?), options));
        }
        let opened = match name.split_once(':').unwrap_or((name, "")) {
            #[cfg(feature = "cuda")]
            ("cuda", rest) => crate::driver::cuda::open(KERNELS[0], rest.trim_start_matches(':'), options),
            #[cfg(feature = "wgpu")]
            ("wgpu", rest) => crate::driver::wgpu::open(rest.trim_start_matches(':'), options),
            _ => Err(Error::NoDevice { wanted: name.into(), tried: Vec::new() }),
        };
        match opened {
            Ok(driver) => Ok(Self::opened(driver, options)),
            Err(error) => Err(Self::with_all(error)),
        }
    }

    /// Opens the CPU with as many threads as the process may run at once, or with the number that the environment variable `TEATIME_THREADS`
    /// names. A value that [`open`](Self::open) refuses is ignored here. Each call starts its own threads.
    ///
    /// # Panics
    /// If the system cannot start a thread.
    pub fn cpu() -> Self {
        let all =
            || Self::open_with("cpu", &DeviceOptions::default().threads(threads(None).min(MAX_THREADS)));
        let opened = match Self::open("cpu") {
            Err(Error::Argument { .. }) => all(),
            opened => opened,
        };
        opened.expect("the system should be able to start threads")
    }

    /// Lists every device of this machine, and the reason for each device or backend that is not usable.
    pub fn all() -> Vec<ListedDevice> {
        let cpu = Self::open("cpu").map(|device| device.info().clone());
        let mut list = vec![("cpu".to_owned(), cpu.map_err(|error| error.to_string()))];
        list.extend(listed("cuda"));
        list.extend(listed("wgpu"));
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

    /// Adds the devices of all backends to the error for a missing device.
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

    /// Makes a cpu device that computes with these threads.
    fn on_cpu(pool: &Arc<ThreadPool>, options: &DeviceOptions) -> Self {
        let limits = options.lower(CpuDriver::limits(pool.current_num_threads()));
        let device = Self::from_driver(Box::new(CpuDriver::new(pool.clone(), limits)), options);
        // A new device has no pool yet, so this sets its pool.
        device.inner.pool.get_or_init(|| pool.clone());
        device
    }

    pub(crate) fn from_driver(driver: Box<dyn Driver>, options: &DeviceOptions) -> Self {
        let inner = Inner {
            usage: Arc::new(Usage {
                name: format!("tensors on {}", driver.info().name).into(),
                now: Default::default(),
                peak: Default::default(),
            }),
            driver,
            counts: Counts::default(),
            checked: options.checked,
            threads: options.threads,
            pool: OnceLock::new(),
            host: OnceLock::new(),
        };
        Self::of_inner(Arc::new(inner))
    }

    fn of_inner(inner: Arc<Inner>) -> Self {
        Self { inner, cancel: None, timeline: None, skipped: Arc::default(), others: Arc::default() }
    }

    /// Returns a device for a driver opened by name: an open device if it is the same, has the same options and is not lost, otherwise a new
    /// one.
    fn opened(driver: Box<dyn Driver>, options: &DeviceOptions) -> Self {
        let mut opened = lock(&OPENED);
        opened.retain(|(_, inner)| inner.strong_count() > 0);
        let same = opened.iter().filter(|(with, _)| with == options).find_map(|(_, inner)| {
            inner.upgrade().filter(|inner| inner.driver.info() == driver.info() && !inner.driver.is_lost())
        });
        if let Some(inner) = same {
            return Self::of_inner(inner);
        }
        let device = Self::from_driver(driver, options);
        opened.push((options.clone(), Arc::downgrade(&device.inner)));
        device
    }

    /// Returns the name and properties of the device.
    pub fn info(&self) -> &DeviceInfo {
        self.inner.driver.info()
    }

    /// Returns the limits that the device was granted.
    pub fn limits(&self) -> &Limits {
        self.inner.driver.limits()
    }

    /// Fails with [`Error::NoF64`] unless the device's kernels compute in f64.
    pub(crate) fn computes_f64(&self, op: &'static str) -> Result<()> {
        match self.limits().f64 {
            true => Ok(()),
            false => Err(Error::NoF64 { op, device: self.info().name.as_str().into() }),
        }
    }

    /// Fails with [`Error::NoF64`] if R is f64 and the device's kernels do not compute in f64.
    pub(crate) fn computes<R: Real>(&self, op: &'static str) -> Result<()> {
        if R::DTYPE.is_wide() { self.computes_f64(op) } else { Ok(()) }
    }

    /// Returns the number of bytes that tensors hold on the device now.
    pub fn allocated_bytes(&self) -> u64 {
        self.inner.usage.now.load(Ordering::Relaxed)
    }

    /// Returns the maximum number of bytes that tensors held on the device at once since it was opened.
    pub fn peak_bytes(&self) -> u64 {
        self.inner.usage.peak.load(Ordering::Relaxed)
    }

    /// Returns the number of threads that decode and, on the cpu device, compute.
    pub fn threads(&self) -> usize {
        threads(self.inner.threads)
    }

    /// Waits for all work that was enqueued by calls which have returned.
    ///
    /// # Errors
    /// [`Error::DeviceLost`], and errors that a driver reports only now.
    pub fn synchronize(&self) -> Result<()> {
        self.count_wait();
        let _span = self.span(Stage::Wait, "");
        self.inner.driver.synchronize()
    }

    /// True if both are one device (of groups, if their first devices are), so that their tensors can be used in one call. All handles of the
    /// CPU are one device, and so are devices that were opened by one name with the same options. A device lent by an application is one device
    /// with its clones.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner) || self.shares_host_memory() && other.shares_host_memory()
    }

    /// Fails with [`Error::WrongDevice`] unless an argument on `other` can be used with tensors of this device.
    pub(crate) fn has(&self, op: &'static str, name: &'static str, other: &Self) -> Result<()> {
        match self.is_same(other) {
            true => Ok(()),
            false => Err(Error::wrong_device(op, name, &other.info().name, &self.info().name)),
        }
    }

    /// Returns this device as a handle whose calls `cancel` stops, including calls without a [`Run`](crate::Run). Once the flag is set,
    /// operations on tensors that were created with this handle, or by operations on such tensors, return [`Error::Cancelled`] before their next
    /// launch, allocation, copy to or from the host, or decomposition on the host. A running decomposition finishes in its own thread, and
    /// enqueued work finishes too. Other handles of the device are unaffected. `cancel` replaces an earlier flag of this handle.
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

    /// Returns this device as a handle that records what calls with it do in `timeline`: those on tensors that were created with this handle, or
    /// by operations on such tensors, and passes over stored arrays. Other handles of the device are unaffected. `timeline` replaces an earlier
    /// one of this handle. [`Timeline`] has an example.
    #[must_use]
    pub fn recorded_by(&self, timeline: &Timeline) -> Self {
        Self { timeline: Some(timeline.clone()), ..self.clone() }
    }

    /// Returns the timeline that records calls with this handle.
    pub fn timeline(&self) -> Option<&Timeline> {
        self.timeline.as_ref()
    }

    /// Begins a span of the calling thread's time.
    pub(crate) fn span<'a>(&'a self, stage: Stage, name: &'a str) -> Span<'a> {
        Span::new(self.timeline(), stage, name)
    }

    /// Begins the span of a launch, which computes on the cpu device and enqueues on others.
    pub(crate) fn launch_span<'a>(&'a self, name: &'a str) -> Span<'a> {
        let stage = match self.shares_host_memory() {
            true => Stage::Kernel,
            false if self.driver().tells_times() => Stage::Enqueue,
            false => Stage::Untimed,
        };
        self.span(stage, name)
    }

    /// Returns the flag that cancels calls with this handle.
    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.cancel.as_ref()
    }

    /// Returns this device as a handle whose calls `cancel` stops too.
    pub(crate) fn also_cancelled_by(&self, cancel: &Cancel) -> Self {
        self.cancelled_by(&cancel.or(self.cancel()))
    }

    /// Fails with [`Error::Cancelled`] if the flag of this handle is set.
    pub(crate) fn check(&self) -> Result<()> {
        self.cancel.as_ref().map_or(Ok(()), Cancel::check)
    }

    pub(crate) fn driver(&self) -> &dyn Driver {
        &*self.inner.driver
    }

    /// Returns the threads that decode chunks, convert uploads, and compute on the cpu device. The threads start on first use. An application
    /// should use these threads rather than competing ones.
    ///
    /// # Errors
    /// [`Error::Driver`] if the system cannot start threads.
    pub fn pool(&self) -> Result<&Arc<ThreadPool>> {
        if let Some(pool) = self.inner.pool.get() {
            return Ok(pool);
        }
        let pool = Arc::new(thread_pool(self.inner.threads)?);
        Ok(self.inner.pool.get_or_init(|| pool))
    }

    /// Returns a cpu device with the threads, the cancellation flag and the timeline of this handle; for a cpu device,
    /// the device itself. Fails as [`pool`](Self::pool) does.
    pub(crate) fn host(&self) -> Result<Self> {
        if self.shares_host_memory() {
            return Ok(self.clone());
        }
        let pool = self.pool()?;
        let inner = self.inner.host.get_or_init(|| {
            let (threads, checked) = (self.inner.threads, self.inner.checked);
            Self::on_cpu(pool, &DeviceOptions { threads, checked, ..DeviceOptions::default() }).inner
        });
        let (cancel, timeline) = (self.cancel.clone(), self.timeline.clone());
        Ok(Self { cancel, timeline, ..Self::of_inner(inner.clone()) })
    }

    /// Calls `f`, which launches several consecutive kernels. The cpu device calls it on one of its threads, so that no kernel starts by waking
    /// one. `f` may write only memory that no other call uses: while one of its kernels runs, the thread may take up another call's work.
    pub(crate) fn in_a_row<T: Send>(&self, f: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        if self.shares_host_memory() { install(self.pool()?, self.cancel(), f) } else { f() }
    }

    /// True if the device uses the host's memory and threads. Then one budget holds for both.
    pub fn shares_host_memory(&self) -> bool {
        self.info().backend == Backend::Cpu
    }

    /// Returns the number of items that [`each`](Self::each) processes at once.
    pub(crate) fn at_once(&self) -> usize {
        let pool = self.inner.pool.get().filter(|_| self.shares_host_memory());
        pool.map_or(1, |pool| pool.current_num_threads())
    }

    /// Calls `f` with each item. `f` launches kernels that do not depend on launches of other calls. Items are processed in order, and on the
    /// cpu device as many at once as it has threads. Fails with an error that `f` returns.
    pub(crate) fn each<T: Send>(
        &self,
        items: &mut [T],
        f: impl Fn(&mut T) -> Result<()> + Send + Sync,
    ) -> Result<()> {
        if self.at_once() == 1 {
            return items.iter_mut().try_for_each(f);
        }
        // A bridge keeps a thread that waits in one item's kernel from starting another item, as could happen with parts of a slice.
        install(self.pool()?, self.cancel(), || items.iter_mut().par_bridge().try_for_each(f))
    }
}

impl ListedDevice {
    /// Returns the libraries that the device's driver loads on demand, each with its version, or a text on what is missing and how to get it: on
    /// CUDA, the kernel compiler (NVRTC) and cuBLAS; none on other backends. Loads the libraries, which takes a second.
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

/// Returns the devices of a backend, or the reason why there are none.
fn listed(backend: &str) -> Vec<(String, Result<DeviceInfo, String>)> {
    match backend {
        #[cfg(feature = "cuda")]
        "cuda" => crate::driver::cuda::list(KERNELS[0]),
        #[cfg(feature = "wgpu")]
        "wgpu" => crate::driver::wgpu::list(),
        _ => vec![(
            backend.into(),
            Err(format!("this build has no {backend} driver (cargo feature `{backend}`)")),
        )],
    }
}

/// Returns the wanted number of threads, or the number that the process may run at once.
fn threads(wanted: Option<usize>) -> usize {
    wanted.or_else(|| std::thread::available_parallelism().ok().map(Into::into)).unwrap_or(1)
}

fn thread_pool(wanted: Option<usize>) -> Result<ThreadPool> {
    let builder =
        rayon::ThreadPoolBuilder::new().num_threads(threads(wanted)).thread_name(|i| format!("teatime-{i}"));
    builder.build().map_err(|source| Error::Driver { backend: "cpu", source: Box::new(source) })
}
