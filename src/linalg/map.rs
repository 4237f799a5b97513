//! Matrices seen only through their products.

use super::matrix::Matrix;
use crate::{Device, Result, Run, Status};

/// One pass over a map's rows, as its implementation reports it.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    run: &'a Run,
    status: Status,
}

impl<'a> Pass<'a> {
    /// A pass of a call that was given `run`.
    pub const fn new(run: &'a Run, status: Status) -> Self {
        Self { run, status }
    }

    /// What the caller gave.
    pub const fn run(&self) -> &'a Run {
        self.run
    }

    /// The same with so many more passes before it, of so many more in all.
    pub const fn among(self, before: u32, more: u32) -> Self {
        let Status { pass, passes, .. } = self.status;
        let status =
            Status { pass: pass.saturating_add(before), passes: passes.saturating_add(more), ..self.status };
        Self { status, ..self }
    }

    /// To be called after each block: reports that `rows` of the rows are done.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled) when the caller asked to stop.
    pub fn tell(&self, rows: u64) -> Result<()> {
        self.run.cancel.check()?;
        self.run.progress.tell(Status { rows, ..self.status });
        Ok(())
    }
}

/// A matrix A of m rows and n columns that is known only through products: resident, or streamed by blocks of rows.
///
/// Each call is one pass over the rows. Every sum over rows is taken over blocks fixed by the shape, and the blocks
/// are added in order in f64, so results do not depend on chunks, threads or memory budgets.
pub trait LinearMap {
    /// [m, n].
    fn shape(&self) -> [u64; 2];

    /// The device whose host threads share the small algebra between passes; without one the calling thread does it
    /// alone. It changes no bit.
    fn device(&self) -> Option<&Device> {
        None
    }

    /// `Aᵀ (A X)` for X (n, l), in one pass.
    ///
    /// # Errors
    /// What reading and computing report; [`Error::Shape`](crate::Error::Shape) when X does not have n rows; [`Error::Cancelled`](crate::Error::Cancelled).
    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix>;

    /// `A X` for X (n, l): calls `sink` with the first row and the rows of each block, in order.
    ///
    /// # Errors
    /// As [`apply_normal`](Self::apply_normal), and what `sink` returns.
    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()>;
}
