//! Seeded values of every element type.

use half::{bf16, f16};

use crate::{
    Device, Element, Tensor,
    array::{Zip, zip},
    random::philox,
};

/// Elements that tests can generate and that oracles can read.
pub(super) trait Sample: Element {
    /// Returns a value from random bits, with either sign if the type is signed.
    fn sample(bits: u32) -> Self;
    /// Returns the exact value.
    fn value(self) -> f64;
}

macro_rules! samples {
    ($($type:ty: $bits:ident => $sample:expr;)*) => {$(
        impl Sample for $type {
            fn sample($bits: u32) -> Self {
                $sample
            }
            fn value(self) -> f64 {
                f64::from(self)
            }
        }
    )*};
}

/// Returns the smallest positive number that the device's f32 sums do not flush to 0, or 0 if they flush none.
pub(super) fn smallest(device: &Device) -> f64 {
    let tiny = Tensor::from_slice(device, &[1e-40f32], &[1]).unwrap();
    let sum = zip(Zip::Add, &tiny, &tiny).unwrap().read().unwrap()[0];
    if sum == 0.0 { f32::MIN_POSITIVE.into() } else { 0.0 }
}

/// Returns a uniform value in [-1, 1).
fn uniform(bits: u32) -> f32 {
    (bits.cast_signed() >> 8) as f32 / (1 << 23) as f32
}

samples! {
    f32: bits => uniform(bits);
    // One in eight values is subnormal.
    f16: bits => if bits.is_multiple_of(8) {
        Self::from_bits((bits >> 16) as u16 & 0x83ff)
    } else {
        Self::from_f32(4.0 * uniform(bits))
    };
    bf16: bits => Self::from_f32(uniform(bits));
    u8: bits => (bits >> 24) as Self;
    i8: bits => (bits >> 24) as Self;
    u16: bits => (bits >> 16) as Self;
    i16: bits => (bits >> 16) as Self;
    u32: bits => bits;
    i32: bits => bits.cast_signed();
    f64: bits => f64::from(uniform(bits)) / 3.0;
}

/// Calls a generic function once for each element type; with `in_f32`, only for types that f32 holds.
macro_rules! for_each_type {
    ($function:ident($($arg:expr),*)) => {
        for_each_type!(in_f32 $function($($arg),*));
        $function::<u32>($($arg),*);
        $function::<i32>($($arg),*);
        $function::<f64>($($arg),*);
    };
    (in_f32 $function:ident($($arg:expr),*)) => {
        $function::<f32>($($arg),*);
        $function::<half::f16>($($arg),*);
        $function::<half::bf16>($($arg),*);
        $function::<u8>($($arg),*);
        $function::<i8>($($arg),*);
        $function::<u16>($($arg),*);
        $function::<i16>($($arg),*);
    };
}
pub(super) use for_each_type;

/// Returns `len` values that depend on the seed and the index only.
pub(super) fn values<T: Sample>(seed: u32, len: u64) -> Vec<T> {
    let blocks = (0..len.div_ceil(4)).flat_map(|block| philox([seed, 0x7ea], block));
    blocks.take(usize::try_from(len).unwrap()).map(T::sample).collect()
}

/// Returns a matrix of [`values`], on the host and on the device.
pub(super) fn matrix<T: Sample>(device: &Device, seed: u32, rows: u64, cols: u64) -> (Vec<T>, Tensor<T>) {
    let values = values(seed, rows * cols);
    let tensor = Tensor::from_slice(device, &values, &[rows, cols]).unwrap();
    (values, tensor)
}

/// Returns the bits of floats, for comparisons that distinguish -0.0 from 0.0 and that include NaN.
pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
