//! Kinds of work in a timeline.

/// The kind of work that a span of time was spent on, or of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// A part of the run that its program names.
    Phase,
    Fetch,
    Decode,
    /// Waiting for chunks.
    Chunks,
    Convert,
    /// Waiting until a staging slot may be filled.
    Slot,
    Upload,
    Compile,
    /// A kernel: on a thread within its launch, on a lane of a GPU by the GPU's times.
    Kernel,
    /// A launch of a kernel that is computed later, on a lane of its GPU.
    Enqueue,
    /// A launch of a kernel that is computed later, on a device that tells no times.
    Untimed,
    /// A copy that a GPU makes, on one of its lanes.
    Copy,
    /// Waiting for the device.
    Wait,
    Download,
    /// Algebra on the host.
    Host,
    /// Waiting for threads that write.
    Writers,
    Write,
    Flush,
    /// A number of bytes that are held.
    Bytes,
}

impl Stage {
    pub(super) const ALL: [Self; 19] = [
        Self::Phase,
        Self::Fetch,
        Self::Decode,
        Self::Chunks,
        Self::Convert,
        Self::Slot,
        Self::Upload,
        Self::Compile,
        Self::Kernel,
        Self::Enqueue,
        Self::Untimed,
        Self::Copy,
        Self::Wait,
        Self::Download,
        Self::Host,
        Self::Writers,
        Self::Write,
        Self::Flush,
        Self::Bytes,
    ];
    pub(super) const COUNT: usize = Self::ALL.len();

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Phase => "phase",
            Self::Fetch => "fetch",
            Self::Decode => "decode",
            Self::Chunks => "wait for chunks",
            Self::Convert => "convert",
            Self::Slot => "wait for staging",
            Self::Upload => "upload",
            Self::Compile => "compile",
            Self::Kernel => "kernel",
            Self::Enqueue => "enqueue",
            Self::Untimed => "enqueue untimed",
            Self::Copy => "copy",
            Self::Wait => "wait for device",
            Self::Download => "download",
            Self::Host => "host algebra",
            Self::Writers => "wait for writers",
            Self::Write => "write",
            Self::Flush => "flush",
            Self::Bytes => "bytes",
        }
    }

    /// True if the thread only waits.
    pub(super) const fn is_wait(self) -> bool {
        matches!(self, Self::Chunks | Self::Slot | Self::Wait | Self::Writers)
    }
}
