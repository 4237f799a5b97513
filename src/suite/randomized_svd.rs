//! Tests of randomized decomposition over maps: passes, stopping, restarts, signs and every error.

use std::cell::Cell;

use faer::Mat;

use super::{spectrum::*, *};
use crate::{
    linalg::{LinearMap, Pass, RightSvd, RowSink, Stop, SvdOptions, host, randomized_svd},
    random::gaussian,
    store::MemoryArray,
    stream::StoredMatrix,
};

device_tests! {
    narrow_elements, edge_shapes, bad_arguments_are_named, bad_products_are_named, cancelled_between_blocks,
    progress_counts_up;
    past_the_rank, least_memory_of_a_stored_matrix, wide_types;
    power_iterations_count_passes, seeds_agree_and_runs_are_equal, restarts_reach_the_same,
    values_vectors_and_residuals, flat_spectrum_takes_passes,
}

fn solve(map: &dyn LinearMap, k: usize, options: &SvdOptions) -> RightSvd {
    randomized_svd(map, k, options, &Run::default()).unwrap()
}

fn stop(stop: Stop) -> SvdOptions {
    SvdOptions { stop, ..SvdOptions::default() }
}

/// Returns a few large values over a flat rest, as genotypes have.
fn flat(count: usize) -> Vec<f64> {
    let rest = (0..count).map(|i| 1.0 - 0.6 * i as f64 / count as f64);
    [4.0, 2.5, 2.2].into_iter().chain(rest).take(count).collect()
}

fn check(name: &str, a: &Mat<f64>, spectrum: &[f64], found: &RightSvd) {
    let v = found.v.as_faer();
    assert!(distance_from_orthonormal(v) <= 1e-12, "{name}: v is not orthonormal");
    let gram = host::product(a.transpose(), a.as_ref());
    let image = host::product(gram.as_ref(), v);
    for j in 0..found.s.len() {
        let (s, expected) = (found.s[j], spectrum.get(j).copied().unwrap_or(0.0));
        if found.converged[j] {
            let close = (s - expected).abs() <= 1e-5 * expected + 2e-3 * f64::from(expected < 2e-3);
            assert!(close, "{name}: value {j} is {s}, not {expected}");
        }
        if s > 0.0 {
            let error = (image.col(j) - v.col(j) * faer::Scale(s * s)).norm_l2() / (s * found.s[0]);
            let told = found.residuals[j];
            assert!((error - told).abs() <= 1e-5 + 0.01 * told, "{name}: residual {told:.2e} is {error:.2e}");
        }
    }
}

fn values_vectors_and_residuals(dev: &Device) {
    // There are more rows than one block and two blocks of 1,024, and fewer.
    for (m, n) in [(1100, 200), (200, 1100), (2100, 64)] {
        let spectrum = geometric(m.min(n), 100.0);
        let a = with_spectrum(m, n, &spectrum, 3);
        for k in [1, 5, 20] {
            let found = solve(&upload::<f32>(dev, a.as_ref()), k, &SvdOptions::default());
            let name = format!("({m}, {n}), k = {k}");
            check(&name, a, &spectrum, &found);
            assert!(found.is_converged() && found.s.len() == k, "{name}: {:?}", found.residuals);
        }
    }
}

fn flat_spectrum_takes_passes(dev: &Device) {
    let spectrum = flat(340);
    // There are more rows than a block of 1,024.
    let a = with_spectrum(1030, 340, &spectrum, 3);
    let x = upload::<f32>(dev, a.as_ref());
    let found = solve(&x, 10, &SvdOptions::default().oversamples(10));
    check("to tolerance", a, &spectrum, &found);
    assert!(found.is_converged() && (8..=24).contains(&found.passes), "{} passes", found.passes);
    // Without oversamples, some more passes are needed, each at half the cost.
    let narrow = solve(&x, 10, &SvdOptions::default());
    check("without oversamples", a, &spectrum, &narrow);
    assert!(narrow.is_converged() && narrow.passes < 2 * found.passes, "{} passes", narrow.passes);
    let short = solve(&x, 10, &SvdOptions { max_passes: 3, ..SvdOptions::default() });
    check("3 passes", a, &spectrum, &short);
    assert!(short.passes == 3 && !short.converged[9] && short.residuals[0] < short.residuals[9]);
}

fn power_iterations_count_passes(dev: &Device) {
    let spectrum = flat(300);
    let a = with_spectrum(1000, 300, &spectrum, 3);
    let mut last = f64::INFINITY;
    for q in 0..5 {
        let found = solve(&upload::<f32>(dev, a.as_ref()), 8, &stop(Stop::PowerIterations(q)));
        assert_eq!(found.passes, q + 2);
        check(&format!("q = {q}"), a, &spectrum, &found);
        let error = (0..8).map(|j| (found.s[j] / spectrum[j] - 1.0).abs()).fold(0.0, f64::max);
        assert!(error < last, "q = {q}: {error} after {last}");
        last = error;
    }
}

fn narrow_elements(dev: &Device) {
    let values: Vec<i8> = (0..700 * 90).map(|i| (gaussian(1, i) * 2.0) as i8).collect();
    let a = Mat::from_fn(700, 90, |i, j| f64::from(values[i * 90 + j]));
    let (_, spectrum, _) = host::singular("test", a.as_ref()).unwrap();
    let found = solve(&Tensor::from_slice(dev, &values, &[700, 90]).unwrap(), 4, &SvdOptions::default());
    check("i8", &a, &spectrum, &found);
    assert!(found.is_converged());
}

fn past_the_rank(dev: &Device) {
    for (m, n) in [(800, 120), (120, 800), (50, 10)] {
        let spectrum = geometric(3, 10.0);
        let a = with_spectrum(m, n, &spectrum, 3);
        for stop_at in [Stop::Tolerance(1e-4), Stop::PowerIterations(3)] {
            let found = solve(&upload::<f32>(dev, a.as_ref()), 8, &stop(stop_at));
            check(&format!("rank 3 of ({m}, {n})"), a, &spectrum, &found);
            assert_eq!((&found.s[3..], &found.residuals[3..]), (&[0.0; 5][..], &[0.0; 5][..]));
            assert!(found.is_converged() && found.passes <= 4, "{} passes", found.passes);
        }
    }
    let zeros = solve(&Tensor::<f32>::zeros(dev, &[40, 30]).unwrap(), 5, &SvdOptions::default());
    check("zeros", &Mat::zeros(40, 30), &[], &zeros);
    assert!(zeros.s == [0.0; 5] && zeros.is_converged() && zeros.passes == 1);
}

fn edge_shapes(dev: &Device) {
    for (m, n) in [(1, 1), (1, 9), (9, 1), (2, 2), (1025, 2), (3, 1024)] {
        let spectrum = geometric(m.min(n), 3.0);
        let a = with_spectrum(m, n, &spectrum, 5);
        let found = solve(&upload::<f32>(dev, a.as_ref()), m.min(n), &SvdOptions::default());
        check(&format!("({m}, {n})"), a, &spectrum, &found);
        assert!(found.is_converged());
    }
    for shape in [[0, 0], [0, 5], [5, 0], [5, 5]] {
        let found = solve(&Tensor::<f32>::zeros(dev, &shape).unwrap(), 0, &SvdOptions::default());
        assert_eq!((found.s.len(), found.v.rows() as u64, found.passes), (0, shape[1], 0));
    }
}

/// Tests integers beyond 2^24, and values that f32 flushes to 0.
fn wide_types(dev: &Device) {
    let spectrum = geometric(60, 1e6);
    let a = with_spectrum(500, 60, &spectrum, 3);
    let x = upload::<f64>(dev, a.as_ref());
    let whole: Vec<i32> = x.read().unwrap().iter().map(|x| (x * 1e9) as i32).collect();
    let whole = Tensor::from_slice(dev, &whole, &[500, 60]).unwrap();
    let options = SvdOptions::default().stop(Stop::Tolerance(1e-8));
    let found = randomized_svd(&x, 50, &options, &Run::default());
    if !dev.limits().f64 {
        assert!(matches!(found, Err(Error::NoF64 { .. })), "{found:?}");
        assert!(matches!(randomized_svd(&whole, 3, &options, &Run::default()), Err(Error::NoF64 { .. })));
        return;
    }
    let found = found.unwrap();
    assert!(found.is_converged());
    for (s, expected) in found.s.iter().zip(&spectrum) {
        // The rounding of products is relative to the square of the largest value.
        assert!((s - expected).abs() <= 1e-9 * expected + 1e-15 / expected, "{s} is not {expected}");
    }
    let same = solve(&whole.to_f64().unwrap(), 3, &options);
    assert_eq!(solve(&whole, 3, &options), same);
    assert!((same.s[0] - 1e9).abs() < 1e3);
}

fn restarts_reach_the_same(dev: &Device) {
    let spectrum = flat(400);
    // Restarts limit the basis, whose columns have 400 elements however many rows there are.
    let a = with_spectrum(450, 400, &spectrum, 3);
    let x = upload::<f32>(dev, a.as_ref());
    let options = SvdOptions { max_passes: 200, ..SvdOptions::default() };
    let free = solve(&x, 6, &options);
    // Memory holds 100 columns of the basis; without a restart, the iteration takes more.
    let column = 2 * 16 * 400;
    // The basis is on the device or on the host.
    let run = |bytes| Run { memory: Budget::default().host(bytes).device(bytes), ..Run::default() };
    let restarted = randomized_svd(&x, 6, &options, &run(column * (100 + 3 * 16 + 6))).unwrap();
    check("restarted", a, &spectrum, &restarted);
    assert!(restarted.is_converged() && restarted.passes > free.passes, "{} passes", restarted.passes);
    for (s, other) in free.s.iter().zip(&restarted.s) {
        assert!((s - other).abs() <= 1e-6 * s);
    }
    let error = randomized_svd(&x, 6, &options, &run(1000)).unwrap_err();
    let Error::Budget { memory, budget: 1000, minimum, .. } = error else { panic!("{error}") };
    let on_device = dev.limits().f64 && !dev.shares_host_memory();
    assert_eq!(memory, if on_device { MemoryKind::Device } else { MemoryKind::Host });
    let least = randomized_svd(&x, 6, &options, &run(minimum)).unwrap();
    check("least memory", a, &spectrum, &least);
    assert!(matches!(randomized_svd(&x, 6, &options, &run(minimum - 1)), Err(Error::Budget { .. })));
}

/// The least budget that an error names suffices for the basis and for passes over a stored matrix, and one byte less does not.
fn least_memory_of_a_stored_matrix(dev: &Device) {
    let values: Vec<f32> = (0..2100 * 70).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
    let array = MemoryArray::new("a", &values, &[2100, 70], &[300, 40]).unwrap();
    let a = StoredMatrix::new(vec![Arc::new(array)], dev).unwrap();
    let options = stop(Stop::PowerIterations(2));
    let (_, found) = least(|run| randomized_svd(&a, 3, &options, run));
    // The basis restarts, which may change last digits.
    for (s, expected) in found.s.iter().zip(&solve(&a, 3, &options).s) {
        assert!((s - expected).abs() <= 1e-6 * expected, "{s} for {expected}");
    }
}

fn bad_arguments_are_named(dev: &Device) {
    let x = upload::<f32>(dev, random(20, 6, 1).as_ref());
    let fails = |k: usize, options: &SvdOptions| match randomized_svd(&x, k, options, &Run::default()) {
        Err(Error::Argument { op: "randomized_svd", name, why }) => (name, why.to_string()),
        other => panic!("{other:?}"),
    };
    let (name, why) = fails(7, &SvdOptions::default());
    assert!(name == "k" && why.contains("7 components") && why.contains("20 x 6"), "{why}");
    for t in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert_eq!(fails(2, &stop(Stop::Tolerance(t))).0, "stop");
    }
    assert_eq!(fails(2, &SvdOptions { max_passes: 0, ..SvdOptions::default() }).0, "max_passes");
    let flat = Tensor::<f32>::zeros(dev, &[8]).unwrap();
    assert_err!(randomized_svd(&flat, 1, &SvdOptions::default(), &Run::default()), Error::Shape { .. });
    let run = Run::default();
    let pass = Pass::new(&run, Status::new(0, 1, 20));
    assert!(matches!(x.apply_normal(&Matrix::zeros(5, 2), &pass), Err(Error::Shape { .. })));
    assert!(matches!(x.apply(&Matrix::zeros(5, 2), &pass, &mut |_, _| Ok(())), Err(Error::Shape { .. })));
}

/// Multiplies as a tensor does, and then changes the product.
struct Spoiled<'a>(&'a Tensor<f32>, fn(Matrix) -> Matrix, Cell<u32>);

impl LinearMap for Spoiled<'_> {
    fn shape(&self) -> [u64; 2] {
        LinearMap::shape(self.0)
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        self.2.set(self.2.get() + 1);
        let product = self.0.apply_normal(x, pass)?;
        Ok(if self.2.get() == 2 { self.1(product) } else { product })
    }

    fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        self.0.apply(x, pass, sink)
    }
}

fn bad_products_are_named(dev: &Device) {
    let x = upload::<f32>(dev, with_spectrum(200, 50, &flat(50), 1).as_ref());
    let fails = |spoil| {
        let map = Spoiled(&x, spoil, Cell::new(0));
        randomized_svd(&map, 2, &SvdOptions::default().oversamples(10), &Run::default()).unwrap_err()
    };
    let nan = fails(|mut product| {
        product.data_mut()[3] = f64::NAN;
        product
    });
    let is_named = matches!(&nan, Error::Argument { name: "map", why, .. } if why.contains("1 of the 600"));
    assert!(is_named, "{nan}");
    assert!(matches!(fails(|_| Matrix::zeros(2, 2)), Error::Shape { .. }));
    let large = upload::<f32>(dev, Mat::from_fn(30, 8, |_, _| 1e25).as_ref());
    assert_refused(randomized_svd(&large, 2, &SvdOptions::default(), &Run::default()), &["overflow"]);
}

/// The call ends in the pass in which it is cancelled, whether the matrix is resident or stored.
fn cancelled_between_blocks(dev: &Device) {
    let x = upload::<f32>(dev, random(5000, 20, 1).as_ref());
    let array = MemoryArray::new("x", &x.read().unwrap(), &[5000, 20], &[50, 20]).unwrap();
    let stored = StoredMatrix::new(vec![Arc::new(array)], dev).unwrap();
    for map in [&x as &dyn LinearMap, &stored] {
        let (run, told) = told(|status| status.pass == 1);
        let options = stop(Stop::PowerIterations(5)).oversamples(2);
        assert_err!(randomized_svd(map, 3, &options, &run), Error::Cancelled);
        assert_eq!(told.lock().unwrap().last().map(|status| status.pass), Some(1));
    }
}

fn progress_counts_up(dev: &Device) {
    let x = upload::<f32>(dev, with_spectrum(3000, 100, &flat(100), 1).as_ref());
    let (run, told) = told(|_| false);
    let found = randomized_svd(&x, 2, &stop(Stop::PowerIterations(1)), &run).unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.len() as u32, 3 * found.passes);
    for (i, status) in told.iter().enumerate() {
        assert_eq!((status.pass, status.passes, status.total), (i as u32 / 3, 3, 3000));
        assert_eq!(status.rows, [1024, 2048, 3000][i % 3]);
        assert_eq!(status.residual.is_some(), i >= 3);
    }
}

fn with_seed(dev: &Device, seed: u64) -> RightSvd {
    let a = with_spectrum(1100, 150, &geometric(150, 50.0), 3);
    solve(&upload::<f32>(dev, a.as_ref()), 5, &SvdOptions { seed, ..SvdOptions::default() })
}

fn seeds_agree_and_runs_are_equal(dev: &Device) {
    let (first, other) = (with_seed(dev, 1), with_seed(dev, 2));
    assert_eq!(first, with_seed(dev, 1));
    assert_ne!(first.v, other.v);
    for (s, other) in first.s.iter().zip(&other.s) {
        assert!((s - other).abs() <= 2e-6 * s);
    }
}

#[test]
fn threads_change_nothing() {
    assert_eq!(with_seed(&threads(1), 1), with_seed(&threads(3), 1));
}
