//! Tests of functions that wrap an instruction, against plain loops.

use std::ptr;

use bytemuck::{bytes_of, cast_slice};
use half::f16;

use super::{Context, OK, compile, kernel_file, numbers};

const INSTRUCTIONS: &str = kernel_file!("instructions.cu");

fn run(name: &str, inputs: &[&[u8]], last: Option<u32>, out: usize) -> Vec<u32> {
    let context = Context::new(47);
    let function = context.function(&compile("instructions.cu", INSTRUCTIONS).unwrap(), name);
    let mut places: Vec<u64> = inputs.iter().map(|bytes| context.upload(bytes)).collect();
    places.push(context.alloc(4 * out));
    let mut arguments: Vec<&[u8]> = places.iter().map(bytes_of).collect();
    arguments.extend(last.as_ref().map(bytes_of));
    assert_eq!(context.launch(ptr::null_mut(), function, [1, 1], 32, &arguments), OK);
    context.download(*places.last().unwrap(), out).unwrap()
}

fn words(seed: u32) -> Vec<u32> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state ^ state >> 15
    };
    (0..32).map(next).collect()
}

#[test]
fn shuffles_exchange() {
    let values = words(1);
    for mask in [1, 2, 16, 31] {
        let got = run("shuffle", &[cast_slice(&values)], Some(mask), 32);
        let want: Vec<u32> = (0..32).map(|i| values[i ^ mask as usize]).collect();
        assert_eq!(got, want, "mask {mask}");
    }
}

#[test]
fn threads_add_and_vote() {
    let values = words(9);
    for (value, any) in [(values[0], 1), (values[31], 1), (12_345, 0)] {
        let got = run("together", &[cast_slice(&values)], Some(value), 66);
        let sum: u64 = values.iter().map(|&value| u64::from(value) << 8).sum();
        assert_eq!(u64::from(got[0]) | u64::from(got[1]) << 32, sum);
        assert!(got[2..].as_chunks::<2>().0.iter().all(|&vote| vote == [any, 0]), "{value}");
    }
}

#[test]
fn products_of_floats() {
    let (a, b) = (numbers(32, 10), numbers(32, 11));
    let got = run("float_products", &[cast_slice(&a), cast_slice(&b)], None, 32);
    let want: Vec<u32> = a.iter().zip(&b).map(|(a, b)| (a * b).to_bits()).collect();
    assert_eq!(got, want);
}

#[test]
fn words_by_themselves() {
    let (a, b) = (words(2), words(3));
    let got = run("words", &[cast_slice(&a), cast_slice(&b)], None, 288);
    for ((&x, &y), got) in a.iter().zip(&b).zip(got.chunks_exact(9)) {
        let (xs, ys) = (x.to_le_bytes(), y.to_le_bytes());
        let sign = |byte: u8| if byte & 0x80 == 0 { 0 } else { 0xff };
        let signed = |byte: u8| i32::from(byte.cast_signed());
        let dot: i32 = xs.iter().zip(ys).map(|(&x, y)| signed(x) * signed(y)).sum();
        assert_eq!(got[0], x.count_ones());
        assert_eq!(got[1], u32::from_le_bytes([xs[1], xs[3], ys[1], ys[3]]));
        // The selector's digits are 0 (byte 0), 6 (byte 6), 10 (the sign of byte 2) and 15 (the sign of byte 7).
        assert_eq!(got[2], u32::from_le_bytes([xs[0], ys[2], sign(xs[2]), sign(ys[3])]));
        assert_eq!(got[3].cast_signed(), dot + 5);
        assert_eq!(u64::from(got[4]), (u64::from(x) * u64::from(y)) >> 32);
        let halves = [u16::from_le_bytes([xs[0], xs[1]]), u16::from_le_bytes([xs[2], xs[3]])];
        for (&got, bits) in got[5..7].iter().zip(halves) {
            let (got, want) = (f32::from_bits(got), f16::from_bits(bits).to_f32());
            assert!(got == want || (got.is_nan() && want.is_nan()), "{bits:x}: {got} {want}");
        }
        assert_eq!(got[7], y);
        let dot: u32 = xs.iter().zip(ys).map(|(&x, y)| u32::from(x) * u32::from(y)).sum();
        assert_eq!(got[8], dot + 5);
    }
}

#[test]
fn products_of_bytes() {
    let bytes =
        |seeds: std::ops::Range<u32>| seeds.flat_map(words).flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
    let (a, b) = (bytes(4..8), bytes(8..10));
    for (name, signed) in [("signed_product", true), ("unsigned_product", false)] {
        let got = run(name, &[&a, &b], None, 16 * 8);
        for (i, got) in got.into_iter().enumerate() {
            let (row, column) = (i / 8, i % 8);
            let of_a = |p: usize| {
                let byte = a[row * 32 + p];
                if signed { i32::from(byte.cast_signed()) } else { i32::from(byte) }
            };
            let sum: i32 = (0..32).map(|p| of_a(p) * i32::from(b[column * 32 + p].cast_signed())).sum();
            assert_eq!(got.cast_signed(), sum, "{name} {row} {column}");
        }
    }
}

#[test]
fn products_of_halves() {
    let (a, b) = (numbers(256, 6), numbers(256, 7));
    let halves = |values: &[f32]| values.iter().map(|&value| f16::from_f32(value)).collect::<Vec<f16>>();
    let (of_a, of_b) = (halves(&a), halves(&b));
    let got = run("half_product", &[cast_slice(&of_a), cast_slice(&of_b)], None, 256);
    for (i, got) in got.into_iter().enumerate() {
        let (row, column) = (i / 16, i % 16);
        let sum: f32 = (0..16).map(|p| a[row * 16 + p] * b[p * 16 + column]).sum();
        assert_eq!(f32::from_bits(got), sum, "{row} {column}");
    }
}
