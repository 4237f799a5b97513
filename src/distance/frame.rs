//! Frames of observations: the shift that is subtracted from their elements, and the power of two that scales the differences.
//! Without the shift, sums of products lose the digits in which elements differ; without the scale, they leave f32 or f64.

use bytemuck::Zeroable;

use crate::packed::pair_products::{exponent, power_of_two};

/// The shift and the scale of an observation, chosen from the features so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Zeroable)]
pub(super) struct Frame {
    /// A value near the mean.
    pub(super) shift: f64,
    /// The scale; 0 as long as all elements are 0.
    pub(super) scale: f64,
    /// Moments of the elements that determine the shift.
    pub(super) seen: Moments,
    /// True once the shift is fixed.
    pub(super) is_final: bool,
}

impl Frame {
    /// Returns the entry of a [`table`](super::precision::table).
    pub(super) fn entry(&self) -> [f64; 3] {
        [self.shift, 0.0, self.factor()]
    }

    /// Returns the power of two that differences are multiplied by.
    pub(super) fn factor(&self) -> f64 {
        or_one(self.scale)
    }

    /// Adapts the scale to an element of this size. Earlier sums remain in the previous frame.
    pub(super) fn fit(&mut self, size: f64, wide: bool) {
        let highest = power_of_two(range(wide)[1]);
        if size > 0.0 && (self.scale == 0.0 || size * self.scale > highest) {
            self.scale = near_one(size, wide);
        }
    }

    /// Returns the shift and the scale.
    pub(super) fn plain(&self) -> [f64; 2] {
        [self.shift, self.scale]
    }
}

/// The number of values, their mean, and the sum of their squared deviations from the mean.
#[derive(Clone, Copy, Debug, Default, PartialEq, Zeroable)]
pub(super) struct Moments {
    pub(super) count: f64,
    pub(super) mean: f64,
    pub(super) squares: f64,
}

impl Moments {
    /// Returns the moments of the union of both (Chan, Golub and `LeVeque`, 1979).
    pub(super) fn with(self, other: Self) -> Self {
        let count = self.count + other.count;
        if count == 0.0 {
            return self;
        }
        let (apart, share) = (other.mean - self.mean, other.count / count);
        Self {
            count,
            mean: self.mean + apart * share,
            squares: self.squares + other.squares + apart * apart * self.count * share,
        }
    }

    /// Returns the moments, given the sums of values and of squared values in a frame.
    pub(super) fn of_sums(count: f64, sum: f64, squares: f64, [shift, scale]: [f64; 2]) -> Self {
        if count == 0.0 {
            return Self::default();
        }
        let (scale, mean) = (or_one(scale), sum / count);
        let squares = (squares - sum * mean).max(0.0);
        Self { count, mean: shift + mean / scale, squares: squares / scale / scale }
    }

    /// Returns a value near the mean: 0 if the mean is within one standard deviation of 0, otherwise a multiple of a power of two, so that whole
    /// numbers stay whole numbers or become fractions of few digits.
    pub(super) fn near_mean(&self, is_whole: bool) -> f64 {
        let (mean, spread) = (self.mean, self.spread());
        if mean.abs() <= spread || !mean.is_finite() {
            0.0
        } else if is_whole {
            mean.round()
        } else if spread > 0.0 {
            let step = power_of_two(exponent(spread));
            (mean / step).round() * step
        } else {
            mean
        }
    }

    /// Returns the standard deviation.
    pub(super) fn spread(&self) -> f64 {
        if self.count > 0.0 { (self.squares / self.count).sqrt() } else { 0.0 }
    }
}

fn or_one(scale: f64) -> f64 {
    if scale > 0.0 { scale } else { 1.0 }
}

/// Exponents of two between which sizes, their squares and their smallest differences stay within f32 or f64.
const fn range(wide: bool) -> [i32; 2] {
    if wide { [-150, 150] } else { [-30, 40] }
}

/// The largest exponent for which the power of two and its reciprocal are normal numbers.
const fn normal(wide: bool) -> i32 {
    if wide { 1022 } else { 126 }
}

/// Returns the power of two that scales a size near the limits of f32 or f64 to about 1, and 1 for other sizes.
pub(super) fn near_one(size: f64, wide: bool) -> f64 {
    let [low, high] = range(wide);
    match exponent(size) {
        _ if size <= 0.0 || size.is_nan() => 1.0,
        power if (low..high).contains(&power) => 1.0,
        power => power_of_two((-power).clamp(-normal(wide), normal(wide))),
    }
}

/// Returns the power of two that scales the largest size to just below 2^high, or 1 if the size is between 2^low and 2^high.
pub(super) fn between([low, high]: [f64; 2], size: f64) -> f64 {
    let (power, most) = (f64::from(exponent(size)), f64::from(normal(false)));
    if size <= 0.0 || (low..high).contains(&power) {
        return 1.0;
    }
    (high.floor() - power - 1.0).clamp(-most, most).exp2()
}

/// The conversion of an observation's sums from one frame to another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) factor: f64,
    step: f64,
}

impl Way {
    /// Creates the conversion between two [plain](Frame::plain) frames.
    pub(super) fn new([shift, scale]: [f64; 2], [to_shift, to_scale]: [f64; 2]) -> Self {
        let to_scale = or_one(to_scale);
        Self { factor: to_scale / or_one(scale), step: (shift - to_shift) * to_scale }
    }

    /// True if both frames are the same.
    pub(super) fn is_none(self) -> bool {
        self.factor == 1.0 && self.step == 0.0
    }

    /// Creates the conversion that gives the sums of elements that are all 0.
    pub(super) fn of_zero([shift, scale]: [f64; 2]) -> Self {
        Self { factor: 1.0, step: -shift * scale }
    }

    /// Converts the sums of a pair over `count` features, in the order of [`Metric::recipe`](super::Metric).
    pub(super) fn take([x, y]: [Self; 2], sums: &mut [f64], count: f64) {
        let [a, b] = [x.factor, y.factor];
        if let [xy, xx, yy, sx, sy, ..] = sums {
            *xy = a * b * *xy + a * y.step * *sx + b * x.step * *sy + count * x.step * y.step;
            *xx = a * a * *xx + x.step * (2.0 * a * *sx + count * x.step);
            *yy = b * b * *yy + y.step * (2.0 * b * *sy + count * y.step);
            *sx = a * *sx + count * x.step;
            *sy = b * *sy + count * y.step;
        } else if let [xy, xx, yy, ..] = sums {
            // Cosine has no shift.
            *xy *= a * b;
            *xx *= a * a;
            *yy *= b * b;
        }
    }
}
