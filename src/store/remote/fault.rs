//! Faults of requests, and their messages.

use std::{
    error::Error,
    io::{self, ErrorKind},
};

use crate::store::redacted;

/// The reason why an object could not be read.
#[derive(Debug)]
pub(super) enum Fault {
    /// The request failed, after its retries.
    Request(object_store::Error),
    /// The body ended by an error.
    Body(object_store::Error),
    /// The body ended early.
    Short {
        got: usize,
        of: usize,
    },
    /// The object is another than it was before.
    Changed,
    /// The body is encoded.
    Encoded(String),
    /// The server sends no parts of an object.
    NoRanges,
    Memory,
}

impl Fault {
    /// True if the server sent the whole object in place of a part.
    pub(super) fn is_no_part(&self) -> bool {
        match self {
            Self::Request(object_store::Error::NotSupported { .. }) => true,
            Self::Request(error) => error.to_string().contains("non-partial response"),
            _ => false,
        }
    }

    pub(super) fn into_io(self) -> io::Error {
        let why = match &self {
            Self::Memory => return ErrorKind::OutOfMemory.into(),
            Self::NoRanges => {
                "the server sends no parts of files (HTTP ranges), which are needed here: copy it to a disk, or serve it by another server"
                    .to_owned()
            }
            Self::Request(error) => return io::Error::new(kind(error), told(error)),
            Self::Body(error) => format!("the answer broke off: {}", told(error)),
            Self::Short { got, of } => format!("the answer ended after {got} of {of} bytes"),
            Self::Changed => "changed while it was read: something else writes to it; run again".to_owned(),
            Self::Encoded(encoding) => {
                format!("is sent with Content-Encoding `{encoding}`, which is not undone: store it without")
            }
        };
        io::Error::other(why)
    }
}

fn kind(error: &object_store::Error) -> ErrorKind {
    match error {
        // Requests that are signed wrongly or late are answered so too, with other codes.
        object_store::Error::PermissionDenied { source, .. }
            if code(&source.to_string()).is_none_or(|code| code == "AccessDenied") =>
        {
            ErrorKind::PermissionDenied
        }
        _ => ErrorKind::Other,
    }
}

/// True if there is no such object; a bucket or container that does not exist is an error.
pub(super) fn is_absent(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::NotFound { source, .. }
        if !matches!(code(&source.to_string()), Some("NoSuchBucket" | "ContainerNotFound")))
}

/// Describes an error without secrets: no queries, and of a server's answer only the code, since some repeat credentials.
pub(super) fn told(error: &object_store::Error) -> String {
    let text = error.to_string();
    let text = text.split_once("Error performing ").map_or(&*text, |(_, request)| request);
    let code = code(text);
    let mut words = match text.split_once("status code: ") {
        Some((before, after)) => {
            format!("{before}status {}", after.split([':', '<']).next().unwrap_or_default())
        }
        None => text.split('<').next().unwrap_or_default().to_owned(),
    };
    words.extend(code.map(|code| format!(" ({code})")));
    let mut last: &dyn Error = error;
    while let Some(source) = last.source() {
        last = source;
    }
    let last = last.to_string();
    if !words.contains(&last) && !last.contains("status code: ") && !last.contains('<') {
        words = format!("{words}: {last}");
    }
    let hint = match error {
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            "; credentials are those of options, the environment or files of the cloud's program; for public data, the option \
             `skip_signature` (--anonymous) sends none"
                .to_owned()
        }
        _ if text.contains("redirect without LOCATION")
            || matches!(code, Some("PermanentRedirect" | "AuthorizationHeaderMalformed")) =>
        {
            let other = between(text, "<Region>").map_or_else(String::new, |region| format!(", {region}"));
            format!("; the bucket is in another region{other}: set the option `region` (--region), or leave it out")
        }
        _ => String::new(),
    };
    redacted(&(words + &hint))
}

/// Returns the code of an answer of S3, such as `AccessDenied`.
fn code(text: &str) -> Option<&str> {
    between(text, "<Code>").filter(|code| code.chars().all(|c| c.is_ascii_alphanumeric()))
}

fn between<'a>(text: &'a str, tag: &str) -> Option<&'a str> {
    text.split_once(tag)?.1.split('<').next()
}
