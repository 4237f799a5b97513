//! A block Krylov basis of a symmetric matrix, and its Rayleigh-Ritz approximations.

use faer::{Mat, MatRef};

use super::{
    host,
    matmul::{Op, Product, matmul, matmul_nt},
    matrix::Matrix,
    transpose::transpose,
};
use crate::{
    Device, Result, Tensor, TensorView,
    array::{cast, concat},
    extent::to_usize,
    random::normal,
    timeline::Stage,
};

/// Orthonormal vectors Q, their images W = A Q, and T = QᵀW. Vectors are rows of f64 tensors; the small matrices are on the host.
#[derive(Debug)]
pub(crate) struct Krylov {
    op: &'static str,
    device: Device,
    n: u64,
    q: Vectors,
    w: Vectors,
    t: Mat<f64>,
    /// The maximum number of vectors that memory allows.
    capacity: usize,
    /// The index of the first vector whose image reaches out of the basis, into the next block. Images of earlier vectors lie in the basis.
    open: usize,
    /// The products of Q with the images from index `open` on.
    inside: Mat<f64>,
}

/// The Ritz pairs of a basis: the eigenvalues of T in descending order, and its eigenvectors.
#[derive(Clone, Debug)]
pub(crate) struct Ritz {
    pub(crate) theta: Vec<f64>,
    pub(crate) y: Mat<f64>,
}

impl Default for Ritz {
    fn default() -> Self {
        Self { theta: Vec::new(), y: Mat::new() }
    }
}

/// Vectors as the rows of tensors. Small tensors are joined.
#[derive(Debug, Default)]
struct Vectors(Vec<Tensor<f64>>);

/// The maximum number of vectors of a tensor that was joined from others.
const JOINED: u64 = 64;

impl Vectors {
    fn push(&mut self, mut block: Tensor<f64>) -> Result<()> {
        while let Some(last) = self.0.pop_if(|last| last.shape()[0] + block.shape()[0] <= JOINED) {
            block = concat(&[&last, &block], 0)?;
        }
        self.0.push(block);
        Ok(())
    }

    /// Returns the last `count` vectors, which were added in one block.
    fn last(&self, count: usize) -> Result<TensorView<'_, f64>> {
        let part = self.0.last().expect("a block should have been added");
        let end = part.shape()[0];
        part.rows(end - count as u64..end)
    }

    /// Returns the products of all vectors with the vectors of `block`: (all, block). Waits.
    fn inner(&self, block: &Tensor<f64>) -> Result<Mat<f64>> {
        let products = self.0.iter().map(|part| matmul_nt(part, block)?.download());
        let products: Vec<_> = products.collect::<Result<_>>()?;
        let values: Vec<f64> =
            products.into_iter().map(|part| part.wait()).collect::<Result<Vec<_>>>()?.concat();
        let cols = to_usize(block.shape()[0]);
        Ok(MatRef::from_row_major_slice(&values, values.len() / cols.max(1), cols).to_owned())
    }

    /// Adds to `out` the sums of the vectors weighted by the columns of `y`, times `factor`.
    fn add_to(&self, out: &mut Tensor<f64>, factor: f64, y: MatRef<'_, f64>) -> Result<()> {
        let mut first = 0;
        for part in &self.0 {
            let count = to_usize(part.shape()[0]);
            let weights = Mat::from_fn(y.ncols(), count, |i, j| factor * y[(first + j, i)]);
            let weights = Matrix::from_faer(weights.as_ref()).to_real::<f64>(part.device())?;
            Product { accumulate: true, ..Product::of_tensors("basis", Op::Nn, &weights, part)? }.run(out)?;
            first += count;
        }
        Ok(())
    }
}

/// Returns the lengths of vectors. Waits.
pub(crate) fn lengths(vectors: &Tensor<f64>) -> Result<Vec<f64>> {
    let products = matmul_nt(vectors, vectors)?.read()?;
    let step = to_usize(vectors.shape()[0]).saturating_add(1);
    Ok(products.into_iter().step_by(step).map(f64::sqrt).collect())
}

/// Returns `l` vectors of n random numbers: element i of vector j is number `i l + j` of [`normal`].
pub(crate) fn random(device: &Device, [l, n]: [usize; 2], seed: u64) -> Result<Tensor<f64>> {
    let [l, n] = [l as u64, n as u64];
    cast(&transpose(&normal(device, seed, 0, l * n)?.reshape(&[n, l])?)?)
}

impl Krylov {
    /// Creates an empty basis in n dimensions, of at most `capacity` vectors, on a device that computes in f64.
    pub(crate) fn new(op: &'static str, device: &Device, n: usize, capacity: usize) -> Self {
        let [q, w] = [(); 2].map(|()| Vectors::default());
        let [t, inside] = [(); 2].map(|()| Mat::zeros(0, 0));
        Self { op, device: device.clone(), n: n as u64, q, w, t, capacity, open: 0, inside }
    }

    pub(crate) fn cols(&self) -> usize {
        self.t.ncols()
    }

    /// Adds an orthonormal block and its image. If the block would not fit, first reduces the basis to `keep` Ritz vectors.
    /// This is a thick restart (Wu and Simon, "Thick-restart Lanczos method for large symmetric eigenvalue problems", SIAM J. Matrix Anal.
    /// Appl. 22, 2000): the block itself continues the old basis.
    pub(crate) fn push(&mut self, block: Tensor<f64>, image: Tensor<f64>, keep: usize) -> Result<()> {
        let new = to_usize(block.shape()[0]);
        if self.cols().saturating_add(new) > self.capacity {
            self.restart(keep)?;
        }
        let old = self.cols();
        // A second estimate of the products, as those in f32 are slightly unsymmetric. It is empty if all images lie in the old basis.
        let again = match old - self.open {
            0 => Mat::zeros(0, new),
            count => Matrix::from_tensor(&matmul_nt(&*self.w.last(count)?, &block)?)?.as_faer().to_owned(),
        };
        self.q.push(block)?;
        let inside = self.q.inner(&image)?;
        self.w.push(image)?;
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

    /// Returns the number of elements of the last image that are NaN or infinite, and the number of all its elements.
    pub(crate) fn not_finite(&self) -> Result<[usize; 2]> {
        // A product with a value that is not finite is not finite.
        if self.inside.col_iter().all(|column| column.iter().all(|x| x.is_finite())) {
            return Ok([0, 0]);
        }
        let values = self.w.last(self.cols() - self.open)?.read()?;
        Ok([values.iter().filter(|value| !value.is_finite()).count(), values.len()])
    }

    fn restart(&mut self, keep: usize) -> Result<()> {
        let ritz = self.ritz(keep)?;
        for vectors in [&mut self.q, &mut self.w] {
            let mut rotated = Tensor::zeros(&self.device, &[ritz.theta.len() as u64, self.n])?;
            vectors.add_to(&mut rotated, 1.0, ritz.y.as_ref())?;
            vectors.0 = vec![rotated];
        }
        let kept = ritz.theta.len();
        self.t = Mat::from_fn(kept, kept, |i, j| if i == j { ritz.theta[i] } else { 0.0 });
        self.open = 0;
        Ok(())
    }

    /// Returns the `count` largest Ritz pairs, or all pairs if there are fewer.
    pub(crate) fn ritz(&self, count: usize) -> Result<Ritz> {
        let _span = self.device.span(Stage::Host, self.op);
        let (theta, y) = host::eigen(self.op, self.t.as_ref(), count.min(self.cols()), self.device.cancel())?;
        Ok(Ritz { theta, y })
    }

    /// Returns ‖A v - θ v‖ of each pair, computed from the stored images. Waits.
    pub(crate) fn residuals(&self, ritz: &Ritz) -> Result<Vec<f64>> {
        let mut difference = Tensor::zeros(&self.device, &[ritz.theta.len() as u64, self.n])?;
        let scaled = Mat::from_fn(ritz.y.nrows(), ritz.y.ncols(), |i, j| ritz.theta[j] * ritz.y[(i, j)]);
        self.q.add_to(&mut difference, -1.0, scaled.as_ref())?;
        self.w.add_to(&mut difference, 1.0, ritz.y.as_ref())?;
        lengths(&difference)
    }

    /// Returns the Ritz vectors: (pairs, n).
    pub(crate) fn vectors(&self, ritz: &Ritz) -> Result<Tensor<f64>> {
        let mut vectors = Tensor::zeros(&self.device, &[ritz.theta.len() as u64, self.n])?;
        self.q.add_to(&mut vectors, 1.0, ritz.y.as_ref())?;
        Ok(vectors)
    }

    /// Returns the first block of a basis: orthonormal vectors that span the vectors of `start`.
    pub(crate) fn first(&self, start: &Tensor<f64>) -> Result<Tensor<f64>> {
        self.orthonormal(start, 0.0)
    }

    /// Returns the next block: the part of the last image outside the basis, orthonormal, without directions no longer than `noise`.
    pub(crate) fn next(&self, noise: f64) -> Result<Tensor<f64>> {
        let mut rest = self.w.last(self.cols() - self.open)?.try_clone()?;
        self.q.add_to(&mut rest, -1.0, self.inside.as_ref())?;
        self.orthonormal(&rest, noise)
    }

    /// Makes a block orthonormal that is orthogonal to the basis, and orthogonalizes it against the basis once more.
    fn orthonormal(&self, block: &Tensor<f64>, noise: f64) -> Result<Tensor<f64>> {
        let mut block = self.orthonormalize(block, noise)?;
        let inside = self.q.inner(&block)?;
        self.q.add_to(&mut block, -1.0, inside.as_ref())?;
        // Two rounds are enough (Giraud, Langou and Rozložník 2005): a direction that loses half its length in the second was in the basis.
        self.orthonormalize(&block, 0.5)
    }

    /// Returns orthonormal vectors that span the directions of b's range along which b is longer than `noise`.
    /// This is one round of SVQB (Stathopoulos and Wu, "A block orthogonalization procedure with constant synchronization requirements", SIAM
    /// J. Sci. Comput. 23, 2002). Its result is orthonormal to eps times the squared condition number of b.
    fn orthonormalize(&self, b: &Tensor<f64>, noise: f64) -> Result<Tensor<f64>> {
        let gram = Matrix::from_tensor(&matmul_nt(b, b)?)?;
        let span = self.device.span(Stage::Host, self.op);
        let (values, mut vectors) = host::eigen(self.op, gram.as_faer(), gram.cols(), None)?;
        drop(span);
        // Eigenvalues of the rounded Gram matrix below about eps times the largest are meaningless.
        let least = (noise * noise).max(values.first().map_or(0.0, |largest| 1e-14 * largest));
        let count = values.iter().take_while(|&&value| value > least).count();
        for (value, column) in values.iter().zip(vectors.as_mut().subcols_mut(0, count).col_iter_mut()) {
            column.iter_mut().for_each(|x| *x /= value.sqrt());
        }
        let weights = Matrix::from_faer(vectors.subcols(0, count).transpose());
        matmul(&weights.to_real::<f64>(&self.device)?, b)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_vectors_are_those_of_the_stream() {
        let device = Device::cpu();
        let (vectors, numbers) = (random(&device, [3, 7], 5).unwrap(), normal(&device, 5, 0, 21).unwrap());
        let (vectors, numbers) = (vectors.read().unwrap(), numbers.read().unwrap());
        for (j, vector) in vectors.chunks(7).enumerate() {
            vector.iter().enumerate().for_each(|(i, &x)| assert_eq!(x, f64::from(numbers[3 * i + j])));
        }
    }
}
