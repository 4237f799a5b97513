//! Least-squares scores over the variants called in each sample.

use rayon::prelude::*;
use teatime::{Device, Result, linalg::Matrix};

use super::{
    reference::ReferenceLoadings,
    sums::{Totals, pairs, triangle},
};

/// The share of a component's sum of squared loadings over a sample's variants that other components
/// must leave unexplained. If they leave less, the sample's variants cannot distinguish the components.
const LEFT: f64 = 1e-5;
/// The maximum deviation, by rounding, of the products of loadings from 0 and 1 over all of a
/// reference's variants, provided that none of the variants was removed.
const ORTHONORMAL: f64 = 1e-5;
/// The number of variants of a part of a sum over the reference.
const PART: usize = 4096;
/// The minimum number of samples that a thread solves.
const LEAST: usize = 64;

/// Computes the scores t of each sample that minimise Σ (z - Σ u t)² over the variants called in it, with z its standardised
/// dosages and u the loadings; NaN if those variants do not determine them. Returns the scores, and the number of samples with NaN.
pub(crate) fn solve(totals: Totals, reference: &ReferenceLoadings, device: &Device) -> Result<(Matrix, u64)> {
    let Totals { mut scores, called, normal, rounding } = totals;
    let (Some(mut normal), k) = (normal, reference.components()) else { return Ok((scores, 0)) };
    let undetermined = device.pool()?.install(|| {
        let products = products(reference);
        // Components beyond the rank of the reference's genotypes have loadings of 0, and scores of 0.
        let exists: Vec<bool> = (0..k).map(|a| products[triangle(a) + a] > 0.0).collect();
        let identity = |[a, b]: [usize; 2]| if a == b && exists[a] { 1.0 } else { 0.0 };
        let orthonormal =
            pairs(k).zip(&products).all(|(pair, product)| (product - identity(pair)).abs() <= ORTHONORMAL);
        let samples = scores.data_mut().par_chunks_exact_mut(k);
        let samples = samples.zip(normal.data_mut().par_chunks_exact_mut(triangle(k))).zip(&called);
        let solved = samples.with_min_len(LEAST).map(|((scores, normal), &called)| {
            // In this case the normal matrix is the identity.
            if called == reference.len() && orthonormal {
                return 0;
            }
            let noise = |a: usize| called as f64 * k as f64 * rounding[triangle(a) + a];
            for a in (0..k).filter(|&a| !exists[a]) {
                normal[triangle(a) + a] = 1.0;
            }
            if solve_one(normal, scores, noise) {
                return 0;
            }
            scores.fill(f64::NAN);
            1
        });
        solved.sum()
    });
    Ok((scores, undetermined))
}

/// Solves a symmetric system, given by its lower triangle, by Cholesky decomposition in place;
/// returns false if a pivot is no larger than `noise` plus the share [`LEFT`].
fn solve_one(normal: &mut [f64], scores: &mut [f64], noise: impl Fn(usize) -> f64) -> bool {
    let k = scores.len();
    for a in 0..k {
        for b in 0..=a {
            let (row, of_b) = (triangle(a), triangle(b));
            let before: f64 = (0..b).map(|c| normal[row + c] * normal[of_b + c]).sum();
            let (whole, left) = (normal[row + b], normal[row + b] - before);
            normal[row + b] = if b < a {
                left / normal[of_b + b]
            } else if left > LEFT * whole + noise(a) {
                left.sqrt()
            } else {
                return false;
            };
        }
    }
    for a in 0..k {
        let before: f64 = (0..a).map(|b| normal[triangle(a) + b] * scores[b]).sum();
        scores[a] = (scores[a] - before) / normal[triangle(a) + a];
    }
    for a in (0..k).rev() {
        let after: f64 = (a + 1..k).map(|b| normal[triangle(b) + a] * scores[b]).sum();
        scores[a] = (scores[a] - after) / normal[triangle(a) + a];
    }
    true
}

/// Returns the products of loadings over all variants of a reference, as a lower triangle; sums them in fixed parts.
fn products(reference: &ReferenceLoadings) -> Vec<f64> {
    let k = reference.components();
    let of_part = |rows: &[f32]| {
        rows.chunks_exact(k).fold(vec![0.0; triangle(k)], |mut sums, row| {
            for (sum, [a, b]) in sums.iter_mut().zip(pairs(k)) {
                *sum += f64::from(row[a]) * f64::from(row[b]);
            }
            sums
        })
    };
    let parts: Vec<Vec<f64>> = reference.loadings.par_chunks(PART * k).map(of_part).collect();
    parts.into_iter().fold(vec![0.0; triangle(k)], |mut sums, part| {
        sums.iter_mut().zip(part).for_each(|(sum, product)| *sum += product);
        sums
    })
}
