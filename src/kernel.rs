//! Kernels as data: a name, one source per backend, and what the arguments are.

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use std::fmt::Write as _;
use std::marker::PhantomData;

use bytemuck::Pod;

use crate::{Error, Result, driver::cpu::CpuLaunch};

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

/// A kernel and the values of its constants: what is compiled.
pub(crate) type Program = (&'static KernelDef, Vec<(&'static str, u32)>);

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
