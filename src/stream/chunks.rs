//! The chunks that a plan reads, by number: band by band, those of a band in C order.

use super::{
    boxes::{ACROSS, AXES, Pieces},
    plan::{Band, Plan, TRACKING},
    schedule::Parts,
};

impl Plan {
    /// The number of chunks that are read, if each is read once.
    pub(super) fn chunks(&self) -> usize {
        self.bands().last().map_or(0, |band| band.chunk + self.chunks_across(band.array))
    }

    fn chunks_across(&self, array: usize) -> usize {
        self.across(array).iter().map(Vec::len).product()
    }

    /// The numbers in [`across`](Self::across) of the chunks of `pieces`, which lie along an axis but the first.
    pub(super) fn places(&self, array: usize, axis: usize, pieces: &Pieces) -> impl Iterator<Item = usize> {
        let across = &self.across(array)[axis - 1];
        pieces.chunks.iter().map(|chunk| across.partition_point(|other| other < chunk))
    }

    /// The numbers of a band's chunks that hold these pieces, in C order.
    pub(super) fn numbers(&self, band: usize, pieces: &[Pieces; ACROSS]) -> Vec<usize> {
        let band = &self.bands()[band];
        let mut numbers = vec![0];
        for axis in 1..AXES {
            let count = self.across(band.array)[axis - 1].len();
            let places: Vec<usize> = self.places(band.array, axis, &pieces[axis - 1]).collect();
            numbers =
                numbers.iter().flat_map(|at| places.iter().map(move |place| at * count + place)).collect();
        }
        numbers.iter().map(|at| band.chunk + at).collect()
    }

    /// The band of the chunk of a number, and which chunk it is along each of the other axes.
    pub(super) fn find(&self, number: usize) -> (usize, [usize; ACROSS]) {
        let band = self.bands().partition_point(|band| band.chunk <= number) - 1;
        let (mut left, mut at) = (number - self.bands()[band].chunk, [0; ACROSS]);
        for (at, chunks) in at.iter_mut().zip(self.across(self.bands()[band].array)).rev() {
            *at = left % chunks.len();
            left /= chunks.len();
        }
        (band, at)
    }

    /// Bytes of what is held now of the chunk of a number, with what keeps track of it; none where nothing is.
    pub(super) fn bytes_of(&self, number: usize, parts: &Parts) -> u64 {
        let Some((_, part)) = parts.last() else { return 0 };
        let (band, _) = self.find(number);
        let size = self.array(self.bands()[band].array).dtype().size() as u64;
        part.elements().saturating_mul(size).saturating_add(TRACKING)
    }

    /// The array of the chunk `number`, and the chunk's index in its grid.
    pub(super) fn chunk(&self, number: usize) -> (usize, Vec<u64>) {
        let (band, at) = self.find(number);
        let Band { array, chunk_row, .. } = self.bands()[band];
        let across = at.iter().zip(self.across(array)).map(|(at, chunks)| chunks[*at]);
        let axes = self.array(array).shape().len();
        (array, std::iter::once(chunk_row).chain(across).take(axes).collect())
    }
}
