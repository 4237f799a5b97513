//! Tests of distances of stored matrices, against those of the same matrices on a device.

use super::*;
use crate::{
    distance::{
        Distances, Metric, Missing, Neighbors, Options, StoredDistances, neighbors, neighbors_stored,
        pairwise_counted, pairwise_stored, radius_neighbors, radius_neighbors_stored,
    },
    store::{MemoryArray, Storable},
};

device_tests! {
    empty, refused, f64s, errors_name_observations;
    nearest_within_any_budget, radius_within_any_budget, boxes_of_members, nearest_of_each_type, boxes_of_features, any_budget, types, both_passes,
}

fn stored<T: Storable>(values: &[T], shape: [u64; 2], chunks: [u64; 2]) -> Array {
    Arc::new(MemoryArray::new("x", values, &shape, &chunks).unwrap())
}

fn turned<T: Copy>(values: &[T], features: usize) -> Vec<T> {
    (0..features).flat_map(|f| values.iter().skip(f).step_by(features).copied()).collect()
}

/// Returns `n` observations on the device and stored, in chunks of four observations and a third of their features.
fn both<T: Storable + Element>(device: &Device, values: &[T], n: u64, columns: bool) -> (Tensor<T>, Array) {
    let features = values.len() as u64 / n;
    let (shape, chunk) = ([n, features], [4, (features / 3).max(1)]);
    if !columns {
        return (Tensor::from_slice(device, values, &shape).unwrap(), stored(values, shape, chunk));
    }
    let (values, shape) = (turned(values, features as usize), [features, n]);
    (Tensor::from_slice(device, &values, &shape).unwrap(), stored(&values, shape, [chunk[1], 4]))
}

fn found(
    device: &Device,
    [x, y]: [Option<&Array>; 2],
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Distances {
    let StoredDistances { distances, shared, .. } =
        pairwise_stored(x.unwrap(), y, metric, options, device, run).unwrap();
    Distances { distances, shared }
}

/// Asserts that distances agree up to the last bits of f32, since sums may be added in other parts.
fn assert_close(found: &Distances, expected: &Distances) {
    assert_eq!(found.distances.rows(), expected.distances.rows());
    for (found, expected) in found.distances.data().iter().zip(expected.distances.data()) {
        let close = (found - expected).abs() <= 1e-6 * expected.abs() + 1e-6;
        assert!(close || found.is_nan() && expected.is_nan(), "{found} for {expected}");
    }
    let counts = |of: &Distances| of.shared.as_ref().map(|shared| shared.data().to_vec());
    assert_eq!(counts(found), counts(expected));
}

fn boxes_of_features(device: &Device) {
    let (count, others, features) = (7usize, 5usize, 300usize);
    let mut x: Vec<f32> = values(1, (count * features) as u64);
    let mut y: Vec<f32> = values(2, (others * features) as u64);
    (x[3], x[2 * features], y[40]) = (f32::NAN, f32::NAN, f32::NAN);
    let extents = [count, others, features].map(|n| n as u64);
    let tensor = |values: &[f32], n| Tensor::from_slice(device, values, &[n, extents[2]]).unwrap();
    for (metric, missing) in [
        (Metric::Euclidean, Missing::Ignore),
        (Metric::Chebyshev, Missing::Rescale),
        (Metric::Correlation, Missing::Propagate),
        (Metric::CityBlock, Missing::Propagate),
    ] {
        let missing = if metric.check(missing).is_ok() { missing } else { Missing::Ignore };
        let options = Options { missing, ..Options::default() };
        for with in [false, true] {
            let (left, right) = (tensor(&x, extents[0]), tensor(&y, extents[1]));
            let expected =
                pairwise_counted(&left, with.then_some(&right), metric, &options, &Run::default()).unwrap();
            for (columns, chunks, host) in [
                (false, [3, 249], None),
                (false, [7, 64], Some(300_000)),
                (true, [170, 2], None),
                (true, [1, 7], Some(1_000_000)),
            ] {
                let options = Options { columns, ..options };
                let array = |values: &[f32], n: u64| match columns {
                    true => stored(&turned(values, features), [extents[2], n], chunks),
                    false => stored(values, [n, extents[2]], chunks),
                };
                let (x, y) = (array(&x, extents[0]), array(&y, extents[1]));
                let run = Run { memory: Budget::default().host(host), ..Run::default() };
                let found = found(device, [Some(&x), with.then_some(&y)], metric, &options, &run);
                assert_close(&found, &expected);
            }
        }
    }
}

/// Memory and chunks do not change results, which equal those of tensors to the bit if the terms are the same.
fn any_budget(device: &Device) {
    let (count, features) = (9u64, 2500u64);
    let x: Vec<f32> = values(7, count * features);
    let tensor = Tensor::from_slice(device, &x, &[count, features]).unwrap();
    let of = |chunks, metric, host| {
        let x = stored(&x, [count, features], chunks);
        let (run, told) = told(|_| false);
        let run = run.memory(Budget::default().host(host));
        let found = found(device, [Some(&x), None], metric, &Options::default(), &run).distances;
        let width = told.lock().unwrap()[0].rows;
        (found, width)
    };
    let mut widths = Vec::new();
    for metric in [Metric::Euclidean, Metric::BrayCurtis, Metric::Correlation] {
        let (expected, _) = of([9, 2500], metric, None);
        if matches!(metric, Metric::Euclidean | Metric::BrayCurtis) {
            let at_once = pairwise_counted(&tensor, None, metric, &Options::default(), &Run::default());
            assert_eq!(at_once.unwrap().distances, expected, "{metric:?}");
        }
        // As documented, results may change if fewer than 256 features are read at a time.
        let cases = [
            ([9, 1000], None),
            ([4, 100], Some(60_000)),
            ([9, 64], Some(150_000)),
            ([1, 64], Some(80_000)),
            ([9, 64], Some(110_000)),
            ([4, 100], Some(200_000)),
        ];
        // All metrics are read in the same boxes.
        for &(chunks, host) in &cases[..if metric == Metric::Euclidean { 6 } else { 3 }] {
            let (found, width) = of(chunks, metric, host);
            if width >= 256 {
                assert_eq!(found, expected, "{metric:?} {chunks:?} {host:?} {width}");
            }
            widths.push(width);
        }
    }
    assert!([256, 512].iter().any(|width| widths.contains(width)), "{device:?}: {widths:?}");
}

/// Distances are computed in f64 if the device can; otherwise they are refused unless f32 is requested.
fn f64s(device: &Device) {
    let (options, run) = (Options::default(), Run::default());
    let narrow = Options { narrow: true, ..options };
    let near = 1.0 + 1e-12;
    let x = stored(&[1.0, 2.0, near, 2.0], [2, 2], [1, 2]);
    let y = stored(&[1.0f32, 2.0], [1, 2], [1, 1]);
    let large = stored(&[(1i64 << 53) - 1, 0], [1, 2], [1, 2]);
    let of = |x: &Array, y: Option<&Array>, metric, options: &Options| {
        pairwise_stored(x, y, metric, options, device, &run).map(|found| found.distances.data().to_vec())
    };
    let euclidean = |x: &Array, y, options: &Options| of(x, y, Metric::Euclidean, options);
    assert_eq!(euclidean(&x, None, &narrow).unwrap(), [0.0; 4]);
    assert_eq!(euclidean(&x, Some(&y), &narrow).unwrap(), [0.0; 2]);
    assert!(matches!(euclidean(&x, Some(&large), &narrow), Err(Error::Chunk { .. })));
    assert!(matches!(euclidean(&stored(&[1e300], [1, 1], [1, 1]), None, &narrow), Err(Error::Chunk { .. })));
    if !device.limits().f64 {
        for (x, y) in [(&x, None), (&x, Some(&y)), (&y, Some(&x))] {
            assert!(matches!(euclidean(x, y, &options), Err(Error::NoF64 { op: "distance", .. })));
        }
        return;
    }
    let apart = near - 1.0;
    assert_eq!(euclidean(&x, None, &options).unwrap(), [0.0, apart, apart, 0.0]);
    assert_eq!(euclidean(&x, Some(&y), &options).unwrap(), [0.0, apart]);
    assert_eq!(euclidean(&y, Some(&x), &options).unwrap(), [0.0, apart]);
    assert_eq!(of(&large, Some(&x), Metric::CityBlock, &options).unwrap(), [(1i64 << 53) as f64; 2]);
    // The integers are of two types.
    let (bytes, shorts) = (stored(&[1i8, 2, 3], [1, 3], [1, 2]), stored(&[3i16, 2, 2], [1, 3], [1, 3]));
    let found = of(&bytes, Some(&shorts), Metric::Canberra, &options).unwrap()[0];
    assert!((found - 0.7).abs() < 1e-15, "{found}");
    // The sums of the first pass are in f64 too.
    let all: Vec<f64> = (0..600).map(|i| 0.1 + f64::from(i * 7919 % 101) / 1e3).collect();
    let tensor = Tensor::from_slice(device, &all, &[2, 300]).unwrap();
    let expected = pairwise_counted(&tensor, None, Metric::JensenShannon, &options, &run).unwrap();
    let found = of(&stored(&all, [2, 300], [1, 7]), None, Metric::JensenShannon, &options).unwrap();
    for (found, expected) in found.iter().zip(expected.distances.data()) {
        assert!((found - expected).abs() <= 1e-12 * expected, "{found} for {expected}");
    }
}

/// Raises budgets to the minimum that errors name, for boxes of one observation, until a call ends in another way. Returns the budgets and the end.
/// If only the host's memory counts, the first error names it.
fn raised<T>(find: &dyn Fn(&Run) -> Result<T, Error>) -> (Budget, Result<T, Error>) {
    let (budget, end, named) = raise(find);
    assert!(named.len() < 2 || named.contains(&MemoryKind::Device), "{named:?}");
    (budget, end)
}

/// Does what [`raised`] does, and returns the memory that each error named.
fn raise<T>(find: &dyn Fn(&Run) -> Result<T, Error>) -> (Budget, Result<T, Error>, Vec<MemoryKind>) {
    let (mut budget, mut named) = (Budget::default().host(1).device(1), Vec::new());
    loop {
        match find(&Run::default().memory(budget)) {
            Err(Error::Budget { memory, minimum, given: true, .. }) => {
                named.push(memory);
                let side = if memory == MemoryKind::Device { &mut budget.device } else { &mut budget.host };
                assert!(side.replace(minimum) < Some(minimum));
            }
            end => return (budget, end, named),
        }
    }
}

/// Neighbors equal those of tensors, however few observations the device holds at a time: to the bit if it computes in f64.
fn nearest_within_any_budget(device: &Device) {
    let run = Run::default();
    for (n, others, features, metric, missing, columns) in [
        (11u64, None, 300u64, Metric::Euclidean, Missing::Propagate, false),
        (11, None, 300, Metric::Cosine, Missing::Ignore, true),
        (11, None, 300, Metric::KlDivergence, Missing::Propagate, false),
        (7, Some(5), 300, Metric::Correlation, Missing::Propagate, true),
        (5, Some(9), 300, Metric::InnerProduct, Missing::Propagate, false),
        (1500, None, 64, Metric::Euclidean, Missing::Propagate, false),
        (1500, Some(40), 3, Metric::Correlation, Missing::Propagate, false),
        (9, None, 0, Metric::CityBlock, Missing::Propagate, false),
        (9, None, 0, Metric::CityBlock, Missing::Propagate, true),
    ] {
        if n > 1000 && others.is_none() && !device.shares_host_memory() {
            // On an emulated GPU, a million pairs take half a minute.
            continue;
        }
        let options = Options { missing, columns, ..Options::default() };
        let made = |seed, n: u64| {
            let mut values: Vec<f32> = values(seed, n * features);
            values.iter_mut().for_each(|x| *x = x.abs() + 0.5);
            // All observations are scaled by the largest element, which is in one box only.
            if metric == Metric::Euclidean {
                values[n as usize] = 1e25;
            }
            if missing != Missing::Propagate {
                values[5] = f32::NAN;
            }
            both(device, &values, n, columns)
        };
        let ((left, x), y) = (made(1, n), others.map(|n| made(2, n)));
        let (right, y) = (y.as_ref().map(|(right, _)| right), y.as_ref().map(|(_, y)| y));
        let expected = neighbors(&left, right, 3, metric, &options, &run).unwrap();
        let find = |run: &Run| neighbors_stored(&x, y, 3, metric, &options, device, run);
        let all = find(&run).unwrap();
        // A device without f64 computes distances of several sums itself, but not in boxes while it has no room for the nearest.
        let is_exact = device.limits().f64 || missing == Missing::Propagate;
        let same = |found: &Neighbors| {
            let near =
                |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || !is_exact && (a - b).abs() < 1e-10;
            let mut pairs = found.distances.data().iter().zip(expected.distances.data());
            let is_same = found.indices == expected.indices && pairs.all(near);
            assert!(is_same, "{metric} of {n}: {found:?}, not {expected:?}");
        };
        same(&all.nearest);
        // Chunks are read once if memory is enough, otherwise more often.
        let chunks = |x: &Array| -> u64 {
            x.shape().iter().zip(x.chunk_shape()).map(|(extent, chunk)| extent.div_ceil(*chunk)).product()
        };
        assert_eq!(all.stats.chunks, chunks(&x) + y.map_or(0, chunks));
        // A box has one observation, then more; of many observations, it is as large as a tile, and on the host then larger.
        let (budgets, mut most): (Vec<Budget>, u64) = if n < 100 {
            let (enough, found) = raised(&find);
            let found = found.unwrap();
            same(&found.nearest);
            let more = |bytes: Option<u64>, times| bytes.map(|bytes| bytes * times / 8);
            let budget =
                |times| Budget::default().host(more(enough.host, times)).device(more(enough.device, times));
            if !is_exact {
                let mut found = [10, 12, 16, 20, 24, 32]
                    .into_iter()
                    .map(|times| find(&Run::default().memory(budget(times))).unwrap());
                let in_boxes =
                    found.any(|found| found.stats.chunks > all.stats.chunks && found.nearest == expected);
                assert!(in_boxes, "{metric} of {n}");
            }
            ([10, 16].map(budget).into(), found.stats.chunks)
        } else if device.shares_host_memory() {
            // Boxes of a tile all stay up to some 965 KiB; then, boxes of two tiles fit, and not all stay.
            let larger = (900..1100).step_by(25).map(|host| Budget::default().host(host << 10));
            ([raised(&find).0].into_iter().chain(larger).collect(), 0)
        } else {
            ([97, 105].map(|of_device| Budget::default().host(530 << 10).device(of_device << 10)).into(), 0)
        };
        let mut last = 0;
        for memory in &budgets {
            let found = find(&Run::default().memory(*memory)).unwrap();
            same(&found.nearest);
            most = most.max(found.stats.chunks);
            last = if *memory == budgets[0] { 0 } else { last.max(found.stats.chunks) };
        }
        assert!(most > all.stats.chunks || n == 9, "{most} of {n}");
        if n > 100 && others.is_none() {
            assert!(last > all.stats.chunks, "boxes larger than a tile of {n}: {last} of {most}");
            let stopped = find(&told(|status| status.pass == 1).0.memory(budgets[0]));
            assert_err!(stopped, Error::Cancelled);
        }
    }
}

/// Neighbors within a radius equal those of tensors to the bit, however few observations the device holds at a time.
fn radius_within_any_budget(device: &Device) {
    for (n, others, metric, missing, columns) in [
        (11u64, None, Metric::Euclidean, Missing::Propagate, false),
        (11, None, Metric::Cosine, Missing::Ignore, true),
        (11, None, Metric::KlDivergence, Missing::Propagate, false),
        (7, Some(5), Metric::Correlation, Missing::Propagate, true),
        (5, Some(9), Metric::InnerProduct, Missing::Propagate, false),
    ] {
        let options = Options { missing, columns, ..Options::default() };
        let made = |(seed, n): (u32, u64)| {
            let mut values: Vec<f32> = values::<f32>(seed, n * 300).iter().map(|x| x.abs() + 0.5).collect();
            if missing != Missing::Propagate {
                values[5] = f32::NAN;
            }
            both(device, &values, n, columns)
        };
        let ((x, stored_x), y) = (made((1, n)), others.map(|n| made((2, n))));
        let (y, stored_y) = (y.as_ref().map(|(y, _)| y), y.as_ref().map(|(_, y)| y));
        let of = |radius| radius_neighbors(&x, y, radius, metric, &options, &Run::default()).unwrap();
        let find = |radius, run: &Run| {
            radius_neighbors_stored(&stored_x, stored_y, radius, metric, &options, device, run)
        };
        let widest = if metric == Metric::InnerProduct { f64::NEG_INFINITY } else { f64::INFINITY };
        let mut distances = of(widest).distances;
        assert_eq!(distances.len() as u64, n * others.unwrap_or(n - 1));
        distances.sort_by(f64::total_cmp);
        // The first error names the memory of the observations, the next that of boxes of one observation.
        let (least, few, _) = raise(&|run| find(widest, run));
        let (few, median) = (few.unwrap(), distances[distances.len() / 2]);
        let all = find(widest, &Run::default()).unwrap();
        assert!(few.stats.chunks > all.stats.chunks, "{metric}");
        let some =
            [find(median, &Run::default()), find(median, &Run::default().memory(least))].map(Result::unwrap);
        for (radius, found) in [(widest, [all, few]), (median, some)] {
            found.iter().for_each(|found| assert_eq!(found.within, of(radius), "{metric} within {radius}"));
        }
        assert_err!(find(widest, &told(|status| status.pass == 1).0.memory(least)), Error::Cancelled);
        assert_err!(find(f64::NAN, &Run::default()), Error::Argument { name: "radius", .. });
    }
}

/// Members of a group find the neighbors of one device, each in boxes of its own, within a budget for all.
fn boxes_of_members(device: &Device) {
    let (group, options) = (group_of(device, 3), Options::default());
    for (n, others, metric) in [
        (66u64, None, Metric::Euclidean),
        (66, None, Metric::KlDivergence),
        (66, Some(20), Metric::Correlation),
    ] {
        // The other members may do more work in a launch than a small device, and so add up more features of an expensive term at once.
        if metric == Metric::KlDivergence && device.limits().room() < 1 << 20 {
            continue;
        }
        let made = |(seed, n, chunk)| {
            let values: Vec<f32> = values::<f32>(seed, n * 100).iter().map(|x| x.abs() + 0.5).collect();
            stored(&values, [n, 100], chunk)
        };
        let (x, y) = (made((1, n, [4, 30])), others.map(|n| made((2, n, [4, 30]))));
        let find =
            |device: &Device, run: &Run| neighbors_stored(&x, y.as_ref(), 3, metric, &options, device, run);
        let all = find(device, &Run::default()).unwrap();
        let (enough, few) = raised(&|run| find(&group, run));
        let few = few.unwrap();
        assert_eq!((few.nearest, few.devices), (all.nearest.clone(), 3), "{metric}");
        assert!(few.stats.chunks > all.stats.chunks, "{metric}: {:?}", few.stats);
        let (run, statuses) = told(|_| false);
        let more = Budget::default().host(enough.host.map(|bytes| bytes * 2)).device(enough.device);
        assert_eq!(find(&group, &run.memory(more)).unwrap().nearest, all.nearest, "{metric}");
        let statuses = statuses.lock().unwrap();
        assert_eq!(statuses.last().map(|status| status.rows), Some(n), "{statuses:?}");
        assert!(statuses.iter().all(|status| status.rows <= status.total), "{statuses:?}");
        // Whole chunks in memory take more than all else.
        let one = made((1, n, [n, 100]));
        let (_, found) = raised(&|run| neighbors_stored(&one, None, 1, metric, &options, &group, run));
        let alone = neighbors_stored(&one, None, 1, metric, &options, device, &Run::default()).unwrap();
        assert_eq!(found.unwrap().nearest, alone.nearest, "{metric}");
        let radius = all.nearest.distances.data()[1];
        let within = |device: &Device, run: &Run| {
            radius_neighbors_stored(&x, y.as_ref(), radius, metric, &options, device, run)
        };
        let (_, few) = raised(&|run| within(&group, run));
        assert_eq!(few.unwrap().within, within(device, &Run::default()).unwrap().within, "{metric}");
    }
}

/// Neighbors equal those of tensors, in boxes of one observation, for each type and for a metric that prepares sums.
fn nearest_of_each_type(device: &Device) {
    fn check<T: Storable + Element>(device: &Device, values: &[T], metric: Metric) {
        let options = Options { narrow: !device.limits().f64, ..Options::default() };
        let (first, others) = values.split_at(300 * 5);
        let ((left, x), (right, y)) = (both(device, first, 5, false), both(device, others, 4, false));
        for (y, right) in [(None, None), (Some(&y), Some(&right))] {
            let expected = neighbors(&left, right, 3, metric, &options, &Run::default()).unwrap();
            let find = |run: &Run| {
                neighbors_stored(&x, y, 3, metric, &options, device, run).map(|found| found.nearest)
            };
            assert_eq!(raised(&find).1.unwrap(), expected, "{metric} of {:?}", T::DTYPE);
        }
    }
    let floats: Vec<f32> = values::<f32>(9, 9 * 300).iter().map(|x| x.abs() + 0.25).collect();
    let whole: Vec<u16> = floats.iter().map(|x| (1000.0 * x) as u16).collect();
    let doubles: Vec<f64> = floats.iter().map(|&x| f64::from(x) + 1e-9).collect();
    check(device, &floats, Metric::JensenShannon);
    check(device, &whole, Metric::Euclidean);
    check(device, &doubles, Metric::Correlation);
    if device.limits().f64 {
        check(device, &doubles, Metric::JensenShannon);
    }
}

/// Errors name observations by their index in the whole matrix, whatever box they are in.
fn errors_name_observations(device: &Device) {
    let mut x = vec![1.0f32; 40];
    x[27] = f32::INFINITY;
    let x = stored(&x, [20, 2], [3, 2]);
    let mut negative = vec![1.0f32; 40];
    negative[27] = -1.0;
    let negative = stored(&negative, [20, 2], [3, 2]);
    for (x, metric, y, why) in [
        (&x, Metric::Euclidean, None, "observation 13: an infinite element"),
        (&x, Metric::Cosine, Some(&x), "observation 13: an infinite element"),
        (&negative, Metric::JensenShannon, None, "observation 13: a negative element"),
    ] {
        let find = |run: &Run| neighbors_stored(x, y, 2, metric, &Options::default(), device, run);
        for found in [raised(&find).1, find(&Run::default())] {
            assert_refused(found, &[why]);
        }
    }
}

fn types(device: &Device) {
    let (options, run) = (Options { narrow: !device.limits().f64, ..Options::default() }, Run::default());
    let small = [0u8, 1, 1, 0, 0, 1];
    let expected = [0.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0, 2.0, 0.0];
    let arrays = [
        stored(&small, [3, 2], [2, 2]),
        stored(&small.map(|x| i64::from(x) + (1 << 24) - 1), [3, 2], [2, 1]),
        stored(&small.map(u64::from), [3, 2], [2, 1]),
        stored(&small.map(|x| i32::from(x) + (1 << 20)), [3, 2], [1, 1]),
        stored(&small.map(f64::from), [3, 2], [3, 2]),
        stored(&small.map(|x| f16::from_f32(x.into())), [3, 2], [3, 2]),
    ];
    for x in &arrays {
        let alone = found(device, [Some(x), None], Metric::CityBlock, &options, &run);
        assert_eq!(alone.distances.data(), expected, "{:?}", x.dtype());
    }
    let near = stored(&[1i32 << 24, (1 << 24) + 1], [2, 1], [2, 1]);
    match pairwise_stored(&near, None, Metric::CityBlock, &options, device, &run) {
        Ok(found) => assert!(device.limits().f64 && found.distances.row(0)[1] == 1.0),
        Err(error) => assert!(!device.limits().f64 && error.to_string().contains("above"), "{error}"),
    }
    // The two arrays are of different types.
    let both = found(device, [Some(&arrays[0]), Some(&arrays[4])], Metric::CityBlock, &options, &run);
    assert_eq!(both.distances.data(), expected);
    // Whole numbers are exact, or refused.
    let most = if device.limits().f64 { (1i64 << 53) - 1 } else { 1 << 24 };
    for (value, fits) in [(most, true), (most + 1, false), (most + 2, false)] {
        let large = stored(&[value, 0], [2, 1], [2, 1]);
        match pairwise_stored(&large, None, Metric::CityBlock, &options, device, &run) {
            Ok(found) => assert!(fits && found.distances.row(0)[1] == value as f64),
            Err(error) => {
                let is_named = matches!(&error, Error::Chunk { .. }) && error.to_string().contains("above");
                assert!(!fits && is_named, "{error}");
            }
        }
    }
}

/// Uses a metric that first divides observations by their sums.
fn both_passes(device: &Device) {
    let mut x: Vec<f32> = values::<f32>(3, 4 * 1500).iter().map(|x| x.abs()).collect();
    let tensor = |x: &[f32]| Tensor::from_slice(device, x, &[4, 1500]).unwrap();
    let options = Options::default();
    for nan in [false, true] {
        if nan {
            x[1700] = f32::NAN;
        }
        let expected =
            pairwise_counted(&tensor(&x), None, Metric::JensenShannon, &options, &Run::default()).unwrap();
        let (run, told) = told(|_| false);
        let array = stored(&x, [4, 1500], [4, 400]);
        assert_close(&found(device, [Some(&array), None], Metric::JensenShannon, &options, &run), &expected);
        let told = told.lock().unwrap();
        let told = told.iter().map(|status| (status.pass, status.rows));
        assert!(told.eq([(0, 1280), (0, 1500), (1, 1280), (1, 1500)]));
    }
}

fn empty(device: &Device) {
    let (options, run) = (Options::default(), Run::default());
    for shape in [[0, 3], [3, 0]] {
        let x = stored::<f32>(&[], shape, [1, 1]);
        let found = found(device, [Some(&x), None], Metric::Euclidean, &options, &run);
        assert_eq!(found.distances.data(), vec![0.0; usize::try_from(shape[0] * shape[0]).unwrap()]);
    }
}

fn refused(device: &Device) {
    let (options, run) = (Options::default(), Run::default());
    let of = |x: &Array, y: Option<&Array>, run: &Run| {
        pairwise_stored(x, y, Metric::Euclidean, &options, device, run).unwrap_err()
    };
    let x = stored(&[1.0f32; 6], [3, 2], [3, 2]);
    let line: Array = Arc::new(MemoryArray::new("x", &[1.0f32; 6], &[6], &[6]).unwrap());
    let wide = stored(&[1.0f32; 6], [2, 3], [2, 3]);
    assert!(matches!(of(&line, None, &run), Error::Shape { .. }));
    assert!(matches!(of(&x, Some(&wide), &run), Error::Shape { .. }));
    let none = neighbors_stored(&x, None, 0, Metric::CityBlock, &options, device, &run);
    assert!(matches!(none, Err(Error::Argument { name: "k", .. })), "{none:?}");
    let infinite = stored(&[1.0f32, f32::INFINITY], [2, 1], [2, 1]);
    assert!(matches!(of(&infinite, None, &run), Error::Argument { name: "x", .. }));
    least(|run| pairwise_stored(&x, None, Metric::Euclidean, &options, device, run));
    assert_eq!(x.dtype(), StoredType::F32);
}
