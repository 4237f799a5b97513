//! Results of samples as a Zarr v2 store: matrices of samples by samples, with the axes that sgkit names, or of samples by others, and
//! rows of samples.

use std::path::Path;

use serde_json::Value;
use teatime::{
    Result,
    linalg::Matrix,
    store::{ArraySpec, Attributes, Compression, NewStore, Shuffle, Storable, ZarrFormat},
};

use crate::to_usize;

/// Samples of one chunk along each axis.
const CHUNK: u64 = 1000;
/// Most elements of one chunk of rows.
const CHUNK_OF_ROWS: usize = 1 << 20;

/// Writes a store that appears whole: `sample_id`, a matrix in f64 under its name, and, where there are any, counts of variants as
/// `shared_variants` in u32. Takes memory for one chunk, at most 8 MB, and its compressed copy.
///
/// # Errors
/// [`Error::Store`](teatime::Error::Store) where `path` exists; [`Error::Io`](teatime::Error::Io).
pub(crate) fn write_squares(
    path: &Path,
    attributes: impl IntoIterator<Item = (&'static str, Value)>,
    samples: &[impl AsRef<str>],
    (name, matrix): (&str, &Matrix),
    shared: Option<&Matrix>,
) -> Result<()> {
    let names = [("sample_id", "samples", samples)];
    write_pairs(path, attributes, &names, ["samples_0", "samples_1"], (name, matrix), shared)
}

/// The same of a matrix with these axes, and of names each with an array and an axis of their own.
///
/// # Errors
/// As [`write_squares`].
pub(crate) fn write_pairs<S: AsRef<str>>(
    path: &Path,
    attributes: impl IntoIterator<Item = (&'static str, Value)>,
    names: &[Names<'_, S>],
    axes: [&str; 2],
    (name, matrix): (&str, &Matrix),
    shared: Option<&Matrix>,
) -> Result<()> {
    let store = begin(path, attributes, names)?;
    put_matrix(&store, name, axes, matrix, |entry| entry)?;
    if let Some(shared) = shared {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of variants")]
        put_matrix(&store, "shared_variants", axes, shared, |count| count as u32)?;
    }
    store.finish()
}

/// An array of names, its axis, and they.
pub(crate) type Names<'a, S> = (&'a str, &'a str, &'a [S]);

/// A store with names, which appears once it is finished.
///
/// # Errors
/// As [`write_squares`].
pub(crate) fn begin<S: AsRef<str>>(
    path: &Path,
    attributes: impl IntoIterator<Item = (&'static str, Value)>,
    names: &[Names<'_, S>],
) -> Result<NewStore> {
    let attributes: Attributes =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let store = NewStore::create(path, &attributes)?;
    for (array, axis, names) in names {
        let n = [names.len() as u64];
        let array = store.array(array, spec(ArraySpec::new(None, &n, &n), &[axis]))?;
        array.write_text(&[0], names.iter().map(AsRef::as_ref))?;
    }
    Ok(store)
}

/// Writes an array of rows with so many columns, in C order, in chunks of at most 8 MB or one row.
///
/// # Errors
/// [`Error::Io`](teatime::Error::Io).
pub(crate) fn put_rows<T: Storable>(
    store: &NewStore,
    name: &str,
    values: &[T],
    columns: usize,
    axes: &[&str],
) -> Result<()> {
    let rows = values.len() / columns;
    let of_chunk = (CHUNK_OF_ROWS / columns).clamp(1, rows.max(1));
    let (shape, chunk) = ([rows, columns].map(|n| n as u64), [of_chunk, columns].map(|n| n as u64));
    let mut spec = spec(ArraySpec::new(T::STORED, &shape, &chunk), axes);
    // xarray takes elements that are the fill value for missing ones.
    spec.fill = Value::Null;
    let array = store.array(name, spec)?;
    let mut chunks = values.chunks(of_chunk * columns).enumerate();
    chunks.try_for_each(|(at, values)| array.write(&[at as u64, 0], values))
}

/// Writes an array with these axes, each entry as `convert` has it.
fn put_matrix<T: Storable>(
    store: &NewStore,
    name: &str,
    axes: [&str; 2],
    matrix: &Matrix,
    convert: impl Fn(f64) -> T,
) -> Result<()> {
    let extents = [matrix.rows(), matrix.cols()];
    let shape = extents.map(|extent| extent as u64);
    let chunk = shape.map(|extent| CHUNK.min(extent));
    let array = store.array(name, spec(ArraySpec::new(T::STORED, &shape, &chunk), &axes))?;
    for tile in array.tiles() {
        let extent = array.extent(&tile);
        let range = |axis: usize| {
            let start = to_usize(tile[axis] * chunk[axis]);
            start..extents[axis].min(start + to_usize(extent[axis]))
        };
        let rows = range(0).flat_map(|row| &matrix.row(row)[range(1)]);
        array.write(&tile, &rows.map(|&entry| convert(entry)).collect::<Vec<T>>())?;
    }
    Ok(())
}

/// An array of such a store.
pub(crate) fn spec(mut spec: ArraySpec, axes: &[&str]) -> ArraySpec {
    spec.format = ZarrFormat::V2;
    // Digits that look random: a higher level takes longer and saves nothing.
    spec.compression = Compression::Blosc { level: 1, shuffle: Shuffle::Bytes };
    spec.axes = axes.iter().map(|&axis| axis.to_owned()).collect();
    spec
}
