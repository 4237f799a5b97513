//! Sums over some of the features, on the host, which merge and become distances.

use std::ops::Range;

#[cfg(doc)]
use super::Partial;
use super::{
    Distances, Metric, Missing,
    frame::{Moments, Way},
    metric::{Finish, Scaling},
    results::matrix,
};
use crate::{Error, Result, kernels::distance::Term, linalg::Matrix};

/// Sums over some of the features for each pair of observations, on the host: plain values that can be stored or sent elsewhere.
///
/// # Cost
/// 8 bytes for each pair and term of the metric, for the same pairs as [`Partial`].
#[derive(Clone, Debug, PartialEq)]
pub struct PartialSums {
    /// The metric of the distances.
    pub metric: Metric,
    /// The rule for missing elements.
    pub missing: Missing,
    /// True if negative elements are missing.
    pub negative: bool,
    /// The number of features that were added.
    pub features: u64,
    /// True if no sum was rounded to f32: all were added in f64, or are whole numbers that f32 holds.
    pub wide: bool,
    /// For each observation of x, true if all its distances are NaN because it has a NaN ([`Missing::Propagate`]).
    pub undefined_x: Vec<bool>,
    /// Flags for the observations of y, as in `undefined_x`. None if the observations of x are paired with themselves.
    pub undefined_y: Option<Vec<bool>>,
    /// For [`Metric::Cosine`] and [`Metric::Correlation`], the shift that was subtracted from the elements of each observation of x, and the
    /// power of two that scaled the differences (0 as long as all elements were 0). Empty for other metrics.
    pub frames_x: Vec<[f64; 2]>,
    /// Values for y, as in `frames_x`.
    pub frames_y: Option<Vec<[f64; 2]>>,
    /// The sums of all pairs for each term of the metric, (m, n) in C order. Without y, if the metric is symmetric, each row ends at the
    /// diagonal, m (m + 1) / 2 sums in all. The first term of [`Metric::Chebyshev`] has maxima. Unless missing elements are propagated, the last
    /// term has the numbers of features that both observations have.
    pub sums: Vec<Vec<f64>>,
}

impl PartialSums {
    /// Adds the sums over other features of the same observations.
    ///
    /// # Errors
    /// [`Error::Argument`] for sums of another metric or rule for missing elements; [`Error::Shape`] for sums of other observations, or unless
    /// there are as many sums as [`sums`](Self::sums) says. After an error nothing was added.
    pub fn merge(&mut self, other: &Self) -> Result<()> {
        self.check()?;
        other.check()?;
        let rule = |sums: &Self| (sums.metric, sums.missing, sums.negative);
        if rule(self) != rule(other) {
            let why = format_args!("{:?} into {:?}", rule(other), rule(self));
            return Err(Error::argument("PartialSums::merge", "other", why));
        }
        let extents = |sums: &Self| (sums.undefined_x.len(), sums.undefined_y.as_ref().map(Vec::len));
        if extents(self) != extents(other) {
            let [expected, got] = [&*self, other].map(|sums| match extents(sums) {
                (m, Some(n)) => format!("{m} observations with {n}"),
                (m, None) => format!("{m} observations with themselves"),
            });
            return Err(Error::shape("PartialSums::merge", expected, got));
        }
        if self.has_frames() {
            self.merge_in_frames(other);
        } else {
            self.merge_sums(other);
        }
        let undefined_y = self.undefined_y.iter_mut().flatten().zip(other.undefined_y.iter().flatten());
        let undefined = self.undefined_x.iter_mut().zip(&other.undefined_x).chain(undefined_y);
        undefined.for_each(|(flag, new)| *flag |= new);
        self.features = self.features.saturating_add(other.features);
        self.wide &= other.wide;
        Ok(())
    }

    fn merge_sums(&mut self, other: &Self) {
        for ((term, total), sums) in self.terms().into_iter().zip(&mut self.sums).zip(&other.sums) {
            let merged = |total: f64, sum| if term == Term::Largest { total.max(sum) } else { total + sum };
            total.iter_mut().zip(sums).for_each(|(total, &sum)| *total = merged(*total, sum));
        }
    }

    /// Merges after converting both to one frame for each observation: its own, that of `other`, or one near the joint mean.
    fn merge_in_frames(&mut self, other: &Self) {
        let moments = [&*self, other].map(Self::moments);
        let ways = |own: &mut [[f64; 2]], other: &[[f64; 2]], side: usize| -> Vec<[Way; 2]> {
            let both = own.iter_mut().zip(other).enumerate().map(|(i, (own, other))| {
                let joint = moments[0][side][i].with(moments[1][side][i]);
                // Sums of elements that are shifted by less lose nothing.
                let most = 2.0 * joint.spread();
                let near = [own[0], other[0]].into_iter().find(|shift| (joint.mean - shift).abs() <= most);
                // Takes the smaller scale so that no square leaves f64, but not the scale 0 of an observation of 0s.
                let scales = [own[1], other[1]];
                let scale = scales.into_iter().filter(|scale| *scale > 0.0).reduce(f64::min).unwrap_or(0.0);
                let shift =
                    if self.metric == Metric::Cosine { 0.0 } else { near.unwrap_or(joint.near_mean(false)) };
                let to = [shift, scale];
                let ways = [Way::new(*own, to), Way::new(*other, to)];
                *own = to;
                ways
            });
            both.collect()
        };
        let x = ways(&mut self.frames_x, &other.frames_x, 0);
        let frames_y = self.frames_y.as_mut().zip(other.frames_y.as_ref());
        let y = frames_y.map(|(own, other)| ways(own, other, 1));
        let y = y.as_ref().unwrap_or(&x);
        if x.iter().chain(y).flatten().all(|way| way.is_none()) {
            return self.merge_sums(other);
        }
        let mut values = [vec![0.0; self.sums.len()], vec![0.0; self.sums.len()]];
        for (row, x) in x.iter().enumerate() {
            for (pair, y) in self.row(row).zip(y) {
                for (i, (part, values)) in [&*self, other].into_iter().zip(&mut values).enumerate() {
                    part.take(pair, [x[i], y[i]], values, part.shared(pair));
                }
                for (total, (one, another)) in self.sums.iter_mut().zip(values[0].iter().zip(&values[1])) {
                    total[pair] = one + another;
                }
            }
        }
    }

    /// Returns the moments of each observation of x and of y, from the pair that shares the most features.
    fn moments(&self) -> [Vec<Moments>; 2] {
        let extents = [self.undefined_x.len(), self.undefined_y.as_ref().map_or(0, Vec::len)];
        let mut moments = extents.map(|extent| vec![Moments::default(); extent]);
        let [_, xx, yy, x, y, ..] = &self.sums[..] else { return moments };
        for row in 0..extents[0] {
            for (column, pair) in self.row(row).enumerate() {
                let count = self.shared(pair);
                if count > moments[0][row].count {
                    moments[0][row] = Moments::of_sums(count, x[pair], xx[pair], self.frames_x[row]);
                }
                if let Some(frames) = &self.frames_y
                    && count > moments[1][column].count
                {
                    moments[1][column] = Moments::of_sums(count, y[pair], yy[pair], frames[column]);
                }
            }
        }
        moments
    }

    /// Converts the sums of a pair to another frame.
    fn take(&self, pair: usize, ways: [Way; 2], values: &mut [f64], count: f64) {
        values.iter_mut().zip(&self.sums).for_each(|(value, sums)| *value = sums[pair]);
        Way::take(ways, values, count);
    }

    /// Returns the number of features that a pair shares.
    fn shared(&self, pair: usize) -> f64 {
        match (self.missing, self.sums.last()) {
            (Missing::Propagate, _) | (_, None) => self.features as f64,
            (_, Some(counts)) => counts[pair],
        }
    }

    /// Removes `features` features in which all elements were 0: rows of a block that should be skipped. Only if missing elements are
    /// propagated. Otherwise set such rows to NaN, which adds nothing, and set [`features`](Self::features) to the number of the remaining ones.
    ///
    /// # Errors
    /// [`Error::Argument`] for more features than were added, and if missing elements are not propagated; [`Error::Shape`] unless there are as
    /// many sums as [`sums`](Self::sums) says.
    pub fn take_zeros_away(&mut self, features: u64) -> Result<()> {
        const OP: &str = "PartialSums::take_zeros_away";
        self.check()?;
        if self.missing != Missing::Propagate {
            let why = format_args!("{}: NaN adds nothing there", self.missing.name());
            return Err(Error::argument(OP, "missing", why));
        }
        let Some(left) = self.features.checked_sub(features) else {
            let why = format_args!("{features} of {}", self.features);
            return Err(Error::argument(OP, "features", why));
        };
        if self.has_frames() && features > 0 {
            let ways =
                |frames: &[[f64; 2]]| frames.iter().map(|frame| Way::of_zero(*frame)).collect::<Vec<_>>();
            let (x, y) = (ways(&self.frames_x), self.frames_y.as_deref().map(ways));
            let y = y.as_ref().unwrap_or(&x);
            let mut values = vec![0.0; self.sums.len()];
            for (row, x) in x.iter().enumerate() {
                for (pair, y) in self.row(row).zip(y) {
                    values.fill(0.0);
                    Way::take([*x, *y], &mut values, features as f64);
                    self.sums.iter_mut().zip(&values).for_each(|(sums, zeros)| sums[pair] -= zeros);
                }
            }
        }
        self.features = left;
        Ok(())
    }

    fn has_frames(&self) -> bool {
        self.metric.scaling(true) == Scaling::Each
    }

    /// Returns the distances and, unless missing elements are propagated, the numbers of features that both observations have.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are as many sums as [`sums`](Self::sums) says; [`Error::Argument`] for an exponent or a rule that
    /// [`Partial::new`] refuses; [`Error::OutOfHostMemory`].
    ///
    /// # Cost
    /// One thread. 8 bytes for each pair, or 16 with the numbers of features.
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
        let counted = self.missing != Missing::Propagate;
        let shared = counted.then(|| matrix(extents)).transpose()?;
        let mut square = Distances { distances: matrix(extents)?, shared };
        for row in 0..extents[0] {
            let pairs = self.row(row);
            let first = row * extents[1];
            if let (Some(shared), Some(counts)) = (&mut square.shared, self.sums.last()) {
                shared.data_mut()[first..][..pairs.len()].copy_from_slice(&counts[pairs.clone()]);
            }
            let out = &mut square.distances.data_mut()[first..][..pairs.len()];
            let sums = self.sums.iter().map(|sums| sums[pairs.clone()].iter().copied());
            finish.row(row, 0, sums.collect(), out);
        }
        if self.is_lower() {
            square.matrices().for_each(Matrix::mirror_lower);
        }
        Ok(square)
    }

    fn terms(&self) -> Vec<Term> {
        self.metric.terms_in_parts(self.missing != Missing::Propagate)
    }

    fn is_lower(&self) -> bool {
        self.undefined_y.is_none() && self.metric.is_symmetric()
    }

    /// Returns the positions of an observation's sums; those of the next observation follow.
    pub(super) fn row(&self, row: usize) -> Range<usize> {
        if self.is_lower() {
            let start = row.saturating_mul(row + 1) / 2;
            return start..start + row + 1;
        }
        let width = self.undefined_y.as_ref().unwrap_or(&self.undefined_x).len();
        row * width..(row + 1) * width
    }

    /// Returns the number of sums of each term.
    pub(super) fn pairs(&self) -> usize {
        self.undefined_x.len().checked_sub(1).map_or(0, |last| self.row(last).end)
    }

    fn check(&self) -> Result<()> {
        self.metric.check(self.missing)?;
        let (terms, pairs) = (self.terms().len(), self.pairs());
        let frames = |undefined: &[bool]| if self.has_frames() { undefined.len() } else { 0 };
        let expected = [frames(&self.undefined_x), self.undefined_y.as_deref().map_or(0, frames)];
        let got = [self.frames_x.len(), self.frames_y.as_ref().map_or(0, Vec::len)];
        if got != expected {
            return Err(Error::shape("PartialSums", format!("{expected:?} frames"), format!("{got:?}")));
        }
        if self.sums.len() == terms && self.sums.iter().all(|sums| sums.len() == pairs) {
            return Ok(());
        }
        let lens: Vec<usize> = self.sums.iter().map(Vec::len).collect();
        Err(Error::shape("PartialSums", format_args!("{terms} x {pairs} sums"), format_args!("{lens:?}")))
    }
}
