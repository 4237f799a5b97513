//! The neighbors of each observation within a radius, without a matrix of all distances.

use std::{
    fmt::Display,
    io::{self, Write},
    ops::Range,
};

use super::{Metric, Options, job::Job, within::PairsWithin};
#[cfg(feature = "zarr")]
use crate::store::NewStore;
use crate::{Element, Needs, Result, Run, Tensor, extent::to_usize};

/// The neighbors of each observation within a radius, nearest first, and of equal distances the lower index first: a sparse matrix of
/// compressed rows, as SciPy's `csr_array`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RadiusNeighbors {
    /// (m + 1): the neighbors of observation i are those from `offsets[i]` to before `offsets[i + 1]`.
    pub offsets: Vec<u64>,
    /// The neighbors' indices, from 0.
    pub indices: Vec<u64>,
    /// The distance of each neighbor.
    pub distances: Vec<f64>,
}

impl RadiusNeighbors {
    /// Returns the indices of the neighbors of an observation, and their distances.
    ///
    /// # Panics
    /// If there is no such observation.
    pub fn row(&self, observation: usize) -> (&[u64], &[f64]) {
        let range = self.range(observation);
        (&self.indices[range.clone()], &self.distances[range])
    }

    fn range(&self, observation: usize) -> Range<usize> {
        to_usize(self.offsets[observation])..to_usize(self.offsets[observation + 1])
    }

    /// Writes a table, as [`Neighbors::write_table`](super::Neighbors::write_table) does. An observation without neighbors has no line.
    ///
    /// # Errors
    /// Fails as `to` does.
    pub fn write_table<N: Display>(
        &self,
        to: &mut dyn Write,
        observation: &str,
        [name, neighbor]: [&dyn Fn(usize) -> N; 2],
        text: impl Fn(f64) -> String,
    ) -> io::Result<()> {
        writeln!(to, "{observation}\trank\tneighbor\tdistance")?;
        for row in 0..self.offsets.len() - 1 {
            let (indices, distances) = self.row(row);
            for (rank, (&index, &distance)) in (1..).zip(indices.iter().zip(distances)) {
                let (name, neighbor) = (name(row), neighbor(to_usize(index)));
                writeln!(to, "{name}\t{rank}\t{neighbor}\t{}", text(distance))?;
            }
        }
        Ok(())
    }

    /// Writes three arrays of a store: `indptr`, the offsets in i64, along the axis `bounds`; and along the axis `pairs`, `neighbor`, the indices
    /// in i64, and `distance` in f64.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    #[cfg(feature = "zarr")]
    pub fn write_zarr(&self, store: &NewStore) -> Result<()> {
        store.put_vector::<i64>("indptr", "bounds", bytemuck::cast_slice(&self.offsets))?;
        store.put_vector::<i64>("neighbor", "pairs", bytemuck::cast_slice(&self.indices))?;
        store.put_vector("distance", "pairs", &self.distances)
    }
}

/// Returns the observations of `y`, or of the rest of `x`, that are within a radius of each observation of `x`. Waits.
///
/// They are those at a distance of `radius` or less, as of scikit-learn's `radius_neighbors`. `inner_product` is a similarity, so that they are
/// those of values of `radius` or more. Distances that are NaN are within no radius; an infinite radius has all others. The nearest comes first,
/// and ties are ordered by index.
///
/// # Shapes
/// As [`pairwise`](super::pairwise) -> m lists.
///
/// # Accuracy
/// Distances equal those of [`pairwise`](super::pairwise) to the bit, and are compared with the radius in f64.
///
/// # Errors
/// [`Error::Argument`](crate::Error::Argument) for a radius that is NaN, or below 0 unless the metric is `inner_product` or `kl_divergence`, whose
/// values may be; otherwise as [`pairwise`](super::pairwise). If the neighbors do not fit the host's memory, the rest of them is counted, and the
/// error names the radius, their number and the memory that is enough.
///
/// # Cost
/// As [`pairwise`](super::pairwise), but host memory is 32 to 36 bytes for each neighbor, and 16 for each observation of `x`, instead of 8 for each
/// pair. They may take half of the budget, since their number is known only at the end.
///
/// ```
/// use teatime::{Device, Run, Tensor, distance::{Metric, Options, radius_neighbors}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[0u8, 1, 3, 7], &[4, 1])?;
/// let within = radius_neighbors(&x, None, 3.0, Metric::Euclidean, &Options::default(), &Run::default())?;
/// assert_eq!(within.row(1), (&[0, 2][..], &[1.0, 2.0][..]));
/// assert_eq!(within.offsets, [0, 2, 4, 6, 6]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn radius_neighbors<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    radius: f64,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Result<RadiusNeighbors> {
    let job = Job::new(x, y, metric, options)?;
    let extents = job.extents().map(|extent| extent as u64);
    PairsWithin::find(&job.measure, extents, radius, run, |within, run| within.take_all(&job, run))
}

impl PairsWithin {
    /// Takes the distances of all pairs.
    ///
    /// # Errors
    /// As [`Job::each_block`].
    pub(super) fn take_all<T: Element>(&mut self, job: &Job<'_, T>, run: &Run) -> Result<()> {
        let side = job.measure.side(Needs::default(), &run.memory)?;
        self.begin()?;
        job.each_block(side, run, |block| self.take(block))
    }
}
