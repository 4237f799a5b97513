//! Tests of sums over chunks of features, which are added, exported, merged and finished.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::distance::{
    BOUND, RULES, WIDE_BOUND, assert_within, each_pair, expected, metrics, nonnegative, observations,
    of_shares, rows,
};
use super::*;
use crate::distance::{
    Distances, Metric, Missing, Options, Partial, PartialSums, pairwise, pairwise_counted,
};

device_tests! {
    empty, nothing_to_frame, refused, f64_after_f32, cancelled_midway; every_metric, missing_elements, sizes_of_chunks, several_panels, large_means, zeros_taken_away, growing,
    what_does_not_merge,
}

/// Observations with `features` features each.
struct Data<'a, T> {
    values: &'a [T],
    features: usize,
}

impl<T: Sample> Data<'_, T> {
    fn count(&self) -> u64 {
        (self.values.len() / self.features) as u64
    }

    fn tensor(&self, device: &Device, from: usize, len: usize, columns: bool) -> Tensor<T> {
        let rows = self.values.chunks(self.features).flat_map(|row| &row[from..from + len]);
        let values: Vec<T> = rows.copied().collect();
        observations(device, &values, [self.count(), len as u64], columns)
    }

    fn sums(&self) -> Vec<f64> {
        self.values.chunks(self.features).map(|row| row.iter().map(|x| x.value()).sum()).collect()
    }
}

/// Returns the sums over chunks; `taken` has the length of each chunk and whether it is added.
fn added<T: Sample>(
    device: &Device,
    (x, y): (&Data<T>, Option<&Data<T>>),
    (metric, options): (Metric, &Options),
    taken: &[(usize, bool)],
) -> PartialSums {
    let mut partial = Partial::new(device, x.count(), y.map(Data::count), metric, options).unwrap();
    if metric == Metric::JensenShannon {
        partial = partial.with_sums(&x.sums(), y.map(Data::sums).as_deref()).unwrap();
    }
    let mut from = 0;
    for &(len, add) in taken {
        let tensor = |data: &Data<T>| data.tensor(device, from, len, options.columns);
        if add {
            partial.add(&tensor(x), y.map(tensor).as_ref()).unwrap();
        }
        from += len;
    }
    partial.export().unwrap()
}

fn bits(matrix: &Matrix) -> Vec<u64> {
    // All kinds of NaN are equal here.
    matrix.data().iter().map(|d| if d.is_nan() { f64::NAN.to_bits() } else { d.to_bits() }).collect()
}

/// Checks the sums of all chunks, and of odd and even chunks merged, against the definition, and if `exact` against each other.
fn check<T: Sample>(
    device: &Device,
    (x, y): (&Data<T>, Option<&Data<T>>),
    (metric, options): (Metric, &Options),
    chunks: &[usize],
    exact: bool,
) -> Distances {
    let taken = |which: fn(usize) -> bool| {
        let taken: Vec<_> = chunks.iter().enumerate().map(|(i, &len)| (len, which(i))).collect();
        added(device, (x, y), (metric, options), &taken)
    };
    let whole = taken(|_| true).finish().unwrap();
    let mut merged = taken(|i| i % 2 == 1);
    merged.merge(&taken(|i| i % 2 == 0)).unwrap();
    assert_eq!(merged.features, x.features as u64);
    let merged = merged.finish().unwrap();
    let (rows_x, rows_y) = (rows(x.values, x.count()), rows(y.unwrap_or(x).values, y.unwrap_or(x).count()));
    let bound = if T::DTYPE == DType::F64 && device.limits().f64 { WIDE_BOUND } else { BOUND };
    for result in [&whole, &merged] {
        assert_eq!([result.distances.rows(), result.distances.cols()], [rows_x.len(), rows_y.len()]);
        for ([i, j], [x, y_row]) in each_pair(&rows_x, &rows_y) {
            let what = format_args!("{metric:?} {options:?} {chunks:?} at {i}, {j}");
            let expected = expected(metric, x, y_row, options);
            let actual = result.distances.row(i)[j];
            if i == j && y.is_none() && metric.is_zero_on_diagonal() {
                assert!(actual == 0.0 || actual.is_nan() && expected.value.is_nan(), "{what}: {actual}");
            } else {
                assert_within(bound, what, actual, &expected);
            }
        }
    }
    if exact {
        assert_eq!(bits(&whole.distances), bits(&merged.distances), "{metric:?} {options:?}");
    }
    assert_eq!(whole.shared, merged.shared);
    whole
}

fn every_metric(device: &Device) {
    every_metric_of(device, |x| x);
    if device.limits().f64 {
        // The values use all bits of an f64.
        every_metric_of(device, |x| f64::from(x) / 3.0);
    }
}

fn every_metric_of<T: Sample>(device: &Device, of: impl Fn(f32) -> T) {
    let features = 20;
    let [x, y] = [(1, 5), (2, 3)]
        .map(|(seed, count)| nonnegative(seed, count * 20).into_iter().map(&of).collect::<Vec<T>>());
    let (x, y) = (Data { values: &x, features }, Data { values: &y, features });
    for (i, metric) in metrics().enumerate() {
        let options = Options { columns: i % 2 == 0, ..Options::default() };
        check(device, (&x, None), (metric, &options), &[3, 17], false);
        let result = check(device, (&x, Some(&y)), (metric, &options), &[19, 1], false);
        assert_eq!(result.shared, None);
    }
}

fn missing_elements(device: &Device) {
    let features = 14;
    let mut x: Vec<f32> = values::<u32>(3, 5 * 14).iter().map(|bits| (bits % 5) as f32 - 1.0).collect();
    x.iter_mut().step_by(9).for_each(|x| *x = f32::NAN);
    // One observation has only NaN, and one has only negative elements.
    x[..14].fill(f32::NAN);
    x[14..28].fill(-2.0);
    // This observation has NaN in the first chunk only.
    (x[56], x[63]) = (f32::NAN, 1.0);
    let y = [vec![f32::NAN; 14], x[42..].to_vec()].concat();
    let (x, y) = (Data { values: &x, features }, Data { values: &y, features });
    for (i, missing) in RULES.into_iter().enumerate() {
        let options = Options::default().missing(missing).negative(i % 2 == 1).columns(i == 1);
        let metrics = metrics().filter(|&metric| !of_shares(metric)).enumerate();
        // The last two rules differ for pairs that share no feature, so each metric tests one of the two.
        for (_, metric) in metrics.filter(|(of, _)| i < 2 || of % 2 == i % 2) {
            let exact = !matches!(metric, Metric::Canberra | Metric::Minkowski(_));
            let result = check(device, (&x, None), (metric, &options), &[1, 13], exact);
            if matches!(metric, Metric::Euclidean | Metric::SqEuclidean) {
                check(device, (&x, Some(&y)), (metric, &options), &[6, 8], exact);
                check(device, (&y, Some(&x)), (metric, &options), &[6, 8], exact);
                let tensor = x.tensor(device, 0, features, options.columns);
                let at_once = pairwise_counted(&tensor, None, metric, &options, &Run::default()).unwrap();
                assert_eq!(bits(&result.distances), bits(&at_once.distances), "{options:?}");
                assert_eq!(result.shared, at_once.shared, "{options:?}");
                assert_eq!(result.shared.is_some(), missing != Missing::Propagate);
            }
        }
    }
}

/// Chunks have sizes around the 256 features that are summed in f32, and other element types.
fn sizes_of_chunks(device: &Device) {
    let (features, chunks) = (769, [1, 255, 256, 257]);
    let x = values::<i8>(4, 3 * 769);
    let x = Data { values: &x, features };
    for columns in [false, true] {
        let of = (Metric::SqEuclidean, &Options { columns, ..Options::default() });
        check(device, (&x, None), of, &chunks, true);
    }
    let options = Options::default();
    let floats: Vec<f32> = x.values.iter().map(|&x| x.into()).collect();
    let floats = Data { values: &floats, features };
    let mut mixed = Partial::new(device, 3, None, Metric::CityBlock, &options).unwrap();
    mixed.add(&x.tensor(device, 0, 300, false), None).unwrap();
    mixed.add(&floats.tensor(device, 300, 469, false), None).unwrap();
    let mixed = mixed.export().unwrap().finish().unwrap();
    let at_once = |metric, x: &Data<f32>| {
        pairwise(&x.tensor(device, 0, features, false), None, metric, &options, &Run::default()).unwrap()
    };
    assert_eq!(mixed.distances, at_once(Metric::CityBlock, &floats));
    // Chunks are multiples of 256 features, whose values are not whole numbers.
    let x = values::<f32>(5, 3 * 769);
    let x = Data { values: &x, features };
    let sums =
        added(device, (&x, None), (Metric::Euclidean, &options), &[(256, true), (512, true), (1, true)]);
    assert_eq!(sums.finish().unwrap().distances, at_once(Metric::Euclidean, &x));
}

/// There are more sums than one binding holds, if bindings are small.
fn several_panels(device: &Device) {
    let (m, n) = (150, 70);
    let [x, y] = [(6, m), (7, n)].map(|(seed, count)| {
        values::<u8>(seed, 2 * count).iter().map(|&byte| (byte % 8) as i8 - 1).collect::<Vec<_>>()
    });
    let (x, y) = (Data { values: &x, features: 2 }, Data { values: &y, features: 2 });
    let options = Options { missing: Missing::Ignore, negative: true, ..Options::default() };
    for (x, y) in [(&x, None), (&x, Some(&y)), (&y, Some(&x))] {
        let of = (Metric::CityBlock, &options);
        let result = added(device, (x, y), of, &[(1, true), (1, true)]).finish().unwrap();
        let [tx, ty] = [Some(x), y].map(|data| data.map(|data| data.tensor(device, 0, 2, false)));
        let run = Run::default();
        let at_once = pairwise_counted(&tx.unwrap(), ty.as_ref(), of.0, &options, &run).unwrap();
        assert_eq!(result, at_once);
        let rows = [x, y.unwrap_or(x)].map(|data| rows(data.values, data.count()));
        for ([i, j], [x, y]) in each_pair(&rows[0], &rows[1]) {
            let shared = x.iter().zip(y).filter(|&(&x, &y)| x >= 0.0 && y >= 0.0).count();
            assert_eq!(at_once.shared.as_ref().unwrap().row(i)[j], shared as f64);
            assert_eq!(at_once.distances.row(i)[j], expected(of.0, x, y, &options).value, "{i} {j}");
        }
    }
    // Sums above the diagonal differ from sums below it.
    let floats = nonnegative(8, 2 * m);
    let floats = Data { values: &floats, features: 2 };
    let of = (Metric::KlDivergence, &Options::default());
    let result = added(device, (&floats, None), of, &[(2, true)]).finish().unwrap();
    let tensor = floats.tensor(device, 0, 2, false);
    assert_eq!(result.distances, pairwise(&tensor, None, of.0, of.1, &Run::default()).unwrap());
}

/// Correlations of elements far from 0 are accurate, however features are cut into chunks and parts.
fn large_means(device: &Device) {
    let features = 300;
    let mut x: Vec<f32> = values::<f32>(9, 3 * 300);
    for mean in [288.0, 1e6] {
        // One observation has a trend, and one begins with an element far from its mean.
        let mut far: Vec<f32> = x.iter().map(|x| x + mean).collect();
        (0..300u16).for_each(|f| far[300 + f as usize] += f32::from(f) / 100.0);
        far[600] = 0.0;
        // Other rules only rescale the same sums.
        for missing in [Missing::Propagate, Missing::Ignore] {
            let options = Options { missing, ..Options::default() };
            if missing != Missing::Propagate {
                // Not all pairs have this element.
                far[600] = mean;
                far.iter_mut().step_by(11).for_each(|x| *x = f32::NAN);
                // One observation has no element of the first chunk.
                far[..260].fill(f32::NAN);
            }
            let data = Data { values: &far, features };
            for chunks in [&[300][..], &[270, 1, 29], &[1, 299]] {
                check(device, (&data, None), (Metric::Correlation, &options), chunks, false);
            }
        }
        x.iter_mut().for_each(|x| *x = -*x);
    }
    // Chunks of features are multiples of 256.
    let far: Vec<f32> = values::<f32>(9, 3 * 600).iter().map(|x| x + 288.0).collect();
    let data = Data { values: &far, features: 600 };
    let of = |taken: &[(usize, bool)]| {
        let of = (Metric::Correlation, &Options::default());
        added(device, (&data, None), of, taken).finish().unwrap().distances
    };
    let whole = of(&[(600, true)]);
    assert_eq!(of(&[(256, true), (344, true)]), whole);
    assert_eq!(of(&[(512, true), (88, true)]), whole);
    assert!((0..3).all(|i| whole.row(i)[i] == 0.0));
}

/// Features of zeros that take no part are subtracted: the sums are as without them.
fn zeros_taken_away(device: &Device) {
    let features = 300;
    let x: Vec<f32> = values::<f32>(10, 3 * 300).iter().map(|x| x + 1.5).collect();
    let with_zeros: Vec<f32> =
        x.chunks(300).flat_map(|row| [&[0.0; 5], &row[..100], &[0.0; 20], &row[100..]].concat()).collect();
    for metric in [Metric::Correlation, Metric::Cosine, Metric::Euclidean] {
        let of = (metric, &Options::default());
        let expected = added(device, (&Data { values: &x, features }, None), of, &[(300, true)]);
        let mut found =
            added(device, (&Data { values: &with_zeros, features: 325 }, None), of, &[(325, true)]);
        found.take_zeros_away(25).unwrap();
        assert_eq!(found.features, 300);
        let [found_distances, expected] = [&found, &expected].map(|sums| sums.finish().unwrap().distances);
        for (found, expected) in found_distances.data().iter().zip(expected.data()) {
            assert!((found - expected).abs() <= 1e-5 * expected, "{metric:?}: {found} for {expected}");
        }
        says(found.take_zeros_away(301), "301 of 300");
    }
}

/// The frames of observations change although the other side has no observations, or an observation without any elements.
fn nothing_to_frame(device: &Device) {
    let tensor = |values: &[f32], shape: &[u64]| Tensor::from_slice(device, values, shape).unwrap();
    let options = Options { missing: Missing::Ignore, ..Options::default() };
    let far = |from: u16, len: u16| (from..from + len).map(|i| 1000.0 + f32::from(i % 7)).collect::<Vec<_>>();
    for metric in [Metric::Correlation, Metric::Cosine, Metric::Euclidean] {
        let mut none = Partial::new(device, 0, Some(1), metric, &options).unwrap();
        let mut lacking = Partial::new(device, 2, None, metric, &options).unwrap();
        for (from, len) in [(0, 100), (100, 400), (500, 100)] {
            let y = far(from, len)
                .iter()
                .map(|value| value * if from == 0 { 1e-25 } else { 1e15 })
                .collect::<Vec<_>>();
            none.add(&tensor(&[], &[0, len.into()]), Some(&tensor(&y, &[1, len.into()]))).unwrap();
            let with_nan = [far(from, len), vec![f32::NAN; len.into()]].concat();
            lacking.add(&tensor(&with_nan, &[2, len.into()]), None).unwrap();
        }
        assert_eq!(none.export().unwrap().finish().unwrap().distances.rows(), 0);
        let found = lacking.export().unwrap().finish().unwrap().distances;
        assert_eq!(found.row(0)[0], 0.0, "{metric:?}");
    }
}

/// Squares of elements are beyond f32, or far beyond earlier sums, as chunks are added.
fn growing(device: &Device) {
    let features = 90;
    for scales in [[1e-25, 1.0, 1.0], [1.0, 1.0, 1e25], [0.0, 1e-28, 1e-28]] {
        let x: Vec<f32> = nonnegative(11, 4 * 90)
            .iter()
            .enumerate()
            .map(|(i, x)| x / 256.0 * scales[i % 90 / 30])
            .collect();
        let data = Data { values: &x, features };
        for metric in metrics().filter(|&metric| !of_shares(metric)) {
            check(device, (&data, None), (metric, &Options::default()), &[30, 30, 30], false);
        }
    }
}

fn empty(device: &Device) {
    let options = Options { missing: Missing::Rescale, ..Options::default() };
    let zero = |shape: &[u64]| Tensor::<f32>::zeros(device, shape).unwrap();
    for (m, n) in [(0, None), (0, Some(2)), (2, Some(0)), (2, None)] {
        for metric in [Metric::CityBlock, Metric::Chebyshev, Metric::Correlation] {
            let mut partial = Partial::new(device, m, n, metric, &options).unwrap();
            partial.add(&zero(&[m, 0]), n.map(|n| zero(&[n, 0])).as_ref()).unwrap();
            let sums = partial.export().unwrap();
            let none = sums.finish().unwrap();
            assert_eq!((none.distances.rows(), none.distances.cols()), (m as usize, n.unwrap_or(m) as usize));
            assert!(none.distances.data().iter().all(|d| d.is_nan()));
            // A chunk of no features adds nothing.
            partial.add(&zero(&[m, 3]), n.map(|n| zero(&[n, 3])).as_ref()).unwrap();
            let mut all = partial.export().unwrap();
            let before = all.clone();
            all.merge(&sums).unwrap();
            assert_eq!(all, before);
        }
    }
}

fn says<T: std::fmt::Debug>(result: Result<T, Error>, words: &str) {
    assert_refused(result, &[words]);
}

fn refused(device: &Device) {
    let tensor = |values: &[f32], shape: &[u64]| Tensor::from_slice(device, values, shape).unwrap();
    let (plain, ignore) = (Options::default(), Options { missing: Missing::Ignore, ..Options::default() });
    let new = |n, metric, options| Partial::new(device, 2, n, metric, options);
    says(new(None, Metric::Minkowski(0.0), &plain), "above 0");
    says(new(None, Metric::Hellinger, &ignore), "no rule for missing elements");
    let most = device.limits().room() / 8;
    assert!(matches!(new(Some(most + 1), Metric::Dice, &plain), Err(Error::Limit { .. })));
    let (two, three) = (tensor(&[1.0, 2.0, 3.0, 4.0], &[2, 2]), tensor(&[1.0; 6], &[3, 2]));
    let mut alone = new(None, Metric::Hellinger, &plain).unwrap();
    alone.add(&two, None).unwrap();
    let before = alone.export().unwrap();
    says(alone.add(&three, None), "2 features of 2 observations of x");
    says(alone.add(&tensor(&[1.0; 4], &[4]), None), "a matrix");
    says(alone.add(&two, Some(&two)), "`y`: x is taken with itself");
    says(alone.add(&tensor(&[1.0, f32::INFINITY], &[2, 1]), None), "`x`: observation 1: an infinite element");
    says(alone.add(&tensor(&[-1.0, 1.0], &[2, 1]), None), "observation 0: a negative element");
    if !device.shares_host_memory() {
        let elsewhere = Tensor::from_slice(cpu(), &[1.0f32; 2], &[2, 1]).unwrap();
        assert!(matches!(alone.add(&elsewhere, None), Err(Error::WrongDevice { name: "x", .. })));
    }
    assert_eq!(alone.export().unwrap(), before);
    let mut both = new(Some(3), Metric::Euclidean, &plain).unwrap();
    says(both.add(&two, None), "`y`: is missing");
    says(both.add(&two, Some(&two)), "2 features of 3 observations of y");
    says(both.add(&two, Some(&tensor(&[1.0; 3], &[3, 1]))), "2 features of 3 observations of y");
    if !device.shares_host_memory() {
        let elsewhere = Tensor::from_slice(cpu(), &[1.0; 6], &[3, 2]).unwrap();
        assert!(matches!(both.add(&two, Some(&elsewhere)), Err(Error::WrongDevice { name: "y", .. })));
    }
    let infinite = tensor(&[1.0, 1.0, f32::NEG_INFINITY], &[3, 1]);
    says(both.add(&tensor(&[1.0; 2], &[2, 1]), Some(&infinite)), "`y`: observation 2");

    let divergence = |n| new(n, Metric::JensenShannon, &plain).unwrap();
    says(divergence(None).add(&two, None), "needs the sum of each observation");
    says(new(None, Metric::Dice, &plain).unwrap().with_sums(&[1.0; 2], None), "takes no sums");
    for sum in [-1.0, f64::INFINITY] {
        says(divergence(None).with_sums(&[1.0, sum], None), "`x`: observation 1 adds up to");
        says(divergence(Some(1)).with_sums(&[1.0; 2], Some(&[sum])), "`y`: observation 0 adds up to");
    }
    says(divergence(None).with_sums(&[1.0; 3], None), "2 sums of x and 0 of y");
    says(divergence(None).with_sums(&[1.0; 2], Some(&[1.0])), "2 sums of x and 0 of y");
    says(divergence(Some(3)).with_sums(&[1.0; 2], None), "2 sums of x and 3 of y");
    // An observation with NaN has no sum.
    let mut divergence = divergence(None).with_sums(&[f64::NAN, 7.0], None).unwrap();
    divergence.add(&tensor(&[f32::NAN, 1.0, 3.0, 4.0], &[2, 2]), None).unwrap();
    let result = divergence.export().unwrap().finish().unwrap().distances;
    assert!(result.row(0).iter().all(|d| d.is_nan()) && result.row(1)[0].is_nan() && result.row(1)[1] == 0.0);

    // Memory holds four distances and four numbers of features of 8 bytes, and the sums of a pair.
    let counted = |run: &Run| pairwise_counted(&two, None, Metric::Euclidean, &ignore, run);
    let (least, found) = least(counted);
    assert!(least > 64 && found == counted(&Run::default()).unwrap(), "{least}");
}

fn what_does_not_merge(device: &Device) {
    let sums = |m, n, metric, options: &Options| {
        Partial::new(device, m, n, metric, options).unwrap().export().unwrap()
    };
    let ignore = Options { missing: Missing::Ignore, ..Options::default() };
    let all = || sums(3, None, Metric::CityBlock, &ignore);
    let merge = |other: &PartialSums| {
        let mut into = all();
        let merged = into.merge(other);
        assert_eq!(into, all());
        merged
    };
    merge(&all()).unwrap();
    says(merge(&sums(3, None, Metric::Euclidean, &ignore)), "Euclidean");
    let rescale = Options { missing: Missing::Rescale, ..ignore };
    says(merge(&sums(3, None, Metric::CityBlock, &rescale)), "Rescale");
    says(merge(&sums(3, None, Metric::CityBlock, &Options { negative: true, ..ignore })), "true");
    says(merge(&sums(4, None, Metric::CityBlock, &ignore)), "4 observations with themselves");
    says(merge(&sums(3, Some(3), Metric::CityBlock, &ignore)), "3 observations with 3");
    // Exported sums that lost elements or frames are refused.
    let mut short = sums(3, None, Metric::Cosine, &ignore);
    short.frames_x.pop();
    says(short.finish(), "[3, 0] frames");
    let mut short = all();
    short.sums[1].pop();
    says(merge(&short), "2 x 6 sums");
    says(short.merge(&all()), "2 x 6 sums");
    says(short.finish(), "[6, 5]");
    short.sums.pop();
    says(short.finish(), "[6]");
    short.metric = Metric::Minkowski(f64::NAN);
    says(short.finish(), "above 0");
    // If missing elements are propagated, the option for negative ones does not matter.
    let negative = Options { negative: true, ..Options::default() };
    let mut plain = sums(3, None, Metric::CityBlock, &Options::default());
    plain.merge(&sums(3, None, Metric::CityBlock, &negative)).unwrap();
}

/// A chunk that needs f64 is refused after chunks that were added in f32; it is not rounded.
fn f64_after_f32(device: &Device) {
    let mut partial = Partial::new(device, 2, None, Metric::CityBlock, &Options::default()).unwrap();
    partial.add(&Tensor::from_slice(device, &[1u8, 3], &[2, 1]).unwrap(), None).unwrap();
    let added = partial.add(&Tensor::from_slice(device, &[1i16, 5], &[2, 1]).unwrap(), None);
    if device.limits().f64 {
        let Err(Error::Argument { name: "x", why, .. }) = added else { panic!("{device:?}: {added:?}") };
        assert!(why.contains("I16 in f64 after sums in f32"), "{why}");
    }
    let exported = partial.export().unwrap().finish().unwrap();
    assert_eq!(exported.distances.row(0)[1], if device.limits().f64 { 2.0 } else { 6.0 });
}

/// The flag is set at the n-th check, for each n: either nothing was added, or the sums are refused.
fn cancelled_midway(device: &Device) {
    let values: Vec<f32> = (0..200u8).map(f32::from).collect();
    let mut refused = false;
    for looks in 0.. {
        let left = AtomicUsize::new(looks);
        let cancel =
            Cancel::asking(move || left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err());
        let mut partial = Partial::new(device, 100, None, Metric::Cosine, &Options::default()).unwrap();
        let handle = device.cancelled_by(&cancel);
        let added = Tensor::from_slice(&handle, &values, &[100, 2]).and_then(|x| partial.add(&x, None));
        match (added, partial.export()) {
            (Ok(()), sums) => {
                assert_eq!(sums.unwrap().features, 2);
                break;
            }
            (Err(Error::Cancelled), Ok(sums)) => assert_eq!(sums.features, 0),
            (Err(Error::Cancelled), Err(error)) => {
                assert!(error.to_string().contains("cancelled midway"), "{error}");
                refused = true;
            }
            (Err(error), _) => panic!("{error}"),
        }
    }
    assert!(refused, "{device:?}");
}
