//! A relationship matrix as a Zarr v2 store.

use std::path::Path;

use serde_json::json;
use teatime::{
    Result,
    linalg::Matrix,
    store::{ArraySpec, Attributes, Compression, NewStore, Shuffle, Storable, ZarrFormat},
};

use super::Grm;
use crate::SOURCE;

/// Samples of one chunk along each axis.
const CHUNK: u64 = 1000;

/// What [`Grm::write_zarr`] says, for one name per sample. Takes memory for one chunk, at most 8 MB, and its compressed
/// copy.
pub(super) fn write_relationship(path: &Path, grm: &Grm, samples: &[&str]) -> Result<()> {
    let attributes = [
        ("source", json!(SOURCE)),
        ("method", json!(grm.method.name())),
        ("missing", json!(grm.missing.name())),
        ("variants", json!(grm.counts.loaded())),
    ];
    let attributes: Attributes =
        attributes.map(|(name, value)| (name.to_owned(), value)).into_iter().collect();
    let store = NewStore::create(path, &attributes)?;
    let n = [samples.len() as u64];
    let names = store.array("sample_id", spec(ArraySpec::new(None, &n, &n), &["samples"]))?;
    names.write_text(&[0], samples.iter().copied())?;
    put_square(&store, "genomic_relationship", &grm.matrix, |entry| entry)?;
    if let Some(shared) = &grm.shared {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of variants")]
        put_square(&store, "shared_variants", shared, |count| count as u32)?;
    }
    store.finish()
}

/// Writes an array (`samples_0`, `samples_1`), each entry as `convert` has it.
fn put_square<T: Storable>(
    store: &NewStore,
    name: &str,
    matrix: &Matrix,
    convert: impl Fn(f64) -> T,
) -> Result<()> {
    let n = matrix.rows();
    let (shape, chunk) = ([n as u64; 2], [CHUNK.min(n as u64); 2]);
    let array =
        store.array(name, spec(ArraySpec::new(T::STORED, &shape, &chunk), &["samples_0", "samples_1"]))?;
    for tile in array.tiles() {
        let extent = array.extent(&tile);
        let range = |axis: usize| {
            let start = usize::try_from(tile[axis] * chunk[axis]).unwrap_or(n);
            start..n.min(start.saturating_add(usize::try_from(extent[axis]).unwrap_or(n)))
        };
        let rows = range(0).flat_map(|row| &matrix.row(row)[range(1)]);
        array.write(&tile, &rows.map(|&entry| convert(entry)).collect::<Vec<T>>())?;
    }
    Ok(())
}

fn spec(mut spec: ArraySpec, axes: &[&str]) -> ArraySpec {
    spec.format = ZarrFormat::V2;
    // Digits that look random: a higher level takes longer and saves nothing.
    spec.compression = Compression::Blosc { level: 1, shuffle: Shuffle::Bytes };
    spec.axes = axes.iter().map(|&axis| axis.to_owned()).collect();
    spec
}
