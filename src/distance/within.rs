//! The pairs within a radius so far, from blocks of distances, and the lists of neighbors that they become.

use std::{
    fmt::Display,
    io::{self, Write},
    ops::Range,
    sync::{Arc, Mutex},
};

use rayon::{ThreadPool, prelude::*};

use super::{
    Metric,
    job::{DistanceBlock, Measure},
    members::Jobs,
    so_far::Neighbor,
};
#[cfg(feature = "zarr")]
use crate::store::NewStore;
use crate::{Budget, Element, Error, Needs, Result, Run, extent::to_usize, waiting::lock};

/// The number of distances whose marks fill a word.
const WORD: usize = u64::BITS as usize;

/// The minimum number of words of a thread's task.
const WORDS: usize = 256;

/// The minimum number of pairs for which memory is allocated at once.
const PAIRS: u64 = 64;

/// The part of the host memory that pairs and results may take; the rest is for computing distances. Their number is known only at the end.
const PART: u64 = 2;

/// The neighbors of each observation within a radius, nearest first, and of equal distances the lower index first: a sparse matrix of
/// compressed rows, as scipy's `csr_array`.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RadiusNeighbors {
    /// (m + 1): the neighbors of observation i are those from `offsets[i]` to before `offsets[i + 1]`.
    pub offsets: Vec<u64>,
    /// The neighbors' indices, from 0.
    pub indices: Vec<u64>,
    /// The distance of each neighbor.
    pub distances: Vec<f64>,
}

impl RadiusNeighbors {
    /// Returns the indices of the neighbors of an observation, and their distances.
    ///
    /// # Panics
    /// If there is no such observation.
    pub fn row(&self, observation: usize) -> (&[u64], &[f64]) {
        let range = self.range(observation);
        (&self.indices[range.clone()], &self.distances[range])
    }

    fn range(&self, observation: usize) -> Range<usize> {
        to_usize(self.offsets[observation])..to_usize(self.offsets[observation + 1])
    }

    /// Writes a table, as [`Neighbors::write_table`](super::Neighbors::write_table) does. An observation without neighbors has no line.
    ///
    /// # Errors
    /// Fails as `to` does.
    pub fn write_table<N: Display>(
        &self,
        to: &mut dyn Write,
        observation: &str,
        [name, neighbor]: [&dyn Fn(usize) -> N; 2],
        text: impl Fn(f64) -> String,
    ) -> io::Result<()> {
        writeln!(to, "{observation}\trank\tneighbor\tdistance")?;
        for row in 0..self.offsets.len() - 1 {
            let (indices, distances) = self.row(row);
            for (rank, (&index, &distance)) in (1..).zip(indices.iter().zip(distances)) {
                let (name, neighbor) = (name(row), neighbor(to_usize(index)));
                writeln!(to, "{name}\t{rank}\t{neighbor}\t{}", text(distance))?;
            }
        }
        Ok(())
    }

    /// Writes three arrays of a store: `indptr`, the offsets in i64, along the axis `bounds`; and along the axis `pairs`, `neighbor`, the indices
    /// in i64, and `distance` in f64.
    ///
    /// # Errors
    /// [`Error::Io`].
    #[cfg(feature = "zarr")]
    pub fn write_zarr(&self, store: &NewStore) -> Result<()> {
        store.put_vector::<i64>("indptr", "bounds", bytemuck::cast_slice(&self.offsets))?;
        store.put_vector::<i64>("neighbor", "pairs", bytemuck::cast_slice(&self.indices))?;
        store.put_vector("distance", "pairs", &self.distances)
    }
}

/// A pair of observations within the radius.
#[derive(Clone, Copy)]
struct Pair {
    /// The distance, or a similarity times -1.
    distance: f64,
    /// The pair's position in a matrix of all distances.
    place: u64,
}

/// The pairs within a radius so far. Beyond the budget they are only counted, so that an error names the memory that is enough.
pub(super) struct PairsWithin {
    threads: Arc<ThreadPool>,
    radius: Radius,
    is_self: bool,
    /// True if each pair is offered once and counts for both observations.
    is_lower: bool,
    extents: [u64; 2],
    memory: Budget,
    /// The number of neighbors of each observation, after a 0.
    counts: Vec<u64>,
    /// Pieces of memory, each filled before the next is allocated.
    pairs: Vec<Vec<Pair>>,
    count: u64,
    /// The number of pairs for which there is memory, or would be.
    capacity: u64,
    is_full: bool,
}

impl PairsWithin {
    /// Returns the neighbors within `radius` from the blocks that `pass` offers. `pass` gets the run with the part of the host memory that is for
    /// computing distances. Fails with [`Error::Argument`] for a radius that is NaN, or negative if no distance is; [`Error::Budget`];
    /// [`Error::OutOfHostMemory`]; those of `pass`.
    pub(super) fn find(
        measure: &Measure,
        extents: [u64; 2],
        radius: Radius,
        run: &Run,
        pass: impl FnOnce(&mut Self, &Run) -> Result<()>,
    ) -> Result<RadiusNeighbors> {
        // This fixes the default budget, before neighbors take memory.
        let memory = run.memory.fit_host(0)?;
        let mut within = Self {
            threads: Arc::clone(measure.device.pool()?),
            radius,
            is_self: measure.is_self,
            is_lower: measure.is_lower(),
            extents,
            memory,
            counts: Vec::new(),
            pairs: Vec::new(),
            count: 0,
            capacity: 0,
            is_full: false,
        };
        let run = Run { memory, ..run.clone() };
        run.with_part(PART, |run| {
            // Counts and offsets are always needed. They count as held by the pass, so that the least memory that the plan names is enough for both.
            let held = run.memory.held + Needs::host(within.known());
            let memory = Budget { held, ..run.memory };
            pass(&mut within, &Run { memory, ..run.clone() })
        })?;
        within.finish()
    }

    /// Takes the memory for counts, once a pass is planned. Fails with [`Error::OutOfHostMemory`].
    pub(super) fn begin(&mut self) -> Result<()> {
        let counts = self.extents[0].saturating_add(1);
        self.counts = self.room(counts)?;
        self.counts.resize(to_usize(counts), 0);
        Ok(())
    }

    /// Takes the distances of all pairs. Fails as [`Job::each_block`](super::job::Job::each_block) does.
    pub(super) fn take_all<T: Element>(&mut self, jobs: &Jobs<'_, '_, T>, run: &Run) -> Result<()> {
        let side = jobs.side(Needs::default(), run)?;
        self.begin()?;
        let (rows, radius, within) = (self.extents[0], self.radius, Mutex::new(self));
        let passes = jobs.each(run, rows, |_, job, run| {
            let pool = job.measure.device.pool()?;
            job.each_block(side, run, &mut |block| {
                let marks = pool.install(|| radius.marks(block));
                lock(&within).take(block, &marks);
            })
        });
        passes.map(drop)
    }

    /// Takes the distances of a block, of which those within the radius are marked.
    pub(super) fn take(&mut self, block: &DistanceBlock, marks: &[u64]) {
        let width = block.columns.len();
        for (first, &word) in (0..).step_by(WORD).zip(marks) {
            let mut word = word;
            while word != 0 {
                let at = first + word.trailing_zeros() as usize;
                word &= word - 1;
                let (row, column) = (block.rows.start + at / width, block.columns.start + at % width);
                let is_own = self.is_self && row == column;
                // Above the diagonal, distances are arbitrary.
                if !(is_own || self.is_lower && column > row) {
                    self.add(row, column, self.radius.sign * block.distances[at]);
                }
            }
        }
    }

    fn add(&mut self, row: usize, column: usize, distance: f64) {
        self.counts[row + 1] += 1;
        if self.is_lower {
            self.counts[column + 1] += 1;
        }
        self.count += 1;
        if self.count > self.capacity {
            let more = (self.capacity / 8).max(PAIRS);
            self.capacity += more;
            if !self.is_full {
                let piece = self.fit().and_then(|()| self.room(more));
                match piece {
                    Ok(piece) => self.pairs.push(piece),
                    Err(_) => (self.pairs, self.is_full) = (Vec::new(), true),
                }
            }
        }
        if let Some(piece) = self.pairs.last_mut() {
            piece.push(Pair { distance, place: row as u64 * self.extents[1] + column as u64 });
        }
    }

    /// Returns the bytes for counts and offsets.
    fn known(&self) -> u64 {
        self.extents[0].saturating_add(1).saturating_mul(16)
    }

    /// Returns the number of neighbors of all observations.
    fn neighbors(&self) -> u64 {
        self.count * if self.is_lower { 2 } else { 1 }
    }

    /// Checks that pairs and results fit their part of the budget. Fails with [`Error::Budget`].
    fn fit(&self) -> Result<()> {
        // Each neighbor becomes a line, and pairs are freed before lines become results.
        let [pairs, lines] = [self.capacity, self.neighbors()].map(|count| count.saturating_mul(16));
        let needs = self.known().saturating_add(lines).saturating_add(pairs.max(lines));
        self.memory.fit_host(needs.saturating_mul(PART)).map(drop).map_err(|error| match error {
            Error::Budget { memory, budget, minimum, given, .. } => {
                Error::Budget { memory, what: Some(self.words().into()), budget, minimum, given }
            }
            error => error,
        })
    }

    /// Allocates memory. Fails with [`Error::OutOfHostMemory`].
    fn room<T>(&self, count: u64) -> Result<Vec<T>> {
        let mut room = Vec::new();
        let requested = count.saturating_mul(size_of::<T>() as u64);
        room.try_reserve_exact(to_usize(count))
            .map_err(|_| Error::OutOfHostMemory { what: self.words().into(), requested })?;
        Ok(room)
    }

    /// Returns the words for what needs memory.
    fn words(&self) -> String {
        format!("the {} neighbors within {}", self.neighbors(), self.radius.radius)
    }

    fn finish(mut self) -> Result<RadiusNeighbors> {
        self.fit()?;
        if self.is_full {
            let requested = self.capacity.saturating_mul(size_of::<Pair>() as u64);
            return Err(Error::OutOfHostMemory { what: self.words().into(), requested });
        }
        let (m, others) = (self.counts.len() - 1, self.extents[1]);
        for line in 0..m {
            self.counts[line + 1] += self.counts[line];
        }
        let count = self.neighbors();
        let (mut next, mut lines) = (self.room(self.extents[0])?, self.room(count)?);
        next.extend_from_slice(&self.counts[..m]);
        lines.resize(to_usize(count), Neighbor { distance: 0.0, number: 0 });
        let mut put = |line: u64, distance: f64, number: u64| {
            let at = &mut next[to_usize(line)];
            lines[to_usize(*at)] = Neighbor { distance, number };
            *at += 1;
        };
        for Pair { distance, place } in std::mem::take(&mut self.pairs).into_iter().flatten() {
            let (row, column) = (place / others, place % others);
            put(row, distance, column);
            if self.is_lower {
                put(column, distance, row);
            }
        }
        self.threads.install(|| sort(&mut lines, &self.counts));
        let (mut indices, mut distances) = (self.room(count)?, self.room(count)?);
        indices.extend(lines.iter().map(|neighbor| neighbor.number));
        distances.extend(lines.iter().map(|neighbor| self.radius.sign * neighbor.distance));
        Ok(RadiusNeighbors { offsets: self.counts, indices, distances })
    }
}

/// Sorts the neighbors of each observation, of which each has those between two offsets.
fn sort(lines: &mut [Neighbor], offsets: &[u64]) {
    match offsets {
        [] | [_] => {}
        [_, _] => lines.sort_unstable(),
        _ => {
            let middle = offsets.len() / 2;
            let (before, after) = lines.split_at_mut(to_usize(offsets[middle] - offsets[0]));
            rayon::join(|| sort(before, &offsets[..=middle]), || sort(after, &offsets[middle..]));
        }
    }
}

/// A radius, and on which side of it neighbors are.
#[derive(Clone, Copy)]
pub(super) struct Radius {
    radius: f64,
    /// -1 for a similarity, otherwise 1.
    sign: f64,
}

impl Radius {
    /// Fails with [`Error::Argument`] for a radius that is NaN, or below all distances of the metric.
    pub(super) fn new(radius: f64, metric: Metric) -> Result<Self> {
        let may_be_negative = matches!(metric, Metric::InnerProduct | Metric::KlDivergence);
        if radius.is_nan() || radius < 0.0 && !may_be_negative {
            let least = if may_be_negative { "" } else { " from 0 on" };
            let why = format_args!("{radius}: a number{least}, for {metric}");
            return Err(Error::argument("radius_neighbors", "radius", why));
        }
        Ok(Self { radius, sign: if metric == Metric::InnerProduct { -1.0 } else { 1.0 } })
    }

    /// Returns a bit for each distance of a block, set if it is within the radius, by rayon's current threads.
    pub(super) fn marks(&self, block: &DistanceBlock) -> Vec<u64> {
        let bound = self.sign * self.radius;
        // No comparison with NaN is true.
        let mark = |distances: &[f64]| {
            let marks = distances.iter().enumerate();
            marks.fold(0, |word, (i, &distance)| word | u64::from(self.sign * distance <= bound) << i)
        };
        block.distances.par_chunks(WORD).with_min_len(WORDS).map(mark).collect()
    }
}
