//! A pass over stored genotypes: blocks are filled, uploaded and counted, one ahead of the other, and gathered in panels.

#[cfg(test)]
mod tests;

use std::{collections::VecDeque, ops::Range, time::Instant};

use teatime::{
    Device, Result, Tensor,
    kernel::Program,
    linalg::{Pass, Stats, pending_row_stats},
    packed::{PANEL_ROWS, recode, recode_program, row_words},
    stream::{Blocks, Digests, Plan, StreamStats},
};

use super::{
    intake::{Counting, Form, Sums, float_sums},
    panel::{Held, Panel},
    residency::Residency,
    source::Genotypes,
    to_usize,
};

/// Bytes that are uploaded at once, at most.
const UPLOAD_BYTES: u64 = 16 << 20;
/// Elements of a canonical block at most, where its rows allow: 64 MiB of f32.
const BLOCK_ELEMENTS: u64 = 1 << 24;

/// Rows over which the device sums in f32: fixed by the number of samples alone, so that chunks, threads and budgets
/// change no bit.
pub(crate) fn block_rows(samples: u64) -> u64 {
    let rows = (BLOCK_ELEMENTS / samples.max(1)).clamp(256, 4096);
    1 << rows.ilog2()
}

/// Genotypes, and how they are read onto a device.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(crate) device: Device,
    pub(crate) genotypes: Genotypes,
    /// The number of the first variant, and how many there are of all, where they are some of the variants in a row.
    pub(crate) first: u64,
    pub(crate) all: u64,
    /// True where dosages above the ploidy are an error.
    pub(crate) bounded: bool,
    pub(crate) form: Form,
    pub(crate) plan: Plan,
    /// Bytes of a panel that comes from the store, and of those rows of a longer one that are added at once: what memory is counted for.
    pub(crate) step_bytes: u64,
}

/// The settings by which a pass reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// Bytes of a panel at most.
    pub(crate) panel_bytes: u64,
    /// Bytes of decoded chunks to hold at most.
    pub(crate) prefetch: u64,
    /// Rows that are uploaded at once, of genotypes of two bits: whole canonical blocks, no more than a panel has.
    pub(crate) upload_rows: u64,
}

/// The results of a pass over the store besides its panels.
pub(crate) struct Read {
    pub(crate) stats: StreamStats,
    /// Digests of what was read, where asked for.
    pub(crate) digests: Option<Digests>,
}

/// Is given a panel, and the sums of each of its rows.
pub(crate) type PanelSink<'a> = dyn FnMut(Panel, &[Stats]) -> Result<()> + 'a;

fn in_steps(rows: &Range<u64>, step: u64) -> impl Iterator<Item = Range<u64>> + use<> {
    let end = rows.end;
    rows.clone().step_by(to_usize(step)).map(move |first| first..end.min(first + step))
}

/// A panel that is being filled, with the sums of its rows that were counted so far.
struct Filling {
    panel: Panel,
    stats: Vec<Stats>,
}

impl Reader {
    /// Reads `genotypes`; `bounded` is true where dosages above the ploidy are an error.
    ///
    /// # Errors
    /// As [`Plan::of_rows`].
    pub(crate) fn new(genotypes: &Genotypes, device: &Device, bounded: bool) -> Result<Self> {
        Self::in_blocks(genotypes, device, bounded, block_rows(genotypes.samples()))
    }

    /// [`new`](Self::new) in blocks of so many rows.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn in_blocks(
        genotypes: &Genotypes,
        device: &Device,
        bounded: bool,
        block_rows: u64,
    ) -> Result<Self> {
        let bounded = bounded || genotypes.bounded();
        let (form, convert) = Form::new(genotypes, bounded);
        let (arrays, rows) = (genotypes.arrays().to_vec(), genotypes.rows());
        let plan = Plan::of_rows(arrays, rows, genotypes.columns(), convert, block_rows)?;
        let (device, genotypes, all) = (device.clone(), genotypes.clone(), genotypes.variants());
        Ok(Self { device, genotypes, first: 0, all, bounded, form, plan, step_bytes: Residency::LEAST_BYTES })
    }

    /// The reader of some of the variants, which start with a canonical block.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn of_part(&self, rows: &Range<u64>) -> Result<Self> {
        let reader =
            Self::new(&self.genotypes.part(std::slice::from_ref(rows))?, &self.device, self.bounded)?;
        Ok(Self { first: rows.start, all: self.all, step_bytes: self.step_bytes, ..reader })
    }

    pub(crate) fn samples(&self) -> u64 {
        self.genotypes.samples()
    }

    pub(crate) fn variants(&self) -> u64 {
        self.plan.rows()
    }

    /// Bytes of a variant as the device holds it.
    pub(crate) fn held_row_bytes(&self) -> u64 {
        match self.form {
            Form::Packed(_) => 4 * row_words(self.samples()),
            Form::Dosages => self.samples(),
            Form::Fractions => 4 * self.samples(),
        }
    }

    /// Rows of a panel of at most so many bytes: whole blocks, one at least; of packed rows, [`PANEL_ROWS`] at most.
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

    /// Rows of a panel of a pass, unless it is the last.
    pub(crate) fn whole_panel(&self, Reading { panel_bytes, upload_rows, .. }: Reading) -> u64 {
        (self.panel_rows(panel_bytes) / upload_rows).max(1) * upload_rows
    }

    /// Rows that are uploaded at once, where so much is left of the host and of the device: each upload costs a device of
    /// its own memory two waits, and of wide rows a canonical block has few.
    pub(crate) fn upload_rows(&self, panel_bytes: u64, [host, device]: [u64; 2]) -> u64 {
        let (plan, block) = (&self.plan, self.plan.block_rows());
        if !self.form.is_packed() {
            return block;
        }
        let panel = self.panel_rows(panel_bytes);
        let fits = |&rows: &u64| {
            // Two slots, and as much on the device.
            let slots = 2 * (plan.staged_bytes(rows) - plan.block_bytes());
            let chunks = plan.largest_need_of(rows).saturating_sub(plan.largest_need());
            rows <= panel
                && plan.staged_bytes(rows) <= UPLOAD_BYTES
                && slots.saturating_add(chunks) <= host / 2
                && slots <= device / 2
        };
        (1..16).map(|doublings| block << doublings).take_while(fits).last().unwrap_or(block)
    }

    /// Makes programs ready that take packed rows, and the one that recodes them.
    ///
    /// # Errors
    /// As [`Device::prepare`].
    pub(crate) fn prepare(&self, mut programs: Vec<Program>) -> Result<()> {
        if self.form.is_packed() {
            programs.push(recode_program());
        }
        self.device.prepare(programs)
    }

    /// The canonical blocks of some rows that start with one.
    pub(crate) fn blocks(&self, rows: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        in_steps(rows, self.plan.block_rows())
    }

    /// Some rows, as many at a time as memory was counted for.
    pub(crate) fn steps(&self, rows: &Range<u64>) -> impl Iterator<Item = Range<u64>> + use<> {
        in_steps(rows, self.panel_rows(self.step_bytes))
    }

    /// One pass over the store: gives panels to `f`, in order, with the sums of their rows. With `digest`, digests what is read.
    ///
    /// # Errors
    /// Any error of reading, of the device and of `f`; [`Error::Cancelled`](teatime::Error::Cancelled).
    pub(crate) fn read(
        &self,
        pass: &Pass<'_>,
        reading: Reading,
        digest: bool,
        f: &mut PanelSink<'_>,
    ) -> Result<Read> {
        let cancel = &pass.run().cancel;
        pass.tell(0)?;
        let mut blocks =
            Blocks::new(&self.plan, &self.device, reading.upload_rows, reading.prefetch, cancel)?;
        if digest {
            blocks.digest()?;
        }
        let rows = self.whole_panel(reading);
        // The panel that is being counted, and the one that is being filled.
        let mut open: VecDeque<Filling> = VecDeque::new();
        let mut counting: Option<Counting> = None;
        loop {
            // The next block is on its way before this one's sums are waited for.
            let next = self.start(&mut blocks, &mut open, rows)?;
            let ended = next.is_none();
            if let Some(block) = std::mem::replace(&mut counting, next) {
                let started = Instant::now();
                let (end, filling) = (block.rows.end, &mut open[0]);
                self.finish(block, filling)?;
                if filling.panel.rows.end == end
                    && let Some(Filling { panel, stats }) = open.pop_front()
                {
                    f(panel, &stats)?;
                }
                blocks.stats.compute += started.elapsed();
                pass.tell(end)?;
            }
            if ended {
                break;
            }
        }
        Ok(Read { digests: blocks.digests().cloned(), stats: blocks.stats })
    }

    /// Takes the next block and enqueues its upload and sums; it ends up in the last panel, of so many rows.
    fn start(
        &self,
        blocks: &mut Blocks<'_>,
        open: &mut VecDeque<Filling>,
        panel_rows: u64,
    ) -> Result<Option<Counting>> {
        let Some(mut block) = blocks.next_block()? else { return Ok(None) };
        let (rows, started) = (block.rows(), Instant::now());
        let (device, count, samples) = (&self.device, rows.end - rows.start, self.samples());
        let sums: Sums = match self.form {
            Form::Packed(table) => {
                let raw = block.tensor(&[count, samples.div_ceil(4)])?;
                if open.back().is_none_or(|filling| filling.panel.rows.end <= rows.start) {
                    let panel_range = rows.start..self.variants().min(rows.start + panel_rows);
                    let packed =
                        Tensor::empty(device, &[panel_range.end - panel_range.start, row_words(samples)])?;
                    open.push_back(Filling::new(panel_range, Held::Packed(packed)));
                }
                let Some(Panel { rows: panel_range, held: Held::Packed(packed), .. }) =
                    open.back_mut().map(|filling| &mut filling.panel)
                else {
                    unreachable!("a packed panel was just made");
                };
                let counts = recode(&raw, table, samples, packed, rows.start - panel_range.start)?;
                Box::new(|| counts.wait())
            }
            Form::Dosages => {
                let x = block.tensor(&[count, samples])?;
                let sums = pending_row_stats(&x, true)?;
                open.push_back(Filling::new(rows.clone(), Held::I8(x)));
                Box::new(|| sums.wait())
            }
            Form::Fractions => {
                let sums = device.pool()?.install(|| float_sums(block.bytes(), samples));
                let x = block.tensor(&[count, samples])?;
                open.push_back(Filling::new(rows.clone(), Held::F32(x)));
                Box::new(|| Ok(sums))
            }
        };
        blocks.stats.compute += started.elapsed();
        Ok(Some(Counting { rows, sums }))
    }

    /// Waits for a block's sums, and adds them to its panel.
    fn finish(&self, block: Counting, filling: &mut Filling) -> Result<()> {
        let mut stats = (block.sums)()?;
        filling.panel.missing |= stats.iter().any(|stats| stats.count < self.samples());
        filling.stats.append(&mut stats);
        Ok(())
    }
}

impl Filling {
    fn new(rows: Range<u64>, held: Held) -> Self {
        let stats = Vec::with_capacity(to_usize(rows.end - rows.start));
        Self { panel: Panel { rows, held, missing: false }, stats }
    }
}
