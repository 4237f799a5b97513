//! Stored matrices whose rows are divided among the members of a group.

use std::sync::{Arc, Mutex};

use super::{OP, StoredMatrix, plan_of};
use crate::{
    Device, Needs, Real, Result, Run, Tensor,
    linalg::{GroupMatrix, LinearMap, Matrix, Pass, group_matrix::sum, map_tensor::BLOCK},
    stream::{Selection, Slots, StreamStats},
};

impl StoredMatrix {
    /// Divides the rows among the members of the group that the matrix was made with: whole canonical blocks, about as many rows for each.
    /// In each pass, each member reads and multiplies its rows.
    ///
    /// # Cost
    /// A chunk with rows of two members is read by both. The host's memory of a run is divided among the members.
    ///
    /// # Errors
    /// None that [`new`](Self::new) did not return.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use teatime::{Device, Run, linalg::{SvdOptions, randomized_svd}, store::MemoryArray, stream::StoredMatrix};
    /// let array = MemoryArray::new("a", &[3u8, 0, 0, 4, 0, 0], &[3, 2], &[2, 2])?;
    /// let a = StoredMatrix::new(vec![Arc::new(array)], &Device::open("cpu,cpu")?)?.by_member()?;
    /// let svd = randomized_svd(&a, 1, &SvdOptions::default(), &Run::default())?;
    /// assert!((svd.s[0] - 4.0).abs() < 1e-5);
    /// // All rows, if they fit the devices.
    /// let resident = a.to_tensors(&Run::default())?;
    /// assert_eq!(randomized_svd(&resident, 1, &SvdOptions::default(), &Run::default())?.s, svd.s);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn by_member(self) -> Result<GroupMatrix<Self>> {
        let (group, members) = (self.device.clone(), self.device.members());
        if members.len() == 1 {
            return GroupMatrix::new(&group, vec![self]);
        }
        let arrays: Vec<_> = (0..self.plan.arrays()).map(|i| Arc::clone(self.plan.array(i))).collect();
        let ([rows, columns], count) = (self.shape, members.len() as u64);
        let first = |member: usize| rows.min(BLOCK * (rows.div_ceil(BLOCK) * member as u64 / count));
        let part = |(i, device): (usize, Device)| -> Result<Self> {
            let lines = first(i)..first(i + 1);
            let shape = [lines.end - lines.start, columns];
            let lines = Selection::new(OP, "rows", std::iter::once(lines), rows)?;
            let convert = Arc::clone(self.plan.convert());
            let plan = plan_of(arrays.clone(), lines, columns, convert, (self.is_transposed, self.block))?;
            let (block, slots, stats) = (self.block.min(shape[0]), Slots::default(), Mutex::default());
            Ok(Self { plan, device, shape, block, slots, stats, ..self })
        };
        let parts = members.into_iter().enumerate().map(part).collect::<Result<_>>()?;
        GroupMatrix::new(&group, parts)
    }
}

impl GroupMatrix<StoredMatrix> {
    /// Reads the rows of each member into a tensor on it, in one pass. The device memory of `run` is not checked.
    ///
    /// # Errors
    /// As [`StoredMatrix::to_tensor`].
    pub fn to_tensors(&self, run: &Run) -> Result<GroupMatrix<Tensor<f32>>> {
        self.load(run)
    }

    /// Reads rows, which are not those of a transpose, into tensors of their elements' type.
    pub(in crate::stream) fn load<R: Real>(&self, run: &Run) -> Result<GroupMatrix<Tensor<R>>> {
        let load = |i: usize, run: &Run| self.parts()[i].load(run);
        let tensors = self.group().each_member(run, self.shape()[0], |i, _, run| load(i, run))?;
        GroupMatrix::new(self.group(), tensors)
    }

    /// Returns the times and bytes of all passes so far, as [`StoredMatrix::stats`] does.
    pub fn stats(&self) -> StreamStats {
        let parts: Vec<_> = self.parts().iter().map(StoredMatrix::stats).collect();
        let mut stats = StreamStats::default();
        stats.add_members(parts.iter());
        stats
    }

    /// Drops the chunks and the staging slots that are kept between passes.
    pub(in crate::stream) fn drop_kept(&self) {
        self.parts().iter().for_each(StoredMatrix::drop_kept);
    }

    /// Returns the bytes of the longest part.
    pub(in crate::stream) fn bytes_of_part(&self) -> u64 {
        self.parts().iter().map(StoredMatrix::len_bytes).max().unwrap_or(0)
    }

    /// Returns the least memory of [`gram`](Self::gram), and of the two matrices on the host that its end takes.
    pub(in crate::stream) fn gram_needs(&self) -> Needs {
        let needs = self.parts().iter().map(StoredMatrix::gram_needs);
        self.group().members_need(needs.fold(Needs::default(), Needs::max))
    }

    /// Returns `AᵀA`, in one pass. The sums of the members are added in their order.
    pub(in crate::stream) fn gram(&self, pass: &Pass<'_>) -> Result<Matrix> {
        let gram = |i: usize, run: &Run| self.parts()[i].gram(&pass.with(run));
        let sums = self.group().each_member(pass.run(), self.shape()[0], |i, _, run| gram(i, run))?;
        Ok(sum(sums).unwrap_or_else(|| Matrix::zeros(0, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Budget, ChunkedArray, Status, StoredType,
        extent::to_usize,
        random::gaussian,
        store::MemoryArray,
        stream::{AsStored, Convert},
    };

    /// Members have all rows once, of the matrix and of its transpose, also if there are more of them than blocks.
    #[test]
    fn grams_of_rows_and_columns() {
        let [m, n] = [2500, 9u64];
        let values: Vec<f64> = (0..m * n).map(|at| gaussian(3, at)).collect();
        let gram = |i: u64, j: u64, is_transposed: bool| -> f64 {
            let at = |line: u64, row: u64| {
                values[to_usize(if is_transposed { line * m + row } else { row * n + line })]
            };
            (0..m).map(|row| at(i, row) * at(j, row)).sum()
        };
        for (is_transposed, shape) in [(false, [m, n]), (true, [n, m])] {
            let array: Arc<dyn ChunkedArray> = Arc::new(
                MemoryArray::new("a", &values, &shape, &[700.min(shape[0]), 800.min(shape[1])]).unwrap(),
            );
            for count in [1, 2, 3, 5] {
                let devices = vec![Device::open("cpu").unwrap(); count];
                let group = Device::group(&devices).unwrap();
                let convert: Arc<dyn Convert> = Arc::new(AsStored(StoredType::F64));
                let matrix =
                    StoredMatrix::converted(vec![Arc::clone(&array)], convert, true, is_transposed, &group);
                let matrix = matrix.unwrap().by_member().unwrap();
                let run = Run::default().memory(Budget::default().host(matrix.gram_needs().host));
                let found = matrix.gram(&Pass::new(&run, Status::new(0, 1, m))).unwrap();
                for (i, j) in (0..9).flat_map(|i| (0..9).map(move |j| (i, j))) {
                    let expected = gram(i, j, is_transposed);
                    let error = (found[(to_usize(i), to_usize(j))] - expected).abs();
                    assert!(error <= 1e-10, "{shape:?} {count}: {error}");
                }
            }
        }
    }
}
