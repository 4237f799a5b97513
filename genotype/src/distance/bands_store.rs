//! Bands of distances in a Zarr store, which a process can finish after another one was stopped.

use std::{path::Path, sync::Arc};

use rayon::prelude::*;
use teatime::{
    ChunkedArray, Error, MissingChunk, Result, Run, StoredType,
    linalg::Matrix,
    stable_text::StableText,
    store::{
        ArraySpec, ArrayWriter, Compression, Folder, Storable, WritableStorage, ZarrArray, ZarrFormat,
        is_free, write_group,
    },
};

use super::{DistanceBand, DistanceBands, DistanceFacts, OP, undefined, write::attributes};
use crate::{SOURCE, source::check_names, to_usize};

const DISTANCE: &str = "distance";

/// The counts of what [`DistanceBands::write_zarr`] found and wrote.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct WrittenBands {
    /// The counts of the variants, and the memory and time of the passes.
    pub facts: DistanceFacts,
    /// The number of pairs of samples, including each sample with itself, whose distance is NaN.
    pub undefined: u64,
    /// The number of bands that were computed.
    pub bands: u32,
    /// The number of squares of each array.
    pub squares: u64,
    /// The number of squares, over all arrays, that were there already.
    pub found: u64,
}

/// Describes the job by its options, counts of variants, their digest, names of samples, and what else distances depend on.
fn words(DistanceFacts { options, counts, digest, .. }: &DistanceFacts, names: &[&str], job: &str) -> String {
    let [options, counts] = [options.stable_text(), counts.stable_text()];
    format!("{SOURCE}\n{options}\n{counts} {digest:016x}\n{names:?}\n{job}")
}

struct Squares<'a> {
    bands: &'a DistanceBands,
    /// The array of distances, and that of the numbers of shared variants if a call is missing.
    writers: Vec<ArrayWriter>,
}

impl DistanceBands {
    /// Writes the arrays of [`Distances::write_zarr`](super::Distances::write_zarr) into a Zarr v2 store at `path`, in squares
    /// of the side of a tile, or finishes what a stopped process began. `job` describes all that the distances depend on,
    /// besides the options, the counts of variants and the names: an existing store has to be of the same job. The bytes are
    /// the same for any budgets and any stops. Until an array is whole, its attribute `teatime` has the `status` `incomplete`.
    ///
    /// # Errors
    /// [`Error::Argument`] unless there is one name for each sample; [`Error::Store`] if something else, or the store of
    /// another job, is at `path`; [`Error::Io`]; other errors as for [`each`](Self::each). Squares that were written stay.
    pub fn write_zarr(
        &self,
        path: impl AsRef<Path>,
        samples: &[impl AsRef<str>],
        job: &str,
        run: &Run,
    ) -> Result<WrittenBands> {
        let path = path.as_ref();
        let n = self.cohort.reader.samples();
        check_names(OP, samples, to_usize(n))?;
        is_free(path, DISTANCE)?;
        let names: Vec<&str> = samples.iter().map(AsRef::as_ref).collect();
        let facts = self.facts();
        let job = words(&facts, &names, job);
        let storage: Arc<dyn WritableStorage> = Arc::new(Folder::new(path).durable());
        let start = |name: &str, mut spec: ArraySpec| {
            // Zstd has a checksum, which blosc lacks.
            (spec.compression, spec.job) = (Compression::Zstd { level: 1 }, Some(job.clone()));
            ArrayWriter::resume(storage.clone(), name, spec)
        };
        let of_pairs = |name: &str, dtype: StoredType| {
            let spec = ArraySpec::new(dtype, &[n; 2], &[self.side.min(n); 2]);
            start(name, spec.of_results(&["samples_0", "samples_1"]))
        };
        let distance = of_pairs(DISTANCE, f64::STORED)?;
        // The array is of this job, and so are the remains of a group that a killed process was writing.
        storage.sweep("").map_err(|source| Error::io(path.display(), source))?;
        write_group(&*storage, "", ZarrFormat::V2, &attributes(&facts))?;
        let of_names = start("sample_id", ArraySpec::new(None, &[n], &[n]).of_results(&["samples"]))?;
        if !of_names.is_written(&[0])? {
            of_names.write_text(&[0], names)?;
        }
        of_names.finish()?;
        let shared = self.has_shared().then(|| of_pairs("shared_variants", u32::STORED)).transpose()?;
        Squares { bands: self, writers: [distance].into_iter().chain(shared).collect() }.write(path, run)
    }
}

impl Squares<'_> {
    fn write(self, path: &Path, run: &Run) -> Result<WrittenBands> {
        let left = |writer: &ArrayWriter| writer.left().count() as u64;
        let squares = self.writers[0].tiles().count() as u64;
        let already_written = self.writers.iter().map(|writer| squares - left(writer)).sum();
        let tiles = 0..self.bands.tiles();
        let was_there = tiles.clone().map(|tile| self.is_done(tile)).collect::<Result<Vec<_>>>()?;
        let (mut not_numbers, mut bands) = (0, 0);
        self.bands.each(run, &|tile| was_there[to_usize(tile)], &mut |band| {
            not_numbers += undefined(&band.matrix, true);
            bands += 1;
            self.put(&band, run)
        })?;
        for tile in tiles.filter(|tile| was_there[to_usize(*tile)]) {
            run.cancel.check()?;
            not_numbers += self.undefined(path, tile)?;
        }
        self.writers.into_iter().try_for_each(ArrayWriter::finish)?;
        let facts = self.bands.facts();
        Ok(WrittenBands { facts, undefined: not_numbers, bands, squares, found: already_written })
    }

    /// Returns true if all squares of a tile's samples with themselves and with later samples were written.
    fn is_done(&self, tile: u64) -> Result<bool> {
        for writer in &self.writers {
            for other in tile..self.bands.tiles() {
                if !writer.is_written(&[tile, other])? || !writer.is_written(&[other, tile])? {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn put(&self, band: &DistanceBand, run: &Run) -> Result<()> {
        let (side, count) = (self.bands.side, self.bands.tiles());
        let own = band.own.start / side..band.own.end.div_ceil(side);
        let squares: Vec<[u64; 2]> =
            own.flat_map(|column| (column..count).map(move |row| [row, column])).collect();
        let put = |square: &[u64; 2]| {
            run.cancel.check()?;
            self.put_square(&self.writers[0], band, &band.matrix, *square, |distance| distance)?;
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts of variants")]
            let number = |count| count as u32;
            let mut shared = self.writers[1..].iter().zip(&band.shared);
            shared.try_for_each(|(writer, shared)| self.put_square(writer, band, shared, *square, number))
        };
        self.bands.cohort.device().pool()?.install(|| squares.par_iter().try_for_each(put))
    }

    /// Writes a square at or below the diagonal, and its transposed copy above.
    fn put_square<T: Storable>(
        &self,
        writer: &ArrayWriter,
        band: &DistanceBand,
        matrix: &Matrix,
        [row, column]: [u64; 2],
        convert: impl Fn(f64) -> T,
    ) -> Result<()> {
        let of_tile = |tile: u64| {
            let samples = self.bands.samples_of(&(tile..tile + 1));
            to_usize(samples.start - band.own.start)..to_usize(samples.end - band.own.start)
        };
        let (rows, columns) = (of_tile(row), of_tile(column));
        if !writer.is_written(&[row, column])? {
            let entries = rows.clone().flat_map(|i| &matrix.row(i)[columns.clone()]);
            writer.write(&[row, column], &entries.map(|&entry| convert(entry)).collect::<Vec<T>>())?;
        }
        if row != column && !writer.is_written(&[column, row])? {
            let entries = columns.flat_map(|j| rows.clone().map(move |i| matrix.row(i)[j]));
            writer.write(&[column, row], &entries.map(convert).collect::<Vec<T>>())?;
        }
        Ok(())
    }

    /// Returns the number of pairs of a tile's samples with themselves and with later samples whose stored distance is NaN.
    fn undefined(&self, path: &Path, tile: u64) -> Result<u64> {
        let array = ZarrArray::open(path, DISTANCE, MissingChunk::Error)?;
        let width = to_usize(array.chunk_shape()[1]);
        let counted = (tile..self.bands.tiles()).map(|row| {
            let values: Vec<f64> = bytemuck::pod_collect_to_vec(&array.read_chunk(&[row, tile])?.bytes);
            let rows = values.len() / width;
            Ok(undefined(&Matrix::from_vec(values, rows, width)?, row == tile))
        });
        counted.sum()
    }
}

#[cfg(test)]
mod tests {
    use teatime::distance::{Metric, Missing};

    use super::*;
    use crate::{DistanceOptions, Linkage, SampleMetric, VariantCounts, VariantFilter};

    /// Stores begun with this text can be finished only while the text stays the same.
    #[test]
    fn words_of_a_job_stay() {
        let options = DistanceOptions::default()
            .metric(SampleMetric::Of(Metric::SqEuclidean))
            .missing(Missing::Ignore)
            .filter(VariantFilter::default().min_maf(0.01))
            .tree(Linkage::Ward)
            .merge_alleles(true);
        let counts = VariantCounts {
            total: 9,
            used: 2,
            above_missing: 3,
            all_missing: 1,
            below_maf: 2,
            zero_variance: 1,
            missing_calls: 70,
        };
        let expected = "DistanceOptions { metric: Of(SqEuclidean), missing: Some(Ignore), \
                        filter: VariantFilter { min_maf: 0.01, max_missing: 1.0 }, tree: Some(Ward), merge_alleles: true }\n\
                        VariantCounts { total: 9, used: 2, above_missing: 3, all_missing: 1, below_maf: 2, zero_variance: 1, \
                        missing_calls: 70 } 00000000000000ff\n[\"a\", \"b\"]\nmore";
        let facts = DistanceFacts { options, counts, digest: 255, ..DistanceFacts::default() };
        assert_eq!(words(&facts, &["a", "b"], "more"), format!("{SOURCE}\n{expected}"));
    }
}
