//! A pass over the store: blocks are filled, uploaded and counted, one ahead of the other.

use std::{collections::VecDeque, ops::Range, time::Instant};

use rayon::prelude::*;

use super::{Scaling, Standardized};
use crate::{
    Error, Result, Tensor,
    driver::Staging,
    genotype::{
        dosage::dosage,
        intake::{Counting, Form, Sums, bad_value, float_sums},
        panel::{Held, Panel},
        residency::Kept,
        scaler::Standard,
        tally::Tally,
    },
    linalg::{Pass, Stats, reduce::row_stats_with_missing},
    packed::{pack::pack_genotypes, row_words},
    stream::Blocks,
};

/// Bytes that are uploaded at once, at most.
const UPLOAD_BYTES: u64 = 16 << 20;

impl Standardized<'_> {
    /// Rows that are uploaded at once, where so much is left of the host and of the device: each upload costs a device of
    /// its own memory two waits, and of wide rows a canonical block has few.
    pub(in crate::genotype) fn upload_rows(&self, panel_bytes: u64, [host, device]: [u64; 2]) -> u64 {
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

    /// One pass over the store; with `scaled`, panels have the scaling of their rows.
    pub(super) fn stream(
        &self,
        pass: &Pass<'_>,
        scaled: bool,
        f: &mut dyn FnMut(&Panel) -> Result<()>,
    ) -> Result<()> {
        let run = pass.run();
        let mut blocks = Blocks::new(&self.plan, self.device, self.upload_rows, self.prefetch, &run.cancel)?;
        if self.read_again {
            blocks.digest();
        }
        let slot = || self.device.driver().staging(self.plan.staged_bytes(self.upload_rows));
        // One slot is filled while the device may still read the other.
        let (mut slots, mut turn) = ([slot()?, slot()?], 0);
        let first_pass = self.state.borrow().tally.is_none();
        let mut tally = first_pass.then(Tally::default);
        let mut kept = if first_pass { Kept::new(self.residency) } else { Kept::Nothing };
        // The panel that is being counted, and the one that is being filled.
        let mut open: VecDeque<Panel> = VecDeque::new();
        let mut counting: Option<Counting> = None;
        loop {
            // The next block is on its way before this one's sums are waited for.
            let next = self.start(&mut blocks, &mut slots[turn], &mut open)?;
            turn = 1 - turn;
            let ended = next.is_none();
            if let Some(block) = std::mem::replace(&mut counting, next) {
                let started = Instant::now();
                let (end, panel) = (block.rows.end, &mut open[0]);
                self.finish(block, panel, tally.as_mut(), scaled)?;
                if panel.is_complete()
                    && let Some(panel) = open.pop_front()
                {
                    f(&panel)?;
                    kept.push(panel)?;
                }
                blocks.stats.compute += started.elapsed();
                pass.tell(end)?;
            }
            if ended {
                break;
            }
        }
        kept.complete()?;
        let mut state = self.state.borrow_mut();
        match (blocks.digests(), &state.digests) {
            (Some(now), Some(first)) => {
                if let Some(array) = now.differ(first) {
                    let why = "changed while it was read: a later pass found other genotypes than the first";
                    return Err(Error::store(self.plan.array(array).name(), why));
                }
            }
            (now, _) => state.digests = now.cloned(),
        }
        state.stats.add(&blocks.stats);
        state.tally = tally.or(state.tally.take());
        state.kept = kept;
        Ok(())
    }

    /// Fills a slot with the next block and enqueues its upload and sums; it ends up in the last panel.
    fn start(
        &self,
        blocks: &mut Blocks<'_>,
        slot: &mut Staging,
        open: &mut VecDeque<Panel>,
    ) -> Result<Option<Counting>> {
        let Some(rows) = blocks.next(slot.bytes_mut())? else { return Ok(None) };
        let started = Instant::now();
        let (count, samples) = (rows.end - rows.start, self.rule.samples);
        let counting = match self.form {
            Form::Packed(coding) => {
                let raw = Tensor::from_staging(self.device, slot, &[count, coding.row_bytes(samples)])?;
                if open.back().is_none_or(|panel| panel.rows.end <= rows.start) {
                    let first_pass = self.state.borrow().tally.is_none();
                    let end = self.plan.rows().min(rows.start + self.whole_panel(first_pass));
                    let packed = Tensor::empty(self.device, &[end - rows.start, row_words(samples)])?;
                    open.push_back(Panel::new(rows.start..end, Held::Packed(packed)));
                }
                let Some(Panel { rows: all, held: Held::Packed(packed), .. }) = open.back_mut() else {
                    unreachable!("a packed panel was just made");
                };
                let sums = pack_genotypes(&raw, coding, samples, packed, rows.start - all.start)?;
                Counting { rows, sums: Sums::Packed(sums), raw: Some(raw) }
            }
            Form::Calls { ploidy } => {
                let calls = Tensor::from_staging(self.device, slot, &[count, samples, ploidy])?;
                Self::bytes(rows, dosage(&calls)?, open)?
            }
            Form::Dosages => {
                let dosages = Tensor::from_staging(self.device, slot, &[count, samples])?;
                Self::bytes(rows, dosages, open)?
            }
            Form::Fractions => {
                let sums = self.device.pool()?.install(|| float_sums(slot.bytes_mut(), count, samples));
                let x = Tensor::from_staging(self.device, slot, &[count, samples])?;
                open.push_back(Panel::new(rows.clone(), Held::F32(x)));
                Counting { rows, sums: Sums::Host(sums), raw: None }
            }
        };
        blocks.stats.compute += started.elapsed();
        Ok(Some(counting))
    }

    /// A panel of dosages in bytes.
    fn bytes(rows: Range<u64>, x: Tensor<i8>, open: &mut VecDeque<Panel>) -> Result<Counting> {
        let sums = Sums::Device(row_stats_with_missing(&x)?);
        open.push_back(Panel::new(rows.clone(), Held::I8(x)));
        Ok(Counting { rows, sums, raw: None })
    }

    /// Waits for a block's sums, and adds its variants' scaling to its panel.
    fn finish(
        &self,
        block: Counting,
        panel: &mut Panel,
        tally: Option<&mut Tally>,
        scaled: bool,
    ) -> Result<()> {
        let Counting { rows, sums, raw } = block;
        let stats = sums.wait()?;
        if let Some(row) = stats.iter().position(|stats| stats.bad > 0) {
            return Err(self.bad_value(&rows, row, panel, raw.as_ref())?);
        }
        let (scaling, rule) = (&self.scaling, &self.rule);
        let standard = |stats: &Stats| Standard::new(stats, rule);
        let standards = self.device.pool()?.install(|| {
            let standards: Vec<Standard> = match scaling {
                Scaling::Sums => stats.par_iter().with_min_len(1024).map(standard).collect(),
                Scaling::Reference(matched) => rows.map(|variant| matched.standard(variant)).collect(),
            };
            if let Some(tally) = tally {
                tally.add(&stats, &standards, rule.samples);
            }
            standards
        });
        panel.count(standards, stats.iter().any(|stats| stats.count < self.rule.samples), scaled);
        Ok(())
    }

    /// The error for a row that the device found a bad code in.
    fn bad_value(
        &self,
        rows: &Range<u64>,
        row: usize,
        panel: &Panel,
        raw: Option<&Tensor<u8>>,
    ) -> Result<Error> {
        let (sample, value) = bad_value(self.form, row, self.rule.samples, panel, raw)?;
        let variant = rows.start + row as u64;
        let (array, index) = self.plan.locate(variant, sample as u64);
        let variant = self.plan.row(variant);
        let why = if value == -2.0 {
            let ploidy = self.rule.ploidy;
            format!(
                "allele -2 pads a call of lower ploidy than {ploidy}; a ploidy above 2 must be that of all calls"
            )
        } else {
            format!("{value} is no allele")
        };
        Ok(Error::chunk(array, &index, format_args!("variant {variant}, sample {sample}: {why}")))
    }
}
