//! Kernels as data: a name, one source per backend, and what the arguments are.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use std::fmt::Write as _;
use std::marker::PhantomData;

use bytemuck::Pod;

use crate::{Error, Result};

/// How a kernel uses an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Read only.
    Read,
    /// Written whole over the elements the operation names; what was there is not read.
    Write,
    /// Read and written.
    ReadWrite,
}

/// Values for the constants that a kernel's sources declare with defaults; equal in every backend.
pub(crate) type Spec<'a> = &'a [(&'static str, u32)];

/// What is compiled for a device: a kernel, and the values of its constants. Operations say which they launch
/// ([`PackedProduct::programs`](crate::packed::PackedProduct::programs) for one), and [`Device::prepare`](crate::Device::prepare)
/// compiles them ahead.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) kernel: &'static KernelDef,
    pub(crate) spec: Vec<(&'static str, u32)>,
}

impl Program {
    pub(crate) fn new<P>(kernel: &'static Kernel<P>, spec: Spec<'_>) -> Self {
        Self { kernel: &kernel.def, spec: spec.to_vec() }
    }
}

/// A kernel without the type of its parameters: what drivers see.
///
/// The order of `access` is the `@binding` order in WGSL (the parameters come last, as a uniform), the argument
/// order in CUDA, and the slice order of the CPU function.
#[derive(Debug)]
pub(crate) struct KernelDef {
    /// Name of the kernel, its files, and its entry point.
    pub(crate) name: &'static str,
    /// CUDA source; it includes `cuda/dev.cuh`.
    #[cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only the CUDA driver reads it"))]
    pub(crate) cuda: &'static str,
    /// WGSL source; `shaders/common.wgsl` is appended to it.
    #[cfg_attr(not(feature = "wgpu"), allow(dead_code, reason = "only the wgpu driver reads it"))]
    pub(crate) wgsl: &'static str,
    /// Runs the whole launch over whole slices, and splits the work itself in pieces fixed by the shape.
    pub(crate) cpu: fn(CpuLaunch<'_>),
    /// Use of each argument.
    pub(crate) access: &'static [Access],
    /// Bytes of the parameter block: u32 and f32 only, at most 128 bytes.
    #[cfg_attr(not(feature = "wgpu"), allow(dead_code, reason = "only the wgpu driver reads it"))]
    pub(crate) params: usize,
    /// Every spec that operations launch it with; tests compile each, and `Device::launch` accepts no other.
    pub(crate) specs: fn() -> Vec<Vec<(&'static str, u32)>>,
}

/// A kernel whose parameter block is a `P`.
#[derive(Debug)]
pub(crate) struct Kernel<P> {
    pub(crate) def: KernelDef,
    params: PhantomData<fn(P)>,
}

impl<P: Pod> Kernel<P> {
    /// Used by `kernel!`, which fills in the sources.
    pub(crate) const fn new(
        name: &'static str,
        cuda: &'static str,
        wgsl: &'static str,
        cpu: fn(CpuLaunch<'_>),
        access: &'static [Access],
        specs: fn() -> Vec<Vec<(&'static str, u32)>>,
    ) -> Self {
        assert!(
            size_of::<P>() <= 128 && size_of::<P>().is_multiple_of(4),
            "params are u32/f32, at most 128 bytes"
        );
        Self {
            def: KernelDef { name, cuda, wgsl, cpu, access, params: size_of::<P>(), specs },
            params: PhantomData,
        }
    }
}

/// Declares a kernel: `kernel!("name", Params, [Read, Write], cpu_function, specs_function)`.
macro_rules! kernel {
    ($name:literal, $params:ty, [$($access:ident),*], $cpu:path, $specs:path) => {
        $crate::kernel::Kernel::<$params>::new(
            $name,
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/", $name, ".cu")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/shaders/", $name, ".wgsl")),
            $cpu,
            &[$($crate::kernel::Access::$access),*],
            $specs,
        )
    };
}
pub(crate) use kernel;

/// One argument as a CPU kernel gets it.
#[derive(Debug)]
pub(crate) enum CpuArg<'a> {
    /// For [`Access::Read`].
    Read(&'a [u8]),
    /// For [`Access::Write`] and [`Access::ReadWrite`].
    Write(&'a mut [u8]),
}

impl<'a> CpuArg<'a> {
    /// The elements of a read argument. A window may end inside an element; that tail is left out.
    pub(crate) fn read<T: Pod>(&self) -> &[T] {
        match self {
            Self::Read(bytes) => whole(bytes),
            Self::Write(bytes) => whole(bytes),
        }
    }

    /// The elements of a written argument.
    pub(crate) fn write<T: Pod>(self) -> &'a mut [T] {
        match self {
            Self::Write(bytes) => {
                let len = bytes.len() / size_of::<T>() * size_of::<T>();
                bytemuck::cast_slice_mut(&mut bytes[..len])
            }
            Self::Read(_) => unreachable!("a kernel should write only what its access list says"),
        }
    }
}

fn whole<T: Pod>(bytes: &[u8]) -> &[T] {
    bytemuck::cast_slice(&bytes[..bytes.len() / size_of::<T>() * size_of::<T>()])
}

/// A launch as a CPU kernel gets it. Runs inside the device's pool, so rayon's parallel calls use that pool.
#[derive(Debug)]
pub(crate) struct CpuLaunch<'a> {
    pub(crate) args: Vec<CpuArg<'a>>,
    pub(crate) params: &'a [u8],
    pub(crate) spec: Spec<'a>,
}

impl<'a> CpuLaunch<'a> {
    /// The parameter block.
    pub(crate) fn params<P: Pod>(&self) -> P {
        bytemuck::pod_read_unaligned(self.params)
    }

    /// The value of a constant of the spec.
    pub(crate) fn constant(&self, name: &str) -> u32 {
        let value = self.spec.iter().find(|(n, _)| *n == name);
        value.expect("an operation should give every constant its kernel reads").1
    }

    /// The arguments, in the order of the access list.
    pub(crate) fn args<const N: usize>(self) -> [CpuArg<'a>; N] {
        self.args.try_into().expect("Device::launch should have checked the number of arguments")
    }
}

/// A source with a spec's values in place of the defaults. A constant's line begins with `declaration`, in which `NAME`
/// is its name, and ends after the value with `end`.
///
/// # Errors
/// Which constant is not declared exactly once.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn specialize(
    source: &str,
    spec: Spec<'_>,
    declaration: &str,
    end: &str,
) -> Result<String, String> {
    let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
    for (name, value) in spec {
        let declaration = declaration.replace("NAME", name);
        let mut places = lines.iter_mut().filter(|line| line.starts_with(&declaration));
        let (Some(line), None) = (places.next(), places.next()) else {
            return Err(format!("constant `{name}` is not declared exactly once"));
        };
        *line = format!("{declaration}{value}{end}");
    }
    Ok(lines.join("\n") + "\n")
}

/// A source with the numbers of its lines, for the log of an error.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub(crate) fn numbered(source: &str) -> String {
    source.lines().enumerate().fold(String::new(), |mut text, (i, line)| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:4} {line}", i + 1);
        text
    })
}

/// Number of workgroups along each axis, and the arithmetic in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grid {
    pub(crate) groups: [u32; 3],
    /// Rough number of operations, by which a driver decides when to submit.
    pub(crate) work: u64,
}

impl Grid {
    /// `groups` workgroups numbered along one line, folded into x and y where x alone would pass `per_axis`.
    ///
    /// Kernels number them `y * num_workgroups.x + x` and stop past their last item.
    ///
    /// # Errors
    /// [`Error::Limit`] past `per_axis` squared.
    pub(crate) fn linear(groups: u64, per_axis: u32, work: u64) -> Result<Self> {
        let rows = groups.div_ceil(u64::from(per_axis)).max(1);
        let (Ok(x), Ok(y)) = (u32::try_from(groups.div_ceil(rows)), u32::try_from(rows)) else {
            return Err(Error::Limit {
                what: "workgroups",
                requested: groups,
                max: u64::from(per_axis).pow(2),
            });
        };
        Ok(Self { groups: [x, y, u32::from(groups > 0)], work })
    }

    /// `x` by `y` workgroups.
    pub(crate) const fn tiles(x: u32, y: u32, work: u64) -> Self {
        Self { groups: [x, y, 1], work }
    }
}

/// A number for a kernel's parameters, of a panel that one launch sees.
pub(crate) fn small(number: u64) -> u32 {
    u32::try_from(number).expect("a panel should be small")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linear_grids_fold() {
        assert_eq!(Grid::linear(0, 16, 0).unwrap().groups, [0, 1, 0]);
        assert_eq!(Grid::linear(16, 16, 0).unwrap().groups, [16, 1, 1]);
        assert_eq!(Grid::linear(17, 16, 0).unwrap().groups, [9, 2, 1]);
        assert_eq!(Grid::linear(70_000, 65_535, 0).unwrap().groups, [35_000, 2, 1]);
    }
}
