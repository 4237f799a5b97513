//! The reasons why a command fails.

use std::{fmt, path::Path};

use teatime::{Error, MemoryKind, plain};

use crate::{interrupt, text};

/// The end of a message on calls that must have one ploidy.
pub(crate) const PLOIDY_MISMATCH: &str = ", unless --ploidy-mismatch missing is given";

/// The reason why a command stopped.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Arguments that contradict each other.
    Usage(String),
    /// Any other error.
    Error(String),
    /// An error with several lines, none of which contains text from a file.
    Lines(String),
    /// Ctrl-C, or a signal that asks the process to terminate.
    Interrupted,
}

impl Failure {
    pub(crate) fn code(&self) -> u8 {
        match self {
            Self::Error(_) | Self::Lines(_) => 1,
            Self::Usage(_) => 2,
            Self::Interrupted => interrupt::code(),
        }
    }

    /// Returns a function for `map_err` that adds the path to an I/O error.
    pub(crate) fn io(path: &Path) -> impl Fn(std::io::Error) -> Self {
        move |error| Self::Error(format!("{}: {error}", path.display()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) => write!(f, "error: {}\n\nFor more information, try '--help'.", plain(why)),
            Self::Error(why) => write!(f, "error: {}", plain(why)),
            Self::Lines(why) => write!(f, "error: {why}"),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl From<Error> for Failure {
    /// Converts an error, with command-line options in place of argument names.
    fn from(mut error: Error) -> Self {
        if let Some(hint) = error.hint_mut()
            && let Some(words) = words(hint.option)
        {
            hint.words = words.into();
        }
        Self::Error(match &error {
            Error::Cancelled => return Self::Interrupted,
            Error::NoDevice { .. } | Error::Compile { .. } => return Self::Lines(error.to_string()),
            Error::Argument { name, why, .. } => match *name {
                "components" => format!("-k: {why}"),
                "k" => format!("--neighbors: {why}"),
                "device" | "devices" => format!("--device: {why}"),
                "radius" | "oversamples" | "max_passes" | "threads" | "tree" | "merge_alleles" | "metric" => {
                    format!("--{}: {why}", name.replace('_', "-"))
                }
                "genotypes" => why.to_string(),
                _ => error.to_string(),
            },
            Error::Shape { op: "Genotypes::new", expected, got } => format!("expected {expected}, got {got}"),
            Error::Budget { memory, what, budget, minimum, given } => {
                let (flag, share) = match memory {
                    MemoryKind::Device => ("--device-memory", "three quarters of the device's memory"),
                    MemoryKind::Host => ("--memory", "half of what is free"),
                };
                let default = if *given { String::new() } else { format!(", by default {share},") };
                let (budget, least) = (text::bytes(*budget), text::bytes(*minimum));
                let need = format!("this needs at least {least} ({flag} {minimum})");
                let what = what.as_ref().map_or_else(String::new, |what| format!(", for {what},"));
                format!("the {memory} budget{what} of {budget}{default} is too small: {need}")
            }
            Error::NoF64 { device, .. } => {
                format!("the array is of f64, and {device} computes in f32: --narrow, or another --device")
            }
            Error::OutOfMemory { .. } => format!("{error}; a lower --device-memory may help"),
            Error::OutOfHostMemory { .. } => format!("{error}; a lower --memory may help"),
            _ => error.to_string(),
        })
    }
}

/// Returns the words on the command-line option that stands for the library's option in a [`teatime::Hint`].
fn words(option: &str) -> Option<&'static str> {
    Some(match option {
        "array" => "; name the array to use with --array",
        "dtype" => ", as a result of --dtype f32 has",
        "nan_is_missing" => " unless --nan-missing is given",
        "missing" => " unless --missing-chunk fill is given: missing chunks then hold",
        "missing_mean" => "; --missing mean takes the mean of the column",
        "ploidy" => PLOIDY_MISMATCH,
        _ => return None,
    })
}
