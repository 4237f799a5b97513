//! Distances of the samples of one genotype matrix from the samples of another.

mod reading;

use std::ops::Range;

use teatime::{
    Budget, Device, Error, Needs, Result, Run, Status, Tensor,
    distance::{Distances as Found, PackedPairs},
    linalg::{Matrix, Pass, Stats, standardize},
    packed::{Entries, Panel, side_by_side, unpack_rows},
    stream::{StreamStats, digest},
};

use self::reading::{Chain, plan, read_both};
use super::{
    DistanceOptions, SampleMetric,
    adding::{Accumulator, Pairs, row},
    alleles::several_of_both,
    check_packed,
};
use crate::{
    cohort::{no_variant, with_less_memory},
    filter::VariantCounts,
    memory::Memory,
    project::Match,
    reader::{Reader, block_rows},
    source::{Genotypes, check_extents},
    to_usize,
};

const OP: &str = "distances_between";

/// Distances of the samples of one genotype matrix from the samples of another.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DistancesBetween {
    /// The distances, (samples of `genotypes`, samples of `with`).
    pub matrix: Matrix,
    /// The number of variants called in both samples, in the same shape, if a call is missing; otherwise it
    /// is [`VariantCounts::loaded`] for every pair. None with [`Missing::Propagate`](teatime::distance::Missing::Propagate) if sums are in f32.
    pub shared: Option<Matrix>,
    /// Counts of the variants that both have, and of those that took part.
    pub counts: VariantCounts,
    /// The number of variants that both have and that have more than two alleles in one of them.
    /// Their alternate alleles count as one, since each matrix numbers them by itself.
    pub multiallelic: u64,
    /// The options that were given.
    pub options: DistanceOptions,
    /// A digest of every variant's sum of dosages and number of called samples in both, in the order of reading.
    pub digest: u64,
    /// The memory budgets of the plan, with defaults filled in. A device that shares the host's memory has no budget of its own.
    pub memory: Budget,
    /// The time that each step took; waiting for chunks is counted for both readings.
    pub stats: StreamStats,
}

impl DistancesBetween {
    /// Returns the number of pairs of samples whose distance is NaN.
    pub fn undefined(&self) -> u64 {
        self.matrix.data().iter().filter(|distance| distance.is_nan()).count() as u64
    }
}

/// Computes the distances of the samples of `genotypes` from those of `with`, over the variants that both have, in memory bounded by `run.memory`.
///
/// `matches` says for each variant of `genotypes` which variant of `with` it is; for [`Match::Swapped`], a dosage of
/// `with` becomes the ploidy less the dosage. Distances, and the variants that `options.filter` leaves out, equal those
/// of [`distances`](super::distances()) for one matrix with the samples of both: to the last bit if its sums are exact.
///
/// # Shapes
/// `genotypes`: (variants, samples), `with`: (its variants, its samples) -> (samples, samples of `with`).
///
/// # Cost
/// One pass over both at the same time, reading chunks with variants that both have; a further pass for those variants
/// alone that `with` has in another order than the variants before them. For a metric that [`PackedPairs`] takes, each variant costs what [`PackedPairs::between`]
/// says, otherwise a few operations in f32 for each pair of samples and term of the metric. Each pair takes 8 bytes on the
/// host and the device, and as many again for missing calls; otherwise 8 on the device and 16 on the host for each term.
///
/// # Errors
/// Fails as [`distances`](super::distances()) does, but `options.tree` has to be none; with [`Error::Argument`] for
/// another ploidy in `with`; for `matches` that do not have one entry for each variant of `genotypes`, name a variant
/// that `with` does not have, or match nothing; and if the orders differ so much that more than 64 passes were needed.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, distance::Metric, store::MemoryArray};
/// use teatime_genotype::{DistanceOptions, Genotypes, Match, SampleMetric, distances_between};
///
/// let store = |dosages: &[i8], samples: u64| {
///     let shape = [dosages.len() as u64 / samples, samples];
///     Genotypes::new(vec![Arc::new(MemoryArray::new("dosages", dosages, &shape, &shape)?)])
/// };
/// let (new, known) = (store(&[0, 1, 2], 1)?, store(&[0, 1, 2, 2, 1, 0, 0, 0], 2)?);
/// // Of the new variants, the first is the third of the others, the second is not there, and the third is the second with other alleles counted.
/// let matches = [Some(Match::Same(2)), None, Some(Match::Swapped(1))];
/// let options = DistanceOptions::default().metric(SampleMetric::Of(Metric::CityBlock));
/// let result = distances_between(&new, &known, &matches, &Device::cpu(), &options, &Run::default())?;
/// assert_eq!(result.matrix.row(0), [1.0 + 2.0, 0.0 + 2.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn distances_between(
    genotypes: &Genotypes,
    with: &Genotypes,
    matches: &[Option<Match>],
    device: &Device,
    options: &DistanceOptions,
    run: &Run,
) -> Result<DistancesBetween> {
    with_room_beside(genotypes, with, matches, device, options, 0, run)
}

/// Computes [`distances_between`], with `beside` bytes on the host left for the caller's work on the result.
pub(super) fn with_room_beside(
    genotypes: &Genotypes,
    with: &Genotypes,
    matches: &[Option<Match>],
    device: &Device,
    options: &DistanceOptions,
    beside: u64,
    run: &Run,
) -> Result<DistancesBetween> {
    check_extents(OP, genotypes)?;
    check_extents(OP, with)?;
    options.check(OP, genotypes)?;
    let refuse = |name, why: String| Err(Error::argument(OP, name, why));
    if options.tree.is_some() {
        return refuse("tree", "is of the distances of samples from themselves".into());
    }
    if genotypes.ploidy() != with.ploidy() {
        return refuse(
            "with",
            format!("of ploidy {}, and `genotypes` {}", with.ploidy(), genotypes.ploidy()),
        );
    }
    if matches.len() as u64 != genotypes.variants() {
        return refuse("matches", format!("{} for {} variants", matches.len(), genotypes.variants()));
    }
    if options.metric == SampleMetric::IbsOfAlleles {
        for (name, side) in [("genotypes", genotypes), ("with", with)] {
            check_packed(name, side, device)?;
        }
    }
    let bounded = PackedPairs::takes(options.metric.summed());
    let sides =
        [genotypes, with].map(|side| side.clone().dosages_are_bounded(side.bounded() || bounded).watched());
    let chains = Chain::from_matches(matches, with.variants())?;
    let distances = with_less_memory(device, run, |run| {
        Memory::new(device, run)?
            .plan(|memory| attempt(memory, &sides, &chains, device, options, beside, run))
    })?;
    if !sides.iter().any(Genotypes::has_further_alleles) {
        return Ok(distances);
    }
    let own = (0..).zip(matches).filter(|(_, matched)| matched.is_some()).map(|(variant, _)| variant);
    let row = |matched: &Match| match *matched {
        Match::Same(row) | Match::Swapped(row) => u64::from(row),
    };
    let others = matches.iter().flatten().map(row);
    let both = [(genotypes, own.collect()), (with, others.collect())];
    let multiallelic = several_of_both(both, device, run)?;
    Ok(DistancesBetween { multiallelic, ..distances })
}

/// Makes one attempt within the budget.
fn attempt(
    memory: Memory,
    sides: &[Genotypes; 2],
    chains: &[Chain],
    device: &Device,
    options: &DistanceOptions,
    beside: u64,
    run: &Run,
) -> Result<DistancesBetween> {
    let host = chains.iter().map(Chain::bytes).fold(beside, u64::saturating_add);
    let variants = chains.iter().map(|chain| chain.swapped.len() as u64).sum();
    let samples = sides.each_ref().map(Genotypes::samples);
    let passes = u32::try_from(chains.len()).unwrap_or(u32::MAX);
    // The sums are made once memory is planned.
    let (mut adding, mut stats) = (None, StreamStats::default());
    for (number, chain) in (0..).zip(chains) {
        let reader = |side: usize| {
            let part = sides[side].part(&chain.rows[side])?;
            let reader = Reader::in_blocks(&part, device, false, block_rows(samples[0] + samples[1]))?;
            Ok::<_, Error>(memory.in_steps(reader))
        };
        let readers = [reader(0)?, reader(1)?];
        let need = BetweenAccumulator::needs(&readers, options) + Needs::host(host);
        let reading = plan(&memory, &readers, need)?;
        let adding = match &mut adding {
            Some(adding) => adding,
            none => none.insert(BetweenAccumulator::new(&readers, variants, options)?),
        };
        let pass = Pass::new(run, Status::new(number, passes, readers[0].variants()));
        let read = read_both(&readers, reading, &pass, &mut |panels, rows| {
            adding.add(&readers, panels, &rows, &chain.swapped[to_usize(rows.start)..to_usize(rows.end)])
        })?;
        stats.add(&read);
    }
    let Some(adding) = adding else {
        unreachable!("there should be a chain of variants");
    };
    let (counts, digest) = (adding.sums.variants.counts(), adding.digest);
    if counts.loaded() == 0 {
        return Err(Error::argument(OP, "genotypes", no_variant(&counts)));
    }
    let Found { distances: mut matrix, shared, .. } = adding.sums.finish(PackedPairs::finish_between)?;
    options.finish(&mut matrix, shared.as_ref(), &counts, sides[0].ploidy());
    let (memory, multiallelic, options) = (memory.budget(), 0, *options);
    Ok(DistancesBetween { matrix, shared, counts, multiallelic, options, digest, memory, stats })
}

/// Sums over variants for pairs of a sample of each side.
struct BetweenAccumulator {
    sums: Accumulator,
    digest: u64,
}

impl BetweenAccumulator {
    /// Makes sums over no variants, for `variants` to come.
    fn new(readers: &[Reader; 2], variants: u64, options: &DistanceOptions) -> Result<Self> {
        let ([n, others], device) = (readers.each_ref().map(Reader::samples), &readers[0].device);
        let sums = Accumulator::new(readers, variants, options, |metric, missing| {
            // The samples of the second come first, so that their columns become the columns of the result.
            PackedPairs::between(device, [others, n], variants, metric, missing)
        })?;
        Ok(Self { sums, digest: 0 })
    }

    /// Returns the memory that the sums take, with their results.
    fn needs(readers: &[Reader; 2], options: &DistanceOptions) -> Needs {
        let ([n, others], device) = (readers.each_ref().map(Reader::samples), &readers[0].device);
        Accumulator::needs(readers, options, |rows, metric| {
            PackedPairs::needs_between(device, [others, n], rows, metric)
        })
    }

    /// Adds `rows`, which are in a panel of each, with the sums of all rows of both panels.
    fn add(
        &mut self,
        readers: &[Reader; 2],
        panels: [(&Panel, &[Stats]); 2],
        rows: &Range<u64>,
        swapped: &[bool],
    ) -> Result<()> {
        let stats = panels.map(|(panel, stats)| &stats[panel.places(rows)]);
        for stats in stats[0].iter().zip(stats[1]).flat_map(|(one, other)| [one, other]) {
            self.digest = digest(self.digest, bytemuck::bytes_of(&[stats.sum.to_bits(), stats.count]));
        }
        let ploidy = readers[0].genotypes.ploidy();
        let of_both = stats[0].iter().zip(stats[1]).zip(swapped);
        let of_both =
            of_both.map(|((one, other), swapped)| both(one, other, swapped.then_some(ploidy as f64)));
        let kept = self.sums.variants.kept(&readers[0], &of_both.collect::<Vec<_>>())?;
        let panels = panels.map(|(panel, _)| panel);
        match &mut self.sums.pairs {
            Pairs::Packed(pairs) => {
                let columns = readers[1].samples();
                let padding = columns.next_multiple_of(64) - columns;
                let padded = |stats: Stats| Stats { count: stats.count + padding, ..stats };
                let kept = kept.iter().map(|kept| kept.map(padded));
                pairs.add(&beside(readers, panels, rows, swapped)?, 0, &kept.collect::<Vec<_>>())
            }
            Pairs::Real { sums, missing } => readers[0].blocks(rows).try_for_each(|block| {
                let of_block = to_usize(block.start - rows.start)..to_usize(block.end - rows.start);
                let kept = &kept[of_block.clone()];
                let table: Vec<_> = kept.iter().map(|kept| row(kept.is_some(), *missing)).collect();
                let turned = kept.iter().zip(&swapped[of_block]).zip(&table);
                let turned = turned.map(|((kept, swapped), row)| match kept {
                    Some(_) if *swapped => [ploidy as f32, -1.0, f32::NAN],
                    _ => *row,
                });
                let x = numbers(&readers[0], panels[0], &block, &table)?;
                let y = numbers(&readers[1], panels[1], &block, &turned.collect::<Vec<_>>())?;
                sums.add(&x, Some(&y))
            }),
        }
    }
}

/// Adds the sums of both; with `turned`, the ploidy, dosages of the other become the ploidy less the dosage.
fn both(one: &Stats, other: &Stats, turned: Option<f64>) -> Stats {
    let Stats { sum, sum_squares, count, .. } = *other;
    let (sum, sum_squares) = match turned {
        Some(ploidy) => {
            let alleles = count as f64 * ploidy;
            (alleles - sum, ploidy * (alleles - 2.0 * sum) + sum_squares)
        }
        None => (sum, sum_squares),
    };
    let count = one.count + count;
    Stats { sum: one.sum + sum, sum_squares: one.sum_squares + sum_squares, count, bad: 0 }
}

/// Puts packed rows of the second matrix side by side with the same rows of the first; dosages of swapped variants become the ploidy less the dosage.
fn beside(
    readers: &[Reader; 2],
    panels: [&Panel; 2],
    rows: &Range<u64>,
    swapped: &[bool],
) -> Result<Tensor<u32>> {
    let [Entries::Packed(first), Entries::Packed(others)] = panels.map(|panel| &panel.entries) else {
        unreachable!("dosages that are packed should be held so");
    };
    let turned = if readers[0].genotypes.ploidy() == 1 { [1, 0, 2, 3] } else { [2, 1, 0, 3] };
    let codes = swapped.iter().map(|&swapped| if swapped { turned } else { [0, 1, 2, 3] });
    let side = |packed, side: usize| (packed, readers[side].samples(), rows.start - panels[side].rows.start);
    side_by_side(side(others, 1), side(first, 0), &codes.collect::<Vec<_>>())
}

/// Returns a block of rows of a panel in f32, with the rows of `table` for [`standardize`].
fn numbers(reader: &Reader, panel: &Panel, block: &Range<u64>, table: &[[f32; 3]]) -> Result<Tensor<f32>> {
    let Entries::Packed(packed) = &panel.entries else {
        // A panel that is not packed is a single block.
        return panel.standardized(table);
    };
    let rows: Vec<u64> = (block.start - panel.rows.start..block.end - panel.rows.start).collect();
    standardize(&unpack_rows(packed, &rows, reader.samples(), [0.0, 1.0, 2.0, f32::NAN])?, table, true)
}
