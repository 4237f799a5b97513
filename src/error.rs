//! The one error type of the crate.

use std::{borrow::Cow, fmt};

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The memory that a budget applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryKind {
    /// The host's memory, including a device's if the device shares it.
    Host,
    /// A device's own memory.
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

/// An error with its cause: the argument, the numbers, and the file or chunk.
///
/// An error belongs to the call that returned it and leaves the device usable, except
/// [`Error::DeviceLost`], which every later call on that device returns again.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Shapes do not fit the operation or each other.
    Shape {
        /// The operation that was called.
        op: &'static str,
        /// A text on the shapes that the operation needs.
        expected: Box<str>,
        /// A text on the shapes that it was given.
        got: Box<str>,
    },
    /// An argument is outside its domain.
    Argument {
        /// The operation that was called.
        op: &'static str,
        /// The name of the argument.
        name: &'static str,
        /// A text on what is wrong with the argument, with its value.
        why: Box<str>,
    },
    /// A request can never fit this device, even if memory is freed.
    Limit {
        /// The limit, in words.
        what: &'static str,
        /// The requested amount.
        requested: u64,
        /// The maximum amount.
        max: u64,
    },
    /// A memory budget is too small for the smallest step of the work.
    Budget {
        /// The memory that the budget applies to.
        memory: MemoryKind,
        /// The object that must fit, if it is not obvious to a caller.
        what: Option<Cow<'static, str>>,
        /// The budget in bytes.
        budget: u64,
        /// The minimum budget in bytes.
        minimum: u64,
        /// True if the caller gave the budget, false if it is the default share of the available memory.
        given: bool,
    },
    /// The device has no room now; freeing something and trying again may work.
    OutOfMemory {
        /// The requested bytes; 0 if a driver needed memory for itself.
        requested: u64,
        /// The free bytes on the device, if it reports them.
        free: Option<u64>,
    },
    /// The host has no room now.
    OutOfHostMemory {
        /// The object that needed memory, such as a chunk of an array.
        what: Box<str>,
        /// The requested bytes.
        requested: u64,
    },
    /// A tensor, or memory, is on another device than the call's.
    WrongDevice {
        /// The operation that was called.
        op: &'static str,
        /// The name of the argument.
        name: &'static str,
        /// The names of the argument's device and of the call's device.
        devices: Box<[String; 2]>,
    },
    /// The operation computes in f64, the device only in f32, and f32 was not requested.
    NoF64 {
        /// The operation that was called.
        op: &'static str,
        /// The name of the device.
        device: Box<str>,
    },
    /// No device has that name, or the device is not usable.
    NoDevice {
        /// The requested name.
        wanted: Box<str>,
        /// The existing devices: the name of each, and its description or the reason why it is not usable.
        tried: Vec<(String, String)>,
    },
    /// A kernel has no source or function for the device's backend.
    NoSource {
        /// The name of the kernel.
        kernel: &'static str,
        /// The missing item: a source, or a function.
        what: &'static str,
        /// The name of the device.
        device: Box<str>,
    },
    /// A kernel did not compile. For an application's kernel, its source is wrong. Otherwise this crate or the device's compiler has a defect.
    Compile {
        /// The name of the kernel.
        kernel: &'static str,
        /// The backend that compiled it.
        backend: &'static str,
        /// The compiler's log, with the lines of the source around the first position in the log.
        log: Box<str>,
    },
    /// The device is gone (unplugged, or reset by its driver); every later call fails too.
    DeviceLost {
        /// The name of the device.
        device: Box<str>,
        /// The driver's reason.
        why: Box<str>,
    },
    /// A driver failed in another way.
    Driver {
        /// The backend of the driver.
        backend: &'static str,
        /// The driver's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A path is not a store, or its metadata cannot be used.
    Store {
        /// The path of the store, array or file.
        path: Box<str>,
        /// A text on what is wrong with it.
        why: Box<str>,
        /// An option that accepts it.
        hint: Option<Box<Hint>>,
    },
    /// A chunk is missing, damaged, oversized, or holds values out of range.
    Chunk {
        /// The path of the array.
        array: Box<str>,
        /// The index of the chunk in the chunk grid.
        index: Box<[u64]>,
        /// A text on what is wrong with the chunk.
        why: Box<str>,
        /// An option that accepts it.
        hint: Option<Box<Hint>>,
    },
    /// A file or folder cannot be read or written.
    Io {
        /// The path.
        path: Box<str>,
        /// The operating system's error.
        source: std::io::Error,
    },
    /// The caller's [`Cancel`](crate::Cancel) was set.
    Cancelled,
}

/// The part of a message that names an option of this library with which the refused data are accepted. A program may put words on an option
/// of its own in its place ([`Error::hint_mut`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// The name of the argument or option.
    pub option: &'static str,
    /// The words on the option, which continue the sentence on what is wrong.
    pub words: Cow<'static, str>,
    /// The end of the sentence.
    rest: Box<str>,
}

impl Hint {
    /// Creates a hint, which ends the sentence.
    pub fn new(option: &'static str, words: &'static str) -> Self {
        Self { option, words: words.into(), rest: Box::default() }
    }

    /// Adds text after the words on the option.
    #[must_use]
    pub fn followed_by(mut self, rest: impl fmt::Display) -> Self {
        self.rest = rest.to_string().into();
        self
    }
}

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.words, plain(&self.rest))
    }
}

impl Error {
    /// Creates an [`Error::Shape`] from values that implement `Display`.
    pub fn shape(op: &'static str, expected: impl fmt::Display, got: impl fmt::Display) -> Self {
        Self::Shape { op, expected: expected.to_string().into(), got: got.to_string().into() }
    }

    /// Creates an [`Error::Argument`] from values that implement `Display`.
    pub fn argument(op: &'static str, name: &'static str, why: impl fmt::Display) -> Self {
        Self::Argument { op, name, why: why.to_string().into() }
    }

    /// Creates an [`Error::WrongDevice`] for an argument on device `on` in a call on device `other`.
    pub fn wrong_device(
        op: &'static str,
        name: &'static str,
        on: impl fmt::Display,
        other: impl fmt::Display,
    ) -> Self {
        Self::WrongDevice { op, name, devices: [on.to_string(), other.to_string()].into() }
    }

    /// Creates an [`Error::Store`] from values that implement `Display`.
    pub fn store(path: impl fmt::Display, why: impl fmt::Display) -> Self {
        Self::Store { path: path.to_string().into(), why: why.to_string().into(), hint: None }
    }

    /// Creates an [`Error::Io`] for a path that implements `Display`.
    pub fn io(path: impl fmt::Display, source: std::io::Error) -> Self {
        Self::Io { path: path.to_string().into(), source }
    }

    /// Creates an [`Error::Chunk`] from values that implement `Display`.
    pub fn chunk(array: impl fmt::Display, index: &[u64], why: impl fmt::Display) -> Self {
        let (array, why) = (array.to_string().into(), why.to_string().into());
        Self::Chunk { array, index: index.into(), why, hint: None }
    }

    /// Returns the error with a hint, if it is an [`Error::Store`] or [`Error::Chunk`].
    #[must_use]
    pub fn hinting(mut self, hint: impl Into<Option<Hint>>) -> Self {
        if let Self::Store { hint: own, .. } | Self::Chunk { hint: own, .. } = &mut self {
            *own = hint.into().map(Box::new);
        }
        self
    }

    /// Returns the hint of an [`Error::Store`] or [`Error::Chunk`], for a program that replaces its words.
    pub fn hint_mut(&mut self) -> Option<&mut Hint> {
        match self {
            Self::Store { hint, .. } | Self::Chunk { hint, .. } => hint.as_deref_mut(),
            _ => None,
        }
    }
}

/// The maximum number of characters of a text in messages: a page.
const PAGE: usize = 3000;

/// Returns the text of a file, such as a name, in the form that messages show: characters that control terminals or break lines are escaped as
/// in JSON, and text beyond a page of 3000 characters is cut.
///
/// ```
/// assert_eq!(teatime::plain("a name\nerror: none\u{1b}[2J"), r"a name\u000aerror: none\u001b[2J");
/// ```
pub fn plain(text: &str) -> Cow<'_, str> {
    // Unicode has further characters that end lines or change the direction of text.
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
    /// Returns the error with the lower minimum, if both are budget errors for the same memory from two ways to the same result. Otherwise
    /// returns `self`.
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
    /// Writes one line, with text of files as [`plain`] text. Lists of devices, and messages of compilers and drivers, take more lines.
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
                let what = what.as_ref().map_or_else(String::new, |what| format!(", for {what},"));
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
            Self::Store { path, why, hint } => {
                write!(f, "{}: {}", plain(path), plain(why))?;
                hint.iter().try_for_each(|hint| write!(f, "{hint}"))
            }
            Self::Chunk { array, index, why, hint } => {
                write!(f, "{}: chunk {index:?}: {}", plain(array), plain(why))?;
                hint.iter().try_for_each(|hint| write!(f, "{hint}"))
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
