//! 2-bit codes to planes of bits, and back.

use bytemuck::{Pod, Zeroable};
use pulp::NullaryFnOnce;

use super::{
    cpu::{
        bits::{Layout, Rows},
        simd::wide,
    },
    wg_alone,
};
use crate::kernel::{CpuLaunch, Kernel, kernel};

/// Parameters of both kernels.
#[derive(Clone, Copy, Debug, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct Params {
    pub(crate) rows: u32,
    /// Codes of a row.
    pub(crate) cols: u32,
    /// Bytes of a row of codes.
    pub(crate) codes_stride: u32,
    /// Bytes of a row of a plane.
    pub(crate) planes_stride: u32,
    pub(crate) codes0: u32,
    pub(crate) planes0: u32,
}

pub(crate) static SPLIT_PLANES: Kernel<Params> =
    kernel!("split_planes", Params, [Read, ReadWrite, ReadWrite], split_planes, wg_alone);

pub(crate) static MERGE_PLANES: Kernel<Params> =
    kernel!("merge_planes", Params, [Read, Read, ReadWrite], merge_planes, wg_alone);

const CODES: usize = 4;
const BITS: usize = 8;

fn split_planes(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [codes, low, high] = launch.args();
    let [rows, len, codes_stride, stride] =
        [p.rows, p.cols, p.codes_stride, p.planes_stride].map(|n| n as usize);
    let rows = Rows {
        inputs: [&codes.read::<u8>()[p.codes0 as usize..]],
        input: Layout { stride: codes_stride, per: CODES },
        outputs: [low, high].map(|plane| &mut plane.write::<u8>()[p.planes0 as usize..][..rows * stride]),
        output: Layout { stride, per: BITS },
        rows,
        len,
        first: 0,
    };
    rows.for_each(&|first, [codes]: [&[u8]; 1], [low, high]: [&mut [u8]; 2]| {
        wide(Split { codes, low: &mut *low, high: &mut *high });
        clear_tail((first, len), BITS, low);
        clear_tail((first, len), BITS, high);
    });
}

fn merge_planes(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [low, high, codes] = launch.args();
    let [rows, len, stride, planes_stride] =
        [p.rows, p.cols, p.codes_stride, p.planes_stride].map(|n| n as usize);
    let planes = [&low, &high].map(|plane| &plane.read::<u8>()[p.planes0 as usize..]);
    let rows = Rows {
        inputs: planes,
        input: Layout { stride: planes_stride, per: BITS },
        outputs: [&mut codes.write::<u8>()[p.codes0 as usize..][..rows * stride]],
        output: Layout { stride, per: CODES },
        rows,
        len,
        first: 0,
    };
    rows.for_each(&|first, [low, high]: [&[u8]; 2], [codes]: [&mut [u8]; 1]| {
        wide(Merge { low, high, codes: &mut *codes });
        clear_tail((first, len), CODES, codes);
    });
}

/// Clears what is behind a row's last value in its last byte; `first` is the place of a piece's first value.
fn clear_tail((first, len): (usize, usize), per: usize, out: &mut [u8]) {
    let bytes = out.len();
    let Some(last) = out.last_mut() else { return };
    if first % len + bytes * per > len {
        *last &= 0xff >> (8 / per * (per - len % per));
    }
}

/// Codes to planes.
struct Split<'a> {
    codes: &'a [u8],
    low: &'a mut [u8],
    high: &'a mut [u8],
}

impl NullaryFnOnce for Split<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { codes, low, high } = self;
        let (words, rest) = codes.as_chunks::<4>();
        let (low, low_rest) = low.split_at_mut(words.len() * 2);
        let (high, high_rest) = high.split_at_mut(words.len() * 2);
        for ((word, low), high) in words.iter().zip(low.as_chunks_mut().0).zip(high.as_chunks_mut().0) {
            let word = u32::from_le_bytes(*word);
            *low = evens(word);
            *high = evens(word >> 1);
        }
        for ((codes, low), high) in rest.chunks(2).zip(low_rest).zip(high_rest) {
            let mut word = [0; 4];
            word[..codes.len()].copy_from_slice(codes);
            let word = u32::from_le_bytes(word);
            [*low, _] = evens(word);
            [*high, _] = evens(word >> 1);
        }
    }
}

/// Planes to codes.
struct Merge<'a> {
    low: &'a [u8],
    high: &'a [u8],
    codes: &'a mut [u8],
}

impl NullaryFnOnce for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        let Self { low, high, codes } = self;
        let (words, rest) = codes.as_chunks_mut::<4>();
        let (low, low_rest) = low.split_at(words.len() * 2);
        let (high, high_rest) = high.split_at(words.len() * 2);
        for ((word, low), high) in words.iter_mut().zip(low.as_chunks().0).zip(high.as_chunks().0) {
            *word = (apart(*low) | apart(*high) << 1).to_le_bytes();
        }
        for ((codes, &low), &high) in rest.chunks_mut(2).zip(low_rest).zip(high_rest) {
            let word = apart([low, 0]) | apart([high, 0]) << 1;
            codes.copy_from_slice(&word.to_le_bytes()[..codes.len()]);
        }
    }
}

/// Bits 0, 2, 4, .. of a word.
#[inline(always)]
fn evens(mut word: u32) -> [u8; 2] {
    word &= 0x5555_5555;
    word = (word | word >> 1) & 0x3333_3333;
    word = (word | word >> 2) & 0x0f0f_0f0f;
    word = (word | word >> 4) & 0x00ff_00ff;
    let [a, b, ..] = (word | word >> 8).to_le_bytes();
    [a, b]
}

/// The bits of two bytes as bits 0, 2, 4, .. of a word.
#[inline(always)]
fn apart(bytes: [u8; 2]) -> u32 {
    let mut word = u32::from(u16::from_le_bytes(bytes));
    word = (word | word << 8) & 0x00ff_00ff;
    word = (word | word << 4) & 0x0f0f_0f0f;
    word = (word | word << 2) & 0x3333_3333;
    (word | word << 1) & 0x5555_5555
}
