//! Panels of packed rows that stay in the host's memory between passes.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use rayon::prelude::*;

use super::{
    PANEL_ROWS,
    panel::{Entries, Panel},
    panel_map::PanelSink,
};
use crate::{
    Device, Error, Result, Tensor, driver::Staging, extent::to_usize, tensor::Pending, timeline::Stage,
    waiting::lock,
};

/// The number of bytes of a panel that a thread copies at a time.
const PART: usize = 1 << 20;

/// Panels of packed rows in the host's memory, which each pass uploads.
#[derive(Debug)]
pub(crate) struct HostPanels {
    /// The number of rows that are uploaded at a time.
    step: u64,
    panels: Vec<HostPanel>,
    /// The codes of the last panel, while they are being downloaded.
    coming: Mutex<Option<Pending<u32>>>,
    /// Two staging buffers from the first upload on, unless a pass has taken them. One is filled while the device may still read the other.
    slots: Mutex<Vec<Staging>>,
}

/// Consecutive packed rows.
#[derive(Debug)]
struct HostPanel {
    rows: Range<u64>,
    /// True if a code is missing.
    missing: bool,
    /// The number of words of a row.
    words: u64,
    /// The packed codes of the rows.
    bytes: Vec<u8>,
}

impl HostPanels {
    /// Creates an empty list of panels, of which `step` rows are uploaded at a time, from 1 to [`PANEL_ROWS`].
    pub(crate) fn new(step: u64) -> Self {
        Self {
            step: step.clamp(1, PANEL_ROWS),
            panels: Vec::new(),
            coming: Mutex::default(),
            slots: Mutex::default(),
        }
    }

    /// Adds to the numbers of all rows.
    pub(super) fn move_by(&mut self, rows: u64) {
        self.panels.iter_mut().for_each(|panel| panel.rows = panel.rows.start + rows..panel.rows.end + rows);
    }

    /// Starts the download of a panel, and waits for the previous download. Fails with [`Error::Shape`] for another number of rows;
    /// [`Error::Argument`] for rows that are not packed; any error that the device reports, after which no panel is of use.
    pub(crate) fn push(&mut self, panel: &Panel) -> Result<()> {
        let (op, rows, missing) = ("PackedMatrix::keep", panel.rows.clone(), panel.missing);
        let Entries::Packed(packed) = &panel.entries else {
            return Err(Error::argument(op, "panel", "rows that are not packed stay on the device alone"));
        };
        let [_, words] = packed.matrix(op)?;
        self.complete()?;
        // The panel may be longer than the buffers.
        self.slots.get_mut().unwrap_or_else(PoisonError::into_inner).clear();
        self.coming = Mutex::new(Some(packed.download()?));
        self.panels.push(HostPanel { rows, missing, words, bytes: Vec::new() });
        Ok(())
    }

    /// Waits for the last panel. Must be called after the last panel and before [`each`](Self::each).
    pub(crate) fn complete(&mut self) -> Result<()> {
        let coming = self.coming.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(coming), Some(panel)) = (coming, self.panels.last_mut()) {
            panel.bytes = coming.bytes()?;
        }
        Ok(())
    }

    /// Calls `f` with the rows in order, at most `step` rows at a time, each time on the device. Fails with
    /// [`Error::Argument`] if the last panel is still being downloaded; any error of the device or of `f`.
    pub(crate) fn each(&self, device: &Device, f: &mut PanelSink<'_>) -> Result<()> {
        if lock(&self.coming).is_some() {
            let why = "`complete` was not called after the last panel";
            return Err(Error::argument("PackedMatrix::each", "self", why));
        }
        let len = |panel: &HostPanel| 4 * panel.words * self.step.min(panel.rows.end - panel.rows.start);
        let longest = self.panels.iter().map(len).max().unwrap_or(0);
        // The lock is not held, since `f` may call this function again.
        let mut slots = std::mem::take(&mut *lock(&self.slots));
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
                let span = device.span(Stage::Convert, "panel").bytes(bytes.len() as u64);
                pool.install(|| {
                    let parts = staged.par_chunks_mut(PART).zip(bytes.par_chunks(PART));
                    parts.for_each(|(staged, bytes)| staged.copy_from_slice(bytes));
                });
                drop(span);
                let rows = first..rows.end.min(first + self.step);
                let shape = [rows.end - rows.start, *words];
                let entries = Entries::Packed(Tensor::from_staging(device, slot, &shape)?);
                f(&Panel { rows, entries, missing: *missing })?;
            }
        }
        *lock(&self.slots) = slots;
        Ok(())
    }
}
