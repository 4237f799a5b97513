//! The places where genotypes stay between passes.

use teatime::{Device, Result, packed::HostPanels};

use super::panel::{Held, Panel};

/// The place where genotypes stay between the passes of a job.
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
    /// Returns the place's name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
            Self::Store => "store",
        }
    }

    /// The bytes of a panel from the host's memory: the largest that CUDA downloads while other work goes on.
    pub(crate) const HOST_BYTES: u64 = 32 << 20;
    /// The minimum number of bytes of a panel from the store, unless a block of rows is longer.
    pub(crate) const LEAST_BYTES: u64 = 4 << 20;
}

/// The panels of the first pass that stayed in memory.
#[derive(Debug, Default)]
pub(crate) enum KeptPanels {
    #[default]
    Nothing,
    Device(Vec<Panel>),
    Host(HostPanels),
}

impl KeptPanels {
    /// Makes an empty collection for that place; `host_rows` rows of the host's panels are on the device at a time.
    pub(crate) fn new(residency: Residency, host_rows: u64) -> Self {
        match residency {
            Residency::Device => Self::Device(Vec::new()),
            Residency::Host => Self::Host(HostPanels::new(host_rows)),
            Residency::Store => Self::Nothing,
        }
    }

    /// Returns the place where the panels are.
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
            Self::Host(panels) => {
                if let Panel { rows, held: Held::Packed(packed), missing } = panel {
                    panels.push(rows, &packed, missing)?;
                }
            }
        }
        Ok(())
    }

    /// Waits for the last panel; to be called after it was pushed.
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
            Self::Host(panels) => panels.each(device, &mut |rows, packed, missing| {
                f(&Panel { rows, held: Held::Packed(packed), missing })
            }),
        }
    }
}
