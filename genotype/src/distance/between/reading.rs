//! Two passes at the same time, over the variants that two matrices share.

use std::{
    ops::Range,
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::{Duration, Instant},
};

use teatime::{
    Error, Needs, Result, Run, Status,
    linalg::{Pass, Stats},
    packed::Panel,
    stream::StreamStats,
};

use super::OP;
use crate::{
    memory::{Memory, Wishes, blocks, stream},
    project::Match,
    reader::{Read, Reader, Reading},
};

/// The maximum number of passes that variants in different orders may take.
const MAX_PASSES: usize = 64;

/// Variants that both matrices have, in ascending order in both.
#[derive(Default)]
pub(super) struct Chain {
    /// The indices of the variants in both matrices.
    pub(super) rows: [Vec<Range<u64>>; 2],
    /// True for each variant whose counted allele differs between the two matrices.
    pub(super) swapped: Vec<bool>,
}

impl Chain {
    /// Makes the fewest chains that hold all variants.
    pub(super) fn from_matches(matches: &[Option<Match>], variants: u64) -> Result<Vec<Self>> {
        let refuse = |why: String| Err(Error::argument(OP, "matches", why));
        let mut chains: Vec<Self> = Vec::new();
        for (row, matched) in (0..).zip(matches) {
            let Some(matched) = matched else { continue };
            let (with, swapped) = (u64::from(matched.row()), matches!(matched, Match::Swapped(_)));
            if with >= variants {
                return refuse(format!("variant {row} is number {with} of {variants}"));
            }
            // Ends of chains descend: this finds the chain with the largest end that is not after the variant.
            let at = chains.partition_point(|chain| chain.end() > with);
            if at == MAX_PASSES {
                return refuse(format!(
                    "variant {row} is number {with}: the variants are in so different orders that they would take more than \
                     {MAX_PASSES} passes; sort one of both"
                ));
            }
            if at == chains.len() {
                chains.push(Self::default());
            }
            chains[at].push([row, with], swapped);
        }
        if chains.is_empty() {
            refuse(format!("none of the {} variants is in both", matches.len()))
        } else {
            Ok(chains)
        }
    }

    /// Returns the index after the chain's last variant of the second matrix.
    fn end(&self) -> u64 {
        self.rows[1].last().map_or(0, |rows| rows.end)
    }

    fn push(&mut self, numbers: [u64; 2], swapped: bool) {
        for (rows, number) in self.rows.iter_mut().zip(numbers) {
            match rows.last_mut() {
                Some(last) if last.end == number => last.end += 1,
                _ => rows.push(number..number + 1),
            }
        }
        self.swapped.push(swapped);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.rows.iter().map(|rows| 16 * rows.len() as u64).sum::<u64>() + self.swapped.len() as u64
    }
}

/// Plans how both matrices are read within the budget.
///
/// # Errors
/// [`Error::Budget`] with the smallest budget that would do.
pub(super) fn plan(memory: &Memory, [reader, other]: &[Reader; 2], needs: Needs) -> Result<[Reading; 2]> {
    // The other reader has three panels: one is filled, one waits, and one is used.
    let panel = other.panel_rows(other.step_bytes).min(other.variants());
    let held = Needs::device(other.held_row_bytes()) * panel;
    let needs = needs + stream(other) + blocks(other) + held;
    let ahead = other.plan.ahead(other.device.pool()?.current_num_threads() as u64);
    let with_ahead = needs + Needs::host(ahead);
    let (needs, ahead) = if memory.fits(reader, with_ahead) { (with_ahead, ahead) } else { (needs, 0) };
    let prefetch = other.plan.largest_need().saturating_add(ahead);
    let upload_rows = other.plan.block_rows();
    let others = Reading { panel_bytes: other.step_bytes, prefetch, upload_rows };
    Ok([memory.allow(reader, needs, Wishes::default())?.reading, others])
}

/// A panel that a pass read, with the sums of its rows.
type Summed = (Panel, Vec<Stats>);

/// A callback that takes a panel of each matrix with the sums of its rows, and the rows that are in both panels.
type RowsOfBoth<'a> = dyn FnMut([(&Panel, &[Stats]); 2], Range<u64>) -> Result<()> + 'a;

/// Makes one pass over both matrices at the same time: gives `f` the rows that are in a panel of each, in order.
///
/// # Errors
/// Any error that reading, the device or `f` reports; [`Error::Cancelled`].
pub(super) fn read_both(
    [reader, other]: &[Reader; 2],
    [reading, others]: [Reading; 2],
    pass: &Pass<'_>,
    f: &mut RowsOfBoth<'_>,
) -> Result<StreamStats> {
    // One panel waits while the previous one is used.
    let (sender, panels) = sync_channel::<Summed>(0);
    let silent = Run::default().cancel(pass.run().cancel.clone());
    let mut waited = Duration::ZERO;
    thread::scope(|scope| {
        let silent = &silent;
        let read_others = move || {
            let pass = Pass::new(silent, Status::new(0, 1, other.variants()));
            other.read(&pass, others, false, &mut |panel, stats| {
                // Nobody takes the panel if the pass over the first ended early.
                sender.send((panel, stats.to_vec())).map_err(|_| Error::Cancelled)
            })
        };
        let thread = thread::Builder::new().name("teatime-with".into()).spawn_scoped(scope, read_others);
        let thread = thread.map_err(|error| Error::Driver { backend: "host", source: error.into() })?;
        let read = read_first(reader, reading, pass, &panels, &mut waited, f);
        drop(panels);
        let read_others = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (read, read_others) {
            // This error is the reason why the first pass ended.
            (Err(Error::Cancelled) | Ok(_), Err(error)) => Err(error),
            (Err(error), _) => Err(error),
            (Ok(mut stats), Ok(Read { stats: mut others, .. })) => {
                others.peak_chunk_bytes += stats.peak_chunk_bytes;
                // The passes ran at the same time: computing of the other pass does not count, and
                // its stall is the time that the first pass `waited` for it.
                (others.stalled, others.compute) = (waited, Duration::ZERO);
                stats.compute = stats.compute.saturating_sub(waited);
                stats.add(&others);
                Ok(stats)
            }
        }
    })
}

/// Makes the pass over the first matrix, which takes panels of the second as it needs them. Adds the time spent waiting for these panels to `waited`.
fn read_first(
    reader: &Reader,
    reading: Reading,
    pass: &Pass<'_>,
    panels: &Receiver<Summed>,
    waited: &mut Duration,
    f: &mut RowsOfBoth<'_>,
) -> Result<StreamStats> {
    let mut held: Option<Summed> = None;
    let read = reader.read(pass, reading, false, &mut |panel, stats| {
        let mut first = panel.rows.start;
        while first < panel.rows.end {
            if held.as_ref().is_none_or(|(other, _)| other.rows.end <= first) {
                let started = Instant::now();
                // The old panel is freed first.
                held = None;
                // If receiving fails, the other pass ended with an error, which is reported instead.
                held = Some(panels.recv().map_err(|_| Error::Cancelled)?);
                *waited += started.elapsed();
            }
            let Some((other, of_other)) = &held else { unreachable!("a panel was just taken") };
            let end = panel.rows.end.min(other.rows.end);
            f([(&panel, stats), (other, of_other)], first..end)?;
            first = end;
        }
        Ok(())
    })?;
    Ok(read.stats)
}
