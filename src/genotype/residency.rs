//! Where genotypes stay between passes.

use std::{
    ops::Range,
    sync::{Mutex, PoisonError},
};

use rayon::prelude::*;

use super::panel::{Held, Panel};
use crate::{Device, Result, Tensor, driver::Staging, packed::PANEL_BYTES, tensor::Pending};

/// Where genotypes stay between the passes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Residency {
    /// On the device: later passes read neither the store nor the host's memory.
    Device,
    /// Packed in the host's memory, from where each later pass uploads them.
    Host,
    /// In the store, which each pass reads and decodes again.
    Store,
}

impl Residency {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
            Self::Store => "store",
        }
    }

    /// Bytes of a panel of packed rows, where a block of them is not longer: what fills a GPU, in few launches where it stays
    /// and in little memory where not.
    pub(crate) const fn panel_bytes(self) -> u64 {
        match self {
            Self::Device => PANEL_BYTES,
            // The most that CUDA downloads while other work goes on.
            Self::Host => 32 << 20,
            Self::Store => 4 << 20,
        }
    }
}

/// Bytes of a panel that a thread copies at a time.
const PART: usize = 1 << 20;

/// What stayed of the first pass.
#[derive(Debug, Default)]
pub(crate) enum Kept {
    #[default]
    Nothing,
    Device(Vec<Panel>),
    Host(HostPanels),
}

/// Packed panels in the host's memory.
#[derive(Debug, Default)]
pub(crate) struct HostPanels {
    panels: Vec<HostPanel>,
    /// The codes of the last, while they are on their way.
    coming: Mutex<Option<Pending<u32>>>,
    /// Two from the first upload on, as long as the longest panel: one is filled while the device may still read the other.
    slots: Mutex<Vec<Staging>>,
}

/// A packed panel in the host's memory.
#[derive(Debug)]
pub(crate) struct HostPanel {
    rows: Range<u64>,
    missing: bool,
    width: u64,
    /// The codes.
    bytes: Vec<u8>,
}

impl HostPanels {
    fn push(&mut self, panel: Panel) -> Result<()> {
        // A panel is on its way while the next is filled.
        self.complete()?;
        if let Panel { rows, held: Held::Packed(packed), missing } = panel {
            let width = packed.shape()[1];
            self.panels.push(HostPanel { rows, missing, width, bytes: Vec::new() });
            self.coming = Mutex::new(Some(packed.download()?));
        }
        Ok(())
    }

    fn complete(&mut self) -> Result<()> {
        let coming = self.coming.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let (Some(coming), Some(panel)) = (coming, self.panels.last_mut()) {
            panel.bytes = coming.bytes()?;
        }
        Ok(())
    }

    /// Gives the panels to `f`, each on the device.
    fn each(&self, device: &Device, f: &mut dyn FnMut(&Panel) -> Result<()>) -> Result<()> {
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
            let shape = [panel.rows.end - panel.rows.start, panel.width];
            f(&Panel {
                rows: panel.rows.clone(),
                held: Held::Packed(Tensor::from_staging(device, slot, &shape)?),
                missing: panel.missing,
            })?;
        }
        Ok(())
    }
}

impl Kept {
    /// Nothing yet, of what stays there.
    pub(crate) fn new(residency: Residency) -> Self {
        match residency {
            Residency::Device => Self::Device(Vec::new()),
            Residency::Host => Self::Host(HostPanels::default()),
            Residency::Store => Self::Nothing,
        }
    }

    /// Where it is.
    pub(crate) const fn residency(&self) -> Residency {
        match self {
            Self::Device(_) => Residency::Device,
            Self::Host(_) => Residency::Host,
            Self::Nothing => Residency::Store,
        }
    }

    /// Keeps a panel.
    pub(crate) fn push(&mut self, panel: Panel) -> Result<()> {
        match self {
            Self::Nothing => {}
            Self::Device(panels) => panels.push(panel),
            Self::Host(panels) => panels.push(panel)?,
        }
        Ok(())
    }

    /// To be called after the last panel: waits for it.
    pub(crate) fn complete(&mut self) -> Result<()> {
        match self {
            Self::Host(panels) => panels.complete(),
            Self::Nothing | Self::Device(_) => Ok(()),
        }
    }

    /// Gives the panels to `f`, in order.
    pub(crate) fn each(&self, device: &Device, f: &mut dyn FnMut(&Panel) -> Result<()>) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Device(panels) => panels.iter().try_for_each(f),
            Self::Host(panels) => panels.each(device, f),
        }
    }
}
