//! A filter that an application writes itself, the 3 x 3 median: of an image bigger than memory, out to Zarr. Dask calls this `map_overlap`.
//!
//! `cargo run --release --example 10_own_filter [IMAGE.zarr OUT.zarr]` takes an image of two axes; without arguments it makes a small one in memory.

#![allow(clippy::print_stdout, reason = "an example prints")]
#![allow(unsafe_code, reason = "CUDA checks no index: the author of a kernel does")]

use std::{env, path::PathBuf, sync::Arc};

use teatime::{
    Budget, ChunkedArray, Device, Error, MissingChunk, Run, StoredType, Tensor,
    kernel::{Binding, CpuLaunch, Grid, Kernel},
    rayon::prelude::*,
    store::{ArraySpec, ArrayWriter, Folder, MemoryArray, ZarrArray},
    stream::{BoxOperation, Place, Sweep},
};

/// Extents of the box, of its output, and the place of the first output in the box.
type Params = [u32; 6];

const WGSL: &str = "
struct Params { height: u32, width: u32, rows: u32, columns: u32, top: u32, left: u32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;
@group(0) @binding(2) var<uniform> p: Params;
@compute @workgroup_size(256)
fn median(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>,
          @builtin(local_invocation_index) lane: u32) {
    let i = linear_group(group, groups) * 256 + lane;
    if i >= p.rows * p.columns { return; }
    let row = i32(p.top + i / p.columns); let column = i32(p.left + i % p.columns);
    var near: array<f32, 9>;
    for (var k = 0; k < 9; k++) {
        let y = clamp(row + k / 3 - 1, 0, i32(p.height) - 1); let z = clamp(column + k % 3 - 1, 0, i32(p.width) - 1);
        near[k] = x[y * i32(p.width) + z];
    }
    out[i] = near[4];
    for (var k = 0; k < 9; k++) {
        var rank = 0;
        for (var j = 0; j < 9; j++) { if near[j] < near[k] || (near[j] == near[k] && j < k) { rank++; } }
        if rank == 4 { out[i] = near[k]; }
    }
}";
const CUDA: &str = r#"
#include "dev.cuh"
struct Params { u32 height, width, rows, columns, top, left; };
KERNEL(median, 256)(const float* x, float* out, Params p) {
    u32 i = linear_block() * 256 + threadIdx.x;
    if (i >= p.rows * p.columns) return;
    int row = p.top + i / p.columns, column = p.left + i % p.columns;
    float near[9];
    for (int k = 0; k < 9; k++) {
        int y = min(max(row + k / 3 - 1, 0), (int)p.height - 1), z = min(max(column + k % 3 - 1, 0), (int)p.width - 1);
        near[k] = x[y * p.width + z];
    }
    out[i] = near[4];
    for (int k = 0; k < 9; k++) {
        int rank = 0;
        for (int j = 0; j < 9; j++) rank += near[j] < near[k] || (near[j] == near[k] && j < k);
        if (rank == 4) out[i] = near[k];
    }
}
EXPORT(median)"#;
fn on_cpu(launch: CpuLaunch<'_>) {
    let [height, width, rows, columns, top, left] = launch.params::<Params>().map(|n| n as usize);
    let [x, out] = launch.args();
    let (x, out) = (x.read::<f32>(), &mut out.write::<f32>()[..rows * columns]);
    out.par_iter_mut().enumerate().for_each(|(i, out)| {
        let near = |i: usize, k: usize, extent: usize| (i + k).saturating_sub(1).min(extent - 1);
        let (row, column) = (top + i / columns, left + i % columns);
        let mut near: [f32; 9] =
            std::array::from_fn(|k| x[near(row, k / 3, height) * width + near(column, k % 3, width)]);
        near.sort_by(f32::total_cmp);
        *out = near[4];
    });
}

static MEDIAN: Kernel<Params> = {
    let bindings = &[Binding::read::<f32>(), Binding::write::<f32>()];
    let lengths = |&[height, width, rows, columns, ..]: &Params| {
        vec![u64::from(height) * u64::from(width), u64::from(rows) * u64::from(columns)]
    };
    // SAFETY: indices of `x` are clamped to its extents, and `out` is written at i < rows * columns only.
    unsafe { Kernel::new("median", bindings, lengths).cuda(CUDA) }.wgsl(WGSL).cpu(on_cpu)
};

/// Pixels are numbers: near a NaN it is one of the nine. Beyond the ends of the image stands the nearest pixel, as scipy's `mode="nearest"`: a box ends there, and indices are clamped.
pub(crate) struct Median;

impl BoxOperation for Median {
    type Input = f32;
    type Output = f32;

    fn halo(&self, _axis: usize) -> [u64; 2] {
        [1, 1]
    }

    fn run(&self, x: &Tensor<f32>, place: &Place, out: &mut Tensor<f32>) -> Result<(), Error> {
        let small =
            |n: u64| u32::try_from(n).map_err(|_| Error::argument("median", "x", "2^32 pixels or more"));
        small(x.len())?;
        let (extents, limits) = (place.extents(), x.device().limits());
        let numbers = [&place.shape[..], &extents[..], &place.before[..]].concat();
        let params: Vec<u32> = numbers.into_iter().map(small).collect::<Result<_, _>>()?;
        let params =
            params.try_into().map_err(|_| Error::argument("median", "x", "an image has two axes"))?;
        let grid = Grid::linear(out.len().div_ceil(256), limits.groups_per_axis, 100 * out.len())?;
        x.device().launch(&MEDIAN, &[], grid, &[x.as_read(), out.as_write()], &params)
    }
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    let mut paths = env::args_os().skip(1).map(PathBuf::from);
    let (Some(image), Some(out)) = (paths.next(), paths.next()) else { return run(&device) };
    // A run that is killed leaves whole tiles, and the next one of this job makes the others.
    let job = format!("median of {}", image.display());
    let image = Arc::new(ZarrArray::open(image, "", MissingChunk::Error)?);
    let mut spec = ArraySpec::new(StoredType::F32, image.shape(), image.chunk_shape());
    spec.job = Some(job);
    // Never more than 1 GiB of the host's memory.
    let limits = Run::default().memory(Budget::default().host(1 << 30));
    let writer = ArrayWriter::resume(Arc::new(Folder::new(out)), "", spec)?;
    let swept = Sweep::new(&image, &device, &limits).map(&Median, writer)?;
    println!("{} boxes on {device:?}, each chunk decoded {:.2} times", swept.boxes, swept.times_decoded);
    Ok(())
}

/// Salt in a picture of one gray is gone.
pub(crate) fn run(device: &Device) -> Result<(), Error> {
    let pixels: Vec<u8> = (0..90 * 70).map(|i| if i % 41 == 0 { 255 } else { 100 }).collect();
    let image = Arc::new(MemoryArray::new("image", &pixels, &[90, 70], &[32, 32])?);
    let filtered = Sweep::new(&image, device, &Run::default()).map_to_host(&Median)?;
    assert!(filtered.iter().all(|&pixel| pixel == 100.0));
    Ok(())
}
