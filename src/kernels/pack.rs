//! Packs bytes to values of a few bits.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    WG,
    cpu::{
        bits::{Layout, PairedRows},
        simd::wide,
    },
};
use crate::kernel::{CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        pub(crate) rows: u32,
        /// The number of values of a row.
        pub(crate) cols: u32,
        /// The number of bytes of a packed row.
        pub(crate) stride: u32,
        pub(crate) x0: u32,
        pub(crate) out0: u32,
        pub(crate) refused0: u32,
        /// The smallest value that is refused.
        pub(crate) entries: u32,
        /// The value that replaces negative values before the table, or [`REFUSE`].
        pub(crate) negative: u32,
        /// The entries of the table, four bits each: 0 to 7, then 8 to 15.
        pub(crate) table_low: u32,
        pub(crate) table_high: u32,
    }
}

/// The marker for refusing negative values too.
pub(crate) const REFUSE: u32 = u32::MAX;

pub(crate) static PACK: Kernel<Params> = kernel!("pack", Params, [Read, ReadWrite, ReadWrite], pack, specs);

pub(crate) fn spec(bits: u32, recode: bool) -> [(&'static str, u32); 3] {
    [("WG", WG), ("BITS", bits), ("RECODE", recode.into())]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [1, 2, 4].iter().flat_map(|&bits| [false, true].map(|recode| spec(bits, recode).to_vec())).collect()
}

fn pack(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let (bits, recode) = (launch.constant("BITS"), launch.constant("RECODE") == 1);
    let [x, out, refused] = launch.args();
    let [rows, cols, stride, x0, out0] = [p.rows, p.cols, p.stride, p.x0, p.out0].map(|n| n as usize);
    let (x, out) = (&x.read::<u8>()[x0..], &mut out.write::<u8>()[out0..][..rows * stride]);
    let told = [AtomicU32::new(0), AtomicU32::new(0)];
    let code = Code { entries: p.entries, negative: (p.negative != REFUSE).then_some(p.negative) };
    let table = recode.then(|| u64::from(p.table_low) | u64::from(p.table_high) << 32);
    let per = (8 / bits) as usize;
    let rows = PairedRows {
        from: x,
        input: Layout { stride: cols, per: 1 },
        to: out,
        output: Layout { stride, per },
        rows,
        len: cols,
        first: 0,
    };
    rows.for_each(&|first, x: &[u8], out: &mut [u8]| {
        let refused = match bits {
            1 => wide(PackRow::<1> { x, out, code, table }),
            2 => wide(PackRow::<2> { x, out, code, table }),
            _ => wide(PackRow::<4> { x, out, code, table }),
        };
        if refused {
            code.tell(x, first, &told);
        }
    });
    let slot = &mut refused.write::<u32>()[p.refused0 as usize..][..2];
    slot[0] += told[0].load(Ordering::Relaxed);
    slot[1] = slot[1].max(told[1].load(Ordering::Relaxed));
}

/// The rule that says which values are accepted, before the table is applied.
#[derive(Clone, Copy)]
struct Code {
    entries: u32,
    negative: Option<u32>,
}

impl Code {
    /// Adds the number of refused values to `count`, and records the complement of the first one's index in `place`.
    #[cold]
    fn tell(self, x: &[u8], first: usize, [count, place]: &[AtomicU32; 2]) {
        let is_refused = |&value: &u8| match self.negative {
            Some(_) if value >= 0x80 => false,
            _ => u32::from(value) >= self.entries,
        };
        let number = x.iter().filter(|value| is_refused(value)).count();
        let at = first + x.iter().position(is_refused).unwrap_or(0);
        let [number, at] = [number, at].map(|n| u32::try_from(n).expect("a part should be small"));
        count.fetch_add(number, Ordering::Relaxed);
        place.fetch_max(!at, Ordering::Relaxed);
    }
}

/// Packs a row. Returns true if any value is refused.
struct PackRow<'a, const BITS: usize> {
    x: &'a [u8],
    out: &'a mut [u8],
    code: Code,
    table: Option<u64>,
}

impl<const BITS: usize> pulp::NullaryFnOnce for PackRow<'_, BITS> {
    type Output = bool;

    #[inline(always)]
    fn call(self) -> bool {
        let Self { x, out, code, table } = self;
        let refused = squeeze_all::<BITS>(x, out, code);
        if let Some(table) = table {
            recode_all::<BITS>(out, table);
            // The table may have changed the zeros behind the last value.
            if let (tail @ 1.., Some(last)) = (x.len() % (8 / BITS), out.last_mut()) {
                *last &= 0xff >> (8 - tail * BITS);
            }
        }
        refused
    }
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x80 * ONES;

/// Packs values without a table. Returns true if any value is refused.
#[inline(always)]
fn squeeze_all<const BITS: usize>(x: &[u8], out: &mut [u8], code: Code) -> bool {
    let sign = if code.negative.is_some() { ONES } else { 0 };
    let negative = u64::from(code.negative.unwrap_or(0)) * ONES;
    let room = u64::from(128 - code.entries) * ONES;
    // Checks eight values in the bytes of a word. Returns the values to pack, and the top bits of refused values.
    let check = |word: u64| {
        let below = (word >> 7 & sign) * 255;
        let values = word & !below;
        let over = (((values & !TOPS) + room) | values) & TOPS;
        (values | below & negative, over)
    };
    let mut refused = 0;
    let (words, rest) = x.as_chunks::<8>();
    let (packed, last) = out.split_at_mut(words.len() * BITS);
    for (word, out) in words.iter().zip(packed.as_chunks_mut::<BITS>().0) {
        let (values, over) = check(u64::from_le_bytes(*word));
        refused |= over;
        out.copy_from_slice(&squeeze::<BITS>(values).to_le_bytes()[..BITS]);
    }
    for (values, byte) in rest.chunks(8 / BITS).zip(last) {
        let mut word = [0; 8];
        word[..values.len()].copy_from_slice(values);
        let (values, over) = check(u64::from_le_bytes(word));
        refused |= over;
        [*byte, ..] = squeeze::<BITS>(values).to_le_bytes();
    }
    refused != 0
}

/// Moves eight values from the bytes of a word to the word's lowest bits.
#[inline(always)]
fn squeeze<const BITS: usize>(mut values: u64) -> u64 {
    // Each step joins neighbours, until all values are contiguous.
    values |= values >> (8 - BITS);
    values &= ((1 << (2 * BITS)) - 1) * 0x0001_0001_0001_0001;
    values |= values >> (16 - 2 * BITS);
    values &= ((1 << (4 * BITS)) - 1) * 0x0000_0001_0000_0001;
    values | values >> (32 - 4 * BITS)
}

/// Recodes packed values by a table of four bits per entry.
#[inline(always)]
fn recode_all<const BITS: usize>(packed: &mut [u8], table: u64) {
    let mask = (1 << BITS) - 1;
    let each = u64::MAX / mask;
    let entries = std::array::from_fn(|i| (table >> (4 * i) & mask) * each);
    let (words, rest) = packed.as_chunks_mut::<8>();
    for word in words {
        *word = recode::<BITS>(u64::from_le_bytes(*word), &entries).to_le_bytes();
    }
    for byte in rest {
        [*byte, ..] = recode::<BITS>(u64::from(*byte), &entries).to_le_bytes();
    }
}

/// Selects table entries, each repeated over a word, by the packed values: each bit of a value halves the number of candidates.
#[inline(always)]
fn recode<const BITS: usize>(packed: u64, entries: &[u64; 16]) -> u64 {
    let mask = (1 << BITS) - 1;
    let mut entries = *entries;
    for bit in 0..BITS {
        let plane = (packed >> bit & (u64::MAX / mask)) * mask;
        for i in 0..1 << (BITS - 1 - bit) {
            entries[i] = (plane & entries[2 * i + 1]) | (!plane & entries[2 * i]);
        }
    }
    entries[0]
}
