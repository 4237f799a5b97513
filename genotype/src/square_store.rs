//! Writing of results for samples to a Zarr v2 store: matrices of samples by samples, with sgkit's
//! axis names, or of samples by others, and rows of samples.

use std::path::Path;

use teatime::{
    Result,
    linalg::Matrix,
    store::{ArraySpec, Attributes, NewStore},
};

use super::source::Names;

/// Writes a store that appears whole: names, each with an array and an axis of its own; a matrix in f64 under its name, with the given axes;
/// and, if there are any, counts of variants as `shared_variants` in u32. Takes memory for one chunk, at most 8 MB, and its compressed copy.
pub(crate) fn write_pairs<S: AsRef<str>>(
    path: &Path,
    attributes: &Attributes,
    names: &[Names<'_, S>],
    axes: [&str; 2],
    (name, matrix): (&str, &Matrix),
    shared: Option<&Matrix>,
) -> Result<()> {
    let store = begin(path, attributes, names)?;
    store.put_matrix(name, axes, matrix.data(), [matrix.rows(), matrix.cols()], |entry| entry)?;
    if let Some(shared) = shared {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of variants")]
        let number = |count: f64| count as u32;
        store.put_matrix("shared_variants", axes, shared.data(), [shared.rows(), shared.cols()], number)?;
    }
    store.finish()
}

pub(crate) fn begin<S: AsRef<str>>(
    path: &Path,
    attributes: &Attributes,
    names: &[Names<'_, S>],
) -> Result<NewStore> {
    let store = NewStore::create(path, attributes)?;
    for (array, axis, names) in names {
        let n = [names.len() as u64];
        let array = store.array(array, ArraySpec::new(None, &n, &n).of_results(&[axis]))?;
        array.write_text(&[0], names.iter().map(AsRef::as_ref))?;
    }
    Ok(store)
}
