//! Weights along an axis.

use std::iter;

use super::options::Mode;
use crate::{
    Cancel, Error, Result,
    dtype::nearest_f32,
    extent::to_usize,
    kernels::correlate::{Edge, Kind},
};

/// The weights along one axis, whose number is odd, and the elements beyond its ends. Output i is the sum of `w[t] x[i + t - r]`, with r
/// = (number of weights - 1) / 2, which is a correlation.
#[derive(Clone, Debug)]
pub(crate) struct Taps {
    pub(crate) weights: Vec<f64>,
    pub(crate) edge: Edge,
    /// The value beyond the ends with [`Edge::Constant`].
    pub(crate) constant: f64,
    /// The sum of the weights. A sum that differs from 1 only by rounding is set to 1, so that constant arrays do not change.
    sum: f64,
}

impl Taps {
    pub(crate) fn new(weights: Vec<f64>, edge: Edge, constant: f64) -> Self {
        let radius = weights.len() / 2;
        let (left, right) = (&weights[..radius], &weights[radius + 1..]);
        // For even or odd weights, the kernel uses the weights of one side for both sides.
        let sides = match kind(&weights) {
            Kind::Odd => 0.0,
            Kind::Any => left.iter().chain(right.iter().rev()).sum(),
            Kind::Even | Kind::Paired => 2.0 * left.iter().sum::<f64>(),
        };
        let sum: f64 = sides + weights[radius];
        let is_one = (sum - 1.0).abs() <= f64::EPSILON * weights.len() as f64;
        Self { sum: if is_one { 1.0 } else { sum }, weights, edge, constant }
    }

    /// Returns taps that do not change the elements.
    pub(crate) fn identity() -> Self {
        Self::new(vec![1.0], Edge::Nearest, 0.0)
    }

    /// Multiplies each output by `scale`, for the same elements and the same constant beyond the ends.
    pub(crate) fn rescale(&mut self, scale: f64) {
        self.weights.iter_mut().for_each(|weight| *weight *= scale);
        self.sum *= scale;
    }

    /// True if the weights largely cancel, as those of derivatives do, so that a common offset of the elements has little effect on
    /// outputs.
    pub(crate) fn is_of_differences(&self) -> bool {
        self.sum.abs() < 0.5 * self.weights.iter().map(|weight| weight.abs()).sum::<f64>()
    }

    /// True if an axis with a single element keeps that element unchanged.
    pub(crate) fn keep_one(&self) -> bool {
        self.sum == 1.0 && self.edge != Edge::Constant
    }

    /// Returns the number of elements to each side of the centre.
    pub(crate) const fn radius(&self) -> u64 {
        self.weights.len() as u64 / 2
    }

    /// Returns the way in which sums are computed: with pairs, like scipy to the last bit, or so that errors are relative to differences
    /// of elements.
    pub(crate) fn kind(&self, is_paired: bool) -> Kind {
        match kind(&self.weights) {
            Kind::Even if is_paired => Kind::Paired,
            kind => kind,
        }
    }

    /// Returns the kernel's coefficients, which [`Kind`] defines.
    pub(crate) fn numbers(&self, is_paired: bool) -> Vec<f64> {
        let (mut numbers, radius) = (self.weights.clone(), self.weights.len() / 2);
        let mut sum = 0.0;
        for t in 0..radius {
            let weight = self.weights[t];
            let right = &mut numbers[2 * radius - t];
            match self.kind(is_paired) {
                Kind::Even => {
                    *right = weight;
                    sum += weight;
                    numbers[t] = sum;
                }
                Kind::Odd => *right = -weight,
                Kind::Any | Kind::Paired => {}
            }
        }
        if self.kind(is_paired) == Kind::Even || radius == 0 && !is_paired {
            numbers[radius] = self.sum;
        }
        numbers
    }

    /// Returns the taps [folded](Fold) to an axis of `n` elements, or `None` if folding saves nothing.
    pub(super) fn folded(&self, n: u64) -> Option<Self> {
        let radius = to_usize(self.radius());
        let both = |far| [self.weights[radius - far], self.weights[radius + far]];
        let weights = Fold::new(self.edge, n, radius)?.made(self.weights[radius], both, None);
        Some(Self { weights: weights.ok()?, ..self.clone() })
    }

    /// Returns [`numbers`](Self::numbers) as f32. For paired weights, the centre is chosen so that the rounded weights have the same sum
    /// as the originals, and constant arrays do not change.
    pub(crate) fn narrow(&self, is_paired: bool) -> Vec<f32> {
        let mut numbers: Vec<f32> = self.numbers(is_paired).into_iter().map(nearest_f32).collect();
        if self.kind(is_paired) == Kind::Paired {
            let radius = numbers.len() / 2;
            // This adds the weights in ascending order.
            let sides: f64 = numbers[..radius].iter().copied().map(f64::from).sum();
            numbers[radius] = nearest_f32(self.sum - 2.0 * sides);
        }
        numbers
    }
}

/// Returns the kind of weights by scipy's rule, with a tolerance of `f64::EPSILON`. A single weight has no neighbours, so it counts as
/// paired.
fn kind(weights: &[f64]) -> Kind {
    let halves = || weights.iter().zip(weights.iter().rev()).take(weights.len() / 2);
    if weights.len() == 1 {
        Kind::Paired
    } else if halves().all(|(left, right)| (left - right).abs() <= f64::EPSILON) {
        Kind::Even
    } else if halves().all(|(left, right)| (left + right).abs() <= f64::EPSILON) {
        Kind::Odd
    } else {
        Kind::Any
    }
}

/// Weights that are reduced to the length of their axis: a distant weight applies to the same element as a nearer one, so it is added to
/// that one.
struct Fold {
    radius: usize,
    /// The radius of the folded weights, and the period with which the extended axis repeats.
    reach: usize,
    period: Option<usize>,
}

impl Fold {
    /// Makes a fold to an axis of `n` elements. Returns `None` if the radius is below `n`, so that a part of an axis with its halo gives
    /// the same result as the axis, or if folding saves nothing.
    fn new(edge: Edge, n: u64, radius: usize) -> Option<Self> {
        let n = to_usize(n);
        let (reach, period) = match edge {
            Edge::Reflect => (n, Some(2 * n)),
            Edge::Mirror => (n.saturating_sub(1), Some((2 * n).saturating_sub(2).max(1))),
            Edge::Wrap => (n / 2, Some(n)),
            Edge::Nearest => (n.saturating_sub(1), None),
            Edge::Constant => (n, None),
        };
        (n > 0 && radius >= n && radius > reach).then_some(Self { radius, reach, period })
    }

    /// Returns the folded weights, from the centre weight and a function that returns both weights at a distance from
    /// it. Fails with [`Error::Cancelled`].
    fn made(
        &self,
        centre: f64,
        both: impl Fn(usize) -> [f64; 2],
        cancel: Option<&Cancel>,
    ) -> Result<Vec<f64>> {
        let Self { radius, reach, period } = *self;
        let mut weights = vec![0.0; 2 * reach + 1];
        weights[reach] = centre;
        // This goes from the outermost weights inwards, and treats both sides alike, so that symmetric weights stay symmetric to the bit.
        for far in (1..=radius).rev() {
            check(far, cancel)?;
            let [left, right] = both(far);
            let (near, [before, after]) = match period.map(|period| (far % period, period)) {
                None => (far.min(reach), [left, right]),
                Some((near, period)) if 2 * near < period => (near, [left, right]),
                // Both weights apply to the same element.
                Some((near, period)) if 2 * near == period => (near, [left.midpoint(right); 2]),
                Some((near, period)) => (period - near, [right, left]),
            };
            weights[reach - near] += before;
            weights[reach + near] += after;
        }
        Ok(weights)
    }
}

/// Fails with [`Error::Cancelled`], which is checked only once in 2^16 calls.
fn check(number: usize, cancel: Option<&Cancel>) -> Result<()> {
    match cancel {
        Some(cancel) if number.is_multiple_of(1 << 16) => cancel.check(),
        _ => Ok(()),
    }
}

/// A Gaussian of standard deviation `sigma`, or its derivative of order `order`, with a radius of `radius` elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gaussian {
    pub(crate) sigma: f64,
    pub(crate) order: u32,
    pub(crate) radius: f64,
}

impl Gaussian {
    /// Returns the Gaussian's taps along an axis. If `n` gives the number of elements of the axis, the weights are folded as they are
    /// computed, if that saves anything. Fails with the errors of [`weights`](Self::weights); [`Error::Cancelled`].
    pub(super) fn taps(
        self,
        op: &'static str,
        mode: Mode,
        n: Option<u64>,
        cancel: Option<&Cancel>,
    ) -> Result<Taps> {
        const MOST: u64 = 1 << 28;
        let fold = match n {
            Some(n) => Fold::new(mode.edge(), n, to_usize(self.side(MOST)?)),
            None => None,
        };
        let weights = match fold {
            Some(fold) => {
                let mut sides = 0.0;
                for far in (1..=fold.radius).rev() {
                    check(far, cancel)?;
                    sides += self.density(far as f64);
                }
                let (sum, q) = (2.0 * sides + 1.0, self.polynomial());
                let at = |x: f64| self.density(x) / sum * value(&q, x);
                self.finite(op, fold.made(at(0.0), |far| [at(-(far as f64)), at(far as f64)], cancel)?)?
            }
            None => self.weights(op)?,
        };
        let taps = Taps::new(weights, mode.edge(), mode.constant());
        Ok(if self.order == 0 { Taps { sum: 1.0, ..taps } } else { taps })
    }

    /// Returns the Gaussian's weights for a correlation, by scipy's formulas. Fails with [`Error::Argument`] if a
    /// weight is not finite, due to a high order or a tiny `sigma`; [`Error::Limit`] for a radius beyond 2^24.
    pub(crate) fn weights(self, op: &'static str) -> Result<Vec<f64>> {
        const MOST: u64 = 1 << 24;
        let side = i32::try_from(self.side(MOST)?).unwrap_or(i32::MAX);
        let mut weights: Vec<f64> = (-side..=side).map(|x| self.density(x.into())).collect();
        let sum: f64 = weights.iter().sum();
        let q = self.polynomial();
        for (x, weight) in (-side..=side).zip(&mut weights) {
            *weight = *weight / sum * value(&q, x.into());
        }
        self.finite(op, weights)
    }

    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number from 0 to `most`"
    )]
    fn side(self, most: u64) -> Result<u64> {
        let requested = self.radius as u64;
        if self.radius > most as f64 {
            return Err(Error::Limit { what: "elements of a filter's radius", requested, max: most });
        }
        Ok(requested)
    }

    fn density(self, x: f64) -> f64 {
        (-0.5 / (self.sigma * self.sigma) * x * x).exp()
    }

    /// Returns the polynomial q of the derivative. With p'(x) = -x / sigma² p(x), the derivative of q(x) p(x) is (q'(x) - x q(x) /
    /// sigma²) p(x).
    fn polynomial(self) -> Vec<f64> {
        let variance = self.sigma * self.sigma;
        let mut q = vec![1.0];
        for _ in 0..self.order {
            let derived = q.iter().enumerate().skip(1).map(|(power, c)| power as f64 * c);
            let shifted = iter::once(0.0).chain(q.iter().map(|c| c / -variance));
            q = shifted.zip(derived.chain(iter::repeat(0.0))).map(|(a, b)| a + b).collect();
        }
        q
    }

    fn finite(self, op: &'static str, weights: Vec<f64>) -> Result<Vec<f64>> {
        if weights.iter().all(|weight| weight.is_finite()) {
            return Ok(weights);
        }
        let why = format_args!("{:e} with order {}: weights are beyond f64", self.sigma, self.order);
        Err(Error::argument(op, "sigma", why))
    }
}

/// Returns the value of a polynomial at -x, which is the reversal for a correlation.
fn value(q: &[f64], x: f64) -> f64 {
    q.iter().rev().fold(0.0, |value, c| value * -x + c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folding_while_they_are_made_gives_the_same_weights() {
        let modes = [Mode::Reflect, Mode::Mirror, Mode::Nearest, Mode::Wrap, Mode::Constant(2.0)];
        for mode in modes {
            for (n, sigma, order) in [(1, 3.0, 0), (2, 0.9, 1), (5, 7.0, 2), (30, 50.0, 1), (30, 2e4, 0)] {
                let gaussian = Gaussian { sigma, order, radius: (4.0_f64 * sigma + 0.5).floor() };
                let all = gaussian.taps("test", mode, None, None).unwrap();
                // The tolerance allows one rounding per weight, relative to the sum of |weight|: the weights of a derivative cancel when
                // they are folded.
                let rounding = f64::EPSILON * all.weights.len() as f64;
                let rounding = rounding * all.weights.iter().map(|weight| weight.abs()).sum::<f64>();
                let expected = all.folded(n).unwrap_or(all).weights;
                let made = gaussian.taps("test", mode, Some(n), None).unwrap().weights;
                let near = |(one, other): (&f64, &f64)| (one - other).abs() <= rounding;
                assert!(
                    made.len() == expected.len() && made.iter().zip(&expected).all(near),
                    "{mode:?} {n} {sigma} {order}: {made:?}, {expected:?}"
                );
            }
        }
    }

    #[test]
    fn millions_of_weights_take_no_memory_and_can_be_cancelled() {
        let wide = |sigma: f64| Gaussian { sigma, order: 0, radius: 4.0 * sigma };
        assert_eq!(wide(1e6).taps("test", Mode::Reflect, Some(30), None).unwrap().weights.len(), 61);
        let cancel = Cancel::default();
        cancel.cancel();
        let stopped = wide(5e7).taps("test", Mode::Reflect, Some(30), Some(&cancel));
        assert!(matches!(stopped, Err(Error::Cancelled)), "{stopped:?}");
        let refused = wide(5e7).taps("test", Mode::Reflect, None, None);
        assert!(matches!(refused, Err(Error::Limit { max: 16_777_216, .. })), "{refused:?}");
    }
}
