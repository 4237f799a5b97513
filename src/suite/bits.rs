//! Tests of packing and unpacking codes.

use super::*;
use crate::bits::{PackOptions, Packable, Unpackable, Width, pack, unpack};

device_tests! {
    every_length, every_stride, tables, negative_is_missing, refused_values_are_counted, every_type, several_launches,
    rows_beyond_a_binding, far_apart_rows, what_is_behind_the_values, as_numpy_packs, empty, wrong_arguments,
}

pub(super) const PLAIN: PackOptions<'_> = PackOptions { row_bytes: None, table: None, missing: None };
/// Options that pack dosages, -1 for missing, into PLINK's codes.
const PLINK: PackOptions<'_> = PackOptions { row_bytes: None, table: Some(&[3, 2, 0]), missing: Some(1) };

/// Row lengths around a byte, a word, and the elements that a thread and a workgroup write.
pub(super) const LENGTHS: [usize; 28] = [
    1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 1023, 1024,
    1025, 4095, 4100,
];

/// Returns the packed codes, each row packed separately.
pub(super) fn packed(codes: &[u8], width: Width, len: usize, stride: usize) -> Vec<u8> {
    let bits = width.bits() as usize;
    let row = |row: &[u8]| {
        let mut bytes = vec![0; stride];
        for (i, code) in row.iter().enumerate() {
            bytes[i * bits / 8] |= code << (i * bits % 8);
        }
        bytes
    };
    codes.chunks(len).flat_map(row).collect()
}

pub(super) fn codes(seed: u32, width: Width, len: usize) -> Vec<u8> {
    values::<u8>(seed, len as u64).iter().map(|value| value & (width.codes() - 1) as u8).collect()
}

pub(super) fn tensor<T: Element>(device: &Device, values: &[T], len: usize) -> Tensor<T> {
    Tensor::from_slice(device, values, &[(values.len() / len) as u64, len as u64]).unwrap()
}

/// Checks that `x` packs to `codes`, and that the result unpacks to `codes`.
fn check<T: Packable>(
    device: &Device,
    x: &[T],
    codes: &[u8],
    width: Width,
    len: usize,
    options: &PackOptions<'_>,
) {
    let tx = tensor(device, x, len);
    let out = pack(&tx, width, options).unwrap();
    let stride = options.row_bytes.unwrap_or_else(|| width.row_bytes(len as u64));
    let what = format!("{width:?}, {:?}, {options:?}", tx.shape());
    assert_eq!(out.shape(), [(x.len() / len) as u64, stride], "{what}");
    assert!(out.read().unwrap() == packed(codes, width, len, stride as usize), "{what}");
    let back = unpack::<u8>(&out, len as u64, width, None).unwrap();
    assert_eq!(back.shape(), tx.shape(), "{what}");
    assert!(back.read().unwrap() == codes, "{what}");
}

fn every_length(device: &Device) {
    for width in Width::ALL {
        for len in LENGTHS {
            let codes = codes(60, width, 3 * len);
            check(device, &codes[..len], &codes[..len], width, len, &PLAIN);
            check(device, &codes, &codes, width, len, &PLAIN);
        }
    }
}

fn every_stride(device: &Device) {
    for width in Width::ALL {
        for len in [1, 5, 13, 64, 100, 250] {
            let codes = codes(61, width, 7 * len);
            let least = width.row_bytes(len as u64);
            for stride in [least, least + 1, least + 3, least.next_multiple_of(16), least + 40] {
                let options = PackOptions { row_bytes: Some(stride), ..PLAIN };
                check(device, &codes, &codes, width, len, &options);
            }
        }
    }
}

fn tables(device: &Device) {
    let mixed: Vec<u8> = (0..16).map(|i| (i * 7 + 5) % 16).collect();
    let same = [9u8; 11];
    let cases: [(Width, &[u8]); 6] = [
        (Width::One, &[1, 0]),
        (Width::One, &[1]),
        (Width::Two, &[3, 2, 0, 1]),
        (Width::Two, &[2, 2]),
        (Width::Four, &mixed),
        (Width::Four, &same),
    ];
    for (width, table) in cases {
        for len in [1, 3, 17, 61, 260] {
            let x: Vec<u8> =
                values::<u8>(62, 5 * len).iter().map(|value| value % table.len() as u8).collect();
            let codes: Vec<u8> = x.iter().map(|&value| table[usize::from(value)]).collect();
            let len = len as usize;
            for row_bytes in [None, Some(width.row_bytes(len as u64) + 5)] {
                let options = PackOptions { row_bytes, table: Some(table), missing: None };
                check(device, &x, &codes, width, len, &options);
            }
        }
    }
}

fn negative_is_missing(device: &Device) {
    let low = PackOptions { table: Some(&[0, 1, 2]), missing: Some(3), ..PLAIN };
    let all = PackOptions { table: Some(&[3, 2, 0, 1]), missing: Some(1), ..PLAIN };
    for len in [1, 4, 6, 37, 1000] {
        let x: Vec<i8> = values::<u8>(63, 3 * len)
            .iter()
            .map(|v| [0, 1, 2, -1, 1, -2, 2, -128][*v as usize % 8])
            .collect();
        let coded = |of: [u8; 4]| -> Vec<u8> {
            x.iter().map(|&v| if v < 0 { of[3] } else { of[v as usize] }).collect()
        };
        let len = len as usize;
        check(device, &x, &coded([0, 1, 2, 3]), Width::Two, len, &low);
        check(device, &x, &coded([3, 2, 0, 1]), Width::Two, len, &PLINK);
        check(device, &x, &coded([3, 2, 0, 1]), Width::Two, len, &all);
        let highest = PackOptions { missing: Some(15), ..PLAIN };
        check(device, &x, &coded([0, 1, 2, 15]), Width::Four, len, &highest);
    }
}

fn refused<T: Packable>(x: &Tensor<T>, width: Width, options: &PackOptions<'_>) -> String {
    match pack(x, width, options) {
        Err(Error::Argument { op: "pack", name: "x", why }) => why.into(),
        other => panic!("{other:?}"),
    }
}

fn refused_values_are_counted(device: &Device) {
    for (len, at) in [(1, 0), (5, 4), (64, 31), (1000, 999)] {
        for (width, bad) in [(Width::One, 2), (Width::Two, 4), (Width::Two, 128), (Width::Four, 255)] {
            let mut x = codes(64, width, 3 * len);
            x[len + at] = bad;
            x[2 * len + at] = 255;
            let why = refused(&tensor(device, &x, len), width, &PLAIN);
            let (values, most) = (3 * len, width.codes() - 1);
            let expected = format!("2 of {values} values are not 0 to {most}; the first is at [1, {at}]");
            assert_eq!(why, expected, "{width:?}");
        }
    }
    // Bad values are counted in every launch, and for tensors of more axes.
    let mut x = vec![0i8; 700 * 1003];
    for place in [200_000, 200_001, 200_002, 650_000] {
        x[place] = if place % 2 == 0 { -1 } else { 3 };
    }
    let x = Tensor::from_slice(device, &x, &[7, 100, 1003]).unwrap();
    let why = refused(&x, Width::Two, &PackOptions { table: Some(&[0, 1, 2]), ..PLAIN });
    assert_eq!(why, "4 of 702100 values are not 0 to 2; the first is at [1, 99, 403]");
    let why = refused(&x, Width::Two, &PackOptions { table: Some(&[0, 1, 2]), missing: Some(3), ..PLAIN });
    assert_eq!(why, "1 of 702100 values are not 0 to 2 or negative; the first is at [1, 99, 404]");
    let x = x.reshape(&[702_100]).unwrap();
    assert!(refused(&x, Width::One, &PLAIN).ends_with("the first is at [200000]"));
}

fn unpacked<T: Unpackable>(device: &Device, width: Width, table: &[f32], expected: &[T]) {
    for (len, stride) in [(1, 1), (3, 3), (7, 9), (16, 16), (61, 61), (333, 400)] {
        let codes = codes(65, width, 5 * len);
        let bytes = packed(&codes, width, len, stride);
        let out = unpack::<T>(&tensor(device, &bytes, stride), len as u64, width, Some(table)).unwrap();
        let bits = |value: T| bytemuck::bytes_of(&value).to_vec();
        let expected: Vec<_> = codes.iter().map(|&code| bits(expected[usize::from(code)])).collect();
        let out: Vec<_> = out.read().unwrap().into_iter().map(bits).collect();
        assert!(out == expected, "{width:?} {:?} {len}", T::DTYPE);
    }
}

fn every_type(device: &Device) {
    let ramp: Vec<f32> = (0..16).map(|i| 0.37 * i as f32 - 3.0).collect();
    let halves: Vec<f16> = ramp.iter().map(|&entry| f16::from_f32(entry)).collect();
    let whole: Vec<f32> = (0..16).map(|i| (i * 17) as f32).collect();
    let signed: Vec<f32> = (0..16).map(|i| (i * 17) as f32 - 128.0).collect();
    for width in Width::ALL {
        let n = width.codes();
        unpacked::<f32>(device, width, &ramp[..n], &ramp[..n]);
        unpacked::<f16>(device, width, &ramp[..n], &halves[..n]);
        unpacked::<u8>(device, width, &whole[..n], &(0..n).map(|i| (i * 17) as u8).collect::<Vec<_>>());
        let bytes: Vec<i8> = (0..n).map(|i| (i as i16 * 17 - 128) as i8).collect();
        unpacked::<i8>(device, width, &signed[..n], &bytes);
    }
    let plink = [2.0, f32::NAN, 1.0, 0.0];
    unpacked::<f32>(device, Width::Two, &plink, &plink);
    unpacked::<f16>(device, Width::Two, &plink, &plink.map(f16::from_f32));
    unpacked::<i8>(device, Width::Two, &[2.0, -1.0, 1.0, 0.0], &[2, -1, 1, 0]);
}

/// Packs rows that need more than 16 x 16 workgroups, and rows of more than 64 KiB together.
fn several_launches(device: &Device) {
    for width in Width::ALL {
        for (rows, len) in [(301, 1003), (40, 8192), (3000, 33)] {
            let codes = codes(66, width, rows * len);
            check(device, &codes, &codes, width, len, &PLAIN);
            let bytes = pack(&tensor(device, &codes, len), width, &PLAIN).unwrap();
            let out = unpack::<f32>(&bytes, len as u64, width, None).unwrap().read().unwrap();
            let is_same = out.iter().zip(&codes).all(|(&value, &code)| value == f32::from(code));
            assert!(is_same, "{width:?} {len}");
        }
    }
}

/// One row is longer than a launch takes, and parts begin at every place in a word.
fn rows_beyond_a_binding(device: &Device) {
    for width in Width::ALL {
        for len in [140_001, 140_016] {
            let codes = codes(67, width, 3 * len);
            check(device, &codes, &codes, width, len, &PLAIN);
            let out =
                pack(&tensor(device, &codes, len), width, &PackOptions { table: None, ..PLAIN }).unwrap();
            let out = unpack::<f16>(&out, len as u64, width, None).unwrap().read().unwrap();
            assert!(out.iter().zip(&codes).all(|(value, &code)| value.to_f32() == f32::from(code)));
        }
    }
}

/// Some launches write only padding bytes behind the values.
fn far_apart_rows(device: &Device) {
    let (len, stride) = (5, 150_001);
    let codes = codes(69, Width::Two, 3 * len);
    check(device, &codes, &codes, Width::Two, len, &PackOptions { row_bytes: Some(stride), ..PLAIN });
    // The rows have no values at all.
    let x = Tensor::<u8>::zeros(device, &[2, 0]).unwrap();
    let none = pack(&x, Width::Two, &PackOptions { row_bytes: Some(stride), ..PLAIN }).unwrap();
    assert!(none.read().unwrap() == vec![0; 2 * stride as usize]);
}

fn what_is_behind_the_values(device: &Device) {
    for len in [1usize, 3, 6, 13, 50, 129] {
        let codes = codes(70, Width::Two, 4 * len);
        let stride = len.div_ceil(4) + 3;
        let mut bytes = packed(&codes, Width::Two, len, stride);
        for row in bytes.chunks_mut(stride) {
            for i in len..4 * stride {
                row[i / 4] |= 3 << (i % 4 * 2);
            }
        }
        let bytes = tensor(device, &bytes, stride);
        assert_eq!(unpack::<u8>(&bytes, len as u64, Width::Two, None).unwrap().read().unwrap(), codes);
    }
}

/// The values that numpy packed, and what it made of them, for each width. They are in this program, which may run where no file is.
const VALUES: &[u8] = include_bytes!("../../tests/fixtures/bits/values");
const PACKED: [&[u8]; 3] = [
    include_bytes!("../../tests/fixtures/bits/packed1"),
    include_bytes!("../../tests/fixtures/bits/packed2"),
    include_bytes!("../../tests/fixtures/bits/packed4"),
];

fn as_numpy_packs(device: &Device) {
    for (width, bytes) in Width::ALL.into_iter().zip(PACKED) {
        let codes: Vec<u8> = VALUES.iter().map(|value| value & (width.codes() - 1) as u8).collect();
        assert_eq!(pack(&tensor(device, &codes, 61), width, &PLAIN).unwrap().read().unwrap(), bytes);
        let bytes = tensor(device, bytes, bytes.len() / 7);
        assert_eq!(unpack::<u8>(&bytes, 61, width, None).unwrap().read().unwrap(), codes);
    }
}

fn empty(device: &Device) {
    for shape in [&[0][..], &[0, 5], &[5, 0], &[2, 0, 3]] {
        let x = Tensor::<i8>::zeros(device, shape).unwrap();
        let out = pack(&x, Width::Two, &PLAIN).unwrap();
        let (last, leading) = shape.split_last().unwrap();
        assert_eq!(out.shape(), [leading, &[last.div_ceil(4)]].concat());
        assert_eq!(unpack::<f32>(&out, *last, Width::Two, None).unwrap().shape(), shape);
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
    shape(pack(&scalar, Width::One, &PLAIN), "pack");
    shape(unpack(&scalar, 1, Width::One, None), "unpack");

    let x = Tensor::<u8>::zeros(device, &[2, 9]).unwrap();
    let short = "a row has 2 bytes, and 9 values of 2 bits take 3";
    let options = PackOptions { row_bytes: Some(2), ..PLAIN };
    argument(pack(&x, Width::Two, &options), &format!("pack: `row_bytes`: {short}"));
    let table = PackOptions { table: Some(&[4]), ..PLAIN };
    argument(pack(&x, Width::Two, &table), "pack: `table`: entry 0 is 4, above 3");
    let bytes = Tensor::<u8>::zeros(device, &[2, 2]).unwrap();
    argument(unpack(&bytes, 9, Width::Two, None), &format!("unpack: `len`: {short}"));
    for (table, why) in [
        (&[0.0, 1.0, 2.0][..], "3 entries; values of 2 bits have 4"),
        (&[0.0, 1.0, 2.0, f32::NAN], "entry 3 is NaN, which U8 does not hold"),
    ] {
        argument(unpack(&bytes, 8, Width::Two, Some(table)), &format!("unpack: `table`: {why}"));
    }
}

/// Parts of rows just fit the smallest binding.
#[test]
fn the_least_binding_is_enough() {
    let options = DeviceOptions { binding: Some(16 << 10), checked: true, ..DeviceOptions::default() };
    let device = Device::open_with("cpu", &options).unwrap();
    for width in Width::ALL {
        let codes = codes(74, width, 40_000);
        check(&device, &codes, &codes, width, 40_000, &PLAIN);
        let bytes = pack(&tensor(&device, &codes, 40_000), width, &PLAIN).unwrap();
        let out = unpack::<f32>(&bytes, 39_999, width, None).unwrap().read().unwrap();
        assert!(out.iter().zip(&codes).all(|(&value, &code)| value == f32::from(code)));
    }
}
