//! Writing of distances to files of other tools' formats.

use std::path::Path;

#[cfg(feature = "zarr")]
use teatime::store::Attributes;
use teatime::{Error, Result, store::write_whole};

use super::{DistanceFacts, Distances, OP, SampleNeighbors};
#[cfg(feature = "zarr")]
use crate::{
    SOURCE,
    square_store::{begin, write_pairs},
};
use crate::{
    source::{Names, check_names},
    to_usize,
};

impl Distances {
    /// Writes the matrix as PLINK's `--distance square bin` does: rows of little-endian f64, and nothing else.
    ///
    /// The file appears whole and replaces an existing one; the other functions do the same.
    ///
    /// # Errors
    /// [`Error::Argument`] for the distances of two matrices; [`Error::Io`].
    pub fn write_plink_binary(&self, path: impl AsRef<Path>) -> Result<()> {
        self.check_plink()?;
        write_whole(path, |file| {
            (0..self.matrix.rows()).try_for_each(|row| {
                let bytes = self.matrix.row(row).iter().flat_map(|value| value.to_le_bytes());
                file.write_all(&bytes.collect::<Vec<u8>>())
            })
        })
    }

    /// Writes the lower triangle as PLINK's `--distance` does: a line for each sample but the first,
    /// with its distances from the samples before it, separated by tabs. `number` formats each distance.
    ///
    /// # Errors
    /// [`Error::Argument`] for the distances of two matrices; [`Error::Io`].
    pub fn write_plink(&self, path: impl AsRef<Path>, number: impl Fn(f64) -> String) -> Result<()> {
        self.check_plink()?;
        write_whole(path, |file| {
            (1..self.matrix.rows()).try_for_each(|row| {
                let before = self.matrix.row(row)[..row].iter().map(|&x| number(x));
                writeln!(file, "{}", before.collect::<Vec<_>>().join("\t"))
            })
        })
    }

    fn check_plink(&self) -> Result<()> {
        let why = "PLINK's files hold distances of samples from one another";
        self.facts.others.map_or(Ok(()), |_| Err(Error::argument(OP, "self", why)))
    }

    /// Writes a table: a header line with `sample` and the samples' names, or those of the other samples `with`, and a line
    /// for each sample, which starts with its name. `number` formats each distance.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample and each of the others, without a tab or line break; [`Error::Io`].
    pub fn write_table<S: AsRef<str>>(
        &self,
        path: impl AsRef<Path>,
        samples: &[S],
        with: Option<&[S]>,
        number: impl Fn(f64) -> String,
    ) -> Result<()> {
        let [names, columns] = self.facts.names_in_table(samples, with, self.matrix.rows())?;
        let header = format!("sample\t{}", columns.join("\t"));
        write_whole(path, |file| self.matrix.write_table(file, &header, names, |_, x| number(x)))
    }

    /// Writes a Zarr v2 store at `path`, which must not exist: `distance` (`samples_0`, `samples_1`)
    /// in f64; if a call is missing, `shared_variants`, with the same axes in u32; and `sample_id`. With other samples, whose names are `with`,
    /// the axes are (`samples`, `samples_with`), and `sample_id_with` has their names.
    ///
    /// The axes of one matrix have sgkit's names, so that xarray opens the store. The store appears whole.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample and each of the others; [`Error::Store`] if `path` exists; [`Error::Io`].
    #[cfg(feature = "zarr")]
    pub fn write_zarr<S: AsRef<str>>(
        &self,
        path: impl AsRef<Path>,
        samples: &[S],
        with: Option<&[S]>,
    ) -> Result<()> {
        let names = self.facts.names(samples, with, self.matrix.rows())?;
        let axes = if names.len() > 1 { ["samples", "samples_with"] } else { ["samples_0", "samples_1"] };
        let matrix = ("distance", &self.matrix);
        write_pairs(path.as_ref(), &attributes(&self.facts), &names, axes, matrix, self.shared.as_ref())
    }
}

impl DistanceFacts {
    /// Returns the arrays of names in a Zarr store, each with its axis: of the `n` samples, and of the other samples if there are others.
    fn names<'a, S: AsRef<str>>(
        &self,
        samples: &'a [S],
        with: Option<&'a [S]>,
        n: usize,
    ) -> Result<Vec<Names<'a, S>>> {
        check_names(OP, samples, n)?;
        check_names(OP, with.unwrap_or_default(), to_usize(self.others.unwrap_or_default()))?;
        let with = with.filter(|_| self.others.is_some());
        let with = with.map(|with| ("sample_id_with", "samples_with", with));
        Ok([("sample_id", "samples", samples)].into_iter().chain(with).collect())
    }

    /// Returns the names of the samples, and those of the samples that their distances are to.
    fn names_in_table<'a, S: AsRef<str>>(
        &self,
        samples: &'a [S],
        with: Option<&'a [S]>,
        n: usize,
    ) -> Result<[Vec<&'a str>; 2]> {
        let with = self.names(samples, with, n)?.last().map_or(samples, |(_, _, names)| names);
        let names = [samples, with].map(|names| names.iter().map(AsRef::as_ref).collect::<Vec<&str>>());
        if let Some(name) = names.iter().flatten().find(|name| name.contains(['\t', '\n', '\r'])) {
            return Err(Error::argument(OP, "samples", format_args!("{name:?} does not fit a table")));
        }
        Ok(names)
    }
}

impl SampleNeighbors {
    /// Writes a table: a header line `sample`, `rank`, `neighbor` and `distance`, and a line for each neighbor of each
    /// sample; the nearest has rank 1. `with` has the names of the [others](DistanceFacts::others); `number` formats each distance.
    ///
    /// The file appears whole and replaces an existing one.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample and each of the others, without a tab or line break; [`Error::Io`].
    pub fn write_table<S: AsRef<str>>(
        &self,
        path: impl AsRef<Path>,
        samples: &[S],
        with: Option<&[S]>,
        number: impl Fn(f64) -> String,
    ) -> Result<()> {
        let [names, others] = self.facts.names_in_table(samples, with, self.nearest.distances.rows())?;
        write_whole(path, |file| {
            self.nearest.write_table(file, "sample", [&|row| names[row], &|index| others[index]], number)
        })
    }

    /// Writes a Zarr v2 store at `path`, which must not exist: `neighbor` (`samples`, `neighbors`), the neighbors' indices from 0 in i64; `distance`,
    /// with the same axes in f64; `sample_id`; and for [others](DistanceFacts::others), whose names are `with`, `sample_id_with`. The store appears whole.
    ///
    /// # Errors
    /// Fails as [`Distances::write_zarr`] does.
    #[cfg(feature = "zarr")]
    pub fn write_zarr<S: AsRef<str>>(
        &self,
        path: impl AsRef<Path>,
        samples: &[S],
        with: Option<&[S]>,
    ) -> Result<()> {
        let names = self.facts.names(samples, with, self.nearest.distances.rows())?;
        let store = begin(path.as_ref(), &attributes(&self.facts), &names)?;
        self.nearest.write_zarr(&store, "samples")?;
        store.finish()
    }
}

#[cfg(feature = "zarr")]
pub(super) fn attributes(DistanceFacts { options, counts, .. }: &DistanceFacts) -> Attributes {
    let attributes = [
        ("source", SOURCE.into()),
        ("metric", options.metric.name().into()),
        ("p", options.metric.exponent().into()),
        ("het_het", options.metric.het_het().into()),
        ("missing", options.missing_rule().name().into()),
        ("variants", counts.loaded().into()),
    ];
    attributes.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}
