//! Seeded values of every element type.

use half::{bf16, f16};

use crate::{
    Device, Element, Tensor,
    array::{Zip, zip},
    random::philox,
};

/// Elements that tests can make and that oracles can read.
pub(super) trait Sample: Element {
    /// A value from random bits, of any sign the type has.
    fn sample(bits: u32) -> Self;
    /// Its value, exactly.
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

/// The smallest number above 0 that the device's sums of f32 tell from it: 0 where they tell all.
pub(super) fn smallest(device: &Device) -> f64 {
    let tiny = Tensor::from_slice(device, &[1e-40f32], &[1]).unwrap();
    let sum = zip(Zip::Add, &tiny, &tiny).unwrap().read().unwrap()[0];
    if sum == 0.0 { f32::MIN_POSITIVE.into() } else { 0.0 }
}

/// Uniform in [-1, 1).
fn uniform(bits: u32) -> f32 {
    (bits.cast_signed() >> 8) as f32 / (1 << 23) as f32
}

samples! {
    f32: bits => uniform(bits);
    // One in eight is subnormal.
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

/// Calls a generic function once for each element type; with `in_f32` for those that f32 holds.
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

/// `len` values that depend on the seed and their index alone.
pub(super) fn values<T: Sample>(seed: u32, len: u64) -> Vec<T> {
    let blocks = (0..len.div_ceil(4)).flat_map(|block| philox([seed, 0x7ea], block));
    blocks.take(usize::try_from(len).unwrap()).map(T::sample).collect()
}

/// A matrix of [`values`], on the host and on the device.
pub(super) fn matrix<T: Sample>(device: &Device, seed: u32, rows: u64, cols: u64) -> (Vec<T>, Tensor<T>) {
    let values = values(seed, rows * cols);
    let tensor = Tensor::from_slice(device, &values, &[rows, cols]).unwrap();
    (values, tensor)
}

/// The bits of floats, for comparisons that tell -0.0 and NaN apart.
pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}
