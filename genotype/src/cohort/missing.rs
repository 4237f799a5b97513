//! The number of missing calls of each sample.

use teatime::{
    Needs, Result, Tensor,
    linalg::{BlockSum, matmul_tn},
    packed::{Panel, Weight, WeightedSums},
};

use crate::{memory::f32_blocks, panel_sum::PanelSum, reader::Reader, to_usize};

/// Sums over the panels that have missing calls.
pub(super) struct MissingSums(PanelSum<WeightedSums>);

impl MissingSums {
    pub(super) fn new(reader: &Reader) -> Result<Self> {
        let (device, n) = (&reader.device, reader.samples());
        Ok(Self(match reader.form.is_packed() {
            true => PanelSum::Packed(WeightedSums::new(device, n, 1)?),
            false => PanelSum::Dense(Box::new(BlockSum::new(device, 1, n)?)),
        }))
    }

    pub(super) fn needs(reader: &Reader) -> Needs {
        let n = reader.samples();
        if reader.form.is_packed() {
            let rows = reader.panel_rows(reader.step_bytes).min(reader.variants());
            return WeightedSums::needs(&reader.device, n, 1, rows);
        }
        // The host holds the sums as they are downloaded, and in f64.
        Needs::host(16) * n + BlockSum::needs(1, n) + f32_blocks(reader, 1)
    }

    pub(super) fn add(&mut self, reader: &Reader, panel: &Panel) -> Result<()> {
        if !panel.missing {
            return Ok(());
        }
        match &mut self.0 {
            PanelSum::Packed(sums) => {
                sums.add(panel.packed()?, |_, _, weights| weights.fill(Weight { one: 0, missing: 1 }))
            }
            PanelSum::Dense(sums) => {
                let count = panel.rows.end - panel.rows.start;
                let ones = Tensor::from_slice(&reader.device, &vec![1f32; to_usize(count)], &[count, 1])?;
                sums.add(&matmul_tn(&ones, &panel.absent()?)?)
            }
        }
    }

    /// Waits for the sums, and returns the number of missing calls of each sample.
    pub(super) fn finish(self) -> Result<Vec<u64>> {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number")]
        let whole = |count: &f64| *count as u64;
        let sums = match self.0 {
            PanelSum::Packed(sums) => sums.finish(|_, sum| sum as f64)?,
            PanelSum::Dense(sums) => sums.finish()?,
        };
        Ok(sums.data().iter().map(whole).collect())
    }
}
