//! Two passes at the same time, over variants that both have.

use std::{
    ops::Range,
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::{Duration, Instant},
};

use teatime::{
    Error, Result, Run, Status,
    linalg::{Pass, Stats},
    stream::StreamStats,
};

use crate::{
    memory::{Memory, Need, Wishes, block_bytes, stream_bytes},
    panel::Panel,
    reader::{Read, Reader, Reading},
    residency::Residency,
};

/// How both are read within the budget.
///
/// # Errors
/// [`Error::Budget`] with the least that would do.
pub(super) fn plan(memory: &Memory, [reader, other]: &[Reader; 2], need: Need) -> Result<[Reading; 2]> {
    // Beside the panel that is filled and the one that waits, one is used.
    let panel = other.panel_rows(Residency::Store.panel_bytes()).min(other.variants());
    let device = block_bytes(other, 0).saturating_add(panel.saturating_mul(other.held_row_bytes()));
    let need = need.and(Need { host: stream_bytes(other), device, blocks: 0 });
    let ahead = other.plan.ahead(other.device.pool()?.current_num_threads() as u64);
    let with_ahead = need.and(Need { host: ahead, ..Need::default() });
    let (need, ahead) = if memory.fits(reader, with_ahead) { (with_ahead, ahead) } else { (need, 0) };
    let prefetch = other.plan.largest_need().saturating_add(ahead);
    let upload_rows = other.plan.block_rows();
    let others = Reading { panel_bytes: Residency::Store.panel_bytes(), prefetch, upload_rows };
    Ok([memory.allow(reader, need, Wishes::default())?.reading, others])
}

/// A panel that a pass read, with the sums of its rows.
type Summed = (Panel, Vec<Stats>);

/// Is given a panel of each with the sums of its rows, and the rows that are in both.
type RowsOfBoth<'a> = dyn FnMut([(&Panel, &[Stats]); 2], Range<u64>) -> Result<()> + 'a;

/// One pass over both at the same time: gives `f` the rows that are in a panel of each, in order.
///
/// # Errors
/// What reading, the device and `f` report; [`Error::Cancelled`].
pub(super) fn read_both(
    [reader, other]: &[Reader; 2],
    [reading, others]: [Reading; 2],
    pass: &Pass<'_>,
    f: &mut RowsOfBoth<'_>,
) -> Result<StreamStats> {
    // One panel waits while the one before is used.
    let (sender, panels) = sync_channel::<Summed>(0);
    let silent = Run { cancel: pass.run().cancel.clone(), ..Run::default() };
    let mut waited = Duration::ZERO;
    thread::scope(|scope| {
        let silent = &silent;
        let read_others = move || {
            let pass = Pass::new(silent, Status::new(0, 1, other.variants()));
            other.read(&pass, others, false, &mut |panel, stats| {
                // Nobody waits for it once the pass over the first ended early.
                sender.send((panel, stats.to_vec())).map_err(|_| Error::Cancelled)
            })
        };
        let thread = thread::Builder::new().name("teatime-with".into()).spawn_scoped(scope, read_others);
        let thread = thread.map_err(|error| Error::Driver { backend: "host", source: error.into() })?;
        let read = read_first(reader, reading, pass, &panels, &mut waited, f);
        drop(panels);
        let read_others = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        match (read, read_others) {
            // It is why the first ended.
            (Err(Error::Cancelled) | Ok(_), Err(error)) => Err(error),
            (Err(error), _) => Err(error),
            (Ok(mut stats), Ok(Read { stats: mut others, .. })) => {
                others.peak_chunk_bytes += stats.peak_chunk_bytes;
                // What it did while the first waited, and what it waited for itself, is no time of its own.
                (others.stalled, others.compute) = (waited, Duration::ZERO);
                stats.compute = stats.compute.saturating_sub(waited);
                stats.add(&others);
                Ok(stats)
            }
        }
    })
}

/// The pass over the first, which takes the panels of the others as it comes to them, and how long it `waited` for these.
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
                // Not two at once.
                held = None;
                // The other pass ended with an error, which is reported.
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
