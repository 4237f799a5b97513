//! A layer of a neural network on any device: a product of the library's, then a kernel of this program's own.

use teatime::kernel::{Binding, CpuLaunch, Grid, Kernel};
use teatime::{Device, Result, Tensor, linalg::matmul_nt, rayon::prelude::*};

const WGSL: &str = "
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> n: u32;
@compute @workgroup_size(256)
fn rectify(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
           @builtin(local_invocation_index) lane: u32) {
    let i = linear_group(group, groups) * 256 + lane;
    if i < n { out[i] = max(x[i], 0.0); }
}";
const CUDA: &str = r#"
#include "dev.cuh"
KERNEL(rectify, 256)(const float* x, float* out, u32 n) {
    u32 i = linear_block() * 256 + threadIdx.x;
    if (i < n) out[i] = fmaxf(x[i], 0.0f);
}
EXPORT(rectify)"#;
fn on_cpu(launch: CpuLaunch<'_>) {
    let n = launch.params::<u32>() as usize;
    let [x, out] = launch.args();
    let (x, out) = (x.read::<f32>(), &mut out.write::<f32>()[..n]);
    out.par_iter_mut().zip(x).for_each(|(out, x)| *out = x.max(0.0));
}

/// The larger of each of n numbers and 0.
static RECTIFY: Kernel<u32> = {
    let bindings = &[Binding::read::<f32>(), Binding::write::<f32>()];
    let kernel = Kernel::new("rectify", bindings, |n: &u32| vec![(*n).into(); 2]);
    // SAFETY: the kernel has two pointers to f32 and writes to the second; it accesses both only at i < n, for any grid.
    unsafe { kernel.cuda(CUDA) }.wgsl(WGSL).cpu(on_cpu)
};

/// Computes max(0, X Wᵀ): for each row of `inputs` (rows, features) a row of the results (rows, neurons). `weights` is (neurons, features).
///
/// # Errors
/// The device's.
pub fn layer(device: &Device, inputs: &[f32], weights: &[f32], features: u64) -> Result<Vec<f32>> {
    let x = Tensor::from_slice(device, inputs, &[inputs.len() as u64 / features, features])?;
    let w = Tensor::from_slice(device, weights, &[weights.len() as u64 / features, features])?;
    let sums = matmul_nt(&x, &w)?;
    let mut out = Tensor::empty(device, sums.shape())?;
    let grid = Grid::linear(sums.len().div_ceil(256), device.limits().groups_per_axis, 10 * sums.len())?;
    let n = u32::try_from(sums.len()).expect("a tensor of a layer has fewer than 2^32 elements");
    device.launch(&RECTIFY, &[], grid, &[sums.as_read(), out.as_write()], &n)?;
    out.read()
}
