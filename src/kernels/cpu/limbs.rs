//! Whole numbers as three balanced bytes: limbs in base 256, from -128 to 127.

/// Returns the limbs of a multiple, the lowest first.
pub(crate) const fn limbs(multiple: i32) -> [i8; 3] {
    let [low, ..] = multiple.to_le_bytes();
    let rest = (multiple - low.cast_signed() as i32) >> 8;
    let [middle, ..] = rest.to_le_bytes();
    let high = (rest - middle.cast_signed() as i32) >> 8;
    let [high, ..] = high.to_le_bytes();
    [low.cast_signed(), middle.cast_signed(), high.cast_signed()]
}

/// Returns the nearest whole number within the range of limbs, ties to even.
#[inline(always)]
pub(crate) fn multiple(weight: f32) -> i32 {
    // The constant is 1.5 times 2^23: a number that is added to it is rounded to a whole number, which the lower bits
    // of the sum hold. Vectors have no conversion like Rust's `as`.
    const SHIFT: f32 = 12_582_912.0;
    let whole = |x: f32| x.to_bits().cast_signed() - SHIFT.to_bits().cast_signed();
    #[allow(clippy::manual_clamp, reason = "of NaN, this makes a number whose bits do not overflow")]
    let weight = weight.round_ties_even().max(-8_355_711.0).min(8_355_711.0);
    let high = weight * (1.0 / 256.0) + SHIFT;
    let low = weight - (high - SHIFT) * 256.0 + SHIFT;
    256 * whole(high) + whole(low)
}

/// Returns the value of three sums of limbs: exact until the last additions round.
#[inline(always)]
pub(crate) fn join([low, middle, high]: [u32; 3]) -> f32 {
    (widen(high) * 256.0 + widen(middle)) * 256.0 + widen(low)
}

/// Converts a whole number to f32, rounded once.
#[inline(always)]
fn widen(x: u32) -> f32 {
    x.cast_signed() as f32
}
