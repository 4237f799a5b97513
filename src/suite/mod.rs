//! Tests of every operation on every device, against the same f64 oracles. `use super::*` imports what most files use.

mod bits;
mod block_sum;
#[cfg(feature = "zarr")]
mod checkpoint;
mod data;
mod denoise_tv;
#[cfg(feature = "zarr")]
mod denoise_tv_stored;
mod distance;
mod distance_candidates;
mod distance_expanded;
mod distance_f64;
mod distance_neighbors;
mod distance_on_device;
mod distance_packed;
mod distance_packed_between;
mod distance_partial;
mod distance_radius;
mod distance_selection;
mod distance_stored;
#[cfg(feature = "zarr")]
mod distance_tiles;
mod elementwise;
mod filter;
mod filter_properties;
mod filter_scipy;
#[cfg(feature = "zarr")]
mod filter_stored;
#[cfg(feature = "zarr")]
mod filter_stores;
mod gather;
#[cfg(feature = "zarr")]
mod group;
mod inner_sum;
mod launch;
mod left_vectors;
#[cfg(feature = "wgpu")]
mod lent;
#[cfg(feature = "cuda")]
mod lent_cuda;
mod matmul;
mod names;
#[cfg(feature = "zarr")]
mod numpy;
mod packed;
pub(crate) mod packed_case;
mod packed_gram;
mod packed_known;
mod packed_matrix;
mod packed_refused;
mod qr;
mod random;
mod randomized_svd;
mod recode;
mod reduce;
mod reduce_axis;
mod spectrum;
mod standardize;
mod svd;
mod svd_stored;
#[cfg(feature = "zarr")]
mod sweep;
mod tensor;
#[cfg(feature = "zarr")]
mod timeline;
mod tolerance;
mod transpose;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use half::{bf16, f16};

use data::{Sample, bits, for_each_type, matrix, smallest, values};
use tolerance::{EXACT, ONE_OPERATION, Reference, assert_close, dot, dot_of};

#[cfg(feature = "wgpu")]
use crate::openings::application_device;
use crate::{
    Backend, Budget, Cancel, ChunkedArray, DType, Device, DeviceOptions, Element, Error, MemoryKind, Real,
    Result, Run, Status, StoredType, Tensor, assert_err, device_tests,
    linalg::Matrix,
    openings::{assert_refused, cpu, least, told},
};

type Array = Arc<dyn ChunkedArray>;

/// Returns a group of `count` devices, of which the first one is `device` and the others compute on the same hardware.
fn group_of(device: &Device, count: usize) -> Device {
    let name = &device.info().name;
    let another = |i| Device::open_with(name, &DeviceOptions::default().threads(i)).unwrap();
    let others = (1..count).map(another);
    let members: Vec<Device> = [device.clone()].into_iter().chain(others).collect();
    Device::group(&members).unwrap()
}

/// Returns the number of workgroups on a grid's axis of a device with low limits. Other devices test their larger grid once, by sums of rows, since
/// every operation divides its work by the same limit.
fn low_groups_per_axis(device: &Device) -> Option<u64> {
    Some(u64::from(device.limits().groups_per_axis)).filter(|&axis| axis <= 1024)
}

/// Opens the same hardware again, so that no other test adds to its counters. The caller holds the lock meanwhile.
fn alone(device: &Device) -> (Device, MutexGuard<'static, ()>) {
    static ALONE: Mutex<()> = Mutex::new(());
    let lock = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let options = DeviceOptions { threads: Some(3), ..DeviceOptions::default() };
    (Device::open_with(&device.info().name, &options).unwrap(), lock)
}
