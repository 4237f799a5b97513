//! The arrays that `teatime pairwise` reads.

use std::path::Path;

use teatime::Error;

use super::{Observations, PairwiseArgs};
use crate::{array::Array, failure::Failure};

#[derive(Debug)]
pub(super) struct Input {
    pub(super) x: Array,
    pub(super) y: Option<Array>,
}

impl Input {
    /// Opens the matrices and reads only their metadata.
    pub(super) fn open(args: &PairwiseArgs) -> Result<Self, Failure> {
        let open = |path: &Path| Array::matrix(path, args.missing_chunk);
        Ok(Self { x: open(&args.x)?, y: args.with.as_deref().map(open).transpose()? })
    }

    /// Converts an error, with the path of a matrix in place of the argument's name.
    pub(super) fn named(&self, error: Error) -> Failure {
        let matrix = match &error {
            Error::Argument { name: "x", .. } => Some(&self.x),
            Error::Argument { name: "y", .. } => self.y.as_ref(),
            _ => None,
        };
        match (matrix, &error) {
            (Some(matrix), Error::Argument { why, .. }) => Failure::Error(format!("{}: {why}", matrix.path)),
            (_, Error::Limit { .. }) => Failure::Error(format!("{}: {error}", self.x.path)),
            _ => error.into(),
        }
    }

    pub(super) fn warnings(&self, args: &PairwiseArgs) -> Vec<String> {
        let becomes = format!("taken as NaN, by --missing {}", args.missing.name());
        self.matrices().flat_map(|matrix| matrix.warnings(&becomes)).collect()
    }

    pub(super) fn matrices(&self) -> impl Iterator<Item = &Array> {
        std::iter::once(&self.x).chain(self.y.as_ref())
    }

    /// Returns the number of steps that the progress bar counts, which are rows of the result or features, and the noun for them.
    pub(super) fn steps(&self, args: &PairwiseArgs, in_rows: bool) -> (u64, &'static str) {
        let [observations, features] = extents(&self.x, args.observations);
        if in_rows { (observations, "rows") } else { (features, "features") }
    }
}

/// Returns the numbers of observations and features of a matrix.
pub(super) fn extents(matrix: &Array, observations: Observations) -> [u64; 2] {
    let (shape, columns) = (matrix.array.shape(), observations == Observations::Columns);
    [shape[usize::from(columns)], shape[usize::from(!columns)]]
}
