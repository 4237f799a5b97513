//! Packed rows of 20,000 columns, and the stages of a pass over them.

use std::time::Instant;

use teatime::{
    Device, Error, Tensor,
    linalg::Matrix,
    packed::{PackedProduct, PackedRows, panel_bytes},
    random::philox,
    to_usize,
};

use crate::measure::Size;

/// The number of columns of the headline's matrix.
pub(super) const COLUMNS: u64 = 20_000;
/// The number of columns of an operand: ten components and ten oversamples.
pub(super) const WIDTH: usize = 20;
/// The number of words of a packed row, in whole blocks of 16 bytes.
pub(super) const WORDS: u64 = COLUMNS.div_ceil(64) * 4;

/// Returns the number of rows of a panel in a [`PackedMatrix`](teatime::packed::PackedMatrix).
pub(super) fn panel(device: &Device) -> u64 {
    panel_bytes(device, COLUMNS) / (4 * WORDS)
}

/// Returns the operand X of a pass: numbers in [-0.5, 0.5).
pub(super) fn operand() -> Result<Matrix, Error> {
    let number = |i: u64| f64::from(philox([5, 5], i)[0]) / 2f64.powi(32) - 0.5;
    let values = (0..COLUMNS * WIDTH as u64).map(number).collect();
    Matrix::from_vec(values, to_usize(COLUMNS), WIDTH)
}

/// The values by which the codes of panels are shifted and scaled in products.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// The mean and the factor of every row.
    term: [f32; 2],
    centred: bool,
    /// True if codes may be missing.
    missing: bool,
}

impl Kind {
    /// Unchanged codes, as in a [`PackedMatrix`](teatime::packed::PackedMatrix).
    pub(super) const PLAIN: Self = Self { term: [0.0, 1.0], centred: false, missing: false };

    pub(super) const fn standardised(missing: bool) -> Self {
        Self { term: [1.0, 1.4], centred: true, missing }
    }

    /// Returns the table for `rows` rows of a panel.
    pub(super) fn table(&self, device: &Device, rows: u64) -> Result<Tensor<f32>, Error> {
        let table = vec![self.term; to_usize(rows)];
        Tensor::from_slice(device, table.as_flattened(), &[rows, 2])
    }

    /// Starts a pass: prepares its operand.
    pub(super) fn start(&self, device: &Device, x: &Matrix) -> Result<PackedProduct, Error> {
        let [_, factor] = self.term.map(f64::from);
        let bounds = [2.0 * factor * (COLUMNS as f64).sqrt(), 2.0 * factor * COLUMNS as f64];
        PackedProduct::new(device, x, self.centred, Some(bounds))
    }

    pub(super) fn rows<'a>(&self, packed: &'a Tensor<u32>) -> PackedRows<'a> {
        PackedRows { packed, range: (0, packed.shape()[0]), missing: self.missing }
    }
}

/// Returns the size for a number of rows of 20,000 columns: the work in codes, and the memory including a pass's buffers.
pub(super) fn size(&rows: &u64) -> Size {
    Size {
        text: format!("{rows}x{COLUMNS}"),
        work: (rows * COLUMNS) as f64,
        memory: 4 * WORDS * rows + (768 << 20),
    }
}

/// Returns the result of `work`, and the seconds until the device has finished everything that `work` enqueued.
pub(super) fn timed<T>(device: &Device, work: impl FnOnce() -> Result<T, Error>) -> Result<(T, f64), Error> {
    device.synchronize()?;
    let started = Instant::now();
    let made = work()?;
    device.synchronize()?;
    Ok((made, started.elapsed().as_secs_f64()))
}
