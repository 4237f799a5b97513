//! Makes the sources of kernels that NVRTC compiles.

use crate::{
    Error, Result,
    kernel::{Access, KernelDef, Spec, specialize},
};

/// The headers that every kernel includes, with their names.
pub(super) const HEADERS: &[(&str, &str)] =
    &[("dev.cuh", include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/cuda/dev.cuh")))];

/// The line that includes the header.
const INCLUDE: &str = "\n#include \"dev.cuh\"\n";

/// Returns the CUDA source of a kernel. The spec's values replace the defaults, and the kernel's parameters and codes
/// replace the empty line behind [`INCLUDE`]. Fails with [`Error::Compile`] unless each name of the spec is declared
/// exactly once, as `constexpr u32 NAME = VALUE;`.
pub(super) fn source(kernel: &KernelDef, spec: Spec<'_>) -> Result<String> {
    let refused = |log: String| Error::Compile { kernel: kernel.name, backend: "cuda", log: log.into() };
    let source = specialize(kernel.cuda, spec, "constexpr u32 NAME = ", ";").map_err(refused)?;
    if let Some(declared) = kernel.declared {
        return Ok(source.replacen(&format!("{INCLUDE}\n"), &format!("{INCLUDE}{}\n", declared.cuda()), 1));
    }
    if kernel.constants.is_none() {
        return Ok(source);
    }
    let size = size_of_params(kernel, &source).map_err(refused)?;
    Ok(source + &size)
}

/// Returns the texts in the two pairs of brackets of a kernel's `KERNEL(name, ...)(...)`.
fn head<'a>(source: &'a str, name: &str) -> Option<[&'a str; 2]> {
    let (_, rest) = source.split_once(&format!("\nKERNEL({name}, "))?;
    let (threads, rest) = rest.split_once(")(")?;
    Some([threads, rest.split_once(')')?.0])
}

/// Returns a line that fails to compile if the size of the parameters is not the size in Rust, since a launch copies
/// their bytes unchecked. Fails with a text about arguments that do not match the bindings. (For this crate's own
/// kernels, tests compare them, and the names of parameters.)
fn size_of_params(kernel: &KernelDef, source: &str) -> Result<String, String> {
    let [_, arguments] = head(source, kernel.name)
        .ok_or_else(|| format!("no line of its source begins with `KERNEL({}, THREADS)(`", kernel.name))?;
    let mut arguments = arguments.split(',').map(str::trim).filter(|argument| !argument.is_empty());
    for (i, binding) in kernel.bindings.iter().enumerate() {
        let argument = arguments.next().unwrap_or("missing");
        let reads = argument.starts_with("const ");
        if !argument.contains('*') || reads != (binding.access == Access::Read) {
            return Err(format!("argument {i} is `{argument}`, and the kernel's binding is {binding}"));
        }
    }
    match (arguments.next(), arguments.next(), kernel.params) {
        (None, _, 0) => Ok(String::new()),
        (Some(params), None, size @ 1..) if !params.contains('*') => {
            let class = params.rsplit_once(' ').map_or(params, |(class, _)| class);
            Ok(format!(
                "static_assert(sizeof({class}) == {size}, \"parameters have {size} bytes in Rust\");\n"
            ))
        }
        (params, more, size) => Err(format!(
            "behind its bindings stand {params:?} and {more:?}, and should one block of parameters of {size} bytes, or nothing for none"
        )),
    }
}

/// Returns the number of threads of a block that a kernel's `KERNEL` declares, with the spec's values. It is read from
/// the source, since a driver only reports the maximum number for the loaded code. Fails with [`Error::Compile`] if the
/// expression has anything but names, numbers, `*`, `/`, and one `a == b ? c : d`; and the errors of [`source`].
pub(super) fn threads(kernel: &KernelDef, spec: Spec<'_>) -> Result<u32> {
    let source = source(kernel, spec)?;
    let threads =
        head(&source, kernel.name).and_then(|[threads, _]| value(&source, threads.split(", ").next()?));
    threads.ok_or_else(|| Error::Compile {
        kernel: kernel.name,
        backend: "cuda",
        log: "its source does not tell the threads of a block".into(),
    })
}

/// Evaluates an expression of a source.
fn value(source: &str, expression: &str) -> Option<u32> {
    let value = |expression: &str| value(source, expression);
    if let Some((condition, choices)) = expression.split_once(" ? ") {
        let ((a, b), (yes, no)) = (condition.split_once(" == ")?, choices.split_once(" : ")?);
        return value(if value(a)? == value(b)? { yes } else { no });
    }
    // Operators are evaluated from left to right, as in C.
    if let Some((left, right)) = expression.rsplit_once(['*', '/']) {
        let (product, left, right) = (expression[left.len()..].starts_with('*'), value(left)?, value(right)?);
        return if product { left.checked_mul(right) } else { left.checked_div(right) };
    }
    let expression = expression.trim();
    expression.parse().ok().or_else(|| {
        let declaration = format!("constexpr u32 {expression} = ");
        let texts = HEADERS.iter().map(|&(_, text)| text).chain([source]);
        let line = texts.flat_map(str::lines).find_map(|line| line.strip_prefix(&declaration))?;
        value(line.split(';').next()?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_rewritten_once_each() {
        let sums = &crate::kernels::add_block::ADD_BLOCK.def;
        let rewritten = source(sums, &[("WG", 64)]).unwrap();
        assert!(rewritten.contains("\nconstexpr u32 WG = 64;\n"), "{rewritten}");
        assert_eq!(rewritten.lines().count(), sums.cuda.lines().count());
        let Err(Error::Compile { kernel, backend, log }) = source(sums, &[("W", 64)]) else { panic!() };
        assert_eq!(
            (kernel, backend, &*log),
            ("add_block", "cuda", "constant `W` is not declared exactly once")
        );
    }

    #[test]
    fn threads_follow_the_spec() {
        let of = |text: &str| {
            let source = "constexpr u32 A = 4;\nconstexpr u32 B = A == 3 ? WARP : 2 * A / 8;  // one\n";
            value(source, text)
        };
        assert_eq!(
            [of("A"), of("B"), of("WARP"), of("A * 96 / 8 * B / WARP")],
            [Some(4), Some(1), Some(32), Some(1)]
        );
        assert_eq!(["C", "A / 0", "A + 1", "A == 4", "A * 4294967295"].map(of), [None; 5]);
        let reduce = &crate::kernels::reduce::REDUCE.def;
        let mut spec = (reduce.specs)()[0].clone();
        for exact in [0, 1] {
            spec.iter_mut().find(|(name, _)| *name == "EXACT").unwrap().1 = exact;
            assert_eq!(threads(reduce, &spec).unwrap(), [64, 32][exact as usize]);
        }
        let Err(Error::Compile { kernel, log, .. }) = threads(reduce, &[("W", 64)]) else { panic!() };
        assert_eq!((kernel, &*log), ("reduce", "constant `W` is not declared exactly once"));
    }
}
