//! Files of results, each whole or not there.

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
};

use teatime::{Error, Result, linalg::Matrix};

/// Writes a matrix as a numpy file, in little-endian f64.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn write_npy(path: &Path, matrix: &Matrix) -> Result<()> {
    write_npy_of(path, "<f8", [matrix.rows(), matrix.cols()], |file| write_rows(file, matrix))
}

/// Writes a numpy file of another type, whose elements `fill` writes in C order.
///
/// # Errors
/// [`Error::Io`].
pub(crate) fn write_npy_of(
    path: &Path,
    descr: &str,
    [rows, cols]: [usize; 2],
    fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    let entries = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
    write_whole(path, |file| {
        // The data begin at a multiple of 64 bytes, after the header and a line feed: at 128, for any extents.
        file.write_all(b"\x93NUMPY\x01\x00")?;
        file.write_all(&118u16.to_le_bytes())?;
        writeln!(file, "{entries:<117}")?;
        fill(file)
    })
}

/// Writes the rows of a matrix, in little-endian f64.
pub(crate) fn write_rows(file: &mut dyn Write, matrix: &Matrix) -> std::io::Result<()> {
    (0..matrix.rows()).try_for_each(|row| {
        let bytes: Vec<u8> = matrix.row(row).iter().flat_map(|value| value.to_le_bytes()).collect();
        file.write_all(&bytes)
    })
}

/// Writes a file under another name in its folder, and gives it its own when it is whole.
pub(crate) fn write_whole(
    path: &Path,
    fill: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> Result<()> {
    let mut hidden = OsString::from(".");
    hidden.push(path.file_name().unwrap_or_default());
    hidden.push(format!(".partial-{}", std::process::id()));
    let scratch = path.with_file_name(hidden);
    let written = File::create(&scratch).and_then(|file| {
        let mut file = BufWriter::new(file);
        fill(&mut file)?;
        file.flush()?;
        fs::rename(&scratch, path)
    });
    written.map_err(|source| {
        // What is left of it is worth nothing, and the first error says more.
        fs::remove_file(&scratch).ok();
        Error::Io { path: path.display().to_string().into(), source }
    })
}
