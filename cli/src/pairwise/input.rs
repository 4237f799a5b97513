//! The arrays that `teatime pairwise` reads.

use std::path::Path;

use serde::Serialize;
use teatime::Error;

use super::{Observations, PairwiseArgs};
use crate::{
    array::{Array, Files, Gaps},
    failure::Failure,
};

/// A matrix.
#[derive(Debug)]
pub(super) struct Matrix {
    path: String,
    files: Files,
    pub(super) stored: Array,
}

/// The matrices.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) x: Matrix,
    pub(super) y: Option<Matrix>,
}

/// A matrix, in the record.
#[derive(Debug, Serialize)]
pub(super) struct InputRecord {
    pub(super) path: String,
    pub(super) observations: u64,
    pub(super) features: u64,
    pub(super) dtype: String,
    #[serde(flatten)]
    gaps: Gaps,
}

impl Input {
    /// Reads metadata alone.
    pub(super) fn open(args: &PairwiseArgs) -> Result<Self, Failure> {
        let open = |path: &Path| {
            let files = Files::at(path)?;
            let stored = Array::open(path, args.missing_chunk, |_| false)?;
            if stored.array.shape().len() != 2 {
                let (path, shape) = (path.display(), stored.array.shape());
                return Err(Failure::Error(format!("{path}: an array of shape {shape:?}, not a matrix")));
            }
            Ok(Matrix { path: path.display().to_string(), files, stored })
        };
        Ok(Self { x: open(&args.x)?, y: args.with.as_deref().map(open).transpose()? })
    }

    /// # Errors
    /// As [`Files::check`].
    pub(super) fn check(&self) -> Result<(), Failure> {
        self.y.iter().chain([&self.x]).try_for_each(|matrix| matrix.files.check())
    }

    /// An error, with the path of a matrix instead of the name of an argument.
    pub(super) fn named(&self, error: Error) -> Failure {
        let matrix = match &error {
            Error::Argument { name: "x", .. } => Some(&self.x),
            Error::Argument { name: "y", .. } => self.y.as_ref(),
            _ => None,
        };
        match (matrix, &error) {
            (Some(matrix), Error::Argument { why, .. }) => Failure::Error(format!("{}: {why}", matrix.path)),
            (_, Error::Limit { .. }) => Failure::Error(format!("{}: {error}", self.x.path)),
            _ => self.x.stored.with_shards(error),
        }
    }

    /// # Errors
    /// [`Failure::Error`] where no chunk of a matrix was there.
    pub(super) fn check_found(&self) -> Result<(), Failure> {
        self.all().try_for_each(|matrix| matrix.stored.check_found())
    }

    /// Warnings of the matrices.
    pub(super) fn warnings(&self, args: &PairwiseArgs) -> Vec<String> {
        let becomes = format!("taken as NaN, by --missing {}", args.missing.name());
        self.all().flat_map(|matrix| matrix.stored.warnings(&becomes)).collect()
    }

    fn all(&self) -> impl Iterator<Item = &Matrix> {
        std::iter::once(&self.x).chain(self.y.as_ref())
    }

    /// What progress counts, and how many there are.
    pub(super) fn steps(&self, args: &PairwiseArgs) -> (u64, &'static str) {
        let [observations, features] = self.x.extents(args.observations);
        if args.neighbors.is_some() || args.resume { (observations, "rows") } else { (features, "features") }
    }

    /// Observations of Y, or of X itself.
    pub(super) fn others(&self, args: &PairwiseArgs) -> u64 {
        self.y.as_ref().unwrap_or(&self.x).extents(args.observations)[0]
    }
}

impl Matrix {
    /// Observations and features.
    pub(super) fn extents(&self, observations: Observations) -> [u64; 2] {
        let (shape, columns) = (self.stored.array.shape(), observations == Observations::Columns);
        [shape[usize::from(columns)], shape[usize::from(!columns)]]
    }

    pub(super) fn record(&self, args: &PairwiseArgs) -> InputRecord {
        let [observations, features] = self.extents(args.observations);
        let (path, dtype) = (self.path.clone(), self.stored.name_of_dtype());
        InputRecord { path, observations, features, dtype, gaps: self.stored.gaps() }
    }
}
