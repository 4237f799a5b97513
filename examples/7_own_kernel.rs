//! An application's own kernel, for every backend: the logistic function. The documentation of `teatime::kernel` has the rules.
//! `cargo run --example 7_own_kernel` runs it on every device of this machine.

#![allow(clippy::print_stdout, reason = "an example prints")]
#![allow(unsafe_code, reason = "CUDA checks no index: the author of a kernel does")]

use teatime::kernel::{Binding, CpuLaunch, Grid, Kernel};
use teatime::{Device, Error, Tensor, rayon::prelude::*};

const WGSL: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;
@compute @workgroup_size(256)
fn logistic(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
            @builtin(local_invocation_index) lane: u32) {
    let i = linear_group(group, groups) * 256 + lane;
    if i < n { out[i] = 1.0 / (1.0 + exp(-x[i])); }
}";
const CUDA: &str = r#"
#include "dev.cuh"
KERNEL(logistic, 256)(const float* x, float* out, u32 n) {
    u32 i = linear_block() * 256 + threadIdx.x;
    if (i < n) out[i] = 1.0f / (1.0f + expf(-x[i]));
}
EXPORT(logistic)"#;
fn on_cpu(launch: CpuLaunch<'_>) {
    let n = launch.params::<u32>() as usize;
    let [x, out] = launch.args();
    let (x, out) = (x.read::<f32>(), &mut out.write::<f32>()[..n]);
    // This uses all threads of the device.
    out.par_iter_mut().zip(x).for_each(|(out, x)| *out = 1.0 / (1.0 + (-x).exp()));
}

/// The kernel: its bindings, the number of elements of each that a launch with such parameters uses (n for both), and its sources.
static LOGISTIC: Kernel<u32> = {
    let bindings = &[Binding::read::<f32>(), Binding::write::<f32>()];
    let kernel = Kernel::new("logistic", bindings, |n: &u32| vec![(*n).into(); 2]);
    // SAFETY: the kernel has two pointers to f32 and writes to the second; it accesses both only at i < n, for any grid.
    unsafe { kernel.cuda(CUDA) }.wgsl(WGSL).cpu(on_cpu)
};

/// Applies the logistic function to `x`. [`Device::launch`] checks the sizes of the launch.
pub(crate) fn logistic(x: &Tensor<f32>) -> Result<Tensor<f32>, Error> {
    let device = x.device();
    let mut out = Tensor::empty(device, x.shape())?;
    let n = u32::try_from(x.len()).map_err(|_| Error::argument("logistic", "x", "2^32 elements or more"))?;
    let grid = Grid::linear(x.len().div_ceil(256), device.limits().groups_per_axis, 10 * x.len())?;
    device.launch(&LOGISTIC, &[], grid, &[x.as_read(), out.as_write()], &n)?;
    Ok(out)
}

fn main() -> Result<(), Error> {
    for listed in Device::all().into_iter().filter(|listed| listed.info.is_ok()) {
        let device = Device::open(&listed.name)?;
        let x = Tensor::from_slice(&device, &[-1.0f32, 0.0, 1.0], &[3])?;
        println!("{device:?}: {:?}", logistic(&x)?.read()?);
    }
    Ok(())
}
