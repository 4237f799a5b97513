//! The nearest neighbors, and those within a radius, for stored matrices: of all observations at once, or of boxes.

use std::time::Instant;

use super::{
    boxes::{BoxSearch, SearchNeeds, good_side},
    reading::StoredOperands,
};
use crate::{
    Element, Error, Needs, Result, Run, Tensor,
    distance::{
        Metric, NearestSoFar, Neighbors, RadiusNeighbors,
        job::{Job, Measure},
        members::with_members,
        neighbors::neighbors,
        on_device::BlockSums,
        search::Search,
        so_far::sorted,
        within::PairsWithin,
    },
    extent::to_usize,
    stream::StreamStats,
};

impl BoxSearch<'_> {
    /// Returns the k nearest, which the device finds if `on_device`, otherwise the host.
    ///
    /// # Errors
    /// As [`neighbors_stored`](super::neighbors_stored).
    fn find<T: Element>(mut self, k: u64, on_device: bool, stats: &mut StreamStats) -> Result<Neighbors> {
        let extents = self.extents;
        if !on_device {
            let Measure { device, metric, is_self, .. } = &self.measure;
            let how = (*is_self, self.measure.is_lower());
            let [m, k] = [extents[0], k].map(to_usize);
            let mut nearest = NearestSoFar::new(device, m, k, *metric == Metric::InnerProduct)?;
            self.each_block::<T>(stats, |block| nearest.take_block(block, how))?;
            return nearest.finish();
        }
        let (first_strip, tables) = self.prepare::<T>(stats)?;
        let (measure, side) = (&self.measure, self.side);
        let mut search = Search::new(measure, extents, k, side)?;
        let mut sums = BlockSums::new(measure, measure.search_terms(), extents, side, self.run)?;
        self.each_strip(first_strip, &tables, stats, &mut |x, y| {
            sums.add((x, x.range(), 0), y, |sums, rows, columns| search.offer(sums, rows, columns), drop)
        })?;
        let started = Instant::now();
        let (kept, numbers) = search.into_tensors();
        let nearest = sorted(measure, (&kept.read()?, &numbers.read()?), [extents[0], k].map(to_usize))?;
        stats.compute += started.elapsed();
        self.tell_end();
        Ok(nearest)
    }
}

/// Returns the memory of a search for the k nearest.
fn needs(measure: &Measure, (extents, k, on_device): ([u64; 2], u64, bool)) -> SearchNeeds {
    let [lists, results] = NearestSoFar::lists_and_results(extents[0], k);
    match (on_device, measure.device.shares_host_memory()) {
        (true, _) => {
            let [kept, pair] = measure.search_needs(extents, k);
            [kept + lists + results, Needs::default(), pair]
        }
        (false, true) => [lists, results, measure.pair_needs()],
        // A driver may keep the memory of sums that were received.
        (false, false) => [lists + results, Needs::default(), measure.pair_needs()],
    }
}

/// Returns the k nearest neighbors, as [`neighbors`] does if all observations fit the device.
///
/// # Errors
/// As [`neighbors_stored`](super::neighbors_stored).
pub(super) fn nearest<T: Element>(
    reading: &StoredOperands,
    k: usize,
    run: &Run,
    stats: &mut StreamStats,
) -> Result<Neighbors> {
    let (extents, options) = (reading.extents(), &reading.options);
    let needs = |measure: &Measure, on_device| needs(measure, (extents, k as u64, on_device));
    let on_device = reading.measure::<T>()?.finds_nearest(extents, k as u64);
    match in_boxes::<T>(reading, on_device, needs, run)? {
        Some((search, on_device)) => search.find::<T>(k as u64, on_device, stats),
        None => resident::<T, _>(reading, run, stats, |x, y, run| {
            neighbors(x, y, k, reading.metric, options, run)
        }),
    }
}

/// Returns the neighbors within a radius, as [`radius_neighbors`](crate::distance::radius_neighbors()) does.
///
/// # Errors
/// As [`radius_neighbors_stored`](super::radius_neighbors_stored).
pub(super) fn within<T: Element>(
    reading: &StoredOperands,
    radius: f64,
    run: &Run,
    stats: &mut StreamStats,
) -> Result<RadiusNeighbors> {
    let needs = |measure: &Measure, _| [Needs::default(), Needs::default(), measure.pair_needs()];
    PairsWithin::find(
        &reading.measure::<T>()?,
        reading.extents(),
        radius,
        run,
        |pairs, run| match in_boxes::<T>(reading, false, needs, run)? {
            Some((mut search, _)) => {
                pairs.begin()?;
                search.each_block::<T>(stats, |block| pairs.take(block))
            }
            None => resident::<T, _>(reading, run, stats, |x, y, run| {
                let job = Job::new(x, y, reading.metric, &reading.options)?;
                with_members(job, (x, y), run, |jobs| pairs.take_all(&jobs, run))
            }),
        },
    )
}

/// Loads all observations, and passes them to `find` with the memory that remains.
fn resident<T: Element, R>(
    reading: &StoredOperands,
    run: &Run,
    stats: &mut StreamStats,
    find: impl FnOnce(&Tensor<T>, Option<&Tensor<T>>, &Run) -> Result<R>,
) -> Result<R> {
    let (tensors, rest, _) = reading.load::<T>(run, Needs::default(), stats)?;
    let started = Instant::now();
    let result = find(&tensors[0], tensors.get(1), &rest);
    stats.compute += started.elapsed();
    result
}

/// Returns a search in boxes, and true if the device searches; none if all observations are better loaded at once. `needs` gets true for a search
/// by the device.
///
/// # Errors
/// [`Error::Budget`], with the minimum of the way that needs less; [`Error::Limit`].
fn in_boxes<'a, T: Element>(
    reading: &'a StoredOperands,
    on_device: bool,
    needs: impl Fn(&Measure, bool) -> SearchNeeds,
    run: &'a Run,
) -> Result<Option<(BoxSearch<'a>, bool)>> {
    let (measure, extents) = (reading.measure::<T>()?, reading.extents());
    let [kept, results, pair] = needs(&measure, on_device);
    let kept = kept + results;
    let loaded = reading.to_load(&run.memory, kept + pair);
    // The members of a group share the pairs of observations that each has. Boxes are on the first.
    let members = reading.device.members().len() as u64;
    let side = loaded.and_then(|(_, rest)| measure.side_of(pair, kept, &rest.shared_by(members)));
    let good = good_side(&reading.device).min(extents[0].max(extents[1]));
    if side.as_ref().is_ok_and(|&side| side >= good) {
        return Ok(None);
    }
    let boxes = |measure: Measure, on_device| {
        let needs = needs(&measure, on_device);
        Ok((BoxSearch::within(reading, measure, needs, run)?, on_device))
    };
    let planned = match boxes(measure, on_device) {
        // Without lists of the nearest, the device may have room.
        Err(Error::Budget { .. }) if on_device && side.is_err() => boxes(reading.measure::<T>()?, false),
        planned => planned,
    };
    match (planned, side) {
        // Boxes are read again, which pays if blocks of pairs get much larger.
        (Ok((search, _)), Ok(side)) if search.side < 2 * side => Ok(None),
        (Ok(search), _) => Ok(Some(search)),
        // Small blocks of pairs are better than failing.
        (Err(_), Ok(_)) => Ok(None),
        (Err(error), Err(of_all)) => Err(error.or_of_less_memory(of_all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use crate::{Budget, ChunkedArray, distance::Options, openings::cpu, store::MemoryArray};

    /// Whatever memory there is, boxes are not so large that little is left for blocks of pairs.
    #[test]
    fn blocks_are_large() {
        let x = MemoryArray::new("x", &[0u8; 30_000 * 64], &[30_000, 64], &[1000, 64]).unwrap();
        let x: Arc<dyn ChunkedArray> = Arc::new(x);
        let reading = StoredOperands::new(&x, None, Metric::Cosine, &Options::default(), cpu()).unwrap();
        let mut whole = 0;
        for memory in (1..120).map(|quarter| quarter << 18) {
            let run = Run { memory: Budget::default().host(memory), ..Run::default() };
            let measure = reading.measure::<u8>().unwrap();
            let needs = needs(&measure, ([30_000; 2], 10, false));
            let Ok(search) = BoxSearch::within(&reading, measure, needs, &run) else { continue };
            let good = search.of_box.min(good_side(cpu()));
            assert!(search.side >= good, "{memory}: {} of boxes of {}", search.side, search.of_box);
            whole += usize::from(good == good_side(cpu()));
        }
        assert!(whole > 20, "{whole}");
    }
}
