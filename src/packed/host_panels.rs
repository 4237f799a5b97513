//! Panels of packed rows that stay in the host's memory between passes.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use rayon::prelude::*;

use crate::{Device, Result, Tensor, driver::Staging, tensor::Pending};

/// Bytes of a panel that a thread copies at a time.
const PART: usize = 1 << 20;

/// Panels of packed rows in the host's memory, from where each pass uploads them.
#[derive(Debug, Default)]
pub(crate) struct HostPanels {
    panels: Vec<HostPanel>,
    /// The codes of the last, while they are on their way.
    coming: Mutex<Option<Pending<u32>>>,
    /// Two from the first upload on, as long as the longest panel: one is filled while the device may still read the other.
    slots: Mutex<Vec<Staging>>,
}

/// Consecutive packed rows.
#[derive(Debug)]
struct HostPanel {
    rows: Range<u64>,
    /// Whether a code is missing.
    missing: bool,
    /// Words of a row.
    words: u64,
    /// The codes.
    bytes: Vec<u8>,
}

/// Is given the rows of a panel, their codes on the device, and whether one is missing.
type PanelSink<'a> = dyn FnMut(Range<u64>, Tensor<u32>, bool) -> Result<()> + 'a;

impl HostPanels {
    /// Starts the download of a panel; waits for the one before. `packed`: (rows, words).
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn push(&mut self, rows: Range<u64>, packed: &Tensor<u32>, missing: bool) -> Result<()> {
        self.complete()?;
        self.panels.push(HostPanel { rows, missing, words: packed.shape()[1], bytes: Vec::new() });
        self.coming = Mutex::new(Some(packed.download()?));
        Ok(())
    }

    /// To be called after the last panel: waits for it.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn complete(&mut self) -> Result<()> {
        let coming = self.coming.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(coming), Some(panel)) = (coming, self.panels.last_mut()) {
            panel.bytes = coming.bytes()?;
        }
        Ok(())
    }

    /// Gives the panels to `f` in order, each on the device. One pass at a time: another thread's waits.
    ///
    /// # Errors
    /// What the device and `f` report.
    pub(crate) fn each(&self, device: &Device, f: &mut PanelSink<'_>) -> Result<()> {
        let longest = self.panels.iter().map(|panel| panel.bytes.len()).max().unwrap_or(0) as u64;
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        while slots.len() < 2 {
            slots.push(device.driver().staging(longest)?);
        }
        let pool = device.pool()?;
        for (turn, panel) in self.panels.iter().enumerate() {
            let slot = &mut slots[turn % 2];
            let staged = &mut slot.bytes_mut()[..panel.bytes.len()];
            let bytes = &panel.bytes[..];
            pool.install(|| {
                let parts = staged.par_chunks_mut(PART).zip(bytes.par_chunks(PART));
                parts.for_each(|(staged, bytes)| staged.copy_from_slice(bytes));
            });
            let shape = [panel.rows.end - panel.rows.start, panel.words];
            f(panel.rows.clone(), Tensor::from_staging(device, slot, &shape)?, panel.missing)?;
        }
        Ok(())
    }
}
