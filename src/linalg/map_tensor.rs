//! A resident matrix as a map.

use std::collections::VecDeque;

use super::{
    map::{LinearMap, Matrix, Pass},
    matmul::{Op, Rows, multiply},
};
use crate::{Element, Error, Result, Tensor, tensor::Pending};

/// Rows of one canonical block of a matrix with n columns; a function of the shape alone.
///
/// At least as many as columns, so that a block's product is no larger than the block, and at most 1,024 so that sums
/// in f32 stay short.
pub(crate) fn block_rows(n: u64, least: u64) -> u64 {
    n.min(1024).next_power_of_two().clamp(least, 1024)
}

/// Downloads that are under way while the next blocks compute.
const IN_FLIGHT: usize = 2;

/// Products in f32 over blocks of 1,024 rows, added in f64.
///
/// # Accuracy
/// |error| of `gram` is about 1e-7 |A|² |X|, so singular values below 1e-3 of the largest need
/// [`truncated_svd`](super::truncated_svd). Elements should lie between 1e-15 and 1e15: products of four of them are
/// formed in f32.
///
/// # Cost
/// Two launches and one download of (n, l) per block and pass; waits.
impl<T: Element> LinearMap for Tensor<T> {
    fn shape(&self) -> [u64; 2] {
        match *Tensor::shape(self) {
            [m, n] => [m, n],
            // Not a matrix: every product says so.
            _ => [self.len(), 1],
        }
    }

    fn gram(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let op = "Tensor::gram";
        let [m, n] = self.matrix(op)?;
        let x = upload(op, self, x, n)?;
        let l = x.shape()[1];
        let mut sum = Matrix::zeros(to_usize(n), to_usize(l));
        let mut image = Tensor::empty(self.device(), &[n, l])?;
        let mut pending = VecDeque::new();
        for rows in blocks(m, block_rows(n, 1024)) {
            let block = Rows::new(self, rows.clone());
            let mut y = Tensor::empty(self.device(), &[rows.end - rows.start, l])?;
            multiply(op, Op::Nn, block, Rows::new(&x, 0..n), &mut y)?;
            multiply(op, Op::Tn, block, Rows::new(&y, 0..rows.end - rows.start), &mut image)?;
            pending.push_back((rows.end, image.download()?));
            if pending.len() > IN_FLIGHT {
                add_oldest(&mut pending, sum.data_mut(), pass)?;
            }
        }
        while !pending.is_empty() {
            add_oldest(&mut pending, sum.data_mut(), pass)?;
        }
        Ok(sum)
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
            multiply(op, Op::Nn, Rows::new(self, rows.clone()), Rows::new(&x, 0..n), &mut y)?;
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

fn add_oldest(pending: &mut VecDeque<(u64, Pending<f32>)>, sum: &mut [f64], pass: &Pass<'_>) -> Result<()> {
    let Some((rows, block)) = pending.pop_front() else { return Ok(()) };
    for (sum, value) in sum.iter_mut().zip(block.wait()?) {
        *sum += f64::from(value);
    }
    pass.tell(rows)
}

/// `0..m` in pieces of `step`.
pub(crate) fn blocks(m: u64, step: u64) -> impl Iterator<Item = std::ops::Range<u64>> {
    (0..m.div_ceil(step)).map(move |i| i * step..m.min((i + 1) * step))
}

pub(crate) fn to_usize(extent: u64) -> usize {
    usize::try_from(extent).expect("the extent of a matrix on the host should fit the address space")
}
