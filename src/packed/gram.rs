//! The Gram matrix of the samples from packed rows, in whole numbers.
//!
//! With code g, mean μ and factor s of a row, and μ for a missing code, `G = Σ s² (g - μ) (gᵀ - μ)` is `T = Σ s² g gᵀ` less
//! the means of its rows and columns, since a row's codes less μ add up to 0. T is Aᵀ W with A the codes and W those codes
//! times s², which are one of four numbers in a row.
//!
//! These are rounded to multiples of a power of two, each row's own. Rows of one power are multiplied together, and sums
//! shifted to a common unit, so that no order of the rows changes a bit. Numbers have three bytes, but two where there are
//! many rows and s² is small: they are rounded up or down as a low-discrepancy sequence over the variants says, so that what
//! rounding adds to the sums is as often of one sign as of the other, also where many rows share one s².
//!
//! Of a rare variant, only the pairs of samples that have it add to T: they are found one by one.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    adjoint::{self, LEAST_DEPTH, Sums, Weights, packed_adjoint},
    apply::Rows,
    digits::{self, Table, packed_digits},
    gather::{self, most_rows, packed_gather},
    pairs::{self, packed_pairs},
    row_words,
    slices::{SLICES, lanes_of, max_of},
    steps::Steps,
};
use crate::{
    Device, Result, Tensor,
    genotype::scaler::{Scaler, VariantScale as Standard},
    kernel::Program,
    kernels::{cpu::digits::digits, packed_gather::SWAPPED, packed_pairs::Terms},
    linalg::{Matrix, gram::to_usize},
};

/// Samples of a group: a vector of the kernels.
const COLUMNS: u64 = 64;
/// Variants from which on two bytes for a number are enough: what rounding to 2^-13 of s² adds is then at most 1.3e-6
/// of a diagonal entry, where sums of f32 are 1.1e-6 off (`benches/peers/gram_digits.py`).
const MANY: u64 = 1 << 17;
/// A variant is rare where one sample in as many has its rarer allele or no call: on a cpu, to find its pairs then takes about
/// half as long as a product.
const RARE: u64 = 16;

/// A sum over rows.
#[derive(Debug)]
pub(crate) struct Gram {
    device: Device,
    samples: u64,
    scaler: Scaler,
    /// Bytes of the numbers of a common variant.
    slices: u64,
    /// Sums are of multiples of 2^-`point`.
    point: i32,
    /// For each 64 samples, the sums of those and all that follow them.
    groups: Vec<Sums>,
}

/// How a row is multiplied: common ones of one kind together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    rare: bool,
    /// Whether a code is missing.
    missing: bool,
    /// Bytes of its numbers, which are multiples of 2^-`power`.
    slices: u64,
    power: i32,
}

/// What codes of a row stand for, in whole numbers: one allele, a missing code, and that in place of another.
struct Multiples {
    one: i32,
    filled: i32,
    square: i32,
}

/// A row, how it is multiplied, and by what.
struct RowTerms {
    row: usize,
    kind: Kind,
    multiples: Multiples,
}

impl Gram {
    /// A sum of no rows, of which there will be `variants` at most.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    pub(crate) fn new(device: &Device, samples: u64, variants: u64, scaler: Scaler) -> Result<Self> {
        let groups = (0..samples).step_by(to_usize(COLUMNS));
        let groups =
            groups.map(|first| Sums::zeros_from(device, first / 16, samples, COLUMNS.min(samples - first)));
        let slices = Self::slices(variants);
        // A diagonal entry is the largest sum: at most 4 s² of each variant, and s² at most 2 of each sample.
        let largest = variants.max(1) as f64 * 8.0 * samples.max(1) as f64;
        let room = 62 - exponent(largest) - 1;
        let point = exponent(max_of(SLICES)).min(room);
        Ok(Self {
            device: device.clone(),
            samples,
            scaler,
            slices,
            point,
            groups: groups.collect::<Result<_>>()?,
        })
    }

    /// Bytes of the numbers of a common variant, one of so many.
    pub(crate) const fn slices(variants: u64) -> u64 {
        if variants < MANY { SLICES } else { 2 }
    }

    /// The programs that a sum of so many rows may launch where no code is missing, those first that compilers take longest for.
    pub(crate) fn programs(device: &Device, samples: u64, variants: u64, scaler: Scaler) -> Vec<Program> {
        let slices = if scaler.is_whole() { 1 } else { Self::slices(variants) };
        let rows = steps(device, samples, 1, slices).longest(variants);
        // Of the first group and the last; what groups between them launch is one of both.
        let groups = [row_words(samples), row_words(samples.min(COLUMNS))];
        let [first, last] = groups.map(|words| adjoint::program(words, rows, slices));
        vec![first, last, digits::program(1, slices), pairs::program(), gather::program()]
    }

    /// Bytes of panels of which the rows of one kind fill the device.
    pub(crate) fn panel_bytes(device: &Device) -> u64 {
        2 * device.limits().step
    }

    /// Bytes on the device besides the panel, of so many rows.
    pub(crate) fn device_bytes(device: &Device, samples: u64, rows: u64) -> u64 {
        let sums = (0..samples.div_ceil(COLUMNS)).map(|group| {
            let first = COLUMNS * group;
            8 * (samples - first) * COLUMNS.min(samples - first)
        });
        // The rows in order; the digits of a step for each group that is worked on, with what the cpu device adds for
        // missing codes, less than those; their table and order.
        let longest = steps(device, samples, 2, SLICES).longest(rows).next_multiple_of(4);
        let digits = longest * 2 * lanes_of(SLICES, COLUMNS);
        let digits = digits * (1 + 2 * groups_at_once(device, samples));
        sums.sum::<u64>() + rows * 4 * row_words(samples) + digits + 32 * rows
    }

    /// Bytes on the host of a row of a panel while it is added: its kind, terms, place, and those in a table.
    pub(crate) const HOST_ROW_BYTES: u64 = 112;

    /// Bytes on the host: T, and a group's sums twice.
    pub(crate) const fn host_bytes(samples: u64) -> u64 {
        samples.saturating_mul(samples).saturating_mul(8).saturating_add(16 * COLUMNS * samples)
    }

    /// Adds rows, the first of which is variant `first` and the scaling of which is `standards`. Enqueues; does not wait.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn add(&mut self, packed: &Tensor<u32>, first: u64, standards: &[Standard]) -> Result<()> {
        if self.samples == 0 {
            return Ok(());
        }
        let rows = to_usize(most_rows(packed)?.min(SWAPPED.into()));
        for (chunk, standards) in standards.chunks(rows).enumerate() {
            let start = (chunk * rows) as u64;
            let terms = self.device.pool()?.install(|| self.terms(standards, first + start));
            #[allow(clippy::cast_possible_truncation, reason = "below 2^31")]
            let place = |row: usize| row as u32 | if self.swaps(&standards[row]) { SWAPPED } else { 0 };
            let order: Vec<u32> = terms.iter().map(|terms| place(terms.row)).collect();
            let ordered = packed_gather(packed, self.samples, start..start + standards.len() as u64, &order)?;
            let mut done = 0;
            for terms in terms.chunk_by(|a, b| a.kind.rare && b.kind.rare || a.kind == b.kind) {
                let rows = done..done + terms.len() as u64;
                done = rows.end;
                if terms[0].kind.rare {
                    self.pair(&ordered, rows, terms)?;
                } else {
                    self.multiply(&ordered, rows, terms)?;
                }
            }
        }
        Ok(())
    }

    /// Of those of the rows from variant `first` on that take part: those of one kind together.
    fn terms(&self, standards: &[Standard], first: u64) -> Vec<RowTerms> {
        let used = standards.par_iter().enumerate().filter(|(_, standard)| standard.is_used());
        let mut of_kind: Vec<(Kind, usize)> =
            used.map(|(row, standard)| (self.kind(standard), row)).collect();
        of_kind.par_sort_unstable();
        let terms = |&(kind, row): &(Kind, usize)| {
            let standard = &standards[row];
            let multiples = multiples(standard, self.mean(standard), kind.power, first + row as u64);
            RowTerms { row, kind, multiples }
        };
        of_kind.par_iter().map(terms).collect()
    }

    /// Adds common rows of one kind.
    fn multiply(&mut self, packed: &Tensor<u32>, rows: Range<u64>, terms: &[RowTerms]) -> Result<()> {
        let Some(&RowTerms { kind: Kind { missing, slices, power, .. }, .. }) = terms.first() else {
            return Ok(());
        };
        let sets = 1 + u64::from(missing);
        let table: Vec<u32> = terms.iter().flat_map(|terms| terms.multiples.entries(sets, slices)).collect();
        let table = Tensor::from_slice(&self.device, &table, &[terms.len() as u64, sets * slices])?;
        // Products of codes alone read no means or factors.
        let factors = Tensor::<f32>::empty(&self.device, &[0, 2])?;
        let shift = (self.point - power).unsigned_abs();
        for range in steps(&self.device, self.samples, sets, slices).of((rows.start, rows.end)) {
            let of_step = Rows { packed, table: &factors, range, missing };
            let (samples, table) =
                (self.samples, Table { words: &table, first: range.0 - rows.start, sets, slices });
            self.device.each(&mut self.groups, |sums| {
                let columns = 16 * sums.first..samples.min(16 * sums.first + COLUMNS);
                let digits = packed_digits(packed, of_step.range(), columns, table)?;
                packed_adjoint(of_step, Weights { words: &digits, slices, shift }, sums)
            })?;
        }
        Ok(())
    }

    /// Adds rare rows.
    fn pair(&mut self, packed: &Tensor<u32>, rows: Range<u64>, terms: &[RowTerms]) -> Result<()> {
        let terms: Vec<Terms> = terms
            .iter()
            .map(|RowTerms { kind, multiples: Multiples { one, filled, square }, .. }| Terms {
                one: one.unsigned_abs(),
                filled: filled.unsigned_abs(),
                square: square.unsigned_abs(),
                shift: (self.point - kind.power).unsigned_abs(),
            })
            .collect();
        let shape = [terms.len() as u64, 4];
        let terms = Tensor::<u32>::from_slice(&self.device, bytemuck::cast_slice(&terms), &shape)?;
        self.device.each(&mut self.groups, |sums| packed_pairs(packed, rows.clone(), &terms, sums))
    }

    /// Whether the other allele is counted, which changes the sign of what is left of the mean alone.
    fn swaps(&self, standard: &Standard) -> bool {
        standard.mean > 1.0 && self.scaler != Scaler::None
    }

    /// The mean of the allele that is counted.
    fn mean(&self, standard: &Standard) -> f64 {
        if self.swaps(standard) { 2.0 - standard.mean } else { standard.mean }
    }

    fn kind(&self, standard: &Standard) -> Kind {
        let missing = standard.called < self.samples;
        let alleles = self.mean(standard) * standard.called as f64;
        let seen = alleles + (self.samples - standard.called) as f64;
        let rare = seen < (self.samples / RARE) as f64 + 0.5;
        let slices = match (rare, self.scaler.is_whole() && !missing) {
            (true, _) => SLICES,
            (_, true) => 1,
            _ => self.slices,
        };
        // A code is 2 at most, and so is a mean; two are rounded up together.
        let bound = 2.0 * self.mean(standard).max(1.0) * standard.scale * standard.scale;
        let power = exponent((max_of(slices) - 4.0) / bound).clamp(self.point - 31, self.point);
        Kind { rare, missing, slices, power }
    }

    /// Waits: T, symmetric: exact but for the rounding of s².
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn sums(self) -> Result<Matrix> {
        let n = to_usize(self.samples);
        let mut total = Matrix::zeros(n, n);
        let unit = power_of_two(-self.point);
        for sums in self.groups {
            let first = to_usize(16 * sums.first);
            let columns = to_usize(COLUMNS).min(n - first);
            let sums = sums.read()?;
            let value = |i: usize, j: usize| sums[(i - first) * columns + j - first] as f64 * unit;
            let fill = |(i, row): (usize, &mut [f64])| {
                let own = first..n.min(first + columns);
                let filled = if own.contains(&i) { first..n } else { own };
                for (j, entry) in filled.clone().zip(&mut row[filled]) {
                    *entry = value(i.max(j), i.min(j));
                }
            };
            let rows = || total.data_mut().par_chunks_mut(n).enumerate().skip(first).for_each(fill);
            self.device.pool()?.install(rows);
        }
        Ok(total)
    }

    /// Waits: the Gram matrix, symmetric.
    ///
    /// # Errors
    /// What the device reports.
    pub(crate) fn finish(self) -> Result<Matrix> {
        let (device, centred) = (self.device.clone(), self.scaler != Scaler::None);
        let mut total = self.sums()?;
        let n = total.rows();
        if centred && n > 0 {
            let data = total.data_mut();
            device.pool()?.install(|| {
                let means: Vec<f64> =
                    data.par_chunks(n).map(|row| row.iter().sum::<f64>() / n as f64).collect();
                let mean = means.iter().sum::<f64>() / n as f64;
                data.par_chunks_mut(n).zip(&means).for_each(|(row, of_row)| {
                    let entries = row.iter_mut().zip(&means);
                    entries.for_each(|(value, of_column)| *value += mean - (of_row + of_column));
                });
            });
        }
        Ok(total)
    }
}

/// What codes of a variant stand for, times s² 2^`power`.
fn multiples(standard: &Standard, mean: f64, power: i32, variant: u64) -> Multiples {
    // 20 bits of multiples of the golden ratio, so that whole numbers stay what they are.
    let threshold = (variant.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 44) as f64 / f64::from(1 << 20);
    let square = standard.scale * standard.scale * power_of_two(power);
    // Within the range by the choice of the power.
    #[allow(clippy::cast_possible_truncation, reason = "at most MAX")]
    let multiple = |value: f64| (value * square + threshold).floor() as i32;
    Multiples { one: multiple(1.0), filled: multiple(mean), square: multiple(mean * mean) }
}

impl Multiples {
    /// A row of the table of a product.
    fn entries(&self, sets: u64, slices: u64) -> impl Iterator<Item = u32> + use<> {
        let Self { one, filled, square } = *self;
        let codes = [[0, one, 2 * one, filled], [0, filled, 2 * filled, square]];
        let of_set = move |codes: [i32; 4]| {
            let codes = codes.map(digits);
            (0..to_usize(slices))
                .map(move |slice| u32::from_le_bytes(codes.map(|digits| digits[slice].cast_unsigned())))
        };
        codes.into_iter().take(to_usize(sets)).flat_map(of_set)
    }
}

/// The largest power of two that is at most `value`, a positive normal number: its exponent.
fn exponent(value: f64) -> i32 {
    #[allow(clippy::cast_possible_truncation, reason = "11 bits")]
    let biased = (value.to_bits() >> 52) as i32;
    biased - BIAS
}

/// 2 to a power from -1022 to 1023.
fn power_of_two(power: i32) -> f64 {
    f64::from_bits(u64::from((power + BIAS).cast_unsigned()) << 52)
}

/// Of the exponent in an f64.
const BIAS: i32 = 1023;

/// How many groups the device works on at once.
fn groups_at_once(device: &Device, samples: u64) -> u64 {
    (device.at_once() as u64).min(samples.div_ceil(COLUMNS))
}

/// The steps over rows, which stay near the processor with their digits in the groups that are worked on at once.
fn steps(device: &Device, samples: u64, sets: u64, slices: u64) -> Steps {
    let digits = sets * lanes_of(slices, COLUMNS) * groups_at_once(device, samples);
    let row_bytes = 4 * row_words(samples) + digits;
    Steps::new(device.limits(), row_bytes, LEAST_DEPTH)
}
