//! Memory for results on the host.

use crate::{Error, Result, linalg::Matrix};

/// # Errors
/// [`Error::OutOfHostMemory`].
pub(super) fn zeros<T: Clone + Default>(count: usize) -> Result<Vec<T>> {
    let mut zeros = Vec::new();
    let requested = (count as u64).saturating_mul(size_of::<T>() as u64);
    let lacking = |_| Error::OutOfHostMemory { what: "distances".into(), requested };
    zeros.try_reserve_exact(count).map_err(lacking)?;
    zeros.resize(count, T::default());
    Ok(zeros)
}

/// # Errors
/// [`Error::OutOfHostMemory`].
pub(super) fn matrix([m, n]: [usize; 2]) -> Result<Matrix> {
    Matrix::from_vec(zeros(m.saturating_mul(n))?, m, n)
}
