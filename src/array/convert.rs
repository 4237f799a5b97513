//! Conversion of elements to f32 or f64.

use super::elementwise::converted;
use crate::{DType, Element, Result, Tensor, TensorView};

impl<T: Element> Tensor<T> {
    /// Returns the elements as f32: the nearest f32 for f64 and for integers beyond 2^24 (infinite beyond the largest f32), exact for other
    /// types. Serves operations in f32 only, and devices that do not [compute in f64](crate::Limits::f64). Enqueues; does not wait.
    ///
    /// # Errors
    /// As [`Tensor::zeros`].
    ///
    /// ```
    /// use teatime::{Device, Tensor, linalg};
    /// let x = Tensor::from_slice(&Device::best()?, &[1.0 + 1e-10, -1.0, 3.0, 4.0], &[2, 2])?;
    /// let x = x.to_f32()?;
    /// assert_eq!(linalg::matmul_nt(&x, &x)?.read()?, [2.0, -1.0, -1.0, 25.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn to_f32(&self) -> Result<Tensor<f32>> {
        converted("Tensor::to_f32", self)
    }

    /// Returns the elements as f64, exactly. Enqueues; does not wait.
    ///
    /// # Errors
    /// [`Error::NoF64`](crate::Error::NoF64) on a device that does not [compute in f64](crate::Limits::f64); as [`to_f32`](Self::to_f32).
    pub fn to_f64(&self) -> Result<Tensor<f64>> {
        converted("Tensor::to_f64", self)
    }

    /// Returns [`to_f64`](Self::to_f64), or a view of the tensor itself if it is f64.
    pub(crate) fn in_f64(&self) -> Result<TensorView<'_, f64>> {
        match T::DTYPE {
            DType::F64 => Ok(self.view().cast()),
            _ => Ok(TensorView::new(self.to_f64()?)),
        }
    }
}
