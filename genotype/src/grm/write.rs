//! Writing of relationship matrices to files of other tools' formats.

use std::{io::Write, path::Path};

use teatime::{Element, Error, Result, store::write_whole};

use super::{Grm, OP};
#[cfg(feature = "zarr")]
use crate::{SOURCE, square_store::write_pairs};
use crate::{bed::appended, source::check_names};

impl Grm {
    /// Writes GCTA's binary format, as plink2's `--make-grm-bin` does: `PREFIX.grm.bin`, the lower triangle with its diagonal row by row in
    /// little-endian f32; `PREFIX.grm.N.bin`, the number of variants of each entry in the same layout; and `PREFIX.grm.id`, a line for each
    /// sample with its family and its name, separated by a tab. Without `families` the family is 0, as plink2 writes it if none is known.
    ///
    /// Each file appears whole and replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name, and one family if any are given, for each
    /// sample, without white space, which separates the columns; [`Error::Io`].
    pub fn write_gcta<S: AsRef<str>>(
        &self,
        prefix: impl AsRef<Path>,
        families: Option<&[S]>,
        samples: &[S],
    ) -> Result<()> {
        check_names(OP, samples, self.matrix.rows())?;
        families.map_or(Ok(()), |families| check_names(OP, families, self.matrix.rows()))?;
        let splits = |name: &&str| name.is_empty() || name.contains(char::is_whitespace);
        let mut names = families.unwrap_or_default().iter().chain(samples).map(AsRef::as_ref);
        if let Some(name) = names.find(splits) {
            let why = format!("{name:?} is empty or holds white space, at which GCTA splits a line");
            return Err(Error::argument(OP, "samples", why));
        }
        let n = self.matrix.rows();
        let triangle = |file: &mut dyn Write, entry: &dyn Fn(usize, usize) -> f64| {
            (0..n).try_for_each(|j| {
                let row = (0..=j).flat_map(|k| entry(j, k).to_f32().to_le_bytes());
                file.write_all(&row.collect::<Vec<u8>>())
            })
        };
        let path = |suffix: &str| appended(prefix.as_ref(), suffix);
        write_whole(path(".grm.bin"), |file| triangle(file, &|j, k| self.matrix.row(j)[k]))?;
        write_whole(path(".grm.N.bin"), |file| triangle(file, &|j, k| self.variants(j, k)))?;
        write_whole(path(".grm.id"), |file| {
            samples.iter().enumerate().try_for_each(|(i, name)| {
                let family = families.map_or("0", |families| families[i].as_ref());
                writeln!(file, "{family}\t{}", name.as_ref())
            })
        })
    }

    /// Writes a Zarr v2 store at `path`, which must not exist: `genomic_relationship` (`samples_0`, `samples_1`) in f64;
    /// for [`MissingCalls::Pairwise`](super::MissingCalls) `shared_variants`, with the same axes in u32; and `sample_id`.
    ///
    /// The axes have sgkit's names, so that xarray opens the store. The store appears whole.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample; [`Error::Store`] if `path` exists; [`Error::Io`].
    #[cfg(feature = "zarr")]
    pub fn write_zarr(&self, path: impl AsRef<Path>, samples: &[impl AsRef<str>]) -> Result<()> {
        check_names(OP, samples, self.matrix.rows())?;
        let attributes = [
            ("source", SOURCE.into()),
            ("method", self.method.name().into()),
            ("missing", self.missing.name().into()),
            ("variants", self.counts.loaded().into()),
        ];
        let attributes = &attributes.map(|(name, value)| (String::from(name), value)).into_iter().collect();
        let (names, axes) = ([("sample_id", "samples", samples)], ["samples_0", "samples_1"]);
        let relationship = ("genomic_relationship", &self.matrix);
        write_pairs(path.as_ref(), attributes, &names, axes, relationship, self.shared.as_ref())
    }
}
