//! A resident matrix as a map.

use super::{
    gram::{BlockSum, blocks, to_usize},
    map::{LinearMap, Matrix, Pass},
    matmul::{Op, multiply},
    rows::Rows,
};
use crate::{Device, Element, Error, Result, Tensor};

/// Rows of one canonical block.
pub(crate) const BLOCK: u64 = 1024;
/// Terms of one sum in f32: singular values of constant columns are then right to 5e-6.
pub(crate) const DEPTH: u64 = 256;

/// Products in f32 over blocks of 1,024 rows, added in f64.
///
/// # Accuracy
/// |error| of `apply_normal` is about 1e-7 |A|² |X|, so singular values below 1e-3 of the largest need
/// [`truncated_svd`](super::truncated_svd). Elements should lie between 1e-15 and 1e15: products of four of them are
/// formed in f32.
///
/// # Cost
/// Two launches and one download of (n, l) per block and pass; waits.
impl<T: Element> LinearMap for Tensor<T> {
    fn shape(&self) -> [u64; 2] {
        match *Self::shape(self) {
            [m, n] => [m, n],
            // Not a matrix: every product says so.
            _ => [self.len(), 1],
        }
    }

    fn device(&self) -> Option<&Device> {
        Some(Self::device(self))
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let op = "Tensor::apply_normal";
        let [m, n] = self.matrix(op)?;
        let x = upload(op, self, x, n)?;
        let l = x.shape()[1];
        let mut sum = BlockSum::new(n, l);
        let mut image = Tensor::empty(self.device(), &[n, l])?;
        for rows in blocks(m, BLOCK) {
            let (end, count) = (rows.end, rows.end - rows.start);
            let block = Rows::new(self, rows);
            let mut y = Tensor::empty(self.device(), &[count, l])?;
            multiply(op, Op::Nn, block, Rows::new(&x, 0..n), DEPTH, &mut y)?;
            multiply(op, Op::Tn, block, Rows::new(&y, 0..count), DEPTH, &mut image)?;
            sum.add(&image)?;
            pass.tell(end)?;
        }
        sum.finish(self.device())
    }

    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()> {
        let op = "Tensor::apply";
        let [m, n] = self.matrix(op)?;
        let x = upload(op, self, x, n)?;
        let l = x.shape()[1];
        for rows in blocks(m, 4096) {
            let count = rows.end - rows.start;
            let mut y = Tensor::empty(self.device(), &[count, l])?;
            multiply(op, Op::Nn, Rows::new(self, rows.clone()), Rows::new(&x, 0..n), DEPTH, &mut y)?;
            let values = y.read()?.into_iter().map(f64::from).collect();
            sink(rows.start, &Matrix::from_vec(values, to_usize(count), to_usize(l))?)?;
            pass.tell(rows.end)?;
        }
        Ok(())
    }
}

/// X in f32 on the device of `a`.
fn upload<T: Element>(op: &'static str, a: &Tensor<T>, x: &Matrix, n: u64) -> Result<Tensor<f32>> {
    if x.rows() as u64 != n {
        return Err(Error::shape(op, format_args!("{n} rows"), format_args!("({}, {})", x.rows(), x.cols())));
    }
    x.to_tensor(a.device())
}
