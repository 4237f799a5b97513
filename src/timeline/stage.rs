//! Kinds of work in a timeline.

macro_rules! stages {
    ($($(#[$about:meta])* $stage:ident $name:literal,)*) => {
        /// The kind of work that a span of time was spent on, or of a value.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub(crate) enum Stage {
            $($(#[$about])* $stage,)*
        }

        impl Stage {
            pub(super) const ALL: &[Self] = &[$(Self::$stage),*];
            pub(super) const COUNT: usize = Self::ALL.len();

            pub(super) const fn name(self) -> &'static str {
                match self {
                    $(Self::$stage => $name,)*
                }
            }
        }
    };
}

stages! {
    /// A part of the run that its program names.
    Phase "phase",
    Fetch "fetch",
    Decode "decode",
    Chunks "wait for chunks",
    Convert "convert",
    /// Waiting until a staging slot may be filled.
    Slot "wait for staging",
    Upload "upload",
    Compile "compile",
    /// A kernel: on a thread within its launch, on a lane of a GPU by the GPU's times.
    Kernel "kernel",
    /// A launch of a kernel that is computed later, on a lane of its GPU.
    Enqueue "enqueue",
    /// A launch of a kernel that is computed later, on a device that tells no times.
    Untimed "enqueue untimed",
    /// A copy that a GPU makes, on one of its lanes.
    Copy "copy",
    Wait "wait for device",
    Download "download",
    Host "host algebra",
    /// Waiting for threads that write.
    Writers "wait for writers",
    Write "write",
    Flush "flush",
    /// A number of bytes that are held.
    Bytes "bytes",
}

impl Stage {
    /// True if the thread only waits.
    pub(super) const fn is_wait(self) -> bool {
        matches!(self, Self::Chunks | Self::Slot | Self::Wait | Self::Writers)
    }
}
