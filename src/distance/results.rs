//! Memory for results on the host.

use bytemuck::Zeroable;

use crate::{Error, Result, fresh, linalg::Matrix};

/// Fails with [`Error::OutOfHostMemory`].
pub(super) fn zeros<T: Zeroable>(count: usize) -> Result<Vec<T>> {
    let requested = (count as u64).saturating_mul(size_of::<T>() as u64);
    fresh::zeros(count).map_err(|_| Error::OutOfHostMemory { what: "distances".into(), requested })
}

/// Fails with [`Error::OutOfHostMemory`].
pub(super) fn matrix([m, n]: [usize; 2]) -> Result<Matrix> {
    Matrix::from_vec(zeros(m.saturating_mul(n))?, m, n)
}
