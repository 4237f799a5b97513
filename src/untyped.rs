//! Tensors of a type that is known at run time.

use std::ops::Range;

use crate::{DType, Device, Element, Result, Tensor, dtype::with_dtype, tensor::Window};

/// A tensor of any type, for code that does nothing with elements but launch kernels: it is compiled once, not for each type.
pub(crate) trait Untyped {
    fn device(&self) -> &Device;
    fn dtype(&self) -> DType;
    fn len(&self) -> u64;
    fn window(&self, elements: Range<u64>) -> Window<'_>;
    fn window_update(&mut self, elements: Range<u64>) -> Window<'_>;
    /// Waits for the elements.
    fn read_bytes(&self) -> Result<Box<dyn HostBytes>>;
}

/// Elements on the host, of a type that is known at run time.
pub(crate) trait HostBytes: Send {
    fn bytes(&self) -> &[u8];
}

impl<T: Element> HostBytes for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
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

    fn read_bytes(&self) -> Result<Box<dyn HostBytes>> {
        Ok(Box::new(self.read()?))
    }
}

/// A tensor of that type and shape, of undefined elements.
///
/// # Errors
/// As [`Tensor::empty`].
pub(crate) fn empty_of(dtype: DType, device: &Device, shape: &[u64]) -> Result<Box<dyn Untyped>> {
    with_dtype!(dtype, T => Ok(Box::new(Tensor::<T>::empty(device, shape)?)))
}
