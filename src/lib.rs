//! GPU math for arrays bigger than memory: linear algebra, distances, filters and packed matrices, on an NVIDIA GPU through
//! CUDA, on Vulkan, Metal, DX12 and GL adapters through wgpu, or on the CPU.
//!
//! Programs run unchanged on every device, without a type parameter for the device. CUDA is found at run time, so a program builds and starts
//! without it. The library never prints, installs no signal handler and touches no global thread pool.
//!
//! # Concepts
//!
//! | concept | item | |
//! |---|---|---|
//! | device | [`Device`] | a GPU or the CPU. [`Device::best`] opens the fastest device, [`Device::open`] opens a device by name |
//! | tensor | [`Tensor`] | a typed, row-major array on one device. Operations take and return tensors |
//! | kernel | [`kernel::Kernel`] | a source for each backend, and the kinds of its arguments. Operations launch kernels, and so can an application: [`Device::launch`] |
//! | linear map | [`linalg::LinearMap`] | a matrix accessed only through its products: a tensor, a packed matrix, or a streamed one of your own. [`linalg::randomized_svd`] takes any |
//! | store | [`ChunkedArray`], [`store::Storage`] | an array that is read chunk by chunk: from Zarr, from a .npy file, in memory, or your own |
//! | stream | [`stream::Blocks`] | a pass over stored arrays in blocks of rows or boxes with halos, which are decoded in advance and uploaded, in bounded memory |
//! | run | [`Run`] | options of a long call: a flag that stops it, a callback for progress, memory budgets |
//! | timeline | [`Timeline`] | a recording of what each thread and GPU did when, and what a run waits for: [`Device::recorded_by`] |
//!
//! # A first program
//!
//! ```
//! use std::sync::Arc;
//! use teatime::{
//!     Device, Run, Tensor,
//!     distance::{Metric, Options, neighbors_stored},
//!     linalg,
//!     store::MemoryArray,
//! };
//!
//! // The fastest device there is; the environment variable `TEATIME_DEVICE` names another.
//! let device = Device::best()?;
//!
//! // A matrix on the device. Operations enqueue; `read` waits.
//! let a = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
//! assert_eq!(linalg::matmul_tn(&a, &a)?.read()?, [35.0, 44.0, 44.0, 56.0]);
//!
//! // A stored array is read in blocks. This one is in memory;
//! // `store::NpyArray` and `store::ZarrArray` are of files.
//! let points = [0.0f32, 0.0, 3.0, 4.0, 3.0, 3.0];
//! let x = Arc::new(MemoryArray::new("points", &points, &[3, 2], &[1, 2])?);
//! let (options, run) = (Options::default(), Run::default());
//! let neighbors = neighbors_stored(&x, None, 1, Metric::Euclidean, &options, &device, &run)?;
//! assert_eq!(neighbors.nearest.indices, [2, 2, 1]);
//! # Ok::<(), teatime::Error>(())
//! ```
//!
//! # Where to look
//!
//! | module | for |
//! |---|---|
//! | [`linalg`] | products, QR, SVD exact, truncated and randomized, principal components, statistics of rows and columns |
//! | [`mod@array`] | elementwise functions, sums along an axis, and rows by index, for the steps between other operations |
//! | [`distance`] | distances between observations in the metrics of scipy and cuVS, and nearest neighbors |
//! | [`filter`] | Gaussians, their derivatives, and filters with your own weights along each axis |
//! | [`packed`] | matrices of 0, 1, 2 and missing, two bits an entry, with exact products |
//! | [`bits`] | values of 1, 2 and 4 bits in bytes |
//! | [`kernel`] | kernels of your own, in WGSL, in CUDA and for the CPU |
//! | [`random`] | random words, uniform and normal numbers |
//! | [`stream`], [`store`] | passes over stored arrays, and reading and writing of stored arrays |
//!
//! The folder `examples` has programs to copy from. `teatime-gpu-genotype` and `teatime-gpu-image` are crates on top of this one.
//!
//! # Cargo features
//!
//! All features but the last three are on by default. The column "crates" is for a build with that feature alone; a build without any has 64.
//!
//! | feature | gives | crates |
//! |---|---|---:|
//! | `cuda` | a driver for NVIDIA GPUs, [`Device::from_cuda`] | 85 |
//! | `wgpu` | a driver for Vulkan, Metal, DX12 and GL, [`Device::from_wgpu`] | 109 |
//! | `zarr` | Zarr v2 and v3 stores; its codecs are in C and need a C compiler | 173 |
//! | `ndarray` | [`Tensor::from_ndarray`], [`Tensor::to_ndarray`] | 68 |
//! | `remote` | stores behind URLs, [`store::open_storage`] | 258 |
//! | `cuda-emulator` | for tests: CUDA on the CPU | |
//! | `suite` | for tests of other packages; no part of the API | |
//!
//! # Costs
//!
//! - Without optimisation, the default of `cargo build`, computations on the host are 30 to 40 times slower. Two lines in your `Cargo.toml` fix
//!   this without optimising your own code:
//!
//!   ```toml
//!   [profile.dev.package."*"]
//!   opt-level = 1
//!   ```
//!
//!   With `cargo build` on two cores, distances of 1,000 observations of 1,000 features take 1.4 s without these lines and 0.05 s with them; the
//!   SVD of a 600 x 200 matrix takes 0.64 s and 0.016 s. Levels 2 and 3 are no faster. The first build takes 2.5 minutes instead of one.
//! - Operations on tensors enqueue work and return. A function with *Waits* in its documentation returns when the result is ready, as
//!   [`Tensor::read`] does. A wgpu device that is many submissions behind makes the next one wait.
//! - A kernel is compiled at its first launch. On CUDA that takes up to seconds, once: compiled kernels are cached in
//!   `~/.cache/teatime`.
//! - One tensor is one buffer of its device ([`Limits::buffer`]). A larger matrix is a list of panels, or is streamed.
//! - Long calls keep within the [`Budget`] of their [`Run`]: by default half of the free host memory, and three quarters of the device's memory.
//! - On one device, results stay the same to the bit for any chunks, threads and budgets, unless a page says otherwise.
//!
//! # Errors
//!
//! There is one type, [`Error`], with the argument, the numbers, and the file or chunk. An error belongs to the call that returned it and leaves
//! the device usable, except for [`Error::DeviceLost`], which every later call on that device returns again.
//!
//! | error | remedy |
//! |---|---|
//! | [`Error::NoDevice`] | the error lists the existing devices, and the reasons why the rest are missing |
//! | [`Error::Budget`] | a budget of at least the minimum in the error |
//! | [`Error::OutOfMemory`] | freeing tensors; smaller blocks |
//! | [`Error::Limit`] | smaller tensors: the device can never hold one of this size |
//! | [`Error::NoF64`] | f32, by the option `narrow` or [`Tensor::to_f32`], or another device |
//! | [`Error::WrongDevice`] | [`Tensor::to_device`] |
//! | [`Error::Chunk`], [`Error::Store`], [`Error::Io`] | repairing the file in the error |
//! | [`Error::Cancelled`] | none: the caller requested it |
//!
//! # Coming from ndarray
//!
//! | ndarray | teatime |
//! |---|---|
//! | `Array2<f32>` | [`Tensor<f32>`](Tensor), by [`Tensor::from_ndarray`] and [`Tensor::to_ndarray`] |
//! | `a.dot(&b)`, `a.t().dot(&b)`, `a.dot(&b.t())` | [`linalg::matmul()`], [`linalg::matmul_tn`], [`linalg::matmul_nt`] |
//! | `a.mean_axis(Axis(0))`, `a.var_axis(..)` | [`array::mean`], [`linalg::column_stats`] |
//! | `&a + &b`, `a.mapv(f32::exp)` | [`array::zip`], [`array::map()`] |
//! | `a.into_shape_with_order(..)` | [`Tensor::reshape`] |
//! | ndarray-linalg's `svd`, `qr` | [`linalg::svd()`], [`linalg::qr()`] |
//! | ndarray-npy's `read_npy`, `write_npy` | [`store::NpyArray`] and [`stream::StoredMatrix::to_tensor`], [`store::write_npy`] |
//!
//! # Coming from cudarc
//!
//! | cudarc | teatime |
//! |---|---|
//! | `CudaContext::new(0)` | `Device::open("cuda:0")`; [`Device::from_cuda`] takes a context and a stream of yours |
//! | `CudaSlice<T>` | [`Tensor<T>`](Tensor); [`Tensor::from_cuda_slice`] and [`Tensor::into_cuda_slice`] copy nothing; of another library's memory, [`TensorView::from_cuda_memory`] |
//! | `stream.clone_htod`, `stream.clone_dtoh` | [`Tensor::from_slice`], [`Tensor::read`] |
//! | `stream.synchronize()` | [`Device::synchronize`]; [`Device::traffic`] counts how often the host waits |
//! | cuBLAS `gemm` | [`linalg::matmul()`], which calls it where it is installed |
//! | `ctx.load_module(compile_ptx(source)?)`, `stream.launch_builder(&f)` | [`kernel::Kernel`], [`Device::launch`] |
//!
//! # Coming from wgpu
//!
//! | wgpu | teatime |
//! |---|---|
//! | `Device` and `Queue` | `Device::open("wgpu")`; [`Device::from_wgpu`] takes yours, with WebGPU's default limits |
//! | `Buffer` | [`Tensor::from_wgpu_buffer`], which shares packed and aligned ones, and [`Tensor::wgpu_buffer`] |
//! | `map_async`, `poll` | [`Tensor::read`]; [`Tensor::read_async`] in a frame; [`Tensor::download`] and [`Pending::wait`] |
//! | bindings beyond `max_storage_buffer_binding_size` | split by the operation |
//! | `create_compute_pipeline`, bind groups, `dispatch_workgroups` | [`kernel::Kernel`], [`Device::launch`] |
//!
//! # Coming from CuPy
//!
//! | CuPy | teatime |
//! |---|---|
//! | `cupy.asarray(x)`, `cupy.asnumpy(x)` | [`Tensor::from_slice`], [`Tensor::read`] |
//! | `a @ b`, `a.T @ b` | [`linalg::matmul()`], [`linalg::matmul_tn`] |
//! | `a + b`, `cupy.where(m, a, b)`, `a.astype(t)`, `a.sum(0)`, `a[i]` | [`array::zip`], [`array::select`], [`array::cast`], [`array::sum`], [`array::gather`] |
//! | `cupy.linalg.svd`, `qr` | [`linalg::svd()`], [`linalg::qr()`] |
//! | `cupyx.scipy.spatial.distance.cdist` | [`distance::pairwise_tensor`]; in f64, on the host, [`distance::pairwise`] |
//! | `cupyx.scipy.ndimage.gaussian_filter` | [`filter::gaussian`](fn@filter::gaussian) |
//! | `cupy.packbits`, `unpackbits` | [`bits::pack`](fn@bits::pack), [`bits::unpack`](fn@bits::unpack) |
//! | `cupy.RawKernel` | [`kernel::Kernel`], [`Device::launch`] |
//! | `with cupy.cuda.Device(1):` | `Device::open("cuda:1")`, passed to the functions that create tensors |
//!
//! # Coming from dask
//!
//! | dask | teatime |
//! |---|---|
//! | `da.from_zarr` | [`store::ZarrArray`] |
//! | `x.map_blocks(f)`, `x.map_overlap(f, depth)` | [`stream::Sweep::map`] with a [`stream::BoxOperation`]; Gaussians: [`filter::write_gaussian`], [`filter::gaussian_box`] |
//! | `da.reduction` | [`stream::Sweep::fold`] with a [`stream::Fold`] |
//! | `da.linalg.svd` of a tall matrix | [`linalg::svd()`] |
//! | `da.linalg.svd_compressed` | [`linalg::randomized_svd`]: one pass for each power iteration, where dask makes two |
//! | `da.to_zarr` | [`store::ArrayWriter`] |
//! | `ProgressBar()`, memory limits, cancelling | [`Run`], [`Device::cancelled_by`] |
//! | `performance_report` | [`Timeline::write_report`] |
//!

// Without a feature, links to its items lead to the type or module that would contain them.
#![cfg_attr(
    not(feature = "cuda"),
    doc = "[`Device::from_cuda`]: Device
[`Tensor::from_cuda_slice`]: Tensor
[`Tensor::into_cuda_slice`]: Tensor
[`TensorView::from_cuda_memory`]: TensorView"
)]
#![cfg_attr(
    not(feature = "wgpu"),
    doc = "[`Device::from_wgpu`]: Device
[`Tensor::from_wgpu_buffer`]: Tensor
[`Tensor::wgpu_buffer`]: Tensor"
)]
#![cfg_attr(
    not(feature = "ndarray"),
    doc = "[`Tensor::from_ndarray`]: Tensor
[`Tensor::to_ndarray`]: Tensor"
)]
#![cfg_attr(
    not(feature = "zarr"),
    doc = "[`store::ArrayWriter`]: store
[`store::ZarrArray`]: store"
)]
// On docs.rs, each item shows the feature that it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod array;
mod available;
pub mod bits;
mod cancel;
mod device;
mod device_info;
mod digest;
pub mod distance;
mod driver;
mod dtype;
mod error;
mod extent;
mod files;
pub mod filter;
mod fresh;
pub mod kernel;
mod kernels;
mod launch;
pub mod linalg;
mod needs;
#[cfg(any(test, feature = "suite"))]
#[doc(hidden)]
pub mod openings;
pub mod packed;
pub mod random;
mod run;
mod setters;
#[doc(hidden)]
pub mod stable_text;
pub mod store;
pub mod stream;
#[cfg(test)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "test sizes are small, and a skipped device is said aloud"
)]
mod suite;
mod tensor;
mod timeline;
mod untyped;
mod waiting;

// Declared after `tensor`, so that the page of `Tensor` begins with the methods that most programs need.
#[cfg(feature = "wgpu")]
mod lent;
#[cfg(feature = "cuda")]
mod lent_cuda;

pub use cancel::Cancel;
pub use device::{Device, Traffic};
pub use device_info::{Backend, DeviceInfo, DeviceKind, DeviceOptions, Limits, ListedDevice};
pub use dtype::{DType, Element, InF32, Real};
pub use error::{Error, Hint, MemoryKind, Result, plain};
#[doc(hidden)]
pub use extent::to_usize;
#[cfg(feature = "cuda")]
pub use kernels::write_cuda_kernels;
pub use launch::Arg;
pub use needs::Needs;
pub use run::{Budget, Progress, Run, Status};
pub use store::{
    ArrayFacts, ChunkedArray, DecodedChunk, FetchedChunk, LookedFor, MissingChunk, OpenChunk, Shards,
    SharedArray, StoredType, WholeShard,
};
pub use tensor::{Arrival, HostValues, Pending, Tensor, TensorView};
pub use timeline::{About, Timeline};

/// The bytemuck crate whose `Pod` kernel parameters implement. Derive it with `#[bytemuck(crate = "teatime::bytemuck")]`, or depend on the same
/// version.
pub use bytemuck;
/// The cudarc crate whose contexts and streams [`Device::from_cuda`] takes.
#[cfg(feature = "cuda")]
pub use cudarc;
/// The half crate, whose `f16` and `bf16` tensors can hold.
pub use half;
#[cfg(feature = "wgpu")]
pub use lent::WgpuBuffer;
/// The ndarray crate of [`Tensor::from_ndarray`] and [`Tensor::to_ndarray`].
#[cfg(feature = "ndarray")]
pub use ndarray;
/// The rayon crate of [`Device::pool`].
pub use rayon;
/// The `serde_json` crate, whose values are the attributes of written arrays.
#[cfg(feature = "zarr")]
pub use serde_json;
/// The wgpu crate whose devices [`Device::from_wgpu`] takes.
#[cfg(feature = "wgpu")]
pub use wgpu;

/// The programs of the README.
#[cfg(all(doctest, feature = "zarr"))]
#[doc = include_str!("../README.md")]
struct Readme;
