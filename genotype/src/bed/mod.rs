//! Genotypes from PLINK 1 files: `.bed` with the `.bim` and `.fam` beside it.
//!
//! [`BedFile`] opens the three. Its [`array`](BedFile::array) gives the packed calls as they are stored, four samples a
//! byte, to be recoded where they are computed with; nothing is unpacked on the way. The `bed-reader` crate reads the
//! same files, but only as unpacked numbers, through a thread pool of its own, so the format, which has three bytes of
//! header, is read here.

mod array;
mod file;
mod text;

#[cfg(test)]
mod tests;

pub use file::{BedFile, BedOptions};
pub use text::Sample;
