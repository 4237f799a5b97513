//! The standardised genotype matrix as a map, streamed by blocks of variants.

use std::{cell::RefCell, ops::Range, time::Instant};

use rayon::prelude::*;

use super::{
    dosage::{Dosages, dosage},
    pca::VariantCounts,
    scaler::{Fate, Rule, Standard},
    source::{GenotypeKind, Genotypes},
};
use crate::{
    Device, Error, Result, StoredType, Tensor,
    driver::Staging,
    linalg::{
        LinearMap, Matrix, Pass, Stats,
        gram::Sum,
        matmul, matmul_tn,
        reduce::{PendingStats, row_stats_with_missing},
    },
    stream::{Blocks, Narrow, Negative, RowPlan, Staged, StreamStats},
};

/// Elements of a canonical block at most, where its rows allow: 64 MiB of f32.
const BLOCK_ELEMENTS: u64 = 1 << 24;

/// Rows over which the device sums: fixed by the number of samples alone, so that chunks, threads and budgets change
/// no bit.
pub(crate) fn block_rows(samples: u64) -> u64 {
    let rows = (BLOCK_ELEMENTS / samples.max(1)).clamp(256, 4096);
    1 << rows.ilog2()
}

/// A block whose sums are on their way.
struct Counting {
    rows: Range<u64>,
    dosages: Dosages,
    sums: Sums,
}

/// Sums of each row of a block.
enum Sums {
    /// Exact integers, from the device.
    Device(PendingStats),
    /// Of fractional dosages, in f64: sums of f32 cannot tell a constant row from one that varies a little.
    Host(Vec<Stats>),
}

/// A block that stays on the device between passes.
#[derive(Debug)]
struct Kept {
    rows: Range<u64>,
    dosages: Dosages,
    table: Vec<[f32; 3]>,
}

/// What the first pass counts.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    pub(crate) counts: VariantCounts,
    /// Sum of squares of the standardised matrix.
    pub(crate) sum_squares: f64,
    /// FNV-1a of each variant's allele sum and called count.
    pub(crate) digest: u64,
}

#[derive(Debug, Default)]
struct State {
    stats: StreamStats,
    tally: Option<Tally>,
    kept: Option<Vec<Kept>>,
}

/// One block of the standardised matrix, as given to whoever asked for a pass.
#[derive(Debug)]
pub(crate) struct Block<'a> {
    pub(crate) rows: Range<u64>,
    pub(crate) x: Tensor<f32>,
    pub(crate) dosages: &'a Dosages,
    /// Each variant's scaling, except on later passes over kept blocks.
    pub(crate) standards: &'a [Standard],
}

/// Is given a variant's index, its scaling and its row of a product.
pub(crate) type VariantSink<'a> = dyn FnMut(u64, &Standard, &[f64]) -> Result<()> + 'a;

/// The standardised genotype matrix: variants by samples.
#[derive(Debug)]
pub(crate) struct Standardized<'a> {
    device: &'a Device,
    plan: RowPlan,
    kind: GenotypeKind,
    rule: Rule,
    /// Bytes of decoded chunks to hold at most.
    prefetch: u64,
    /// Whether blocks stay on the device after the first pass.
    keep: bool,
    state: RefCell<State>,
}

impl<'a> Standardized<'a> {
    /// The matrix of `genotypes` under a rule, which is read in passes.
    ///
    /// # Errors
    /// As [`RowPlan::new`].
    pub(crate) fn new(genotypes: &Genotypes, device: &'a Device, rule: Rule) -> Result<Self> {
        Self::bounded(genotypes, device, rule, rule.scaler.needs_frequency())
    }

    /// [`new`](Self::new); with `frequencies`, dosages have to lie between 0 and the ploidy whatever the scaler is.
    pub(crate) fn bounded(
        genotypes: &Genotypes,
        device: &'a Device,
        rule: Rule,
        frequencies: bool,
    ) -> Result<Self> {
        let floats = [StoredType::F16, StoredType::F32, StoredType::F64];
        let fractional = genotypes.arrays().iter().any(|array| floats.contains(&array.dtype()));
        let narrow = match genotypes.kind() {
            GenotypeKind::Calls { .. } => {
                Narrow { staged: Staged::I8, negative: Negative::Codes, max: 127.0, nan_is_missing: false }
            }
            GenotypeKind::Dosages => Narrow {
                staged: if fractional { Staged::F32 } else { Staged::I8 },
                negative: Negative::Missing,
                nan_is_missing: genotypes.nan(),
                max: match (frequencies, fractional) {
                    (true, _) => rule.ploidy as f64,
                    (false, true) => f64::from(f32::MAX),
                    (false, false) => 127.0,
                },
            },
        };
        let plan = RowPlan::new(genotypes.arrays().to_vec(), narrow, block_rows(genotypes.samples()))?;
        let rule = Rule { exact: narrow.staged == Staged::I8, ..rule };
        Ok(Self {
            device,
            plan,
            kind: genotypes.kind(),
            rule,
            prefetch: 0,
            keep: false,
            state: RefCell::default(),
        })
    }

    pub(crate) fn device(&self) -> &Device {
        self.device
    }

    pub(crate) fn plan(&self) -> &RowPlan {
        &self.plan
    }

    /// Sets what the memory plan allows: bytes of chunks held, and whether blocks stay on the device.
    pub(crate) fn allow(&mut self, prefetch: u64, keep: bool) {
        (self.prefetch, self.keep) = (prefetch, keep);
    }

    /// Bytes of the dosages of all variants.
    pub(crate) fn dosage_bytes(&self) -> u64 {
        self.plan.rows().saturating_mul(self.rule.samples).saturating_mul(self.plan.staged().size())
    }

    /// Alleles of a call.
    pub(crate) fn ploidy(&self) -> u64 {
        self.rule.ploidy
    }

    /// Where the time of all passes went.
    pub(crate) fn stats(&self) -> StreamStats {
        self.state.borrow().stats
    }

    /// What the first pass counted.
    pub(crate) fn tally(&self) -> Tally {
        let empty = Tally { counts: VariantCounts::default(), sum_squares: 0.0, digest: FNV_OFFSET };
        self.state.borrow().tally.clone().unwrap_or(empty)
    }

    /// Gives each block of the standardised matrix to `f`, in order: one pass over the store, or over what was kept.
    pub(crate) fn each_block(
        &self,
        pass: &Pass<'_>,
        f: &mut dyn FnMut(Block<'_>) -> Result<()>,
    ) -> Result<()> {
        pass.tell(0)?;
        let kept = self.state.borrow_mut().kept.take();
        let Some(kept) = kept else { return self.stream(pass, f) };
        let started = Instant::now();
        let result = kept.iter().try_for_each(|block| {
            let x = block.dosages.standardize(&block.table)?;
            f(Block { rows: block.rows.clone(), x, dosages: &block.dosages, standards: &[] })?;
            pass.tell(block.rows.end)
        });
        let mut state = self.state.borrow_mut();
        state.kept = Some(kept);
        state.stats.compute += started.elapsed();
        result
    }

    fn stream(&self, pass: &Pass<'_>, f: &mut dyn FnMut(Block<'_>) -> Result<()>) -> Result<()> {
        let run = pass.run();
        let mut blocks = Blocks::new(&self.plan, self.device, self.prefetch, &run.cancel)?;
        let slot = || self.device.driver().staging(self.plan.block_bytes());
        // One slot is filled while the device may still read the other.
        let (mut slots, mut turn) = ([slot()?, slot()?], 0);
        let first_pass = self.state.borrow().tally.is_none();
        let mut tally = first_pass.then(|| self.tally());
        let mut kept = (self.keep && first_pass).then(Vec::new);
        let mut counting: Option<Counting> = None;
        loop {
            // The next block is on its way before this one's sums are waited for.
            let next = self.start(&mut blocks, &mut slots[turn])?;
            turn = 1 - turn;
            let ended = next.is_none();
            if let Some(block) = std::mem::replace(&mut counting, next) {
                let started = Instant::now();
                let end = block.rows.end;
                let done = self.finish(block, tally.as_mut(), f)?;
                blocks.stats.compute += started.elapsed();
                if let Some(kept) = &mut kept {
                    kept.push(done);
                }
                pass.tell(end)?;
            }
            if ended {
                break;
            }
        }
        let mut state = self.state.borrow_mut();
        state.stats.add(&blocks.stats);
        (state.kept, state.tally) = (kept, tally.or(state.tally.take()));
        Ok(())
    }

    /// Fills a slot with the next block and enqueues its upload, dosages and sums.
    fn start(&self, blocks: &mut Blocks<'_>, slot: &mut Staging) -> Result<Option<Counting>> {
        let Some(rows) = blocks.next(slot.bytes_mut())? else { return Ok(None) };
        let started = Instant::now();
        let (count, samples) = (rows.end - rows.start, self.rule.samples);
        let on_device =
            |x: Tensor<i8>| Ok::<_, Error>((Sums::Device(row_stats_with_missing(&x)?), Dosages::I8(x)));
        let (sums, dosages) = match (self.kind, self.plan.staged()) {
            (GenotypeKind::Calls { ploidy }, _) => {
                let calls = Tensor::from_staging(self.device, slot, &[count, samples, ploidy])?;
                on_device(dosage(&calls)?)?
            }
            (_, Staged::I8) => on_device(Tensor::from_staging(self.device, slot, &[count, samples])?)?,
            (_, Staged::F32) => {
                let sums = self.device.pool()?.install(|| float_sums(slot.bytes_mut(), count, samples));
                let x = Tensor::from_staging(self.device, slot, &[count, samples])?;
                (Sums::Host(sums), Dosages::F32(x))
            }
        };
        blocks.stats.compute += started.elapsed();
        Ok(Some(Counting { rows, dosages, sums }))
    }

    /// Waits for a block's sums, standardises it and hands it on.
    fn finish(
        &self,
        block: Counting,
        tally: Option<&mut Tally>,
        f: &mut dyn FnMut(Block<'_>) -> Result<()>,
    ) -> Result<Kept> {
        let Counting { rows, dosages, sums } = block;
        let stats = match sums {
            Sums::Device(pending) => pending.wait()?,
            Sums::Host(stats) => stats,
        };
        if let Some(row) = stats.iter().position(|stats| stats.bad > 0) {
            return Err(self.bad_value(&rows, row, &dosages)?);
        }
        let standards: Vec<Standard> = stats.iter().map(|stats| Standard::new(stats, &self.rule)).collect();
        if let Some(tally) = tally {
            for (stats, standard) in stats.iter().zip(&standards) {
                tally.add(stats, standard, self.rule.samples);
            }
        }
        let table: Vec<[f32; 3]> = standards.iter().map(Standard::row).collect();
        let x = dosages.standardize(&table)?;
        f(Block { rows: rows.clone(), x, dosages: &dosages, standards: &standards })?;
        Ok(Kept { rows, dosages, table })
    }

    /// The error for a row that the device found a bad code in.
    fn bad_value(&self, rows: &Range<u64>, row: usize, dosages: &Dosages) -> Result<Error> {
        let samples = usize::try_from(self.rule.samples).unwrap_or(usize::MAX);
        let values: Vec<f32> = match dosages {
            Dosages::I8(x) => x.read()?[row * samples..][..samples].iter().map(|&x| f32::from(x)).collect(),
            Dosages::F32(x) => x.read()?[row * samples..][..samples].to_vec(),
        };
        let sample = values.iter().position(|&x| x < -1.0 || !x.is_finite()).unwrap_or(0);
        let variant = rows.start + row as u64;
        let (array, index) = self.plan.locate(variant, sample as u64);
        let why = if values[sample] == -2.0 {
            format!(
                "variant {variant}, sample {sample}: allele -2 pads a call of lower ploidy than {}; mixed ploidy is \
                 not supported yet",
                self.rule.ploidy
            )
        } else {
            format!("variant {variant}, sample {sample}: {} is no allele", values[sample])
        };
        Ok(Error::chunk(array, &index, why))
    }

    /// `A X` variant by variant, with each variant's scaling; variants that take no part are left out. One pass over
    /// the store.
    pub(crate) fn apply_with_standards(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut VariantSink<'_>,
    ) -> Result<()> {
        let (narrow, width) = (x.to_tensor(self.device)?, x.cols());
        self.each_block(pass, &mut |block| {
            let y: Vec<f64> = matmul(&block.x, &narrow)?.read()?.into_iter().map(f64::from).collect();
            for (i, standard) in block.standards.iter().enumerate() {
                if standard.fate == Fate::Used {
                    sink(block.rows.start + i as u64, standard, &y[i * width..][..width])?;
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

    fn gram(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        let thin = x.to_tensor(self.device)?;
        // The result lies on its side: the long rows fill register tiles that a thin column leaves half empty.
        let mut sum = Sum::new(x.cols() as u64, x.rows() as u64, false);
        self.each_block(pass, &mut |block| sum.add(&matmul_tn(&matmul(&block.x, &thin)?, &block.x)?))?;
        Ok(sum.finish(self.device)?.transposed())
    }

    fn apply(
        &self,
        x: &Matrix,
        pass: &Pass<'_>,
        sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
    ) -> Result<()> {
        let narrow = x.to_tensor(self.device)?;
        self.each_block(pass, &mut |block| {
            let y = matmul(&block.x, &narrow)?.read()?;
            let rows = y.len() / x.cols().max(1);
            let y = Matrix::from_vec(y.into_iter().map(f64::from).collect(), rows, x.cols())?;
            sink(block.rows.start, &y)
        })
    }
}

/// Sums in f64 of the rows of a filled slot; negative is missing.
fn float_sums(slot: &[u8], rows: u64, samples: u64) -> Vec<Stats> {
    let [rows, samples] = [rows, samples].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let (values, _) = slot[..rows * samples * 4].as_chunks::<4>();
    let sums = |row: &[[u8; 4]]| {
        row.iter().map(|bytes| f32::from_ne_bytes(*bytes)).filter(|x| *x >= 0.0).map(f64::from).fold(
            Stats::default(),
            |sum, x| Stats {
                sum: sum.sum + x,
                sum_squares: sum.sum_squares + x * x,
                count: sum.count + 1,
                bad: 0,
            },
        )
    };
    values.par_chunks(samples).map(sums).collect()
}

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;

impl Tally {
    fn add(&mut self, stats: &Stats, standard: &Standard, samples: u64) {
        self.counts.total += 1;
        match standard.fate {
            Fate::Used => self.counts.used += 1,
            Fate::AllMissing => self.counts.all_missing += 1,
            Fate::AboveMissing => self.counts.above_missing += 1,
            Fate::BelowMaf => self.counts.below_maf += 1,
            Fate::ZeroVariance => self.counts.zero_variance += 1,
        }
        self.sum_squares += standard.sum_squares(stats, samples);
        for byte in stats.sum.to_le_bytes().into_iter().chain(stats.count.to_le_bytes()) {
            self.digest = (self.digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
