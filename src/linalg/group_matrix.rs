//! A matrix whose rows are divided among the devices of a group.

use super::{
    map::{LinearMap, Pass, RowSink, rows_of_product},
    matrix::Matrix,
};
use crate::{Device, Error, Needs, Result, Tensor, extent::to_usize};

const OP: &str = "GroupMatrix";

/// A matrix whose rows are divided among the members of a [group](Device::group), so that it may be larger than the memory of one device. Each
/// member multiplies its rows, all at the same time: [`randomized_svd`](super::randomized_svd) and [`left_vectors`](super::left_vectors) take
/// the matrix as a [`LinearMap`]. The rows of a member are a map of any kind: a [`Tensor`], or rows that each pass reads again, which
/// [`StoredMatrix::by_member`](crate::stream::StoredMatrix::by_member) makes of stored arrays.
///
/// # Accuracy
/// That of the products of the members' rows. The sums of the members are added in f64, in the order of the members, so the last bits depend on
/// how many there are. With one member, all results are those of its map to the bit.
///
/// # Cost
/// A pass copies X, (n, l), to each member, and the product, (n, l), from each. Members compute `A X` one after the other, since its rows are
/// wanted in order; and only a group of one keeps the products of its passes for [left vectors](super::SvdOptions::left).
///
/// # Errors
/// Products fail as those of the members' maps.
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
pub struct GroupMatrix<M> {
    group: Device,
    parts: Vec<M>,
    shape: [u64; 2],
}

impl<M: LinearMap> GroupMatrix<M> {
    /// Makes a matrix of the rows that each member has, (rows, n), in the order of the members.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is a map for each member; [`Error::WrongDevice`] for a map that computes on another device than its
    /// member; [`Error::Shape`] for another number of columns than the first one has.
    pub fn new(group: &Device, parts: Vec<M>) -> Result<Self> {
        let members = group.members();
        if parts.len() != members.len() {
            let why = format_args!("{} maps for a group of {}", parts.len(), members.len());
            return Err(Error::argument(OP, "parts", why));
        }
        let (mut rows, columns) = (0u64, parts.first().map_or(0, |part| part.shape()[1]));
        for (part, member) in parts.iter().zip(&members) {
            part.device().map_or(Ok(()), |device| member.has(OP, "parts", device))?;
            let [m, n] = part.shape();
            if n != columns {
                return Err(Error::shape(OP, format_args!("{columns} columns"), n));
            }
            rows = rows.saturating_add(m);
        }
        Ok(Self { group: group.clone(), parts, shape: [rows, columns] })
    }

    /// Returns the rows of each member.
    pub fn parts(&self) -> &[M] {
        &self.parts
    }

    pub(crate) fn group(&self) -> &Device {
        &self.group
    }
}

impl<M: LinearMap + Sync> LinearMap for GroupMatrix<M> {
    fn shape(&self) -> [u64; 2] {
        self.shape
    }

    fn device(&self) -> Option<&Device> {
        Some(&self.group)
    }

    fn keeps_vectors_on(&self) -> Option<&Device> {
        self.parts.first()?.keeps_vectors_on()
    }

    fn precision(&self) -> f64 {
        self.parts.iter().map(LinearMap::precision).fold(0.0, f64::max)
    }

    fn needs(&self, columns: u64) -> Needs {
        let needs = self.parts.iter().map(|part| part.needs(columns));
        let needs = self.group.members_need(needs.fold(Needs::default(), Needs::max));
        // X and its product pass through the host, and each member's product twice, until they are added.
        match self.parts.len() as u64 {
            count @ 2.. => needs + Needs::host(16 + 16 * count) * self.shape[1] * columns,
            _ => needs,
        }
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let products = self.group.each_member(pass.run(), self.shape[0], |i, _, run| {
            self.parts[i].apply_normal(x, &pass.with(run))
        })?;
        Ok(sum(products).unwrap_or_else(|| Matrix::zeros(to_usize(self.shape[1]), x.cols())))
    }

    fn apply_normal_rows(&self, x: &Tensor<f64>, pass: &Pass<'_>) -> Result<Tensor<f64>> {
        match &self.parts[..] {
            [only] => only.apply_normal_rows(x, pass),
            _ => rows_of_product(self, x, pass),
        }
    }

    fn apply_both(
        &self,
        x: &Tensor<f64>,
        pass: &Pass<'_>,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tensor<f64>>> {
        match &self.parts[..] {
            [only] => only.apply_both(x, pass, sink),
            _ => Ok(None),
        }
    }

    fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        let (mut first, run) = (0, pass.run());
        // The other members' rows may stay in memory meanwhile.
        let run = &run.clone().memory(run.memory.shared_by(self.parts.len() as u64));
        for part in &self.parts {
            part.apply(x, &pass.with(run).after(first), &mut |row, y| sink(first + row, y))?;
            first += part.shape()[0];
        }
        Ok(())
    }
}

/// Returns the sum of matrices of one shape, in their order.
pub(crate) fn sum(products: Vec<Matrix>) -> Option<Matrix> {
    products.into_iter().reduce(|mut sum, product| {
        sum.data_mut().iter_mut().zip(product.data()).for_each(|(sum, term)| *sum += term);
        sum
    })
}
