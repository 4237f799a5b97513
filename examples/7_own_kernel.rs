//! A kernel of an application's own, for every backend: the logistic function, `out = 1 / (1 + exp(-(a x + b)))`.
//!
//! `cargo run --example 7_own_kernel` runs it on every device of this machine.

#![allow(clippy::print_stdout, reason = "an example prints")]
#![allow(unsafe_code, reason = "CUDA checks no index: the author of a kernel does")]

use bytemuck::{Pod, Zeroable};
use teatime::{
    Device, Error, Tensor,
    kernel::{Binding, CpuLaunch, Grid, Kernel},
    rayon::prelude::*,
};

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Params {
    n: u32,
    a: f32,
    b: f32,
}

const WGSL: &str = "
struct Params { n: u32, a: f32, b: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> params: Params;
const WG: u32 = 256u;

@compute @workgroup_size(WG)
fn logistic(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let i = linear_group(group, groups) * WG + lane;
    if i < params.n { out[i] = 1.0 / (1.0 + exp(-(params.a * x[i] + params.b))); }
}
";

const CUDA: &str = r#"
#include "dev.cuh"
struct Params { u32 n; float a; float b; };
constexpr u32 WG = 256;

KERNEL(logistic, WG)(const float* x, float* out, Params params) {
    u32 i = linear_block() * WG + threadIdx.x;
    if (i < params.n) out[i] = 1.0f / (1.0f + expf(-(params.a * x[i] + params.b)));
}
EXPORT(logistic)
"#;

fn on_cpu(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [x, out] = launch.args();
    let (x, out) = (&x.read::<f32>()[..p.n as usize], &mut out.write::<f32>()[..p.n as usize]);
    // With as many threads as the device has.
    out.par_iter_mut().zip(x).for_each(|(out, x)| *out = 1.0 / (1.0 + (-(p.a * x + p.b)).exp()));
}

/// The kernel: its bindings, and how many elements of each a launch with such parameters uses.
static LOGISTIC: Kernel<Params> = {
    let bindings = &[Binding::read::<f32>(), Binding::write::<f32>()];
    let kernel = Kernel::new("logistic", bindings, |p: &Params| vec![p.n.into(); 2]);
    // SAFETY: two pointers to f32, of which the second is written, both only at i < n, for any grid and any WG.
    unsafe { kernel.cuda(CUDA) }.constants(&["WG"]).wgsl(WGSL).cpu(on_cpu)
};

/// The operation, which launches it: with sizes of its own, checked by [`Device::launch`].
pub(crate) fn logistic(x: &Tensor<f32>, a: f32, b: f32) -> Result<Tensor<f32>, Error> {
    let (device, wg) = (x.device(), 256);
    let mut out = Tensor::empty(device, x.shape())?;
    let n = u32::try_from(x.len())
        .map_err(|_| Error::argument("logistic", "x", format!("{} elements, 2^32 or more", x.len())))?;
    let grid = Grid::linear(x.len().div_ceil(wg.into()), device.limits().groups_per_axis, 10 * x.len())?;
    device.launch(&LOGISTIC, &[("WG", wg)], grid, &[x.as_read(), out.as_write()], &Params { n, a, b })?;
    Ok(out)
}

fn main() -> Result<(), Error> {
    let x: Vec<f32> = (0..1000u16).map(|i| f32::from(i) / 100.0 - 5.0).collect();
    for listed in Device::all().into_iter().filter(|listed| listed.info.is_ok()) {
        let device = Device::open(&listed.name)?;
        let found = logistic(&Tensor::from_slice(&device, &x, &[1000])?, 2.0, 0.5)?.read()?;
        let expected = x.iter().map(|&x| 1.0 / (1.0 + (-(2.0 * f64::from(x) + 0.5)).exp()));
        let error = found.iter().zip(expected).map(|(&y, e)| (f64::from(y) - e).abs()).fold(0.0, f64::max);
        assert!(error < 1e-6, "{device:?}: {error:e}");
        println!("{device:?}: largest error {error:.1e}");
    }
    Ok(())
}
