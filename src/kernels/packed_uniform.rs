//! Converts random words to rows of 2-bit codes.

use pulp::NullaryFnOnce;
use rayon::prelude::*;

use super::{cpu::simd::wide, wg_alone};
use crate::kernel::{CpuLaunch, Kernel, kernel, params};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        /// The number of words of all rows.
        pub(crate) n: u32,
        /// The number of words of a row.
        pub(crate) words: u32,
        pub(crate) columns: u32,
        pub(crate) packed0: u32,
    }
}

pub(crate) static PACKED_UNIFORM: Kernel<Params> =
    kernel!("packed_uniform", Params, [ReadWrite], packed_uniform, wg_alone);

/// The approximate number of words of a task.
const PIECE: usize = 1 << 14;

fn packed_uniform(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let [packed] = launch.args();
    let (words, columns) = (p.words as usize, p.columns as usize);
    let packed = &mut packed.write::<u32>()[p.packed0 as usize..][..p.n as usize];
    packed.par_chunks_mut((PIECE / words).max(1) * words).for_each(|rows| {
        wide(Codes(rows));
        for row in rows.chunks_exact_mut(words) {
            let (_, tail) = row.split_at_mut(columns / 16);
            if let [first, rest @ ..] = tail {
                *first &= (1 << (2 * (columns % 16))) - 1;
                rest.fill(0);
            }
        }
    });
}

/// Words that are converted to codes in place.
struct Codes<'a>(&'a mut [u32]);

impl NullaryFnOnce for Codes<'_> {
    type Output = ();

    #[inline(always)]
    fn call(self) {
        for word in self.0 {
            *word = codes(*word);
        }
    }
}

/// Returns the first 16 base-3 digits of the fraction `rest` / 2^32, two bits each.
#[inline(always)]
fn codes(mut rest: u32) -> u32 {
    let mut codes = 0;
    for j in 0..16 {
        // The constants are 2^32 / 3 and 2^33 / 3, rounded up.
        let digit = u32::from(rest >= 0x5555_5556) + u32::from(rest >= 0xaaaa_aaab);
        codes |= digit << (2 * j);
        rest = rest.wrapping_mul(3);
    }
    codes
}
