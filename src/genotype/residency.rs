//! Where genotypes stay between passes.

use std::ops::Range;

use super::panel::{Held, Panel};
use crate::{Device, Result, Tensor, tensor::Pending};

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

    /// Bytes of a panel of packed rows: what fills a GPU, in few launches where it stays and in little memory where not.
    pub(crate) const fn panel_bytes(self) -> u64 {
        match self {
            Self::Device => 256 << 20,
            Self::Host => 64 << 20,
            Self::Store => 4 << 20,
        }
    }
}

/// What stayed of the first pass.
#[derive(Debug, Default)]
pub(crate) enum Kept {
    #[default]
    Nothing,
    Device(Vec<Panel>),
    Host(Vec<HostPanel>),
}

/// A packed panel in the host's memory.
#[derive(Debug)]
pub(crate) struct HostPanel {
    rows: Range<u64>,
    factors: Vec<[f32; 2]>,
    missing: bool,
    width: u64,
    words: Words,
}

/// Packed rows, perhaps still on their way.
#[derive(Debug)]
enum Words {
    Coming(Option<Pending<u32>>),
    Here(Vec<u32>),
}

impl Words {
    fn wait(&mut self) -> Result<()> {
        if let Self::Coming(pending) = self
            && let Some(pending) = pending.take()
        {
            *self = Self::Here(pending.wait()?);
        }
        Ok(())
    }
}

impl Kept {
    /// Nothing yet, of what stays there.
    pub(crate) const fn new(residency: Residency) -> Self {
        match residency {
            Residency::Device => Self::Device(Vec::new()),
            Residency::Host => Self::Host(Vec::new()),
            Residency::Store => Self::Nothing,
        }
    }

    /// Keeps a panel.
    pub(crate) fn push(&mut self, panel: Panel) -> Result<()> {
        match self {
            Self::Nothing => {}
            Self::Device(panels) => panels.push(Panel { standards: Vec::new(), ..panel }),
            Self::Host(panels) => {
                // One panel is on its way while the next is filled.
                if let Some(last) = panels.last_mut() {
                    last.words.wait()?;
                }
                if let Panel { rows, held: Held::Packed(packed), factors, missing, .. } = panel {
                    let words = Words::Coming(Some(packed.download()?));
                    panels.push(HostPanel { rows, factors, missing, width: packed.shape()[1], words });
                }
            }
        }
        Ok(())
    }

    /// To be called after the last panel: waits for it.
    pub(crate) fn complete(&mut self) -> Result<()> {
        match self {
            Self::Host(panels) => panels.last_mut().map_or(Ok(()), |last| last.words.wait()),
            Self::Nothing | Self::Device(_) => Ok(()),
        }
    }

    /// Gives the panels to `f`, in order.
    pub(crate) fn each(&self, device: &Device, f: &mut dyn FnMut(&Panel) -> Result<()>) -> Result<()> {
        match self {
            Self::Nothing => Ok(()),
            Self::Device(panels) => panels.iter().try_for_each(f),
            Self::Host(panels) => {
                let longest = panels.iter().map(|panel| panel.bytes().len()).max().unwrap_or(0) as u64;
                let slot = || device.driver().staging(longest);
                // One slot is filled while the device may still read the other.
                let (mut slots, mut turn) = ([slot()?, slot()?], 0);
                panels.iter().try_for_each(|panel| {
                    let slot = &mut slots[turn];
                    turn = 1 - turn;
                    slot.bytes_mut()[..panel.bytes().len()].copy_from_slice(panel.bytes());
                    let shape = [panel.rows.end - panel.rows.start, panel.width];
                    f(&Panel {
                        rows: panel.rows.clone(),
                        held: Held::Packed(Tensor::from_staging(device, slot, &shape)?),
                        factors: panel.factors.clone(),
                        standards: Vec::new(),
                        missing: panel.missing,
                    })
                })
            }
        }
    }
}

impl HostPanel {
    fn bytes(&self) -> &[u8] {
        match &self.words {
            Words::Here(words) => bytemuck::cast_slice(words),
            Words::Coming(_) => &[],
        }
    }
}
