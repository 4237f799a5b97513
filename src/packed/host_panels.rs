//! Panels of packed rows that stay in the host's memory between passes.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use rayon::prelude::*;

use super::PANEL_ROWS;
use crate::{Device, Error, Result, Tensor, driver::Staging, extent::to_usize, tensor::Pending};

/// Bytes of a panel that a thread copies at a time.
const PART: usize = 1 << 20;

/// Panels of packed rows in the host's memory, from where each pass uploads them.
#[derive(Debug)]
pub struct HostPanels {
    /// Rows that are uploaded at a time.
    step: u64,
    panels: Vec<HostPanel>,
    /// The codes of the last, while they are on their way.
    coming: Mutex<Option<Pending<u32>>>,
    /// Two from the first upload on, but while a pass has them: one is filled while the device may still read the other.
    slots: Mutex<Vec<Staging>>,
}

/// Consecutive packed rows.
#[derive(Debug)]
struct HostPanel {
    rows: Range<u64>,
    /// True where a code is missing.
    missing: bool,
    /// Words of a row.
    words: u64,
    /// The codes.
    bytes: Vec<u8>,
}

/// Is given the rows of a panel, their codes on the device, and whether one is missing.
pub type PanelSink<'a> = dyn FnMut(Range<u64>, Tensor<u32>, bool) -> Result<()> + 'a;

impl HostPanels {
    /// No panels yet. Of each, `step` rows are uploaded at a time, from 1 to [`PANEL_ROWS`].
    pub fn new(step: u64) -> Self {
        Self {
            step: step.clamp(1, PANEL_ROWS),
            panels: Vec::new(),
            coming: Mutex::default(),
            slots: Mutex::default(),
        }
    }

    /// Starts the download of a panel, after it has waited for the download before. `packed`: (rows, words).
    ///
    /// # Errors
    /// [`Error::Shape`] for a tensor with another number of rows than the range; any error of the device, after which all panels that were pushed
    /// are to be dropped.
    pub fn push(&mut self, rows: Range<u64>, packed: &Tensor<u32>, missing: bool) -> Result<()> {
        let op = "HostPanels::push";
        let [held, words] = packed.matrix(op)?;
        if rows.end.checked_sub(rows.start) != Some(held) {
            return Err(Error::shape(op, format_args!("rows {rows:?}"), format_args!("{held} rows")));
        }
        self.complete()?;
        // It may be longer than those were.
        self.slots.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.coming = Mutex::new(Some(packed.download()?));
        self.panels.push(HostPanel { rows, missing, words, bytes: Vec::new() });
        Ok(())
    }

    /// To be called after the last panel, before [`each`](Self::each): waits for it.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub fn complete(&mut self) -> Result<()> {
        let coming = self.coming.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(coming), Some(panel)) = (coming, self.panels.last_mut()) {
            panel.bytes = coming.bytes()?;
        }
        Ok(())
    }

    /// Gives the rows to `f` in order, so many at a time, each time on the device.
    ///
    /// # Errors
    /// [`Error::Argument`] where the last panel is still on its way; what the device and `f` report.
    pub fn each(&self, device: &Device, f: &mut PanelSink<'_>) -> Result<()> {
        if self.coming.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Err(Error::argument(
                "HostPanels::each",
                "self",
                "`complete` was not called after the last panel",
            ));
        }
        let lens = self
            .panels
            .iter()
            .map(|panel| 4 * panel.words * self.step.min(panel.rows.end - panel.rows.start));
        let longest = lens.max().unwrap_or(0);
        let lock = || self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        // Not under the lock: `f` may come here again.
        let mut slots = std::mem::take(&mut *lock());
        while slots.len() < 2 {
            slots.push(device.driver().staging(longest)?);
        }
        let pool = device.pool()?;
        let mut turn = 0;
        for HostPanel { rows, missing, words, bytes } in &self.panels {
            let step = to_usize(4 * words * self.step).max(1);
            let firsts = rows.clone().step_by(to_usize(self.step));
            for (first, bytes) in firsts.zip(bytes.chunks(step)) {
                let slot = &mut slots[turn % 2];
                turn += 1;
                let staged = &mut slot.bytes_mut()[..bytes.len()];
                pool.install(|| {
                    let parts = staged.par_chunks_mut(PART).zip(bytes.par_chunks(PART));
                    parts.for_each(|(staged, bytes)| staged.copy_from_slice(bytes));
                });
                let rows = first..rows.end.min(first + self.step);
                let shape = [rows.end - rows.start, *words];
                f(rows, Tensor::from_staging(device, slot, &shape)?, *missing)?;
            }
        }
        *lock() = slots;
        Ok(())
    }
}
