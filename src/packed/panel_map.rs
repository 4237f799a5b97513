//! A matrix as a linear map, whose rows come in panels.

use std::borrow::Cow;

use super::{
    PackedProduct, PackedRows, ProductSums,
    apply::pieces,
    panel::{Panel, RowFactors},
};
use crate::{
    Device, Error, Result, Tensor,
    extent::to_usize,
    linalg::{BlockSum, LinearMap, Matrix, Pass, RowSink, matmul, matmul_tn},
};

/// A function that takes a panel.
pub type PanelSink<'a> = dyn FnMut(&Panel) -> Result<()> + 'a;

/// A function that makes a pass over a matrix: it gives all panels to a sink, in order, and reports progress after each.
pub type PanelPass<'a> = dyn Fn(&Pass<'_>, &mut PanelSink<'_>) -> Result<()> + Sync + 'a;

/// A matrix A as a [`LinearMap`]: the entries of each row less the row's mean, times the row's factor. Each pass takes the rows from a
/// function, panel by panel, so that they may be on the device, in the host's memory, or in a store that each pass reads again.
///
/// # Accuracy
/// Products of packed rows are those of [`PackedProduct`]. Products of other rows are in f32 over each panel, and a [`BlockSum`] adds them up.
#[allow(missing_debug_implementations, reason = "a function has none")]
pub struct PanelMap<'a> {
    /// The device of the panels, or a [group](Device::group).
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
    /// The function that makes a pass. For packed panels on the members of a group: a function for each member, over the panels that are on
    /// it, which follow those of the member before.
    pub each: &'a [Box<PanelPass<'a>>],
}

impl PanelMap<'_> {
    /// Returns the means and factors of a panel's rows.
    fn factors(&self, Panel { rows, .. }: &Panel) -> Result<Cow<'_, [RowFactors]>> {
        let Some(table) = self.table else {
            return Ok(Cow::Owned(vec![[0.0, 1.0]; to_usize(rows.end - rows.start)]));
        };
        let factors = table.get(to_usize(rows.start)..to_usize(rows.end)).map(Cow::Borrowed);
        factors.ok_or_else(|| Error::shape("PanelMap", format_args!("a table of rows {rows:?}"), table.len()))
    }

    /// Uploads the means and factors of a panel's rows.
    fn uploaded(&self, panel: &Panel, device: &Device) -> Result<Tensor<f32>> {
        let factors = self.factors(panel)?;
        Tensor::from_slice(device, factors.as_flattened(), &[factors.len() as u64, 2])
    }

    /// Calls `work` with each device and its pass. Fails with [`Error::Argument`] unless there is a pass for each member.
    fn each_device<T: Send>(
        &self,
        pass: &Pass<'_>,
        work: impl Fn(&Device, &Pass<'_>, &PanelPass<'_>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        if let [each] = self.each {
            return Ok(vec![work(self.device, pass, each)?]);
        }
        self.check_members()?;
        self.device.each_member(pass.run(), self.shape[0], |i, device, run| {
            work(device, &pass.with(run), &self.each[i])
        })
    }

    /// Fails with [`Error::Argument`] unless there is one pass, or one for each member.
    fn check_members(&self) -> Result<()> {
        let (passes, members) = (self.each.len(), self.device.members().len());
        if passes == members || passes == 1 {
            return Ok(());
        }
        Err(Error::argument("PanelMap", "each", format_args!("{passes} passes for a group of {members}")))
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
            let sums = self.each_device(pass, |device, pass, each| {
                let mut product = PackedProduct::new(device, x, self.centred, Some(self.bounds))?;
                each(pass, &mut |panel| product.add(panel.packed()?, &self.uploaded(panel, device)?))?;
                product.sums()
            })?;
            let mut sums = sums.into_iter();
            let first = sums.next().expect("a matrix should be on a device");
            return sums.try_fold(first, ProductSums::merge)?.finish();
        }
        let [each] = self.each else {
            return Err(Error::argument("PanelMap", "each", "panels that are not packed have one pass"));
        };
        let thin = x.to_tensor(self.device)?;
        // The result is transposed: long rows fill the register tiles that a thin column leaves half empty.
        let mut sum = BlockSum::new(self.device, x.cols() as u64, x.rows() as u64)?;
        each(pass, &mut |panel| {
            let block = panel.scaled(&self.factors(panel)?, self.centred)?;
            sum.add(&matmul_tn(&matmul(&block, &thin)?, &block)?)
        })?;
        Ok(sum.finish()?.transposed())
    }

    fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        let cancel = &pass.run().cancel;
        self.check_members()?;
        let (devices, mut done) = (self.device.members(), 0);
        for (i, (each, device)) in self.each.iter().zip(&devices).enumerate() {
            let (device, pass) = (if i == 0 { self.device } else { device }, &pass.after(done));
            if self.packed {
                let product = PackedProduct::new(device, x, self.centred, None)?;
                each(pass, &mut |panel| {
                    done = panel.rows.end;
                    let packed = panel.packed()?;
                    let parts = pieces(packed.range(), self.at_once.max(1));
                    let parts = parts.map(|range| PackedRows { range, ..packed });
                    product.each_part(parts, &self.uploaded(panel, device)?, &mut |rows, y| {
                        cancel.check()?;
                        sink(panel.rows.start + rows.start, y)
                    })
                })?;
                continue;
            }
            let x = x.to_tensor(device)?;
            each(pass, &mut |panel| {
                cancel.check()?;
                let y = matmul(&panel.scaled(&self.factors(panel)?, self.centred)?, &x)?;
                sink(panel.rows.start, &Matrix::from_tensor(&y)?)
            })?;
        }
        Ok(())
    }
}
