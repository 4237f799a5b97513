//! Gathers packed rows in another order, with recoding.

use rayon::prelude::*;

use super::wg_alone;
use crate::kernel::{CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        /// The number of rows of the result.
        pub(crate) rows: u32,
        /// The number of words of a row of the operand, and from one row of the result to the next.
        pub(crate) words: u32,
        pub(crate) stride: u32,
        pub(crate) entries: u32,
        /// The offset of each operand, in words.
        pub(crate) packed0: u32,
        pub(crate) order0: u32,
        pub(crate) out0: u32,
    }
}

pub(crate) static PACKED_GATHER: Kernel<Params> =
    kernel!("packed_gather", Params, [Read, Read, Write], packed_gather, wg_alone);

/// The number of rows that an order can name: the bits above hold the recoding.
pub(crate) const ROWS: u32 = 1 << 24;

/// The new code for each of the four codes of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Recode(pub(crate) [u8; 4]);

impl Recode {
    pub(crate) const NOTHING: Self = Self([0, 1, 2, 3]);
    /// The recoding that swaps codes 0 and 2.
    pub(crate) const SWAPPED: Self = Self([2, 1, 0, 3]);
    /// The recoding that makes a missing code 1 and all other codes 0.
    pub(crate) const MISSING: Self = Self([0, 0, 0, 1]);

    /// Returns the word of an order for a row with this recoding.
    pub(crate) const fn word(self, row: u32) -> u32 {
        let Self([zero, one, two, missing]) = self;
        row | u32::from_le_bytes([0, 0, 0, zero | one << 2 | two << 4 | missing << 6])
    }

    /// Returns the recoding and the row from which [`word`](Self::word) made a word.
    pub(crate) const fn split(word: u32) -> (Self, u32) {
        let [.., codes] = word.to_le_bytes();
        (Self([codes & 3, codes >> 2 & 3, codes >> 4 & 3, codes >> 6]), word & (ROWS - 1))
    }
}

/// The number of rows of a task.
const BAND: usize = 256;

fn packed_gather(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [packed, order, out] = launch.args();
    let (rows, words, stride, entries) =
        (p.rows as usize, p.words as usize, p.stride as usize, p.entries as usize);
    let packed = &packed.read::<u32>()[p.packed0 as usize..];
    let order = &order.read::<u32>()[p.order0 as usize..][..rows];
    let out = &mut out.write::<u32>()[p.out0 as usize..][..(rows - 1) * stride + words];
    out.par_chunks_mut(BAND * stride).zip(order.par_chunks(BAND)).for_each(|(out, order)| {
        for (out, &place) in out.chunks_mut(stride).zip(order) {
            let out = &mut out[..words];
            let (recode, row) = Recode::split(place);
            let from = &packed[row as usize * words..][..words];
            if recode == Recode::NOTHING {
                out.copy_from_slice(from);
                continue;
            }
            // Each bit of the new code is a polynomial of the two bits of the old one.
            let Recode([zero, one, two, three]) = recode;
            let terms = [zero, zero ^ one, zero ^ two, zero ^ one ^ two ^ three];
            let [constant, low, high, both] = terms.map(|term| u32::from(term) * 0x5555_5555);
            for (out, &word) in out.iter_mut().zip(from) {
                let (lows, highs) = (word & 0x5555_5555, word >> 1 & 0x5555_5555);
                let (lows, highs) = (lows | lows << 1, highs | highs << 1);
                *out = constant ^ (low & lows) ^ (high & highs) ^ (both & lows & highs);
            }
            // The padding of the row stays 0.
            if let [first, rest @ ..] = &mut out[entries / 16..] {
                *first &= (1 << (2 * (entries % 16))) - 1;
                rest.fill(0);
            }
        }
    });
}
