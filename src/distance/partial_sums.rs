//! Sums over some of the features on the host, which merge and become distances.

use std::ops::Range;

#[cfg(doc)]
use super::Partial;
use super::{Distances, Metric, Missing, matrix, metric::Finish, mirror};
use crate::{Error, Result, kernels::distance::Term};

/// Sums over some of the features for each pair of observations, on the host: plain numbers, to be kept or sent elsewhere.
///
/// # Cost
/// 8 bytes for each pair and term of the metric, the pairs as of [`Partial`].
#[derive(Clone, Debug, PartialEq)]
pub struct PartialSums {
    /// What they become.
    pub metric: Metric,
    /// What becomes of missing elements.
    pub missing: Missing,
    /// Whether negative elements are missing.
    pub negative: bool,
    /// Number of features that were added.
    pub features: u64,
    /// True where none was rounded to f32: all of them were added in f64, or are whole numbers that f32 holds.
    pub wide: bool,
    /// For each observation of x, whether all its distances are NaN: one with NaN, by [`Missing::Propagate`].
    pub undefined_x: Vec<bool>,
    /// The same of y. None where the observations of x are taken with themselves.
    pub undefined_y: Option<Vec<bool>>,
    /// For each term of the metric the pairs' sums, (m, n) in C order; of observations with themselves, where the metric
    /// is symmetric, each row up to the diagonal alone, m (m + 1) / 2. The first of [`Metric::Chebyshev`] are maxima. Unless missing
    /// elements are propagated, the last are the numbers of features that both have.
    pub sums: Vec<Vec<f64>>,
}

impl PartialSums {
    /// Adds the sums over other features of the same observations.
    ///
    /// # Errors
    /// [`Error::Argument`] for those of another metric or rule for missing elements; [`Error::Shape`] for those of other
    /// observations, and where as many sums as [`sums`](Self::sums) says are not there. Nothing was added then.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.check()?;
        other.check()?;
        let rule = |of: &Self| (of.metric, of.missing, of.negative);
        if rule(self) != rule(other) {
            let why = format_args!("{:?} into {:?}", rule(other), rule(self));
            return Err(Error::argument("PartialSums::merge", "other", why));
        }
        let extents = |of: &Self| (of.undefined_x.len(), of.undefined_y.as_ref().map(Vec::len));
        if extents(self) != extents(other) {
            let [expected, got] = [&*self, other].map(|of| match extents(of) {
                (m, Some(n)) => format!("{m} observations with {n}"),
                (m, None) => format!("{m} observations with themselves"),
            });
            return Err(Error::shape("PartialSums::merge", expected, got));
        }
        for ((term, all), sums) in self.terms().into_iter().zip(&mut self.sums).zip(&other.sums) {
            let merged = |all: f64, sum| if term == Term::Largest { all.max(sum) } else { all + sum };
            all.iter_mut().zip(sums).for_each(|(all, &sum)| *all = merged(*all, sum));
        }
        let undefined_y = self.undefined_y.iter_mut().flatten().zip(other.undefined_y.iter().flatten());
        let undefined = self.undefined_x.iter_mut().zip(&other.undefined_x).chain(undefined_y);
        undefined.for_each(|(all, new)| *all |= new);
        self.features = self.features.saturating_add(other.features);
        self.wide &= other.wide;
        Ok(())
    }

    /// The distances, and the numbers of features that both have unless missing elements are propagated.
    ///
    /// # Errors
    /// [`Error::Shape`] where as many sums as [`sums`](Self::sums) says are not there; [`Error::Argument`] for a metric's exponent or rule
    /// that [`Partial::new`] refuses; [`Error::OutOfHostMemory`].
    ///
    /// # Cost
    /// One thread, and 8 bytes for each pair, 16 with the numbers of features.
    pub fn finish(&self) -> Result<Distances> {
        self.check()?;
        let y = self.undefined_y.as_ref().unwrap_or(&self.undefined_x);
        let extents = [self.undefined_x.len(), y.len()];
        let finish = Finish {
            metric: self.metric,
            missing: self.missing,
            features: self.features,
            undefined: [&self.undefined_x, y],
            is_self: self.undefined_y.is_none(),
            wide: self.wide,
        };
        let mut distances = matrix(extents)?;
        let counted = self.missing != Missing::Propagate;
        let mut shared = counted.then(|| matrix(extents)).transpose()?;
        let mut values = vec![0.0; self.sums.len()];
        for row in 0..extents[0] {
            let pairs = self.row(row);
            let first = row * extents[1];
            if let (Some(shared), Some(counts)) = (&mut shared, self.sums.last()) {
                shared.data_mut()[first..][..pairs.len()].copy_from_slice(&counts[pairs.clone()]);
            }
            let out = &mut distances.data_mut()[first..][..pairs.len()];
            for (col, (out, pair)) in out.iter_mut().zip(pairs).enumerate() {
                values.iter_mut().zip(&self.sums).for_each(|(value, sums)| *value = sums[pair]);
                *out = finish.distance([row, col], &values);
            }
        }
        if self.is_lower() {
            [Some(&mut distances), shared.as_mut()].into_iter().flatten().for_each(mirror);
        }
        Ok(Distances { distances, shared })
    }

    fn terms(&self) -> Vec<Term> {
        self.metric.terms_in_parts(self.missing != Missing::Propagate)
    }

    fn is_lower(&self) -> bool {
        self.undefined_y.is_none() && self.metric.is_symmetric()
    }

    /// Where an observation's sums are, and after them those of the next.
    pub(super) fn row(&self, row: usize) -> Range<usize> {
        if self.is_lower() {
            let start = row.saturating_mul(row + 1) / 2;
            return start..start + row + 1;
        }
        let width = self.undefined_y.as_ref().unwrap_or(&self.undefined_x).len();
        row * width..(row + 1) * width
    }

    /// How many sums each term has.
    pub(super) fn pairs(&self) -> usize {
        self.undefined_x.len().checked_sub(1).map_or(0, |last| self.row(last).end)
    }

    fn check(&self) -> Result<()> {
        self.metric.check(self.missing)?;
        let (terms, pairs) = (self.terms().len(), self.pairs());
        if self.sums.len() == terms && self.sums.iter().all(|sums| sums.len() == pairs) {
            return Ok(());
        }
        let lens: Vec<usize> = self.sums.iter().map(Vec::len).collect();
        Err(Error::shape("PartialSums", format_args!("{terms} x {pairs} sums"), format_args!("{lens:?}")))
    }
}
