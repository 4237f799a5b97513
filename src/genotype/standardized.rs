//! The standardised genotype matrix as a map, streamed by blocks of variants.

mod stream;
#[cfg(test)]
mod tests;

use std::{cell::RefCell, ops::Range, time::Instant};

use super::{
    filter::VariantFilter,
    intake::Form,
    panel::Panel,
    project::Matched,
    residency::{Kept, Residency},
    scaler::{Fate, Rule, Scaler, Standard},
    source::Genotypes,
    tally::Tally,
};
use crate::{
    Device, Error, Result, Tensor,
    kernel::Program,
    linalg::{LinearMap, Matrix, Pass, gram::Sum, matmul, matmul_tn},
    packed::{MAX_SAMPLES, PANEL_ROWS, apply::Rows, pack, product::Product, row_words},
    stream::{Digests, RowPlan, StreamStats},
};

/// Elements of a canonical block at most, where its rows allow: 64 MiB of f32.
const BLOCK_ELEMENTS: u64 = 1 << 24;

/// Rows over which the device sums in f32: fixed by the number of samples alone, so that chunks, threads and budgets
/// change no bit.
pub(crate) fn block_rows(samples: u64) -> u64 {
    let rows = (BLOCK_ELEMENTS / samples.max(1)).clamp(256, 4096);
    1 << rows.ilog2()
}

/// Where the scaling of a variant comes from.
#[derive(Clone, Copy, Debug)]
enum Scaling<'a> {
    /// The sums of its own dosages.
    Sums,
    /// The reference that the samples are projected onto.
    Reference(Matched<'a>),
}

#[derive(Debug, Default)]
struct State {
    stats: StreamStats,
    tally: Option<Tally>,
    /// Passes that counted and did nothing else: 1 where products need the counts of all rows, else 0.
    counting: u32,
    kept: Kept,
    /// Of what the first pass read.
    digests: Option<Digests>,
}

/// One canonical block of the standardised matrix, as given to whoever asked for a pass.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) rows: Range<u64>,
    pub(crate) x: Tensor<f32>,
    /// Each variant's scaling, where the pass asks for it.
    pub(crate) standards: &'a [Standard],
}

/// Is given a variant's index, its scaling and its row of a product.
pub(crate) type VariantSink<'a> = dyn FnMut(u64, &Standard, &[f64]) -> Result<()> + 'a;

/// Is given the rows of a block, its product, and the scaling of its variants.
type ProductSink<'a> = dyn FnMut(Range<u64>, &Matrix, &[Standard]) -> Result<()> + 'a;

/// The standardised genotype matrix: variants by samples.
#[derive(Debug)]
pub(crate) struct Standardized<'a> {
    device: &'a Device,
    plan: RowPlan,
    form: Form,
    rule: Rule,
    scaling: Scaling<'a>,
    /// Bytes of decoded chunks to hold at most.
    prefetch: u64,
    /// Rows that are uploaded at once: some canonical blocks.
    upload_rows: u64,
    /// Where genotypes stay after the first pass, and bytes of their panels.
    residency: Residency,
    panel_bytes: u64,
    /// Whether later passes read the store, and then whether they read the same.
    read_again: bool,
    state: RefCell<State>,
}

impl<'a> Standardized<'a> {
    /// The matrix of `genotypes` under a rule, which is read in passes.
    ///
    /// # Errors
    /// As [`RowPlan::new`]; [`Error::Limit`] for more samples than products of packed rows are exact for.
    pub(crate) fn new(genotypes: &Genotypes, device: &'a Device, rule: Rule) -> Result<Self> {
        Self::bounded(genotypes, device, rule, rule.scaler.needs_frequency())
    }

    /// [`new`](Self::new); with `bounded`, dosages have to lie between 0 and the ploidy whatever the scaler is.
    pub(crate) fn bounded(
        genotypes: &Genotypes,
        device: &'a Device,
        rule: Rule,
        bounded: bool,
    ) -> Result<Self> {
        Self::with_scaling(genotypes, device, rule, Scaling::Sums, bounded)
    }

    /// Scaled as the reference's variants are; variants that are not the reference's take no part. Gives panels, no products.
    pub(crate) fn of_reference(
        genotypes: &Genotypes,
        device: &'a Device,
        matched: Matched<'a>,
    ) -> Result<Self> {
        let scaler = matched.reference.scaler();
        let rule = Rule {
            samples: genotypes.samples(),
            ploidy: genotypes.ploidy(),
            exact: true,
            scaler,
            filter: VariantFilter::default(),
        };
        // Ploidy less dosage is a dosage only where that is at most the ploidy.
        let bounded = scaler.needs_frequency() || matched.any_swapped();
        Self::with_scaling(genotypes, device, rule, Scaling::Reference(matched), bounded)
    }

    /// `bounded`: whether dosages above the ploidy are an error.
    fn with_scaling(
        genotypes: &Genotypes,
        device: &'a Device,
        rule: Rule,
        scaling: Scaling<'a>,
        bounded: bool,
    ) -> Result<Self> {
        let (form, narrow) = Form::new(genotypes, bounded || genotypes.bounded());
        // A projection multiplies packed rows by weights alone: it adds nothing up over the samples.
        if form.is_packed() && matches!(scaling, Scaling::Sums) && rule.samples > MAX_SAMPLES {
            let what = "samples of packed genotypes";
            return Err(Error::Limit { what, requested: rule.samples, max: MAX_SAMPLES });
        }
        let (arrays, rows) = (genotypes.arrays().to_vec(), genotypes.rows());
        let plan = RowPlan::new(arrays, rows, narrow, block_rows(genotypes.samples()))?;
        Ok(Self {
            device,
            upload_rows: plan.block_rows(),
            plan,
            form,
            rule: Rule { exact: form.is_exact(), ..rule },
            scaling,
            prefetch: 0,
            residency: Residency::Store,
            panel_bytes: Residency::Store.panel_bytes(),
            read_again: false,
            state: RefCell::default(),
        })
    }

    pub(crate) fn device(&self) -> &Device {
        self.device
    }

    /// Alleles of a call.
    pub(crate) fn ploidy(&self) -> u64 {
        self.rule.ploidy
    }

    pub(crate) fn plan(&self) -> &RowPlan {
        &self.plan
    }

    pub(crate) fn form(&self) -> Form {
        self.form
    }

    /// Sets the bytes of decoded chunks that are held at most.
    pub(crate) fn prefetch(&mut self, bytes: u64) {
        self.prefetch = bytes;
    }

    /// Sets the rows that are uploaded at once, of genotypes of two bits: whole canonical blocks, no more than a panel has.
    pub(crate) fn upload(&mut self, rows: u64) {
        self.upload_rows = rows;
    }

    /// Sets where genotypes stay after the first pass, in panels of so many bytes; without it nowhere.
    pub(crate) fn keep(&mut self, residency: Residency, panel_bytes: u64) {
        (self.residency, self.panel_bytes) = (residency, panel_bytes);
    }

    /// Says that later passes read the store too, so that a change of it between them is an error.
    pub(crate) fn read_again(&mut self) {
        self.read_again = true;
    }

    /// Bytes of a variant as the device holds it.
    pub(crate) fn held_row_bytes(&self) -> u64 {
        match self.form {
            Form::Packed(_) => 4 * row_words(self.rule.samples),
            Form::Calls { .. } | Form::Dosages => self.rule.samples,
            Form::Fractions => 4 * self.rule.samples,
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

    /// Rows of a panel of a pass over the store, unless it is the last.
    fn whole_panel(&self, first_pass: bool) -> u64 {
        let bytes = if first_pass { self.panel_bytes } else { Residency::Store.panel_bytes() };
        (self.panel_rows(bytes) / self.upload_rows).max(1) * self.upload_rows
    }

    /// Makes programs ready that take packed rows, and the one that packs them.
    ///
    /// # Errors
    /// As [`Device::prepare`].
    pub(crate) fn prepare(&self, mut programs: Vec<Program>) -> Result<()> {
        if let Form::Packed(coding) = self.form {
            programs.push(pack::program(coding));
        }
        self.device.prepare(programs)
    }

    pub(crate) fn stats(&self) -> StreamStats {
        self.state.borrow().stats
    }

    /// What the first pass counted.
    pub(crate) fn tally(&self) -> Tally {
        self.state.borrow().tally.clone().unwrap_or_default()
    }

    pub(crate) fn scaler(&self) -> Scaler {
        self.rule.scaler
    }

    /// Whether the scaler subtracts the mean.
    fn is_centred(&self) -> bool {
        self.rule.scaler != Scaler::None
    }

    /// Gives the panels to `f`, in order: one pass over the store, or over what was kept. With `scaled`, which is for the
    /// store alone, they have the scaling of their rows.
    pub(crate) fn each_panel(
        &self,
        pass: &Pass<'_>,
        scaled: bool,
        f: &mut dyn FnMut(&Panel) -> Result<()>,
    ) -> Result<()> {
        pass.tell(0)?;
        let kept = std::mem::take(&mut self.state.borrow_mut().kept);
        if let Kept::Nothing = kept {
            return self.stream(pass, scaled, f);
        }
        let started = Instant::now();
        let result = kept.each(self.device, &mut |panel| {
            f(panel)?;
            pass.tell(panel.rows.end)
        });
        let mut state = self.state.borrow_mut();
        state.kept = kept;
        state.stats.compute += started.elapsed();
        result
    }

    /// Gives each canonical block of the standardised matrix to `f`, in order; with `scaled`, as [`each_panel`](Self::each_panel).
    pub(crate) fn each_block(
        &self,
        pass: &Pass<'_>,
        scaled: bool,
        f: &mut dyn FnMut(Block<'_>) -> Result<()>,
    ) -> Result<()> {
        self.each_panel(pass, scaled, &mut |panel| {
            self.blocks(panel, pass, &mut |rows| {
                let x = self.block(panel, &rows)?;
                f(Block { standards: panel.standards_of(&rows), rows, x })
            })
        })
    }

    /// These rows of the standardised matrix, which are in `panel`.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn block(&self, panel: &Panel, rows: &Range<u64>) -> Result<Tensor<f32>> {
        panel.standardized(rows, self.rule.samples, self.is_centred())
    }

    /// Calls `f` with the rows of each canonical block of a panel.
    pub(crate) fn blocks(
        &self,
        panel: &Panel,
        pass: &Pass<'_>,
        f: &mut dyn FnMut(Range<u64>) -> Result<()>,
    ) -> Result<()> {
        let mut first = panel.rows.start;
        while first < panel.rows.end {
            pass.run().cancel.check()?;
            let end = panel.rows.end.min(first + self.plan.block_rows());
            f(first..end)?;
            first = end;
        }
        Ok(())
    }

    /// Passes that counted and multiplied nothing.
    pub(crate) fn counting_passes(&self) -> u32 {
        self.state.borrow().counting
    }

    /// The pass as it is told: what only counts is one before it.
    fn told<'p>(&self, pass: &Pass<'p>) -> Pass<'p> {
        let counting = self.counting_passes();
        pass.among(counting, counting)
    }

    /// Makes the first pass, before this one, unless it was made.
    fn counted(&self, pass: &Pass<'_>) -> Result<()> {
        let counted = self.state.borrow().tally.is_some();
        if !counted {
            self.each_panel(&pass.among(0, 1), false, &mut |_| Ok(()))?;
            self.state.borrow_mut().counting = 1;
        }
        Ok(())
    }

    /// `A X` block by block; with `scaled`, as [`each_panel`](Self::each_panel).
    fn products(&self, x: &Matrix, pass: &Pass<'_>, scaled: bool, f: &mut ProductSink<'_>) -> Result<()> {
        if !self.form.is_packed() {
            let narrow = x.to_tensor(self.device)?;
            return self.each_block(pass, scaled, &mut |block| {
                let y = matmul(&block.x, &narrow)?.read()?;
                let rows = y.len() / x.cols().max(1);
                let y = Matrix::from_vec(y.into_iter().map(f64::from).collect(), rows, x.cols())?;
                f(block.rows, &y, block.standards)
            });
        }
        let product = Product::new(self.device, x, self.is_centred(), None)?;
        self.each_panel(pass, scaled, &mut |panel| {
            let table = panel.table(self.device)?;
            let Some(packed) = panel.packed(&table) else { return Ok(()) };
            let (step, first) = (self.plan.block_rows(), panel.rows.start);
            let part = |start| Rows { range: (start, packed.range.1.min(start + step)), ..packed };
            let starts = (0..packed.range.1).step_by(usize::try_from(step).unwrap_or(usize::MAX));
            product.each_part(starts.map(|start| (first, part(start))), &mut |rows, y| {
                pass.run().cancel.check()?;
                let standards = panel.standards_of(&rows);
                f(rows, y, standards)
            })
        })
    }

    /// `A X` variant by variant, with each variant's scaling; variants that take no part are left out. One pass over
    /// the store.
    pub(crate) fn apply_with_standards(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut VariantSink<'_>,
    ) -> Result<()> {
        self.products(x, pass, true, &mut |rows, y, standards| {
            for (i, standard) in standards.iter().enumerate() {
                if standard.fate == Fate::Used {
                    sink(rows.start + i as u64, standard, y.row(i))?;
                }
            }
            Ok(())
        })
    }
}

impl LinearMap for Standardized<'_> {
    fn shape(&self) -> [u64; 2] {
        [self.plan.rows(), self.rule.samples]
    }

    fn device(&self) -> Option<&Device> {
        Some(self.device)
    }

    fn gram(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        if self.form.is_packed() {
            let ([variants, samples], columns) = (self.shape(), x.cols() as u64);
            let whole = self.whole_panel(self.residency != Residency::Store);
            let panels = [whole.min(variants), variants % whole];
            self.prepare(Product::programs(self.device, samples, columns, panels)?)?;
            // The bounds of what is rounded are those of all rows.
            self.counted(pass)?;
            let pass = &self.told(pass);
            let mut product = Product::new(self.device, x, self.is_centred(), Some(self.tally().bounds))?;
            self.each_panel(pass, false, &mut |panel| {
                let table = panel.table(self.device)?;
                panel.packed(&table).map_or(Ok(()), |rows| product.add(rows))
            })?;
            return product.finish();
        }
        let thin = x.to_tensor(self.device)?;
        // The result lies on its side: the long rows fill register tiles that a thin column leaves half empty.
        let mut sum = Sum::new(x.cols() as u64, x.rows() as u64, false);
        self.each_block(pass, false, &mut |block| sum.add(&matmul_tn(&matmul(&block.x, &thin)?, &block.x)?))?;
        Ok(sum.finish(self.device)?.transposed())
    }

    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()> {
        self.products(x, &self.told(pass), false, &mut |rows, y, _| sink(rows.start, y))
    }
}
