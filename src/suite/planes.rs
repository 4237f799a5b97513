//! Codes of two bits as planes of bits, and back.

use super::{
    bits::{LENGTHS, PLAIN, codes, fixture, packed, tensor},
    cpu, device_tests,
};
use crate::{
    Device, Error, Tensor,
    bits::{Width, merge_planes, pack, split_planes},
};

device_tests! {
    every_length, every_stride, population_counts, as_numpy_packs, empty, wrong_arguments,
}

fn check(device: &Device, len: usize, rows: usize, [codes_stride, planes_stride]: [usize; 2]) {
    let codes = codes(71, Width::Two, rows * len);
    let bytes = packed(&codes, Width::Two, len, codes_stride);
    let planes =
        split_planes(&tensor(device, &bytes, codes_stride), len as u64, Some(planes_stride as u64)).unwrap();
    let what = format!("{rows} x {len}, {codes_stride} {planes_stride}");
    for (plane, bit) in planes.iter().zip(0..) {
        let bits: Vec<u8> = codes.iter().map(|code| code >> bit & 1).collect();
        assert_eq!(plane.shape(), [rows as u64, planes_stride as u64]);
        assert!(plane.read().unwrap() == packed(&bits, Width::One, len, planes_stride), "{what}");
    }
    let merged = merge_planes(&planes[0], &planes[1], len as u64, Some(codes_stride as u64)).unwrap();
    assert_eq!(merged.shape(), [rows as u64, codes_stride as u64]);
    assert!(merged.read().unwrap() == bytes, "{what}");
}

fn every_length(device: &Device) {
    for len in LENGTHS {
        check(device, len, 1, [len.div_ceil(4), len.div_ceil(8)]);
        check(device, len, 3, [len.div_ceil(4), len.div_ceil(8)]);
    }
    check(device, 1003, 900, [251, 126]);
    check(device, 8192, 90, [2048, 1024]);
}

fn every_stride(device: &Device) {
    for len in [1usize, 13, 64, 200] {
        let (codes, planes) = (len.div_ceil(4), len.div_ceil(8));
        for (i, j) in [(0, 1), (1, 0), (3, 2), (17, 5), (codes.next_multiple_of(16) - codes, 16)] {
            check(device, len, 7, [codes + i, planes + j]);
        }
    }
}

/// What planes are for: the number of each code is a count of bits.
fn population_counts(device: &Device) {
    let codes = codes(72, Width::Two, 10_000);
    let bytes = pack(&Tensor::from_slice(device, &codes, &[10_000]).unwrap(), Width::Two, &PLAIN).unwrap();
    let [low, high] = split_planes(&bytes, 10_000, None).unwrap().map(|plane| plane.read().unwrap());
    let ones =
        |of: fn(u8, u8) -> u8| low.iter().zip(&high).map(|(&l, &h)| of(l, h).count_ones()).sum::<u32>();
    let count = |code| codes.iter().filter(|&&c| c == code).count() as u32;
    assert_eq!(
        [ones(|l, h| l & !h), ones(|l, h| !l & h), ones(|l, h| l & h)],
        [count(1), count(2), count(3)]
    );
}

fn as_numpy_packs(device: &Device) {
    let codes = tensor(device, &fixture("packed2"), 16);
    let planes = split_planes(&codes, 61, None).unwrap().map(|plane| plane.read().unwrap());
    assert_eq!(planes, [fixture("low"), fixture("high")]);
}

fn empty(device: &Device) {
    for shape in [&[0u64][..], &[0, 5], &[5, 0], &[2, 0, 3]] {
        let (last, leading) = shape.split_last().unwrap();
        let codes = Tensor::<u8>::zeros(device, &[leading, &[last.div_ceil(4)]].concat()).unwrap();
        let [low, high] = split_planes(&codes, *last, None).unwrap();
        assert_eq!(merge_planes(&low, &high, *last, None).unwrap().shape(), codes.shape());
    }
}

fn wrong_arguments(device: &Device) {
    let shape = |result: Result<Tensor<u8>, Error>, op: &str| {
        assert!(matches!(result, Err(Error::Shape { op: o, .. }) if o == op), "{op}");
    };
    let argument = |result: Result<Tensor<u8>, Error>, text: &str| match result {
        Err(error @ Error::Argument { .. }) => assert_eq!(error.to_string(), text),
        other => panic!("{other:?}"),
    };
    let scalar = Tensor::from_slice(device, &[0u8], &[]).unwrap();
    shape(split_planes(&scalar, 1, None).map(|[low, _]| low), "split_planes");
    shape(merge_planes(&scalar, &scalar, 1, None), "merge_planes");

    let short = "a row has 2 bytes, and 9 values of 2 bits take 3";
    let bytes = Tensor::<u8>::zeros(device, &[2, 2]).unwrap();
    argument(split_planes(&bytes, 9, None).map(|[low, _]| low), &format!("split_planes: `len`: {short}"));
    let short = "a row has 2 bytes, and 17 values of 1 bits take 3";
    let codes = Tensor::<u8>::zeros(device, &[2, 5]).unwrap();
    argument(
        split_planes(&codes, 17, Some(2)).map(|[low, _]| low),
        &format!("split_planes: `row_bytes`: {short}"),
    );
    argument(merge_planes(&bytes, &bytes, 17, None), &format!("merge_planes: `len`: {short}"));
    let short = "a row has 1 bytes, and 9 values of 2 bits take 3";
    argument(merge_planes(&bytes, &bytes, 9, Some(1)), &format!("merge_planes: `row_bytes`: {short}"));
    shape(merge_planes(&bytes, &codes, 9, None), "merge_planes");
    let elsewhere = Tensor::<u8>::zeros(cpu(), &[2, 2]).unwrap();
    let mixed = merge_planes(&bytes, &elsewhere, 9, None);
    assert_eq!(matches!(mixed, Err(Error::WrongDevice { name: "high", .. })), !device.shares_host_memory());
}
