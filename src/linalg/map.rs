//! Matrices seen only through their products.

use faer::{MatMut, MatRef};

use crate::{Device, Error, Result, Run, Status, Tensor, dtype::nearest_f32};

/// A small matrix of f64 on the host, row-major.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    rows: usize,
    cols: usize,
    data: Vec<f64>,
}

impl Matrix {
    /// A matrix of zeros.
    pub fn zeros(rows: usize, cols: usize) -> Self {
        Self { rows, cols, data: vec![0.0; rows * cols] }
    }

    /// A matrix with the given elements in C order.
    ///
    /// # Errors
    /// [`Error::Shape`] unless there are `rows * cols` of them.
    pub fn from_vec(data: Vec<f64>, rows: usize, cols: usize) -> Result<Self> {
        if rows.checked_mul(cols) != Some(data.len()) {
            let got = format!("{} values", data.len());
            return Err(Error::shape("Matrix::from_vec", format_args!("({rows}, {cols})"), got));
        }
        Ok(Self { rows, cols, data })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// The elements in C order.
    pub fn data(&self) -> &[f64] {
        &self.data
    }

    /// The elements in C order.
    pub fn data_mut(&mut self) -> &mut [f64] {
        &mut self.data
    }

    /// Row `i`.
    ///
    /// # Panics
    /// When `i` is not below [`rows`](Self::rows).
    pub fn row(&self, i: usize) -> &[f64] {
        &self.data[i * self.cols..][..self.cols]
    }

    /// It as faer sees it.
    pub(crate) fn as_faer(&self) -> MatRef<'_, f64> {
        MatRef::from_row_major_slice(&self.data, self.rows, self.cols)
    }

    /// A copy of faer's.
    pub(crate) fn from_faer(a: MatRef<'_, f64>) -> Self {
        let mut copy = Self::zeros(a.nrows(), a.ncols());
        MatMut::from_row_major_slice_mut(&mut copy.data, a.nrows(), a.ncols()).copy_from(a);
        copy
    }

    /// The transpose.
    pub fn transposed(&self) -> Self {
        Self::from_faer(self.as_faer().transpose())
    }

    /// A copy in f32 on a device.
    ///
    /// # Errors
    /// [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
    pub fn to_tensor(&self, device: &Device) -> Result<Tensor<f32>> {
        let values: Vec<f32> = self.data.iter().copied().map(nearest_f32).collect();
        Tensor::from_slice(device, &values, &[self.rows as u64, self.cols as u64])
    }

    /// Changes the sign of some columns.
    pub(crate) fn negate_columns(&mut self, negative: &[bool]) {
        for row in self.data.chunks_exact_mut(self.cols.max(1)) {
            for (value, _) in row.iter_mut().zip(negative).filter(|(_, negative)| **negative) {
                *value = -*value;
            }
        }
    }

    /// The elements of column `j`, from the top.
    ///
    /// # Panics
    /// When `j` is not below [`cols`](Self::cols).
    pub fn column(&self, j: usize) -> impl Iterator<Item = f64> + Clone {
        assert!(j < self.cols, "column {j} of {}", self.cols);
        self.data.iter().skip(j).step_by(self.cols).copied()
    }
}

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
    /// [`Error::Cancelled`] when the caller asked to stop.
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
    /// What reading and computing report; [`Error::Shape`] when X does not have n rows; [`Error::Cancelled`].
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
