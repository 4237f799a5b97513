//! Tests of distances between two stores, in bands and of the nearest, against one matrix of all samples.

use teatime::{
    Status, assert_err,
    openings::{told, within},
};

use super::*;
use crate::{Residency, to_usize};

const SIDE: u64 = 64;

/// Dosages of the samples of two sides, and which variants of the sides match.
struct Case {
    sides: [Vec<i8>; 2],
    samples: [usize; 2],
    matches: Vec<Option<Match>>,
    /// Dosages of the samples of both sides at the shared variants, in the order of the first side.
    joint: Vec<i8>,
}

impl Case {
    /// Makes a case from dosages of the samples of both sides. One in five variants is not in the second side, one in seven not in the
    /// first. One in four has swapped alleles in the second side, where some are one place later.
    fn new(all: &[i8], samples: [usize; 2], ploidy: i8) -> Self {
        let rows: Vec<&[i8]> = all.chunks(samples[0] + samples[1]).collect();
        let variants = rows.len();
        let is_turned = |row: usize| row % 4 == 1;
        let mut others: Vec<usize> = (0..variants).filter(|row| row % 5 != 3).collect();
        (0..others.len() - 1).filter(|at| at % 90 == 31).for_each(|at| others.swap(at, at + 1));
        let (mut first, mut joint, mut matches) = (Vec::new(), Vec::new(), Vec::new());
        for row in (0..variants).filter(|row| row % 7 != 2) {
            first.extend_from_slice(&rows[row][..samples[0]]);
            let place = others.iter().position(|&other| other == row);
            let place = place.map(|place| u32::try_from(place).unwrap());
            matches.push(place.map(|at| if is_turned(row) { Match::Swapped(at) } else { Match::Same(at) }));
            if place.is_some() {
                joint.extend_from_slice(rows[row]);
            }
        }
        let turned = |row, x| if x >= 0 && is_turned(row) { ploidy - x } else { x };
        let of_others = |&row: &usize| rows[row][samples[0]..].iter().map(move |&x| turned(row, x));
        let second = others.iter().flat_map(of_others).collect();
        Self { sides: [first, second], samples, matches, joint }
    }

    /// Returns the genotypes of each side and of both. `store` makes them from dosages, the number of samples, and an index from 0 to 2.
    fn stores(&self, store: impl Fn(&[i8], u64, usize) -> Genotypes) -> [Genotypes; 3] {
        let [n, others] = self.samples.map(|samples| samples as u64);
        let [first, second] = &self.sides;
        [store(first, n, 0), store(second, others, 1), store(&self.joint, n + others, 2)]
    }

    fn pairs<'a>(&'a self, stores: &'a [Genotypes; 3]) -> SamplePairs<'a> {
        SamplePairs::between(&stores[0], &stores[1], &self.matches)
    }

    /// Checks that each distance and number of shared variants is that of the matrix of all samples.
    fn check(&self, stores: &[Genotypes; 3], options: &DistanceOptions, exact: bool) {
        let (result, expected) = (compute(self.pairs(stores), options), compute(&stores[2], options));
        let [n, others] = self.samples;
        assert_eq!((result.matrix.rows(), result.matrix.cols()), (n, others));
        assert_eq!(result.facts.counts, expected.facts.counts);
        assert_eq!(result.shared.is_some(), expected.shared.is_some(), "{options:?}");
        let shared = result.shared.as_ref().zip(expected.shared.as_ref());
        for (result, expected) in [(&result.matrix, &expected.matrix)].into_iter().chain(shared) {
            for (i, j) in (0..n).flat_map(|i| (0..others).map(move |j| (i, j))) {
                let (actual, expected) = (result.row(i)[j], expected.row(i)[n + j]);
                assert!(is_same(actual, expected, exact), "{options:?} {i} {j}: {actual}, {expected}");
            }
        }
    }
}

/// Returns genotypes, with a different chunk shape for each side.
fn chunked(dosages: &[i8], samples: u64, number: usize) -> Genotypes {
    let chunk = [[100, 25], [37, 64], [500, 500]][number];
    memory(dosages, &[dosages.len() as u64 / samples, samples], &chunk)
}

/// Returns the end of each band's samples, and checks that their distances are those of the whole matrix.
fn check_bands(
    genotypes: &Genotypes,
    device: &Device,
    options: &DistanceOptions,
    run: &Run,
) -> Result<Vec<u64>> {
    let bands = DistanceBands::new(genotypes, device, options, SIDE, run)?;
    let all = compute(genotypes, options);
    let (facts, n) = (bands.facts(), genotypes.samples());
    assert_eq!((bands.has_shared(), facts.digest), (all.shared.is_some(), all.facts.digest));
    assert_eq!((facts.counts, facts.merged), (all.facts.counts, true));
    let mut ends = vec![0];
    bands.each(run, &|_| false, &mut |band| {
        let (first, width) = (to_usize(band.own.start), to_usize(band.own.end - band.own.start));
        assert_eq!((Some(&band.own.start), band.matrix.rows()), (ends.last(), to_usize(n) - first));
        ends.push(band.own.end);
        let shared = band.shared.as_ref().zip(all.shared.as_ref());
        for (found, all) in [(&band.matrix, &all.matrix)].into_iter().chain(shared) {
            for row in 0..found.rows() {
                let expected = &all.row(first + row)[first..first + width];
                let mut pairs = found.row(row).iter().zip(expected);
                assert!(pairs.all(|(a, b)| is_same(*a, *b, true)), "{options:?}");
            }
        }
        Ok(())
    })?;
    assert_eq!(ends.last(), Some(&n));
    Ok(ends.split_off(1))
}

/// Checks that the neighbors are those of a stable sort of the distances, to the last bit. Returns the number of bands.
pub(super) fn check_nearest<'a>(
    pairs: impl Into<SamplePairs<'a>>,
    options: &DistanceOptions,
    k: usize,
    run: &Run,
) -> Option<u32> {
    let pairs = pairs.into();
    let (all, (told_of, passes)) = (compute(pairs, options), told(|_| false));
    let found = sample_neighbors(pairs, cpu(), options, k, &told_of.memory(run.memory)).unwrap();
    // Each band is a pass that is told.
    assert!(found.bands.is_none_or(|bands| passes.lock().unwrap().last().unwrap().pass == bands));
    let said = |facts: DistanceFacts| (facts.digest, facts.counts, facts.others, facts.options.metric);
    assert_eq!((found.undefined, said(found.facts)), (all.undefined, said(all.facts)));
    assert_eq!(found.facts.multiallelic, all.facts.multiallelic);
    let (nearest, inner) = (&found.nearest, SampleMetric::Of(Metric::InnerProduct));
    assert_eq!((nearest.distances.rows(), nearest.indices.len()), (all.matrix.rows(), all.matrix.rows() * k));
    let sign = if options.metric.het_het().is_some() || options.metric == inner { -1.0 } else { 1.0 };
    for (row, indices) in nearest.indices.chunks(k).enumerate() {
        let mut sorted: Vec<(usize, f64)> = all.matrix.row(row).iter().copied().enumerate().collect();
        sorted.retain(|&(number, _)| number != row || found.facts.others.is_some());
        let key = |distance: f64| (distance.is_nan(), if distance.is_nan() { 0.0 } else { sign * distance });
        sorted.sort_by(|a, b| key(a.1).partial_cmp(&key(b.1)).unwrap());
        let expected = sorted[..k].iter().map(|&(number, distance)| (number as u64, distance.to_bits()));
        let actual = indices.iter().copied().zip(nearest.distances.row(row).iter().map(|x| x.to_bits()));
        assert!(actual.eq(expected), "{options:?}, {row}: {indices:?} {:?}", nearest.distances.row(row));
    }
    found.bands
}

/// Distances between two stores, in bands and of the nearest are those of one matrix, to the bit, with as little memory as will do. One
/// sample has no calls, so that its distances are NaN; the filter uses the samples of both stores.
#[test]
fn every_way_gives_the_bits_of_the_matrix() {
    let mut missing = dosages(120, 300);
    missing.iter_mut().skip(100).step_by(300).for_each(|x| *x = -1);
    let complete: Vec<i8> = missing.iter().map(|x| *x.max(&0)).collect();
    let whole = [Metric::Canberra, Metric::RussellRao].map(|metric| (SampleMetric::Of(metric), false));
    for (dosages, samples) in [(&missing, [230, 70]), (&complete, [172, 128])] {
        let case = Case::new(dosages, samples, 2);
        let stores = case.stores(chunked);
        let filter = VariantFilter { min_maf: 0.2, max_missing: 0.015 };
        let counts = compute(&stores[2], &options(CITYBLOCK).filter(filter)).facts.counts;
        assert!(counts.below_maf > 0 && counts.used > 20);
        assert_eq!(counts.above_missing > 0, dosages.contains(&-1));
        for (metric, exact) in METRICS.map(|metric| (metric, true)).into_iter().chain(whole) {
            for missing in [Missing::Ignore, Missing::Rescale, Missing::RescaleOrZero, Missing::Propagate] {
                let options = options(metric).missing(missing).filter(filter);
                if !takes(metric, Some(missing)) {
                    continue;
                }
                case.check(&stores, &options, exact);
                check_nearest(case.pairs(&stores), &options, 9, &Run::default());
                let (bytes, _) = least(|run| sample_neighbors(&stores[2], cpu(), &options, 7, run).map(drop));
                let bands = check_nearest(&stores[2], &options, 7, &within(bytes));
                assert_eq!(bands.is_some_and(|bands| bands > 2), exact, "{options:?}");
                assert_eq!(check_nearest(&stores[2], &options, 299, &Run::default()), exact.then_some(1));
                if exact {
                    let (_, ends) = least(|run| check_bands(&stores[2], cpu(), &options, run));
                    assert!(ends.len() > 2, "{options:?}: {ends:?}");
                }
            }
        }
    }
}

/// Tries other metrics, ploidies and forms of dosages, and two stores of different kinds.
#[test]
fn two_stores_of_other_forms() {
    let as_calls = |ploidy: u64| {
        move |dosages: &[i8], samples: u64, number: usize| {
            let shape = [dosages.len() as u64 / samples, samples, ploidy];
            memory(&calls(dosages, ploidy), &shape, &[90 + 50 * number as u64, 20, ploidy])
        }
    };
    // Sides of these numbers are fractions, the others calls.
    let mixed = |in_f32: &'static [usize]| {
        move |dosages: &[i8], samples, number: usize| match in_f32.contains(&number) {
            true => fractions(dosages, 1.0, samples),
            false => as_calls(2)(dosages, samples, number),
        }
    };
    let all = dosages(600, 29);
    let haploid: Vec<i8> = all.iter().map(|x| *x.min(&1)).collect();
    let [diploid, triploid, haploid] =
        [(&all, 2), (&all, 3), (&haploid, 1)].map(|(dosages, ploidy)| Case::new(dosages, [12, 17], ploidy));
    let cases = [
        (&diploid, diploid.stores(chunked)),
        (&diploid, diploid.stores(mixed(&[0, 1, 2]))),
        (&diploid, diploid.stores(mixed(&[1, 2]))),
        (&diploid, diploid.stores(mixed(&[0, 2]))),
        (&triploid, triploid.stores(as_calls(3))),
        (&haploid, haploid.stores(as_calls(1))),
    ];
    for (case, stores) in cases {
        let packed = METRICS.into_iter().filter(|metric| *metric != SampleMetric::IbsOfAlleles);
        for metric in OTHERS.map(SampleMetric::Of).into_iter().chain(packed) {
            for missing in [Missing::Ignore, Missing::Propagate] {
                case.check(&stores, &options(metric).missing(missing), false);
            }
        }
    }
}

/// A panel holds all variants of a side with few samples, but only some variants of a side with many.
#[test]
fn panels_of_different_lengths() {
    for (samples, metric) in [([1, 2500], Metric::CityBlock), ([2500, 1], Metric::Chebyshev)] {
        let few = dosages(6400, 61);
        let all: Vec<i8> = few.chunks(61).flat_map(|row| row.iter().cycle().take(2501)).copied().collect();
        let case = Case::new(&all, samples, 2);
        let stores = case.stores(|dosages, samples, number| match number {
            2 => memory(&[0i8], &[1, 1], &[1, 1]),
            _ => memory(dosages, &[dosages.len() as u64 / samples, samples], &[1000, 500]),
        });
        let of = options(SampleMetric::Of(metric)).missing(Missing::Rescale);
        let (result, rows) = (compute(case.pairs(&stores), &of), case.joint.chunks(2501));
        let all = rows.len() as f64;
        for j in (0..2500).step_by(31) {
            let pair = if samples[0] == 1 { [0, 1 + j] } else { [j, 2500] };
            let both =
                rows.clone().map(|row| pair.map(|at| row[at])).filter(|both| both.iter().all(|&x| x >= 0));
            let (shared, sum, largest) = both.fold((0.0, 0.0, 0.0), |(shared, sum, largest), [x, y]| {
                let difference = f64::from((x - y).abs());
                (shared + 1.0, sum + difference, difference.max(largest))
            });
            let expected = if metric == Metric::CityBlock { sum * (all / shared) } else { largest };
            assert_eq!(result.matrix.data()[j], expected, "{metric} {pair:?}");
        }
    }
}

#[test]
fn bands_are_as_wide_as_memory_allows() {
    let (genotypes, options) = (chunked(&dosages(150, 700), 700, 0), DistanceOptions::default());
    let (minimum, narrow) = least(|run| check_bands(&genotypes, cpu(), &options, run));
    let ends = |host| check_bands(&genotypes, cpu(), &options, &within(host)).unwrap();
    assert!(narrow.len() > 4 && narrow[0] == SIDE, "{narrow:?}");
    let wider = ends(minimum + 2 * 16 * 700 * 128);
    assert!(wider[0] > SIDE && wider[0].is_multiple_of(SIDE) && wider.len() < narrow.len(), "{wider:?}");
    assert_eq!(ends(1 << 30), [700]);
}

#[test]
fn passes_of_bands_are_told_and_cancelled() {
    let (genotypes, options) = (chunked(&dosages(150, 300), 300, 0), DistanceOptions::default());
    let passes = |told: &std::sync::Mutex<Vec<Status>>| {
        let mut passes: Vec<_> = told.lock().unwrap().iter().map(|told| (told.pass, told.passes)).collect();
        passes.dedup();
        passes
    };
    let (run, told_of) = told(|_| false);
    let bands = DistanceBands::new(&genotypes, cpu(), &options, SIDE, &run).unwrap();
    let mut owners = Vec::new();
    let mut keep = |band: DistanceBand| {
        owners.push(band.own);
        Ok(())
    };
    bands.each(&run, &|tile| [1, 3].contains(&tile), &mut keep).unwrap();
    // Tiles 1 and 3 of the five exist already.
    assert_eq!(owners, [0..64, 128..192, 256..300]);
    assert_eq!(passes(&told_of), [(0, 6), (1, 4), (2, 4), (3, 4)]);
    let (run, _) = told(|_| true);
    assert_err!(bands.each(&run, &|_| false, &mut |_| Ok(())), Error::Cancelled);
    let case = Case::new(&dosages(200, 17), [9, 8], 2);
    let stores = case.stores(chunked);
    assert_err!(distances(case.pairs(&stores), cpu(), &options, &run), Error::Cancelled);
}

/// Each member of a group adds up some of the variants, of calls with several alleles too. Distances, bands and the nearest have the bits of one
/// device, also with the least memory, where the first device may be alone.
#[test]
fn groups_give_the_bits_of_one_device() {
    let complete: Vec<i8> = dosages(9000, 70).iter().map(|x| *x.max(&0)).collect();
    // Only the last member meets missing calls.
    let mut late = complete.clone();
    late.iter_mut().skip(8500 * 70).step_by(9).for_each(|x| *x = -1);
    let calls = Calls::of_many_alleles(9000, 20, 2).stored();
    let of_calls = [SampleMetric::Ibs, SampleMetric::IbsOfAlleles, SampleMetric::Of(Metric::Euclidean)];
    for (genotypes, metrics) in [
        (memory(&dosages(9000, 70), &[9000, 70], &[500, 70]), &METRICS[..]),
        (memory(&complete, &[9000, 70], &[500, 70]), &METRICS[2..6]),
        (memory(&late, &[9000, 70], &[500, 70]), &METRICS[2..7]),
        (calls, &of_calls),
    ] {
        for (metric, missing) in
            metrics.iter().flat_map(|metric| [(*metric, None), (*metric, Some(Missing::Propagate))])
        {
            let options = DistanceOptions { missing, ..options(metric) };
            let options = options.filter(VariantFilter { min_maf: 0.2, max_missing: 0.3 });
            let one = compute(&genotypes, &options);
            for names in ["cpu,cpu", "cpu,cpu,cpu,cpu,cpu"] {
                let group = Device::open(names).unwrap();
                let of = |run: &Run| distances(&genotypes, &group, &options, run);
                let (found, (_, within_least)) = (of(&Run::default()).unwrap(), least(of));
                // Five members have three blocks.
                let count = group.members().len().min(3);
                assert_eq!(found.facts.devices, count, "{options:?}");
                for found in [&found, &within_least] {
                    let bits = |of: &Distances| pair_bits(&of.matrix, &of.shared);
                    assert!(bits(found) == bits(&one), "{options:?}");
                    let facts = |facts: &DistanceFacts| (facts.counts, facts.digest, facts.multiallelic);
                    assert_eq!(facts(&found.facts), facts(&one.facts), "{options:?}");
                }
                let nearest = |device: &Device| {
                    let found = sample_neighbors(&genotypes, device, &options, 5, &Run::default()).unwrap();
                    let distances = found.nearest.distances.data().iter().map(|x| x.to_bits());
                    (found.nearest.indices, distances.collect::<Vec<_>>(), found.undefined, found.bands)
                };
                assert!(nearest(&group) == nearest(cpu()), "{options:?}");
            }
        }
    }
    // The genotypes stay on the members, which pass over them for each band.
    let genotypes = memory(&dosages(9000, 300), &[9000, 300], &[500, 300]);
    let group = Device::open("cpu,cpu").unwrap();
    let options = options(SampleMetric::Of(Metric::Correlation));
    let bands = DistanceBands::new(&genotypes, &group, &options, SIDE, &Run::default()).unwrap();
    assert_eq!((bands.facts().devices, bands.cohort.residency()), (2, Residency::Device));
    let launches = || group.members().iter().map(|member| member.traffic().launches).collect::<Vec<_>>();
    let before = launches();
    bands.each(&Run::default(), &|_| false, &mut |_| Ok(())).unwrap();
    assert!(launches().iter().zip(before).all(|(now, before)| *now > before));
    let (_, ends) = least(|run| check_bands(&genotypes, &group, &options, run));
    assert!(ends.len() > 2, "{ends:?}");
    assert_eq!(check_bands(&genotypes, &group, &options, &Run::default()).unwrap().last(), Some(&300));
}

#[test]
fn sums_that_are_rounded_are_of_one_device() {
    let genotypes = memory(&dosages(9000, 20), &[9000, 20], &[500, 20]).dosages_are_bounded(true);
    let options = options(SampleMetric::Of(Metric::Canberra));
    let (one, group) = (compute(&genotypes, &options), Device::open("cpu,cpu").unwrap());
    let found = distances(&genotypes, &group, &options, &Run::default()).unwrap();
    assert_eq!((found.facts.devices, found.matrix == one.matrix), (1, true));
}
