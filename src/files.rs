//! Files that are read from any offset, and written completely or not at all.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

use crate::{Error, Result};

/// Writes a file that appears as a whole: `fill` writes to a temporary file in the same folder, which is then renamed to `path` and
/// replaces an existing file. What is no file, such as a pipe or a device, is written directly.
///
/// # Errors
/// [`Error::Io`]; the temporary file is then removed.
pub fn write_whole(
    path: impl AsRef<Path>,
    fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    // A link stays, such as one of /dev, and the file that it names is replaced.
    let path = &fs::canonicalize(path.as_ref()).unwrap_or_else(|_| path.as_ref().to_path_buf());
    let write = |file: File| {
        let mut file = BufWriter::new(file);
        fill(&mut file)?;
        file.flush()
    };
    if path.metadata().is_ok_and(|there| !there.is_file() && !there.is_dir()) {
        let written = File::options().write(true).open(path).and_then(write);
        return written.map_err(|source| Error::io(path.display(), source));
    }
    let scratch = hidden(path);
    let written = File::create(&scratch).and_then(write).and_then(|()| fs::rename(&scratch, path));
    written.map_err(|source| {
        // The partial file is useless, and the first error is more informative.
        fs::remove_file(&scratch).ok();
        Error::io(path.display(), source)
    })
}

/// Returns the hidden temporary name, in the file's folder, for a file that is not complete yet.
pub(crate) fn hidden(path: &Path) -> PathBuf {
    let mut hidden = OsString::from(".");
    hidden.push(path.file_name().unwrap_or_default());
    hidden.push(format!(".partial-{}", std::process::id()));
    path.with_file_name(hidden)
}

/// Writes all bytes to a file, starting at `offset`.
#[cfg(unix)]
pub(crate) fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

/// Writes all bytes to a file, starting at `offset`.
#[cfg(windows)]
pub(crate) fn write_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
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

/// Fills `out` with the bytes of a file, starting at `offset`.
///
/// # Errors
/// Any error that the system reports; [`io::ErrorKind::UnexpectedEof`] if the file is too short.
#[cfg(unix)]
pub fn read_at(file: &File, out: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

/// Fills `out` with the bytes of a file, starting at `offset`.
///
/// # Errors
/// Any error that the system reports; [`io::ErrorKind::UnexpectedEof`] if the file is too short.
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

/// Makes the system read bytes of a file ahead, from `offset` on, if it can: what is read soon is then there.
#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "no safe call advises of a file")]
pub(crate) fn read_ahead(file: &File, offset: u64, bytes: u64) {
    use std::os::fd::AsRawFd;
    if let (Ok(offset), Ok(bytes)) = (offset.try_into(), bytes.try_into()) {
        // SAFETY: the call gets no pointers, and the file is open. If the advice is refused, bytes are read when they are asked for.
        unsafe { libc::posix_fadvise(file.as_raw_fd(), offset, bytes, libc::POSIX_FADV_WILLNEED) };
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn read_ahead(_: &File, _: u64, _: u64) {}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_and_its_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let [file, link] = ["file", "link"].map(|name| folder.path().join(name));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_whole(&link, |out| out.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"new");
        assert!(link.is_symlink() && fs::read_dir(&folder).unwrap().count() == 2);
    }
}
