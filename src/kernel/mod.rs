//! Kernels: the programs that run on a device, and the way for an application to add its own.
//!
//! A [`Kernel`] is data: a name, one source for each backend, the kinds of its arguments, and the type of its parameters.
//! [`Device::launch`](crate::Device::launch) checks a launch and enqueues it, in order with all other work on the device. The operations of this
//! crate use the same mechanism. `examples/7_own_kernel.rs` is a kernel for every backend; this is one without CUDA:
//!
//! ```
//! use teatime::{
//!     Device, Tensor,
//!     bytemuck::{Pod, Zeroable},
//!     kernel::{Binding, Grid, Kernel},
//! };
//!
//! // The second line names the bytemuck that the derives use. A program that depends on bytemuck itself needs no such line.
//! #[derive(Clone, Copy, Pod, Zeroable)]
//! #[bytemuck(crate = "teatime::bytemuck")]
//! #[repr(C)]
//! struct Params {
//!     n: u32,
//!     factor: f32,
//! }
//!
//! // The bindings, and the number of elements of each that a launch with these parameters uses.
//! static SCALE: Kernel<Params> =
//!     Kernel::new("scale", &[Binding::read::<f32>(), Binding::write::<f32>()], |p: &Params| vec![p.n.into(); 2])
//!         .wgsl(
//!             "struct Params { n: u32, factor: f32 }
//! @group(0) @binding(0) var<storage, read> x: array<f32>;
//! @group(0) @binding(1) var<storage, read_write> out: array<f32>;
//! @group(0) @binding(2) var<uniform> params: Params;
//!
//! @compute @workgroup_size(64)
//! fn scale(
//!     @builtin(workgroup_id) group: vec3<u32>,
//!     @builtin(num_workgroups) groups: vec3<u32>,
//!     @builtin(local_invocation_index) lane: u32,
//! ) {
//!     let i = linear_group(group, groups) * 64u + lane;
//!     if i < params.n { out[i] = params.factor * x[i]; }
//! }",
//!         )
//!         .cpu(|launch| {
//!             let p: Params = launch.params();
//!             let [x, out] = launch.args();
//!             for (out, x) in out.write::<f32>().iter_mut().zip(x.read::<f32>()).take(p.n as usize) {
//!                 *out = p.factor * x;
//!             }
//!         });
//!
//! let device = Device::cpu();
//! let x = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0], &[3])?;
//! let mut out = Tensor::<f32>::empty(&device, &[3])?;
//! let grid = Grid::linear(3u64.div_ceil(64), device.limits().groups_per_axis, 3)?;
//! device.launch(&SCALE, &[], grid, &[x.as_read(), out.as_write()], &Params { n: 3, factor: 2.0 })?;
//! assert_eq!(out.read()?, [2.0, 4.0, 6.0]);
//! # Ok::<(), teatime::Error>(())
//! ```
//!
//! # What all sources have in common
//!
//! - **Arguments** are in the order of the bindings, followed by the parameters. An argument starts with its first element, at a multiple of
//!   16 bytes, without offsets and strides. An argument that is written may hold any values before. For a tensor larger than
//!   [`Limits::binding`](crate::Limits::binding), each launch is given a [part](crate::Arg::part).
//! - **Parameters** are a `#[repr(C)]` struct of `u32`, `i32` and `f32`, at most 128 bytes; or a single such number; or `()`, for which sources
//!   declare nothing.
//! - **Constants** are values that a compiler should know, such as the size of a workgroup. Sources declare each constant with a default on its
//!   own line, [`Kernel::constants`] names them, and a launch gives values for all.
//! - **Workgroups** run in any order, and none can wait for another. Launches run one after another: each sees the writes of the launches
//!   before.
//!
//! A program (a kernel with values of its constants) is compiled at its first launch on a device, which takes milliseconds to seconds, or ahead
//! of time by [`Device::prepare`](crate::Device::prepare). The device keeps programs. Sources are `&'static str`, from `include_str!`, or from
//! `String::leak` if made at run time. Leak a source once, not for each launch: a device identifies a source by its address, and keeps the
//! compiled program anyway.
//!
//! # WGSL
//!
//! The entry point has the kernel's name. Arguments are `@group(0) @binding(0)` and up: `var<storage, read>` if they are only read, otherwise
//! `var<storage, read_write>`. The parameters follow as a `var<uniform>`. A constant is `const NAME: u32 = 256u;`. Elements below 32 bits are
//! parts of `u32` words, the first in the low bits. One invocation must write a whole word, and bits written after the last element are ignored.
//!
//! The functions of `shaders/common.wgsl` that a source uses are appended to it. `linear_group(group, groups)` is the number of a workgroup in a
//! grid of [`Grid::linear`]. `decode_bits`, `decode_four` and `encode_bits`, with `word_of`, `high_word_of` and `f64_of`, convert between f32
//! and elements of a type. Types are numbered by their position in [`DType::ALL`], and `DTYPE_F32` and the like are constants for these numbers.
//! `byte_dot(a, b)` replaces WGSL's `dot4I8Packed`, which wgpu 30 miscompiles on Metal and DX12. A source must not declare the names above,
//! which are reserved, nor `f16_bits`, `f64_bits`, `half_of`, `is_byte`, `is_half`, `is_finite_bits`, `is_nan_bits`, `opaque`, `two_sum`,
//! `bounded`, `truncate_to`, `dots`, and names that begin with `DTYPE_`.
//!
//! No optional feature is enabled. A device with WebGPU's default limits has 8 arguments, and 256 invocations and 16 KiB of shared memory for
//! each workgroup. wgpu keeps indices within an argument: an access out of bounds affects another element of the same argument, or none. Shared
//! memory is not zeroed. Compilers may assume that no float is NaN or infinite, so test the bits.
//!
//! # CUDA
//!
//! ```text
//! #include "dev.cuh"
//!
//! struct Params { u32 n; float factor; };
//!
//! KERNEL(scale, 64)(const float* x, float* out, Params params) {
//!     u32 i = linear_block() * 64 + threadIdx.x;
//!     if (i < params.n) out[i] = params.factor * x[i];
//! }
//! EXPORT(scale)
//! ```
//!
//! `KERNEL(name, threads)(arguments)` begins a line. The arguments are a pointer for each binding, to `const` if the binding is only read,
//! followed by the parameters by value. The number of threads in a block is a number, a constant, or a product or quotient of these. A constant
//! is `constexpr u32 NAME = 256;`. `EXPORT(name)` is last. The crate's feature `cuda-emulator` runs the same source on the CPU and checks each
//! address and barrier.
//!
//! `cuda/dev.cuh` has the types `u8` to `u64` and `i8` to `i64`; `DEVICE`, for a function of the source's own; `SHARED(type, name, count)`, an
//! array shared by a block; `linear_block()`, like WGSL's `linear_group`; `div_ceil(a, b)`; `load<T>(array, i)` and
//! `store_real<T>(array, i, value)`, with `T` as `F32` or another name of [`DType`]; `float_bits`, `bits_float`, `half_float`, `float_half`;
//! `WARP`, `shuffle_xor(value, mask)`, `warp_any(holds)`; `atomic_add` and `atomic_max` of u32. Other contents of the header may change. CUDA's
//! own functions are available too; the emulator supports those listed in the README of the crate `cuda-emulator`.
//!
//! NVRTC, which must be installed, compiles the source as C++17; compiled code is cached in the user's cache folder. CUDA checks no address, so
//! [`Kernel::cuda`] is `unsafe`. A fault that the GPU does detect becomes [`Error::DeviceLost`] in a later call.
//!
//! # The CPU
//!
//! A function performs the whole launch at once, whatever the grid: it receives slices of the elements, the parameters and the constants
//! ([`CpuLaunch`]). The function runs on the device's threads, which rayon's parallel iterators share. If the function divides its work by the
//! shape alone, results are the same to the bit for any number of threads. If the function panics, [`Device::launch`](crate::Device::launch)
//! panics in the caller; the device stays usable, and the outputs may hold any values.

mod call;
mod declared;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
mod source;

use std::fmt;

use bytemuck::Pod;

pub use self::call::{CpuArg, CpuLaunch, Grid};
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) use self::source::{numbered, specialize};
pub(crate) use self::{
    call::small,
    declared::{Codes, Declared, codes, params},
};
use crate::{Backend, DType, DeviceInfo, Element, Error, Result};

/// The way in which a kernel accesses an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Read only.
    Read,
    /// Written completely over the elements that the operation names; previous values are not read.
    Write,
    /// Read and written.
    ReadWrite,
}

/// One position in a kernel's list of arguments, and the argument that it accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    pub(crate) access: Access,
    /// None for any type.
    pub(crate) dtype: Option<DType>,
}

impl Binding {
    /// Accepts a tensor of `T` that the kernel reads: [`Tensor::as_read`](crate::Tensor::as_read).
    pub const fn read<T: Element>() -> Self {
        Self { access: Access::Read, dtype: Some(T::DTYPE) }
    }

    /// Accepts a tensor of `T` that the kernel writes without reading: [`Tensor::as_write`](crate::Tensor::as_write).
    pub const fn write<T: Element>() -> Self {
        Self { access: Access::Write, dtype: Some(T::DTYPE) }
    }

    /// Accepts a tensor of `T` that the kernel reads and writes: [`Tensor::as_read_write`](crate::Tensor::as_read_write).
    pub const fn read_write<T: Element>() -> Self {
        Self { access: Access::ReadWrite, dtype: Some(T::DTYPE) }
    }

    /// Accepts a tensor of a type that the parameters or the constants specify.
    pub(crate) const fn any(access: Access) -> Self {
        Self { access, dtype: None }
    }
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.access {
            Access::Read => "read",
            Access::Write => "written",
            Access::ReadWrite => "read and written",
        })?;
        self.dtype.map_or(Ok(()), |dtype| write!(f, ", of {dtype:?}"))
    }
}

/// Values for the constants that a kernel's sources declare with defaults; the same in every backend.
pub type Spec<'a> = &'a [(&'static str, u32)];

/// A unit of compilation for a device: a kernel, and the values of its constants. Operations list the programs that they launch (for example
/// [`PackedProduct::programs`](crate::packed::PackedProduct::programs)), and [`Device::prepare`](crate::Device::prepare) compiles programs ahead
/// of time.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) kernel: &'static KernelDef,
    pub(crate) spec: Vec<(&'static str, u32)>,
}

impl Program {
    /// Creates a program from a kernel and values of its constants.
    pub fn new<P>(kernel: &'static Kernel<P>, spec: Spec<'_>) -> Self {
        Self { kernel: &kernel.def, spec: spec.to_vec() }
    }
}

/// The identity of a program on a device. Sources are compared by address: a source never moves, and comparing the text would take as long as a
/// launch.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    sources: [usize; 2],
    bindings: &'static [Binding],
    params: usize,
    pub(crate) spec: Box<[(&'static str, u32)]>,
}

/// A kernel without the type of its parameters, as drivers see it.
///
/// The order of `bindings` is the `@binding` order in WGSL (the parameters come last, as a uniform), the argument
/// order in CUDA, and the slice order of the CPU function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelDef {
    /// The name of the kernel and of its entry point, and for this crate's own kernels also of its files.
    pub(crate) name: &'static str,
    /// Parameters and codes that are inserted into both sources; only this crate's own kernels have these.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        allow(dead_code, reason = "the cpu has no sources")
    )]
    pub(crate) declared: Option<Declared>,
    /// The CUDA source, or an empty text; it includes `cuda/dev.cuh`.
    pub(crate) cuda: &'static str,
    /// The WGSL source, or an empty text; functions of `shaders/common.wgsl` that it uses are appended.
    pub(crate) wgsl: &'static str,
    /// Runs the whole launch over whole slices, and divides the work itself into pieces fixed by the shape.
    pub(crate) cpu: Option<fn(CpuLaunch<'_>)>,
    /// The access and type of each argument.
    pub(crate) bindings: &'static [Binding],
    /// The number of bytes of the parameters: only u32 and f32, at most 128 bytes.
    pub(crate) params: usize,
    /// The names of the constants of an application's kernel; none for this crate's own, whose constants `specs` lists.
    pub(crate) constants: Option<&'static [&'static str]>,
    /// Returns every spec that this crate's operations launch the kernel with. Tests compile each, and debug builds accept no other.
    pub(crate) specs: fn() -> Vec<Vec<(&'static str, u32)>>,
}

impl KernelDef {
    pub(crate) fn key(&self, spec: Spec<'_>) -> Key {
        let Self { name, bindings, params, .. } = *self;
        let sources = [self.cuda, self.wgsl].map(|source| source.as_ptr().addr());
        Key { name, sources, bindings, params, spec: spec.into() }
    }

    /// Checks that the kernel can run on such a device with these values of its constants. Fails with
    /// [`Error::NoSource`]; [`Error::Argument`] for constants other than the kernel's.
    pub(crate) fn check(&self, info: &DeviceInfo, spec: Spec<'_>) -> Result<()> {
        let (there, what) = match info.backend {
            Backend::Cpu => (self.cpu.is_some(), "function for the cpu"),
            Backend::Cuda => (!self.cuda.is_empty(), "CUDA source"),
            Backend::Wgpu => (!self.wgsl.is_empty(), "WGSL source"),
        };
        if !there {
            return Err(Error::NoSource { kernel: self.name, what, device: info.name.as_str().into() });
        }
        let Some(constants) = self.constants else {
            debug_assert!(
                (self.specs)().iter().any(|s| s == spec),
                "{}: {spec:?} is not in its specs",
                self.name
            );
            return Ok(());
        };
        if !spec.iter().map(|(name, _)| name).eq(constants) {
            let why = format!("{spec:?} given, and the kernel's constants are {constants:?}");
            return Err(Error::argument(self.name, "spec", why));
        }
        Ok(())
    }
}

/// A kernel with parameters of type `P`. [How to write one](self).
#[derive(Debug)]
pub struct Kernel<P> {
    pub(crate) def: KernelDef,
    /// Returns the number of elements of each argument that a launch uses. None for this crate's own kernels, whose operations check themselves.
    pub(crate) lengths: Option<fn(&P) -> Vec<u64>>,
}

impl<P: Pod> Kernel<P> {
    /// Creates a kernel without sources, which [`wgsl`](Self::wgsl), [`cuda`](Self::cuda) and [`cpu`](Self::cpu) add. A device can launch a
    /// kernel that has a source for its backend.
    ///
    /// `name` is the name of its entry points. `lengths` returns the number of elements of each argument that a launch with these parameters
    /// uses. Every device refuses a launch whose arguments have fewer.
    ///
    /// Parameters of more than 128 bytes, or not of whole words, do not compile:
    /// ```compile_fail,E0080
    /// # use teatime::kernel::Kernel;
    /// static LARGE: Kernel<[u32; 33]> = Kernel::new("large", &[], |_: &[u32; 33]| vec![]);
    /// ```
    ///
    /// # Panics
    /// If `name` is not an identifier of ASCII letters, digits and `_`; in a `static` this is a compiler error.
    pub const fn new(name: &'static str, bindings: &'static [Binding], lengths: fn(&P) -> Vec<u64>) -> Self {
        let bytes = name.as_bytes();
        let mut i = 0;
        while i < bytes.len() {
            assert!(
                bytes[i].is_ascii_alphanumeric() || bytes[i] == b'_',
                "a kernel's name should be an identifier"
            );
            i += 1;
        }
        assert!(!bytes.is_empty() && !bytes[0].is_ascii_digit(), "a kernel's name should be an identifier");
        let built_in = Self::built_in(name, ["", ""], None, bindings, Vec::new);
        let def = KernelDef { constants: Some(&[]), ..built_in.def };
        Self { def, lengths: Some(lengths) }
    }

    /// Creates a kernel of this crate: [CUDA, WGSL] sources that its tests check, with elements of any type.
    pub(crate) const fn built_in(
        name: &'static str,
        [cuda, wgsl]: [&'static str; 2],
        cpu: Option<fn(CpuLaunch<'_>)>,
        bindings: &'static [Binding],
        specs: fn() -> Vec<Vec<(&'static str, u32)>>,
    ) -> Self {
        const {
            assert!(
                size_of::<P>() <= 128 && size_of::<P>().is_multiple_of(4),
                "params are u32/f32, at most 128 bytes"
            );
        }
        let params = size_of::<P>();
        Self {
            def: KernelDef {
                name,
                declared: None,
                cuda,
                wgsl,
                cpu,
                bindings,
                params,
                constants: None,
                specs,
            },
            lengths: None,
        }
    }

    /// Inserts the parameters and codes into both sources.
    pub(crate) const fn declared(
        self,
        params: &'static [(&'static str, &'static str)],
        codes: &'static [Codes],
    ) -> Self {
        Self { def: KernelDef { declared: Some(Declared { params, codes }), ..self.def }, ..self }
    }

    /// Names the constants that each launch gives values for, in this order. Without this call there are none.
    #[must_use]
    pub const fn constants(self, names: &'static [&'static str]) -> Self {
        Self { def: KernelDef { constants: Some(names), ..self.def }, ..self }
    }

    /// Adds a source for wgpu.
    #[must_use]
    pub const fn wgsl(self, source: &'static str) -> Self {
        Self { def: KernelDef { wgsl: source, ..self.def }, ..self }
    }

    /// Adds a source for CUDA.
    ///
    /// # Safety
    /// A launch is safe to call, and CUDA does not check it. For all parameters, constants and grids, the source may therefore read and write
    /// only as many elements of each argument as `lengths` returns, write only arguments whose binding is written, and take each as a pointer to
    /// the binding's type. Otherwise it reads and overwrites other tensors, other memory of the process on the card, and mapped host memory.
    ///
    /// An endless loop is not unsafe, nor are concurrent writes of several threads to one address: the loop hangs, and the writes leave any
    /// value.
    #[must_use]
    #[allow(unsafe_code, reason = "the author's promise; nothing here is unsafe by itself")]
    pub const unsafe fn cuda(self, source: &'static str) -> Self {
        Self { def: KernelDef { cuda: source, ..self.def }, ..self }
    }

    /// Adds a function for the cpu device.
    #[must_use]
    pub const fn cpu(self, function: fn(CpuLaunch<'_>)) -> Self {
        Self { def: KernelDef { cpu: Some(function), ..self.def }, ..self }
    }
}

/// Declares a kernel: `kernel!("name", Params, [Read, Write], cpu_function, specs_function, [Codes])`. With `"name" + "part"`, the files
/// `name/part` are appended to the sources.
macro_rules! kernel {
    ($name:literal $(+ $part:literal)*, $params:ty, [$($access:ident),*], $cpu:path, $specs:path $(, [$($codes:ty),*])?) => {
        $crate::kernel::Kernel::<$params>::built_in(
            $name,
            [
                concat!(
                    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/", $name, ".cu")),
                    $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/", $name, "/", $part, ".cu"))),*
                ),
                concat!(
                    include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", $name, ".wgsl")),
                    $(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", $name, "/", $part, ".wgsl"))),*
                ),
            ],
            Some($cpu),
            &[$($crate::kernel::Binding::any($crate::kernel::Access::$access)),*],
            $specs,
        )
        .declared(<$params>::FIELDS, &[$($(<$codes>::CODES),*)?])
    };
}
pub(crate) use kernel;

#[cfg(test)]
mod tests {
    /// Checks that the module's documentation lists every function that a WGSL source gets and so may not declare itself.
    #[test]
    fn what_is_appended_to_shaders_is_named() {
        let declared =
            include_str!("../../shaders/common.wgsl").lines().filter_map(|line| line.strip_prefix("fn "));
        for name in declared.filter_map(|line| line.split('(').next()) {
            let named = [format!("`{name}`"), format!("`{name}(")];
            assert!(named.iter().any(|name| include_str!("mod.rs").contains(name)), "{name}");
        }
    }
}
