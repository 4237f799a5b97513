//! A block Krylov basis of a symmetric matrix and what Rayleigh and Ritz make of it.

use faer::{Mat, MatRef};

use super::{host, threads::Threads};
use crate::Result;

/// Orthonormal columns Q, their images W = A Q, and T = QᵀW.
#[derive(Debug)]
pub(crate) struct Krylov<'a> {
    op: &'static str,
    threads: Threads<'a>,
    n: usize,
    /// Columns of Q and of W, one after the other.
    q: Vec<f64>,
    w: Vec<f64>,
    t: Mat<f64>,
    /// Most columns that memory allows.
    capacity: usize,
    /// The column from which on images reach out of the basis, to where the next block is; those before lie in it.
    open: usize,
    /// Qᵀ times the last image.
    inside: Mat<f64>,
}

/// The Ritz pairs of a basis: eigenvalues of T, falling, and its eigenvectors.
#[derive(Debug)]
pub(crate) struct Ritz {
    pub(crate) theta: Vec<f64>,
    y: Mat<f64>,
}

impl<'a> Krylov<'a> {
    /// An empty basis in n dimensions, of at most `capacity` columns.
    ///
    /// Their memory is reserved at once, so that growing never holds two copies; the system gives it when it is used.
    pub(crate) fn new(op: &'static str, threads: Threads<'a>, n: usize, capacity: usize) -> Self {
        let [q, w] = [(); 2].map(|()| Vec::with_capacity(n * capacity));
        let [t, inside] = [(); 2].map(|()| Mat::zeros(0, 0));
        Self { op, threads, n, q, w, t, capacity, open: 0, inside }
    }

    pub(crate) fn cols(&self) -> usize {
        self.t.ncols()
    }

    fn q(&self) -> MatRef<'_, f64> {
        columns(&self.q, self.n)
    }

    fn w(&self) -> MatRef<'_, f64> {
        columns(&self.w, self.n)
    }

    /// Adds an orthonormal block and its image; where it would not fit, first keeps only `keep` Ritz vectors.
    ///
    /// That is a thick restart (Wu and Simon, "Thick-restart Lanczos method for large symmetric eigenvalue
    /// problems", SIAM J. Matrix Anal. Appl. 22, 2000): the block itself continues the old basis.
    pub(crate) fn push(&mut self, block: MatRef<'_, f64>, image: MatRef<'_, f64>, keep: usize) -> Result<()> {
        if self.cols() + block.ncols() > self.capacity {
            self.restart(keep)?;
        }
        let (old, new) = (self.cols(), block.ncols());
        for (all, part) in [(&mut self.q, block), (&mut self.w, image)] {
            part.col_iter().for_each(|column| all.extend(column.iter()));
        }
        let inside = self.threads.inner(self.q(), self.w().subcols(old, new));
        // A second estimate of the same, because products in f32 leave the matrix a little unsymmetric: nothing where
        // images lie in the old basis.
        let again =
            self.threads.inner(self.w().subcols(self.open, old - self.open), self.q().subcols(old, new));
        let mean = |i: usize, j: usize| {
            let again = i.checked_sub(self.open).map_or(0.0, |i| again[(i, j)]);
            (inside[(i, j)] + again) / 2.0
        };
        self.t.resize_with(old + new, old + new, |i, j| match (i.checked_sub(old), j.checked_sub(old)) {
            (None, None) => unreachable!("what is there stays"),
            (None, Some(j)) => mean(i, j),
            (Some(i), None) => mean(j, i),
            (Some(i), Some(j)) => (inside[(old + i, j)] + inside[(old + j, i)]) / 2.0,
        });
        (self.open, self.inside) = (old, inside);
        Ok(())
    }

    fn restart(&mut self, keep: usize) -> Result<()> {
        let ritz = self.ritz(keep)?;
        for values in [&mut self.q, &mut self.w] {
            let rotated = self.threads.product(columns(values, self.n), ritz.y.as_ref());
            values.clear();
            rotated.col_iter().for_each(|column| values.extend(column.iter()));
        }
        let kept = ritz.theta.len();
        self.t = Mat::from_fn(kept, kept, |i, j| if i == j { ritz.theta[i] } else { 0.0 });
        self.open = 0;
        Ok(())
    }

    /// The `count` largest Ritz pairs, or as many as there are.
    pub(crate) fn ritz(&self, count: usize) -> Result<Ritz> {
        let (theta, y) =
            host::eigen(self.op, self.t.as_ref(), count.min(self.cols()), self.threads.cancel())?;
        Ok(Ritz { theta, y })
    }

    /// ‖A v - θ v‖ of each pair, from the images that are there.
    pub(crate) fn residuals(&self, ritz: &Ritz) -> Vec<f64> {
        let mut difference = self.vectors(ritz);
        for (column, theta) in difference.as_mut().col_iter_mut().zip(&ritz.theta) {
            column.iter_mut().for_each(|x| *x *= -theta);
        }
        self.threads.add_product(difference.as_mut(), 1.0, self.w(), ritz.y.as_ref());
        difference.col_iter().map(|column| column.norm_l2()).collect()
    }

    /// The Ritz vectors.
    pub(crate) fn vectors(&self, ritz: &Ritz) -> Mat<f64> {
        self.threads.product(self.q(), ritz.y.as_ref())
    }

    /// The first block of a basis: orthonormal columns that span those of `start`.
    pub(crate) fn first(&self, start: MatRef<'_, f64>) -> Result<Mat<f64>> {
        self.orthonormal(start, 0.0)
    }

    /// The next block: what is new in the last image, orthonormal; directions no longer than `noise` are left out.
    pub(crate) fn next(&self, noise: f64) -> Result<Mat<f64>> {
        let mut rest = self.w().subcols(self.open, self.cols() - self.open).to_owned();
        self.threads.add_product(rest.as_mut(), -1.0, self.q(), self.inside.as_ref());
        self.orthonormal(rest.as_ref(), noise)
    }

    /// A block that was made orthogonal to the basis, once more and to itself.
    fn orthonormal(&self, block: MatRef<'_, f64>, noise: f64) -> Result<Mat<f64>> {
        let mut block = self.orthonormalize(block, noise)?;
        let inside = self.threads.inner(self.q(), block.as_ref());
        self.threads.add_product(block.as_mut(), -1.0, self.q(), inside.as_ref());
        // Twice is enough (Giraud, Langou and Rozložník 2005); a direction that then loses half was in the basis.
        self.orthonormalize(block.as_ref(), 0.5)
    }

    /// Orthonormal columns that span those directions of b's range along which b is longer than `noise`.
    ///
    /// One round of SVQB (Stathopoulos and Wu, "A block orthogonalization procedure with constant synchronization
    /// requirements", SIAM J. Sci. Comput. 23, 2002): orthonormal to eps times the squared condition number of b.
    fn orthonormalize(&self, b: MatRef<'_, f64>, noise: f64) -> Result<Mat<f64>> {
        let gram = self.threads.inner(b, b);
        let (values, mut vectors) = host::eigen(self.op, gram.as_ref(), b.ncols(), None)?;
        // Below eps of the largest the eigenvalues of the rounded Gram matrix say nothing.
        let least = (noise * noise).max(values.first().map_or(0.0, |largest| 1e-14 * largest));
        let count = values.iter().take_while(|&&value| value > least).count();
        for (value, column) in values.iter().zip(vectors.as_mut().subcols_mut(0, count).col_iter_mut()) {
            column.iter_mut().for_each(|x| *x /= value.sqrt());
        }
        Ok(self.threads.product(b, vectors.as_ref().subcols(0, count)))
    }
}

/// Columns that stand one after the other.
fn columns(values: &[f64], n: usize) -> MatRef<'_, f64> {
    MatRef::from_column_major_slice(values, n, values.len() / n.max(1))
}
