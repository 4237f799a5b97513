//! For each pair of columns, the sum over rows of the product of their codes times the row's weight, in whole numbers.
//!
//! That is Aᵀ W with A the codes and W those codes times the weights, which are one of four numbers in a row. Weights are
//! rounded to multiples of a power of two, each row's own. Rows of one power are multiplied together, and sums shifted to a
//! common unit, so that no order of the rows changes a bit.
//!
//! In a row of few codes that are not 0, only the pairs of these add to the sums: they are found one by one.

mod results;

use std::ops::Range;

use rayon::prelude::*;

use super::{
    MAX_ENTRIES,
    adjoint::{self, ColumnSums, LEAST_DEPTH, Weights, packed_adjoint},
    apply::PackedRows,
    check_entries,
    gather::{self, most_rows, packed_gather},
    limbs::{self, Table, packed_limbs},
    operand::{LIMBS, row_limbs},
    pairs::{self, packed_pairs},
    row_batches::RowBatches,
    row_words,
};
use crate::{
    Device, Error, Limits, Result, Tensor,
    extent::to_usize,
    kernel::Program,
    kernels::{
        cpu::limbs::limbs,
        packed_adjoint::{LARGE_TILE, PART_COLUMNS},
        packed_gather::Recode,
        packed_pairs::Terms,
    },
};

/// Columns of the smallest group: a vector of the kernels.
pub(crate) const COLUMNS: u64 = PART_COLUMNS;
/// A row is rare where one code in as many is not 0: on a cpu, to find its pairs then takes about half as long as a product.
const RARE: u64 = 16;

/// Sums over rows.
#[derive(Debug)]
pub(crate) struct PairProducts {
    device: Device,
    columns: u64,
    /// The number of rows that may still come.
    left: u64,
    /// Sums are of multiples of 2^-`point`.
    point: i32,
    /// For each [`group_columns`] columns, the sums of those and all that follow them, or of some, as far as they are wanted.
    groups: Vec<ColumnSums>,
}

/// The pairs of columns that have sums. Ranges start with a multiple of 64, and end with one or with the last column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PairSet {
    /// These columns with themselves and all that follow.
    From(Range<u64>),
    /// All columns before this one, a multiple of 64, with it and all that follow; and each with itself, as below.
    Across(u64),
    /// Each with itself; some others, too.
    Diagonal,
}

/// The sums of some columns with some entries.
#[derive(Clone, Copy, Debug)]
struct Group {
    own: u64,
    count: u64,
    entries: (u64, u64),
}

impl Group {
    /// The groups of what is wanted, of so many columns.
    fn cover(device: &Device, wanted: &PairSet, columns: u64) -> impl Iterator<Item = Self> + use<> {
        let (across, alone, following) = match wanted {
            PairSet::From(own) => (0..0, 0..0, own.start.min(columns)..own.end.min(columns)),
            PairSet::Across(split) => (0..(*split).min(columns), 0..columns, 0..0),
            PairSet::Diagonal => (0..0, 0..columns, 0..0),
        };
        let (split, limits, most) = (across.end, device.limits().clone(), group_columns(device, columns));
        let mut left = [across, alone, following];
        std::iter::from_fn(move || {
            let kind = left.iter().position(|own| !own.is_empty())?;
            let Range { start: own, end } = left[kind];
            let first = if kind == 0 { split } else { own };
            let wide = if kind == 1 { COLUMNS } else { width(&limits, most, columns - first) };
            let count = wide.min(end - own);
            left[kind].start += count;
            Some(Self { own, count, entries: (first, if kind == 1 { own + count } else { columns }) })
        })
    }

    /// # Errors
    /// [`Error::OutOfMemory`].
    fn zeros(self, device: &Device) -> Result<ColumnSums> {
        let Self { own, count, entries: (first, end) } = self;
        ColumnSums::zeros_from(device, [first / 16, own / 16], end, count)
    }
}

/// The kind of a row: common rows of one kind are multiplied together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) rare: bool,
    /// True where a code is missing.
    pub(crate) missing: bool,
    /// Bytes of its numbers, which are multiples of 2^-`power`.
    pub(crate) limb_count: u64,
    pub(crate) power: i32,
}

/// The products of two codes of a row, in whole numbers: of two codes 1, of a 1 and a missing code, of two missing codes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multiples {
    pub(crate) one: i32,
    pub(crate) filled: i32,
    pub(crate) square: i32,
}

/// The kind of a row, and the numbers that it is multiplied by.
pub(crate) struct RowTerms {
    /// The change of its codes that comes first.
    pub(crate) recode: Recode,
    pub(crate) kind: Kind,
    pub(crate) multiples: Multiples,
}

impl PairProducts {
    /// Sums of no rows, of which there will be `rows` at most, each of products up to `largest`, for all pairs of columns. In multiples
    /// of 2^-`point` at most.
    ///
    /// # Errors
    /// [`Error::Limit`] for more columns than sums are exact for; [`Error::OutOfMemory`].
    pub(crate) fn new(device: &Device, columns: u64, rows: u64, largest: f64, point: i32) -> Result<Self> {
        Self::for_pairs(device, columns, &PairSet::From(0..columns), rows, largest, point)
    }

    /// Sums as of [`new`](Self::new), for the pairs `wanted` alone.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(crate) fn for_pairs(
        device: &Device,
        columns: u64,
        wanted: &PairSet,
        rows: u64,
        largest: f64,
        point: i32,
    ) -> Result<Self> {
        check_entries(columns)?;
        let groups = Group::cover(device, wanted, columns).map(|group| group.zeros(device));
        let room = 62 - exponent(rows.max(1) as f64 * largest) - 1;
        Ok(Self {
            device: device.clone(),
            columns,
            left: rows,
            point: point.min(room),
            groups: groups.collect::<Result<_>>()?,
        })
    }

    /// Refuses rows from row `from` on that the panel does not have, and more rows than were said.
    ///
    /// # Errors
    /// [`Error::Shape`]; [`Error::Argument`].
    pub(crate) fn check(
        &self,
        op: &'static str,
        name: &'static str,
        packed: &Tensor<u32>,
        from: u64,
        rows: u64,
    ) -> Result<()> {
        let [held, words] = packed.matrix(op)?;
        if words != row_words(self.columns) || from.checked_add(rows).is_none_or(|end| end > held) {
            let expected = format!("{rows} rows of {} entries from row {from} on", self.columns);
            return Err(Error::shape(op, expected, format_args!("({held}, {words}) words")));
        }
        if rows > self.left {
            let why = format!("{rows} rows, of which {} may come", self.left);
            return Err(Error::argument(op, name, why));
        }
        Ok(())
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// The number of rows that may still come.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn columns(&self) -> u64 {
        self.columns
    }

    /// The unit's power of two, negated.
    pub(crate) fn point(&self) -> i32 {
        self.point
    }

    /// True where `codes` codes that are not 0 make a row a rare one.
    pub(crate) fn is_rare(&self, codes: f64) -> bool {
        codes < (self.columns / RARE) as f64 + 0.5
    }

    /// The power of two that numbers up to `bound` are multiplied by, of which `max` can be held.
    pub(crate) fn power(&self, max: f64, bound: f64) -> i32 {
        exponent(max / bound).clamp(self.point - 31, self.point)
    }

    /// The programs that sums of so many rows may launch where no code is missing, those first that compilers take longest for.
    pub(crate) fn programs(device: &Device, columns: u64, rows: u64, limb_count: u64) -> Vec<Program> {
        let rows = batches(device, columns, 1, limb_count).longest(rows);
        // The first group and the last are enough: groups between them launch the program of one of both.
        let groups = [columns, columns.min(COLUMNS)].map(row_words);
        let [first, last] = groups.map(|words| adjoint::program(words, rows, limb_count));
        vec![first, last, limbs::program(1, limb_count), pairs::program(), gather::program()]
    }

    /// Bytes on the device besides the panel, of so many rows with so many sets of numbers.
    pub(crate) fn device_bytes(device: &Device, columns: u64, rows: u64, sets: u64) -> u64 {
        Self::device_bytes_of(device, columns, &PairSet::From(0..columns), rows, sets)
    }

    /// [`device_bytes`](Self::device_bytes) of sums for the pairs `wanted` alone.
    pub(crate) fn device_bytes_of(
        device: &Device,
        columns: u64,
        wanted: &PairSet,
        rows: u64,
        sets: u64,
    ) -> u64 {
        let columns = columns.min(MAX_ENTRIES);
        let sums = Group::cover(device, wanted, columns)
            .map(|Group { count, entries: (first, end), .. }| 8 * count * (end - first));
        // The rows in order; the limbs of a batch for each group that is worked on, with what the cpu device adds for
        // missing codes, less than those; their table and order.
        let longest = batches(device, columns, sets, LIMBS).longest(rows).next_multiple_of(4);
        let limbs = longest * sets * row_limbs(LIMBS, group_columns(device, columns));
        let limbs = limbs * (1 + 2 * groups_at_once(device, columns));
        let of_rows = rows.saturating_mul(4 * row_words(columns) + 32);
        sums.fold(limbs, u64::saturating_add).saturating_add(of_rows)
    }

    /// Bytes on the host of a row of a panel while it is added: what `terms` may be given, its terms, place, and those in a
    /// table.
    pub(crate) const HOST_ROW_BYTES: u64 = 112;

    /// Bytes on the host: a matrix, and what it is read through.
    pub(crate) fn host_bytes(device: &Device, columns: u64) -> u64 {
        columns.saturating_mul(columns).saturating_mul(8).saturating_add(Self::read_bytes(device, columns))
    }

    /// Bytes on the host that results are read through: a group's sums twice.
    pub(crate) fn read_bytes(device: &Device, columns: u64) -> u64 {
        group_columns(device, columns).saturating_mul(16).saturating_mul(columns)
    }

    /// Adds so many rows of `packed` from row `from` on; those that take part have terms. Enqueues; does not wait.
    ///
    /// # Errors
    /// Any error that the device reports.
    pub(crate) fn add(
        &mut self,
        packed: &Tensor<u32>,
        from: u64,
        rows: usize,
        terms: impl Fn(&Self, usize) -> Option<RowTerms> + Sync,
    ) -> Result<()> {
        self.left = self.left.saturating_sub(rows as u64);
        if self.columns == 0 {
            return Ok(());
        }
        let step = to_usize(most_rows(packed)?);
        for start in (0..rows).step_by(step) {
            let end = rows.min(start + step);
            let of_row = |row| Some((row - start, terms(self, row)?));
            let mut terms: Vec<(usize, RowTerms)> =
                self.device.pool()?.install(|| (start..end).into_par_iter().filter_map(of_row).collect());
            // Multiples of one limb are codes times a factor, and rows of equal factors together make faster products.
            let factor = |terms: &RowTerms| if terms.kind.limb_count == 1 { terms.multiples.one } else { 0 };
            let key = |(row, terms): &(usize, RowTerms)| (terms.kind, factor(terms), *row);
            self.device.pool()?.install(|| terms.par_sort_unstable_by_key(key));
            #[allow(clippy::cast_possible_truncation, reason = "below 2^24")]
            let order: Vec<u32> = terms.iter().map(|(row, terms)| terms.recode.word(*row as u32)).collect();
            let ordered =
                packed_gather(packed, self.columns, from + start as u64..from + end as u64, &order)?;
            let mut done = 0;
            for terms in terms.chunk_by(|(_, a), (_, b)| a.kind.rare && b.kind.rare || a.kind == b.kind) {
                let rows = done..done + terms.len() as u64;
                done = rows.end;
                if terms[0].1.kind.rare {
                    self.pair(&ordered, rows, terms)?;
                } else {
                    self.multiply(&ordered, rows, terms)?;
                }
            }
        }
        Ok(())
    }

    /// Adds common rows of one kind.
    fn multiply(
        &mut self,
        packed: &Tensor<u32>,
        rows: Range<u64>,
        terms: &[(usize, RowTerms)],
    ) -> Result<()> {
        let Some(&(_, RowTerms { kind: Kind { missing, limb_count, power, .. }, .. })) = terms.first() else {
            return Ok(());
        };
        let sets = 1 + u64::from(missing);
        let table: Vec<u32> =
            terms.iter().flat_map(|(_, terms)| terms.multiples.table(sets, limb_count)).collect();
        let table = Tensor::from_slice(&self.device, &table, &[terms.len() as u64, sets * limb_count])?;
        // Products of codes alone read no means or factors.
        let factors = Tensor::<f32>::empty(&self.device, &[0, 2])?;
        let shift = (self.point - power).unsigned_abs();
        for range in batches(&self.device, self.columns, sets, limb_count).split((rows.start, rows.end)) {
            let of_batch = PackedRows { packed, table: &factors, range, missing };
            let table = Table { words: &table, first: range.0 - rows.start, sets, limb_count };
            self.device.each(&mut self.groups, |sums| {
                let columns = 16 * sums.own..16 * sums.own + sums.columns();
                let limbs = packed_limbs(packed, of_batch.range(), columns, table)?;
                packed_adjoint(of_batch, Weights { words: &limbs, limb_count, shift }, sums)
            })?;
        }
        Ok(())
    }

    /// Adds rare rows.
    fn pair(&mut self, packed: &Tensor<u32>, rows: Range<u64>, terms: &[(usize, RowTerms)]) -> Result<()> {
        let terms: Vec<Terms> = terms
            .iter()
            .map(|(_, RowTerms { kind, multiples: Multiples { one, filled, square }, .. })| Terms {
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
}

impl Multiples {
    /// A row of the table of a product.
    fn table(&self, sets: u64, limb_count: u64) -> impl Iterator<Item = u32> + use<> {
        let Self { one, filled, square } = *self;
        let codes = [[0, one, 2 * one, filled], [0, filled, 2 * filled, square]];
        let of_set = move |codes: [i32; 4]| {
            let codes = codes.map(limbs);
            (0..to_usize(limb_count))
                .map(move |limb| u32::from_le_bytes(codes.map(|limbs| limbs[limb].cast_unsigned())))
        };
        codes.into_iter().take(to_usize(sets)).flat_map(of_set)
    }
}

/// The largest power of two that is at most `value`, a positive normal number: its exponent.
pub(crate) fn exponent(value: f64) -> i32 {
    #[allow(clippy::cast_possible_truncation, reason = "11 bits")]
    let biased = (value.to_bits() >> 52) as i32;
    biased - BIAS
}

/// 2 to a power from -1022 to 1023.
pub(crate) fn power_of_two(power: i32) -> f64 {
    f64::from_bits(u64::from((power + BIAS).cast_unsigned()) << 52)
}

/// The bias of the exponent in an f64.
const BIAS: i32 = 1023;

/// The most columns of a group of so many: the more a large device has at once, the fewer workgroups share the rows of a sum, and add to it. Sums
/// of columns with those before them in their group are not wanted: so a group has at most a 32nd of the columns.
fn group_columns(device: &Device, columns: u64) -> u64 {
    let limits = device.limits();
    let large = u64::from(limits.fill) / (128 * device.at_once() as u64).max(1);
    // A binding holds the sums of 64 entries.
    let room = limits.room() / (8 * 64 * COLUMNS);
    COLUMNS * large.min(columns / (32 * COLUMNS)).min(room).clamp(1, 8)
}

/// Columns of a group with so many entries, at most `most`: so many that the fewest workgroups share the rows of a sum.
fn width(limits: &Limits, most: u64, entries: u64) -> u64 {
    let tiles = entries.div_ceil(16 * u64::from(LARGE_TILE)).max(1);
    let splits = |parts: &u64| adjoint::splits(limits, LARGE_TILE, false, [u64::MAX, parts * tiles]);
    COLUMNS * (1..=most / COLUMNS).rev().min_by_key(splits).unwrap_or(1)
}

/// The groups that the device works on at once.
fn groups_at_once(device: &Device, columns: u64) -> u64 {
    (device.at_once() as u64).min(columns.div_ceil(group_columns(device, columns)))
}

/// The batches over rows, which stay near the processor with their limbs in the groups that are worked on at once.
pub(super) fn batches(device: &Device, columns: u64, sets: u64, limb_count: u64) -> RowBatches {
    let limbs =
        sets * row_limbs(limb_count, group_columns(device, columns)) * groups_at_once(device, columns);
    let row_bytes = 4 * row_words(columns) + limbs;
    RowBatches::new(device.limits(), row_bytes, LEAST_DEPTH)
}
