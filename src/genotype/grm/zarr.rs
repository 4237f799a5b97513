//! Writing a relationship matrix as a Zarr v2 store.

use std::path::Path;

use serde_json::{Value, json};
use zarrs::array::codec::{BloscCompressionLevel, BloscShuffleMode};

use super::Grm;
use crate::{
    Error, Result,
    linalg::Matrix,
    store::zarr::{BYTES, Layout, SOURCE, StoreFolder},
};

/// Samples of one chunk along each axis.
const CHUNK: usize = 1000;

/// What [`Grm::write_zarr`] says, for one name per sample. Takes memory for one chunk, at most 8 MB, and its compressed
/// copy.
pub(super) fn write_relationship(path: &Path, grm: &Grm, samples: &[&str]) -> Result<()> {
    // Digits that look random: a higher level takes longer and saves nothing.
    let level =
        BloscCompressionLevel::try_from(1).map_err(|why| Error::argument("write_zarr", "level", why))?;
    let folder = StoreFolder::create(path, level)?;
    folder.root(&json!({
        "source": SOURCE,
        "method": grm.method.name(),
        "missing": grm.missing.name(),
        "variants": grm.counts.loaded(),
    }))?;
    let n = samples.len() as u64;
    let text = Layout {
        name: "sample_id",
        dtype: "|O",
        shape: &[n],
        chunks: &[n],
        axes: &["samples"],
        fill: json!(""),
        shuffle: BYTES,
    };
    folder.declare(&text)?;
    folder.put_text("sample_id/0", samples.iter().copied(), samples.len())?;
    put_square(&folder, "genomic_relationship", "<f8", &grm.matrix, f64::to_le_bytes)?;
    if let Some(shared) = &grm.shared {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of variants")]
        put_square(&folder, "shared_variants", "<u4", shared, |count| (count as u32).to_le_bytes())?;
    }
    folder.finish()
}

/// Writes an array (`samples_0`, `samples_1`), each entry as `encode` has it.
fn put_square<const N: usize>(
    folder: &StoreFolder,
    name: &str,
    dtype: &str,
    matrix: &Matrix,
    encode: impl Fn(f64) -> [u8; N],
) -> Result<()> {
    let n = matrix.rows();
    let chunk = n.min(CHUNK);
    let (shape, chunks) = ([n as u64; 2], [chunk as u64; 2]);
    let axes = &["samples_0", "samples_1"];
    folder.declare(&Layout {
        name,
        dtype,
        shape: &shape,
        chunks: &chunks,
        axes,
        fill: Value::Null,
        shuffle: BYTES,
    })?;
    for i in 0..n.div_ceil(chunk) {
        for j in 0..n.div_ceil(chunk) {
            // An edge chunk is stored at full size.
            let mut bytes = Vec::with_capacity(chunk * chunk * N);
            for row in i * chunk..n.min((i + 1) * chunk) {
                let entries = &matrix.row(row)[j * chunk..n.min((j + 1) * chunk)];
                bytes.extend(entries.iter().flat_map(|&entry| encode(entry)));
                bytes.resize((row - i * chunk + 1) * chunk * N, 0);
            }
            bytes.resize(chunk * chunk * N, 0);
            folder.put_blosc(&format!("{name}/{i}.{j}"), &bytes, BloscShuffleMode::Shuffle, N)?;
        }
    }
    Ok(())
}
