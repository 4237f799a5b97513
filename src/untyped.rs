//! Tensors with an element type known at run time.

use std::{fmt, ops::Range};

use crate::{DType, Device, Element, Result, Tensor, driver::HostBytes, dtype::with_dtype, tensor::Window};

/// A tensor of any type, for code that only launches kernels on it: such code is compiled once instead of once per type.
pub(crate) trait Untyped: fmt::Debug + Send + Sync {
    fn device(&self) -> &Device;
    fn shape(&self) -> &[u64];
    fn dtype(&self) -> DType;
    fn len(&self) -> u64;
    fn window(&self, elements: Range<u64>) -> Window<'_>;
    fn window_update(&mut self, elements: Range<u64>) -> Window<'_>;
    /// Waits and returns the elements as bytes; elements of the cpu device are not copied.
    fn into_bytes(self: Box<Self>) -> Result<HostBytes>;
}

impl<T: Element> Untyped for Tensor<T> {
    fn device(&self) -> &Device {
        self.device()
    }

    fn shape(&self) -> &[u64] {
        self.shape()
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

/// Creates a tensor of that type and shape, with undefined elements. Fails as [`Tensor::empty`] does.
pub(crate) fn empty_of(dtype: DType, device: &Device, shape: &[u64]) -> Result<Box<dyn Untyped>> {
    with_dtype!(dtype, T => Ok(Box::new(Tensor::<T>::empty(device, shape)?)))
}
