//! Weights along an axis.

use std::iter;

use crate::{
    Error, Result,
    dtype::nearest_f32,
    extent::to_usize,
    kernels::correlate::{Edge, Kind},
};

/// Weights along one axis, an odd number of them, and what stands beyond its ends. Output i is the sum of `w[t] x[i + t - r]`, with
/// r = (number - 1) / 2: a correlation.
#[derive(Clone, Debug)]
pub(crate) struct Taps {
    pub(crate) weights: Vec<f64>,
    pub(crate) edge: Edge,
    /// What [`Edge::Constant`] means.
    pub(crate) constant: f64,
}

impl Taps {
    /// Leaves an axis as it is.
    pub(crate) fn identity() -> Self {
        Self { weights: vec![1.0], edge: Edge::Nearest, constant: 0.0 }
    }

    /// Elements to each side of the centre.
    pub(crate) const fn radius(&self) -> u64 {
        self.weights.len() as u64 / 2
    }

    /// As scipy tells: within the distance from 1 to the next f64.
    pub(crate) fn kind(&self) -> Kind {
        let halves = || self.weights.iter().zip(self.weights.iter().rev()).take(self.weights.len() / 2);
        if halves().all(|(left, right)| (left - right).abs() <= f64::EPSILON) {
            Kind::Even
        } else if halves().all(|(left, right)| (left + right).abs() <= f64::EPSILON) {
            Kind::Odd
        } else {
            Kind::Any
        }
    }

    /// Weights of an axis of `n` elements that reach no further than it is long: what is farther from the centre meets the same elements as
    /// something nearer, and its weights are added to those. `None` where none are: of a radius below `n`, so that what a part of an axis and
    /// its halo give is the same, or where that saves nothing.
    pub(super) fn folded(&self, n: u64) -> Option<Self> {
        let radius = to_usize(self.radius());
        let n = to_usize(n);
        // The reach of folded weights, and the number of elements after which those of an axis come again.
        let (reach, period) = match self.edge {
            Edge::Reflect => (n, Some(2 * n)),
            Edge::Mirror => (n.saturating_sub(1), Some((2 * n).saturating_sub(2).max(1))),
            Edge::Wrap => (n / 2, Some(n)),
            Edge::Nearest => (n.saturating_sub(1), None),
            Edge::Constant => (n, None),
        };
        if n == 0 || radius < n || radius <= reach {
            return None;
        }
        let mut weights = vec![0.0; 2 * reach + 1];
        weights[reach] = self.weights[radius];
        // From the outermost on, on both sides alike, so that symmetric weights stay so to the bit.
        for far in (1..=radius).rev() {
            let (left, right) = (self.weights[radius - far], self.weights[radius + far]);
            let (near, [before, after]) = match period.map(|period| (far % period, period)) {
                None => (far.min(reach), [left, right]),
                Some((near, period)) if 2 * near < period => (near, [left, right]),
                // Both ends meet the same element.
                Some((near, period)) if 2 * near == period => (near, [left.midpoint(right); 2]),
                Some((near, period)) => (period - near, [right, left]),
            };
            weights[reach - near] += before;
            weights[reach + near] += after;
        }
        Some(Self { weights, ..self.clone() })
    }

    /// As f32: even ones with such a centre that their sum is that of the weights, rounded once, and constants stay.
    pub(crate) fn narrow(&self) -> Vec<f32> {
        let mut weights: Vec<f32> = self.weights.iter().copied().map(nearest_f32).collect();
        if self.kind() == Kind::Even {
            let radius = weights.len() / 2;
            // From the smallest on.
            let sides: f64 = weights[..radius].iter().copied().map(f64::from).sum();
            let all: f64 = 2.0 * self.weights[..radius].iter().sum::<f64>() + self.weights[radius];
            weights[radius] = nearest_f32(all - 2.0 * sides);
        }
        weights
    }
}

/// A derivative of order `order` of a Gaussian of standard deviation `sigma`, at the whole numbers up to `radius` from its centre, for a
/// correlation, by scipy's formulas: the Gaussian adds up to 1, and its derivatives are it times polynomials.
///
/// # Errors
/// [`Error::Argument`] where a weight is no finite number: of a high order, or a tiny `sigma`; [`Error::Limit`] for a radius beyond 2^28.
#[allow(clippy::cast_possible_truncation, reason = "a whole number below 2^28")]
pub(crate) fn gaussian_weights(op: &'static str, sigma: f64, order: u32, radius: f64) -> Result<Vec<f64>> {
    const MOST: u64 = 1 << 28;
    if radius > MOST as f64 {
        let requested = radius as u64;
        return Err(Error::Limit { what: "elements of a filter's radius", requested, max: MOST });
    }
    let side = radius as i32;
    let variance = sigma * sigma;
    let mut weights: Vec<f64> =
        (-side..=side).map(|x| (-0.5 / variance * f64::from(x) * f64::from(x)).exp()).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter_mut().for_each(|weight| *weight /= sum);
    // The derivative of q(x) p(x), with p'(x) = -x / sigma² p(x), is (q'(x) - x q(x) / sigma²) p(x).
    let mut q = vec![1.0];
    for _ in 0..order {
        let derived = q.iter().enumerate().skip(1).map(|(power, c)| power as f64 * c);
        let shifted = iter::once(0.0).chain(q.iter().map(|c| c / -variance));
        q = shifted.zip(derived.chain(iter::repeat(0.0))).map(|(a, b)| a + b).collect();
    }
    if order > 0 {
        for (x, weight) in (-side..=side).zip(&mut weights) {
            // Reversed, for a correlation: at -x.
            *weight *= q.iter().rev().fold(0.0, |value, c| value * -f64::from(x) + c);
        }
    }
    if weights.iter().all(|weight| weight.is_finite()) {
        return Ok(weights);
    }
    let why = format_args!("{sigma:e} with order {order}: weights are beyond f64");
    Err(Error::argument(op, "sigma", why))
}
