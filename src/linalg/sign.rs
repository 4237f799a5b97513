//! The choice between the two signs of a pair of singular vectors.

use super::{
    map::{LinearMap, Pass},
    matrix::Matrix,
};
use crate::{Result, Run, Status};

/// The rule that gives each pair of singular vectors one of two signs: u and v may be negated together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SignRule {
    /// The first entry of v within 0.1 % of the largest magnitude is positive. The sign stays the same when rounding changes which of several
    /// nearly equal entries is the largest.
    #[default]
    Stable,
    /// The sum of v is not negative, as in dask's `svd_compressed`. On centred data that sum is rounding noise.
    DaskSum,
    /// The entry of u of largest magnitude is positive, as in scikit-learn's `randomized_svd`. This rule takes another pass, unless
    /// products were [kept](super::SvdOptions::left).
    MaxAbsU,
    /// The entry of v of largest magnitude is positive, as in scikit-learn's `PCA` and `TruncatedSVD`.
    MaxAbsV,
    /// The signs stay as the iteration leaves them.
    None,
}

impl SignRule {
    /// Negates columns of `v`, right singular vectors of `map`, as the rule says. [`MaxAbsU`](Self::MaxAbsU) takes a pass over `map` and adds
    /// it to `passes`; the other rules read only `v`.
    ///
    /// # Errors
    /// Any error that the pass reports.
    pub fn apply(self, map: &dyn LinearMap, v: &mut Matrix, passes: &mut u32, run: &Run) -> Result<()> {
        let negative: Vec<bool> = match self {
            Self::MaxAbsU => {
                *passes += 1;
                negative_in_u(map, v, *passes, run)?
            }
            _ => self.negative(v),
        };
        v.negate_columns(&negative);
        Ok(())
    }

    /// Returns true for each column that is to be negated. `vectors` are of the side that the rule reads.
    pub(crate) fn negative(self, vectors: &Matrix) -> Vec<bool> {
        (0..vectors.cols()).map(|j| self.is_negative(vectors.column(j))).collect()
    }

    fn is_negative(self, v: impl Iterator<Item = f64> + Clone) -> bool {
        match self {
            Self::Stable => {
                let largest = v.clone().fold(0.0, |largest: f64, x| largest.max(x.abs()));
                v.into_iter().find(|x| x.abs() >= 0.999 * largest).is_some_and(|x| x < 0.0)
            }
            Self::DaskSum => v.sum::<f64>() < 0.0,
            Self::MaxAbsU | Self::MaxAbsV => {
                v.fold(0.0, |largest: f64, x| if x.abs() > largest.abs() { x } else { largest }) < 0.0
            }
            Self::None => false,
        }
    }
}

/// Returns true for each column of A V whose entry of largest magnitude is negative.
fn negative_in_u(map: &dyn LinearMap, v: &Matrix, passes: u32, run: &Run) -> Result<Vec<bool>> {
    if v.cols() == 0 {
        return Ok(Vec::new());
    }
    let mut largest = vec![0.0f64; v.cols()];
    let pass = Pass::new(run, Status::new(passes - 1, passes, map.shape()[0]));
    map.apply(v, &pass, &mut |_, rows| {
        for row in rows.data().chunks_exact(largest.len()) {
            for (largest, &x) in largest.iter_mut().zip(row) {
                if x.abs() > largest.abs() {
                    *largest = x;
                }
            }
        }
        Ok(())
    })?;
    Ok(largest.iter().map(|&x| x < 0.0).collect())
}
