//! Matrices of samples by samples as a Zarr v2 store, with the axes that sgkit names, or of samples by others.

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
    names: &[(&str, &str, &[S])],
    axes: [&str; 2],
    (name, matrix): (&str, &Matrix),
    shared: Option<&Matrix>,
) -> Result<()> {
    let attributes: Attributes =
        attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let store = NewStore::create(path, &attributes)?;
    for (array, axis, names) in names {
        let n = [names.len() as u64];
        let array = store.array(array, spec(ArraySpec::new(None, &n, &n), &[axis]))?;
        array.write_text(&[0], names.iter().map(AsRef::as_ref))?;
    }
    put_matrix(&store, name, axes, matrix, |entry| entry)?;
    if let Some(shared) = shared {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of variants")]
        put_matrix(&store, "shared_variants", axes, shared, |count| count as u32)?;
    }
    store.finish()
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
