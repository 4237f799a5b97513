//! Tensors that borrow their memory.

use std::{fmt, marker::PhantomData, ops::Deref};

use super::{Tensor, check_len};
use crate::{Device, Element, Result, device::Buffer, driver::Memory};

/// A tensor that borrows its memory: some rows of a tensor, by [`Tensor::rows`], or values of the host, by [`from_slice`](Self::from_slice).
///
/// A view has a tensor's read-only methods, and `&view` is accepted in place of a `&Tensor`. If the compiler does not convert by itself, as in
/// `&*x.rows(0..4)?`, or if a `&dyn` [`LinearMap`](crate::linalg::LinearMap) is required, write `&*view`.
pub struct TensorView<'a, T: Element> {
    pub(super) part: Tensor<T>,
    pub(super) borrowed: PhantomData<&'a Tensor<T>>,
}

impl<'a, T: Element> TensorView<'a, T> {
    /// Creates a view of memory that stays valid for as long as the caller promises.
    pub(crate) fn new(part: Tensor<T>) -> Self {
        Self { part, borrowed: PhantomData }
    }

    /// Reinterprets the bits as elements of another type of the same size.
    pub(crate) fn cast<U: Element>(self) -> TensorView<'a, U> {
        TensorView::new(self.part.cast())
    }

    /// Creates a tensor of the host's values, in C order, for operations that read it. On the cpu device it copies nothing if the values start
    /// at a multiple of 16 bytes and are whole words of 4; otherwise it copies as [`Tensor::from_slice`].
    ///
    /// # Errors
    /// As [`Tensor::from_slice`].
    ///
    /// ```
    /// use teatime::{Device, TensorView, linalg};
    /// let x = [1.0f32, 2.0, 3.0, 4.0];
    /// let x = TensorView::from_slice(&Device::cpu(), &x, &[2, 2])?;
    /// assert_eq!(linalg::matmul_nt(&x, &x)?.read()?, [5.0, 11.0, 11.0, 25.0]);
    /// # Ok::<(), teatime::Error>(())
    /// ```
    pub fn from_slice(device: &Device, values: &'a [T], shape: &[u64]) -> Result<Self> {
        check_len("TensorView::from_slice", values.len(), shape)?;
        let part = match lent(device, values) {
            Some(memory) => Tensor::from_buffer(device, Buffer::lent(memory), shape),
            None => Tensor::from_slice(device, values, shape)?,
        };
        Ok(Self { part, borrowed: PhantomData })
    }
}

/// Returns values of the host as memory of a device that can use them in place.
#[allow(unsafe_code, reason = "drivers do not know for how long memory is lent")]
fn lent<T: Element>(device: &Device, values: &[T]) -> Option<Memory> {
    let bytes: &[u8] = bytemuck::cast_slice(values);
    // SAFETY: the memory belongs to a tensor within a view that borrows the values, and to views of that view, which borrow it. None of them
    // outlives the values, and no operation writes the memory.
    let bytes: &'static [u8] = unsafe { std::slice::from_raw_parts(bytes.as_ptr(), bytes.len()) };
    if bytes.is_empty() { None } else { device.driver().lend(bytes) }
}

impl<T: Element> Deref for TensorView<'_, T> {
    type Target = Tensor<T>;

    fn deref(&self) -> &Tensor<T> {
        &self.part
    }
}

impl<T: Element> fmt::Debug for TensorView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "view of {:?}", self.part)
    }
}
