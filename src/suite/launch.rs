//! Tests of what `Device::launch` and the compilers refuse.

use std::{
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    thread,
    time::Duration,
};

use super::*;
use crate::{
    filter::{GaussianOptions, gaussian},
    kernel::{Access, Binding, CpuLaunch, Grid, Kernel},
    linalg,
    random::random_words,
};

device_tests! {
    grids_have_limits, bindings_have_limits,
    a_written_buffer_stands_once, items_are_worked_on_at_once, calls_are_cancelled,
    calls_end_midway,
}

fn nothing(_: CpuLaunch<'_>) {}

fn no_constants() -> Vec<Vec<(&'static str, u32)>> {
    vec![vec![]]
}

const SOUND: &str = "
@group(0) @binding(0) var<storage, read_write> out: array<u32>;
@group(0) @binding(1) var<uniform> n: u32;
@compute @workgroup_size(1) fn sound() { out[0] = n; }
";
pub(super) const COPY: &str = "
@group(0) @binding(0) var<storage, read> x: array<u32>;
@group(0) @binding(1) var<storage, read_write> out: array<u32>;
@group(0) @binding(2) var<uniform> n: u32;
@compute @workgroup_size(1) fn copy() { out[0] = x[0] + n; }
";

const CUDA_SOUND: &str = r#"
#include "dev.cuh"
KERNEL(sound, 1)(u32* out, u32 n) { out[0] = n; }
EXPORT(sound)
"#;
const CUDA_COPY: &str = r#"
#include "dev.cuh"
KERNEL(copy, 1)(const u32* x, u32* out, u32 n) { out[0] = x[0] + n; }
EXPORT(copy)
"#;

const OUT: &[Binding] = &[Binding::any(Access::Write)];
const X_OUT: &[Binding] = &[Binding::any(Access::Read), Binding::any(Access::Write)];

static SOUND_KERNEL: Kernel<u32> =
    Kernel::built_in("sound", [CUDA_SOUND, SOUND], Some(nothing), OUT, no_constants);
static COPY_KERNEL: Kernel<u32> =
    Kernel::built_in("copy", [CUDA_COPY, COPY], Some(nothing), X_OUT, no_constants);

fn launch(device: &Device, grid: Grid) -> Result<Vec<u32>> {
    let mut out = Tensor::<u32>::zeros(device, &[4]).unwrap();
    device.launch(&SOUND_KERNEL, &[], grid, &[out.window_mut(0..4).arg], &7)?;
    out.read()
}

fn still_works(device: &Device) {
    let made = if device.info().backend == Backend::Cpu { 0 } else { 7 };
    assert_eq!(launch(device, Grid::tiles(1, 1, 1)).unwrap(), [made, 0, 0, 0]);
}

fn grids_have_limits(device: &Device) {
    if let Some(more) = device.limits().groups_per_axis.checked_add(1) {
        let error = launch(device, Grid::tiles(1, more, 1));
        assert_err!(error, Error::Limit { requested, max, .. } if requested == max + 1);
    }
    // An empty grid does nothing.
    assert_eq!(launch(device, Grid::tiles(0, 1, 0)).unwrap(), [0; 4]);
    still_works(device);
}

fn bindings_have_limits(device: &Device) {
    let most = device.limits().binding;
    if most > 1 << 20 {
        return;
    }
    let mut out = Tensor::<u32>::zeros(device, &[most / 4 + 1]).unwrap();
    let all = out.window_mut(0..most / 4 + 1).arg;
    let error = device.launch(&SOUND_KERNEL, &[], Grid::tiles(1, 1, 1), &[all], &7);
    assert!(matches!(error, Err(Error::Limit { requested, max, .. }) if requested == max + 4));
    let most_of_it = out.window_mut(0..most / 4).arg;
    device.launch(&SOUND_KERNEL, &[], Grid::tiles(1, 1, 1), &[most_of_it], &7).unwrap();
}

fn a_written_buffer_stands_once(device: &Device) {
    let x = random_words(device, 1, 1, 4).unwrap();
    let read = x.window(0..4).arg;
    let written = crate::launch::Arg { access: Access::Write, ..read };
    let launched = device.launch(&COPY_KERNEL, &[], Grid::tiles(1, 1, 1), &[read, written], &7);
    let expected = "copy: `args`: arguments 0 and 1 are of one buffer, and one of them is written";
    assert_eq!(launched.unwrap_err().to_string(), expected);
}

/// Each item launches kernels from several tasks, whose buffers are created and dropped meanwhile.
fn items_are_worked_on_at_once(device: &Device) {
    let seeds: Vec<u64> = (0..40).collect();
    let words = |seed: u64| random_words(device, seed, 0, 3000).unwrap();
    let expected: Vec<Vec<u32>> = seeds.iter().map(|&seed| words(seed).read().unwrap()).collect();
    let mut items: Vec<(u64, Vec<Tensor<u32>>)> = seeds.iter().map(|&seed| (seed, Vec::new())).collect();
    let work = |(seed, made): &mut (u64, Vec<Tensor<u32>>)| {
        drop(random_words(device, *seed, 1, 2000)?);
        made.push(random_words(device, *seed, 0, 3000)?);
        Ok(())
    };
    device.each(&mut items, work).unwrap();
    for ((_, made), expected) in items.iter().zip(&expected) {
        assert_eq!((made.len(), &made[0].read().unwrap()), (1, expected));
    }
    let fails = |(seed, _): &mut (u64, Vec<Tensor<u32>>)| match seed {
        17 => Err(Error::Cancelled),
        _ => Ok(()),
    };
    assert!(matches!(device.each(&mut items, fails), Err(Error::Cancelled)));
    assert!(device.each(&mut items[..17], fails).is_ok());
    let threads = device.pool().unwrap().current_num_threads();
    assert_eq!(device.at_once(), if device.info().backend == Backend::Cpu { threads } else { 1 });
}

fn calls_are_cancelled(device: &Device) {
    let cancel = Cancel::default();
    let own = device.cancelled_by(&cancel);
    assert!(own.is_same(device) && device.is_same(&own));
    let x = random_words(&own, 1, 0, 4).unwrap();
    // One launch may take tensors of both handles; a tensor keeps the handle that it was made with.
    let mut out = Tensor::<u32>::zeros(device, &[4]).unwrap();
    let copy = |out: &mut Tensor<u32>| {
        let args = [x.window(0..4).arg, out.window_mut(0..4).arg];
        x.device().launch(&COPY_KERNEL, &[], Grid::tiles(1, 1, 1), &args, &7)
    };
    copy(&mut out).unwrap();
    cancel.cancel();
    assert!(matches!(copy(&mut out), Err(Error::Cancelled)));
    assert!(matches!(Tensor::<u32>::zeros(x.device(), &[4]), Err(Error::Cancelled)));
    still_works(device);
}

/// The flag is checked within a launch, so that it ends soon after: at least once in 2^28 multiplications of a product in f32 (100 times here),
/// and at every few lines of a filter.
#[test]
fn launches_on_the_cpu_are_cancelled_midway() {
    let looks = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&looks);
    let cancel = Cancel::asking(move || counted.fetch_add(1, Relaxed) == usize::MAX);
    let x = Tensor::<f32>::zeros(&cpu().cancelled_by(&cancel), &[3000, 3000]).unwrap();
    let blur = |x: &Tensor<f32>| gaussian::<f32, f32>(x, [0.0, 100.0], &GaussianOptions::default()).map(drop);
    for call in [&(|x: &Tensor<f32>| linalg::matmul(x, x).map(drop)) as &Call, &blur] {
        let before = looks.load(Relaxed);
        call(&x).unwrap();
        assert!(looks.load(Relaxed) - before >= 100, "{looks:?} after {before}");
    }
}

/// Only the caller's thread may be able to tell that a call should end.
#[test]
fn who_waits_for_items_looks_at_the_flag() {
    let caller = thread::current().id();
    let cancel = Cancel::asking(move || thread::current().id() == caller);
    let found = cpu().cancelled_by(&cancel).each(&mut [0, 1, 2], |_| {
        let waited = (0..5000).find(|_| {
            thread::sleep(Duration::from_millis(1));
            cancel.is_cancelled()
        });
        waited.map_or(Ok(()), |_| Err(Error::Cancelled))
    });
    assert!(matches!(found, Err(Error::Cancelled)), "{found:?}");
}

type Call = dyn Fn(&Tensor<f32>) -> Result<(), Error>;

/// Calls without a `Run` end when a flag is set, here at the n-th check.
fn calls_end_midway(device: &Device) {
    let values: Vec<f32> = (0..300u16 * 7).map(|i| f32::from(i % 13)).collect();
    let looked_at = |looks: usize, call: &Call| {
        let left = AtomicUsize::new(looks);
        let cancel =
            Cancel::asking(move || left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err());
        call(&Tensor::from_slice(&device.cancelled_by(&cancel), &values, &[300, 7])?)
    };
    let blur = |x: &Tensor<f32>| gaussian::<f32, f32>(x, 2.0, &GaussianOptions::default()).map(drop);
    let calls: [(&str, &Call); 2] = [("svd", &|x| linalg::svd(x).map(drop)), ("gaussian", &blur)];
    for (name, call) in calls {
        assert!(looked_at(usize::MAX, call).is_ok(), "{name}");
        for looks in 0..5 {
            let found = looked_at(looks, call);
            assert!(matches!(found, Err(Error::Cancelled)), "{name} after {looks}: {found:?}");
        }
    }
    still_works(device);
}
