//! A matrix as a linear map, whose rows come in panels.

use std::{borrow::Cow, ops::Range};

use super::{
    PackedProduct, PackedRows,
    apply::pieces,
    panel::{Panel, RowFactors},
};
use crate::{
    Cancel, Device, Result, Tensor,
    extent::to_usize,
    linalg::{BlockSum, LinearMap, Matrix, Pass, matmul, matmul_tn},
};

/// A function that takes a panel.
pub type PanelSink<'a> = dyn FnMut(&Panel) -> Result<()> + 'a;

/// A function that makes a pass over a matrix: it gives all panels to a sink, in order, and reports progress after each.
pub type PanelPass<'a> = dyn Fn(&Pass<'_>, &mut PanelSink<'_>) -> Result<()> + 'a;

/// A matrix A as a [`LinearMap`]: the entries of each row less the row's mean, times the row's factor. Each pass takes the rows from a
/// function, panel by panel, so that they may be on the device, in the host's memory, or in a store that each pass reads again.
///
/// # Accuracy
/// Products of packed rows are those of [`PackedProduct`]. Products of other rows are in f32 over each panel, and a [`BlockSum`] adds them up.
///
/// ```
/// use teatime::{
///     Device, Run, Status, Tensor,
///     linalg::{LinearMap, Matrix, Pass},
///     packed::{Entries, Panel, PanelMap},
/// };
///
/// let device = Device::cpu();
/// // The means are of the known entries, 0 and 2, and 1.
/// let entries = Entries::I8(Tensor::from_slice(&device, &[0i8, 2, -1, 1, 1, 1], &[2, 3])?);
/// let panel = Panel { rows: 0..2, entries, missing: true };
/// let map = PanelMap {
///     device: &device,
///     shape: [2, 3],
///     packed: false,
///     table: Some(&[[1.0, 1.0], [1.0, 3.0]]),
///     centred: true,
///     bounds: [0.0; 2],
///     at_once: 100,
///     each: &|pass, sink| sink(&panel).and_then(|()| pass.tell(2)),
/// };
/// let run = Run::default();
/// let x = Matrix::from_vec(vec![1.0, 0.0, 0.0], 3, 1)?;
/// assert_eq!(map.apply_normal(&x, &Pass::new(&run, Status::new(0, 1, 2)))?.data(), [1.0, -1.0, 0.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
#[allow(missing_debug_implementations, reason = "a function has none")]
pub struct PanelMap<'a> {
    /// The device of the panels.
    pub device: &'a Device,
    /// The numbers of rows and columns.
    pub shape: [u64; 2],
    /// True if panels are packed.
    pub packed: bool,
    /// The mean and the factor of each row; if `None`, entries stay as they are.
    pub table: Option<&'a [RowFactors]>,
    /// True if means are subtracted. If false, means only replace missing entries.
    pub centred: bool,
    /// The bounds of [`PackedProduct::new`]; not used if panels are not packed.
    pub bounds: [f64; 2],
    /// The maximum number of rows of A X that are computed at once from a packed panel.
    pub at_once: u64,
    /// The function that makes a pass.
    pub each: &'a PanelPass<'a>,
}

impl PanelMap<'_> {
    /// Returns the means and factors of a panel's rows.
    fn factors(&self, Range { start, end }: &Range<u64>) -> Cow<'_, [RowFactors]> {
        match self.table {
            Some(table) => Cow::Borrowed(&table[to_usize(*start)..to_usize(*end)]),
            None => Cow::Owned(vec![[0.0, 1.0]; to_usize(end - start)]),
        }
    }
}

impl LinearMap for PanelMap<'_> {
    fn shape(&self) -> [u64; 2] {
        self.shape
    }

    fn device(&self) -> Option<&Device> {
        Some(self.device)
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        if self.packed {
            let mut product = PackedProduct::new(self.device, x, self.centred, Some(self.bounds))?;
            (self.each)(pass, &mut |panel| {
                let table = upload(self.device, &self.factors(&panel.rows))?;
                product.add(panel.packed(&table)?)
            })?;
            return product.finish();
        }
        let thin = x.to_tensor(self.device)?;
        // The result is transposed: long rows fill the register tiles that a thin column leaves half empty.
        let mut sum = BlockSum::new(self.device, x.cols() as u64, x.rows() as u64)?;
        (self.each)(pass, &mut |panel| {
            let block = standardized(panel, self.centred, &self.factors(&panel.rows))?;
            sum.add(&matmul_tn(&matmul(&block, &thin)?, &block)?)
        })?;
        Ok(sum.finish()?.transposed())
    }

    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()> {
        let products = RowProducts::new(self.device, x, self.centred, self.packed)?;
        (self.each)(pass, &mut |panel| {
            let factors = self.factors(&panel.rows);
            let mut sink = |rows: Range<u64>, y: &Matrix| sink(rows.start, y);
            products.each(panel, &factors, self.at_once, &pass.run().cancel, &mut sink)
        })
    }
}

/// The product `A X`, panel by panel, where [`PanelMap`] would need the means and factors of all rows before the first panel.
#[derive(Debug)]
pub struct RowProducts {
    device: Device,
    centred: bool,
    operand: Operand,
}

#[derive(Debug)]
enum Operand {
    Packed(PackedProduct),
    Unpacked(Tensor<f32>),
}

impl RowProducts {
    /// Prepares products with X, (columns of A, columns). `centred` and `packed` are those of [`PanelMap`].
    ///
    /// # Errors
    /// As [`PackedProduct::new`]; [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub fn new(device: &Device, x: &Matrix, centred: bool, packed: bool) -> Result<Self> {
        let operand = if packed {
            Operand::Packed(PackedProduct::new(device, x, centred, None)?)
        } else {
            Operand::Unpacked(x.to_tensor(device)?)
        };
        Ok(Self { device: device.clone(), centred, operand })
    }

    /// Calls `sink` with the indices of some rows of a panel and their products, in order: at most `at_once` rows at a time of a packed
    /// panel, else all rows. `factors` are those of the panel's rows. Waits.
    ///
    /// # Errors
    /// Any error of the device and of `sink`; [`Error::Cancelled`](crate::Error::Cancelled) before a call of `sink`.
    pub fn each(
        &self,
        panel: &Panel,
        factors: &[RowFactors],
        at_once: u64,
        cancel: &Cancel,
        sink: &mut dyn FnMut(Range<u64>, &Matrix) -> Result<()>,
    ) -> Result<()> {
        match &self.operand {
            Operand::Packed(product) => {
                let first = panel.rows.start;
                let table = upload(&self.device, factors)?;
                let packed = panel.packed(&table)?;
                let parts = pieces(packed.range(), at_once.max(1));
                let parts = parts.map(|range| (first, PackedRows { range, ..packed }));
                product.each_part(parts, &mut |rows, y| {
                    cancel.check()?;
                    sink(rows, y)
                })
            }
            Operand::Unpacked(x) => {
                cancel.check()?;
                let y = matmul(&standardized(panel, self.centred, factors)?, x)?;
                sink(panel.rows.clone(), &Matrix::from_tensor(&y)?)
            }
        }
    }
}

/// Uploads the means and factors of rows, for products on packed rows.
fn upload(device: &Device, factors: &[RowFactors]) -> Result<Tensor<f32>> {
    Tensor::from_slice(device, factors.as_flattened(), &[factors.len() as u64, 2])
}

/// Returns unpacked rows in f32: a missing entry becomes the mean, which is 0 once the rows are centred.
fn standardized(panel: &Panel, centred: bool, factors: &[RowFactors]) -> Result<Tensor<f32>> {
    let row = |&[mean, factor]: &RowFactors| {
        if centred { [mean, factor, 0.0] } else { [0.0, factor, mean * factor] }
    };
    let table: Vec<[f32; 3]> = factors.iter().map(row).collect();
    panel.standardized(&table)
}
