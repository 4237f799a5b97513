//! Launches: their arguments, and the single place that checks them.

use std::ops::Range;

use bytemuck::Pod;
use rayon::prelude::*;

use crate::{
    DType, Device, Error, Result,
    driver::{ArgSlice, Caller, Slice},
    kernel::{Access, Binding, Grid, Kernel, KernelDef, Key, Program, Spec},
    timeline::Stage,
};

/// A tensor, or a part of it, as an argument of a [kernel](crate::kernel).
#[derive(Clone, Copy, Debug)]
pub struct Arg<'a> {
    pub(crate) device: &'a Device,
    pub(crate) slice: Slice<'a>,
    pub(crate) access: Access,
    pub(crate) dtype: DType,
}

/// Names of arguments in errors.
const ARGS: [&str; 8] =
    ["args[0]", "args[1]", "args[2]", "args[3]", "args[4]", "args[5]", "args[6]", "args[7]"];

impl Arg<'_> {
    /// Returns only some of the elements, which the kernel counts from 0; for tensors larger than [`Limits::binding`](crate::Limits::binding).
    /// If the part ends within a word of 4 bytes, kernels that write words can still write the whole word.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty range, a range beyond the argument, or a first byte that is not a multiple of
    /// [`Limits::alignment`](crate::Limits::alignment), which is at most 256 on any device.
    pub fn part(self, elements: Range<u64>) -> Result<Self> {
        let (size, alignment) = (self.dtype.size(), self.device.limits().alignment);
        let refused =
            |why: String| Err(Error::argument("Arg::part", "elements", format!("{elements:?}{why}")));
        if elements.start >= elements.end || elements.end > self.len() {
            return refused(format!(" of {}", self.len()));
        }
        let first = elements.start * size;
        if !first.is_multiple_of(alignment) {
            return refused(format!(": byte {first} is no multiple of {alignment}, the device's alignment"));
        }
        let bytes = (elements.end - elements.start) * size;
        Ok(Self { slice: Slice { offset: self.slice.offset + first, bytes, ..self.slice }, ..self })
    }

    fn len(&self) -> u64 {
        self.slice.bytes / self.dtype.size()
    }

    /// Refuses an argument that does not fit the kernel's binding, or that has fewer than the `least` elements that a launch uses.
    fn check(&self, i: usize, op: &'static str, binding: Binding, least: u64) -> Result<()> {
        let refused = |why: String| Err(Error::argument(op, "args", format!("argument {i} {why}")));
        let given = Binding { access: self.access, dtype: binding.dtype.map(|_| self.dtype) };
        if given != binding {
            return refused(format!("is given to be {given}, and the kernel's binding is {binding}"));
        }
        if self.len() < least {
            return refused(format!("has {} elements, and these parameters need {least}", self.len()));
        }
        let limits = self.device.limits();
        if self.slice.bytes > limits.binding {
            let (requested, max) = (self.slice.bytes, limits.binding);
            return Err(Error::Limit { what: "bytes in one kernel argument", requested, max });
        }
        let [offset, alignment] = [self.slice.offset, limits.alignment];
        if !offset.is_multiple_of(alignment) {
            return refused(format!(
                "begins at byte {offset} of its tensor, which is no multiple of {alignment}, the device's alignment: \
                 a copy of it (`try_clone`) would begin at 0"
            ));
        }
        Ok(())
    }
}

impl<P: Pod> Kernel<P> {
    /// Launches the kernel on the device of the first argument, as [`Device::launch`]. Works if that tensor is borrowed mutably and cannot give
    /// its device.
    ///
    /// # Errors
    /// As [`Device::launch`]; [`Error::Argument`] if there are no arguments.
    ///
    /// # Panics
    /// As [`Device::launch`].
    pub fn launch(&'static self, spec: Spec<'_>, grid: Grid, args: &[Arg<'_>], params: &P) -> Result<()> {
        let first = args.first().ok_or_else(|| Error::argument(self.def.name, "args", "none given"))?;
        first.device.launch(self, spec, grid, args, params)
    }
}

impl Device {
    /// Compiles programs that are about to be launched, several at once, since a compiler takes up to seconds for each. Compilation starts in
    /// the order of the list. Waits for all.
    ///
    /// # Errors
    /// The error that the launch of a program would return, even if that program is never launched.
    pub fn prepare(&self, programs: Vec<Program>) -> Result<()> {
        let mut distinct: Vec<(Key, Program)> = Vec::new();
        for program in programs {
            program.kernel.check(self.info(), &program.spec)?;
            let key = program.kernel.key(&program.spec);
            if !distinct.iter().any(|(other, _)| *other == key) {
                distinct.push((key, program));
            }
        }
        let prepare = |(_, program): (Key, Program)| {
            let _span = (!self.shares_host_memory()).then(|| self.span(Stage::Compile, program.kernel.name));
            self.driver().prepare(program.kernel, &program.spec)
        };
        // A parallel bridge takes items in order, unlike a parallel iterator over a list.
        self.pool()?.install(|| distinct.into_iter().par_bridge().try_for_each(prepare))
    }

    /// Enqueues a launch of a [kernel](crate::kernel), such as an application's own. `spec` gives values to the kernel's constants, in its
    /// order. `args` are tensors of this device, in the order of the kernel's bindings. [`Kernel::launch`] takes the device from `args`.
    ///
    /// Does not wait, except on the cpu device, which computes at once, and on a wgpu adapter that is eight submissions behind. The first launch
    /// of a program compiles it.
    ///
    /// # Errors
    /// - [`Error::NoSource`] when the kernel has no source for this device's backend;
    /// - [`Error::Argument`] for constants other than the kernel's, for arguments whose number, type, access or length does not fit the
    ///   bindings, and for two arguments of one buffer of which one is written;
    /// - [`Error::WrongDevice`] for a tensor of another device;
    /// - [`Error::Limit`] when an argument is larger than a binding, or the grid too large;
    /// - [`Error::Compile`] with the compiler's log and the source in numbered lines;
    /// - [`Error::Cancelled`] if this handle is [`cancelled_by`](Self::cancelled_by) a flag that is set;
    /// - what the driver reports.
    ///
    /// # Panics
    /// If the kernel's function for the cpu device or its `lengths` panics.
    pub fn launch<P: Pod>(
        &self,
        kernel: &'static Kernel<P>,
        spec: Spec<'_>,
        grid: Grid,
        args: &[Arg<'_>],
        params: &P,
    ) -> Result<()> {
        let lengths = kernel.lengths.map(|lengths| lengths(params));
        self.enqueue(&kernel.def, spec, grid, (args, lengths.as_deref()), bytemuck::bytes_of(params))
    }

    /// [`launch`](Self::launch) with parameters as bytes. If given, `lengths` are the minimum numbers of elements of the arguments.
    fn enqueue(
        &self,
        kernel: &'static KernelDef,
        spec: Spec<'_>,
        grid: Grid,
        (args, lengths): (&[Arg<'_>], Option<&[u64]>),
        params: &[u8],
    ) -> Result<()> {
        self.check()?;
        kernel.check(self.info(), spec)?;
        let (op, count) = (kernel.name, kernel.bindings.len());
        for (name, given) in [("args", args.len()), ("lengths", lengths.map_or(count, <[u64]>::len))] {
            if given != count {
                let why = format!("{given} given, and the kernel has {count} bindings");
                return Err(Error::argument(op, name, why));
            }
        }
        for (i, (arg, binding)) in args.iter().zip(kernel.bindings).enumerate() {
            self.has(op, ARGS.get(i).copied().unwrap_or("args"), arg.device)?;
            arg.check(i, op, *binding, lengths.map_or(0, |lengths| lengths[i]))?;
            let shared = args[..i].iter().position(|other| {
                let written = other.access != Access::Read || arg.access != Access::Read;
                written && other.slice.memory.is_same(arg.slice.memory)
            });
            if let Some(other) = shared {
                let why = format!("arguments {other} and {i} are of one buffer, and one of them is written");
                return Err(Error::argument(op, "args", why));
            }
        }
        let largest = grid.groups.into_iter().max().unwrap_or(0);
        if largest > self.limits().groups_per_axis {
            let (requested, max) = (largest.into(), self.limits().groups_per_axis.into());
            return Err(Error::Limit { what: "workgroups along one axis", requested, max });
        }
        if grid.groups.contains(&0) {
            return Ok(());
        }
        let args: Vec<_> = args.iter().map(|arg| ArgSlice { slice: arg.slice, access: arg.access }).collect();
        self.count_launch();
        let caller = Caller { cancel: self.cancel(), timeline: self.timeline() };
        let span = self.launch_span(op).bytes(args.iter().map(|arg| arg.slice.bytes).sum());
        self.driver().launch(kernel, spec, grid, &args, params, caller)?;
        drop(span);
        // A driver that computes at once may have stopped halfway.
        self.check()
    }
}
