//! Devices for the tests of this package and, with the feature `suite`, of other packages. No part of the API.
//!
//! `TEATIME_REQUIRE_DEVICES=cpu,wgpu` makes a missing device a failure instead of a printed line with the reason for skipping it.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    clippy::missing_panics_doc,
    reason = "tests panic, and a skipped device is said aloud"
)]

mod hooked;
mod server;
#[cfg(feature = "zarr")]
mod zip;

use std::{
    collections::BTreeMap,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::Path,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use bytemuck::Pod;

#[cfg(all(test, feature = "zarr"))]
use crate::store::Folder;
use crate::{
    Budget, Cancel, Device, DeviceOptions, Error, Progress, Run, Status,
    store::{ChunkedArray, Storage, StoredBytes, Value, WritableStorage},
    stream::{AsStored, Blocks, Plan, Selection, StreamStats},
};

pub use hooked::Hooked;
pub use server::{Answer, Server};
#[cfg(feature = "zarr")]
pub use zip::{Zipped, stored, zip};

/// The kinds of devices that a test runs on, with the way of opening each.
#[derive(Clone, Copy, Debug)]
pub enum On {
    Cpu,
    /// The CPU with limits so low that every operation divides its work.
    CpuSmall,
    Wgpu,
    WgpuSmall,
    /// A device that an application opened, with WebGPU's default limits.
    WgpuLent,
    /// CUDA with the vendor's library for products.
    Cuda,
    /// CUDA with limits so low that every operation divides its work, and with our own kernel for products.
    CudaSmall,
    /// CUDA on a context and stream that an application made, with our own kernel for products, and without guard words.
    CudaLent,
}

/// Declares tests, each a `fn(&Device)`, once for each way of opening a device. Tests after a semicolon do not run on lent devices, where they
/// take long. The tests of the same kernels before the semicolon cover the differences of lent devices: how they were opened, and their limits.
/// Tests after a second semicolon do not run with our own products on the emulator either, where decompositions take minutes: tests of products
/// and of smaller decompositions cover those.
#[doc(hidden)]
#[macro_export]
macro_rules! device_tests {
    ($($name:ident),* ; $($own:ident),* ; $($long:ident),* $(,)?) => {
        $crate::device_tests!($($name),* ; $($own),*);
        $($crate::device_tests!(@ $long on_cpu Cpu on_cpu_small CpuSmall on_wgpu Wgpu on_wgpu_small WgpuSmall on_cuda Cuda);)*
    };
    ($($name:ident),* $(; $($own:ident),*)? $(,)?) => {
        $($crate::device_tests!(@ $name on_cpu Cpu on_cpu_small CpuSmall on_wgpu Wgpu on_wgpu_small WgpuSmall
            on_wgpu_lent WgpuLent on_cuda Cuda on_cuda_small CudaSmall on_cuda_lent CudaLent);)*
        $($($crate::device_tests!(@ $own on_cpu Cpu on_cpu_small CpuSmall on_wgpu Wgpu on_wgpu_small WgpuSmall
            on_cuda Cuda on_cuda_small CudaSmall);)*)?
    };
    // Devices are inside tests in the name: adjacent tests run at the same time and should not wait for one device.
    (@ $name:ident $($device:ident $on:ident)*) => {
        mod $name {
            $(#[test]
            fn $device() {
                $crate::openings::run($crate::openings::On::$on, super::$name);
            })*
        }
    };
}

/// Asserts that a call failed with an error of a pattern, and returns the error.
#[doc(hidden)]
#[macro_export]
macro_rules! assert_err {
    ($result:expr, $pattern:pat $(if $guard:expr)?) => {
        match $result {
            Ok(_) => panic!("not refused: {}", stringify!($result)),
            Err(error) => {
                assert!(matches!(error, $pattern $(if $guard)?), "{error}");
                error
            }
        }
    };
}

/// Runs a test on every device of a kind, and panics with the devices on which it failed.
pub fn run(on: On, test: fn(&Device)) {
    let (devices, backend) = match on {
        On::Cpu | On::CpuSmall => (devices(on), "cpu"),
        On::Wgpu | On::WgpuSmall | On::WgpuLent => (devices(on), "wgpu"),
        On::Cuda | On::CudaSmall | On::CudaLent => (devices(on), "cuda"),
    };
    let devices = match devices {
        Ok(devices) => devices,
        Err(why) => return skip(backend, why),
    };
    let passes = |device: &Device| catch_unwind(AssertUnwindSafe(|| test(device))).is_ok();
    let failed: Vec<String> =
        devices.iter().filter(|device| !passes(device)).map(|device| format!("{device:?}")).collect();
    assert!(failed.is_empty(), "failed on {failed:?}, {on:?}");
}

/// Asserts that a call failed with all of these words in its message, and returns the error.
#[track_caller]
pub fn assert_refused<T>(result: crate::Result<T>, words: &[&str]) -> Error {
    let Err(error) = result else { panic!("not refused: {words:?}") };
    let said = error.to_string();
    words.iter().for_each(|word| assert!(said.contains(word), "`{word}` is not in: {said}"));
    error
}

/// Returns a run with so many bytes of host memory.
pub fn within(host: u64) -> Run {
    Run::default().memory(Budget::default().host(host))
}

/// Returns a run that is cancelled when `stop` says so of a status, and the list of all statuses.
pub fn told(stop: impl Fn(&Status) -> bool + Send + Sync + 'static) -> (Run, Arc<Mutex<Vec<Status>>>) {
    let (told, cancel) = (Arc::new(Mutex::new(Vec::new())), Cancel::default());
    let (list, flag) = (Arc::clone(&told), cancel.clone());
    let progress = Progress::new(move |status| {
        list.lock().unwrap().push(status);
        if stop(&status) {
            flag.cancel();
        }
    });
    (Run::default().cancel(cancel).progress(progress), told)
}

/// Returns the least host memory that a call names, with its result. A byte less is refused.
pub fn least<T>(mut call: impl FnMut(&Run) -> crate::Result<T>) -> (u64, T) {
    let mut refused = |host| match call(&within(host)) {
        Err(Error::Budget { minimum, given: true, .. }) => minimum,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{host} bytes should not do"),
    };
    let least = refused(1);
    refused(least - 1);
    (least, call(&within(least)).unwrap())
}

/// Prints why a test is skipped, or panics if the test is required to run.
pub(crate) fn skip(name: &str, why: &str) {
    let required = std::env::var("TEATIME_REQUIRE_DEVICES").unwrap_or_default();
    assert!(!required.split(',').any(|required| required == name), "{name} is required: {why}");
    println!("SKIP {name}: {why}");
}

fn options(on: On) -> DeviceOptions {
    let small = matches!(on, On::CpuSmall | On::WgpuSmall | On::CudaSmall);
    DeviceOptions {
        binding: small.then_some(64 << 10),
        groups_per_axis: small.then_some(16),
        work: match on {
            On::CpuSmall | On::WgpuSmall | On::CudaSmall => Some(1 << 22),
            On::CudaLent => Some(1 << 40),
            _ => None,
        },
        // Guard words behind tensors would hide reads beyond their end, which the emulator sees.
        checked: !matches!(on, On::CudaLent),
        own_kernels: matches!(on, On::CudaSmall | On::CudaLent),
        ..DeviceOptions::default()
    }
}

/// Returns the devices of a kind, opened once for all tests of this process.
pub(crate) fn devices(on: On) -> &'static Result<Vec<Device>, String> {
    static OPEN: [OnceLock<Result<Vec<Device>, String>>; 8] = [const { OnceLock::new() }; 8];
    OPEN[on as usize].get_or_init(|| match on {
        On::Cpu | On::CpuSmall => Ok(vec![Device::open_with("cpu", &options(on)).unwrap()]),
        On::Wgpu | On::WgpuSmall => open_all("wgpu", on),
        On::WgpuLent => open_lent(on),
        On::Cuda | On::CudaSmall => open_all("cuda", on),
        On::CudaLent => open_lent_cuda(on),
    })
}

/// Opens every device of a backend; with low limits on wgpu, each card only once.
fn open_all(backend: &str, on: On) -> Result<Vec<Device>, String> {
    let mut devices = Vec::new();
    let mut reasons = Vec::new();
    for listed in Device::all().into_iter().filter(|listed| listed.name.starts_with(backend)) {
        // A card that CUDA has too is tested through both backends.
        let twice = listed.same_card_as.is_some_and(|other| other.starts_with(backend));
        match listed.info {
            Ok(_) if matches!(on, On::WgpuSmall) && twice => {}
            Ok(_) => devices.push(Device::open_with(&listed.name, &options(on)).unwrap()),
            Err(why) => reasons.push(why),
        }
    }
    if devices.is_empty() { Err(reasons.join("; ")) } else { Ok(devices) }
}

#[cfg(not(feature = "wgpu"))]
fn open_lent(_: On) -> Result<Vec<Device>, String> {
    Err("this build has no wgpu driver".into())
}

#[cfg(feature = "wgpu")]
fn open_lent(on: On) -> Result<Vec<Device>, String> {
    let (device, queue) = application_device(wgpu::Features::empty())?;
    Ok(vec![Device::from_wgpu_with(device, queue, &options(on)).unwrap()])
}

#[cfg(not(feature = "cuda"))]
fn open_lent_cuda(_: On) -> Result<Vec<Device>, String> {
    Err("this build has no CUDA driver".into())
}

#[cfg(feature = "cuda")]
fn open_lent_cuda(on: On) -> Result<Vec<Device>, String> {
    // The device's own driver loads CUDA, and reports why it is missing.
    if let Err(why) = devices(On::Cuda) {
        return Err(why.clone());
    }
    // The emulator has a second, uncounted device as large as the largest cards, which tests plans for such cards.
    let place = usize::from(cfg!(feature = "cuda-emulator"));
    let context = cudarc::driver::CudaContext::new(place).map_err(|error| error.to_string())?;
    let stream = context.new_stream().map_err(|error| error.to_string())?;
    Ok(vec![Device::from_cuda_with(context, stream, &options(on)).unwrap()])
}

/// Opens a device as an application does that asks for these features and nothing else. All such devices share one instance.
#[cfg(feature = "wgpu")]
pub(crate) fn application_device(
    required_features: wgpu::Features,
) -> Result<(wgpu::Device, wgpu::Queue), String> {
    static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();
    let instance = INSTANCE.get_or_init(|| {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.flags = wgpu::InstanceFlags::empty();
        descriptor.backends = wgpu::Backends::PRIMARY;
        wgpu::Instance::new(descriptor)
    });
    let adapter = pollster::block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default()));
    let adapter = adapter.map_err(|error| error.to_string())?;
    let opened = pollster::block_on(
        adapter.request_device(&wgpu::DeviceDescriptor { required_features, ..Default::default() }),
    );
    opened.map_err(|error| error.to_string())
}

/// Returns the reference device for comparisons between backends.
pub fn cpu() -> &'static Device {
    &devices(On::Cpu).as_ref().unwrap()[0]
}

/// Returns the files of a folder and of the folders in it, by their keys.
pub fn files(folder: &Path) -> BTreeMap<String, Arc<[u8]>> {
    Map::of(folder).all()
}

/// Returns all elements of a stored array, in C order; or their bytes as u8.
pub fn elements<T: Pod>(array: Arc<dyn ChunkedArray>) -> Vec<T> {
    let (convert, rows) = (Arc::new(AsStored(array.dtype())), Arc::new(Selection::all(array.shape()[0])));
    let plan = Plan::new(vec![array], rows, None, convert, &[]).unwrap();
    let mut blocks = Blocks::of_boxes(&plan, cpu(), 1 << 28, Vec::new(), &Cancel::default()).unwrap();
    bytemuck::pod_collect_to_vec(blocks.next_block().unwrap().unwrap().bytes())
}

/// Plans a pass over all rows of an array, as stored, in blocks of `rows` rows.
pub fn plan_rows(array: Arc<dyn ChunkedArray>, rows: u64) -> Plan {
    let (convert, all) = (Arc::new(AsStored(array.dtype())), Arc::new(Selection::all(array.shape()[0])));
    Plan::of_rows(vec![array], all, None, convert, rows).unwrap()
}

/// Makes a pass in blocks of `rows` rows, with so many bytes for chunks. Returns all bytes, and the stats.
///
/// # Errors
/// Fails as [`Blocks::next_block`] does.
pub fn read_blocks(plan: &Plan, rows: u64, bytes: u64) -> crate::Result<(Vec<u8>, StreamStats)> {
    let mut blocks = Blocks::new(plan, cpu(), rows, bytes, &Cancel::default())?;
    let mut all = Vec::new();
    while let Some(mut block) = blocks.next_block()? {
        all.extend_from_slice(block.bytes());
    }
    Ok((all, blocks.stats))
}

/// Returns `bytes` with others written at `at`.
pub fn patched(bytes: &[u8], at: usize, others: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    bytes[at..at + others.len()].copy_from_slice(others);
    bytes
}

/// A generator of deterministic pseudo-random numbers, from a number other than 0.
#[cfg(all(test, feature = "zarr"))]
pub(crate) struct Numbers(pub(crate) u64);

#[cfg(all(test, feature = "zarr"))]
impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        // xorshift64*
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }
}

/// A storage in memory for tests, which counts the bytes that are read, and refuses puts after a number of them.
#[derive(Debug)]
pub struct Map {
    values: Mutex<BTreeMap<String, Arc<[u8]>>>,
    pub bytes: AtomicU64,
    /// The number of puts that are accepted.
    pub puts: AtomicU64,
}

impl Default for Map {
    fn default() -> Self {
        Self { values: Mutex::default(), bytes: AtomicU64::new(0), puts: AtomicU64::new(u64::MAX) }
    }
}

impl Map {
    /// Creates a storage with the files of a folder.
    pub fn of(folder: &Path) -> Self {
        let map = Self::default();
        map.add(folder, "");
        map
    }

    /// Adds the files of a folder, under keys that begin with `prefix`.
    fn add(&self, folder: &Path, prefix: &str) {
        for path in std::fs::read_dir(folder).into_iter().flatten().map(|entry| entry.unwrap().path()) {
            let key = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
            if path.is_dir() {
                self.add(&path, &format!("{key}/"));
            } else {
                self.set(&key, std::fs::read(path).unwrap());
            }
        }
    }

    /// Returns all values by their keys.
    pub fn all(&self) -> BTreeMap<String, Arc<[u8]>> {
        self.values.lock().unwrap().clone()
    }

    pub fn set(&self, key: &str, value: impl AsRef<[u8]>) {
        self.values.lock().unwrap().insert(key.to_owned(), value.as_ref().into());
    }

    pub fn remove(&self, key: &str) {
        assert!(self.values.lock().unwrap().remove(key).is_some(), "{key}");
    }
}

impl Storage for Map {
    fn place(&self, key: &str) -> String {
        format!("map:{key}")
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        Ok(match self.values.lock().unwrap().get(key) {
            None => Value::Absent,
            Some(value) if value.len() as u64 > most => Value::Large(value.len() as u64),
            Some(value) => {
                self.bytes.fetch_add(value.len() as u64, Relaxed);
                Value::Bytes(StoredBytes::Shared(Arc::clone(value)))
            }
        })
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        Ok(self.values.lock().unwrap().get(key).map(|value| value.len() as u64))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let values = self.all();
        let names = values.keys().filter_map(|key| key.strip_prefix(&prefix)?.split_once('/'));
        let mut names: Vec<String> = names.map(|(name, _)| name.to_owned()).collect();
        names.dedup();
        Ok(names)
    }
}

impl WritableStorage for Map {
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        let left = self.puts.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1));
        left.map_err(|_| io::Error::other("killed"))?;
        self.set(key, value);
        Ok(())
    }

    fn sweep(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
}

/// A folder for tests, with a function in place of its puts, which gets the number of earlier puts.
#[cfg(all(test, feature = "zarr"))]
#[derive(Debug)]
pub(crate) struct Puts {
    pub(crate) folder: Folder,
    pub(crate) count: AtomicU64,
    /// The number of the put at which something happens.
    pub(crate) at: u64,
    pub(crate) put: fn(&Self, u64, &str, &[u8]) -> io::Result<()>,
}

#[cfg(all(test, feature = "zarr"))]
impl Puts {
    /// Returns a disk that is full at the put with the number `at`, and at no other.
    pub(crate) fn full_once(folder: &Path, at: u64) -> Arc<Self> {
        let put = |disk: &Self, number: u64, key: &str, value: &[u8]| {
            if number == disk.at {
                return Err(io::ErrorKind::StorageFull.into());
            }
            // The delay makes boxes wait for the threads that write.
            std::thread::sleep(std::time::Duration::from_micros(300));
            disk.folder.put(key, value)
        };
        Arc::new(Self { folder: Folder::new(folder), count: AtomicU64::new(0), at, put })
    }
}

#[cfg(all(test, feature = "zarr"))]
impl Storage for Puts {
    fn place(&self, key: &str) -> String {
        self.folder.place(key)
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        self.folder.get(key, most)
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        self.folder.size(key)
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        self.folder.list(prefix)
    }
}

#[cfg(all(test, feature = "zarr"))]
impl WritableStorage for Puts {
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        (self.put)(self, self.count.fetch_add(1, Relaxed), key, value)
    }

    fn sweep(&self, prefix: &str) -> io::Result<()> {
        self.folder.sweep(prefix)
    }
}

/// Devices of the CUDA emulator for the exclusive use of one test, and the faults that tests inject.
#[cfg(feature = "cuda-emulator")]
pub mod emulated {
    pub use crate::driver::cuda::emulated::{device, fail_allocation, loaded, lose, memory, open};
}
