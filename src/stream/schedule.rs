//! The order in which boxes are processed, and the time for which each part of a chunk is held.

use std::{
    collections::{HashMap, hash_map::Entry},
    iter,
    ops::Range,
};

use super::{
    boxes::{ACROSS, AXES, Along, Pieces},
    part::ChunkPart,
    plan::{Plan, padded},
};
use crate::{Cancel, Result};

/// The boxes of a pass, in the order of its steps; some steps have no box.
/// Chunks are held only within a strip of boxes, each from the first box that needs it to the last. Chunks that several strips need are
/// read for each of these strips.
#[derive(Debug)]
pub(super) struct Schedule {
    along: Along,
    /// The number of boxes along each axis.
    counts: [u64; AXES],
    strips: Strips,
    /// For each box, true if it is left out; empty if no box is left out.
    left_out: Vec<bool>,
    users: Users,
}

/// The order of the boxes: strip after strip.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Strips {
    /// The number of boxes of a strip along each axis.
    size: [u64; AXES],
    /// The axes in the order in which the boxes of a strip are traversed; the last axis varies fastest.
    order: [usize; AXES],
}

/// A box, given by its index along an axis, that needs a chunk.
#[derive(Debug)]
struct User {
    /// The index of the chunk along the axis; the band on the first axis.
    chunk: usize,
    number: u64,
    /// The elements of the chunk along the axis that the box needs.
    range: Range<u64>,
}

/// The users of the chunks along each axis, sorted by chunk and by box.
#[derive(Debug)]
struct Users {
    bands: Vec<User>,
    across: Vec<[Vec<User>; ACROSS]>,
}

/// The parts of a chunk that are held, each with the last step that needs it; parts for later steps come first.
pub(super) type Parts = Vec<(u64, ChunkPart)>;

impl Schedule {
    /// Schedules a pass in boxes of `rows` rows that holds at most `bytes` bytes of decoded chunks (or the bytes that one box needs, if
    /// these are more), in strips for which the fewest chunks are read. Boxes marked in `left_out` are skipped. Fails with
    /// [`Error::Cancelled`](crate::Error::Cancelled), because there may be millions of boxes and chunks.
    pub(super) fn new(
        plan: &Plan,
        rows: u64,
        bytes: u64,
        left_out: Vec<bool>,
        cancel: &Cancel,
    ) -> Result<Self> {
        let along = Along { size: rows, ..*plan.along(0) };
        let count = |axis| if axis == 0 { along.count(plan.rows()) } else { plan.count(axis) };
        let counts = std::array::from_fn(count);
        let users = Users::new(plan, &along, counts, cancel)?;
        let mut candidates = users.strips(plan, counts);
        // This takes the strips with the fewest reads that fit, or else the last candidate, in which each box is a strip.
        let strips = candidates.pop().unwrap_or_else(|| Strips::along(0, [1; AXES]));
        let mut schedule = Self { along, counts, strips, left_out, users };
        let bytes = bytes.max(plan.chunks_of_box(rows));
        let one_by_one = schedule.strips.clone();
        for strips in candidates {
            schedule.strips = strips;
            if schedule.reads(plan, bytes, cancel)?.is_some() {
                return Ok(schedule);
            }
        }
        schedule.strips = one_by_one;
        Ok(schedule)
    }

    /// Returns the average number of times that a chunk is read: 1 if the memory suffices.
    pub(super) fn times_read(&self, plan: &Plan, cancel: &Cancel) -> Result<f64> {
        let [reads, chunks] = self.reads(plan, u64::MAX, cancel)?.unwrap_or_default();
        Ok(reads as f64 / chunks.max(1) as f64)
    }

    /// Returns the number of reads, and of chunks that are read at all; `None` if more than `bytes` bytes of chunks would be held.
    fn reads(&self, plan: &Plan, bytes: u64, cancel: &Cancel) -> Result<Option<[u64; 2]>> {
        let mut seen = vec![false; plan.chunks()];
        let (mut held, mut total, mut reads) = (HashMap::<usize, Parts>::new(), 0u64, 0);
        for (step, place) in self.steps(0) {
            cancel.check()?;
            let chunks: Vec<usize> = self.needs(plan, place).chunks(plan).collect();
            for &chunk in &chunks {
                if let Entry::Vacant(entry) = held.entry(chunk) {
                    let parts = entry.insert(self.parts(plan, chunk, step));
                    total = total.saturating_add(plan.bytes_of(chunk, parts));
                    seen[chunk] = true;
                    reads += 1;
                }
            }
            if total > bytes {
                return Ok(None);
            }
            for chunk in chunks {
                let Some(parts) = held.get_mut(&chunk).filter(|parts| is_cut(parts, step)) else { continue };
                total -= plan.bytes_of(chunk, parts);
                release(parts, step);
                total += plan.bytes_of(chunk, parts);
                if parts.is_empty() {
                    held.remove(&chunk);
                }
            }
        }
        Ok(Some([reads, seen.iter().filter(|seen| **seen).count() as u64]))
    }

    /// Returns the parts of a chunk that are held from `step` on, which is the step of the first box of its strip that needs the chunk.
    pub(super) fn parts(&self, plan: &Plan, chunk: usize, step: u64) -> Parts {
        let (band, at) = plan.find(chunk);
        let array = plan.bands()[band].array;
        let size = self.strips.size;
        let first = self.place_within(step - step % self.strips.boxes());
        let lists: [&[User]; AXES] = std::array::from_fn(|axis| {
            let within = first[axis]..first[axis].saturating_add(size[axis]);
            if axis == 0 {
                users_within(&self.users.bands, band, &within)
            } else {
                users_within(&self.users.across[array][axis - 1], at[axis - 1], &within)
            }
        });
        let mut parts = Parts::new();
        // The loop goes from the last box that needs the chunk to the first. A part only slightly larger than the one before it is merged with it.
        let mut least = 0;
        for mut left in (0..lists.iter().map(|list| list.len()).product()).rev() {
            let mut place = [0; AXES];
            let mut part = ChunkPart(std::array::from_fn(|_| 0..0));
            for &axis in self.strips.order.iter().rev() {
                let user = &lists[axis][left % lists[axis].len()];
                left /= lists[axis].len();
                place[axis] = user.number;
                part.0[axis] = user.range.clone();
            }
            if self.is_left_out(place) {
                continue;
            }
            let more = parts.last().map_or_else(|| part.clone(), |(_, later)| later.with(&part));
            match parts.last_mut() {
                Some((_, later)) if more.elements() <= least + least / 3 => *later = more,
                _ => {
                    least = more.elements();
                    parts.push((self.step(place), more));
                }
            }
            if !plan.is_cut() {
                break;
            }
        }
        parts
    }

    fn is_left_out(&self, place: [u64; AXES]) -> bool {
        let number = place.iter().zip(self.counts).fold(0, |number, (at, count)| number * count + at);
        usize::try_from(number).is_ok_and(|number| self.left_out.get(number) == Some(&true))
    }

    pub(super) fn along(&self) -> &Along {
        &self.along
    }

    /// Returns the boxes from a step on: the step of each box, and its index along each axis.
    pub(super) fn steps(&self, from: u64) -> impl Iterator<Item = (u64, [u64; AXES])> {
        let strips: u64 =
            self.counts.iter().zip(self.strips.size).map(|(n, size)| n.div_ceil(size)).product();
        let places = (from..strips * self.strips.boxes()).map(|step| (step, self.place_within(step)));
        let is_there = |(_, place): &(u64, [u64; AXES])| {
            place.iter().zip(self.counts).all(|(at, count)| *at < count) && !self.is_left_out(*place)
        };
        places.filter(is_there)
    }

    /// Returns the strip that a step belongs to.
    pub(super) fn strip(&self, step: u64) -> u64 {
        step / self.strips.boxes()
    }

    /// Returns the index of a step's box along each axis, which may be beyond the last box.
    fn place_within(&self, step: u64) -> [u64; AXES] {
        let Strips { size, order } = &self.strips;
        let (mut strip, mut within, mut place) = (self.strip(step), step % self.strips.boxes(), [0; AXES]);
        for axis in (0..AXES).rev() {
            let strips = self.counts[axis].div_ceil(size[axis]).max(1);
            place[axis] = strip % strips * size[axis];
            strip /= strips;
        }
        for &axis in order.iter().rev() {
            place[axis] += within % size[axis];
            within /= size[axis];
        }
        place
    }

    /// Returns the step of a box.
    fn step(&self, place: [u64; AXES]) -> u64 {
        let Strips { size, order } = &self.strips;
        let strip = (0..AXES).fold(0, |strip, axis| {
            strip * self.counts[axis].div_ceil(size[axis]).max(1) + place[axis] / size[axis]
        });
        order.iter().fold(strip, |step, &axis| step * size[axis] + place[axis] % size[axis])
    }

    /// Returns the chunks that a box needs.
    pub(super) fn needs(&self, plan: &Plan, [row, across @ ..]: [u64; AXES]) -> Needs {
        let bands: Vec<usize> = plan.rows_of(&self.along, row).into_iter().map(|(band, _)| band).collect();
        let mut pieces: Vec<Option<[Pieces; ACROSS]>> = (0..plan.arrays()).map(|_| None).collect();
        for &band in &bands {
            let array = plan.bands()[band].array;
            let pieces_of = |axis: usize| plan.pieces(array, axis + 1, across[axis]);
            pieces[array].get_or_insert_with(|| std::array::from_fn(pieces_of));
        }
        Needs { bands, pieces }
    }
}

/// True if a smaller part of a chunk is held after a step.
fn is_cut(parts: &Parts, step: u64) -> bool {
    parts.last().is_some_and(|(last, _)| *last <= step)
}

/// Removes the parts that are no longer held after a step.
pub(super) fn release(parts: &mut Parts, step: u64) {
    while is_cut(parts, step) {
        parts.pop();
    }
}

/// Returns the users of a chunk along an axis that are boxes in the range `within`.
fn users_within<'a>(users: &'a [User], chunk: usize, within: &Range<u64>) -> &'a [User] {
    let before = |number| users.partition_point(|user| (user.chunk, user.number) < (chunk, number));
    &users[before(within.start)..before(within.end)]
}

impl Strips {
    /// Makes strips of `size` boxes along each axis, traversed so that the index along `slowest` changes least often.
    fn along(slowest: usize, size: [u64; AXES]) -> Self {
        let mut order = std::array::from_fn(|axis| axis);
        order[..=slowest].rotate_right(1);
        Self { size, order }
    }

    /// Returns the number of boxes of a strip.
    fn boxes(&self) -> u64 {
        self.size.iter().product()
    }
}

impl Users {
    fn new(plan: &Plan, along: &Along, counts: [u64; AXES], cancel: &Cancel) -> Result<Self> {
        let mut bands: Vec<User> = Vec::new();
        for number in 0..counts[0] {
            cancel.check()?;
            for (chunk, range) in plan.rows_of(along, number) {
                bands.push(User { chunk, number, range });
            }
        }
        let users_of = |array: usize, axis: usize| {
            let extent = padded(plan.array(array).chunk_shape())[axis];
            let mut users = Vec::new();
            for number in 0..counts[axis] {
                let pieces = plan.pieces(array, axis, number);
                for (chunk, range) in iter::zip(plan.places(array, axis, &pieces), pieces.ranges()) {
                    users.push(User { chunk, number, range: if plan.is_cut() { range } else { 0..extent } });
                }
            }
            users.sort_by_key(|user| user.chunk);
            users
        };
        bands.sort_by_key(|user| user.chunk);
        let across = (0..plan.arrays()).map(|array| std::array::from_fn(|axis| users_of(array, axis + 1)));
        Ok(Self { bands, across: across.collect() })
    }

    /// Returns, for each array, the number of reads of chunks along an axis in strips of `size` boxes.
    fn reads(&self, plan: &Plan, axis: usize, size: u64) -> Vec<u64> {
        let distinct = |users: &mut dyn Iterator<Item = &User>| {
            let (mut count, mut last) = (0, None);
            for user in users {
                let read = Some((user.chunk, user.number / size));
                count += u64::from(read != last);
                last = read;
            }
            count
        };
        let of_array = |array: usize| match axis.checked_sub(1) {
            Some(axis) => distinct(&mut self.across[array][axis].iter()),
            None => distinct(&mut self.bands.iter().filter(|user| plan.bands()[user.chunk].array == array)),
        };
        (0..plan.arrays()).map(of_array).collect()
    }

    /// Returns candidate strips in ascending order of the number of chunks that they read; the last has strips of one box.
    fn strips(&self, plan: &Plan, counts: [u64; AXES]) -> Vec<Strips> {
        // The candidate sizes along each axis, each with the reads of each array.
        let sizes: [Vec<(u64, Vec<u64>)>; AXES] = std::array::from_fn(|axis| {
            let count = counts[axis].max(1);
            let with_reads = |size| (size, self.reads(plan, axis, size));
            let (one, whole) = (with_reads(1), with_reads(count));
            if one.1 == whole.1 {
                // Boxes share no chunk along this axis.
                return vec![one];
            }
            let parts = iter::successors(Some(2), |parts| {
                Some(if parts & (parts - 1) == 0 { parts / 2 * 3 } else { parts / 3 * 4 })
            });
            let mut sizes: Vec<u64> =
                parts.take_while(|parts| *parts < count).map(|parts| count.div_ceil(parts)).collect();
            sizes.dedup();
            let between = sizes.into_iter().filter(|size| *size > 1 && *size < count).map(with_reads);
            iter::once(whole).chain(between).chain([one]).collect()
        });
        let mut candidates: Vec<(u64, Strips)> = Vec::new();
        for slowest in (0..AXES).filter(|&axis| sizes[axis].len() > 1) {
            let mut some: Vec<([u64; AXES], Vec<u64>)> = vec![([1; AXES], vec![1; plan.arrays()])];
            for axis in 0..AXES {
                let of_axis = if axis == slowest { &sizes[axis][..1] } else { &sizes[axis] };
                let with = |(mut size, reads): ([u64; AXES], Vec<u64>), (along, more): &(u64, Vec<u64>)| {
                    size[axis] = *along;
                    (size, iter::zip(reads, more).map(|(reads, more)| reads.saturating_mul(*more)).collect())
                };
                some = some
                    .iter()
                    .flat_map(|strips| of_axis.iter().map(|more| with(strips.clone(), more)))
                    .collect();
            }
            candidates.extend(some.into_iter().map(|(size, reads)| {
                (reads.into_iter().fold(0, u64::saturating_add), Strips::along(slowest, size))
            }));
        }
        candidates.sort_by_key(|(reads, _)| *reads);
        candidates.into_iter().map(|(_, strips)| strips).chain([Strips::along(0, [1; AXES])]).collect()
    }
}

impl Plan {
    /// Returns the average number of times that a chunk is decoded in a pass on `threads` threads that holds `bytes` bytes of decoded
    /// chunks.
    ///
    /// # Errors
    /// [`Error::Cancelled`](crate::Error::Cancelled).
    pub fn times_read(&self, threads: usize, bytes: u64, cancel: &Cancel) -> Result<f64> {
        let rows = self.block_rows();
        let bytes = self.at_once(threads, rows, bytes).bytes;
        Schedule::new(self, rows, bytes, Vec::new(), cancel)?.times_read(self, cancel)
    }
}

/// The chunks that a box needs: the bands, and for each array with a band the pieces along the other axes.
pub(super) struct Needs {
    pub(super) bands: Vec<usize>,
    pub(super) pieces: Vec<Option<[Pieces; ACROSS]>>,
}

impl Needs {
    pub(super) fn chunks(&self, plan: &Plan) -> impl Iterator<Item = usize> {
        self.bands.iter().flat_map(|&band| self.of_band(plan, band))
    }

    /// Returns the numbers of the chunks of a band, in C order.
    pub(super) fn of_band(&self, plan: &Plan, band: usize) -> Vec<usize> {
        let pieces = self.pieces[plan.bands()[band].array].as_ref();
        pieces.map_or_else(Vec::new, |pieces| plan.numbers(band, pieces))
    }
}
