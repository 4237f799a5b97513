//! Passes that read elements where they are stored, instead of from chunks in memory.

use super::Plan;
use crate::stream::layout::Layout;

/// The least average bytes of a run that is read where it is stored: a system call for less costs more than a copy.
const LEAST_RUN: u64 = 4 << 10;

/// The maximum number of chunks that are open, for two boxes: processes may have some 1,000 open files.
const MOST_OPEN: u64 = 256;

impl Plan {
    /// Plans to read elements where they are stored, without holding chunks, if arrays [open chunks](crate::ChunkedArray::opens_chunks), boxes are
    /// whole rows of few chunks, and the runs of elements are long. Such a pass returns no digests.
    pub(crate) fn reading_in_place(mut self) -> Self {
        for array in 0..self.arrays() {
            let rows = self.block_rows().div_ceil(self.array(array).chunk_shape()[0]).saturating_add(1);
            let open = rows.saturating_mul(self.across(array).iter().map(Vec::len).product::<usize>() as u64);
            if self.has_whole_rows()
                && self.array(array).opens_chunks()
                && open <= MOST_OPEN / (2 * self.arrays() as u64)
            {
                let pieces = std::array::from_fn(|axis| self.pieces(array, axis + 1, 0));
                let layout = Layout::new(&**self.array(array), &**self.convert(), &pieces);
                let bytes = layout.elements().saturating_mul(self.array(array).dtype().size() as u64);
                self.in_place[array] = !layout.cut && bytes >= layout.runs().saturating_mul(LEAST_RUN);
            }
        }
        for band in self.bands.iter_mut().filter(|band| self.in_place[band.array]) {
            band.bytes = band.tracking;
        }
        self
    }

    /// True if an array's elements are read where they are stored.
    pub(in crate::stream) fn is_in_place(&self, array: usize) -> bool {
        self.in_place[array]
    }
}

#[cfg(test)]
mod tests {
    use std::{path::Path, sync::Arc};

    #[cfg(feature = "zarr")]
    use crate::openings::assert_refused;
    use crate::{
        Budget, ChunkedArray, Device, Error, Result, Run,
        linalg::LinearMap,
        store::{NpyArray, write_npy},
        stream::StoredMatrix,
    };

    const ROWS: usize = 2100;
    const COLUMNS: usize = 5000;

    /// Returns the element at each place.
    fn values<T: From<i16>>() -> Vec<T> {
        let place = |i: usize| (i / COLUMNS * 31 + i % COLUMNS * 7) % 1009;
        (0..ROWS * COLUMNS).map(|i| (i16::try_from(place(i)).unwrap() - 500).into()).collect()
    }

    /// Returns the matrix of an array, read within the least memory, and the number of bytes of its chunks that were held at once.
    fn read(array: Arc<dyn ChunkedArray>) -> Result<(Vec<f32>, u64)> {
        let device = Device::cpu();
        let matrix = StoredMatrix::new(vec![array], &device)?;
        let least = Budget::default().host(matrix.needs(0).host);
        let values = matrix.to_tensor(&Run::default().memory(least))?.read()?;
        Ok((values, matrix.stats().peak_chunk_bytes))
    }

    fn npy(folder: &Path) -> Result<Arc<NpyArray>> {
        NpyArray::open(folder.join("x.npy")).map(Arc::new)
    }

    #[test]
    fn rows_of_files_are_read_without_chunks() {
        let folder = tempfile::tempdir().unwrap();
        write_npy(folder.path().join("x.npy"), &values::<f32>(), [ROWS, COLUMNS]).unwrap();
        let (read_values, held) = read(npy(folder.path()).unwrap()).unwrap();
        assert!(read_values == values::<f32>() && held < 1 << 20, "{held}");
        // A conversion needs the stored elements first.
        write_npy(folder.path().join("x.npy"), &values::<i16>(), [ROWS, COLUMNS]).unwrap();
        let (read_values, held) = read(npy(folder.path()).unwrap()).unwrap();
        assert!(read_values == values::<f32>() && held < 1 << 20, "{held}");
    }

    #[test]
    fn a_file_that_shrinks_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        write_npy(folder.path().join("x.npy"), &values::<f32>(), [ROWS, COLUMNS]).unwrap();
        let array = npy(folder.path()).unwrap();
        let file = std::fs::File::options().write(true).open(folder.path().join("x.npy")).unwrap();
        file.set_len(40_000_000).unwrap();
        let error = read(array).unwrap_err();
        // Byte 40,000,000 is one of element 9,999,968, in row 1,999.
        let Error::Chunk { why, .. } = &error else { panic!("{error}") };
        assert!(why.contains("row 1999") && why.contains("cannot be read"), "{error}");
    }

    #[cfg(feature = "zarr")]
    #[test]
    fn long_rows_are_converted_in_pieces() {
        use crate::{MissingChunk, store::ZarrArray};
        const WIDTH: usize = 40_000;
        let folder = tempfile::tempdir().unwrap();
        let metadata = r#"{"zarr_format": 2, "shape": [32, 40000], "chunks": [16, 40000], "dtype": "<i2", "fill_value": 0,
            "order": "C", "filters": null, "compressor": null}"#;
        std::fs::write(folder.path().join(".zarray"), metadata).unwrap();
        let all = &values::<i16>()[..32 * WIDTH];
        for (name, chunk) in ["0.0", "1.0"].iter().zip(all.chunks(16 * WIDTH)) {
            let bytes: Vec<u8> = chunk.iter().flat_map(|x| x.to_le_bytes()).collect();
            std::fs::write(folder.path().join(name), bytes).unwrap();
        }
        let array = Arc::new(ZarrArray::open(folder.path(), "", MissingChunk::Error).unwrap());
        let (read_values, held) = read(array).unwrap();
        assert!(held < 10_000 && read_values.iter().zip(all).all(|(x, y)| *x == f32::from(*y)), "{held}");
    }

    #[cfg(feature = "zarr")]
    #[test]
    fn chunks_of_folders_are_opened() {
        use crate::{MissingChunk, store::ZarrArray};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let metadata = r#"{"zarr_format": 2, "shape": [2100, 5000], "chunks": [1000, 2000], "dtype": "<f4", "fill_value": 0,
            "order": "C", "filters": null, "compressor": null}"#;
        std::fs::write(at(".zarray"), metadata).unwrap();
        let all = values::<f32>();
        // Chunks are whole: elements beyond the end are NaN.
        let element = |row: usize, column: usize| match row < ROWS && column < COLUMNS {
            true => all[row * COLUMNS + column],
            false => f32::NAN,
        };
        for (i, j) in (0..9).map(|chunk| (chunk / 3, chunk % 3)) {
            let elements = (0..1000 * 2000).map(|e| element(i * 1000 + e / 2000, j * 2000 + e % 2000));
            let bytes: Vec<u8> = elements.flat_map(f32::to_le_bytes).collect();
            std::fs::write(at(&format!("{i}.{j}")), bytes).unwrap();
        }
        let open = |missing| Arc::new(ZarrArray::open(folder.path(), "", missing).unwrap());
        for (missing, most) in [(MissingChunk::Error, 1 << 20), (MissingChunk::Fill, u64::MAX)] {
            let (read_values, held) = read(open(missing)).unwrap();
            assert!(read_values == all && held < most, "{held}");
        }
        std::fs::File::options().write(true).open(at("1.2")).unwrap().set_len(7_999_999).unwrap();
        assert_refused(read(open(MissingChunk::Error)), &["chunk [1, 2]", "7999999 bytes"]);
        std::fs::remove_file(at("1.2")).unwrap();
        assert_refused(read(open(MissingChunk::Error)), &["chunk [1, 2]", "missing"]);
    }
}
