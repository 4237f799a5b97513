//! Tests of the decomposition of stored matrices: against faer's of the same matrix, centred and scaled in f64.

use std::ops::Range;

use faer::{Mat, Scale};

use super::{spectrum::distance_from_orthonormal, *};
use crate::{
    linalg::{SignRule, Stop, SvdOptions, host},
    openings::within,
    random::gaussian,
    store::{MemoryArray, Storable},
    stream::{Center, StoredSvd, StoredSvdOptions, SvdMethod, SvdRoute, svd_stored},
};

device_tests! {
    missing_elements, bad_arguments_are_named;
    tiny_and_huge, powers_of_two_change_no_bit, memory_and_chunks_change_no_bit, least_memory, explained_variance,
    signs_follow_their_rules;
    centred_and_scaled_far_from_zero, every_type, edge_shapes,
}

const CENTERS: [Center; 4] = [Center::None, Center::Columns, Center::Rows, Center::Both];

fn options() -> StoredSvdOptions {
    StoredSvdOptions::default()
}

/// Returns values of a matrix: three patterns of different sizes and noise, times `size`, from `offset` on.
fn values([m, n]: [usize; 2], offset: f64, size: f64) -> Vec<f64> {
    let pattern = |seed, i: usize| gaussian(seed, i as u64);
    let element = |i: usize, j: usize| {
        let sum: f64 = (0..3).map(|p| 3.0 / (p + 1) as f64 * pattern(p, i) * pattern(p + 3, j)).sum();
        offset + size * (sum + 0.1 * pattern(7, i * n + j))
    };
    (0..m * n).map(|at| element(at / n, at % n)).collect()
}

/// Returns two arrays in chunks that fit no block, appended along their rows.
fn arrays<T: Storable>(values: &[T], [m, n]: [usize; 2]) -> Vec<Array> {
    let cut = |rows: Range<usize>| {
        let shape = [(rows.end - rows.start) as u64, n as u64];
        let array =
            MemoryArray::new(format!("{rows:?}"), &values[rows.start * n..rows.end * n], &shape, &[37, 23]);
        Arc::new(array.unwrap()) as Array
    };
    vec![cut(0..m / 3), cut(m / 3..m)]
}

/// Returns the matrix, centred and scaled as the options say.
fn standardized(values: &[f64], [m, n]: [usize; 2], options: &StoredSvdOptions) -> Mat<f64> {
    let mut a = Mat::from_fn(m, n, |i, j| values[i * n + j]);
    let mean = |values: &[f64]| {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        mean + values.iter().map(|x| x - mean).sum::<f64>() / values.len() as f64
    };
    let deviation = |values: &[f64]| {
        let mean = mean(values);
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / values.len() as f64;
        if variance > 0.0 { variance.sqrt() } else { 1.0 }
    };
    let columns = matches!(options.center, Center::Columns | Center::Both);
    let rows = matches!(options.center, Center::Rows | Center::Both);
    for j in 0..n {
        let column: Vec<f64> = a.col(j).iter().copied().collect();
        let (shift, scale) = (if columns { mean(&column) } else { 0.0 }, deviation(&column));
        let scale = if options.scale && !rows { scale } else { 1.0 };
        (0..m).for_each(|i| a[(i, j)] = (a[(i, j)] - shift) / scale);
    }
    for i in (0..m).filter(|_| rows) {
        let row: Vec<f64> = a.row(i).iter().copied().collect();
        let (shift, scale) = (mean(&row), if options.scale { deviation(&row) } else { 1.0 });
        (0..n).for_each(|j| a[(i, j)] = (a[(i, j)] - shift) / scale);
    }
    a
}

/// Returns U and V.
fn vectors(svd: &StoredSvd) -> [Mat<f64>; 2] {
    let k = svd.s.len();
    let side = |is_left: bool| {
        let (mut all, mut next) = (Vec::new(), 0);
        let mut take = |first: u64, rows: &Matrix| {
            assert!(first == next && first.is_multiple_of(1024) && rows.cols() == k, "{first} after {next}");
            next += rows.rows() as u64;
            all.extend(rows.data());
            Ok(())
        };
        let run = Run::default();
        if is_left { svd.left(&run, &mut take) } else { svd.right(&run, &mut take) }.unwrap();
        let rows = svd.shape[usize::from(!is_left)];
        // A side without elements may come in no block.
        assert!(next == rows || k == 0 && all.is_empty(), "{next} of {rows}");
        Mat::from_fn(rows as usize, k, |i, j| all[i * k + j])
    };
    [side(true), side(false)]
}

/// Checks values, that `A v = s u`, and that vectors are orthonormal, all to `close` of the largest value. `a` is the centred and scaled matrix.
fn check(name: &str, a: &Mat<f64>, svd: &StoredSvd, close: f64) {
    let (_, expected, _) = host::singular("test", a.as_ref()).unwrap();
    let [u, v] = vectors(svd);
    let scale = expected[0].max(f64::MIN_POSITIVE);
    for (i, s) in svd.s.iter().enumerate() {
        let error = (s - expected[i]).abs() / scale;
        assert!(error <= close, "{name}: value {i} is {s}, not {}: off by {error:.1e}", expected[i]);
        let image = a * v.col(i);
        let error = (image - u.col(i) * Scale(*s)).norm_l2() / scale;
        assert!(error <= 10.0 * close, "{name}: A v - s u of {i} is {error:.1e}");
    }
    // Columns of U for values that count as 0 are 0.
    let large = svd.s.iter().take_while(|s| **s > 0.01 * scale).count();
    for (side, vectors) in [("u", u), ("v", v)] {
        let distance = distance_from_orthonormal(vectors.subcols(0, large));
        assert!(distance <= 30.0 * close, "{name}: {side} is {distance:.1e} from orthonormal");
    }
    let total = a.norm_l2().powi(2);
    assert!((svd.total - total).abs() <= 1e-6 * total, "{name}: total {} is not {total}", svd.total);
}

/// Returns decompositions by the iteration, exactly, and exactly with the least memory, which takes the Gram matrix.
fn by_all(
    name: &str,
    arrays: &[Array],
    k: usize,
    options: &StoredSvdOptions,
    dev: &Device,
) -> Vec<StoredSvd> {
    let solve = |method, run: &Run| svd_stored(arrays.to_vec(), k, &options.method(method), dev, run);
    let all = [SvdMethod::Randomized, SvdMethod::Exact, SvdMethod::Auto]
        .map(|method| solve(method, &Run::default()));
    let mut all: Vec<_> =
        all.into_iter().map(|svd| svd.unwrap_or_else(|error| panic!("{name}: {error}"))).collect();
    assert_eq!([all[0].route, all[1].route], [SvdRoute::KrylovOnDevice, SvdRoute::Qr], "{name}");
    let (_, least) = least(|run| solve(SvdMethod::Exact, run));
    all.push(least);
    all
}

fn centred_and_scaled_far_from_zero(dev: &Device) {
    for shape @ [m, n] in [[1500, 40], [40, 1500]] {
        let mut values: Vec<f64> = values(shape, 1e6, 1.0).into_iter().map(|x| f64::from(x as f32)).collect();
        // A column and a row are constant, and no power of two.
        (0..m).for_each(|i| values[i * n + 5] = 1_000_000.1f32.into());
        (0..n).for_each(|j| values[7 * n + j] = 999_999.9f32.into());
        let stored: Vec<f32> = values.iter().map(|&x| x as f32).collect();
        let mut gram = 0;
        for (center, scale) in CENTERS.into_iter().flat_map(|center| [(center, false), (center, true)]) {
            if center == Center::Both && scale {
                continue;
            }
            // By one seed in four, the fourth value, which is 6e-3 of the first, is off by up to half as much again: products in f32 leave its
            // square an error of some 1e-7 of the first's.
            let options = options().center(center).scale(scale).svd(SvdOptions::default().seed(1));
            let (a, name) = (standardized(&values, shape, &options), format!("{shape:?} {center:?} {scale}"));
            for svd in by_all(&name, &arrays(&stored, shape), 4, &options, dev) {
                gram += usize::from(svd.route == SvdRoute::Gram);
                // All but the first value are lost by products in f32 if the mean stays.
                let close = if center == Center::None { 2e-3 } else { 3e-6 };
                check(&format!("{name} {:?}", svd.route), &a, &svd, close);
            }
        }
        assert!(gram >= 7 || !dev.shares_host_memory(), "{gram} by the Gram matrix");
    }
}

fn every_type(dev: &Device) {
    let shape = [130, 30];
    let check_type = |name: &str, exact: &[f64], arrays: &[Array], is_wide: bool| {
        let options = options().center(Center::Columns);
        let a = standardized(exact, shape, &options);
        for (narrow, method) in
            [(false, SvdMethod::Exact), (false, SvdMethod::Randomized), (true, SvdMethod::Exact)]
        {
            let options =
                options.method(method).narrow(narrow).svd(SvdOptions::default().stop(Stop::Tolerance(1e-9)));
            let solved = svd_stored(arrays.to_vec(), 3, &options, dev, &Run::default());
            if name == "f64" && !narrow && !dev.limits().f64 {
                assert_err!(solved, Error::NoF64 { .. });
                continue;
            }
            let (svd, in_f64) = (solved.unwrap(), is_wide && !narrow && dev.limits().f64);
            assert_eq!(svd.in_f64, in_f64, "{name}");
            check(&format!("{name} {method:?} {narrow}"), &a, &svd, if in_f64 { 1e-13 } else { 2e-6 });
        }
    };
    macro_rules! types {
        ($($type:ident: $offset:expr, $size:expr, $wide:expr;)*) => {$({
            let stored: Vec<$type> = values(shape, $offset, $size).into_iter().map(|x| x as $type).collect();
            let exact: Vec<f64> = stored.iter().map(|&x| x as f64).collect();
            check_type(stringify!($type), &exact, &arrays(&stored, shape), $wide);
        })*};
    }
    types! {
        i8: 3.0, 8.0, false; u8: 128.0, 9.0, false; i16: -20_000.0, 1000.0, false; u16: 60_000.0, 500.0, false;
        i32: -2e9, 1e6, true; u32: 4e9, 1e6, true; i64: -9e15, 1e6, true; u64: 9e15, 1e6, true;
        f32: 1e6, 1.0, false; f64: 1e6, 1e-3, true;
    }
    let stored: Vec<f16> = values(shape, 100.0, 1.0).into_iter().map(f16::from_f64).collect();
    let exact: Vec<f64> = stored.iter().map(|x| x.to_f64()).collect();
    check_type("f16", &exact, &arrays(&stored, shape), false);
}

fn tiny_and_huge(dev: &Device) {
    let shape = [200, 30];
    for size in [1e-37, 1e-28, 1e28, 1e36] {
        let stored: Vec<f32> = values(shape, size, size).into_iter().map(|x| x as f32).collect();
        let exact: Vec<f64> = stored.iter().map(|&x| x.into()).collect();
        let options = options().center(Center::Columns);
        let a = standardized(&exact, shape, &options);
        for svd in by_all("f32", &arrays(&stored, shape), 3, &options, dev) {
            check(&format!("{size:e} {:?}", svd.route), &a, &svd, 3e-6);
        }
    }
    for size in [1e-145, 1e145] {
        let values = values(shape, size, size);
        let options = options().scale(true).narrow(true);
        let svd = svd_stored(arrays(&values, shape), 3, &options, dev, &Run::default()).unwrap();
        check(&format!("f64 {size:e}"), &standardized(&values, shape, &options), &svd, 3e-6);
    }
}

/// Elements near 1 are multiplied as they are stored, others after a division by a power of two.
fn powers_of_two_change_no_bit(dev: &Device) {
    let (shape, options) = ([200, 30], options().method(SvdMethod::Randomized));
    let solve = |factor: f32| {
        let stored: Vec<f32> = values(shape, 1.0, 1.0).into_iter().map(|x| x as f32 * factor).collect();
        let svd = svd_stored(arrays(&stored, shape), 3, &options, dev, &Run::default()).unwrap();
        svd.s.iter().map(|s| s / f64::from(factor)).collect::<Vec<_>>()
    };
    for power in [-90, -10, 20, 50] {
        assert_eq!(solve(2f32.powi(power)), solve(1.0), "{power}");
    }
}

fn edge_shapes(dev: &Device) {
    for shape @ [m, n] in [[1, 1], [1, 7], [7, 1], [2, 2], [1025, 3], [3, 1025]] {
        let stored: Vec<f32> = values(shape, 10.0, 1.0).into_iter().map(|x| x as f32).collect();
        let exact: Vec<f64> = stored.iter().map(|&x| x.into()).collect();
        for center in CENTERS {
            let options = options().center(center);
            let a = standardized(&exact, shape, &options);
            for method in [SvdMethod::Auto, SvdMethod::Exact, SvdMethod::Randomized] {
                let options = options.method(method);
                let svd = svd_stored(arrays(&stored, shape), m.min(n), &options, dev, &Run::default());
                let name = format!("{shape:?} {center:?} {method:?}");
                check(&name, &a, &svd.unwrap_or_else(|error| panic!("{name}: {error}")), 2e-3);
            }
        }
    }
    for shape in [[0, 0], [0, 5], [5, 0], [4, 4]] {
        for method in [SvdMethod::Auto, SvdMethod::Exact, SvdMethod::Randomized] {
            let options = options().method(method).center(Center::Both);
            let ones = arrays(&vec![1f32; shape[0] * shape[1]], shape);
            let svd = svd_stored(ones, 0, &options, dev, &Run::default()).unwrap();
            assert!(svd.s.is_empty() && svd.shares().is_empty());
            vectors(&svd);
        }
    }
    // Zeros, and a matrix that is constant, have values of 0.
    for center in [Center::Columns, Center::Both] {
        for svd in by_all("constant", &arrays(&[0.1f32; 300], [30, 10]), 3, &options().center(center), dev) {
            assert_eq!((&svd.s[..], svd.total, svd.shares()), (&[0.0; 3][..], 0.0, vec![0.0; 3]));
            assert!(svd.converged.iter().all(|converged| *converged));
        }
    }
}

fn memory_and_chunks_change_no_bit(dev: &Device) {
    let shape = [2100, 60];
    let stored: Vec<f32> = values(shape, 1e3, 1.0).into_iter().map(|x| x as f32).collect();
    let array = |chunk: &[u64]| -> Vec<Array> {
        vec![Arc::new(MemoryArray::new("a", &stored, &[2100, 60], chunk).unwrap())]
    };
    let svd = SvdOptions::default().stop(Stop::PowerIterations(1)).oversamples(2);
    for center in [Center::Columns, Center::Rows] {
        let options = options().center(center).svd(svd);
        for method in [SvdMethod::Randomized, SvdMethod::Exact] {
            let solve = |arrays, run: &Run| svd_stored(arrays, 4, &options.method(method), dev, run);
            let whole = solve(array(&[2100, 60]), &Run::default()).unwrap();
            let other = solve(arrays(&stored, shape), &Run::default()).unwrap();
            let (least, _) = least(|run| solve(array(&[100, 60]), run));
            assert_eq!((&whole.s, vectors(&whole)), (&other.s, vectors(&other)));
            // The basis fits without a restart, and the matrix does not.
            let less = solve(array(&[100, 60]), &within(least + 300_000)).unwrap();
            if method == SvdMethod::Randomized {
                let streamed = [SvdRoute::KrylovOnDevice, SvdRoute::KrylovStreamed];
                assert!([whole.route, less.route] == streamed || !dev.shares_host_memory());
                assert_eq!((&whole.s, vectors(&whole)), (&less.s, vectors(&less)));
            }
        }
    }
}

fn least_memory(dev: &Device) {
    let stored: Vec<f32> = values([3000, 20], 1e3, 1.0).into_iter().map(|x| x as f32).collect();
    for center in CENTERS {
        for method in [SvdMethod::Auto, SvdMethod::Exact, SvdMethod::Randomized] {
            let options = options().center(center).method(method);
            let (_, svd) = least(|run| svd_stored(arrays(&stored, [3000, 20]), 2, &options, dev, run));
            let is_streamed = matches!(svd.route, SvdRoute::Gram | SvdRoute::KrylovStreamed);
            assert!(is_streamed || !dev.shares_host_memory(), "{:?}", svd.route);
        }
    }
}

fn explained_variance(dev: &Device) {
    let shape = [200, 12];
    let stored = values(shape, 5.0, 1.0);
    for center in CENTERS {
        let options = options().center(center).narrow(true);
        let svd = svd_stored(arrays(&stored, shape), 12, &options, dev, &Run::default()).unwrap();
        assert!((svd.shares().iter().sum::<f64>() - 1.0).abs() < 1e-5);
        let Some(variance) = svd.explained_variance() else {
            assert!(matches!(center, Center::None | Center::Rows));
            continue;
        };
        // The variances of the columns, of which there are 199 independent deviations.
        let a = standardized(&stored, shape, &options);
        assert!((variance.iter().sum::<f64>() / (a.norm_l2().powi(2) / 199.0) - 1.0).abs() < 1e-5);
    }
}

fn signs_follow_their_rules(dev: &Device) {
    for shape in [[200, 12], [12, 200]] {
        let stored: Vec<f32> = values(shape, 5.0, 1.0).into_iter().map(|x| x as f32).collect();
        let largest = |x: Vec<f64>| x.into_iter().max_by(|x, y| x.abs().total_cmp(&y.abs())).unwrap();
        for (rule, side) in [(SignRule::MaxAbsU, 0), (SignRule::MaxAbsV, 1)] {
            let options = options().center(Center::Columns).svd(SvdOptions::default().sign(rule));
            for svd in by_all("signs", &arrays(&stored, shape), 3, &options, dev) {
                let vectors = vectors(&svd);
                for j in 0..3 {
                    let column = vectors[side].col(j).iter().copied().collect();
                    assert!(largest(column) > 0.0, "{shape:?} {rule:?} {:?}", svd.route);
                }
            }
        }
    }
}

fn missing_elements(dev: &Device) {
    let shape @ [m, n] = [90, 6];
    let mut stored: Vec<f32> = values(shape, 100.0, 1.0).into_iter().map(|x| x as f32).collect();
    for at in [40 * n + 2, 40 * n + 3, 77 * n] {
        stored[at] = f32::NAN;
    }
    let solve = |stored: &[f32], options: &StoredSvdOptions| {
        svd_stored(arrays(stored, shape), 2, options, dev, &Run::default())
    };
    // The second array begins with row 30.
    let words = ["30..90", "3 elements of all arrays are NaN or missing, first in row 10, column 2"];
    assert!(matches!(assert_refused(solve(&stored, &options()), &words), Error::Store { .. }));
    let mut filled: Vec<f64> = stored.iter().map(|&x| x.into()).collect();
    for j in 0..n {
        let there: Vec<f64> = (0..m).map(|i| filled[i * n + j]).filter(|x| !x.is_nan()).collect();
        let mean = there.iter().sum::<f64>() / there.len() as f64;
        (0..m)
            .map(|i| i * n + j)
            .for_each(|at| filled[at] = if filled[at].is_nan() { mean } else { filled[at] });
    }
    for (center, scale) in [
        (Center::Columns, true),
        (Center::None, true),
        (Center::None, false),
        (Center::Rows, true),
        (Center::Both, false),
    ] {
        let options = options().center(center).scale(scale).missing_mean(true);
        let svd = solve(&stored, &options).unwrap();
        check(&format!("{center:?}"), &standardized(&filled, shape, &options), &svd, 3e-6);
        assert_eq!(svd.missing, 3);
    }
    (0..m).for_each(|i| stored[i * n + 4] = f32::NAN);
    let no_mean = solve(&stored, &options().missing_mean(true));
    assert_refused(no_mean, &["all elements of column 4 are NaN or missing"]);
    stored[50 * n + 2] = f32::INFINITY;
    assert_refused(solve(&stored, &options()), &["30..90", "chunk [0, 0]", "row 50, element 2", "inf"]);
    stored[0] = f32::NEG_INFINITY;
    assert_refused(solve(&stored, &options()), &["0..30", "chunk [0, 0]", "row 0, element 0", "-inf"]);
}

fn bad_arguments_are_named(dev: &Device) {
    let stored: Vec<f64> = values([20, 6], 0.0, 1.0);
    let solve = |k, options: &StoredSvdOptions| {
        svd_stored(arrays(&stored, [20, 6]), k, &options.narrow(true), dev, &Run::default())
    };
    assert_refused(solve(7, &options()), &["`k`: 7 components of a matrix of 20 x 6, which has at most 6"]);
    assert_refused(solve(2, &options().center(Center::Both).scale(true)), &["`scale`"]);
    let stop = SvdOptions::default().stop(Stop::Tolerance(0.0));
    assert_refused(solve(2, &options().method(SvdMethod::Randomized).svd(stop)), &["`stop`"]);
    let solve = |arrays| svd_stored(arrays, 1, &options().narrow(true), dev, &Run::default());
    assert_refused(solve(Vec::new()), &["`arrays`: none given"]);
    let array = |shape: &[u64], x: f64| -> Array {
        let values = vec![x; shape.iter().product::<u64>() as usize];
        Arc::new(MemoryArray::new("a", &values, shape, shape).unwrap())
    };
    assert_err!(solve(vec![array(&[4], 1.0)]), Error::Shape { .. });
    assert_err!(solve(vec![array(&[4, 2], 1.0), array(&[4, 3], 1.0)]), Error::Shape { .. });
    assert_refused(solve(vec![array(&[4, 2], 1e200)]), &["squares", "beyond f64"]);
    let cancel = Cancel::default();
    cancel.cancel();
    let run = Run::default().cancel(cancel);
    for (device, run) in [(dev, run.clone()), (&dev.cancelled_by(&run.cancel), Run::default())] {
        let stopped = svd_stored(vec![array(&[4, 2], 1.0)], 1, &options().narrow(true), device, &run);
        assert_err!(stopped, Error::Cancelled);
    }
}
