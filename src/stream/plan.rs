//! Which chunks hold which rows.

use std::{ops::Range, sync::Arc};

use super::{narrow::Narrow, rows::Rows};
use crate::{ChunkedArray, Error, Result};

/// Most chunks of an array along its first axis; a claim above it is taken for damage.
const MAX_BANDS: u64 = 1 << 22;

/// Selected rows of arrays appended along their first axis, each of (columns, depth) elements, in blocks of fixed height.
///
/// Rows are known by their number among the selected. Chunks without one of them belong to no band, and so are not read.
#[derive(Debug)]
pub(crate) struct RowPlan {
    arrays: Vec<Arc<dyn ChunkedArray>>,
    /// Elements of a row along the second and the third axis.
    row: [u64; 2],
    rows: Arc<Rows>,
    block_rows: u64,
    narrow: Narrow,
    bands: Vec<Band>,
}

/// The chunks of one array that share a range of rows.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    pub(crate) array: usize,
    /// Index along the first axis of the chunk grid.
    pub(crate) chunk_row: u64,
    /// The row of the appended list that the chunks start with.
    first: u64,
    /// Which of the selected rows they hold.
    pub(crate) rows: Range<u64>,
    /// Bytes of its decoded chunks.
    pub(crate) bytes: u64,
}

impl RowPlan {
    /// Plans blocks of `block_rows` of the selected `rows` of `arrays`, which agree in all but the first extent.
    ///
    /// # Errors
    /// [`Error::Shape`] when they do not agree or have other than two or three axes; [`Error::Store`] for a type that
    /// does not fit `narrow`.
    pub(crate) fn new(
        arrays: Vec<Arc<dyn ChunkedArray>>,
        rows: Arc<Rows>,
        narrow: Narrow,
        block_rows: u64,
    ) -> Result<Self> {
        let op = "stream";
        let first = arrays.first().ok_or_else(|| Error::argument(op, "arrays", "none given"))?;
        let row = trailing(first.shape());
        let (mut start, mut bands) = (0u64, Vec::new());
        for (i, array) in arrays.iter().enumerate() {
            let (shape, chunk) = (array.shape(), array.chunk_shape());
            if !matches!(shape.len(), 2 | 3) || chunk.len() != shape.len() || trailing(shape) != row {
                let expected = format!("rows of {row:?} as in {}", first.name());
                return Err(Error::shape(op, expected, format_args!("{shape:?} in {}", array.name())));
            }
            narrow.accepts(array.name(), array.dtype())?;
            if chunk.contains(&0) {
                return Err(Error::shape(
                    op,
                    "chunks of at least one element",
                    format_args!("{chunk:?} in {}", array.name()),
                ));
            }
            let across: u64 = shape[1..].iter().zip(&chunk[1..]).map(|(s, c)| s.div_ceil(*c)).product();
            let size = array.dtype().size() as u64;
            let chunk_bytes = chunk.iter().fold(size, |bytes, &extent| bytes.saturating_mul(extent));
            let along = shape[0].div_ceil(chunk[0]);
            if along > MAX_BANDS {
                let why =
                    format!("claims {along} chunks along its first axis; at most {MAX_BANDS} are believed");
                return Err(Error::Store { path: array.name().into(), why: why.into() });
            }
            for chunk_row in 0..along {
                let first = start + chunk_row * chunk[0];
                let end = start + shape[0].min((chunk_row + 1) * chunk[0]);
                let rows = rows.before(first)..rows.before(end);
                if !rows.is_empty() {
                    let bytes = across.saturating_mul(chunk_bytes);
                    bands.push(Band { array: i, chunk_row, first, rows, bytes });
                }
            }
            start += shape[0];
        }
        Ok(Self { arrays, row, rows, block_rows, narrow, bands })
    }

    /// How many rows are selected.
    pub(crate) fn rows(&self) -> u64 {
        self.rows.len()
    }

    /// The row of the appended list that is the selected one of that number.
    pub(crate) fn row(&self, number: u64) -> u64 {
        self.rows.row(number)
    }

    /// Bytes that the selection holds.
    pub(crate) fn selection_bytes(&self) -> u64 {
        self.rows.bytes()
    }

    pub(crate) fn block_rows(&self) -> u64 {
        self.block_rows
    }

    pub(crate) fn array(&self, index: usize) -> &Arc<dyn ChunkedArray> {
        &self.arrays[index]
    }

    pub(crate) fn bands(&self) -> &[Band] {
        &self.bands
    }

    /// Bytes of a row as staged.
    pub(crate) fn row_bytes(&self) -> u64 {
        self.narrow.staged.bytes(self.row[0] * self.row[1])
    }

    /// Bytes of a full block as staged.
    pub(crate) fn block_bytes(&self) -> u64 {
        self.block_rows.min(self.rows()) * self.row_bytes()
    }

    /// Most bytes of decoded chunks that one block needs at once.
    pub(crate) fn largest_need(&self) -> u64 {
        let starts = (0..self.rows()).step_by(usize::try_from(self.block_rows).unwrap_or(usize::MAX));
        let need = |start| {
            let range = self.needed(&(start..self.rows().min(start + self.block_rows)));
            self.bands[range].iter().fold(0u64, |bytes, band| bytes.saturating_add(band.bytes))
        };
        starts.map(need).max().unwrap_or(0)
    }

    /// The bands that hold any of the rows.
    pub(crate) fn needed(&self, rows: &Range<u64>) -> Range<usize> {
        let first = self.bands.partition_point(|band| band.rows.end <= rows.start);
        let end = self.bands.partition_point(|band| band.rows.start < rows.end);
        first..end
    }

    /// Chunk indices of a band, in C order of the other axes.
    pub(crate) fn chunks(&self, band: &Band) -> Vec<Vec<u64>> {
        let (shape, chunk) = (self.arrays[band.array].shape(), self.arrays[band.array].chunk_shape());
        let mut indices = vec![vec![band.chunk_row]];
        for (extent, size) in shape[1..].iter().zip(&chunk[1..]) {
            let along = extent.div_ceil(*size);
            indices =
                indices.iter().flat_map(|i| (0..along).map(|c| [i.as_slice(), &[c]].concat())).collect();
        }
        indices
    }

    /// The chunk that holds an element: the array's name and the chunk's index.
    pub(crate) fn locate(&self, row: u64, column: u64) -> (&str, Vec<u64>) {
        let band = &self.bands[self.bands.partition_point(|band| band.rows.end <= row)];
        let array = &self.arrays[band.array];
        let mut index = vec![band.chunk_row, column / array.chunk_shape()[1]];
        index.resize(array.shape().len(), 0);
        (array.name(), index)
    }

    /// Copies one row out of its band's decoded chunks (in the order of [`chunks`](Self::chunks)), as staged.
    pub(crate) fn copy_row(&self, band: &Band, chunks: &[Vec<u8>], row: u64, out: &mut [u8]) -> Result<()> {
        let array = &self.arrays[band.array];
        let (chunk, size) = (trailing(array.chunk_shape()), array.dtype().size());
        let [columns, depth] = self.row;
        let [across, deep] = [columns.div_ceil(chunk[0]), depth.div_ceil(chunk[1])];
        let to_usize = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        // Errors tell where the row is stored.
        let row = self.row(row);
        let first = to_usize((row - band.first) * chunk[0] * chunk[1]) * size;
        let staged = |elements| to_usize(self.narrow.staged.bytes(elements));
        for (i, bytes) in chunks.iter().enumerate() {
            let [ci, di] = [i as u64 / deep, i as u64 % deep];
            let (c0, c1) = (ci * chunk[0], columns.min((ci + 1) * chunk[0]));
            let (d0, d1) = (di * chunk[1], depth.min((di + 1) * chunk[1]));
            // Runs that are contiguous on both sides: whole rows of the chunk, unless the third axis is cut or padded.
            let (runs, run) = if chunk[1] == depth { (1, (c1 - c0) * depth) } else { (c1 - c0, d1 - d0) };
            for r in 0..runs {
                let from = first + to_usize(r * chunk[1]) * size;
                let to = staged((c0 + r) * depth + d0);
                let source = &bytes[from..from + to_usize(run) * size];
                let target = &mut out[to..to + staged(run)];
                self.narrow.convert(array.dtype(), [row, c0 + r], source, target).map_err(|why| {
                    let mut index = vec![band.chunk_row, ci, di];
                    index.truncate(array.shape().len());
                    Error::chunk(array.name(), &index, why)
                })?;
            }
        }
        debug_assert_eq!(chunks.len() as u64, across * deep, "a band should have all of its chunks");
        Ok(())
    }
}

/// The second and third extents; 1 for a third that is not there.
fn trailing(shape: &[u64]) -> [u64; 2] {
    [shape.get(1).copied().unwrap_or(1), shape.get(2).copied().unwrap_or(1)]
}
