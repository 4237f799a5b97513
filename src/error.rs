//! The one error type of the crate.

use std::{borrow::Cow, fmt};

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The memory that a budget is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The host's, and the device's where it is the host's.
    Host,
    /// A device's own.
    Device,
}

impl fmt::Display for MemoryKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host => "memory",
            Self::Device => "device memory",
        })
    }
}

/// An error, which tells what went wrong, with the argument, the numbers, and the file or chunk.
///
/// An error belongs to the call that returned it and leaves the device usable, except
/// [`Error::DeviceLost`], which every later call on that device returns again.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Shapes that do not fit the operation or each other.
    Shape {
        /// Operation that was called.
        op: &'static str,
        /// A text that says what the operation needs.
        expected: Box<str>,
        /// A text that says what it was given.
        got: Box<str>,
    },
    /// An argument outside its domain.
    Argument {
        /// Operation that was called.
        op: &'static str,
        /// Name of the argument.
        name: &'static str,
        /// A text that says what is wrong with it, with its value.
        why: Box<str>,
    },
    /// A request that can never fit this device, whatever is freed.
    Limit {
        /// The limit, in words.
        what: &'static str,
        /// Amount asked for.
        requested: u64,
        /// The maximum that is possible.
        max: u64,
    },
    /// A memory budget too small for the smallest step of the work.
    Budget {
        /// The memory that the budget is of.
        memory: MemoryKind,
        /// The thing that has to fit, where a caller would not expect it.
        what: Option<&'static str>,
        /// The budget in bytes.
        budget: u64,
        /// The least that would do, in bytes.
        minimum: u64,
        /// True where the caller gave the budget; else it is the default share of the memory that there is.
        given: bool,
    },
    /// The device has no room now; freeing something and trying again may work.
    OutOfMemory {
        /// Bytes asked for; 0 where a driver needed them for itself.
        requested: u64,
        /// Bytes free on the device, where it says so.
        free: Option<u64>,
    },
    /// The host has no room now.
    OutOfHostMemory {
        /// The thing that needed it, such as a chunk of an array.
        what: Box<str>,
        /// Bytes asked for.
        requested: u64,
    },
    /// A tensor, or memory, of another device than that of the call.
    WrongDevice {
        /// Operation that was called.
        op: &'static str,
        /// Name of the argument.
        name: &'static str,
        /// Names of the device that it is on and of the call's.
        devices: Box<[String; 2]>,
    },
    /// An operation that computes in f64, on a device that computes in f32, where f32 was not asked for.
    NoF64 {
        /// Operation that was called.
        op: &'static str,
        /// Name of the device.
        device: Box<str>,
    },
    /// No device of that name, or one that does not do.
    NoDevice {
        /// The name that was asked for.
        wanted: Box<str>,
        /// The devices that there are: the name of each, and its description or the reason why it does not do.
        tried: Vec<(String, String)>,
    },
    /// A kernel has nothing that a device could run.
    NoSource {
        /// Name of the kernel.
        kernel: &'static str,
        /// The thing that it lacks: a source, or a function.
        what: &'static str,
        /// Name of the device.
        device: Box<str>,
    },
    /// A kernel did not compile: of an application's own its source, else a defect of this crate or of the device's compiler.
    Compile {
        /// Name of the kernel.
        kernel: &'static str,
        /// Backend that compiled it.
        backend: &'static str,
        /// Compiler's log with the lines of the source around the first place that it names.
        log: Box<str>,
    },
    /// The device is gone (unplugged, reset by its driver); every later call fails too.
    DeviceLost {
        /// Name of the device.
        device: Box<str>,
        /// The driver's reason.
        why: Box<str>,
    },
    /// Any other failure of a driver.
    Driver {
        /// Backend it happened in.
        backend: &'static str,
        /// The driver's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A path that is not a store, or metadata that cannot be used.
    Store {
        /// Path of the store, array or file.
        path: Box<str>,
        /// A text that says what is wrong with it.
        why: Box<str>,
    },
    /// One chunk that is missing, damaged, oversized, or holds values out of range.
    Chunk {
        /// Path of the array.
        array: Box<str>,
        /// Index of the chunk in the chunk grid.
        index: Box<[u64]>,
        /// A text that says what is wrong with it.
        why: Box<str>,
    },
    /// A file or folder that cannot be read or written.
    Io {
        /// The path.
        path: Box<str>,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The caller's [`Cancel`](crate::Cancel) was set.
    Cancelled,
}

impl Error {
    /// An [`Error::Shape`] from anything that displays.
    pub fn shape(op: &'static str, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self::Shape { op, expected: expected.to_string().into(), got: got.to_string().into() }
    }

    /// An [`Error::Argument`] from anything that displays.
    pub fn argument(op: &'static str, name: &'static str, why: impl fmt::Display) -> Self {
        Self::Argument { op, name, why: why.to_string().into() }
    }

    /// An [`Error::WrongDevice`] of an argument on a device in a call on another.
    pub fn wrong_device(
        op: &'static str,
        name: &'static str,
        on: impl fmt::Display,
        other: impl fmt::Display,
    ) -> Self {
        Self::WrongDevice { op, name, devices: [on.to_string(), other.to_string()].into() }
    }

    /// An [`Error::Store`] from anything that displays.
    pub fn store(path: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Store { path: path.to_string().into(), why: why.to_string().into() }
    }

    /// An [`Error::Io`] of a path that displays.
    pub fn io(path: impl fmt::Display, source: std::io::Error) -> Self {
        Self::Io { path: path.to_string().into(), source }
    }

    /// An [`Error::Chunk`] from anything that displays.
    pub fn chunk(array: impl fmt::Display, index: &[u64], why: impl fmt::Display) -> Self {
        Self::Chunk { array: array.to_string().into(), index: index.into(), why: why.to_string().into() }
    }
}

/// The maximum number of characters that messages show of a text: a page.
const PAGE: usize = 3000;

/// Text of a file, such as a name, as messages show it: characters that act on terminals, or would begin another line, are escaped as in
/// JSON, and what is longer than a page of 3000 characters is cut.
///
/// ```
/// assert_eq!(teatime::plain("a name\nerror: none\u{1b}[2J"), r"a name\u000aerror: none\u001b[2J");
/// ```
pub fn plain(text: &str) -> Cow<'_, str> {
    // Unicode has more that end lines, or turn the direction of what follows.
    let acts = |c: char| c.is_control() || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let end = text.char_indices().nth(PAGE).map(|(end, _)| end);
    if end.is_none() && !text.contains(acts) {
        return text.into();
    }
    let mut shown = String::new();
    for c in text[..end.unwrap_or(text.len())].chars() {
        if acts(c) { shown += &format!("\\u{:04x}", u32::from(c)) } else { shown.push(c) }
    }
    if end.is_some() {
        shown += " ...";
    }
    shown.into()
}

impl Error {
    /// The error of the way that needs less, of two ways to the same result that both failed for want of a budget of the same memory; else
    /// `self`.
    #[must_use]
    pub fn or_of_less_memory(self, other: Self) -> Self {
        match (&self, &other) {
            (
                Self::Budget { memory, minimum, .. },
                Self::Budget { memory: other_memory, minimum: less, .. },
            ) if memory == other_memory && less < minimum => other,
            _ => self,
        }
    }
}

impl fmt::Display for Error {
    /// Text of files, as [`plain`] text: a line, but for lists of devices and what compilers and drivers say.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shape { op, expected, got } => {
                write!(f, "{op}: expected {}, got {}", plain(expected), plain(got))
            }
            Self::Argument { op, name, why } => write!(f, "{op}: `{name}`: {}", plain(why)),
            Self::Limit { what, requested, max } => {
                write!(f, "{what}: {requested} requested, and this device allows at most {max}")
            }
            Self::Budget { memory, what, budget, minimum, given } => {
                let default = if *given { "" } else { "default " };
                let what = what.map_or_else(String::new, |what| format!(", for {what},"));
                write!(
                    f,
                    "the {default}{memory} budget{what} of {budget} bytes is too small: this work needs at least {minimum} bytes"
                )
            }
            Self::OutOfMemory { requested, free } => {
                write!(f, "out of device memory: {requested} bytes requested")?;
                free.map_or(Ok(()), |free| write!(f, ", {free} free"))
            }
            Self::OutOfHostMemory { what, requested } => {
                write!(f, "{}: out of memory: {requested} bytes requested", plain(what))
            }
            Self::WrongDevice { op, name, devices } => {
                let [on, other] = &**devices;
                let apart = if on == other { ", which was opened with other options" } else { "" };
                write!(f, "{op}: `{name}` is on device {on}, not on the call's device, {other}{apart}")
            }
            Self::NoF64 { op, device } => write!(
                f,
                "{op}: this is computed in f64, and {device} computes in f32: ask for f32, with the option `narrow` or by `Tensor::to_f32`, or take a cpu or cuda device"
            ),
            Self::NoDevice { wanted, tried } => {
                write!(f, "no device `{}`; there are", plain(wanted))?;
                for (name, why) in tried {
                    write!(f, "\n  {}: {}", plain(name), plain(why))?;
                }
                Ok(())
            }
            Self::NoSource { kernel, what, device } => {
                write!(f, "kernel {kernel} has no {what}, which device {device} needs")
            }
            Self::Compile { kernel, backend, log } => {
                write!(f, "kernel {kernel} does not compile for {backend}:\n{log}")
            }
            Self::DeviceLost { device, why } => write!(f, "device {device} is lost: {why}"),
            Self::Driver { backend, source } => write!(f, "{backend}: {source}"),
            Self::Store { path, why } => write!(f, "{}: {}", plain(path), plain(why)),
            Self::Chunk { array, index, why } => {
                write!(f, "{}: chunk {index:?}: {}", plain(array), plain(why))
            }
            Self::Io { path, source } => write!(f, "{}: {}", plain(path), plain(&source.to_string())),
            Self::Cancelled => f.write_str("cancelled"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Driver { source, .. } => Some(source.as_ref()),
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_small_and_sendable() {
        fn sendable<T: Send + Sync>() {}
        sendable::<Error>();
        assert!(size_of::<Error>() <= 64, "Error has {} bytes", size_of::<Error>());
    }
}
