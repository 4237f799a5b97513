//! Matrices seen only through their products.

use super::{matrix::Matrix, transpose::transpose};
use crate::{Device, Needs, Result, Run, Status, Tensor, TensorView};

/// One pass over the rows of a [`LinearMap`], through which the implementation reports progress and asks whether to stop.
#[derive(Clone, Copy, Debug)]
pub struct Pass<'a> {
    run: &'a Run,
    status: Status,
    /// The number of rows before those that the implementation counts.
    before: u64,
}

impl<'a> Pass<'a> {
    /// Creates the pass that begins at `status`, in a call that was given `run`.
    pub const fn new(run: &'a Run, status: Status) -> Self {
        Self { run, status, before: 0 }
    }

    /// Returns the run that the caller gave.
    pub const fn run(&self) -> &'a Run {
        self.run
    }

    /// Returns this pass for another run, such as that of a member of a group.
    pub(crate) const fn with<'b>(&self, run: &'b Run) -> Pass<'b> {
        Pass { run, ..*self }
    }

    /// Returns this pass after `rows` rows, from which the implementation counts.
    pub(crate) const fn after(self, rows: u64) -> Self {
        Self { before: rows, ..self }
    }

    /// True if no pass comes after this one, as far as the caller knows.
    pub(crate) const fn is_last(&self) -> bool {
        self.status.pass.saturating_add(1) >= self.status.passes
    }

    /// Returns this pass as a part of a longer call, with `before` more passes before it, and `more` more passes in all.
    pub const fn among(self, before: u32, more: u32) -> Self {
        let Status { pass, passes, .. } = self.status;
        let status =
            Status { pass: pass.saturating_add(before), passes: passes.saturating_add(more), ..self.status };
        Self { status, ..self }
    }

    /// Reports that `rows` of the rows are done. Must be called after each block.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled) when the caller asked to stop.
    pub fn tell(&self, rows: u64) -> Result<()> {
        self.run.cancel.check()?;
        self.run.progress.tell(Status { rows: self.before + rows, ..self.status });
        Ok(())
    }
}

/// A function that takes rows of a product: the index of the first row, and the rows.
pub type RowSink<'a> = dyn FnMut(u64, &Matrix) -> Result<()> + 'a;

/// A matrix A of m rows and n columns that is known only through products: resident, or streamed by blocks of rows.
///
/// Each call is one pass over the rows. Every sum over rows is taken over blocks fixed by the shape, and the blocks
/// are added in order with more digits than f32 has, so results do not depend on chunks, threads or memory budgets.
///
/// ```
/// use teatime::{Result, Run, linalg::{LinearMap, Matrix, Pass, RowSink, SvdOptions, randomized_svd}};
///
/// /// A diagonal matrix.
/// struct Diagonal(Vec<f64>);
///
/// impl LinearMap for Diagonal {
///     fn shape(&self) -> [u64; 2] {
///         [self.0.len() as u64; 2]
///     }
///
///     fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
///         let squares = self.0.iter().map(|d| d * d).collect();
///         let mut product = Matrix::zeros(0, 0);
///         Self(squares).apply(x, pass, &mut |_, rows| Ok(product = rows.clone()))?;
///         Ok(product)
///     }
///
///     fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
///         let mut product = x.clone();
///         for (i, d) in self.0.iter().enumerate() {
///             (0..x.cols()).for_each(|j| product[(i, j)] *= d);
///         }
///         // All rows are one block here.
///         sink(0, &product)?;
///         pass.tell(self.0.len() as u64)
///     }
/// }
///
/// let svd = randomized_svd(&Diagonal(vec![3.0, 5.0, 1.0]), 2, &SvdOptions::default(), &Run::default())?;
/// assert!((svd.s[0] - 5.0).abs() < 1e-6 && (svd.s[1] - 3.0).abs() < 1e-6);
/// # Ok::<(), teatime::Error>(())
/// ```
pub trait LinearMap {
    /// Returns [m, n].
    fn shape(&self) -> [u64; 2];

    /// Returns the device whose host threads share the small algebra between passes. Without a device, one thread does the algebra. Results
    /// are the same to the bit.
    fn device(&self) -> Option<&Device> {
        None
    }

    /// Returns the device on which [`apply_normal_rows`](Self::apply_normal_rows) takes vectors, if it [computes in f64](crate::Limits::f64).
    /// A decomposition then keeps its basis in the memory of that device, and otherwise in the host's memory.
    fn keeps_vectors_on(&self) -> Option<&Device> {
        None
    }

    /// Returns the rounding error of products, relative to |A|² |X|. The default is the error of sums in f32. Singular values below four
    /// times the square root of this error, relative to the largest, count as 0.
    fn precision(&self) -> f64 {
        f32::EPSILON.into()
    }

    /// Returns the least memory that a pass with `columns` columns of X takes besides X and the result. A decomposition leaves these bytes of
    /// its budget to the passes, and half of those that it does not need. None by default; a map that wraps another returns the other's.
    fn needs(&self, _columns: u64) -> Needs {
        Needs::default()
    }

    /// Returns `Aᵀ (A X)` for X (n, l), in one pass.
    ///
    /// # Errors
    /// Any error of the pass; [`Error::Shape`](crate::Error::Shape) unless X has n rows; [`Error::Cancelled`](crate::Error::Cancelled).
    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix>;

    /// [`apply_normal`](Self::apply_normal) for transposes: takes Xᵀ (l, n), and returns the transpose of the product on the device of `x`.
    /// That device is the one that [`keeps_vectors_on`](Self::keeps_vectors_on) names, or a cpu device. The provided method calls
    /// `apply_normal`.
    ///
    /// # Errors
    /// As `apply_normal`.
    fn apply_normal_rows(&self, x: &Tensor<f64>, pass: &Pass<'_>) -> Result<Tensor<f64>> {
        rows_of_product(self, x, pass)
    }

    /// [`apply_normal_rows`](Self::apply_normal_rows), which also calls `sink` with the index of the first row and the rows of each block of
    /// `A X`, each row once. [`SvdOptions::left`](super::SvdOptions::left) keeps these rows in f32.
    ///
    /// The product is that of `apply_normal_rows` to the bit. The provided method returns `None` at once and makes no pass, as a map does that
    /// does not form `A X` on the way to `Aᵀ (A X)`, or not as precisely as [`apply`](Self::apply) does.
    ///
    /// # Errors
    /// As `apply_normal_rows`, and any error that `sink` returns.
    fn apply_both(
        &self,
        _x: &Tensor<f64>,
        _pass: &Pass<'_>,
        _sink: &mut RowSink<'_>,
    ) -> Result<Option<Tensor<f64>>> {
        Ok(None)
    }

    /// Computes `A X` for X (n, l), and calls `sink` with the index of the first row and the rows of each block, in order.
    ///
    /// # Errors
    /// The errors of [`apply_normal`](Self::apply_normal), and any error that `sink` returns.
    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()>;
}

/// Returns [`apply_normal_rows`](LinearMap::apply_normal_rows) by means of [`apply_normal`](LinearMap::apply_normal).
pub(crate) fn rows_of_product<M: LinearMap + ?Sized>(
    map: &M,
    x: &Tensor<f64>,
    pass: &Pass<'_>,
) -> Result<Tensor<f64>> {
    let product = map.apply_normal(&Matrix::from_tensor(&transpose(x)?)?, pass)?;
    let shape = [product.rows() as u64, product.cols() as u64];
    transpose(&*TensorView::from_slice(x.device(), product.data(), &shape)?)
}
