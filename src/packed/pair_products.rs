//! For each pair of columns, the sum over rows of the product of their codes times the row's weight, in integers.
//!
//! The sums are Aᵀ W, where A are the codes and W the codes times the weights, which have four values in a row. Weights are rounded to
//! multiples of a power of two, which each row has of its own. Rows with the same power are multiplied together, and sums are shifted to a
//! common unit, so that results are the same to the bit for any order of the rows.
//!
//! In a row with few codes that are not 0, only the pairs of these codes add to the sums, and the pairs are found one by one.

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
    recode,
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

/// The number of columns of the smallest group: a vector of the kernels.
pub(crate) const COLUMNS: u64 = PART_COLUMNS;
/// A row is rare if at most one in this many codes is not 0. On a cpu, finding its pairs then takes about half as long as a product.
const RARE: u64 = 16;

/// Sums over rows, for pairs of columns.
#[derive(Debug)]
pub(crate) struct PairProducts {
    device: Device,
    columns: u64,
    /// The number of rows that may still be added.
    left: u64,
    /// The exponent of the unit: sums are multiples of 2^-`point`.
    point: i32,
    /// For each [`group_columns`] columns, the sums with themselves and with all or some of the columns after them, as far as these are
    /// wanted.
    groups: Vec<ColumnSums>,
}

/// The pairs of columns that have sums. Ranges start at a multiple of 64, and end at a multiple of 64 or after the last column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PairSet {
    /// These columns, paired with themselves and all columns after them.
    From(Range<u64>),
    /// All columns before this one, a multiple of 64, paired with this column and all after it; and each column paired with itself, as in
    /// `Diagonal`.
    Across(u64),
    /// Each column paired with itself. Some other pairs have sums, too.
    Diagonal,
}

/// A group of columns, and the entries with which these columns have sums.
#[derive(Clone, Copy, Debug)]
struct Group {
    own: u64,
    count: u64,
    entries: (u64, u64),
}

impl Group {
    /// Returns the groups that cover the pairs `wanted` of `columns` columns.
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

    /// Fails with [`Error::OutOfMemory`].
    fn zeros(self, device: &Device) -> Result<ColumnSums> {
        let Self { own, count, entries: (first, end) } = self;
        ColumnSums::zeros_from(device, [first / 16, own / 16], end, count)
    }
}

/// The kind of a row. Rows of one kind that are not rare are multiplied together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind {
    pub(crate) rare: bool,
    /// True if a code is missing.
    pub(crate) missing: bool,
    /// The number of bytes of the row's integers, which are multiples of 2^-`power`.
    pub(crate) limb_count: u64,
    pub(crate) power: i32,
}

/// The products of two codes of a row, as integers: of two codes 1, of a code 1 and a missing code, and of two missing codes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Multiples {
    pub(crate) one: i32,
    pub(crate) filled: i32,
    pub(crate) square: i32,
}

/// The kind of a row, and the integers that the row is multiplied by.
pub(crate) struct RowTerms {
    /// The change of the row's codes that is made first.
    pub(crate) recode: Recode,
    pub(crate) kind: Kind,
    pub(crate) multiples: Multiples,
}

impl PairProducts {
    /// Creates sums of no rows for all pairs of columns. At most `rows` rows are added, each with products up to `largest`. The unit is
    /// 2^-`point` or larger. Fails with [`Error::Limit`] for more columns than sums are exact for; [`Error::OutOfMemory`].
    pub(crate) fn new(device: &Device, columns: u64, rows: u64, largest: f64, point: i32) -> Result<Self> {
        Self::for_pairs(device, columns, &PairSet::From(0..columns), rows, largest, point)
    }

    /// Creates sums as [`new`](Self::new) does, for only the pairs in `wanted`. Fails as [`new`](Self::new) does.
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

    /// Refuses rows from row `from` on that are beyond the panel, and more rows than may still be added. Fails with
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

    /// Returns the number of rows that may still be added.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    pub(crate) fn columns(&self) -> u64 {
        self.columns
    }

    /// Returns the exponent of the unit, negated.
    pub(crate) fn point(&self) -> i32 {
        self.point
    }

    /// Returns true if a row with `codes` codes that are not 0 is rare.
    pub(crate) fn is_rare(&self, codes: f64) -> bool {
        codes < (self.columns / RARE) as f64 + 0.5
    }

    /// Returns the exponent of the power of two by which numbers up to `bound` are multiplied, so that the results are at most `max`.
    pub(crate) fn power(&self, max: f64, bound: f64) -> i32 {
        exponent(max / bound).clamp(self.point - 31, self.point)
    }

    /// Returns the programs that sums of `rows` rows may launch if no code is missing, and that of [`recode`](super::recode()). The programs
    /// that take longest to compile come first.
    pub(crate) fn programs(device: &Device, columns: u64, rows: u64, limb_count: u64) -> Vec<Program> {
        let rows = batches(device, columns, 1, limb_count).longest(rows);
        // The first and the last group are enough, since each group between them launches the program of one of the two.
        let groups = [columns, columns.min(COLUMNS)].map(row_words);
        let [first, last] = groups.map(|words| adjoint::program(device, words, rows, limb_count));
        vec![
            first,
            last,
            limbs::program(1, limb_count),
            pairs::program(),
            gather::program(),
            recode::program(),
        ]
    }

    /// Returns the bytes on the device in addition to the panel, for `rows` rows with `sets` sets of integers.
    pub(crate) fn device_bytes(device: &Device, columns: u64, rows: u64, sets: u64) -> u64 {
        Self::device_bytes_of(device, columns, &PairSet::From(0..columns), rows, sets)
    }

    /// Returns the [`device_bytes`](Self::device_bytes) of sums for only the pairs in `wanted`.
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
        // These are the rows in order, the table and the order of the rows, and for each group that is worked on the limbs of a batch. The
        // cpu device adds less than the same number of bytes again for missing codes.
        let longest = batches(device, columns, sets, LIMBS).longest(rows).next_multiple_of(4);
        let limbs = longest * sets * row_limbs(LIMBS, group_columns(device, columns));
        let limbs = limbs * (1 + 2 * groups_at_once(device, columns));
        let of_rows = rows.saturating_mul(4 * row_words(columns) + 32);
        sums.fold(limbs, u64::saturating_add).saturating_add(of_rows)
    }

    /// The number of host bytes for a row of a panel while the row is added: the data that `terms` may be given, and the row's terms, place
    /// and entries of a table.
    pub(crate) const HOST_ROW_BYTES: u64 = 112;

    /// Returns the bytes on the host for a matrix, and for the buffer through which it is read.
    pub(crate) fn host_bytes(device: &Device, columns: u64) -> u64 {
        columns.saturating_mul(columns).saturating_mul(8).saturating_add(Self::read_bytes(device, columns))
    }

    /// Returns the bytes on the host for reading results: twice the sums of a group.
    pub(crate) fn read_bytes(device: &Device, columns: u64) -> u64 {
        group_columns(device, columns).saturating_mul(16).saturating_mul(columns)
    }

    /// Adds sums over other rows for the same pairs, which stay on their device. Fails with [`Error::Shape`] for sums
    /// of other pairs, of another unit, or of a device that groups columns otherwise.
    pub(crate) fn join(&mut self, other: Self) -> Result<()> {
        let kind = |sums: &Self| (sums.columns, sums.point, sums.groups.len());
        if kind(self) != kind(&other) {
            let [expected, got] = [&*self, &other].map(|sums| format!("{:?}", kind(sums)));
            return Err(Error::shape("PairProducts::join", expected, got));
        }
        self.groups.iter_mut().zip(other.groups).try_for_each(|(own, other)| own.join(other))
    }

    /// Adds `rows` rows of `packed` from row `from` on. `terms` returns None for a row that takes no part. Enqueues; does not wait.
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
            // Multiples of one limb are codes times a factor, and products are faster if rows of equal factors are consecutive.
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

    /// Adds rows of one kind that are not rare.
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
        let shift = (self.point - power).unsigned_abs();
        for range in batches(&self.device, self.columns, sets, limb_count).split((rows.start, rows.end)) {
            let of_batch = PackedRows { packed, range, missing };
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
    /// Returns a row of the table of a product.
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

/// Returns the exponent of the largest power of two that is at most `value`, a positive normal number.
pub(crate) fn exponent(value: f64) -> i32 {
    #[allow(clippy::cast_possible_truncation, reason = "11 bits")]
    let biased = (value.to_bits() >> 52) as i32;
    biased - BIAS
}

/// Returns 2 to a power from -1022 to 1023.
pub(crate) fn power_of_two(power: i32) -> f64 {
    f64::from_bits(u64::from((power + BIAS).cast_unsigned()) << 52)
}

/// The bias of the exponent in an f64.
const BIAS: i32 = 1023;

/// Returns the maximum number of columns of a group, for `columns` columns in all. The more columns a large device computes at once, the
/// fewer workgroups share the rows of a sum and add to it: a vector of columns for each 128 workgroups that fill the device, up to eight. Sums
/// of columns with earlier columns of the same group are not wanted, so a group has at most a 32nd of the columns.
fn group_columns(device: &Device, columns: u64) -> u64 {
    let limits = device.limits();
    let large = u64::from(limits.fill) / (128 * device.at_once() as u64).max(1);
    // A binding has to hold the sums of 64 entries.
    let room = limits.room() / (8 * 64 * COLUMNS);
    COLUMNS * large.min(columns / (32 * COLUMNS)).min(room).clamp(1, 8)
}

/// Returns the number of columns of a group with `entries` entries, at most `most`, for which the fewest workgroups share the rows of a sum.
fn width(limits: &Limits, most: u64, entries: u64) -> u64 {
    let tiles = entries.div_ceil(16 * u64::from(LARGE_TILE)).max(1);
    let splits = |parts: &u64| adjoint::splits(limits, LARGE_TILE, false, [u64::MAX, parts * tiles]);
    COLUMNS * (1..=most / COLUMNS).rev().min_by_key(splits).unwrap_or(1)
}

/// Returns the number of groups that the device works on at once.
fn groups_at_once(device: &Device, columns: u64) -> u64 {
    (device.at_once() as u64).min(columns.div_ceil(group_columns(device, columns)))
}

/// Returns the batches of rows that stay in the cache, together with their limbs in the groups that are worked on at once.
pub(super) fn batches(device: &Device, columns: u64, sets: u64, limb_count: u64) -> RowBatches {
    let limbs =
        sets * row_limbs(limb_count, group_columns(device, columns)) * groups_at_once(device, columns);
    let row_bytes = 4 * row_words(columns) + limbs;
    RowBatches::new(device.limits(), row_bytes, LEAST_DEPTH)
}
