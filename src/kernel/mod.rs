//! Kernels: what runs on a device, and how an application adds its own.
//!
//! A [`Kernel`] is data: a name, one source for each backend, what its arguments are, and the type of its parameters.
//! [`Device::launch`](crate::Device::launch) checks a launch and enqueues it, in order with everything else on the device. The
//! operations of this crate are made of the same. `examples/7_own_kernel.rs` is one for every backend; here is one without
//! CUDA:
//!
//! ```
//! use teatime::{
//!     Device, Tensor,
//!     bytemuck::{Pod, Zeroable},
//!     kernel::{Binding, Grid, Kernel},
//! };
//!
//! // The second line says whose bytemuck the derives mean; a program that depends on one itself needs none.
//! #[derive(Clone, Copy, Pod, Zeroable)]
//! #[bytemuck(crate = "teatime::bytemuck")]
//! #[repr(C)]
//! struct Params {
//!     n: u32,
//!     factor: f32,
//! }
//!
//! // Its bindings, and how many elements of each a launch with such parameters uses.
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
//! - **Arguments** come in the order of the bindings, and then the parameters. An argument starts with its first element, at
//!   a multiple of 16 bytes; there are no offsets and no strides. One that is written may hold any values before. Of a tensor
//!   larger than [`Limits::binding`](crate::Limits::binding), a launch is given a [part](crate::Arg::part).
//! - **Parameters** are a `#[repr(C)]` struct of `u32`, `i32` and `f32`, 128 bytes at most; or one such number; or `()`, for
//!   which sources declare nothing.
//! - **Constants** are for what a compiler should know, such as the size of a workgroup. Sources declare each on a line of its
//!   own with a default, [`Kernel::constants`] names them, and a launch gives all their values.
//! - **Workgroups** run in any order, and none can wait for another. Launches follow each other: each sees what those
//!   before it wrote.
//!
//! A program (a kernel with values of its constants) is compiled at its first launch on a device, which takes milliseconds to
//! seconds, or ahead by [`Device::prepare`](crate::Device::prepare). The device keeps it. Sources are `&'static str`: what
//! `include_str!` gives, or `String::leak` for one that is made at run time. Leak it once, not for each launch: a device knows
//! a source by its place in memory, and keeps what it compiled of it anyway.
//!
//! # WGSL
//!
//! The entry point has the kernel's name. Arguments are `@group(0) @binding(0)` and on, as `var<storage, read>` where they are
//! only read, else `var<storage, read_write>`; the parameters are a `var<uniform>` behind them. A constant is
//! `const NAME: u32 = 256u;`. Elements below 32 bits are parts of `u32` words, the first in the low bits: one invocation
//! writes a whole word, and what it writes behind the last element is ignored.
//!
//! The functions of `shaders/common.wgsl` that a source uses are appended to it. Of them, `linear_group(group, groups)` is the
//! number of a workgroup in a grid of [`Grid::linear`]; `decode_bits`, `decode_four` and `encode_bits`, with `word_of`,
//! `high_word_of` and `f64_of`, convert between f32 and elements of a type. A type's number is its place in
//! [`DType::ALL`]; `DTYPE_F32` and the like are these numbers as constants. `byte_dot(a, b)` takes the place of WGSL's own
//! `dot4I8Packed`, of which wgpu 30 makes wrong programs on Metal and DX12. A source declares nothing by these names, which are
//! reserved, as are `f16_bits`, `f64_bits`, `half_of`, `is_byte`, `is_half`, `is_finite_bits`, `is_nan_bits`, `opaque`, `two_sum`,
//! `bounded`, `truncate_to`, `dots`, and all that begin with `DTYPE_`.
//!
//! No optional feature is enabled. A device with WebGPU's default limits has 8 arguments, 256 invocations a workgroup and 16
//! KiB that they share. wgpu keeps indexes within an argument: what is read or written outside of it meets another of its
//! elements, or none. What a workgroup shares is not zeroed. Compilers may assume that no float is NaN or infinite: test the
//! bits.
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
//! `KERNEL(name, threads)(arguments)` starts a line. The arguments are a pointer for each binding, to `const` where it is only
//! read, and then the parameters by value. The threads of a block are a number, a constant, or a product or quotient of these.
//! A constant is `constexpr u32 NAME = 256;`. `EXPORT(name)` stands last: the crate's feature `cuda-emulator` runs the same
//! source on the CPU, where each address and barrier is checked.
//!
//! `cuda/dev.cuh` has the types `u8` to `u64` and `i8` to `i64`; `DEVICE`, for a function of the source's own;
//! `SHARED(type, name, count)`, an array that a block shares; `linear_block()`, as in WGSL; `div_ceil(a, b)`;
//! `load<T>(array, i)` and `store_real<T>(array, i, value)`, where `T` is `F32` or another name of
//! [`DType`]; `float_bits`, `bits_float`, `half_float`, `float_half`; `WARP`, `shuffle_xor(value, mask)`,
//! `warp_any(holds)`; `atomic_add` and `atomic_max`, of u32. What else it has may change. CUDA's own functions are there
//! too; of these, the emulator has what the README of the crate `cuda-emulator` names.
//!
//! NVRTC compiles the source, as C++17, and has to be installed; the code is kept among the user's caches. CUDA checks no
//! address, so [`Kernel::cuda`] is `unsafe`. A fault that the card does find is
//! [`Error::DeviceLost`] at some later call.
//!
//! # The CPU
//!
//! A function does the whole launch at once, whatever the grid: it gets slices of the elements, the parameters and the
//! constants ([`CpuLaunch`]). It runs on the device's threads, which rayon's parallel iterators share. Where it splits its work
//! in pieces that the shape alone fixes, any number of threads gives the same bits. Its panic is the caller's of
//! [`Device::launch`](crate::Device::launch); the device stays usable, and what was to be written may hold any values.

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

/// The use that a kernel makes of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Access {
    /// Read only.
    Read,
    /// Written whole over the elements the operation names; what was there is not read.
    Write,
    /// Read and written.
    ReadWrite,
}

/// One place in a kernel's list of arguments, and what it takes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Binding {
    pub(crate) access: Access,
    /// None for any.
    pub(crate) dtype: Option<DType>,
}

impl Binding {
    /// A tensor of `T` that the kernel reads: [`Tensor::as_read`](crate::Tensor::as_read).
    pub const fn read<T: Element>() -> Self {
        Self { access: Access::Read, dtype: Some(T::DTYPE) }
    }

    /// A tensor of `T` that the kernel writes, whatever is in it: [`Tensor::as_write`](crate::Tensor::as_write).
    pub const fn write<T: Element>() -> Self {
        Self { access: Access::Write, dtype: Some(T::DTYPE) }
    }

    /// A tensor of `T` that the kernel reads and writes: [`Tensor::as_read_write`](crate::Tensor::as_read_write).
    pub const fn read_write<T: Element>() -> Self {
        Self { access: Access::ReadWrite, dtype: Some(T::DTYPE) }
    }

    /// A tensor of a type that the parameters or the constants tell.
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

/// Values for the constants that a kernel's sources declare with defaults; equal in every backend.
pub type Spec<'a> = &'a [(&'static str, u32)];

/// A unit that is compiled for a device: a kernel, and the values of its constants. Operations say which they launch
/// ([`PackedProduct::programs`](crate::packed::PackedProduct::programs) for one), and [`Device::prepare`](crate::Device::prepare)
/// compiles them ahead.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) kernel: &'static KernelDef,
    pub(crate) spec: Vec<(&'static str, u32)>,
}

impl Program {
    /// A kernel with these values of its constants.
    pub fn new<P>(kernel: &'static Kernel<P>, spec: Spec<'_>) -> Self {
        Self { kernel: &kernel.def, spec: spec.to_vec() }
    }
}

/// The identity of a program on a device. Sources are compared by their place: they stay where they are for good, and to read
/// them all would take as long as a launch.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    sources: [usize; 2],
    bindings: &'static [Binding],
    params: usize,
    pub(crate) spec: Box<[(&'static str, u32)]>,
}

/// A kernel without the type of its parameters: what drivers see.
///
/// The order of `bindings` is the `@binding` order in WGSL (the parameters come last, as a uniform), the argument
/// order in CUDA, and the slice order of the CPU function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelDef {
    /// Name of the kernel and its entry point; of this crate's own also of its files.
    pub(crate) name: &'static str,
    /// Parameters and codes that are written into both sources; only this crate's own kernels have them.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "wgpu")),
        allow(dead_code, reason = "the cpu has no sources")
    )]
    pub(crate) declared: Option<Declared>,
    /// CUDA source, or nothing; it includes `cuda/dev.cuh`.
    pub(crate) cuda: &'static str,
    /// WGSL source, or nothing; what it uses of `shaders/common.wgsl` is appended to it.
    pub(crate) wgsl: &'static str,
    /// Runs the whole launch over whole slices, and splits the work itself in pieces fixed by the shape.
    pub(crate) cpu: Option<fn(CpuLaunch<'_>)>,
    /// Use of each argument.
    pub(crate) bindings: &'static [Binding],
    /// Bytes of the parameter block: u32 and f32 only, at most 128 bytes.
    pub(crate) params: usize,
    /// Names of the constants of an application's kernel; none for this crate's own, of which the next tells them.
    pub(crate) constants: Option<&'static [&'static str]>,
    /// Every spec that this crate's operations launch it with; tests compile each, and `Device::launch` accepts no other.
    pub(crate) specs: fn() -> Vec<Vec<(&'static str, u32)>>,
}

impl KernelDef {
    pub(crate) fn key(&self, spec: Spec<'_>) -> Key {
        let Self { name, bindings, params, .. } = *self;
        let sources = [self.cuda, self.wgsl].map(|source| source.as_ptr().addr());
        Key { name, sources, bindings, params, spec: spec.into() }
    }

    /// Checks that it can run on such a device with these values of its constants.
    ///
    /// # Errors
    /// [`Error::NoSource`]; [`Error::Argument`] for other constants than it has.
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

/// A kernel whose parameters are a `P`. [How to write one](self).
#[derive(Debug)]
pub struct Kernel<P> {
    pub(crate) def: KernelDef,
    /// Elements of each argument that a launch uses; none for this crate's own, whose operations give what they use.
    pub(crate) lengths: Option<fn(&P) -> Vec<u64>>,
}

impl<P: Pod> Kernel<P> {
    /// A kernel without sources, which [`wgsl`](Self::wgsl), [`cuda`](Self::cuda) and [`cpu`](Self::cpu) add: a device
    /// launches what has one for its backend.
    ///
    /// `name` is that of its entry points. `lengths` tells how many elements of each argument a launch with these
    /// parameters uses: one with fewer is refused, on every device.
    ///
    /// Parameters of more than 128 bytes, or of no whole words, do not compile:
    /// ```compile_fail,E0080
    /// # use teatime::kernel::Kernel;
    /// static LARGE: Kernel<[u32; 33]> = Kernel::new("large", &[], |_: &[u32; 33]| vec![]);
    /// ```
    ///
    /// # Panics
    /// When `name` is no identifier of ASCII letters, digits and `_`; in a `static` that is an error of the compiler.
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

    /// This crate's own: [CUDA, WGSL] sources that its tests check, of elements of any type.
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

    /// Writes the parameters and codes into both sources.
    pub(crate) const fn declared(
        self,
        params: &'static [(&'static str, &'static str)],
        codes: &'static [Codes],
    ) -> Self {
        Self { def: KernelDef { declared: Some(Declared { params, codes }), ..self.def }, ..self }
    }

    /// Names the constants that each launch gives values for, in this order; none unless this is called.
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
    /// A launch is safe to call, and CUDA checks nothing of it. So whatever the parameters, the constants' values and the
    /// grid, the source may read and write only as many elements of each argument as `lengths` says, write only what is
    /// written by its binding, and take each as a pointer to the binding's type. Else it reads and overwrites other
    /// tensors, what else the process has on the card, and memory of the host that is mapped there.
    ///
    /// A loop without an end is not unsafe, nor are threads that write one place at once: the first hangs, the other leaves
    /// any value.
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

/// Declares a kernel: `kernel!("name", Params, [Read, Write], cpu_function, specs_function, [Codes])`. The sources of
/// `"name" + "part"` go on with what the files `name/part` have.
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
    /// The page above tells which names a source must not declare again.
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
