//! Tensors of a type that is known at run time.

use std::ops::Range;

use crate::{DType, Device, Element, Result, Tensor, driver::HostBytes, dtype::with_dtype, tensor::Window};

/// A tensor of any type, for code that does nothing with elements but launch kernels: it is compiled once, not for each type.
pub(crate) trait Untyped {
    fn device(&self) -> &Device;
    fn dtype(&self) -> DType;
    fn len(&self) -> u64;
    fn window(&self, elements: Range<u64>) -> Window<'_>;
    fn window_update(&mut self, elements: Range<u64>) -> Window<'_>;
    /// Waits for the elements; those of the cpu device are not copied.
    fn into_bytes(self: Box<Self>) -> Result<HostBytes>;
}

impl<T: Element> Untyped for Tensor<T> {
    fn device(&self) -> &Device {
        self.device()
    }

    fn dtype(&self) -> DType {
        T::DTYPE
    }

    fn len(&self) -> u64 {
        self.len()
    }

    fn window(&self, elements: Range<u64>) -> Window<'_> {
        self.window(elements)
    }

    fn window_update(&mut self, elements: Range<u64>) -> Window<'_> {
        self.window_update(elements)
    }

    fn into_bytes(self: Box<Self>) -> Result<HostBytes> {
        (*self).into_bytes()
    }
}

/// A tensor of that type and shape, of undefined elements.
///
/// # Errors
/// As [`Tensor::empty`].
pub(crate) fn empty_of(dtype: DType, device: &Device, shape: &[u64]) -> Result<Box<dyn Untyped>> {
    with_dtype!(dtype, T => Ok(Box::new(Tensor::<T>::empty(device, shape)?)))
}
