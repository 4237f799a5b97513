//! Bytes to packed values.

use std::sync::atomic::{AtomicU32, Ordering};

use super::{
    bits::{Layout, Rows},
    simd::wide,
};
use crate::{
    bits::pack::{Params, REFUSE},
    driver::cpu::CpuLaunch,
};

pub(crate) fn pack(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let (bits, recode) = (launch.constant("BITS"), launch.constant("RECODE") == 1);
    let [x, out, refused] = launch.args();
    let [rows, cols, stride, x0, out0] = [p.rows, p.cols, p.stride, p.x0, p.out0].map(|n| n as usize);
    let (x, out) = (&x.read::<u8>()[x0..], &mut out.write::<u8>()[out0..][..rows * stride]);
    let told = [AtomicU32::new(0), AtomicU32::new(0)];
    let code = Code { entries: p.entries, negative: (p.negative != REFUSE).then_some(p.negative) };
    let table = recode.then(|| byte_table(bits, p.table_low, p.table_high));
    let squeeze = match bits {
        1 => squeeze_all::<1>,
        2 => squeeze_all::<2>,
        _ => squeeze_all::<4>,
    };
    let per = (8 / bits) as usize;
    let rows = Rows {
        inputs: [x],
        input: Layout { stride: cols, per: 1 },
        outputs: [out],
        output: Layout { stride, per },
        rows,
        len: cols,
        first: 0,
    };
    rows.for_each(&|first, [x]: [&[u8]; 1], [out]: [&mut [u8]; 1]| {
        if wide(|| squeeze(x, out, code)) {
            code.tell(x, first, &told);
        }
        if let Some(table) = &table {
            out.iter_mut().for_each(|byte| *byte = table[usize::from(*byte)]);
            // The table may have changed the zeros behind the values.
            if let (tail @ 1.., Some(last)) = (x.len() % per, out.last_mut()) {
                *last &= 0xff >> (8 - tail * bits as usize);
            }
        }
    });
    let slot = &mut refused.write::<u32>()[p.refused0 as usize..][..2];
    slot[0] += told[0].load(Ordering::Relaxed);
    slot[1] = slot[1].max(told[1].load(Ordering::Relaxed));
}

/// Which values are packed, before the table.
#[derive(Clone, Copy)]
struct Code {
    entries: u32,
    negative: Option<u32>,
}

impl Code {
    /// Tells how many values are refused, and the complement of the place of the first.
    #[cold]
    fn tell(self, x: &[u8], first: usize, [count, place]: &[AtomicU32; 2]) {
        let is_refused = |&value: &u8| match self.negative {
            Some(_) if value >= 0x80 => false,
            _ => u32::from(value) >= self.entries,
        };
        let number = x.iter().filter(|value| is_refused(value)).count();
        let at = first + x.iter().position(|value| is_refused(value)).unwrap_or(0);
        let [number, at] = [number, at].map(|n| u32::try_from(n).expect("a part should be small"));
        count.fetch_add(number, Ordering::Relaxed);
        place.fetch_max(!at, Ordering::Relaxed);
    }
}

/// What a packed byte becomes when each of its values goes through the table.
fn byte_table(bits: u32, low: u32, high: u32) -> [u8; 256] {
    let entries = u64::from(low) | u64::from(high) << 32;
    let mask = (1 << bits) - 1;
    std::array::from_fn(|byte| {
        let values = (0..8).step_by(bits as usize);
        let packed =
            values.fold(0, |packed, at| packed | (entries >> (4 * (byte >> at & mask)) & mask as u64) << at);
        packed.to_le_bytes()[0]
    })
}

/// Packs values as they are; whether any is refused.
#[inline(always)]
fn squeeze_all<const BITS: u32>(x: &[u8], out: &mut [u8], code: Code) -> bool {
    let per = (8 / BITS) as usize;
    let sign = if code.negative.is_some() { ONES } else { 0 };
    let (negative, room) = (u64::from(code.negative.unwrap_or(0)), u64::from(128 - code.entries) * ONES);
    // Of eight values in the bytes of a word: those to pack, and the top bits of those that are refused.
    let check = |word: u64| {
        let below = word >> 7 & sign;
        let values = word & !(below * 255);
        let over = (((values & !TOPS) + room) | values) & TOPS;
        (values | below * negative, over)
    };
    let mut refused = 0;
    let (words, rest) = x.as_chunks::<8>();
    let (packed, last) = out.split_at_mut(words.len() * BITS as usize);
    match BITS {
        1 => {
            for (word, byte) in words.iter().zip(packed) {
                let (values, over) = check(u64::from_le_bytes(*word));
                refused |= over;
                *byte = squeeze::<BITS>(values).to_le_bytes()[0];
            }
        }
        2 => {
            for (word, out) in words.iter().zip(packed.as_chunks_mut::<2>().0) {
                let (values, over) = check(u64::from_le_bytes(*word));
                refused |= over;
                let [a, b, ..] = squeeze::<BITS>(values).to_le_bytes();
                *out = [a, b];
            }
        }
        _ => {
            for (word, out) in words.iter().zip(packed.as_chunks_mut::<4>().0) {
                let (values, over) = check(u64::from_le_bytes(*word));
                refused |= over;
                let [a, b, c, d, ..] = squeeze::<BITS>(values).to_le_bytes();
                *out = [a, b, c, d];
            }
        }
    }
    for (values, byte) in rest.chunks(per).zip(last) {
        let mut word = [0; 8];
        word[..values.len()].copy_from_slice(values);
        let (values, over) = check(u64::from_le_bytes(word));
        refused |= over;
        *byte = squeeze::<BITS>(values).to_le_bytes()[0];
    }
    refused != 0
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x80 * ONES;

/// Eight values in the bytes of a word, to the lowest bits of it.
#[inline(always)]
fn squeeze<const BITS: u32>(mut values: u64) -> u64 {
    // Neighbours together, until all are.
    values |= values >> (8 - BITS);
    values &= ((1 << (2 * BITS)) - 1) * 0x0001_0001_0001_0001;
    values |= values >> (16 - 2 * BITS);
    values &= ((1 << (4 * BITS)) - 1) * 0x0000_0001_0000_0001;
    values | values >> (32 - 4 * BITS)
}
