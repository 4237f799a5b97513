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

/// Columns of the headline's matrix.
pub(super) const COLUMNS: u64 = 20_000;
/// Columns of an operand: ten components, and ten more.
pub(super) const WIDTH: usize = 20;
/// Words of a packed row: whole blocks of 16 bytes.
pub(super) const WORDS: u64 = COLUMNS.div_ceil(64) * 4;

/// Rows of a panel, as [`PackedMatrix`](teatime::packed::PackedMatrix) makes them.
pub(super) fn panel(device: &Device) -> u64 {
    panel_bytes(device, COLUMNS) / (4 * WORDS)
}

/// X of a pass: numbers in [-0.5, 0.5).
pub(super) fn operand() -> Result<Matrix, Error> {
    let number = |i: u64| f64::from(philox([5, 5], i)[0]) / 2f64.powi(32) - 0.5;
    let values = (0..COLUMNS * WIDTH as u64).map(number).collect();
    Matrix::from_vec(values, to_usize(COLUMNS), WIDTH)
}

/// The kind of matrix that panels are multiplied as.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// The mean and the factor of every row.
    term: [f32; 2],
    centred: bool,
    /// True where a code may be missing.
    missing: bool,
}

impl Kind {
    /// Codes as they are: [`PackedMatrix`](teatime::packed::PackedMatrix).
    pub(super) const PLAIN: Self = Self { term: [0.0, 1.0], centred: false, missing: false };

    /// Standardised genotypes.
    pub(super) const fn standardised(missing: bool) -> Self {
        Self { term: [1.0, 1.4], centred: true, missing }
    }

    /// The table of as many rows as a panel has.
    pub(super) fn table(&self, device: &Device, rows: u64) -> Result<Tensor<f32>, Error> {
        let table = vec![self.term; to_usize(rows)];
        Tensor::from_slice(device, table.as_flattened(), &[rows, 2])
    }

    /// The first stage of a pass: the operand.
    pub(super) fn start(&self, device: &Device, x: &Matrix) -> Result<PackedProduct, Error> {
        let [_, factor] = self.term.map(f64::from);
        let bounds = [2.0 * factor * (COLUMNS as f64).sqrt(), 2.0 * factor * COLUMNS as f64];
        PackedProduct::new(device, x, self.centred, Some(bounds))
    }

    /// Makes the argument of a call of each panel.
    pub(super) fn rows<'a>(
        &self,
        panels: &'a [Tensor<u32>],
        table: &'a Tensor<f32>,
    ) -> impl Iterator<Item = PackedRows<'a>> {
        let missing = self.missing;
        panels.iter().map(move |packed| PackedRows { packed, table, range: (0, packed.shape()[0]), missing })
    }
}

/// Rows of 20,000 columns, as a size: work in codes, memory with what a pass takes besides.
pub(super) fn size(&rows: &u64) -> Size {
    Size {
        text: format!("{rows}x{COLUMNS}"),
        work: (rows * COLUMNS) as f64,
        memory: 4 * WORDS * rows + (768 << 20),
    }
}

/// Returns what `work` makes, and the seconds until the device has done what it enqueues.
pub(super) fn timed<T>(device: &Device, work: impl FnOnce() -> Result<T, Error>) -> Result<(T, f64), Error> {
    device.synchronize()?;
    let started = Instant::now();
    let made = work()?;
    device.synchronize()?;
    Ok((made, started.elapsed().as_secs_f64()))
}
