//! GPU math for arrays bigger than memory: linear algebra, distances, filters and packed matrices, on an NVIDIA GPU through
//! CUDA, on Vulkan, Metal, DX12 and GL adapters through wgpu, or on the CPU.
//!
//! One code runs on every device, without a type parameter for it. CUDA is found at run time, so that a program builds and starts
//! without it. The library never prints, installs no signal handler and touches no global thread pool.
//!
//! # Concepts
//!
//! | concept | item | |
//! |---|---|---|
//! | device | [`Device`] | a GPU or the CPU. [`Device::best`] takes the fastest there is, [`Device::open`] the one that is named |
//! | tensor | [`Tensor`] | a typed, row-major array on one device. Operations take and give tensors |
//! | kernel | [`kernel::Kernel`] | a source for each backend, and what its arguments are. Operations launch kernels, and so may you: [`Device::launch`] |
//! | linear map | [`linalg::LinearMap`] | a matrix known by its products alone: a tensor, a packed matrix, or one of your own that is streamed. [`linalg::randomized_svd`] takes any |
//! | store | [`ChunkedArray`], [`store::Storage`] | an array that is read chunk by chunk: of Zarr, of a .npy file, in memory, or your own |
//! | stream | [`stream::Blocks`] | a pass over stored arrays in blocks of rows or boxes with halos, decoded ahead and uploaded, in bounded memory |
//! | run | [`Run`] | what a caller says to a long call: a flag that stops it, a callback for progress, memory budgets |
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
//! | [`mod@array`] | functions of elements, sums along an axis, rows by number: what stands between other operations |
//! | [`distance`] | distances of observations in the metrics of scipy and cuVS, and the nearest of each |
//! | [`filter`] | Gaussians, their derivatives, and weights of your own along each axis |
//! | [`packed`] | matrices of 0, 1, 2 and missing, two bits an entry, with exact products |
//! | [`bits`] | values of 1, 2 and 4 bits in bytes |
//! | [`kernel`] | kernels of your own, in WGSL, in CUDA and for the CPU |
//! | [`random`] | random words, uniform and normal numbers |
//! | [`stream`], [`store`] | passes over stored arrays; reading and writing these |
//!
//! The folder `examples` has programs to copy from. `teatime-genotype` and `teatime-image` are crates on top of this one.
//!
//! # Cargo features
//!
//! All but the last two are on by default. Crates are those of a build with that feature alone; it is 64 without any.
//!
//! | feature | gives | crates |
//! |---|---|---:|
//! | `cuda` | a driver for NVIDIA GPUs, [`Device::from_cuda`] | 85 |
//! | `wgpu` | a driver for Vulkan, Metal, DX12 and GL, [`Device::from_wgpu`] | 109 |
//! | `zarr` | Zarr v2 and v3 stores; its codecs are C and want a compiler | 173 |
//! | `ndarray` | [`Tensor::from_ndarray`], [`Tensor::to_ndarray`] | 68 |
//! | `cuda-emulator` | for tests: CUDA on the CPU | |
//! | `suite` | for tests of other packages; no part of the API | |
//!
//! # Costs
//!
//! - Without optimisation, as `cargo build` makes it for your program, what computes on the host is 30 to 40 times slower. Two lines in your
//!   `Cargo.toml` mend that, and leave your own code as it is:
//!
//!   ```toml
//!   [profile.dev.package."*"]
//!   opt-level = 1
//!   ```
//!
//!   By `cargo build` on two cores, distances of 1,000 observations of 1,000 features take 1.4 s without and 0.05 s with them, the SVD of
//!   600 x 200 numbers 0.64 s and 0.016 s; 2 and 3 give no more. The first build takes 2.5 minutes instead of one.
//! - Operations on tensors enqueue work and return. What says *Waits* in its documentation returns when the result is there, as
//!   [`Tensor::read`] does. A wgpu device that is many submissions behind makes the next one wait.
//! - A kernel is compiled at its first launch. On CUDA that takes up to seconds, once: compiled kernels are cached in
//!   `~/.cache/teatime`.
//! - One tensor is one buffer of its device ([`Limits::buffer`]). A matrix that is larger is a list of panels, or is streamed.
//! - Long calls keep within the [`Budget`] of their [`Run`]: by default half of the free memory of the host, and three quarters of the
//!   device's.
//! - Chunks, threads and budgets change no bit of a result on one device, but where a page says so.
//!
//! # Errors
//!
//! There is one type, [`Error`]. It names the argument, the numbers, and the file or chunk. It belongs to the call that returned it
//! and leaves the device usable, but for [`Error::DeviceLost`], which every later call on that device returns again.
//!
//! | error | what helps |
//! |---|---|
//! | [`Error::NoDevice`] | it lists what there is, and why the rest is not |
//! | [`Error::Budget`] | a budget of the least that it names |
//! | [`Error::OutOfMemory`] | freeing tensors; smaller blocks |
//! | [`Error::Limit`] | smaller tensors: the device never has room for such a one |
//! | [`Error::NoF64`] | f32, by the option `narrow` or [`Tensor::to_f32`], or another device |
//! | [`Error::WrongDevice`] | [`Tensor::to_device`] |
//! | [`Error::Chunk`], [`Error::Store`], [`Error::Io`] | the file that it names |
//! | [`Error::Cancelled`] | nothing: the caller asked for it |
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
//! | `with cupy.cuda.Device(1):` | `Device::open("cuda:1")`, given to what makes tensors |
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
//!

// Links to what only a feature makes lead, without it, to what has it.
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
// docs.rs says beside each item which feature it needs.
#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod array;
mod available;
pub mod bits;
mod cancel;
mod device;
mod device_info;
pub mod distance;
mod driver;
mod dtype;
mod error;
mod extent;
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
mod untyped;
mod waiting;

// Behind `tensor`, so that the page of `Tensor` begins with what most programs need.
#[cfg(feature = "wgpu")]
mod lent;
#[cfg(feature = "cuda")]
mod lent_cuda;

pub use cancel::Cancel;
pub use device::{Device, Traffic};
pub use device_info::{Backend, DeviceInfo, DeviceKind, DeviceOptions, Limits, ListedDevice};
pub use dtype::{DType, Element, InF32, Real};
pub use error::{Error, MemoryKind, Result, plain};
#[doc(hidden)]
pub use extent::to_usize;
#[cfg(feature = "cuda")]
pub use kernels::write_cuda_kernels;
pub use launch::Arg;
pub use needs::Needs;
pub use run::{Budget, Progress, Run, Status};
pub use store::{ChunkedArray, DecodedChunk, FetchedChunk, LookedFor, MissingChunk, SharedArray, StoredType};
pub use tensor::{Arrival, HostValues, Pending, Tensor, TensorView};

/// The bytemuck whose `Pod` the parameters of kernels are. Derive it with `#[bytemuck(crate = "teatime::bytemuck")]`, or depend on
/// the same version.
pub use bytemuck;
/// The cudarc that [`Device::from_cuda`] takes contexts and streams of.
#[cfg(feature = "cuda")]
pub use cudarc;
/// The half whose `f16` and `bf16` tensors hold.
pub use half;
#[cfg(feature = "wgpu")]
pub use lent::WgpuBuffer;
/// The ndarray of [`Tensor::from_ndarray`] and [`Tensor::to_ndarray`].
#[cfg(feature = "ndarray")]
pub use ndarray;
/// The rayon of [`Device::pool`].
pub use rayon;
/// The `serde_json` whose values are the attributes of arrays that are written.
#[cfg(feature = "zarr")]
pub use serde_json;
/// The wgpu that [`Device::from_wgpu`] takes devices of.
#[cfg(feature = "wgpu")]
pub use wgpu;

/// The programs of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
