//! Tests of left vectors, from a pass and from products that were kept.
#![allow(clippy::cast_possible_truncation, reason = "small extents")]

use std::cell::Cell;

use faer::{Mat, Scale};

use super::{spectrum::*, *};
use crate::{
    Needs,
    linalg::{
        LinearMap, Pass, RightSvd, RowSink, SignRule, Stop, SvdOptions, host, left_vectors, randomized_svd,
    },
    store::MemoryArray,
    stream::StoredMatrix,
};

device_tests! {
    ;
    blocks_of_any_size_and_order, edge_shapes, of_f64_there_is_a_pass;
    kept_is_as_good_as_a_pass, after_a_restart_there_is_a_pass, scales_and_constant_columns, signs_take_no_pass,
    without_room_there_is_a_pass,
}

const STOP: SvdOptions = SvdOptions {
    oversamples: Some(5),
    stop: Stop::PowerIterations(2),
    max_passes: 64,
    seed: 4,
    sign: SignRule::Stable,
    left: true,
};

/// Counts the passes of another map, and makes no more than some of them.
pub(super) struct Counted<'a> {
    map: &'a dyn LinearMap,
    pub(super) count: Cell<u32>,
    most: u32,
}

impl<'a> Counted<'a> {
    fn new(map: &'a dyn LinearMap) -> Self {
        Self::most(map, u32::MAX)
    }

    pub(super) fn most(map: &'a dyn LinearMap, most: u32) -> Self {
        Self { map, count: Cell::new(0), most }
    }

    fn pass(&self) -> Result<()> {
        self.count.update(|count| count + 1);
        if self.count.get() > self.most { Err(Error::Cancelled) } else { Ok(()) }
    }
}

impl LinearMap for Counted<'_> {
    fn shape(&self) -> [u64; 2] {
        self.map.shape()
    }

    fn device(&self) -> Option<&Device> {
        self.map.device()
    }

    fn keeps_vectors_on(&self) -> Option<&Device> {
        self.map.keeps_vectors_on()
    }

    fn precision(&self) -> f64 {
        self.map.precision()
    }

    fn needs(&self, columns: u64) -> Needs {
        self.map.needs(columns)
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        self.map.apply_normal(x, pass)
    }

    fn apply_normal_rows(&self, x: &Tensor<f64>, pass: &Pass<'_>) -> Result<Tensor<f64>> {
        self.pass()?;
        self.map.apply_normal_rows(x, pass)
    }

    fn apply_both(
        &self,
        x: &Tensor<f64>,
        pass: &Pass<'_>,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tensor<f64>>> {
        let product = self.map.apply_both(x, pass, sink)?;
        if product.is_some() {
            self.pass()?;
        }
        Ok(product)
    }

    fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        self.pass()?;
        self.map.apply(x, pass, sink)
    }
}

pub(super) fn left(map: &dyn LinearMap, svd: &RightSvd) -> Mat<f64> {
    let [m, k] = [map.shape()[0] as usize, svd.s.len()];
    let (mut u, mut next) = (Mat::zeros(m, k), 0);
    left_vectors(map, svd, &Run::default(), &mut |first, rows| {
        assert_eq!((first, rows.cols()), (next, k));
        next += rows.rows() as u64;
        (0..rows.rows()).for_each(|i| (0..k).for_each(|j| u[(first as usize + i, j)] = rows.row(i)[j]));
        Ok(())
    })
    .unwrap();
    assert_eq!(next, m as u64);
    u
}

/// Returns the largest ‖A v - s u‖ / s₁, and max|UᵀU - I| over the components that are not 0.
fn errors(a: &Mat<f64>, svd: &RightSvd, u: &Mat<f64>) -> [f64; 2] {
    let rank = svd.s.iter().take_while(|s| **s > 0.0).count();
    assert!(u.subcols(rank, u.ncols() - rank).norm_max() == 0.0, "columns of values of 0 are 0");
    let image = host::product(a.as_ref(), svd.v.as_faer());
    let error = (0..rank).map(|j| (image.col(j) - u.col(j) * Scale(svd.s[j])).norm_l2() / svd.s[0]);
    [error.fold(0.0, f64::max), distance_from_orthonormal(u.subcols(0, rank))]
}

/// Decomposes with and without products that are kept. Values and right vectors are equal to the bit, and the left vectors of the kept
/// products are as good as those of a pass. Returns the kept ones.
fn compare(name: &str, a: &Mat<f64>, map: &dyn LinearMap, k: usize, options: &SvdOptions) -> Mat<f64> {
    let map = Counted::new(map);
    let solve = |options: &SvdOptions| randomized_svd(&map, k, options, &Run::default()).unwrap();
    let plain = solve(&options.left(false));
    map.count.set(0);
    let kept = solve(options);
    assert!((&kept.s, &kept.v, &kept.residuals) == (&plain.s, &plain.v, &plain.residuals), "{name}");
    assert_eq!(map.count.get(), kept.passes, "{name}");
    let u = left(&map, &kept);
    assert_eq!(map.count.get(), kept.passes, "{name}: a pass for left vectors");
    let by_pass = left(&map, &plain);
    assert_eq!(map.count.get(), kept.passes + 1, "{name}");
    let ([error, skew], [error_of_pass, skew_of_pass]) = (errors(a, &kept, &u), errors(a, &kept, &by_pass));
    // Both are errors of products in f32: of products with the basis, and of products with V.
    assert!(error <= 1.5 * error_of_pass + 2e-7, "{name}: {error:.1e}, and {error_of_pass:.1e} of a pass");
    assert!(skew <= 1.5 * skew_of_pass + 1e-6, "{name}: {skew:.1e}, and {skew_of_pass:.1e} of a pass");
    assert!(error <= 1e-6, "{name}: {error:.1e}");
    u
}

fn kept_is_as_good_as_a_pass(dev: &Device) {
    for (m, n, condition) in [(2100, 60, 20.0), (1024, 90, 300.0), (70, 1100, 1e6), (1025, 40, 1.0)] {
        let (a, name) = (with_spectrum(m, n, &geometric(m.min(n), condition), 3), format!("({m}, {n})"));
        let x = upload::<f32>(dev, a.as_ref());
        let u = compare(&name, a, &x, 10, &STOP);
        let elements = x.read().unwrap();
        let array = MemoryArray::new("a", &elements, &[m as u64, n as u64], &[300, 35]).unwrap();
        let stored = StoredMatrix::new(vec![Arc::new(array)], dev).unwrap();
        assert!(compare(&name, a, &stored, 10, &STOP) == u, "a stored matrix has the bits of a resident one");
        compare(&name, a, &x, 10, &STOP.stop(Stop::Tolerance(1e-3)));
    }
    let a = with_spectrum(9000, 60, &geometric(60, 20.0), 3);
    let x = upload::<f32>(dev, a.as_ref());
    let svd = randomized_svd(&x, 5, &SvdOptions::default().left(true), &Run::default()).unwrap();
    let [error, skew] = errors(a, &svd, &left(&x, &svd));
    assert!(error <= 1e-6 && skew <= 1e-4, "{error:.1e}, {skew:.1e}");
    for svd in [svd.clone(), randomized_svd(&x, 5, &SvdOptions::default(), &Run::default()).unwrap()] {
        let stopped = left_vectors(&x, &svd, &Run::default(), &mut |_, _| Err(Error::Cancelled));
        assert_err!(stopped, Error::Cancelled);
        let run = Run::default();
        run.cancel.cancel();
        assert_err!(left_vectors(&x, &svd, &run, &mut |_, _| Ok(())), Error::Cancelled);
    }
    // The left vectors belong to the right ones, also if a caller changes these.
    let mut changed = svd.clone();
    changed.v.negate_columns(&[true]);
    let (u, other) = (left(&x, &svd), left(&x, &changed));
    assert!((u.col(0) + other.col(0)).norm_max() <= 1e-6 && (u.col(1) - other.col(1)).norm_max() <= 1e-6);
}

fn edge_shapes(dev: &Device) {
    for (m, n) in [(1, 1), (1, 9), (9, 1), (2, 2), (1025, 2), (3, 1024)] {
        let a = with_spectrum(m, n, &geometric(m.min(n), 3.0), 5);
        compare(&format!("({m}, {n})"), a, &upload::<f32>(dev, a.as_ref()), m.min(n), &STOP);
    }
    for shape in [[0, 0], [0, 5], [5, 0], [5, 5]] {
        let map = Tensor::<f32>::zeros(dev, &shape).unwrap();
        let svd = randomized_svd(&map, 0, &STOP, &Run::default()).unwrap();
        assert_eq!(left(&map, &svd).ncols(), 0);
    }
    let a = Mat::zeros(40, 30);
    compare("zeros", &a, &Tensor::<f32>::zeros(dev, &[40, 30]).unwrap(), 5, &STOP);
    let rank_3 = with_spectrum(1100, 50, &geometric(3, 10.0), 3);
    let u = compare("rank 3", rank_3, &upload::<f32>(dev, rank_3.as_ref()), 8, &STOP);
    assert!(u.col(2).norm_l2() > 0.9 && u.subcols(3, 5).norm_max() == 0.0);
}

/// Values near the ends of the range in which f32 squares them, columns that are constant, and columns of 0.
fn scales_and_constant_columns(dev: &Device) {
    let a = with_spectrum(1500, 60, &geometric(60, 100.0), 3);
    for scale in [1e-14, 1e14] {
        let a = a * Scale(scale);
        compare(&format!("{scale:e}"), &a, &upload::<f32>(dev, a.as_ref()), 6, &STOP);
    }
    let constant = Mat::from_fn(1500, 60, |i, j| match j {
        0..5 => 1e4 + j as f64,
        5..9 => 0.0,
        _ => f64::from(f32::from_bits((a[(i, j)] as f32).to_bits())),
    });
    compare("constant columns", &constant, &upload::<f32>(dev, constant.as_ref()), 6, &STOP);
}

fn signs_take_no_pass(dev: &Device) {
    let a = with_spectrum(1100, 40, &geometric(40, 30.0), 3);
    let x = upload::<f32>(dev, a.as_ref());
    let rule = |sign| STOP.sign(sign);
    let [plain, kept] = [false, true]
        .map(|left| randomized_svd(&x, 4, &rule(SignRule::MaxAbsU).left(left), &Run::default()).unwrap());
    assert_eq!((plain.passes, kept.passes), (5, 4));
    assert!(plain.v == kept.v);
    let u = left(&x, &kept);
    for column in u.col_iter() {
        let largest =
            column.iter().fold(0.0, |largest: f64, x| if x.abs() > largest.abs() { *x } else { largest });
        assert!(largest > 0.0);
    }
    for sign in [SignRule::None, SignRule::DaskSum, SignRule::MaxAbsV] {
        compare(&format!("{sign:?}"), a, &x, 4, &rule(sign));
    }
}

/// If memory holds no products, or the basis restarts, left vectors take a pass.
fn without_room_there_is_a_pass(dev: &Device) {
    let a = with_spectrum(3000, 60, &geometric(60, 30.0), 3);
    let x = upload::<f32>(dev, a.as_ref());
    let passes = |options: &SvdOptions, run: &Run| {
        let map = Counted::new(&x);
        let svd = randomized_svd(&map, 4, options, run)?;
        let plain = randomized_svd(&x, 4, &options.left(false), run)?;
        assert!(svd.v == plain.v && svd.s == plain.s);
        let u = left(&map, &svd);
        let [error, skew] = errors(a, &svd, &u);
        assert!(error <= 1e-6 && skew <= 1e-3, "{error:.1e}, {skew:.1e}");
        Ok(map.count.get() - svd.passes)
    };
    let within = |host: u64| Run::default().memory(Budget::default().host(host).device(1 << 30));
    assert_eq!(passes(&STOP, &Run::default()).unwrap(), 0);
    let least = match passes(&STOP, &within(1000)) {
        Err(Error::Budget { minimum, .. }) => minimum,
        // The basis is on the device.
        Ok(passes) => {
            assert_eq!(passes, 1);
            1000
        }
        Err(error) => panic!("{error}"),
    };
    assert_eq!(passes(&STOP, &within(least)).unwrap(), 1);
    // Two blocks fit, but four do not.
    let image = 8 * 4 * 3000 + 16 * 1024 * 9;
    let basis = if dev.limits().f64 && !dev.shares_host_memory() { 0 } else { 32 * 60 * (4 * 9 + 3 * 9 + 4) };
    assert_eq!(passes(&STOP, &within(basis + 2 * image + 4 * 4 * 9 * 3000)).unwrap(), 1);
    assert_eq!(passes(&STOP, &within(basis + 4 * image + 8 * 4 * 9 * 3000)).unwrap(), 0);
}

/// The kept products are those of a basis that is gone after a restart.
fn after_a_restart_there_is_a_pass(dev: &Device) {
    let a = with_spectrum(100, 1000, &geometric(100, 30.0), 3);
    let x = upload::<f32>(dev, a.as_ref());
    let long = STOP.stop(Stop::PowerIterations(12));
    // The basis holds the least of 22 columns and half of 80 more, of 98. Products take 400 bytes for each column.
    let bytes = 32 * 1000 * (22 + 27 + 4 + 80);
    let run = Run::default().memory(Budget::default().host(bytes).device(bytes));
    let map = Counted::new(&x);
    let svd = randomized_svd(&map, 4, &long, &run).unwrap();
    let whole = randomized_svd(&x, 4, &long, &Run::default()).unwrap();
    assert!(svd.passes == whole.passes && svd.v != whole.v, "{} passes", svd.passes);
    let [error, skew] = errors(a, &svd, &left(&map, &svd));
    assert_eq!(map.count.get(), svd.passes + 1);
    assert!(error <= 1e-6 && skew <= 1e-4, "{error:.1e}, {skew:.1e}");
}

fn of_f64_there_is_a_pass(dev: &Device) {
    for scale in [1e-28, 1.0, 1e28] {
        let a = with_spectrum(1500, 60, &geometric(60, 1e5), 3) * Scale(scale);
        let x = upload::<f64>(dev, a.as_ref());
        let map = Counted::new(&x);
        let Ok(svd) = randomized_svd(&map, 6, &STOP, &Run::default()) else {
            assert!(!dev.limits().f64);
            return;
        };
        let [error, skew] = errors(&a, &svd, &left(&map, &svd));
        assert_eq!(map.count.get(), svd.passes + 1);
        assert!(error <= 1e-14 && skew <= 1e-6, "{scale:e}: {error:.1e}, {skew:.1e}");
    }
}

/// Gives the rows of `A X` as a function of the whole product does.
struct Giving<'a, F>(&'a Tensor<f32>, F);

impl<F: Fn(&Matrix, &mut RowSink<'_>) -> Result<()>> LinearMap for Giving<'_, F> {
    fn shape(&self) -> [u64; 2] {
        LinearMap::shape(self.0)
    }

    fn apply_normal(&self, x: &Matrix, pass: &Pass<'_>) -> Result<Matrix> {
        self.0.apply_normal(x, pass)
    }

    fn apply_both(
        &self,
        x: &Tensor<f64>,
        pass: &Pass<'_>,
        sink: &mut RowSink<'_>,
    ) -> Result<Option<Tensor<f64>>> {
        let mut product = Matrix::zeros(self.shape()[0] as usize, x.shape()[0] as usize);
        let image = self.0.apply_both(x, pass, &mut |first, rows| {
            product.data_mut()[first as usize * rows.cols()..][..rows.data().len()]
                .copy_from_slice(rows.data());
            Ok(())
        })?;
        self.1(&product, sink)?;
        Ok(image)
    }

    fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        self.0.apply(x, pass, sink)
    }
}

fn blocks_of_any_size_and_order(dev: &Device) {
    let a = with_spectrum(1030, 50, &geometric(50, 30.0), 3);
    let x = upload::<f32>(dev, a.as_ref());
    let us = [1, 7, 1024, 1030].map(|count| {
        // Blocks of so many rows come from the last to the first.
        let backwards = |product: &Matrix, sink: &mut RowSink<'_>| {
            let cols = product.cols();
            let starts = (0..product.rows()).step_by(count).rev();
            starts.into_iter().try_for_each(|first| {
                let rows = product.data()[first * cols..].chunks(count * cols).next().unwrap();
                sink(first as u64, &Matrix::from_vec(rows.to_vec(), rows.len() / cols, cols)?)
            })
        };
        compare(&format!("{count} rows"), a, &Giving(&x, backwards), 4, &STOP)
    });
    assert!(us.iter().all(|u| *u == us[0]));
    let rows: [fn(&Matrix, &mut RowSink<'_>) -> Result<()>; 4] = [
        |_, _| Ok(()),
        |_, sink| sink(0, &Matrix::zeros(1029, 9)),
        |_, sink| sink(1, &Matrix::zeros(1030, 9)),
        |_, sink| sink(0, &Matrix::zeros(1030, 8)),
    ];
    for give in rows {
        let refused = randomized_svd(&Giving(&x, give), 4, &STOP, &Run::default());
        let error = assert_err!(refused, Error::Shape { .. }).to_string();
        assert!(error.contains("each row of a product (1030, 9) once"), "{error}");
    }
}

#[test]
fn threads_change_nothing() {
    let a = with_spectrum(3000, 60, &geometric(60, 30.0), 3);
    let [one, three] = [1, 3].map(|count| {
        let x = upload::<f32>(&threads(count), a.as_ref());
        left(&x, &randomized_svd(&x, 5, &STOP, &Run::default()).unwrap())
    });
    assert!(one == three);
}
