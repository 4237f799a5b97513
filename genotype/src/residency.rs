//! The places where genotypes stay between passes.

/// The place where genotypes stay between the passes of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Residency {
    /// The data stay on the device: later passes read neither the store nor the host's memory.
    Device,
    /// Packed rows stay in the host's memory, from where each later pass uploads them.
    Host,
    /// The data stay in the store, which each pass reads and decodes again.
    Store,
}

teatime::names! { Residency { Device = "device", Host = "host", Store = "store" } }

impl Residency {
    /// The bytes of a panel from the host's memory: the largest that CUDA downloads while other work goes on.
    pub(crate) const HOST_BYTES: u64 = 32 << 20;
    /// The minimum number of bytes of a panel from the store, unless a block of rows is longer.
    pub(crate) const LEAST_BYTES: u64 = 4 << 20;
}
