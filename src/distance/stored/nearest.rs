//! The nearest neighbors, and those within a radius, for stored matrices: of all observations at once, or of boxes.

use std::{sync::Mutex, time::Instant};

use super::{
    boxes::{BoxSearch, BoxSizes, SearchNeeds, good_side},
    reading::StoredOperands,
};
use crate::{
    Element, Error, Needs, Result, Run, Tensor,
    distance::{
        Metric, NearestSoFar, Neighbors, RadiusNeighbors,
        job::{Job, Measure},
        members::with_members,
        neighbors::{chosen, neighbors},
        on_device::BlockSums,
        search::Search,
        within::{PairsWithin, Radius},
    },
    extent::to_usize,
    stream::StreamStats,
    waiting::lock,
};

/// Returns the k nearest by a search in boxes, by the device if `on_device`, and its number of members. Fails as `neighbors_stored`.
fn nearest_in_boxes<T: Element>(
    reading: &StoredOperands,
    k: u64,
    (sizes, on_device): (BoxSizes, bool),
    run: &Run,
    stats: &mut StreamStats,
) -> Result<(Neighbors, usize)> {
    let (extents, side) = (reading.extents(), sizes.side);
    let shape = [extents[0], k].map(to_usize);
    if !on_device {
        let found = BoxSearch::on_members::<T, _>(reading, sizes, run, stats, |search, boxes, stats| {
            let Measure { device, metric, is_self, .. } = &search.measure;
            let how = (*is_self, search.measure.is_lower());
            let largest_first = *metric == Metric::InnerProduct;
            let mut nearest = NearestSoFar::new(device, shape[0], shape[1], largest_first)?;
            search.each_block(boxes, stats, &mut |block| nearest.take_block(block, how))?;
            Ok(nearest)
        })?;
        let members = found.len();
        return Ok((NearestSoFar::finish_all(found)?, members));
    }
    let found = BoxSearch::on_members::<T, _>(reading, sizes, run, stats, |search, boxes, stats| {
        let measure = &search.measure;
        let mut nearest = Search::new(measure, extents, k, side)?;
        let mut sums = BlockSums::new(measure, measure.search_terms(), extents, side, &search.run)?;
        search.each_strip(boxes, stats, &mut |x, y| {
            let mut offer = |sums: &Tensor<f32>, rows, columns| nearest.offer(sums, rows, columns);
            sums.add((x, x.range(), 0), y, &mut offer, &mut drop)
        })?;
        let started = Instant::now();
        let (kept, numbers) = nearest.into_tensors();
        let kept = (kept.read()?, numbers.read()?);
        stats.compute += started.elapsed();
        Ok((kept, search.is_first().then(|| measure.clone())))
    })?;
    let (lists, measures): (_, Vec<_>) = found.into_iter().unzip();
    let members = measures.len();
    let measure = measures.into_iter().flatten().next().expect("the first member should have a measure");
    Ok((chosen(&measure, lists, shape)?, members))
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

/// Returns the k nearest neighbors, as [`neighbors`] does if all observations fit the device, and the number of members that shared the work.
/// Fails as [`neighbors_stored`](super::neighbors_stored) does.
pub(super) fn nearest<T: Element>(
    reading: &StoredOperands,
    k: usize,
    run: &Run,
    stats: &mut StreamStats,
) -> Result<(Neighbors, usize)> {
    let (extents, options) = (reading.extents(), &reading.options);
    let needs = |measure: &Measure, on_device| needs(measure, (extents, k as u64, on_device));
    let on_device = reading.measure::<T>()?.finds_nearest(extents, k as u64);
    match in_boxes::<T>(reading, on_device, &needs, run)? {
        Some(sizes) => nearest_in_boxes::<T>(reading, k as u64, sizes, run, stats),
        None => resident::<T, _>(reading, run, stats, |x, y, run| {
            Ok((neighbors(x, y, k, reading.metric, options, run)?, reading.sharing()))
        }),
    }
}

/// Returns the neighbors within a radius, as [`radius_neighbors`](crate::distance::radius_neighbors()) does, and the number of members that shared
/// the work. Fails as [`radius_neighbors_stored`](super::radius_neighbors_stored) does.
pub(super) fn within<T: Element>(
    reading: &StoredOperands,
    radius: f64,
    run: &Run,
    stats: &mut StreamStats,
) -> Result<(RadiusNeighbors, usize)> {
    let needs = |measure: &Measure, _| [Needs::default(), Needs::default(), measure.pair_needs()];
    let radius = Radius::new(radius, reading.metric)?;
    let mut members = reading.sharing();
    let pass = |pairs: &mut PairsWithin, run: &Run| match in_boxes::<T>(reading, false, &needs, run)? {
        Some((sizes, _)) => {
            pairs.begin()?;
            let pairs = Mutex::new(pairs);
            let found = BoxSearch::on_members::<T, _>(reading, sizes, run, stats, |search, boxes, stats| {
                let pool = search.measure.device.pool()?;
                search.each_block(boxes, stats, &mut |block| {
                    let marks = pool.install(|| radius.marks(block));
                    lock(&pairs).take(block, &marks);
                })
            })?;
            members = found.len();
            Ok(())
        }
        None => resident::<T, _>(reading, run, stats, |x, y, run| {
            let job = Job::new(x, y, reading.metric, &reading.options)?;
            with_members(job, (x, y), run, |jobs| pairs.take_all(&jobs, run))
        }),
    };
    let within = PairsWithin::find(&reading.measure::<T>()?, reading.extents(), radius, run, pass)?;
    Ok((within, members))
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

/// Returns the sizes of a search in boxes, and true if the device searches; none if all observations are better loaded at once. `needs` gets true
/// for a search by the device. Fails with [`Error::Budget`], with the minimum of the way that needs less; [`Error::Limit`].
fn in_boxes<T: Element>(
    reading: &StoredOperands,
    on_device: bool,
    needs: &dyn Fn(&Measure, bool) -> SearchNeeds,
    run: &Run,
) -> Result<Option<(BoxSizes, bool)>> {
    let (measure, extents) = (reading.measure::<T>()?, reading.extents());
    let [kept, results, pair] = needs(&measure, on_device);
    let kept = kept + results;
    let loaded = reading
        .to_load(&run.memory, reading.device.first_members(reading.sharing()).members_need(kept + pair));
    let side = loaded.and_then(|(_, rest)| {
        let members = reading.sharing() as u64;
        let side = measure.side_of(pair, kept, &rest.shared_by(members));
        side.map_err(|error| rest.error_of_part(members, error))
    });
    let good = good_side(&reading.device).min(extents[0].max(extents[1]));
    if side.as_ref().is_ok_and(|&side| side >= good) {
        return Ok(None);
    }
    let members = reading.device.members().len() as u64;
    let boxes = |on_device| {
        let of_each =
            |run: &Run| BoxSizes::within(reading, &measure, needs(&measure, on_device), members, &run.memory);
        Ok((run.with_part(members, of_each)?, on_device))
    };
    let planned = match boxes(on_device) {
        // Without lists of the nearest, the device may have room.
        Err(Error::Budget { .. }) if on_device && side.is_err() => boxes(false),
        planned => planned,
    };
    match (planned, side) {
        // Boxes are read again, which pays if blocks of pairs get much larger.
        (Ok((sizes, _)), Ok(side)) if sizes.side < 2 * side => Ok(None),
        (Ok(sizes), _) => Ok(Some(sizes)),
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
            let memory = Budget::default().host(memory);
            let measure = reading.measure::<u8>().unwrap();
            let needs = needs(&measure, ([30_000; 2], 10, false));
            let Ok(sizes) = BoxSizes::within(&reading, &measure, needs, 1, &memory) else { continue };
            let good = sizes.of_box.min(good_side(cpu()));
            assert!(sizes.side >= good, "{memory:?}: {} of boxes of {}", sizes.side, sizes.of_box);
            whole += usize::from(good == good_side(cpu()));
        }
        assert!(whole > 20, "{whole}");
    }
}
