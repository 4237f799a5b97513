//! Tolerances, by name: the errors that a device's f32 or f64 may have relative to the oracle's f64.

use crate::{DType, Real};

/// The distance from 1 to the next f32: WGSL lets a sum or product be off by one unit in the last place.
const EPSILON: f64 = 1.0 / (1 << 23) as f64;

/// The tolerance of integers, copies and selections: no difference at all.
pub(super) const EXACT: f64 = 0.0;

/// The tolerance of one rounded operation and one rounded conversion of a wide integer.
pub(super) const ONE_OPERATION: f64 = 2.0 * EPSILON;

/// Returns the tolerance of a sum of `n` products in any order, with each factor rounded to f32.
pub(super) fn dot(n: u64) -> f64 {
    dot_of(DType::F32, n)
}

/// Returns the tolerance of a sum of `n` products in f32 or f64, including the oracle's own rounding.
pub(super) fn dot_of(real: DType, n: u64) -> f64 {
    (n + 3) as f64 * if real == DType::F64 { 4.0 * f64::EPSILON } else { EPSILON }
}

/// An oracle's value, and the sum of the magnitudes of its terms, which bounds the error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reference {
    pub(super) value: f64,
    pub(super) magnitude: f64,
}

impl Reference {
    pub(super) fn add(&mut self, term: f64) {
        self.value += term;
        self.magnitude += term.abs();
    }
}

impl From<f64> for Reference {
    fn from(value: f64) -> Self {
        Self { value, magnitude: value.abs() }
    }
}

/// Asserts that each element is within `tolerance` times the magnitude of its reference; NaN never is.
#[track_caller]
pub(super) fn assert_close<R: Real>(what: &str, actual: &[R], expected: &[Reference], tolerance: f64) {
    assert_eq!(actual.len(), expected.len(), "{what}: number of elements");
    let error = |i: usize| (actual[i].to_f64() - expected[i].value).abs();
    let wrong: Vec<usize> = (0..actual.len())
        .filter(|&i| {
            // NaN compares false, so it counts as wrong.
            let close = error(i) <= tolerance * expected[i].magnitude;
            !close && actual[i].to_f64() != expected[i].value
        })
        .collect();
    let relative = |i: usize| {
        let relative = error(i) / expected[i].magnitude;
        if relative.is_nan() { f64::INFINITY } else { relative }
    };
    if let Some(worst) = wrong.iter().copied().max_by(|&i, &j| relative(i).total_cmp(&relative(j))) {
        let (first, count, len) = (wrong[0], wrong.len(), actual.len());
        panic!(
            "{what}: {count} of {len} beyond {tolerance:e}: first [{first}] {:?} for {}, worst [{worst}] {:?} for {}",
            actual[first], expected[first].value, actual[worst], expected[worst].value
        );
    }
}

#[test]
fn nan_and_neighbours_are_told() {
    let reference = [Reference::from(1.0), Reference::from(2.0)];
    assert_close("equal", &[1.0, 2.0], &reference, EXACT);
    assert_close("near", &[1.0, 2.0 + f32::EPSILON], &reference, ONE_OPERATION);
    for wrong in [f32::NAN, 2.001, f32::INFINITY] {
        let check = || assert_close("far", &[1.0, wrong], &reference, ONE_OPERATION);
        let message = *std::panic::catch_unwind(check).unwrap_err().downcast::<String>().unwrap();
        assert!(message.contains("1 of 2") && message.contains("worst [1]"), "{message}");
    }
}
