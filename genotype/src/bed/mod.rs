//! Genotypes from PLINK 1 files: `.bed` with the `.bim` and `.fam` next to it.
//!
//! [`BedFile`] opens the three files. Its [`array`](BedFile::array) gives the packed calls as they are stored, four samples
//! a byte; the device recodes them, and nothing is unpacked on the way. The `bed-reader` crate reads the same files, but
//! unpacks every call, on a thread pool of its own. So the format, which has a header of three bytes, is read here.

mod array;
mod file;
mod text;

#[cfg(test)]
mod tests;

pub(crate) use file::appended;
pub use file::{BedFile, BedOptions};
pub use text::Sample;
pub(crate) use text::open;
