//! Which chunks hold which rows.

use std::{ops::Range, sync::Arc};

use super::{narrow::Narrow, rows::Rows};
use crate::{ChunkedArray, Error, Result};

/// Most chunks of an array along its first axis; a claim above it is taken for damage.
pub(crate) const MAX_BANDS: u64 = 1 << 20;

/// Bytes that keeping track of a chunk takes, from the task that decodes it to its place among the decoded.
const TRACKING: u64 = 384;

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
    /// Most bytes that reading one chunk takes besides the chunk: what is fetched, and what decoding it takes.
    scratch: u64,
    /// Of these, what is fetched; and how many chunks should be fetched at once, ahead of their decoding.
    fetched: u64,
    fetches: u64,
}

/// How much a pass may do at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AtOnce {
    /// Chunks that are decoded.
    pub(crate) decoders: usize,
    /// Threads that do nothing but fetch; none where the thread that decodes a chunk fetches it.
    pub(crate) fetches: usize,
    /// Where there are some: chunks that are fetched or being so, those that are decoded among them.
    pub(crate) fetched: usize,
    /// Most bytes of decoded chunks.
    pub(crate) bytes: u64,
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
    /// Bytes of its decoded chunks, and of what keeps track of them.
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
            let chunk_bytes = chunk_bytes.saturating_add(TRACKING);
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
        let most =
            |of: fn(&dyn ChunkedArray) -> u64| arrays.iter().map(|array| of(&**array)).max().unwrap_or(0);
        let fetched = most(|array| array.fetched_bytes());
        let scratch = fetched.saturating_add(most(|array| array.scratch_bytes()));
        let fetches = most(|array| array.fetches() as u64);
        Ok(Self { arrays, row, rows, block_rows, narrow, bands, scratch, fetched, fetches })
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

    /// How many arrays there are.
    pub(crate) fn arrays(&self) -> usize {
        self.arrays.len()
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
        self.staged_bytes(self.block_rows)
    }

    /// Bytes of so many rows, or of all if there are fewer, as staged.
    pub(crate) fn staged_bytes(&self, rows: u64) -> u64 {
        rows.min(self.rows()) * self.row_bytes()
    }

    /// Least bytes that a pass takes: the decoded chunks of any one block, what decoding one of them takes besides, and the
    /// list of bands.
    pub(crate) fn largest_need(&self) -> u64 {
        self.largest_need_of(self.block_rows)
    }

    /// The same of blocks of so many rows.
    pub(crate) fn largest_need_of(&self, rows: u64) -> u64 {
        let block = |row: u64| row / rows;
        let (mut most, mut bytes) = (0, 0_u64);
        let mut before: Option<&Band> = None;
        // A block needs the bands that start in it, and the one that reaches into it.
        for band in &self.bands {
            let (this, within) = (block(band.rows.start), band.rows.start % rows != 0);
            if before.is_none_or(|before| block(before.rows.start) != this) {
                bytes = before.filter(|_| within).map_or(0, |before| before.bytes);
            }
            bytes = bytes.saturating_add(band.bytes);
            most = most.max(bytes);
            before = Some(band);
        }
        most.saturating_add(self.scratch).saturating_add(size_of_val(self.bands.as_slice()) as u64)
    }

    /// Bytes beyond these that so many threads have use for: none waits for a chunk, twice over, or for another's decoding.
    pub(crate) fn ahead(&self, threads: u64) -> u64 {
        let band = self.bands.iter().map(|band| band.bytes).max().unwrap_or(0);
        let others = self.scratch.saturating_mul(threads.saturating_sub(1));
        // Of what is beyond the least, decoders get half, and what is fetched ahead a quarter.
        let bands = band.saturating_mul(2 * threads + 2 + self.fetches);
        let fetched = self.fetches.saturating_mul(self.fetched);
        bands.max(others).saturating_add(others).saturating_add(fetched).max(fetched.saturating_mul(4))
    }

    /// What a pass in blocks of so many rows may do at once on so many threads with so many bytes.
    pub(crate) fn at_once(&self, threads: usize, rows: u64, bytes: u64) -> AtOnce {
        let spare = bytes.saturating_sub(self.largest_need_of(rows));
        let within = |share: u64, of: u64, most: u64| share.checked_div(of).unwrap_or(u64::MAX).min(most);
        let others = within(spare / 2, self.scratch, threads.saturating_sub(1) as u64);
        let waiting = within(spare / 4, self.fetched, self.fetches);
        let taken = (1 + others) * self.scratch + waiting * self.fetched;
        let count = |n: u64| usize::try_from(n).unwrap_or(threads);
        AtOnce {
            decoders: count(1 + others),
            fetches: count(self.fetches.min(1 + others + waiting)),
            fetched: count(1 + others + waiting),
            bytes: bytes.saturating_sub(taken),
        }
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
                self.narrow.convert(&**array, [row, c0 + r], source, target).map_err(|why| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        store::MemoryArray,
        stream::{Negative, Staged},
    };

    fn plan(rows_and_chunks: &[(u64, u64)], block_rows: u64) -> RowPlan {
        let array = |&(rows, chunk): &(u64, u64)| -> Arc<dyn ChunkedArray> {
            let values = vec![0i8; usize::try_from(5 * rows).unwrap()];
            Arc::new(MemoryArray::new("array", &values, &[rows, 5], &[chunk, 2]).unwrap())
        };
        let narrow =
            Narrow { staged: Staged::I8, negative: Negative::Missing, max: 2.0, nan_is_missing: false };
        let rows = rows_and_chunks.iter().map(|(rows, _)| rows).sum();
        let arrays = rows_and_chunks.iter().map(array).collect();
        RowPlan::new(arrays, Arc::new(Rows::all(rows)), narrow, block_rows).unwrap()
    }

    /// The least that a pass takes is that of the block with the most bands, whatever chunks and blocks are.
    #[test]
    fn least_memory_is_that_of_some_block() {
        let lists: [&[(u64, u64)]; 6] = [
            &[(1, 1)],
            &[(100, 1)],
            &[(100, 7)],
            &[(64, 16), (1, 3), (30, 9)],
            &[(40, 64), (40, 8)],
            &[(3, 1), (3, 2), (90, 90), (5, 1)],
        ];
        for list in lists {
            for block_rows in [1, 2, 8, 16, 64, 256] {
                let plan = plan(list, block_rows);
                let need = |start: u64| -> u64 {
                    let bands = plan.needed(&(start..plan.rows().min(start + block_rows)));
                    plan.bands()[bands].iter().map(|band| band.bytes).sum()
                };
                let blocks = (0..plan.rows()).step_by(usize::try_from(block_rows).unwrap());
                let most = blocks.map(need).max().unwrap();
                let bands = size_of_val(plan.bands()) as u64;
                assert_eq!(plan.largest_need(), most + bands, "{list:?} {block_rows}");
            }
        }
    }

    /// Of 2 x 5 samples in chunks of 2, three a band.
    #[test]
    fn memory_is_shared_by_decoders_and_chunks() {
        let mut plan = plan(&[(100, 10)], 10);
        let least = plan.largest_need();
        assert_eq!(plan.ahead(4), 10 * plan.bands()[0].bytes);
        let decoders = |plan: &RowPlan, threads, rows, bytes| {
            let at_once = plan.at_once(threads, rows, bytes);
            (at_once.decoders, at_once.bytes)
        };
        assert_eq!(decoders(&plan, 4, 10, 0), (4, 0));
        plan.scratch = 1000;
        assert_eq!(plan.largest_need(), least + 1000);
        assert_eq!(plan.ahead(4), 10 * plan.bands()[0].bytes + 3000);
        for (more, most) in [(0, 1), (1999, 1), (2000, 2), (5999, 3), (6000, 4), (1 << 20, 4)] {
            let bytes = least + 1000 + more;
            assert_eq!(decoders(&plan, 4, 10, bytes), (most, bytes - 1000 * most as u64), "{more}");
        }
        // Where there is memory for all, all decode.
        for scratch in [1, 1000, 1 << 20] {
            plan.scratch = scratch;
            for rows in [10, 40] {
                assert_eq!(decoders(&plan, 64, rows, plan.largest_need_of(rows) + plan.ahead(64)).0, 64);
            }
        }
    }
}
