//! Assembles the rows of a box from an array's chunks.

use std::io;

use super::{
    boxes::{ACROSS, AXES, Pieces},
    convert::{Convert, Misfit},
    part::HeldChunk,
    plan::padded,
};
use crate::{ChunkedArray, extent::to_usize};

/// The number of elements that are assembled at a time if runs end within a byte.
const GATHERED: u64 = 1 << 14;

/// An element whose value the target type cannot hold, with its index in the row.
type Unfit = (u64, Misfit);

/// A function that writes a run's converted elements, given a function for the place of the first.
type Fill<'a> = dyn Fn(&dyn Fn() -> [u64; 2], &mut [u8]) -> Result<(), Misfit> + 'a;

/// The assembly of the rows of a box from an array's chunks.
#[derive(Debug)]
pub(super) struct Layout<'a> {
    array: &'a dyn ChunkedArray,
    convert: &'a dyn Convert,
    pieces: &'a [Pieces; ACROSS],
    chunk: [u64; AXES],
    /// The axis along which runs of consecutive elements end; along all later axes the box is exactly one whole chunk.
    axis: usize,
    /// True if elements that share a byte lie in different runs.
    pub(super) cut: bool,
}

impl<'a> Layout<'a> {
    pub(super) fn new(
        array: &'a dyn ChunkedArray,
        convert: &'a dyn Convert,
        pieces: &'a [Pieces; ACROSS],
    ) -> Self {
        let chunk = padded(array.chunk_shape());
        let whole = |axis: usize| pieces[axis - 1].is_whole(chunk[axis]);
        let axis = (2..AXES).rev().take_while(|&axis| whole(axis)).last().map_or(AXES - 1, |axis| axis - 1);
        let mut layout = Self { array, convert, pieces, chunk, axis, cut: false };
        let (unit, mut at) = (convert.unit(), 0);
        layout.cut = unit > 1
            && layout
                .each_run(0, &mut |_, _, len| {
                    let whole = at % unit == 0;
                    at += len;
                    if whole { Ok(()) } else { Err(()) }
                })
                .is_err();
        layout
    }

    /// Returns the number of elements of a row of the box.
    pub(super) fn elements(&self) -> u64 {
        self.pieces.iter().map(Pieces::len).product()
    }

    pub(super) fn runs(&self) -> u64 {
        let mut runs = 0;
        let counted: Result<(), ()> = self.each_run(0, &mut |_, _, _| {
            runs += 1;
            Ok(())
        });
        counted.map_or(0, |()| runs)
    }

    /// Calls `f` for each run of a row of the chunks, in order: the chunk's index, the run's start in it along each axis, and its length.
    fn each_run<E>(
        &self,
        row: u64,
        f: &mut impl FnMut(usize, &[u64; AXES], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut at = [0; AXES];
        at[0] = row;
        self.runs_from(1, 0, &mut at, f)
    }

    fn runs_from<E>(
        &self,
        axis: usize,
        chunk: usize,
        at: &mut [u64; AXES],
        f: &mut impl FnMut(usize, &[u64; AXES], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let pieces = &self.pieces[axis - 1];
        for piece in &pieces.pieces {
            let chunk = chunk * pieces.chunks.len() + piece.chunk;
            if axis == self.axis {
                at[axis] = piece.from;
                f(chunk, at, piece.len * self.chunk[axis + 1..].iter().product::<u64>())?;
            } else {
                for from in piece.from..piece.from + piece.len {
                    at[axis] = from;
                    self.runs_from(axis + 1, chunk, at, f)?;
                }
            }
        }
        Ok(())
    }

    /// Converts a row of the box, in C order, from the held parts of the chunks. `row` is its number among the rows of all arrays, the first of
    /// which in the chunks is `first`; `room` is a buffer that is reused for the next row. Fails with
    /// the index in the row of the first element that does not fit, and the reason.
    pub(super) fn convert_row(
        &self,
        chunks: &[HeldChunk<'_>],
        [row, first]: [u64; 2],
        out: &mut [u8],
        room: &mut Vec<u8>,
    ) -> Result<(), Unfit> {
        let size = self.array.dtype().size();
        let staged = |elements: u64| to_usize(self.convert.bytes(elements));
        let (within, mut done) = (row - first, 0);
        let mut put = |len: u64, fill: &Fill<'_>| {
            let to = &mut out[staged(done)..][..staged(len)];
            fill(&|| [row, self.find(done).0], to).map_err(|misfit| (done + misfit.at as u64, misfit))?;
            done += len;
            Ok(())
        };
        if !self.cut {
            let bits = staged(8);
            return self.each_run(within, &mut |chunk, at, len| {
                let (held, elements) = (&chunks[chunk], to_usize(len));
                if let Some(open) = held.open {
                    let offset =
                        at.iter().zip(self.chunk).skip(1).fold(0, |place, (at, extent)| place * extent + at);
                    let offset = offset * size as u64;
                    let cannot = |why: &io::Error| Misfit::new(0, format_args!("cannot be read: {why}"));
                    if self.convert.is_copy() {
                        return put(len, &|_, to| open.read(at[0], offset, to).map_err(|why| cannot(&why)));
                    }
                    // The buffer is as small as that of elements that are assembled.
                    let most = GATHERED.next_multiple_of(self.convert.unit());
                    return (0..len).step_by(to_usize(most)).try_for_each(|first| {
                        let now = most.min(len - first);
                        room.resize(to_usize(now) * size, 0);
                        let read = open.read(at[0], offset + first * size as u64, room).err();
                        put(now, &|place, to| match &read {
                            None => self.convert.convert_at(self.array, place, room, to),
                            Some(why) => Err(cannot(why)),
                        })
                    });
                }
                put(len, &|place, to| {
                    if held.is_converted {
                        held.copy_converted(at, elements, bits, to);
                        return Ok(());
                    }
                    self.convert.convert_at(self.array, place, held.run(at, elements, size), to)
                })
            });
        }
        let mut convert = |from: &[u8]| {
            put((from.len() / size) as u64, &|place, to| self.convert.convert_at(self.array, place, from, to))
        };
        let most = to_usize(GATHERED.next_multiple_of(self.convert.unit())) * size;
        room.clear();
        self.each_run(within, &mut |chunk, at, len| {
            let mut run = chunks[chunk].run(at, to_usize(len), size);
            while !run.is_empty() {
                let (now, rest) = run.split_at(run.len().min(most - room.len()));
                room.extend_from_slice(now);
                run = rest;
                if room.len() == most {
                    convert(room)?;
                    room.clear();
                }
            }
            Ok(())
        })?;
        if room.is_empty() { Ok(()) } else { convert(room) }
    }

    /// Locates an element of a row of the box: its index in the stored row, and its chunk's index along all axes but the first.
    pub(super) fn find(&self, element: u64) -> (u64, [u64; ACROSS]) {
        let extents = padded(self.array.shape());
        let (mut left, mut at, mut each, mut index) = (element, 0, 1, [0; ACROSS]);
        for axis in (0..ACROSS).rev() {
            let pieces = &self.pieces[axis];
            let [chunk, within] = pieces.find(left % pieces.len());
            left /= pieces.len();
            at += (chunk * self.chunk[axis + 1] + within) * each;
            each *= extents[axis + 1];
            index[axis] = chunk;
        }
        (at, index)
    }
}
