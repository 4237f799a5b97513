//! The type in which terms are computed: f32 or f64.

use bytemuck::Pod;

use super::Params;
use crate::kernels::cpu::vectors::SimdFloat;

/// A type in which terms are computed: f32 or f64.
pub(super) trait Real: SimdFloat {
    /// The running sum, or the largest term, of a pair.
    type Sum: Pod + Send + Sync;

    /// Returns the exponent of [`Term::Power`](super::Term::Power).
    fn power(p: &Params) -> Self;
    /// Adds the sum of a block of features to the running sum of a pair.
    fn fold(sum: &mut Self::Sum, value: Self);
    /// Keeps the larger term of a pair.
    fn keep_larger(sum: &mut Self::Sum, value: Self);
    /// Returns log(x / y) from t = (x - y) / (x + y) below one half, without cancellation.
    fn near_log(t: Self) -> Self;
    /// Returns (1 + t) log(1 + t) + (1 - t) log(1 - t) for t below one half, without cancellation.
    fn near_divergence(t: Self) -> Self;
}

impl Real for f32 {
    /// The sum and its rounding error.
    type Sum = [Self; 2];

    #[inline(always)]
    fn power(p: &Params) -> Self {
        p.power
    }

    /// Adds by Knuth's two-sum, which keeps the rounding error below half a unit in the last place of the sum.
    #[inline(always)]
    fn fold([sum, left]: &mut [Self; 2], value: Self) {
        let total = *sum + value;
        let part = total - *sum;
        let rest = *left + ((*sum - (total - part)) + (value - part));
        // An infinite sum has no rounding error.
        (*sum, *left) = match total.is_finite() {
            true => (total + rest, rest - ((total + rest) - total)),
            false => (total, 0.0),
        };
    }

    #[inline(always)]
    fn keep_larger([sum, _]: &mut [Self; 2], value: Self) {
        *sum = sum.max(value);
    }

    /// Computes 2 artanh t by its series.
    #[inline(always)]
    fn near_log(t: Self) -> Self {
        let square = t * t;
        2.0 * t * (0..11).rev().fold(0.0, |sum, n| sum * square + 1.0 / (2 * n + 1) as Self)
    }

    /// Computes the series Σ t^2n / (n (2 n - 1)).
    #[inline(always)]
    fn near_divergence(t: Self) -> Self {
        let square = t * t;
        SERIES.iter().rev().fold(0.0, |sum, factor| (sum + factor) * square)
    }
}

impl Real for f64 {
    type Sum = Self;

    #[inline(always)]
    fn power(p: &Params) -> Self {
        Self::from_bits(u64::from(p.power_high) << 32 | u64::from(p.power_low))
    }

    #[inline(always)]
    fn fold(sum: &mut Self, value: Self) {
        *sum += value;
    }

    #[inline(always)]
    fn keep_larger(sum: &mut Self, value: Self) {
        *sum = sum.max(value);
    }

    #[inline(always)]
    fn near_log(t: Self) -> Self {
        2.0 * t.atanh()
    }

    #[inline(always)]
    fn near_divergence(t: Self) -> Self {
        (-t * t).ln_1p() + 2.0 * t * t.atanh()
    }
}

/// The coefficients 1 / (n (2 n - 1)).
const SERIES: [f32; 10] = [
    1.0,
    1.0 / 6.0,
    1.0 / 15.0,
    1.0 / 28.0,
    1.0 / 45.0,
    1.0 / 66.0,
    1.0 / 91.0,
    1.0 / 120.0,
    1.0 / 153.0,
    1.0 / 190.0,
];
