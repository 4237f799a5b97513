//! Distances of the samples of one genotype matrix from the samples of another.

mod chains;

use std::{ops::Range, time::Instant};

use teatime::{
    Error, Needs, Result, Run, Status, Tensor,
    distance::{ColumnPairs, PackedPairs},
    linalg::{Pass, Stats, standardize},
    packed::{Entries, Panel, side_by_side, unpack_rows},
    stream::{StreamStats, digest},
};

use self::chains::Chain;
use super::{
    DistanceFacts, DistanceOptions, Distances, Settings,
    adding::{Accumulator, Pairs, row},
    alleles::several_of_both,
};
use crate::{
    cohort::with_less_memory,
    memory::{Memory, Wishes, blocks, stream},
    project::Match,
    reader::{CountedPanel, Panels, Reader, Reading, block_rows},
    source::{Genotypes, check_extents},
    to_usize,
};

/// The name of the call in errors about two matrices.
pub(super) const OP: &str = "distances_between";

/// The second matrix, and its variant that matches each variant of the first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Others<'a> {
    pub(super) genotypes: &'a Genotypes,
    pub(super) matches: &'a [Option<Match>],
}

impl Others<'_> {
    /// Checks the second matrix and the options of its distances from the samples of `genotypes`.
    pub(super) fn check(self, genotypes: &Genotypes, options: &DistanceOptions) -> Result<()> {
        let Self { genotypes: with, matches } = self;
        check_extents(OP, with)?;
        let refuse = |name, why: String| Err(Error::argument(OP, name, why));
        if options.tree.is_some() {
            return refuse("tree", "is of the distances of samples from themselves".into());
        }
        if genotypes.ploidy() != with.ploidy() {
            let why = format!("of ploidy {}, and `genotypes` {}", with.ploidy(), genotypes.ploidy());
            return refuse("with", why);
        }
        if matches.len() as u64 != genotypes.variants() {
            return refuse("matches", format!("{} for {} variants", matches.len(), genotypes.variants()));
        }
        Ok(())
    }

    /// Computes the distances of the samples of `genotypes` from these, for checked arguments.
    pub(super) fn distances(self, genotypes: &Genotypes, settings: Settings<'_>) -> Result<Distances> {
        let (Self { genotypes: with, matches }, Settings { device, options, run, .. }) = (self, settings);
        let bounded = PackedPairs::takes(options.metric.summed());
        let sides = [genotypes, with].map(|side| side.bounded_if(bounded).watched());
        let chains = Chain::from_matches(matches, with.variants())?;
        let beside = chains.iter().map(Chain::bytes).fold(settings.beside, u64::saturating_add);
        let work = Work { sides, chains, settings: Settings { beside, ..settings } };
        let mut distances = with_less_memory(device, run, |run| {
            Memory::new(device, run)?.plan(|memory| work.attempt(memory, run))
        })?;
        if work.sides.iter().any(Genotypes::has_further_alleles) {
            let own = (0..).zip(matches).filter(|(_, hit)| hit.is_some()).map(|(variant, _)| variant);
            let others = matches.iter().flatten().map(|hit| u64::from(hit.row()));
            let both = [(genotypes, own.collect()), (with, others.collect())];
            distances.facts.multiallelic = several_of_both(both, device, run)?;
        }
        Ok(distances)
    }
}

/// The work on two matrices, whose variants are read chain by chain.
struct Work<'a> {
    sides: [Genotypes; 2],
    chains: Vec<Chain>,
    settings: Settings<'a>,
}

impl Work<'_> {
    fn attempt(&self, memory: Memory, run: &Run) -> Result<Distances> {
        let Settings { device, options, beside, .. } = self.settings;
        let variants = self.chains.iter().map(|chain| chain.swapped.len() as u64).sum();
        let samples = self.sides.each_ref().map(Genotypes::samples);
        // The samples of the second come first, so that their columns become the columns of the result.
        let pairs = ColumnPairs::Between([samples[1], samples[0]]);
        let passes = u32::try_from(self.chains.len()).unwrap_or(u32::MAX);
        // The sums are made once memory is planned.
        let (mut adding, mut digested, mut stats) = (None, 0, StreamStats::default());
        for (number, chain) in (0..).zip(&self.chains) {
            let readers = self.readers(&memory, chain)?;
            let needs = Accumulator::needs(&readers, options, &pairs, beside);
            let readings = plan(&memory, &readers, needs)?;
            let adding = match &mut adding {
                Some(adding) => adding,
                none => none.insert(Accumulator::new(device, &readers, variants, options, &pairs)?),
            };
            let pass = Pass::new(run, Status::new(number, passes, readers[0].variants()));
            let rows = readers[0].whole_panel(readings[0]);
            let panels = |side: usize| Panels::new(&readers[side], readings[side], rows, &run.cancel);
            let (mut own, mut others) = (panels(0)?, panels(1)?);
            while let Some(first) = own.next(Some(&pass))?
                && let Some(second) = others.next(None)?
            {
                let started = Instant::now();
                add(adding, &mut digested, &readers, [&first, &second], &chain.swapped)?;
                own.blocks.stats.compute += started.elapsed();
            }
            let [own, others] = [own.blocks.stats, others.blocks.stats];
            stats.add(&own);
            stats.add(&others);
            stats.peak_chunk_bytes =
                stats.peak_chunk_bytes.max(own.peak_chunk_bytes + others.peak_chunk_bytes);
        }
        let Some(adding) = adding else {
            unreachable!("there should be a chain of variants");
        };
        let facts = DistanceFacts {
            others: Some(samples[1]),
            counts: adding.variants.counts(OP)?,
            merged: true,
            options: *options,
            devices: 1,
            digest: digested,
            memory: memory.budget(),
            stats,
            ..DistanceFacts::default()
        };
        Distances::new(adding.finish(None)?, facts, &self.sides[0])
    }

    /// Returns the readers of a chain's variants in both matrices, with panels of the same number of rows.
    fn readers(&self, memory: &Memory, chain: &Chain) -> Result<[Reader; 2]> {
        let block = block_rows(self.sides.iter().map(Genotypes::samples).sum());
        let reader = |side: usize| {
            let part = self.sides[side].part(chain.rows[side].iter().cloned())?;
            Ok::<_, Error>(memory.in_steps(Reader::in_blocks(&part, self.settings.device, false, block)?))
        };
        let readers = [reader(0)?, reader(1)?];
        let [own, others] = readers.each_ref().map(|reader| reader.panel_rows(reader.step_bytes));
        Ok(readers.map(|reader| Reader { step_bytes: own.min(others) * reader.held_row_bytes(), ..reader }))
    }
}

/// Plans how both matrices are read within the budget.
fn plan(memory: &Memory, [reader, other]: &[Reader; 2], needs: Needs) -> Result<[Reading; 2]> {
    let needs = needs + stream(other) + blocks(other);
    let ahead = other.plan.ahead(other.device.pool()?.current_num_threads() as u64);
    let with_ahead = needs + Needs::host(ahead);
    let (needs, ahead) = if memory.fits(reader, with_ahead) { (with_ahead, ahead) } else { (needs, 0) };
    let prefetch = other.plan.largest_need().saturating_add(ahead);
    let others = Reading { panel_bytes: other.step_bytes, prefetch, upload_rows: other.plan.block_rows() };
    Ok([memory.allow(reader, needs, Wishes::default())?.reading, others])
}

/// Adds the rows of a panel of each matrix, and digests their sums. `swapped` is of all rows.
fn add(
    adding: &mut Accumulator,
    digested: &mut u64,
    readers: &[Reader; 2],
    [(own, of_own), (others, of_others)]: [&CountedPanel; 2],
    swapped: &[bool],
) -> Result<()> {
    let rows = &own.rows;
    let swapped = &swapped[to_usize(rows.start)..to_usize(rows.end)];
    for stats in of_own.iter().zip(of_others).flat_map(|(one, other)| [one, other]) {
        *digested = digest(*digested, bytemuck::bytes_of(&[stats.sum.to_bits(), stats.count]));
    }
    let ploidy = readers[0].genotypes.ploidy();
    let of_both = of_own.iter().zip(of_others).zip(swapped);
    let of_both = of_both.map(|((one, other), swapped)| both(one, other, swapped.then_some(ploidy as f64)));
    let kept = adding.variants.kept(&readers[0], &of_both.collect::<Vec<_>>())?;
    match &mut adding.pairs {
        Pairs::Packed(pairs) => {
            let columns = readers[1].samples();
            let padding = columns.next_multiple_of(64) - columns;
            let padded = |stats: Stats| Stats { count: stats.count + padding, ..stats };
            let kept = kept.iter().map(|kept| kept.map(padded));
            pairs.add(&beside(readers, [own, others], swapped)?, 0, &kept.collect::<Vec<_>>())
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
            let x = numbers(&readers[0], own, &block, &table)?;
            let y = numbers(&readers[1], others, &block, &turned.collect::<Vec<_>>())?;
            sums.add(&x, Some(&y))
        }),
    }
}

/// Adds the sums of a variant in both matrices. If `turned`, the ploidy, is given, dosages of the second become the ploidy less the dosage.
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
fn beside(readers: &[Reader; 2], panels: [&Panel; 2], swapped: &[bool]) -> Result<Tensor<u32>> {
    let [Entries::Packed(first), Entries::Packed(others)] = panels.map(|panel| &panel.entries) else {
        unreachable!("dosages that are packed should be held so");
    };
    let turned = if readers[0].genotypes.ploidy() == 1 { [1, 0, 2, 3] } else { [2, 1, 0, 3] };
    let codes = swapped.iter().map(|&swapped| if swapped { turned } else { [0, 1, 2, 3] });
    let [own, with] = readers.each_ref().map(Reader::samples);
    side_by_side((others, with, 0), (first, own, 0), &codes.collect::<Vec<_>>())
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
