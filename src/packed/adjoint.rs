//! The product Aᵀ W of transposed packed rows with limbs.

use rayon::prelude::*;

use super::{
    apply::{PackedRows, pieces, step},
    operand::{LIMBS, row_limbs},
};
use crate::{
    Device, Error, Limits, Result, Tensor,
    kernel::{Grid, Program, small},
    kernels::packed_adjoint::{LARGE_TILE, PACKED_ADJOINT, PART_COLUMNS, Params, TILE, at_once, spec},
};

/// The minimum number of rows of a workgroup, so that adding up its sums costs little compared to the products.
pub(super) const LEAST_DEPTH: u64 = 512;

/// The minimum number of sums that a thread of the host takes.
const LEAST_SUMS: usize = 1 << 14;

/// Returns the number of words of a row that a workgroup takes, for `words` words of `rows` rows.
fn tile(limits: &Limits, words: u64, rows: u64) -> u32 {
    // The number of workgroups of the fewest rows.
    let groups = words.saturating_mul(rows) / (LEAST_DEPTH * u64::from(LARGE_TILE));
    let large = words >= LARGE_TILE.into() && limits.is_filled_by_large(groups);
    if large { LARGE_TILE } else { TILE }
}

/// Returns the number of rows of a workgroup, which determines how many workgroups share the rows of each of the `tiles` tiles.
fn depth(limits: &Limits, tile: u32, missing: bool, [rows, tiles]: [u64; 2]) -> u64 {
    let depth = match splits(limits, tile, missing, [rows, tiles]) {
        None => (rows * tiles).div_ceil(2 * u64::from(limits.fill)).max(LEAST_DEPTH),
        Some(splits) => rows.div_ceil(splits),
    };
    depth.next_multiple_of(4)
}

/// Returns the number of workgroups that share the rows of each tile, if the device is known. It is the smallest number with which at most 3
/// % of the device's places are idle, or otherwise the number with the fewest idle places.
pub(super) fn splits(limits: &Limits, tile: u32, missing: bool, [rows, tiles]: [u64; 2]) -> Option<u64> {
    let places = u64::from(limits.processors * at_once(tile, missing, limits.processor_memory));
    // The number of idle places out of 1000.
    let idle = |splits: &u64| {
        let (groups, slots) = (splits * tiles, (splits * tiles).next_multiple_of(places));
        1000 * (slots - groups) / slots
    };
    let splits = 1..=(rows / LEAST_DEPTH).clamp(1, (2 * places / tiles).max(8));
    if places == 0 {
        None
    } else {
        splits.clone().find(|splits| idle(splits) <= 30).or_else(|| splits.min_by_key(idle))
    }
}

/// Returns the program that [`packed_adjoint`] launches for `rows` rows without a missing code. `words` words of each row have sums, and
/// weights have `limb_count` limbs.
pub(crate) fn program(device: &Device, words: u64, rows: u64, limb_count: u64) -> Program {
    Program::new(&PACKED_ADJOINT, &spec(tile(device.limits(), words, rows), false, limb_count))
}

/// Integer sums on a device, for the entries of a row from word `first` on.
#[derive(Debug)]
pub(crate) struct ColumnSums {
    /// (entries, columns, 2) words of 64-bit integers, the low words first.
    pub(crate) words: Tensor<u32>,
    /// The first word of a row whose entries have sums: a multiple of 4.
    pub(crate) first: u64,
    /// The first word of the columns, if the columns are some of the entries: a multiple of 4.
    pub(crate) own: u64,
    /// The words of the same sums over other rows, on other devices.
    pub(crate) elsewhere: Vec<Tensor<u32>>,
}

impl ColumnSums {
    /// Creates sums of 0 for all entries. Fails with [`Error::OutOfMemory`].
    pub(crate) fn zeros(device: &Device, entries: u64, columns: u64) -> Result<Self> {
        Self::zeros_from(device, [0; 2], entries, columns)
    }

    /// Creates sums of 0 for the entries from word `first` up to entry `entries`, and for `columns` columns from word
    /// `own` on. Fails with [`Error::OutOfMemory`].
    pub(crate) fn zeros_from(
        device: &Device,
        [first, own]: [u64; 2],
        entries: u64,
        columns: u64,
    ) -> Result<Self> {
        let words = Tensor::zeros(device, &[entries.saturating_sub(16 * first), columns, 2])?;
        Ok(Self { words, first, own, elsewhere: Vec::new() })
    }

    /// Returns the number of columns.
    pub(super) fn columns(&self) -> u64 {
        self.words.shape()[1]
    }

    /// Returns the number of words of a row whose entries' sums fit a binding. Fails with [`Error::Limit`] when the
    /// sums of 64 entries do not fit.
    pub(super) fn words_at_once(&self) -> Result<u64> {
        let [entries, columns, _] = *self.words.shape() else { return Ok(1) };
        let limits = self.words.device().limits();
        let max = limits.room();
        let wide = max / (8 * columns.max(1)) / 64 * 4;
        if wide == 0 {
            let requested = 8 * columns * 64;
            return Err(Error::Limit { what: "bytes of the sums of 64 entries", requested, max });
        }
        Ok(wide.min(super::row_words(entries)))
    }

    /// Replaces the sums: (entries, columns). Fails with [`Error::Shape`] for another number of sums; [`Error::OutOfMemory`].
    pub(super) fn write(&mut self, sums: impl Iterator<Item = i64>) -> Result<()> {
        #[allow(clippy::cast_possible_truncation, reason = "halves")]
        let words: Vec<u32> =
            sums.map(i64::cast_unsigned).flat_map(|sum| [sum as u32, (sum >> 32) as u32]).collect();
        self.words = Tensor::from_slice(self.words.device(), &words, self.words.shape())?;
        self.elsewhere.clear();
        Ok(())
    }

    /// Adds the same sums over other rows, which stay on their device until all are read. Fails with [`Error::Shape`]
    /// for sums of other entries or columns.
    pub(crate) fn join(&mut self, other: Self) -> Result<()> {
        let extents = |sums: &Self| (sums.words.shape().to_vec(), sums.first, sums.own);
        if extents(self) != extents(&other) {
            let [expected, got] = [&*self, &other].map(|sums| format!("{:?}", extents(sums)));
            return Err(Error::shape("ColumnSums::join", expected, got));
        }
        self.elsewhere.push(other.words);
        self.elsewhere.extend(other.elsewhere);
        Ok(())
    }

    /// Waits, and returns the sums: (entries, columns).
    pub(crate) fn read(&self) -> Result<Vec<i64>> {
        let sum = |bytes: &[u8; 8]| {
            let [low, high]: [u32; 2] = bytemuck::cast(*bytes);
            i64::from(low) | (i64::from(high) << 32)
        };
        let pool = self.words.device().pool()?;
        let mut sums: Vec<i64> = Vec::new();
        // Sums are read one after the other, since memory is planned for those of one device.
        for words in std::iter::once(&self.words).chain(&self.elsewhere) {
            let bytes = words.download()?.bytes()?;
            let part = bytes.as_chunks().0.par_iter().with_min_len(LEAST_SUMS).map(sum);
            pool.install(|| match sums.is_empty() {
                true => sums = part.collect(),
                false => sums.par_iter_mut().zip(part).for_each(|(sum, more)| *sum += more),
            });
        }
        Ok(sums)
    }
}

/// The integers that codes are multiplied by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Weights<'a> {
    /// (⌈rows / 4⌉, sets x row limbs) words of limbs.
    pub(crate) words: &'a Tensor<u32>,
    /// The number of limbs of an integer: at most 3, and at least 2 if codes are missing.
    pub(crate) limb_count: u64,
    /// The exponent of the power of two that sums are multiplied by: below 32.
    pub(crate) shift: u32,
}

impl<'a> From<&'a Tensor<u32>> for Weights<'a> {
    /// Takes weights of three limbs.
    fn from(words: &'a Tensor<u32>) -> Self {
        Self { words, limb_count: LIMBS, shift: 0 }
    }
}

/// Adds Σ g w, and Σ μ w over missing codes, to each entry and column of `sums`, exactly. Enqueues; does not wait.
///
/// `weights` are the limbs that [`packed_weights`](super::apply::packed_weights) or [`packed_limbs`](super::limbs::packed_limbs) made of the
/// same rows. Fails with [`Error::Shape`] when the shapes do not fit; [`Error::Limit`] when a row does not fit a binding.
pub(crate) fn packed_adjoint<'a>(
    rows: PackedRows<'_>,
    weights: impl Into<Weights<'a>>,
    sums: &mut ColumnSums,
) -> Result<()> {
    let words = super::row_words(sums.words.shape()[0]);
    let tile = tile(rows.device().limits(), words, rows.range.1 - rows.range.0);
    adjoint_in_tiles(tile, rows, weights.into(), sums)
}

/// [`packed_adjoint`] in tiles of a given size. Results stay the same to the bit.
pub(crate) fn adjoint_in_tiles(
    tile: u32,
    rows: PackedRows<'_>,
    weights: Weights<'_>,
    sums: &mut ColumnSums,
) -> Result<()> {
    let [entries, columns, _] = *sums.words.shape() else {
        return Err(Error::shape("packed_adjoint", "sums of (entries, columns, 2)", ""));
    };
    let Weights { words: weights, limb_count, shift } = weights;
    let (words, row_limbs) = (rows.words(), row_limbs(limb_count, columns));
    let (width, start) = (rows.sets() * row_limbs, sums.first);
    let count = rows.range.1 - rows.range.0;
    // There may be sums for only some entries of a row, from one word on.
    let until = super::row_words(16 * start + entries);
    if weights.shape() != [count.div_ceil(4), width] || until > words {
        let expected = format!("({}, {width}) limbs, rows of {entries} entries or more", count.div_ceil(4));
        return Err(Error::shape("packed_adjoint", expected, format_args!("{:?}", weights.shape())));
    }
    if count == 0 || entries == 0 || columns == 0 {
        return Ok(());
    }
    let device = rows.device();
    let limits = device.limits();
    // Sums of at most this many codes times limbs fit 32 bits.
    let step = step(device, words, (4 * words).max(width))?.min(1 << 22);
    let wide = sums.words_at_once()?;
    let spec = spec(tile, rows.missing, limb_count);
    for (first, last) in pieces(0..count, step) {
        let at = rows.range.0;
        let packed = rows.packed.window((at + first) * words..(at + last) * words);
        let limbs = weights.window(first / 4 * width..last.div_ceil(4) * width);
        for (word, end) in pieces(start..until, wide) {
            let [from, to] = [word, end].map(|word| (16 * (word - start)).min(entries));
            let target = sums.words.window_update(from * columns * 2..to * columns * 2);
            let tiles = (end - word).div_ceil(tile.into()) * columns.div_ceil(PART_COLUMNS);
            let depth = depth(limits, tile, rows.missing, [last - first, tiles]);
            let splits = (last - first).div_ceil(depth);
            let params = Params {
                rows: small(last - first),
                words: small(words),
                entries: small(to - from),
                columns: small(columns),
                row_limbs: small(row_limbs),
                word0: small(word),
                word_count: small(end - word),
                depth: small(depth),
                packed0: packed.start,
                weights0: limbs.start,
                sums0: target.start,
                shift,
            };
            let work = (last - first).saturating_mul(16 * (end - word)).saturating_mul(columns);
            let grid = Grid::linear(tiles * splits, limits.groups_per_axis, work)?;
            device.launch(&PACKED_ADJOINT, &spec, grid, &[packed.arg, limbs.arg, target.arg], &params)?;
        }
    }
    Ok(())
}
