//! Distances of samples, some samples at a time: neither the device nor the host holds all.

use std::{iter, ops::Range, slice::from_ref};

use teatime::{
    Budget, Device, Error, Needs, Result, Run, Status,
    distance::{Distances as Found, Metric, Missing, PackedDiagonal, PackedPairs},
    linalg::{Matrix, Pass},
    stream::StreamStats,
};

use super::{DistanceOptions, adding::Accumulator, alleles::Several, are_packed};
use crate::{
    cohort::{Cohort, Each, no_variant, plan::Wanted},
    filter::VariantCounts,
    reader::Reader,
    source::Genotypes,
    to_usize,
};

const OP: &str = "distance bands";

/// Bytes on the host of an element of a square that a thread writes: itself, its transposed copy, and both encoded.
const SQUARE_BYTES: u64 = 32;

/// The distances of the samples of a genotype matrix from one another, a band at a time: those of some samples from themselves and from
/// all that follow. To the last bit those of [`distances`](super::distances()).
///
/// One pass counts and adds up what is to be known of each sample alone; each band is one more. They run over the genotypes where these
/// stay, as with [`Cohort`].
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
    pub(super) options: DistanceOptions,
    pub(super) counts: VariantCounts,
    /// The number of these with more than two alleles.
    pub(super) multiallelic: u64,
    diagonal: PackedDiagonal,
    pub(super) side: u64,
    /// Bytes on the host that a band leaves for what becomes of it.
    beside: u64,
}

/// The distances of some samples.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DistanceBand {
    /// The samples.
    pub own: Range<u64>,
    /// (own and all that follow, own).
    pub matrix: Matrix,
    /// The number of variants called in both, likewise, where a call of any sample is missing.
    pub shared: Option<Matrix>,
}

impl DistanceBand {
    /// Pairs of its samples, each with itself among them, with one another and with those that follow, whose distance is NaN.
    pub(super) fn undefined(&self) -> u64 {
        let lower = (0..self.matrix.rows()).flat_map(|row| self.matrix.row(row).iter().take(row + 1));
        lower.filter(|distance| distance.is_nan()).count() as u64
    }
}

impl DistanceBands {
    /// Reads `genotypes` once, in memory bounded by `run.memory`, which holds for all bands. Bands are of whole tiles of `side` samples,
    /// as many as memory allows; there is room for each thread to write squares of that side.
    ///
    /// # Cost
    /// A pass of 64 products a variant and sample. A band of w of n samples takes 16 w n bytes on the host and on the device, and about
    /// as many operations as its share of [`distances`](super::distances()).
    ///
    /// # Errors
    /// [`Error::Argument`] for a metric that [`PackedPairs::of_columns`] does not take, dosages that two bits do not hold, variants of more
    /// than two alleles that are to be told apart, a tree, and a side that is no multiple of 64; [`Error::Budget`] with the least that would do for bands of one tile; else as
    /// [`distances`](super::distances()).
    pub fn new(
        genotypes: &Genotypes,
        device: &Device,
        options: &DistanceOptions,
        side: u64,
        run: &Run,
    ) -> Result<Self> {
        options.check(OP, genotypes)?;
        let refuse = |name, why: &str| Err(Error::argument(OP, name, why));
        if let Some((name, why)) = unfit(genotypes, device, options)? {
            return refuse(name, &why);
        }
        if options.tree.is_some() {
            return refuse("tree", "is made of all distances at once");
        }
        if side == 0 || !side.is_multiple_of(64) {
            return refuse("side", &format!("{side} is no multiple of 64"));
        }
        let square = side.min(genotypes.samples()).saturating_pow(2).saturating_mul(SQUARE_BYTES);
        let sizes = [side, square.saturating_mul(device.threads() as u64)];
        let bands = Self::beside(genotypes, device, options, sizes, run)?;
        if !bands.are_whole() {
            let why = format!(
                "{} of the variants have more than two alleles, which are not told apart some samples at a time: take all but the reference \
                 for one, or all distances at once, in memory",
                bands.multiallelic
            );
            return refuse("merge_alleles", &why);
        }
        Ok(bands)
    }

    /// True where bands are the distances: not where alternate alleles are to be told apart.
    pub(super) fn are_whole(&self) -> bool {
        self.multiallelic == 0 || !self.options.tells_alleles(self.cohort.reader.genotypes.ploidy())
    }

    /// [`new`](Self::new) of checked arguments, with `beside` bytes on the host for what becomes of bands.
    pub(super) fn beside(
        genotypes: &Genotypes,
        device: &Device,
        options: &DistanceOptions,
        [side, beside]: [u64; 2],
        run: &Run,
    ) -> Result<Self> {
        let genotypes = &genotypes.clone().dosages_are_bounded(true).watched();
        let n = genotypes.samples();
        let each = Each {
            needs: &|reader| needs(reader, options, 0..side.min(n), beside),
            start: &|reader| {
                accumulator(reader, options, |metric, _| {
                    PackedPairs::diagonal(device, n, reader.variants(), metric)
                })
            },
            add: &mut |adding: &mut Accumulator, reader, panel, stats| {
                reader
                    .steps(&panel.rows)
                    .try_for_each(|rows| adding.add(reader, panel, &rows, &stats[panel.places(&rows)]))
            },
        };
        // The number of bands is not known before memory is planned.
        let wanted = Wanted::default().sums_of_pairs().more_passes(n.div_ceil(side));
        let (adding, cohort) = Cohort::load_with(genotypes, device, &wanted, run, each)?;
        let counts = adding.variants.counts();
        if counts.loaded() == 0 {
            return Err(Error::argument(OP, "genotypes", no_variant(&counts)));
        }
        let diagonal = adding.into_packed().finish_diagonal()?;
        let multiallelic = Several::new(&cohort, options, run)?.len();
        Ok(Self { cohort, options: *options, counts, multiallelic, diagonal, side, beside })
    }

    /// Gives each band to `sink`, in order. Tiles of `side` samples, by number, for which `is_done` is true are left out.
    ///
    /// Progress counts the first pass as pass 0.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the device has not even room for a tile; [`Error::Store`] and [`Error::Chunk`] for genotypes that changed or
    /// cannot be read; [`Error::Cancelled`]; what `sink` returns.
    pub fn each(
        &self,
        run: &Run,
        is_done: &dyn Fn(u64) -> bool,
        sink: &mut dyn FnMut(DistanceBand) -> Result<()>,
    ) -> Result<()> {
        let is_done: Vec<bool> = (0..self.tiles()).map(is_done).collect();
        let (mut done, mut pass, mut most) = (0, 1, u64::MAX);
        while let Some(tiles) = self.next(&is_done, done, most) {
            let bands = iter::successors(Some(tiles.clone()), |band| self.next(&is_done, band.end, most));
            let passes = pass + passes_of(bands.count() as u64) - 1;
            let told = Pass::new(run, Status::new(pass, passes, self.cohort.reader.variants()));
            match self.band(self.samples_of(&tiles), &told) {
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

    /// Tiles of samples.
    pub(super) fn tiles(&self) -> u64 {
        self.cohort.reader.samples().div_ceil(self.side)
    }

    /// The samples of some tiles.
    pub(super) fn samples_of(&self, tiles: &Range<u64>) -> Range<u64> {
        let samples = |tile: u64| (tile * self.side).min(self.cohort.reader.samples());
        samples(tiles.start)..samples(tiles.end)
    }

    /// The tiles of the next band from one on, as many as memory allows, and at most so many.
    fn next(&self, is_done: &[bool], from: u64, most: u64) -> Option<Range<u64>> {
        let left = |tile: &u64| !is_done[to_usize(*tile)];
        let first = (from..self.tiles()).find(left)?;
        let end = first + (first..self.tiles()).take_while(left).count() as u64;
        let (mut fits, mut too_many) = (first + 1, end.min(first.saturating_add(most)) + 1);
        while too_many - fits > 1 {
            let middle = u64::midpoint(fits, too_many);
            let own = self.samples_of(&(first..middle));
            let needs = needs(&self.cohort.reader, &self.options, own, self.beside);
            if self.cohort.memory.fits(&self.cohort.reader, needs + self.cohort.held()) {
                fits = middle;
            } else {
                too_many = middle;
            }
        }
        Some(first..fits)
    }

    fn band(&self, own: Range<u64>, pass: &Pass<'_>) -> Result<DistanceBand> {
        let (reader, options) = (&self.cohort.reader, &self.options);
        let Found { mut distances, shared, .. } =
            self.cohort.with_room(needs(reader, options, own.clone(), self.beside), &mut |reading| {
                let mut adding = accumulator(reader, options, |metric, missing| {
                    let (device, variants) = (&reader.device, reader.variants());
                    PackedPairs::of_columns(device, reader.samples(), own.clone(), variants, metric, missing)
                })?;
                self.cohort.each_step(pass, reading, &mut |panel, rows, stats| {
                    adding.add(reader, panel, rows, stats)
                })?;
                adding.finish(|pairs| pairs.finish_columns(&self.diagonal))
            })?;
        options.finish(&mut distances, shared.as_ref(), &self.counts, reader.genotypes.ploidy());
        Ok(DistanceBand { own, matrix: distances, shared })
    }

    /// True where a call is missing, so that bands have [`shared`](DistanceBand::shared).
    pub fn has_shared(&self) -> bool {
        !self.diagonal.is_complete()
    }

    /// Variants that take part.
    pub fn counts(&self) -> &VariantCounts {
        &self.counts
    }

    /// The number of these with more than two alleles, all but the reference of which count as one.
    pub fn multiallelic(&self) -> u64 {
        self.multiallelic
    }

    /// 64-bit FNV-1a of every variant's sum of dosages (f64) and number of called samples (u64), little-endian.
    pub fn digest(&self) -> u64 {
        self.cohort.digest()
    }

    /// The memory budgets of the plan, with defaults filled in; none for a device that shares the host's memory.
    pub fn memory(&self) -> Budget {
        self.cohort.memory()
    }

    /// The time that each step of all passes so far took.
    pub fn stats(&self) -> StreamStats {
        self.cohort.stats()
    }
}

/// Sums over no variants, which `packed` makes.
fn accumulator(
    reader: &Reader,
    options: &DistanceOptions,
    packed: impl FnOnce(Metric, Missing) -> Result<PackedPairs>,
) -> Result<Accumulator> {
    Accumulator::new(from_ref(reader), reader.variants(), options, packed)
}

/// The argument that there are no bands for, and the reason; none where bands can be made.
///
/// # Errors
/// As [`Reader::new`].
pub(super) fn unfit(
    genotypes: &Genotypes,
    device: &Device,
    options: &DistanceOptions,
) -> Result<Option<(&'static str, String)>> {
    let metric = options.metric.summed();
    if !PackedPairs::takes(metric) {
        return Ok(Some(("metric", format!("{metric} is computed in f32, for all samples at once"))));
    }
    let why = "distances of some samples at a time are of dosages 0, 1 and 2 alone";
    Ok((!are_packed(genotypes, device)?).then(|| ("genotypes", why.to_owned())))
}

/// Memory for a band, for what is known of each sample, and for `beside` bytes more on the host.
fn needs(reader: &Reader, options: &DistanceOptions, own: Range<u64>, beside: u64) -> Needs {
    let (device, n) = (&reader.device, reader.samples());
    let sums = |rows, metric| PackedPairs::needs_of_columns(device, n, own, rows, metric);
    Accumulator::needs(from_ref(reader), options, sums) + Needs::host(beside) + Needs::host(48) * n
}

/// The first pass, and one for each band.
fn passes_of(bands: u64) -> u32 {
    u32::try_from(bands).unwrap_or(u32::MAX - 1).saturating_add(1)
}
