//! Writing of distances to files of other tools' formats.

use std::path::Path;

use teatime::{
    Error, Result,
    linalg::Matrix,
    store::{write_npy, write_whole},
};

#[cfg(feature = "zarr")]
use super::{DistanceOptions, VariantCounts};
use super::{Distances, DistancesBetween, OP, SampleNeighbors};
#[cfg(feature = "zarr")]
use crate::{
    SOURCE,
    square_store::{begin, write_pairs, write_squares},
};
use crate::{source::check_names, to_usize};

impl Distances {
    /// Writes a numpy file: (samples, samples) in little-endian f64.
    ///
    /// The file appears whole and replaces an existing one; the other functions do the same.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        write_npy(path, self.matrix.data(), [self.matrix.rows(), self.matrix.cols()])
    }

    /// Writes the matrix as PLINK's `--distance square bin` does: rows of little-endian f64, and nothing else.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_plink_binary(&self, path: impl AsRef<Path>) -> Result<()> {
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
    /// [`Error::Io`].
    pub fn write_plink(&self, path: impl AsRef<Path>, number: impl Fn(f64) -> String) -> Result<()> {
        let rows = (1..self.matrix.rows()).map(|row| &self.matrix.row(row)[..row]);
        write_whole(path, |file| {
            rows.into_iter().try_for_each(|row| writeln!(file, "{}", joined(row, &number)))
        })
    }

    /// Writes a table: a header line with `sample` and the samples' names, and a line
    /// for each sample, which starts with its name. `number` formats each distance.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample, without a tab or line break; [`Error::Io`].
    pub fn write_table(
        &self,
        path: impl AsRef<Path>,
        samples: &[impl AsRef<str>],
        number: impl Fn(f64) -> String,
    ) -> Result<()> {
        write_table(path.as_ref(), &self.matrix, [samples; 2], number)
    }

    /// Writes a Zarr v2 store at `path`, which must not exist: `distance` (`samples_0`, `samples_1`)
    /// in f64; if a call is missing, `shared_variants`, with the same axes in u32; and `sample_id`.
    ///
    /// The axes have sgkit's names, so that xarray opens the store. The store appears whole.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample; [`Error::Store`] if `path` exists; [`Error::Io`].
    #[cfg(feature = "zarr")]
    pub fn write_zarr(&self, path: impl AsRef<Path>, samples: &[impl AsRef<str>]) -> Result<()> {
        check_names(OP, samples, self.matrix.rows())?;
        let attributes = attributes(&self.options, &self.counts);
        write_squares(path.as_ref(), attributes, samples, ("distance", &self.matrix), self.shared.as_ref())
    }
}

impl DistancesBetween {
    /// Writes a numpy file: (samples, other samples) in little-endian f64.
    ///
    /// The file appears whole and replaces an existing one; the other functions do the same.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_npy(&self, path: impl AsRef<Path>) -> Result<()> {
        write_npy(path, self.matrix.data(), [self.matrix.rows(), self.matrix.cols()])
    }

    /// Writes a table: a header line with the names of the other samples after a first column, and a line for each sample, which
    /// starts with its name. `names` has the names of the samples and of the other samples; `number` formats each distance.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample and each of the others, without a tab or line break; [`Error::Io`].
    pub fn write_table(
        &self,
        path: impl AsRef<Path>,
        names: [&[impl AsRef<str>]; 2],
        number: impl Fn(f64) -> String,
    ) -> Result<()> {
        write_table(path.as_ref(), &self.matrix, names, number)
    }

    /// Writes a Zarr v2 store at `path`, which must not exist: `distance` (`samples`, `samples_with`) in f64; if a
    /// call is missing, `shared_variants`, with the same axes in u32; and the names, `sample_id` and `sample_id_with`.
    ///
    /// xarray opens the store. The store appears whole.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample and each of the others; [`Error::Store`] if `path` exists;
    /// [`Error::Io`].
    #[cfg(feature = "zarr")]
    pub fn write_zarr(&self, path: impl AsRef<Path>, [samples, with]: [&[impl AsRef<str>]; 2]) -> Result<()> {
        check_names(OP, samples, self.matrix.rows())?;
        check_names(OP, with, self.matrix.cols())?;
        let attributes = attributes(&self.options, &self.counts);
        let axes = ["samples", "samples_with"];
        let names = [("sample_id", axes[0], samples), ("sample_id_with", axes[1], with)];
        let matrix = ("distance", &self.matrix);
        write_pairs(path.as_ref(), attributes, &names, axes, matrix, self.shared.as_ref())
    }
}

impl SampleNeighbors {
    /// Writes two numpy files, both (samples, k): the distances in little-endian f64, and the indices of the neighbors, from 0, in i64.
    ///
    /// Each file appears whole and replaces an existing one; the other functions do the same.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn write_npy(&self, distances: impl AsRef<Path>, neighbors: impl AsRef<Path>) -> Result<()> {
        let matrix = &self.nearest.distances;
        let shape = [matrix.rows(), matrix.cols()];
        write_npy(distances, matrix.data(), shape)?;
        write_npy(neighbors, self.nearest.signed_indices(), shape)
    }

    /// Writes a table: a header line `sample`, `rank`, `neighbor` and `distance`, and a line for each neighbor of each
    /// sample; the nearest has rank 1. `with` has the names of the [others](Self::others); `number` formats each distance.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample and each of the others, without a tab or line break;
    /// [`Error::Io`].
    pub fn write_table<S: AsRef<str>>(
        &self,
        path: impl AsRef<Path>,
        samples: &[S],
        with: Option<&[S]>,
        number: impl Fn(f64) -> String,
    ) -> Result<()> {
        let matrix = &self.nearest.distances;
        let names = names_in_table(samples, matrix.rows())?;
        let others = match self.checked(with)? {
            Some(with) => names_in_table(with, with.len())?,
            None => names.clone(),
        };
        let rows = self.nearest.indices.chunks(matrix.cols()).enumerate();
        write_whole(path, |file| {
            writeln!(file, "sample\trank\tneighbor\tdistance")?;
            for (row, neighbors) in rows {
                for (at, (&neighbor, &distance)) in neighbors.iter().zip(matrix.row(row)).enumerate() {
                    let (name, neighbor) = (names[row], others[to_usize(neighbor)]);
                    writeln!(file, "{name}\t{}\t{neighbor}\t{}", at + 1, number(distance))?;
                }
            }
            Ok(())
        })
    }

    /// Returns the names of the other samples, checked.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each of the other samples, or no names if there are no other samples.
    fn checked<'a, S: AsRef<str>>(&self, with: Option<&'a [S]>) -> Result<Option<&'a [S]>> {
        check_names(OP, with.unwrap_or_default(), to_usize(self.others.unwrap_or_default()))?;
        Ok(with.filter(|_| self.others.is_some()))
    }

    /// Writes a Zarr v2 store at `path`, which must not exist: `neighbor` (`samples`, `neighbors`), the neighbors' indices from 0 in i64; `distance`,
    /// with the same axes in f64; `sample_id`; and for [others](Self::others), whose names are `with`, `sample_id_with`. The store appears whole.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample and each of the others; [`Error::Store`] if `path` exists;
    /// [`Error::Io`].
    #[cfg(feature = "zarr")]
    pub fn write_zarr<S: AsRef<str>>(
        &self,
        path: impl AsRef<Path>,
        samples: &[S],
        with: Option<&[S]>,
    ) -> Result<()> {
        let nearest = &self.nearest;
        check_names(OP, samples, nearest.distances.rows())?;
        let with = self.checked(with)?.map(|with| ("sample_id_with", "samples_with", with));
        let names: Vec<_> = [("sample_id", "samples", samples)].into_iter().chain(with).collect();
        let store = begin(path.as_ref(), attributes(&self.options, &self.counts), &names)?;
        let (distances, axes) = (&nearest.distances, ["samples", "neighbors"]);
        let shape = [distances.rows(), distances.cols()];
        store.put_matrix("neighbor", axes, nearest.signed_indices(), shape, |number| number)?;
        store.put_matrix("distance", axes, distances.data(), shape, |distance| distance)?;
        store.finish()
    }
}

/// Writes a table with the names of rows and columns.
///
/// # Errors
/// [`Error::Argument`] unless there is one name for each row and column, without a tab or line break; [`Error::Io`].
fn write_table<S: AsRef<str>>(
    path: &Path,
    matrix: &Matrix,
    [rows, columns]: [&[S]; 2],
    number: impl Fn(f64) -> String,
) -> Result<()> {
    let (rows, columns) = (names_in_table(rows, matrix.rows())?, names_in_table(columns, matrix.cols())?);
    write_whole(path, |file| {
        writeln!(file, "sample\t{}", columns.join("\t"))?;
        let mut rows = rows.iter().enumerate();
        rows.try_for_each(|(row, name)| writeln!(file, "{name}\t{}", joined(matrix.row(row), &number)))
    })
}

/// # Errors
/// [`Error::Argument`] unless there are `n` names, without a tab or line break.
fn names_in_table(samples: &[impl AsRef<str>], n: usize) -> Result<Vec<&str>> {
    check_names(OP, samples, n)?;
    let names: Vec<&str> = samples.iter().map(AsRef::as_ref).collect();
    if let Some(name) = names.iter().find(|name| name.contains(['\t', '\n', '\r'])) {
        return Err(Error::argument(OP, "samples", format_args!("{name:?} does not fit a table")));
    }
    Ok(names)
}

/// Returns the attributes of a Zarr store of distances.
#[cfg(feature = "zarr")]
pub(super) fn attributes(
    options: &DistanceOptions,
    counts: &VariantCounts,
) -> [(&'static str, serde_json::Value); 6] {
    [
        ("source", SOURCE.into()),
        ("metric", options.metric.name().into()),
        ("p", options.metric.exponent().into()),
        ("het_het", options.metric.het_het().into()),
        ("missing", options.missing_rule().name().into()),
        ("variants", counts.loaded().into()),
    ]
}

/// Joins formatted numbers with tabs.
fn joined(row: &[f64], number: impl Fn(f64) -> String) -> String {
    row.iter().map(|&value| number(value)).collect::<Vec<_>>().join("\t")
}
