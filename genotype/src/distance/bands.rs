//! Distances of samples, in bands of some samples, so that neither the device nor the host holds all distances.

use std::{iter, ops::Range, slice::from_ref};

use teatime::{
    Device, Error, Needs, Result, Run, Status,
    distance::{ColumnPairs, Distances as Found, PackedDiagonal, PackedPairs},
    linalg::Matrix,
};

use super::{DistanceFacts, DistanceOptions, Settings, adding::Accumulator, alleles::Several, are_packed};
use crate::{cohort::Cohort, source::Genotypes, to_usize};

const OP: &str = "distance bands";

/// Bytes on the host for each element of a square that a thread writes: the element, its transposed copy, and both encoded.
const SQUARE_BYTES: u64 = 32;

/// The distances of the samples of a genotype matrix from one another, band by band. A band has the distances of some samples from
/// themselves and from all later samples. The distances equal the result of [`distances`](super::distances()) to the last bit.
///
/// One pass makes the counts and the sums that concern single samples; each band takes one more
/// pass. Passes run over the genotypes in memory if they stay there, as with [`Cohort`].
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, distance::Metric, store::MemoryArray};
/// use teatime_genotype::{DistanceBands, DistanceOptions, Genotypes, SampleMetric};
///
/// let dosages = [[0i8, 0, 2], [2, 2, 0], [0, 1, 2], [2, -1, 0]];
/// let array = MemoryArray::new("dosages", dosages.as_flattened(), &[4, 3], &[2, 3])?;
/// let genotypes = Genotypes::new(vec![Arc::new(array)])?;
/// let options = DistanceOptions::default().metric(SampleMetric::Of(Metric::CityBlock));
/// let bands = DistanceBands::new(&genotypes, &Device::cpu(), &options, 64, &Run::default())?;
/// bands.each(&Run::default(), &|_| false, &mut |band| {
///     assert_eq!((band.own, band.matrix.row(0)), (0..3, &[0.0, 4.0 / 3.0, 8.0][..]));
///     Ok(())
/// })?;
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct DistanceBands {
    pub(super) cohort: Cohort,
    facts: DistanceFacts,
    diagonal: PackedDiagonal,
    pub(super) side: u64,
    /// Bytes on the host that a band leaves free, besides its own memory.
    beside: u64,
}

/// The distances of some samples.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DistanceBand {
    /// The range of the samples of this band.
    pub own: Range<u64>,
    /// Distances, (own and all later samples, own samples).
    pub matrix: Matrix,
    /// The number of variants called in both samples, in the same shape; none if no call of any sample is missing.
    pub shared: Option<Matrix>,
}

impl DistanceBands {
    /// Reads `genotypes` once, in memory bounded by `run.memory`, which holds for all bands. A band has whole tiles
    /// of `side` samples, as many as memory allows; memory is left for each thread to write squares of that side.
    ///
    /// # Cost
    /// A pass of 64 products a variant and sample. A band of w of n samples takes 16 w n bytes on the host and on the
    /// device, and about the same share of operations as it has of the distances of [`distances`](super::distances()). Genotypes that stay on the
    /// members of a [group](Device::group) are passed over by all of them.
    ///
    /// # Errors
    /// [`Error::Argument`] for a metric that [`PackedPairs`] does not take, dosages that two bits do not hold, variants of
    /// more than two alleles if different alleles are to differ, a tree, and a side that is not a multiple of 64; [`Error::Budget`]
    /// with the smallest budget that would do for bands of one tile; other errors as for [`distances`](super::distances()).
    pub fn new(
        genotypes: &Genotypes,
        device: &Device,
        options: &DistanceOptions,
        side: u64,
        run: &Run,
    ) -> Result<Self> {
        options.check(OP, genotypes)?;
        let refuse = |(name, why): (&'static str, String)| Error::argument(OP, name, why);
        if options.tree.is_some() {
            return Err(refuse(("tree", "is made of all distances at once".into())));
        }
        if side == 0 || !side.is_multiple_of(64) {
            return Err(refuse(("side", format!("{side} is no multiple of 64"))));
        }
        let square = side.min(genotypes.samples()).saturating_pow(2).saturating_mul(SQUARE_BYTES);
        let beside = square.saturating_mul(device.threads() as u64);
        Self::of_checked(genotypes, Settings { device, options, beside, run }, side)?.map_err(refuse)
    }

    /// Does as [`new`](Self::new) for checked arguments. If there can be no bands, returns the argument that is to blame, and the reason.
    pub(super) fn of_checked(
        genotypes: &Genotypes,
        settings: Settings<'_>,
        side: u64,
    ) -> Result<std::result::Result<Self, (&'static str, String)>> {
        let Settings { device, options, beside, .. } = settings;
        let metric = options.metric.summed();
        if !PackedPairs::takes(metric) {
            return Ok(Err(("metric", format!("{metric} is computed in f32, for all samples at once"))));
        }
        if !are_packed(genotypes, device)? {
            let why = "distances of some samples at a time are of dosages 0, 1 and 2 alone";
            return Ok(Err(("genotypes", why.into())));
        }
        // The sums that concern single samples are held, too.
        let beside = beside.saturating_add(genotypes.samples().saturating_mul(48));
        let (adding, cohort) = Accumulator::load(genotypes, Settings { beside, ..settings }, Some(side))?;
        let counts = adding.variants.counts(OP)?;
        let diagonal = adding.finish_diagonal()?;
        let several = Several::new(&cohort, settings)?;
        let multiallelic = several.len();
        if several.are_told {
            let why = format!(
                "{multiallelic} of the variants have more than two alleles, which are not told apart some samples at a time: take all but \
                 the reference for one, or all distances at once, in memory"
            );
            return Ok(Err(("merge_alleles", why)));
        }
        let facts = DistanceFacts::of_cohort(&cohort, options, counts, multiallelic, true);
        Ok(Ok(Self { cohort, facts, diagonal, side, beside }))
    }

    /// Gives each band to `sink`, in order. Leaves out the tiles of `side` samples for whose index `is_done` returns true.
    ///
    /// Progress reports the first pass as pass 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the device has no memory for even one tile; [`Error::Store`] and
    /// [`Error::Chunk`] for genotypes that changed or cannot be read; [`Error::Cancelled`]; any error of `sink`.
    pub fn each(
        &self,
        run: &Run,
        is_done: &dyn Fn(u64) -> bool,
        sink: &mut dyn FnMut(DistanceBand) -> Result<()>,
    ) -> Result<()> {
        let is_done: Vec<bool> = (0..self.tiles()).map(is_done).collect();
        let (mut done, mut pass, mut most) = (0, 1_u32, u64::MAX);
        while let Some(tiles) = self.next(&is_done, done, most) {
            let bands = iter::successors(Some(tiles.clone()), |band| self.next(&is_done, band.end, most));
            let passes = pass.saturating_add(u32::try_from(bands.count()).unwrap_or(u32::MAX));
            let status = Status::new(pass, passes, self.cohort.reader.variants());
            match self.band(self.samples_of(&tiles), (run, status)) {
                Err(Error::OutOfMemory { .. }) if tiles.end - tiles.start > 1 => {
                    most = (tiles.end - tiles.start) / 2;
                }
                band => {
                    sink(band?)?;
                    (done, pass) = (tiles.end, pass + 1);
                }
            }
        }
        Ok(())
    }

    pub(super) fn tiles(&self) -> u64 {
        self.cohort.reader.samples().div_ceil(self.side)
    }

    pub(super) fn samples_of(&self, tiles: &Range<u64>) -> Range<u64> {
        let samples = |tile: u64| (tile * self.side).min(self.cohort.reader.samples());
        samples(tiles.start)..samples(tiles.end)
    }

    /// Returns the tiles of the next band, at or after tile `from`: as many as memory allows, at most `most`.
    fn next(&self, is_done: &[bool], from: u64, most: u64) -> Option<Range<u64>> {
        let left = |tile: &u64| !is_done[to_usize(*tile)];
        let first = (from..self.tiles()).find(left)?;
        let end = first + (first..self.tiles()).take_while(left).count() as u64;
        let (mut fits, mut too_many) = (first + 1, end.min(first.saturating_add(most)) + 1);
        while too_many - fits > 1 {
            let middle = u64::midpoint(fits, too_many);
            let needs = self.needs(self.samples_of(&(first..middle)));
            if self.cohort.memory.fits(&self.cohort.reader, needs + self.cohort.held()) {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        Some(first..fits)
    }

    fn needs(&self, own: Range<u64>) -> Needs {
        let reader = &self.cohort.reader;
        let band = ColumnPairs::Band(reader.samples(), own);
        let needs = |beside| Accumulator::needs(from_ref(reader), &self.facts.options, &band, beside);
        // Each member has sums of its own, before they are joined.
        match self.cohort.memory.shared {
            true => needs(0).on(&reader.device) * self.cohort.devices() as u64 + Needs::host(self.beside),
            false => needs(self.beside),
        }
    }

    fn band(&self, own: Range<u64>, pass: (&Run, Status)) -> Result<DistanceBand> {
        let (reader, DistanceFacts { options, counts, .. }) = (&self.cohort.reader, &self.facts);
        let Found { mut distances, shared, .. } =
            self.cohort.with_room(self.needs(own.clone()), &mut |reading| {
                let band = ColumnPairs::Band(reader.samples(), own.clone());
                let sums = self.cohort.add_up(
                    pass,
                    reading,
                    &|device| Accumulator::new(device, from_ref(reader), reader.variants(), options, &band),
                    &|adding: &mut Accumulator, panel, rows, stats| adding.add(reader, panel, rows, stats),
                    &Accumulator::join,
                )?;
                sums.finish(Some(&self.diagonal))
            })?;
        options.finish(&mut distances, shared.as_ref(), counts, reader.genotypes.ploidy());
        Ok(DistanceBand { own, matrix: distances, shared })
    }

    /// Returns true if a call is missing, so that bands have [`shared`](DistanceBand::shared).
    pub fn has_shared(&self) -> bool {
        !self.diagonal.is_complete()
    }

    /// Returns the facts on the variants, and on the passes so far.
    pub fn facts(&self) -> DistanceFacts {
        DistanceFacts { stats: self.cohort.stats(), ..self.facts }
    }
}
