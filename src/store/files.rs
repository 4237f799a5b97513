//! Files, read from any place on, and written whole or not at all.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// Writes a file that appears whole: `fill` is given one of another name in the same folder, which then takes the name `path`, and the place
/// of a file that was there.
///
/// # Errors
/// [`Error::Io`], and no file is left of this one.
pub fn write_whole(
    path: impl AsRef<Path>,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    let scratch = hidden(path);
    let written = File::create(&scratch).and_then(|file| {
        let mut file = BufWriter::new(file);
        fill(&mut file)?;
        file.flush()?;
        fs::rename(&scratch, path)
    });
    written.map_err(|source| {
        // The rest of it is worth nothing, and the first error says more.
        fs::remove_file(&scratch).ok();
        Error::io(path.display(), source)
    })
}

/// Another name in a file's folder, until the file is whole.
pub(super) fn hidden(path: &Path) -> PathBuf {
    let mut hidden = OsString::from(".");
    hidden.push(path.file_name().unwrap_or_default());
    hidden.push(format!(".partial-{}", std::process::id()));
    path.with_file_name(hidden)
}

/// Writes all bytes from a place of a file on.
#[cfg(unix)]
pub(super) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// Writes all bytes from a place of a file on.
#[cfg(windows)]
pub(super) fn write_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => {
                bytes = &bytes[written..];
                offset += written as u64;
            }
        }
    }
    Ok(())
}

/// Fills `out` with what a file has from a place on.
///
/// # Errors
/// Any error that the system reports; [`io::ErrorKind::UnexpectedEof`] where the file ends before.
#[cfg(unix)]
pub fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

/// Fills `out` with what a file has from a place on.
///
/// # Errors
/// Any error that the system reports; [`io::ErrorKind::UnexpectedEof`] where the file ends before.
#[cfg(windows)]
pub fn read_at(file: &File, mut out: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => {
                out = &mut out[read..];
                offset += read as u64;
            }
        }
    }
    Ok(())
}
