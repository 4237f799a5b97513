//! Full memory, faults of kernels, lost devices.

use std::sync::Arc;

use bytemuck::{Pod, Zeroable};

use super::{control, device, open};
use crate::{
    Device, DeviceOptions, Error, Run, Tensor,
    driver::cpu::CpuLaunch,
    genotype::{Genotypes, MemoryArray, Method, PcaOptions, Scaler, pca},
    kernel::{Access, Grid, Kernel},
    linalg,
    random::philox,
};

const MIB: u64 = 1 << 20;

#[test]
fn full_memory_is_told_and_the_device_stays_usable() {
    let device = device(8);
    control::memory(8, 8 * MIB);
    let held = Tensor::<f32>::zeros(&device, &[MIB]).unwrap();
    let Err(Error::OutOfMemory { requested, free }) = Tensor::<f32>::zeros(&device, &[5 * MIB / 4]) else {
        panic!("there should be no room")
    };
    assert_eq!((requested, free), (5 * MIB, Some(4 * MIB)));
    // What is dropped is free for the next.
    drop(held);
    let x = Tensor::<f32>::zeros(&device, &[5 * MIB / 4]).unwrap();
    assert_eq!(linalg::row_stats(&x.reshape(&[1, 5 * MIB / 4]).unwrap()).unwrap()[0].sum, 0.0);
}

fn words(count: u64) -> Vec<u32> {
    (0..count.div_ceil(4)).flat_map(|block| philox([7, 0], block)).collect()
}

/// Dosages with a strong first component.
fn genotypes(variants: u64, samples: u64) -> Genotypes {
    let words = words(variants * samples);
    let dosage = |(word, i): (&u32, u64)| -> i8 {
        let high = (i % samples < samples / 2) == (i / samples).is_multiple_of(2);
        i8::from(word >> 24 < if high { 150 } else { 60 })
            + i8::from(word & 255 < if high { 150 } else { 60 })
    };
    let values: Vec<i8> = words.iter().zip(0..variants * samples).map(dosage).collect();
    let array = MemoryArray::new("dosages", &values, &[variants, samples], &[1000, samples]).unwrap();
    Genotypes::new(vec![Arc::new(array)]).unwrap()
}

#[test]
fn a_pca_retries_smaller() {
    let genotypes = genotypes(20_000, 400);
    // Of a scaling that may have dosages above 2, which are held as bytes.
    let scaler = Scaler::Standard;
    let options = PcaOptions { components: 2, method: Method::Randomized, scaler, ..Default::default() };
    let expected = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
    let whole = device(9);
    let roomy = pca(&genotypes, &whole, &options, &Run::default()).unwrap();
    let peak = whole.peak_bytes();
    drop(whole);
    // The device says 2 GiB when it is opened, and has less by the time: others hold the rest. All dosages are 8 MB, so
    // that there is room for the work only if they do not stay on the device.
    let device = device(9);
    control::memory(9, peak - 4 * MIB);
    let tight = pca(&genotypes, &device, &options, &Run::default()).unwrap();
    assert_eq!(tight.passes, roomy.passes);
    let chunks = [tight.stats.chunks, roomy.stats.chunks];
    assert!(chunks[0] > chunks[1], "it should read more than once: {chunks:?}");
    assert_eq!(tight.singular_values, roomy.singular_values);
    for (a, b) in tight.singular_values.iter().zip(&expected.singular_values) {
        assert!((a - b).abs() <= 1e-5 * b, "{a} {b}");
    }
    // Nothing is small enough.
    control::memory(9, MIB);
    let none = pca(&genotypes, &device, &options, &Run::default());
    assert!(matches!(none, Err(Error::OutOfMemory { .. })), "{none:?}");
}

#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
struct Place {
    i: u32,
}

fn nothing(_: CpuLaunch<'_>) {}

fn no_constants() -> Vec<Vec<(&'static str, u32)>> {
    vec![vec![]]
}

static STRAY: Kernel<Place> = Kernel::new(
    "stray",
    "#include \"dev.cuh\"\nstruct Params { u32 i; };\nKERNEL(stray, 64)(u32* out, Params params) { out[params.i] = 1; }\nEXPORT(stray)\n",
    "",
    nothing,
    &[Access::Write],
    no_constants,
);

#[test]
fn a_fault_of_a_kernel_sticks() {
    let device = device(10);
    let mut x = Tensor::<u32>::zeros(&device, &[64]).unwrap();
    let grid = Grid::linear(1, 65_535, 0).unwrap();
    device.launch(&STRAY, &[], grid, &[x.window_mut(0..64).arg], &Place { i: 63 }).unwrap();
    assert_eq!(x.read().unwrap()[63], 1);
    device.launch(&STRAY, &[], grid, &[x.window_mut(0..64).arg], &Place { i: 64 }).unwrap();
    let lost = |error: Option<Error>| match error {
        Some(Error::DeviceLost { device, why }) => {
            assert!(&*device == "cuda:10" && why.contains("memory that it should not"), "{device}: {why}");
        }
        other => panic!("{other:?}"),
    };
    lost(x.read().err());
    lost(Tensor::<u32>::zeros(&device, &[4]).err());
    lost(device.synchronize().err());
    assert!(control::fault(10).contains("stray"), "{}", control::fault(10));
}

#[test]
fn a_lost_device_says_so_in_a_long_call() {
    const UNAVAILABLE: i32 = 46;
    let device = device(11);
    control::lose(11, 12, UNAVAILABLE);
    let options = PcaOptions { components: 2, method: Method::Randomized, ..Default::default() };
    let result = pca(&genotypes(20_000, 100), &device, &options, &Run::default());
    assert!(matches!(result, Err(Error::DeviceLost { .. })), "{result:?}");
    assert!(matches!(device.synchronize(), Err(Error::DeviceLost { .. })));
}

/// The emulator's cuBLAS rounds to 10 bits where it is told to.
#[test]
fn products_are_rounded_to_tf32_only_when_asked() {
    let a: Vec<f32> = words(64 * 64).iter().map(|&word| (word >> 8) as f32 / 1e7).collect();
    let product = |options: &DeviceOptions| {
        let device = open(12, options);
        let x = Tensor::from_slice(&device, &a, &[64, 64]).unwrap();
        control::log_start(12);
        let c = linalg::matmul(&x, &x).unwrap().read().unwrap();
        (c, control::log_take(12).iter().any(|line| line.contains("cublas")))
    };
    let (own, by_library) = product(&DeviceOptions { own_kernels: true, ..Default::default() });
    assert!(!by_library);
    let (exact, by_library) = product(&DeviceOptions::default());
    assert!(by_library);
    let (rounded, _) = product(&DeviceOptions { tf32: true, ..Default::default() });
    let error = |c: &[f32]| c.iter().zip(&own).map(|(x, y)| (x - y).abs() / y).fold(0.0, f32::max);
    assert!(error(&exact) < 1e-6, "{}", error(&exact));
    assert!(error(&rounded) > 1e-5 && error(&rounded) < 1e-2, "{}", error(&rounded));
}
