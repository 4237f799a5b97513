//! Stored genotypes to codes of two bits, with counts.

use super::{
    data::values,
    device_tests,
    packed_case::{codes, packed_words},
};
use crate::{
    Device, Error, Tensor,
    kernels::pack_genotypes::Coding,
    packed::{pack::pack_genotypes, row_words},
};

device_tests! {
    every_call, codings_at_every_width, bad_values_are_counted, rows_into_the_middle, rows_at_every_byte,
    several_launches, empty, wrong_shapes,
}

fn every_call(device: &Device) {
    let kinds = [-3i8, -2, -1, 0, 1, 2, 127];
    let calls: Vec<u8> =
        kinds.iter().flat_map(|&a| kinds.iter().flat_map(move |&b| [a, b])).map(|a| a as u8).collect();
    check_pack(device, &calls, Coding::Diploid, 7, 7);
    check_pack(device, &calls, Coding::Diploid, 1, 49);
    check_pack(device, &calls, Coding::Haploid, 2, 49);
    check_pack(device, &calls, Coding::Dosages, 2, 49);
}

/// The code of what is stored for a sample, and whether that is bad.
fn code(raw: &[u8], i: usize, coding: Coding) -> (u8, bool) {
    let allele = |i: usize| raw[i] as i8;
    match coding {
        Coding::Haploid if allele(i) < 0 => (3, allele(i) < -2),
        Coding::Haploid => (u8::from(allele(i) > 0), false),
        Coding::Diploid => {
            let (low, high) = (allele(2 * i).min(allele(2 * i + 1)), allele(2 * i).max(allele(2 * i + 1)));
            match (low, high) {
                (..-2, _) => (3, true),
                (-1, _) | (_, -1) | (_, -2) => (3, false),
                (-2, one) => (2 * u8::from(one > 0), false),
                _ => (u8::from(low > 0) + u8::from(high > 0), false),
            }
        }
        Coding::Dosages => match allele(i) {
            -1 => (3, false),
            dosage @ 0..=2 => (dosage as u8, false),
            _ => (3, true),
        },
        Coding::PlinkA1 => ([2, 3, 1, 0][usize::from(raw[i / 4] >> (2 * (i % 4)) & 3)], false),
        Coding::PlinkA2 => ([0, 3, 1, 2][usize::from(raw[i / 4] >> (2 * (i % 4)) & 3)], false),
        Coding::Codes => (raw[i / 4] >> (2 * (i % 4)) & 3, false),
    }
}

fn check_pack(device: &Device, raw: &[u8], coding: Coding, rows: u64, samples: u64) {
    let width = coding.row_bytes(samples);
    let raw = &raw[..(rows * width) as usize];
    let on_device = Tensor::from_slice(device, raw, &[rows, width]).unwrap();
    let mut packed = Tensor::<u32>::empty(device, &[rows, row_words(samples)]).unwrap();
    let stats = pack_genotypes(&on_device, coding, samples, &mut packed, 0).unwrap().wait().unwrap();
    let rows_of = |row: &[u8]| (0..samples as usize).map(|i| code(row, i, coding)).collect::<Vec<_>>();
    let expected: Vec<Vec<(u8, bool)>> = raw.chunks(width as usize).map(rows_of).collect();
    let codes: Vec<u8> = expected.iter().flatten().map(|&(code, _)| code).collect();
    let what = format!("{coding:?} {rows} x {samples}");
    assert_eq!(packed.read().unwrap(), packed_words(&codes, samples), "{what}");
    for (stats, row) in stats.iter().zip(&expected) {
        let called = row.iter().filter(|(code, _)| *code < 3).map(|&(code, _)| f64::from(code));
        assert_eq!(stats.sum, called.clone().sum::<f64>(), "{what}");
        assert_eq!(stats.sum_squares, called.clone().map(|x| x * x).sum::<f64>(), "{what}");
        assert_eq!(stats.count, called.count() as u64, "{what}");
        assert_eq!(stats.bad, row.iter().filter(|(_, bad)| *bad).count() as u64, "{what}");
    }
}

fn codings_at_every_width(device: &Device) {
    use Coding::{Codes, Diploid, Dosages, Haploid, PlinkA1, PlinkA2};
    for coding in [Haploid, Diploid, Dosages, PlinkA1, PlinkA2, Codes] {
        let fields = matches!(coding, PlinkA1 | PlinkA2 | Codes);
        for (rows, samples) in [
            (1, 1),
            (2, 2),
            (3, 3),
            (5, 4),
            (2, 15),
            (2, 16),
            (3, 17),
            (7, 63),
            (2, 64),
            (3, 65),
            (2, 1023),
            (2, 1025),
            (300, 5),
        ] {
            let bytes = values::<u8>(72, rows * coding.row_bytes(samples));
            let kinds = [0, 1, 0, 1, 2, 255, 0, 254];
            let raw: Vec<u8> =
                if fields { bytes } else { bytes.iter().map(|byte| kinds[usize::from(byte % 8)]).collect() };
            check_pack(device, &raw, coding, rows, samples);
        }
    }
}

fn bad_values_are_counted(device: &Device) {
    let bytes = values::<u8>(73, 3 * 2 * 401);
    for coding in [Coding::Haploid, Coding::Diploid, Coding::Dosages] {
        check_pack(device, &bytes, coding, 3, 401);
    }
}

fn rows_into_the_middle(device: &Device) {
    let samples = 37;
    let codes = codes(74, 9, samples, true);
    let raw: Vec<u8> = codes.iter().map(|&code| if code == 3 { 255 } else { code }).collect();
    let mut packed = Tensor::<u32>::zeros(device, &[12, row_words(samples)]).unwrap();
    for (first, rows) in [(0u64, 0..4usize), (4, 4..5), (5, 5..9)] {
        let part = &raw[rows.start * 37..rows.end * 37];
        let part = Tensor::from_slice(device, part, &[(rows.end - rows.start) as u64, samples]).unwrap();
        pack_genotypes(&part, Coding::Dosages, samples, &mut packed, first).unwrap().wait().unwrap();
    }
    let mut expected = packed_words(&codes, samples);
    expected.resize(12 * row_words(samples) as usize, 0);
    assert_eq!(packed.read().unwrap(), expected);
}

/// Rows so long that a launch of 64 KiB takes few of them, and the next starts in the middle of a word.
fn rows_at_every_byte(device: &Device) {
    let raw: Vec<u8> =
        codes(75, 200, 1001, true).iter().map(|&code| if code == 3 { 255 } else { code }).collect();
    check_pack(device, &raw, Coding::Dosages, 200, 1001);
    check_pack(device, &values::<u8>(76, 40 * 2501), Coding::PlinkA1, 40, 10_003);
}

/// Enough rows for several launches of 64 KiB.
fn several_launches(device: &Device) {
    let raw: Vec<u8> =
        codes(70, 4500, 33, true).iter().map(|&code| if code == 3 { 255 } else { code }).collect();
    check_pack(device, &raw, Coding::Dosages, 4500, 33);
}

fn empty(device: &Device) {
    for (samples, rows) in [(0, 3), (5, 0), (0, 0)] {
        let raw = Tensor::from_slice(device, &[0u8; 0], &[rows, samples]).unwrap();
        let mut packed = Tensor::<u32>::zeros(device, &[rows, row_words(samples)]).unwrap();
        let stats = pack_genotypes(&raw, Coding::Dosages, samples, &mut packed, 0).unwrap().wait().unwrap();
        assert!(stats.len() as u64 == rows && stats.iter().all(|stats| stats.count == 0));
    }
}

fn wrong_shapes(device: &Device) {
    let raw = Tensor::from_slice(device, &[0u8; 10], &[2, 5]).unwrap();
    let mut packed = Tensor::<u32>::zeros(device, &[2, row_words(5)]).unwrap();
    for (coding, samples, first) in
        [(Coding::Diploid, 5, 0), (Coding::Dosages, 6, 0), (Coding::Dosages, 5, 1)]
    {
        let error = pack_genotypes(&raw, coding, samples, &mut packed, first).unwrap_err();
        assert!(matches!(error, Error::Shape { op: "pack_genotypes", .. }), "{error}");
    }
}
