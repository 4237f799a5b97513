use super::{cpu, data::values, device_tests};
use crate::{Device, DeviceOptions, Error, Tensor, genotype::dosage::dosage};

device_tests! {
    every_diploid_call, ploidies_around_the_words, several_launches, agrees_with_cpu, empty, wrong_shape,
}

/// Alleles above 0; the smallest allele where one is negative.
fn oracle(calls: &[i8], ploidy: usize) -> Vec<i8> {
    let count = |call: &[i8]| match call.iter().min() {
        Some(&lowest) if lowest < 0 => lowest,
        _ => call.iter().filter(|&&allele| allele > 0).count() as i8,
    };
    calls.chunks(ploidy).map(count).collect()
}

fn check(device: &Device, calls: &[i8], shape: [u64; 3]) {
    let calls_on_device = Tensor::from_slice(device, calls, &shape).unwrap();
    let out = dosage(&calls_on_device).unwrap();
    assert_eq!(out.shape(), &shape[..2]);
    assert_eq!(out.read().unwrap(), oracle(calls, shape[2] as usize), "{shape:?}");
}

fn alleles(seed: u32, len: u64) -> Vec<i8> {
    let kinds = [0, 1, 0, 2, 0, 3, 1, -1, 0, 1, 0, 0, -2, 1, 0, 127];
    values::<u8>(seed, len).iter().map(|byte| kinds[*byte as usize % 16]).collect()
}

fn every_diploid_call(device: &Device) {
    let kinds = [-2, -1, 0, 1, 2, 3, 127];
    let calls: Vec<i8> = kinds.iter().flat_map(|&a| kinds.iter().flat_map(move |&b| [a, b])).collect();
    check(device, &calls, [7, 7, 2]);
}

fn ploidies_around_the_words(device: &Device) {
    for ploidy in [1, 2, 3, 4, 5, 127] {
        for (variants, samples) in
            [(1, 1), (1, 3), (1, 4), (5, 1), (2, 3), (3, 7), (1, 1023), (2, 512), (5, 205)]
        {
            let calls = alleles(30, variants * samples * ploidy);
            check(device, &calls, [variants, samples, ploidy]);
        }
    }
}

/// More than 16 x 16 groups, and calls beyond 64 KiB.
fn several_launches(device: &Device) {
    check(device, &alleles(31, 301 * 1003 * 2), [301, 1003, 2]);
    check(device, &alleles(32, 301 * 101 * 3), [301, 101, 3]);
}

fn agrees_with_cpu(device: &Device) {
    let calls = alleles(33, 900 * 2);
    let on = |device| {
        let calls = Tensor::from_slice(device, &calls, &[30, 30, 2]).unwrap();
        dosage(&calls).unwrap().read().unwrap()
    };
    assert_eq!(on(device), on(cpu()));
}

fn empty(device: &Device) {
    check(device, &[], [0, 5, 2]);
    check(device, &[], [5, 0, 2]);
}

fn wrong_shape(device: &Device) {
    for shape in [&[4, 0][..], &[2, 2, 0], &[1, 1, 128]] {
        let len = shape.iter().product::<u64>() as usize;
        let calls = Tensor::from_slice(device, &vec![0i8; len], shape).unwrap();
        assert!(matches!(dosage(&calls), Err(Error::Shape { op: "dosage", .. })), "{shape:?}");
    }
}

/// Windows start at multiples of 64 calls, which at the highest ploidy just fit the least binding.
#[test]
fn the_least_binding_is_enough() {
    let options = DeviceOptions { binding: Some(16 << 10), checked: true, ..DeviceOptions::default() };
    let device = Device::open_with("cpu", &options).unwrap();
    check(&device, &alleles(34, 300 * 127), [1, 300, 127]);
}
