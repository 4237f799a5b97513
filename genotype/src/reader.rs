//! A pass over stored genotypes: blocks are filled, uploaded and counted, one ahead of the other, and gathered in panels.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, ops::Range, time::Instant};

use teatime::{
    Cancel, Device, Result, Tensor,
    linalg::{Pass, Stats, pending_row_stats},
    packed::{Entries, PANEL_ROWS, Panel, recode, row_words},
    stream::{Blocks, Digests, Plan, StreamStats},
};

use super::{
    intake::{Counting, Form, Sums, float_sums},
    residency::Residency,
    source::Genotypes,
    to_usize,
};

/// The maximum number of bytes that are uploaded at once.
const UPLOAD_BYTES: u64 = 16 << 20;
/// The maximum number of elements of a canonical block, unless it has the fewest rows: 64 MiB of f32.
const BLOCK_ELEMENTS: u64 = 1 << 24;

/// Returns the number of rows over which the device sums in f32: by the samples alone, so that chunks, threads and budgets change no bit.
pub(crate) fn block_rows(samples: u64) -> u64 {
    let rows = (BLOCK_ELEMENTS / samples.max(1)).clamp(256, 4096);
    1 << rows.ilog2()
}

/// Genotypes, and the settings by which they are read onto a device.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) device: Device,
    pub(crate) genotypes: Genotypes,
    /// The index of the first variant, and the number of all variants, if these are a part of consecutive variants.
    pub(crate) first: u64,
    pub(crate) all: u64,
    /// True if dosages above the ploidy are an error.
    pub(crate) bounded: bool,
    pub(crate) form: Form,
    pub(crate) plan: Plan,
    /// The bytes of a panel from the store, and of the rows of a longer panel that are added at once: the size that the memory plan counts.
    pub(crate) step_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) panel_bytes: u64,
    /// The maximum number of bytes of decoded chunks to hold.
    pub(crate) prefetch: u64,
    /// The number of rows that are uploaded at once, for packed genotypes: whole canonical blocks, no more than a panel has.
    pub(crate) upload_rows: u64,
}

/// The results of a pass over the store besides its panels.
pub(crate) struct Read {
    pub(crate) stats: StreamStats,
    /// The digests of the bytes that were read, if asked for.
    pub(crate) digests: Option<Digests>,
}

pub(crate) type CountedSink<'a> = dyn FnMut(Panel, &[Stats]) -> Result<()> + 'a;

fn in_steps(rows: &Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = rows.end;
    rows.clone().step_by(to_usize(step)).map(move |first| first..end.min(first + step))
}

/// A panel, with the sums of the rows that were counted so far.
pub(crate) type CountedPanel = (Panel, Vec<Stats>);

impl Reader {
    /// Prepares to read `genotypes`; `bounded` is true if dosages above the ploidy are an error.
    pub(crate) fn new(genotypes: &Genotypes, device: &Device, bounded: bool) -> Result<Self> {
        Self::in_blocks(genotypes, device, bounded, block_rows(genotypes.samples()))
    }

    /// Does as [`new`](Self::new), with blocks of the given number of rows.
    pub(crate) fn in_blocks(
        genotypes: &Genotypes,
        device: &Device,
        bounded: bool,
        block_rows: u64,
    ) -> Result<Self> {
        let bounded = bounded || genotypes.bounded;
        let (form, convert) = Form::new(genotypes, bounded);
        let plan = genotypes.plan(convert, block_rows)?;
        let (device, genotypes, all) = (device.clone(), genotypes.clone(), genotypes.variants());
        Ok(Self { device, genotypes, first: 0, all, bounded, form, plan, step_bytes: Residency::LEAST_BYTES })
    }

    /// Makes the reader of some of the variants, which start at a canonical block.
    pub(crate) fn of_part(&self, rows: &Range<u64>) -> Result<Self> {
        let reader = Self::new(&self.genotypes.part([rows.clone()])?, &self.device, self.bounded)?;
        Ok(Self { first: rows.start, all: self.all, step_bytes: self.step_bytes, ..reader })
    }

    pub(crate) fn samples(&self) -> u64 {
        self.genotypes.samples()
    }

    pub(crate) fn variants(&self) -> u64 {
        self.plan.rows()
    }

    /// Returns the number of bytes of a variant as the device holds it.
    pub(crate) fn held_row_bytes(&self) -> u64 {
        match self.form {
            Form::Packed(_) => 4 * row_words(self.samples()),
            Form::Dosages => self.samples(),
            Form::Fractions => 4 * self.samples(),
        }
    }

    /// Returns the rows of a panel of at most `bytes` bytes: whole blocks, at least one; for packed rows, at most [`PANEL_ROWS`].
    pub(crate) fn panel_rows(&self, bytes: u64) -> u64 {
        let block = self.plan.block_rows();
        match self.form {
            Form::Packed(_) => {
                let bytes = bytes.min(self.device.limits().buffer / 2);
                (bytes / self.held_row_bytes().max(1)).min(PANEL_ROWS).max(block) / block * block
            }
            _ => block,
        }
    }

    /// Returns the number of rows of each panel of a pass but the last.
    pub(crate) fn whole_panel(&self, Reading { panel_bytes, upload_rows, .. }: Reading) -> u64 {
        (self.panel_rows(panel_bytes) / upload_rows).max(1) * upload_rows
    }

    /// Returns the number of rows that are uploaded at once, if `host` and `device` bytes are left. Each
    /// upload costs a device with its own memory two waits, and a canonical block of wide rows has few rows.
    pub(crate) fn upload_rows(&self, panel_bytes: u64, [host, device]: [u64; 2]) -> u64 {
        let (plan, block) = (&self.plan, self.plan.block_rows());
        if !self.form.is_packed() {
            return block;
        }
        let panel = self.panel_rows(panel_bytes);
        let fits = |&rows: &u64| {
            // There are two slots on the host, and as much memory on the device.
            let slots = 2 * (plan.staged_bytes(rows) - plan.block_bytes());
            let chunks = plan.largest_need_of(rows).saturating_sub(plan.largest_need());
            rows <= panel
                && plan.staged_bytes(rows) <= UPLOAD_BYTES
                && slots.saturating_add(chunks) <= host / 2
                && slots <= device / 2
        };
        (1..16).map(|doublings| block << doublings).take_while(fits).last().unwrap_or(block)
    }

    /// Returns the canonical blocks of some rows, which start with a block.
    pub(crate) fn blocks(&self, rows: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        in_steps(rows, self.plan.block_rows())
    }

    /// Returns the rows in steps, as large as the memory plan counts.
    pub(crate) fn steps(&self, rows: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        in_steps(rows, self.panel_rows(self.step_bytes))
    }

    /// Makes one pass over the store: gives panels to `f`, in order, with the sums of their rows. If `digest` is true, also digests what is read.
    pub(crate) fn read(
        &self,
        pass: &Pass<'_>,
        reading: Reading,
        digest: bool,
        f: &mut CountedSink<'_>,
    ) -> Result<Read> {
        let mut panels = Panels::new(self, reading, self.whole_panel(reading), &pass.run().cancel)?;
        if digest {
            panels.blocks.digest()?;
        }
        while let Some((panel, stats)) = panels.next(Some(pass))? {
            let started = Instant::now();
            f(panel, &stats)?;
            panels.blocks.stats.compute += started.elapsed();
        }
        Ok(Read { digests: panels.blocks.digests().cloned(), stats: panels.blocks.stats })
    }
}

/// A pass over the store, whose panels are taken one after the other.
pub(crate) struct Panels<'a> {
    reader: &'a Reader,
    pub(crate) blocks: Blocks<'a>,
    /// The number of rows of each panel but the last.
    rows: u64,
    /// The panel that is being counted, and the panel that is being filled.
    open: VecDeque<CountedPanel>,
    counting: Option<Counting>,
    /// The number of rows of the panels that were taken.
    taken: u64,
}

impl<'a> Panels<'a> {
    /// Starts a pass with panels of `rows` rows: a multiple of the rows that are uploaded at once.
    pub(crate) fn new(reader: &'a Reader, reading: Reading, rows: u64, cancel: &Cancel) -> Result<Self> {
        let blocks =
            Blocks::new(&reader.plan, &reader.device, reading.upload_rows, reading.prefetch, cancel)?;
        Ok(Self { reader, blocks, rows, open: VecDeque::new(), counting: None, taken: 0 })
    }

    /// Returns the next panel with the sums of its rows, or none after the last; `told` gets the progress, which counts panels that were used.
    pub(crate) fn next(&mut self, told: Option<&Pass<'_>>) -> Result<Option<CountedPanel>> {
        let tell = |rows| told.map_or(Ok(()), |pass| pass.tell(rows));
        tell(self.taken)?;
        loop {
            // The next block is enqueued before the sums of the current block are waited for.
            let next = self.start()?;
            let ended = next.is_none();
            if let Some((end, sums)) = std::mem::replace(&mut self.counting, next) {
                let started = Instant::now();
                let (mut added, (panel, stats)) = (sums()?, &mut self.open[0]);
                panel.missing |= added.iter().any(|stats| stats.count < self.reader.samples());
                stats.append(&mut added);
                let is_whole = panel.rows.end == end;
                self.blocks.stats.compute += started.elapsed();
                if is_whole {
                    self.taken = end;
                    return Ok(self.open.pop_front());
                }
                tell(end)?;
            }
            if ended {
                return Ok(None);
            }
        }
    }

    /// Takes the next block and enqueues its upload and sums; it becomes a part of the last panel.
    fn start(&mut self) -> Result<Option<Counting>> {
        let Self { reader, blocks, open, .. } = self;
        let Some(mut block) = blocks.next_block()? else { return Ok(None) };
        let (rows, started) = (block.rows(), Instant::now());
        let (device, count, samples) = (&reader.device, rows.end - rows.start, reader.samples());
        let filling = |rows: Range<u64>, entries| {
            let stats = Vec::with_capacity(to_usize(rows.end - rows.start));
            (Panel { rows, entries, missing: false }, stats)
        };
        let sums: Sums = match reader.form {
            Form::Packed(table) => {
                let raw = block.tensor(&[count, samples.div_ceil(4)])?;
                if open.back().is_none_or(|(panel, _)| panel.rows.end <= rows.start) {
                    let panel_range = rows.start..reader.variants().min(rows.start + self.rows);
                    let packed =
                        Tensor::empty(device, &[panel_range.end - panel_range.start, row_words(samples)])?;
                    open.push_back(filling(panel_range, Entries::Packed(packed)));
                }
                let Some((Panel { rows: panel_range, entries: Entries::Packed(packed), .. }, _)) =
                    open.back_mut()
                else {
                    unreachable!("a packed panel was just made");
                };
                let counts = recode(&raw, table, samples, packed, rows.start - panel_range.start)?;
                Box::new(|| counts.wait())
            }
            Form::Dosages => {
                let x = block.tensor(&[count, samples])?;
                let sums = pending_row_stats(&x, true)?;
                open.push_back(filling(rows.clone(), Entries::I8(x)));
                Box::new(|| sums.wait())
            }
            Form::Fractions => {
                let sums = device.pool()?.install(|| float_sums(block.bytes(), samples));
                let x = block.tensor(&[count, samples])?;
                open.push_back(filling(rows.clone(), Entries::F32(x)));
                Box::new(|| Ok(sums))
            }
        };
        blocks.computed(started);
        Ok(Some((rows.end, sums)))
    }
}
