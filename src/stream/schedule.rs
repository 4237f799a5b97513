//! When each chunk is read, and how long it is held.

use std::{
    collections::{BTreeSet, HashMap},
    iter,
};

use super::{
    boxes::{ACROSS, AXES, Along, Pieces},
    plan::Plan,
};

/// A chunk that is read for some box, and held until another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Load {
    pub(super) chunk: usize,
    pub(super) first: u64,
    pub(super) last: u64,
    /// Whether it was read before.
    pub(super) again: bool,
}

/// The boxes of a pass, and the chunks that are read for them, in order.
#[derive(Debug)]
pub(super) struct Schedule {
    along: Along,
    /// Boxes along each axis.
    counts: [u64; AXES],
    /// Of each box, whether it is left out; empty where none is.
    left_out: Vec<bool>,
    pub(super) loads: Vec<Load>,
}

/// Of chunks along each axis, the boxes along it that need them, in ascending order.
struct Users {
    bands: Vec<Vec<u64>>,
    across: Vec<[Vec<Vec<u64>>; ACROSS]>,
}

impl Schedule {
    /// Of a pass in boxes of so many rows that holds at most `bytes` bytes of decoded chunks (or what one box needs, if that is
    /// more): of those that are needed again, the ones whose next box is the farthest are read again instead. Without the boxes that
    /// are `left_out`.
    pub(super) fn new(plan: &Plan, rows: u64, bytes: u64, left_out: Vec<bool>) -> Self {
        let along = Along { size: rows, ..*plan.along(0) };
        let count = |axis| if axis == 0 { along.count(plan.rows()) } else { plan.count(axis) };
        let mut schedule = Self { along, counts: std::array::from_fn(count), left_out, loads: Vec::new() };
        let users = schedule.users(plan);
        let mut seen = vec![false; plan.chunks()];
        // Of each chunk that is held its load, and the next box that needs it; by that box.
        let (mut held, mut total) = (HashMap::<usize, (usize, u64)>::new(), 0u64);
        let mut by_next = BTreeSet::new();
        for number in 0..schedule.boxes() {
            if schedule.is_left_out(number) {
                continue;
            }
            let needs = schedule.needs(plan, number);
            for chunk in needs.chunks(plan) {
                if let Some((_, next)) = held.get(&chunk) {
                    by_next.remove(&(*next, chunk));
                    continue;
                }
                let again = std::mem::replace(&mut seen[chunk], true);
                held.insert(chunk, (schedule.loads.len(), number));
                schedule.loads.push(Load { chunk, first: number, last: number, again });
                total += plan.bytes_of(chunk);
            }
            while total > bytes
                && let Some((_, chunk)) = by_next.pop_last()
            {
                held.remove(&chunk);
                total -= plan.bytes_of(chunk);
            }
            let place = schedule.place(number);
            for chunk in needs.chunks(plan) {
                let Some((load, next)) = held.get_mut(&chunk) else { continue };
                schedule.loads[*load].last = number;
                let mut users =
                    iter::successors(users.next(plan, chunk, place), |at| users.next(plan, chunk, *at))
                        .map(|at| schedule.number(at));
                if let Some(number) = users.find(|&number| !schedule.is_left_out(number)) {
                    *next = number;
                    by_next.insert((*next, chunk));
                } else {
                    held.remove(&chunk);
                    total -= plan.bytes_of(chunk);
                }
            }
        }
        schedule
    }

    /// How many times a chunk is read, on average: 1 where the memory is enough.
    pub(super) fn times_read(&self) -> f64 {
        let again = self.loads.iter().filter(|load| load.again).count();
        self.loads.len() as f64 / (self.loads.len() - again).max(1) as f64
    }

    /// Whether a box is left out.
    pub(super) fn is_left_out(&self, number: u64) -> bool {
        usize::try_from(number).is_ok_and(|number| self.left_out.get(number) == Some(&true))
    }

    pub(super) fn boxes(&self) -> u64 {
        self.counts.iter().product()
    }

    pub(super) fn along(&self) -> &Along {
        &self.along
    }

    /// The number of a box along each axis.
    pub(super) fn place(&self, mut number: u64) -> [u64; AXES] {
        let mut place = [0; AXES];
        for (at, count) in place.iter_mut().zip(self.counts).rev() {
            *at = number % count;
            number /= count;
        }
        place
    }

    fn number(&self, place: [u64; AXES]) -> u64 {
        place.iter().zip(self.counts).fold(0, |number, (at, count)| number * count + at)
    }

    /// What a box needs.
    pub(super) fn needs(&self, plan: &Plan, number: u64) -> Needs {
        let [row, across @ ..] = self.place(number);
        let bands: Vec<usize> = plan.needed(&self.along, row).into_iter().flatten().collect();
        let mut pieces: Vec<Option<[Pieces; ACROSS]>> = (0..plan.arrays()).map(|_| None).collect();
        for &band in &bands {
            let array = plan.bands()[band].array;
            let of = |axis: usize| plan.pieces(array, axis + 1, across[axis]);
            pieces[array].get_or_insert_with(|| std::array::from_fn(of));
        }
        Needs { bands, pieces }
    }

    fn users(&self, plan: &Plan) -> Users {
        let mut bands = vec![Vec::new(); plan.bands().len()];
        for number in 0..self.counts[0] {
            plan.needed(&self.along, number).into_iter().flatten().for_each(|band| bands[band].push(number));
        }
        let of = |array: usize, axis: usize| {
            let mut users = vec![Vec::new(); plan.across(array)[axis - 1].len()];
            for number in 0..self.counts[axis] {
                let pieces = plan.pieces(array, axis, number);
                plan.places(array, axis, &pieces).for_each(|place| users[place].push(number));
            }
            users
        };
        let across = (0..plan.arrays()).map(|array| std::array::from_fn(|axis| of(array, axis + 1)));
        Users { bands, across: across.collect() }
    }
}

impl Plan {
    /// How many times a chunk is decoded, on average, in a pass on so many threads that holds so many bytes of decoded chunks.
    pub fn times_read(&self, threads: usize, bytes: u64) -> f64 {
        let rows = self.block_rows();
        Schedule::new(self, rows, self.at_once(threads, rows, bytes).bytes, Vec::new()).times_read()
    }
}

impl Users {
    /// The next box after one that needs a chunk, which that one does too.
    fn next(&self, plan: &Plan, chunk: usize, place: [u64; AXES]) -> Option<[u64; AXES]> {
        let (band, at) = plan.find(chunk);
        let across = &self.across[plan.bands()[band].array];
        let lists: [&[u64]; AXES] = std::array::from_fn(|axis| {
            if axis == 0 { &*self.bands[band] } else { &*across[axis - 1][at[axis - 1]] }
        });
        (0..AXES).rev().find_map(|axis| {
            let after = lists[axis].partition_point(|&number| number <= place[axis]);
            let next = *lists[axis].get(after)?;
            Some(std::array::from_fn(|other| match other.cmp(&axis) {
                std::cmp::Ordering::Less => place[other],
                std::cmp::Ordering::Equal => next,
                std::cmp::Ordering::Greater => lists[other][0],
            }))
        })
    }
}

/// What a box needs: bands, and of each array that they are of its pieces along the other axes.
pub(super) struct Needs {
    pub(super) bands: Vec<usize>,
    pub(super) pieces: Vec<Option<[Pieces; ACROSS]>>,
}

impl Needs {
    /// The numbers of the chunks.
    pub(super) fn chunks(&self, plan: &Plan) -> impl Iterator<Item = usize> {
        self.bands.iter().flat_map(|&band| self.of_band(plan, band))
    }

    /// Those of a band, in C order.
    pub(super) fn of_band(&self, plan: &Plan, band: usize) -> Vec<usize> {
        let pieces = self.pieces[plan.bands()[band].array].as_ref();
        pieces.map_or_else(Vec::new, |pieces| plan.numbers(band, pieces))
    }
}
