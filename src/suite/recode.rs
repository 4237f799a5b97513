//! Tests of recoding two-bit codes by a table, with counts.

use super::packed_case::{codes, packed_words};
use super::*;
use crate::packed::{recode::recode, row_words};

device_tests! {
    every_table, every_width, rows_into_the_middle, rows_at_every_byte, several_launches, empty, wrong_shapes,
}

/// The identity, and PLINK's tables with either allele counted.
const TABLES: [[u8; 4]; 3] = [[0, 1, 2, 3], [2, 3, 1, 0], [0, 3, 1, 2]];

fn check(device: &Device, raw: &[u8], table: [u8; 4], rows: u64, cols: u64) {
    let width = cols.div_ceil(4);
    let raw = &raw[..(rows * width) as usize];
    let on_device = Tensor::from_slice(device, raw, &[rows, width]).unwrap();
    let mut packed = Tensor::<u32>::empty(device, &[rows, row_words(cols)]).unwrap();
    let stats = recode(&on_device, table, cols, &mut packed, 0).unwrap().wait().unwrap();
    let code = |row: &[u8], i: usize| table[usize::from(row[i / 4] >> (2 * (i % 4)) & 3)];
    let codes: Vec<u8> =
        raw.chunks(width as usize).flat_map(|row| (0..cols as usize).map(move |i| code(row, i))).collect();
    let what = format!("{table:?} {rows} x {cols}");
    assert_eq!(packed.read().unwrap(), packed_words(&codes, cols), "{what}");
    for (stats, row) in stats.iter().zip(codes.chunks(cols as usize)) {
        let called = row.iter().filter(|code| **code < 3).map(|&code| f64::from(code));
        assert_eq!(stats.sum, called.clone().sum::<f64>(), "{what}");
        assert_eq!(stats.sum_squares, called.clone().map(|x| x * x).sum::<f64>(), "{what}");
        assert_eq!((stats.count, stats.bad), (called.count() as u64, 0), "{what}");
    }
}

fn every_table(device: &Device) {
    let raw = values::<u8>(71, 2 * 10);
    for table in 0..=255u8 {
        check(device, &raw, [0, 2, 4, 6].map(|bit| table >> bit & 3), 2, 39);
    }
}

fn every_width(device: &Device) {
    for table in TABLES {
        for cols in [1u64, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1023, 1025] {
            let rows = if cols == 5 { 300 } else { 1 + cols % 7 };
            check(device, &values::<u8>(72, rows * cols.div_ceil(4)), table, rows, cols);
        }
    }
}

fn rows_into_the_middle(device: &Device) {
    let cols = 37;
    let codes = codes(74, 9, cols, true);
    let raw: Vec<u8> = codes
        .chunks(37)
        .flat_map(|row| row.chunks(4).map(|four| four.iter().rev().fold(0, |byte, code| byte << 2 | code)))
        .collect();
    let mut packed = Tensor::<u32>::zeros(device, &[12, row_words(cols)]).unwrap();
    for (first, rows) in [(0u64, 0..4usize), (4, 4..5), (5, 5..9)] {
        let part = &raw[rows.start * 10..rows.end * 10];
        let part = Tensor::from_slice(device, part, &[(rows.end - rows.start) as u64, 10]).unwrap();
        recode(&part, TABLES[0], cols, &mut packed, first).unwrap().wait().unwrap();
    }
    let mut expected = packed_words(&codes, cols);
    expected.resize(12 * row_words(cols) as usize, 0);
    assert_eq!(packed.read().unwrap(), expected);
}

/// Rows are so long that a launch of 64 KiB takes few of them, and the next launch starts within a word.
fn rows_at_every_byte(device: &Device) {
    check(device, &values::<u8>(75, 200 * 1001), TABLES[0], 200, 4001);
    check(device, &values::<u8>(76, 40 * 2501), TABLES[1], 40, 10_003);
}

/// There are enough rows for several launches of 64 KiB.
fn several_launches(device: &Device) {
    check(device, &values::<u8>(70, 4500 * 9), TABLES[2], 4500, 33);
}

fn empty(device: &Device) {
    for (cols, rows) in [(0u64, 3), (5, 0), (0, 0)] {
        let raw = Tensor::from_slice(device, &[0u8; 0], &[rows, cols.div_ceil(4)]).unwrap();
        let mut packed = Tensor::<u32>::zeros(device, &[rows, row_words(cols)]).unwrap();
        let stats = recode(&raw, TABLES[0], cols, &mut packed, 0).unwrap().wait().unwrap();
        assert!(stats.len() as u64 == rows && stats.iter().all(|stats| stats.count == 0));
    }
}

fn wrong_shapes(device: &Device) {
    let raw = Tensor::from_slice(device, &[0u8; 10], &[2, 5]).unwrap();
    let mut packed = Tensor::<u32>::zeros(device, &[2, row_words(20)]).unwrap();
    for (cols, first) in [(16, 0), (21, 0), (65, 0), (20, 1)] {
        assert_err!(recode(&raw, TABLES[0], cols, &mut packed, first), Error::Shape { op: "recode", .. });
    }
}
