//! Rows of a matrix, as operands of a product.

use std::ops::Range;

use crate::{DType, Element, Result, Tensor, driver::Slice, tensor::Window};

/// Some rows of a stored matrix. Nothing is copied.
#[derive(Debug)]
pub(crate) struct Rows<'a, T: Element> {
    pub(super) tensor: &'a Tensor<T>,
    first: u64,
    pub(super) count: u64,
}

impl<T: Element> Clone for Rows<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Element> Copy for Rows<'_, T> {}

impl<'a, T: Element> Rows<'a, T> {
    /// Takes the rows `rows` of a matrix that has them.
    pub(crate) fn new(tensor: &'a Tensor<T>, rows: Range<u64>) -> Self {
        Self { tensor, first: rows.start, count: rows.end - rows.start }
    }

    pub(crate) fn from_tensor(op: &'static str, tensor: &'a Tensor<T>) -> Result<Self> {
        let [rows, _] = tensor.matrix(op)?;
        Ok(Self::new(tensor, 0..rows))
    }

    /// Takes some of the rows, counted from the first of them.
    pub(super) fn part(&self, rows: Range<u64>) -> Self {
        Self::new(self.tensor, self.first + rows.start..self.first + rows.end)
    }

    pub(super) fn cols(&self) -> u64 {
        self.tensor.shape()[1]
    }

    /// Returns the bytes of the rows from `element` on, or None if a vendor's library cannot start there.
    pub(super) fn bytes_from(&self, element: u64) -> Option<Slice<'a>> {
        let size = T::DTYPE.size();
        let start = (self.first * self.cols() + element) * size;
        let end = (self.first + self.count) * self.cols() * size;
        let slice = self.tensor.slice(start, (end - start).next_multiple_of(4));
        // Products of f64 may start at any element. Others start where cuBLAS's fast products may start, at multiples of 16 bytes.
        let alignment = if T::DTYPE == DType::F64 { size } else { 16 };
        slice.offset.is_multiple_of(alignment).then_some(slice)
    }

    /// Returns a window of the rows `rows`, counted from the first of these rows.
    pub(super) fn window(&self, rows: Range<u64>) -> Window<'a> {
        let cols = self.cols();
        self.tensor.window((self.first + rows.start) * cols..(self.first + rows.end) * cols)
    }
}
