//! A block Krylov basis of AᵀA and what Rayleigh and Ritz make of it.

use faer::{Mat, MatRef};

use super::host;
use crate::Result;

const OP: &str = "randomized_svd";

/// Orthonormal columns Q, their images W = AᵀA Q, and T = QᵀW.
#[derive(Debug)]
pub(crate) struct Krylov {
    n: usize,
    /// Columns of Q and of W, one after the other.
    q: Vec<f64>,
    w: Vec<f64>,
    t: Mat<f64>,
    /// Most columns that memory allows.
    capacity: usize,
}

/// The Ritz pairs of a basis: eigenvalues of T, falling, and its eigenvectors.
#[derive(Debug)]
pub(crate) struct Ritz {
    pub(crate) theta: Vec<f64>,
    y: Mat<f64>,
}

impl Krylov {
    /// An empty basis in n dimensions, of at most `capacity` columns.
    ///
    /// Their memory is reserved at once, so that growing never holds two copies; the system gives it when it is used.
    pub(crate) fn new(n: usize, capacity: usize) -> Self {
        let [q, w] = [(); 2].map(|()| Vec::with_capacity(n * capacity));
        Self { n, q, w, t: Mat::zeros(0, 0), capacity }
    }

    fn cols(&self) -> usize {
        self.t.ncols()
    }

    fn q(&self) -> MatRef<'_, f64> {
        MatRef::from_column_major_slice(&self.q, self.n, self.cols())
    }

    fn w(&self) -> MatRef<'_, f64> {
        MatRef::from_column_major_slice(&self.w, self.n, self.cols())
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
        // Two estimates of the same block, because products in f32 leave AᵀA a little unsymmetric.
        let from_old = host::product(self.q().transpose(), image);
        let from_new = host::product(self.w().transpose(), block);
        let corner = host::product(block.transpose(), image);
        self.t = Mat::from_fn(old + new, old + new, |i, j| match (i.checked_sub(old), j.checked_sub(old)) {
            (None, None) => self.t[(i, j)],
            (None, Some(j)) => (from_old[(i, j)] + from_new[(i, j)]) / 2.0,
            (Some(i), None) => (from_old[(j, i)] + from_new[(j, i)]) / 2.0,
            (Some(i), Some(j)) => (corner[(i, j)] + corner[(j, i)]) / 2.0,
        });
        for (all, part) in [(&mut self.q, block), (&mut self.w, image)] {
            part.col_iter().for_each(|column| all.extend(column.iter()));
        }
        Ok(())
    }

    fn restart(&mut self, keep: usize) -> Result<()> {
        let ritz = self.ritz(keep)?;
        let kept = ritz.theta.len();
        for values in [&mut self.q, &mut self.w] {
            let all = MatRef::from_column_major_slice(values, self.n, self.t.ncols());
            let rotated = host::product(all, ritz.y.as_ref());
            values.clear();
            rotated.col_iter().for_each(|column| values.extend(column.iter()));
        }
        self.t = Mat::from_fn(kept, kept, |i, j| if i == j { ritz.theta[i] } else { 0.0 });
        Ok(())
    }

    /// The `count` largest Ritz pairs, or as many as there are.
    pub(crate) fn ritz(&self, count: usize) -> Result<Ritz> {
        let (theta, y) = host::eigen(OP, self.t.as_ref(), count.min(self.cols()))?;
        Ok(Ritz { theta, y })
    }

    /// ‖AᵀA v - θ v‖ of each pair, from the images that are there.
    pub(crate) fn residuals(&self, ritz: &Ritz) -> Vec<f64> {
        let mut difference = self.vectors(ritz);
        for (column, theta) in difference.as_mut().col_iter_mut().zip(&ritz.theta) {
            column.iter_mut().for_each(|x| *x *= -theta);
        }
        host::add_product(difference.as_mut(), 1.0, self.w(), ritz.y.as_ref());
        difference.col_iter().map(|column| column.norm_l2()).collect()
    }

    /// The Ritz vectors.
    pub(crate) fn vectors(&self, ritz: &Ritz) -> Mat<f64> {
        host::product(self.q(), ritz.y.as_ref())
    }

    /// The next block: what is new in the last image, orthonormal; directions no longer than `noise` are left out.
    pub(crate) fn next(&self, image: MatRef<'_, f64>, noise: f64) -> Result<Mat<f64>> {
        let mut block = host::orthonormalize(OP, self.without_basis(image).as_ref(), noise)?;
        // Twice is enough (Giraud, Langou and Rozložník 2005); a direction that then loses half was in the basis.
        block = host::orthonormalize(OP, self.without_basis(block.as_ref()).as_ref(), 0.5)?;
        Ok(block)
    }

    fn without_basis(&self, block: MatRef<'_, f64>) -> Mat<f64> {
        let inside = host::product(self.q().transpose(), block);
        let mut rest = block.to_owned();
        host::add_product(rest.as_mut(), -1.0, self.q(), inside.as_ref());
        rest
    }
}
