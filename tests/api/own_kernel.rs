//! Tests of an application's own kernels: their results, and the errors for invalid ones.
#![allow(unsafe_code, reason = "CUDA checks no index: the author of a kernel does")]

#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/7_own_kernel.rs"]
mod example;

use std::panic::{AssertUnwindSafe, catch_unwind};

use teatime::{
    Arg, Backend, Device, Error, Tensor,
    kernel::{Binding, CpuLaunch, Grid, Kernel, Program, Spec},
};

use crate::on_each_device;

#[test]
fn the_example_is_right() {
    on_each_device(|device| {
        for len in [0u16, 1, 255, 256, 257, 5000] {
            let x: Vec<f32> = (0..len).map(|i| f32::from(i % 1000) / 100.0 - 5.0).collect();
            let x = Tensor::from_slice(device, &x, &[len.into()]).unwrap();
            let found = example::logistic(&x).unwrap().read().unwrap();
            let expected = |x: f32| 1.0 / (1.0 + (-f64::from(x)).exp());
            for (x, y) in x.read().unwrap().into_iter().zip(found) {
                assert!((f64::from(y) - expected(x)).abs() < 1e-6, "{len}: {x}: {y}");
            }
        }
    });
}

/// The kernel `out[i] = STEP x[i] + bytes[i]`.
static SUM: Kernel<u32> = {
    const BINDINGS: &[Binding] =
        &[Binding::read::<u32>(), Binding::read::<u8>(), Binding::read_write::<u32>()];
    let kernel = Kernel::new("sum", BINDINGS, |n: &u32| vec![(*n).into(); 3]).constants(&["STEP"]);
    // SAFETY: the three pointers have the types of the bindings, and are used at i < n only.
    unsafe { kernel.cuda(SUM_CUDA) }.wgsl(SUM_WGSL).cpu(|launch| {
        let (n, step) = (launch.params::<u32>() as usize, launch.constant("STEP"));
        let [x, bytes, out] = launch.args();
        let terms = x.read::<u32>().iter().zip(bytes.read::<u8>());
        for (out, (x, byte)) in out.write::<u32>().iter_mut().zip(terms).take(n) {
            *out = step * x + u32::from(*byte);
        }
    })
};
const SUM_WGSL: &str = "
const STEP: u32 = 1u;
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read> bytes: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<u32>;
@group(0) @binding(3) var<uniform> n: u32;
@compute @workgroup_size(32)
fn sum(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i < n { out[i] = STEP * x[i] + bitcast<u32>(i32(bitcast<f32>(decode_bits(bytes[word_of(i, 3u)], 0u, i, 3u)))); }
}
";
const SUM_CUDA: &str = r#"
#include "dev.cuh"
constexpr u32 STEP = 1;
KERNEL(sum, 32)(const u32* x, const u8* bytes, u32* out, u32 n) {
    u32 i = blockIdx.x * 32 + threadIdx.x;
    if (i < n) out[i] = STEP * x[i] + bytes[i];
}
EXPORT(sum)
"#;
const ONE: Spec<'static> = &[("STEP", 1)];

/// The arguments of [`SUM`], of four elements each; tests of too few bytes leave one out of the second.
struct Sum(Tensor<u32>, Tensor<u8>, Tensor<u32>);

impl Sum {
    fn of(device: &Device, bytes: usize) -> Self {
        let x = Tensor::from_slice(device, &[1, 2, 3, 4], &[4]).unwrap();
        let bytes = Tensor::from_slice(device, &[10, 20, 30, 250][..bytes], &[bytes as u64]).unwrap();
        Self(x, bytes, Tensor::zeros(device, &[4]).unwrap())
    }

    fn launch(&mut self, spec: Spec<'_>, groups: u32) -> Result<(), Error> {
        let args = [self.0.as_read(), self.1.as_read(), self.2.as_read_write()];
        SUM.launch(spec, Grid::tiles(groups, 1, 0), &args, &4)
    }
}

/// Returns the error of a refused launch, and checks that the device still makes valid ones.
fn refused(device: &Device, launched: Result<(), Error>) -> Error {
    let error = launched.expect_err("a launch should be refused");
    let mut sound = Sum::of(device, 4);
    sound.launch(&[("STEP", 2)], 1).unwrap();
    assert_eq!(sound.2.read().unwrap(), [12, 24, 36, 258], "after: {error}");
    error
}

#[test]
fn arguments_are_checked() {
    on_each_device(|device| {
        let launch = |args: &[Arg<'_>]| {
            let launched = device.launch(&SUM, ONE, Grid::tiles(1, 1, 0), args, &4);
            refused(device, launched).to_string()
        };
        let Sum(x, bytes, mut out) = Sum::of(device, 4);
        let Sum(_, short, _) = Sum::of(device, 3);
        let said = launch(&[x.as_read(), bytes.as_read()]);
        assert_eq!(said, "sum: `args`: 2 given, and the kernel has 3 bindings");
        let said = launch(&[bytes.as_read(), x.as_read(), out.as_read_write()]);
        let expected = "argument 0 is given to be read, of U8, and the kernel's binding is read, of U32";
        assert_eq!(said, format!("sum: `args`: {expected}"));
        for (given, out) in [("read", out.as_read()), ("written", Sum::of(device, 4).2.as_write())] {
            let said = launch(&[x.as_read(), bytes.as_read(), out]);
            let expected = "and the kernel's binding is read and written, of U32";
            assert_eq!(said, format!("sum: `args`: argument 2 is given to be {given}, of U32, {expected}"));
        }
        let said = launch(&[x.as_read(), short.as_read(), out.as_read_write()]);
        assert_eq!(said, "sum: `args`: argument 1 has 3 elements, and these parameters need 4");
        if !device.is_same(&Device::cpu()) {
            let other = Sum::of(&Device::cpu(), 4);
            let said = launch(&[x.as_read(), other.1.as_read(), out.as_read_write()]);
            let name = &device.info().name;
            let expected = format!("sum: `args[1]` is on device cpu, not on the call's device, {name}");
            assert_eq!(said, expected);
        }
        let mut sum = Sum::of(device, 4);
        for spec in [&[][..], &[("WIDTH", 1)], &[("STEP", 1), ("WIDTH", 1)]] {
            let error = refused(device, sum.launch(spec, 1));
            let expected = format!("sum: `spec`: {spec:?} given, and the kernel's constants are [\"STEP\"]");
            assert_eq!(error.to_string(), expected);
            let error = device.prepare(vec![Program::new(&SUM, spec)]).unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
        if let Some(more) = device.limits().groups_per_axis.checked_add(1) {
            let error = refused(device, sum.launch(ONE, more));
            assert!(matches!(error, Error::Limit { requested, max, .. } if requested == max + 1), "{error}");
        }
    });
}

static LENGTHS: Kernel<()> = Kernel::new("lengths", &[Binding::write::<u32>()], |()| vec![1, 1]).cpu(|_| ());
static BARE: Kernel<()> = Kernel::new("bare", &[], |()| vec![]);

#[test]
fn what_a_kernel_lacks_is_named() {
    let device = Device::cpu();
    let mut out = Tensor::<u32>::zeros(&device, &[1]).unwrap();
    let launched = device.launch(&LENGTHS, &[], Grid::tiles(1, 1, 0), &[out.as_write()], &());
    let said = launched.unwrap_err().to_string();
    assert_eq!(said, "lengths: `lengths`: 2 given, and the kernel has 1 bindings");
    on_each_device(|device| {
        let error = refused(device, device.launch(&BARE, &[], Grid::tiles(1, 1, 0), &[], &()));
        let what = match device.info().backend {
            Backend::Cuda => "CUDA source",
            Backend::Wgpu => "WGSL source",
            _ => "function for the cpu",
        };
        let expected = format!("kernel bare has no {what}, which device {} needs", device.info().name);
        assert_eq!(error.to_string(), expected);
        assert_eq!(device.prepare(vec![Program::new(&BARE, &[])]).unwrap_err().to_string(), expected);
    });
}

/// Returns a kernel `bad` of one written binding, and of one word of parameters.
const fn bad(wgsl: &'static str, cuda: &'static str) -> Kernel<u32> {
    let kernel =
        Kernel::new("bad", const { &[Binding::write::<u32>()] }, |_: &u32| vec![1]).constants(&["STEP"]);
    // SAFETY: none of these sources compiles.
    unsafe { kernel.cuda(cuda) }.wgsl(wgsl)
}

/// Each kernel with a text of wgpu's log and one of CUDA's. A source is empty if its language has no such mistake.
static BAD: [(Kernel<u32>, &str, &str); 6] = [
    (
        bad(
            "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\nconst STEP: u32 = 0u;\n@compute @workgroup_size(1) fn bad() { out[0] = 1.5; }",
            "#include \"dev.cuh\"\nconstexpr u32 STEP = 0;\nKERNEL(bad, 1)(u32* out, u32 n) { out[0] = nothing; }\nEXPORT(bad)",
        ),
        "   3 @compute @workgroup_size(1) fn bad() { out[0] = 1.5; }",
        "   3 KERNEL(bad, 1)(u32* out, u32 n) { out[0] = nothing; }",
    ),
    (
        bad(
            "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n@compute @workgroup_size(1) fn bad() { out[0] = 1; }",
            "#include \"dev.cuh\"\nKERNEL(bad, 1)(u32* out, u32 n) {}\nEXPORT(bad)",
        ),
        "constant `STEP` is not declared exactly once",
        "constant `STEP` is not declared exactly once",
    ),
    // The source's parameters are larger than those in Rust.
    (
        bad(
            "@group(0) @binding(1) var<uniform> params: vec2<u32>;\nconst STEP: u32 = 0u;\n@compute @workgroup_size(1) fn bad() { _ = params; }",
            "#include \"dev.cuh\"\nconstexpr u32 STEP = 0;\nstruct Params { u32 n, m; };\nKERNEL(bad, 1)(u32* out, Params params) {}\nEXPORT(bad)",
        ),
        "with [(\"STEP\", 1)]",
        "parameters have 4 bytes in Rust",
    ),
    // The source reads an argument that the binding writes.
    (
        bad(
            "@group(0) @binding(0) var<storage, read> out: array<u32>;\nconst STEP: u32 = 0u;\n@compute @workgroup_size(1) fn bad() { _ = out[0]; }",
            "#include \"dev.cuh\"\nconstexpr u32 STEP = 0;\nKERNEL(bad, 1)(const u32* out, u32 n) {}\nEXPORT(bad)",
        ),
        "with [(\"STEP\", 1)]",
        "argument 0 is `const u32* out`, and the kernel's binding is written, of U32",
    ),
    // The source has an additional argument, or another name for an argument.
    (
        bad(
            "@group(0) @binding(2) var<storage, read> x: array<u32>;\nconst STEP: u32 = 0u;\n@compute @workgroup_size(1) fn bad() { _ = x[0]; }",
            "#include \"dev.cuh\"\nconstexpr u32 STEP = 0;\nKERNEL(bad, 1)(u32* out, u32* more, u32 n) {}\nEXPORT(bad)",
        ),
        "with [(\"STEP\", 1)]",
        "behind its bindings stand Some(\"u32* more\") and Some(\"u32 n\")",
    ),
    (
        bad(
            "const STEP: u32 = 0u;\n@compute @workgroup_size(1) fn other() {}",
            "#include \"dev.cuh\"\nconstexpr u32 STEP = 0;\nKERNEL(other, 1)(u32* out, u32 n) {}\nEXPORT(other)",
        ),
        "with [(\"STEP\", 1)]",
        "no line of its source begins with `KERNEL(bad, THREADS)(`",
    ),
];

#[test]
fn sources_that_do_not_compile_are_shown() {
    on_each_device(|device| {
        let backend = device.info().backend;
        if backend == Backend::Cpu {
            return;
        }
        for (kernel, wgpu, cuda) in &BAD {
            let mut out = Tensor::<u32>::zeros(device, &[1]).unwrap();
            let launched = device.launch(kernel, ONE, Grid::tiles(1, 1, 0), &[out.as_write()], &4);
            let error = refused(device, launched);
            let Error::Compile { kernel: "bad", log, .. } = &error else { panic!("{error}") };
            assert!(log.contains(if backend == Backend::Cuda { cuda } else { wgpu }), "{log}");
            // The log has the compiler's messages and nearby lines, but none of the functions that are appended to the source.
            assert!(log.lines().count() < 25 && !log.contains("fn linear_group"), "{log}");
        }
    });
}

/// Returns a kernel `fill` that writes a number to its argument; all have one name but different sources.
const fn fill(cuda: &'static str, wgsl: &'static str, cpu: fn(CpuLaunch<'_>)) -> Kernel<()> {
    let kernel = Kernel::new("fill", const { &[Binding::write::<u32>()] }, |()| vec![1]).cpu(cpu).wgsl(wgsl);
    // SAFETY: only the first element of the only argument is written.
    unsafe { kernel.cuda(cuda) }
}

static FILLS: [Kernel<()>; 2] = [
    fill(
        "#include \"dev.cuh\"\nKERNEL(fill, 1)(u32* out) { out[0] = 1; }\nEXPORT(fill)",
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n@compute @workgroup_size(1) fn fill() { out[0] = 1; }",
        |launch| launch.args::<1>().into_iter().for_each(|out| out.write::<u32>()[0] = 1),
    ),
    fill(
        "#include \"dev.cuh\"\nKERNEL(fill, 1)(u32* out) { out[0] = 2; }\nEXPORT(fill)",
        "@group(0) @binding(0) var<storage, read_write> out: array<u32>;\n@compute @workgroup_size(1) fn fill() { out[0] = 2; }",
        |launch| launch.args::<1>().into_iter().for_each(|out| out.write::<u32>()[0] = 2),
    ),
];

#[test]
fn kernels_of_one_name_are_told_apart() {
    on_each_device(|device| {
        device.prepare(FILLS.iter().map(|fill| Program::new(fill, &[])).collect()).unwrap();
        for place in [0, 1, 0, 1] {
            let mut out = Tensor::<u32>::zeros(device, &[1]).unwrap();
            device.launch(&FILLS[place], &[], Grid::tiles(1, 1, 0), &[out.as_write()], &()).unwrap();
            assert_eq!(out.read().unwrap(), [place as u32 + 1]);
        }
    });
}

/// Tensors larger than a binding are passed in parts; a kernel sees a part from index 0, and the cpu kernel up to its end.
#[test]
fn parts_of_tensors() {
    const LEN: u32 = 40_001;
    on_each_device(|device| {
        let x: Vec<u32> = (0..LEN).collect();
        let bytes: Vec<u8> = x.iter().map(|x| x.to_le_bytes()[0]).collect();
        let x = Tensor::from_slice(device, &x, &[LEN.into()]).unwrap();
        let bytes = Tensor::from_slice(device, &bytes, &[LEN.into()]).unwrap();
        let mut out = Tensor::<u32>::zeros(device, &[LEN.into()]).unwrap();
        if device.limits().binding < u64::from(4 * LEN) {
            let args = [x.as_read(), bytes.as_read(), out.as_read_write()];
            let whole = device.launch(&SUM, ONE, Grid::tiles(1, 1, 0), &args, &LEN);
            assert!(matches!(refused(device, whole), Error::Limit { max, .. } if max == 64 << 10));
        }
        for first in (0..LEN).step_by(512) {
            let n = 512.min(LEN - first);
            let part = || u64::from(first)..u64::from(first + n);
            let args =
                [x.as_read().part(part()), bytes.as_read().part(part()), out.as_read_write().part(part())];
            let args = args.map(Result::unwrap);
            device.launch(&SUM, ONE, Grid::tiles(n.div_ceil(32), 1, 0), &args, &n).unwrap();
            let fewer = device.launch(&SUM, ONE, Grid::tiles(1, 1, 0), &args, &(n + 1));
            let expected = format!("has {n} elements, and these parameters need {}", n + 1);
            assert!(fewer.unwrap_err().to_string().ends_with(&expected));
        }
        assert!(out.read().unwrap().into_iter().eq((0..LEN).map(|i| i + i % 256)));
        let refused = |part| x.as_read().part(part).unwrap_err().to_string();
        assert_eq!(refused(8..8), "Arg::part: `elements`: 8..8 of 40001");
        assert_eq!(refused(0..40_002), "Arg::part: `elements`: 0..40002 of 40001");
        assert!(refused(1..3).starts_with("Arg::part: `elements`: 1..3: byte 4 is no multiple of "));
    });
}

/// A source may need more bytes of an argument than its type says; the launch is refused before work is recorded that would be lost.
#[test]
fn arguments_of_too_few_bytes_for_the_source() {
    static QUADS: Kernel<()> = Kernel::new("quads", &[Binding::read::<f32>()], |()| vec![1]).wgsl(
        "@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;\n@compute @workgroup_size(1) fn quads() { _ = x[0]; }",
    );
    on_each_device(|device| {
        if device.info().backend == Backend::Wgpu {
            let mut before = Sum::of(device, 4);
            before.launch(ONE, 1).unwrap();
            let x = Tensor::from_slice(device, &[1.0f32, 2.0, 3.0], &[3]).unwrap();
            let launched = device.launch(&QUADS, &[], Grid::tiles(1, 1, 0), &[x.as_read()], &());
            assert!(matches!(refused(device, launched), Error::Driver { .. }));
            assert_eq!(before.2.read().unwrap(), [11, 22, 33, 254]);
        }
    });
}

#[test]
fn a_panic_reaches_the_caller() {
    static PANICS: Kernel<()> =
        Kernel::new("panics", &[Binding::read_write::<u32>()], |()| vec![1]).cpu(|_| panic!("on purpose"));
    let device = Device::cpu();
    let mut out = Tensor::<u32>::zeros(&device, &[1]).unwrap();
    let mut launch = |kernel| device.launch(kernel, &[], Grid::tiles(1, 1, 0), &[out.as_write()], &());
    let mut update = Tensor::<u32>::zeros(&device, &[1]).unwrap();
    let args = [update.as_read_write()];
    let panicked =
        catch_unwind(AssertUnwindSafe(|| device.launch(&PANICS, &[], Grid::tiles(1, 1, 0), &args, &())));
    assert_eq!(*panicked.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    launch(&FILLS[0]).unwrap();
    assert_eq!((out.read().unwrap(), update.read().unwrap()), (vec![1], vec![0]));
}
