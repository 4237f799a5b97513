//! The array that `teatime blur` reads.

use std::{path::Path, sync::Arc};

use teatime::{ChunkedArray, Error, MissingChunk};

use crate::{array::open, failure::Failure};

/// An array.
#[derive(Debug)]
pub(super) struct Input {
    pub(super) path: String,
    pub(super) array: Arc<dyn ChunkedArray>,
}

impl Input {
    /// Reads metadata alone.
    pub(super) fn open(path: &Path, missing: MissingChunk) -> Result<Self, Failure> {
        Ok(Self { path: path.display().to_string(), array: open(path, missing)? })
    }

    /// An error, in the command line's words.
    pub(super) fn named(&self, error: Error) -> Failure {
        match &error {
            Error::Argument {
                name: name @ ("sigma" | "truncate" | "radius" | "order" | "mode" | "axes"),
                why,
                ..
            } => Failure::Error(format!("--{name}: {why}")),
            Error::Shape { expected, got, .. } => {
                Failure::Error(format!("{}: expected {expected}, got {got}", self.path))
            }
            _ => error.into(),
        }
    }
}
