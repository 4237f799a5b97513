//! Conversion of whole chunks from the bit planes of their elements.

use super::{convert::Convert, layout::Layout, plan::Plan};
use crate::{
    extent::to_usize,
    fresh::{self, CHUNKS},
    store::BitPlanes,
};

/// True if an array's chunks may be converted from bit planes: if boxes are whole rows, and their runs of elements end at whole bytes.
pub(super) fn takes_planes(plan: &Plan, array: usize) -> bool {
    if !plan.has_whole_rows() || !plan.convert().takes_planes(&**plan.array(array)) {
        return false;
    }
    let pieces = std::array::from_fn(|axis| plan.pieces(array, axis + 1, 0));
    !Layout::new(&**plan.array(array), &**plan.convert(), &pieces).cut
}

/// Converts a chunk from its bit planes as a whole if the conversion can, and otherwise puts its elements in order. Returns true if it was
/// converted, and fails with the bytes of memory that are lacking.
pub(super) fn convert_planes(
    chunk: &mut Vec<u8>,
    planes: BitPlanes,
    convert: &dyn Convert,
) -> Result<bool, u64> {
    let len = convert.bytes(chunk.len() as u64);
    let mut out = fresh::chunk(to_usize(len)).map_err(|_| len)?;
    out.resize(to_usize(len), 0);
    let mut rest = &mut out[..];
    let is_converted = planes.blocks(chunk).all(|block| {
        block.is_some_and(|planes| {
            let bytes = to_usize(convert.bytes(8 * planes[0].len() as u64));
            let to = rest.split_off_mut(..bytes);
            to.is_some_and(|to| convert.convert_planes(planes, to))
        })
    });
    if is_converted {
        std::mem::swap(chunk, &mut out);
    } else {
        planes.undo(chunk)?;
    }
    CHUNKS.keep(out);
    Ok(is_converted)
}

#[cfg(test)]
mod tests {
    use std::{
        num::NonZero,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering::Relaxed},
        },
    };

    use super::*;
    use crate::{
        ArrayFacts, Cancel, ChunkedArray, DecodedChunk, Device, FetchedChunk, Result,
        random::philox,
        store::MemoryArray,
        stream::{Along, Blocks, Digests, Misfit, Selection},
    };

    /// An array that leaves its chunks in bit planes.
    #[derive(Debug)]
    struct InPlanes {
        array: MemoryArray,
        block: usize,
        asked: AtomicUsize,
    }

    impl ChunkedArray for InPlanes {
        fn facts(&self) -> ArrayFacts<'_> {
            ArrayFacts { name: "planes", ..self.array.facts() }
        }
        fn decode(&self, index: &[u64], fetched: FetchedChunk) -> Result<DecodedChunk> {
            self.array.decode(index, fetched)
        }
        fn decode_planes(
            &self,
            index: &[u64],
            fetched: FetchedChunk,
        ) -> Result<(DecodedChunk, Option<BitPlanes>)> {
            self.asked.fetch_add(1, Relaxed);
            let mut chunk = self.decode(index, fetched)?;
            for block in chunk.bytes.chunks_mut(self.block).filter(|block| block.len().is_multiple_of(8)) {
                let bits = |b: usize, eight: &[u8]| (0..8).fold(0, |byte, i| byte | (eight[i] >> b & 1) << i);
                let planes = (0..8).flat_map(|b| block.chunks(8).map(move |eight| bits(b, eight)));
                let planes: Vec<u8> = planes.collect();
                block.copy_from_slice(&planes);
            }
            Ok((chunk, Some(BitPlanes::new(NonZero::new(self.block).unwrap()))))
        }
    }

    /// A bit for each element: 0 if the element is 0. Planes are refused if an element is above 1.
    #[derive(Debug)]
    struct Bits {
        planes: bool,
        converted: AtomicUsize,
    }

    impl Convert for Bits {
        fn accepts(&self, _: &dyn ChunkedArray) -> Result<()> {
            Ok(())
        }
        fn unit(&self) -> u64 {
            8
        }
        fn bytes(&self, elements: u64) -> u64 {
            elements.div_ceil(8)
        }
        fn convert(&self, _: &dyn ChunkedArray, from: &[u8], to: &mut [u8]) -> Result<(), Misfit> {
            to.fill(0);
            from.iter().enumerate().for_each(|(i, &byte)| to[i / 8] |= u8::from(byte > 0) << (i % 8));
            Ok(())
        }
        fn takes_planes(&self, _: &dyn ChunkedArray) -> bool {
            self.planes
        }
        fn convert_planes(&self, planes: [&[u8]; 8], to: &mut [u8]) -> bool {
            to.copy_from_slice(planes[0]);
            let fits = planes[1..].iter().all(|plane| plane.iter().all(|&byte| byte == 0));
            self.converted.fetch_add(usize::from(fits), Relaxed);
            fits
        }
    }

    fn read(plan: &Plan, rows: u64) -> (Vec<u8>, Digests) {
        let device = Device::cpu();
        let mut blocks = Blocks::new(plan, &device, rows, 1 << 20, &Cancel::default()).unwrap();
        blocks.digest().unwrap();
        let mut all = Vec::new();
        while let Some(mut block) = blocks.next_block().unwrap() {
            all.extend_from_slice(block.bytes());
        }
        (all, blocks.digests().unwrap().clone())
    }

    /// Rows are the same with and without planes, for any chunks, selection and blocks, also where some chunks hold elements that need the
    /// slow way.
    #[test]
    fn rows_from_planes() {
        let mut number = 0;
        let mut below = |n: u64| {
            number += 1;
            u64::from(philox([5, 5], number)[0]) % n
        };
        let (mut from_planes, mut refused) = (0, 0);
        for _ in 0..1000 {
            let shape = [1 + below(30), 1 + below(40), 1 + below(2)];
            let rows = if below(2) == 0 { 1 + below(32) } else { 8 + 8 * below(3) };
            let width = if below(2) == 0 { 48 } else { shape[1] };
            let chunk = [rows, 1 + below(width), shape[2]];
            let most = 1 + below(300);
            let values: Vec<u8> = (0..shape.iter().product())
                .map(|_| if below(most) == 0 { 3 } else { u8::from(below(3) == 0) })
                .collect();
            let memory = || MemoryArray::new("planes", &values, &shape, &chunk).unwrap();
            let block = to_usize([8, 16, 24, 1000][to_usize(below(4))]);
            let array = Arc::new(InPlanes { array: memory(), block, asked: AtomicUsize::new(0) });
            let first = if below(4) == 0 { below(shape[1]) } else { 0 };
            // Some boxes are whole rows, which come in the same order for any number of rows.
            let is_divided = below(4) == 0;
            let along = [4, if is_divided { 8 + 8 * below(2) } else { 1000 }].map(Along::each);
            let plan = |array: Arc<dyn ChunkedArray>, convert: Arc<dyn Convert>| {
                let rows =
                    Selection::new("test", "rows", [0..shape[0] / 2, shape[0] / 2 + 1..shape[0]], shape[0]);
                let columns =
                    Selection::new("test", "columns", std::iter::once(first..shape[1]), shape[1]).unwrap();
                let rows = Arc::new(rows.unwrap());
                Plan::new(vec![array], rows, Some(Arc::new(columns)), convert, &along).unwrap()
            };
            let bits = |planes| Arc::new(Bits { planes, converted: AtomicUsize::new(0) });
            let (plain, planes) = (bits(false), bits(true));
            let expected = read(&plan(Arc::new(memory()), plain), 4).0;
            let plan = plan(array.clone(), planes.clone());
            let (rows, digests) = read(&plan, if is_divided { 4 } else { 1 + below(9) });
            assert_eq!(rows, expected, "{shape:?} {chunk:?} {first} {block}");
            assert_eq!(digests.differ(&read(&plan, 4).1), None);
            let whole = usize::from(planes.converted.load(Relaxed) > 0);
            from_planes += whole;
            refused += usize::from(array.asked.load(Relaxed) > 0) - whole;
        }
        assert!(from_planes > 200 && refused > 50, "{from_planes} {refused}");
    }
}
