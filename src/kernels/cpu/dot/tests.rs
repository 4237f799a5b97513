//! Tests of counting and listing codes on every path, against plain code.

use super::*;
use crate::random::philox;

struct List<'a>(&'a [u32], bool);

impl Work for List<'_> {
    fn run<D: Dot, const NARROW: usize, const WIDE: usize>(self, dot: D) {
        let Self(words, any) = self;
        let code = |&bit: &u32| words[bit as usize / 32] >> (bit % 32) & 3;
        let listed = |code: u32| if any { code != 0 } else { code == 3 };
        let expected: Vec<u32> =
            (0..).step_by(2).take(16 * words.len()).filter(|bit| listed(code(bit))).collect();
        let mut held: Vec<u32> = expected.iter().map(|bit| bit / 32).collect();
        held.dedup();
        let mut bits = vec![u32::MAX; expected.len() + 16];
        let (holding, used) = dot.vectorize(Call { dot, words, any, bits: &mut bits });
        assert_eq!(holding, held.len(), "{} words, {any}", words.len());
        bits.truncate(used);
        bits.sort_unstable();
        assert_eq!(bits, expected, "{} words, {any}", words.len());
    }
}

struct Call<'a, D> {
    dot: D,
    words: &'a [u32],
    any: bool,
    bits: &'a mut [u32],
}

impl<D: Dot> NullaryFnOnce for Call<'_, D> {
    type Output = (usize, usize);

    #[inline(always)]
    fn call(self) -> (usize, usize) {
        let Self { dot, words, any, bits } = self;
        if any {
            (dot.holding::<true>(words), dot.list::<true>(words, bits))
        } else {
            (dot.holding::<false>(words), dot.list::<false>(words, bits))
        }
    }
}

/// Lengths are around the sizes of vectors and parts, and the list has exactly the space that is required.
#[test]
fn codes_are_listed_once_each() {
    for len in [0, 1, 15, 16, 31, 32, 33, 63, 64, 65, 96, 130] {
        let random = |i: usize| philox([9, 0], i as u64);
        let few = |i| random(i)[0] & random(i)[1] & random(i)[2];
        let kinds: [&dyn Fn(usize) -> u32; 4] = [&|_| 0, &|_| u32::MAX, &|i| random(i)[0], &few];
        for kind in kinds {
            let words: Vec<u32> = (0..len).map(kind).collect();
            for path in Path::supported() {
                path.run(List(&words, false));
                path.run(List(&words, true));
            }
        }
    }
}

/// A lookup of words of codes in tables of four words.
struct Look<'a>(&'a [[u32; 4]], &'a [u32; 64]);

impl Work for Look<'_> {
    fn run<D: Dot, const NARROW: usize, const WIDE: usize>(self, dot: D) {
        let Self(tables, codes) = self;
        for &table in tables {
            let mut found = *codes;
            for words in bytemuck::cast_slice_mut::<_, D::Words>(&mut found) {
                *words = pulp::cast(dot.vectorize(LookUp { dot, table, codes: pulp::cast(*words) }));
            }
            let of_byte = |r: usize, code: u8| table[r].to_le_bytes()[usize::from(code)];
            let expected = codes.map(|word| {
                let bytes = word.to_le_bytes();
                u32::from_le_bytes(std::array::from_fn(|r| of_byte(r, bytes[r])))
            });
            assert_eq!(found, expected);
        }
    }
}

struct LookUp<D: Dot> {
    dot: D,
    table: [u32; 4],
    codes: D::Vector,
}

impl<D: Dot> NullaryFnOnce for LookUp<D> {
    type Output = D::Vector;

    #[inline(always)]
    fn call(self) -> D::Vector {
        self.dot.lookup(self.table, self.codes)
    }
}

#[test]
fn codes_are_looked_up_in_the_table_of_their_byte() {
    let tables: Vec<[u32; 4]> = (0..20).map(|i| philox([10, 0], i)).collect();
    let codes = std::array::from_fn(|i| philox([11, 0], i as u64)[0] & 0x0303_0303);
    Path::supported().into_iter().for_each(|path| path.run(Look(&tables, &codes)));
}
