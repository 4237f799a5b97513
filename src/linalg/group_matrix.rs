//! A matrix whose rows are divided among the devices of a group.

use super::{
    map::{LinearMap, Pass},
    map_tensor,
    matrix::Matrix,
};
use crate::{Device, Element, Error, Result, Tensor, extent::to_usize};

const OP: &str = "GroupMatrix";

/// A matrix whose rows are divided among the members of a [group](Device::group), so that it may be larger than the memory of one device. Each
/// member multiplies its rows, all at the same time: [`randomized_svd`](super::randomized_svd) and [`left_vectors`](super::left_vectors) take
/// the matrix as a [`LinearMap`]. [`StoredMatrix::to_group`](crate::stream::StoredMatrix::to_group) reads stored arrays into one.
///
/// # Accuracy
/// That of the products of a [`Tensor`]. The sums of the members are added in f64, in the order of the members, so the last bits depend on how
/// many there are.
///
/// # Cost
/// A pass copies X, (n, l), to each member, and the product, (n, l), from each.
///
/// # Errors
/// Products fail as those of a [`Tensor`].
///
/// ```
/// use teatime::{Device, Run, Tensor, linalg::{GroupMatrix, SvdOptions, randomized_svd}};
/// let group = Device::open("cpu,cpu")?;
/// let parts = group.each_member(&Run::default(), 0, |i, device, _| {
///     Tensor::from_slice(device, &[[3.0f32, 0.0, 0.0, 1.0], [0.0, 0.0, 4.0, 0.0]][i], &[2, 2])
/// })?;
/// let svd = randomized_svd(&GroupMatrix::new(&group, parts)?, 1, &SvdOptions::default(), &Run::default())?;
/// assert!((svd.s[0] - 5.0).abs() < 1e-5);
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct GroupMatrix<T: Element> {
    group: Device,
    parts: Vec<Tensor<T>>,
    shape: [u64; 2],
}

impl<T: Element> GroupMatrix<T> {
    /// Makes a matrix of the rows that each member has, (rows, n), in the order of the members.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is a tensor for each member; [`Error::WrongDevice`] unless it is on that member; [`Error::Shape`] for
    /// a tensor that is not a matrix, and for another number of columns than the first one has.
    pub fn new(group: &Device, parts: Vec<Tensor<T>>) -> Result<Self> {
        let members = group.members();
        if parts.len() != members.len() {
            let why = format_args!("{} tensors for a group of {}", parts.len(), members.len());
            return Err(Error::argument(OP, "parts", why));
        }
        let (mut rows, mut columns) = (0u64, None);
        for (part, member) in parts.iter().zip(&members) {
            member.has(OP, "parts", part.device())?;
            let [m, n] = part.matrix(OP)?;
            if *columns.get_or_insert(n) != n {
                return Err(Error::shape(OP, format_args!("{columns:?} columns"), n));
            }
            rows = rows.saturating_add(m);
        }
        Ok(Self { group: group.clone(), parts, shape: [rows, columns.unwrap_or(0)] })
    }

    /// Returns the rows of each member.
    pub fn parts(&self) -> &[Tensor<T>] {
        &self.parts
    }
}

impl<T: Element> LinearMap for GroupMatrix<T> {
    fn shape(&self) -> [u64; 2] {
        self.shape
    }

    fn device(&self) -> Option<&Device> {
        Some(&self.group)
    }

    fn precision(&self) -> f64 {
        map_tensor::precision::<T::Real>(self.shape[0])
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let products = self.group.each_member(pass.run(), self.shape[0], |i, _, run| {
            self.parts[i].apply_normal(x, &pass.with(run))
        })?;
        let mut sum = Matrix::zeros(to_usize(self.shape[1]), x.cols());
        for product in products {
            sum.data_mut().iter_mut().zip(product.data()).for_each(|(sum, term)| *sum += term);
        }
        Ok(sum)
    }

    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()> {
        let mut first = 0;
        for part in &self.parts {
            part.apply(x, &pass.after(first), &mut |row, y| sink(first + row, y))?;
            first += part.shape()[0];
        }
        Ok(())
    }
}
