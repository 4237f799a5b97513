//! The largest eigenvalues of a symmetric matrix, in f64 on the host.

use faer::{
    Mat, MatRef, Par,
    dyn_stack::MemStack,
    linalg::{
        cholesky::llt::factor::{cholesky_in_place, cholesky_in_place_scratch},
        triangular_solve::solve_lower_triangular_in_place,
    },
};

use super::{
    host,
    krylov::{Krylov, Ritz, lengths, random},
    matmul::matmul_nt,
    threads::Threads,
};
use crate::{Device, Result, Tensor, TensorView, kernels::cpu::simd::end_wide, timeline::Stage};

/// The bound on ‖A v - θ v‖ / θ, unless the rounding error is larger.
const TOLERANCE: f64 = 1e-12;
/// Images longer than this have squares beyond the largest f64, so the full decomposition, which scales the matrix, takes over.
const LONGEST: f64 = 1e150;
/// The number of columns of a block. With few columns, the basis stays small.
const WIDTH: usize = 4;
/// The number of columns of a panel of the Cholesky factor.
const PANEL: usize = 64;

/// Returns the `count` largest eigenvalues of a symmetric matrix (n, n) in descending order, and their vectors. Reads both triangles of `a`,
/// which holds the matrix row by row, with the threads of `device`.
///
/// A few values of a large matrix (at most 37 of 1,000, and 401 of 10,000) are found in a block Krylov basis, which grows until each pair has
/// ‖A v - θ v‖ <= 1e-12 θ, or as little as rounding in f64 allows. A basis may miss repeated eigenvalues, so a Cholesky factorisation then
/// proves that A without the found components has no larger eigenvalue. If the proof fails, if the basis would fill half the space, or if
/// more values are wanted, the full decomposition finds them on one thread. Results are the same to the bit for any number of threads.
///
/// A basis of d columns takes 2 n² d + 8 n d² + n³ / 3 operations; d is about 30 ∛n for ten values of a flat spectrum. The full decomposition
/// takes about 10 n³ on one thread. Both take memory for 3 n² values of f64 in addition to the matrix. Fails with
/// [`Error::Argument`](crate::Error::Argument) if the matrix holds NaN or infinity.
pub(super) fn largest(
    op: &'static str,
    (a, n): (&[f64], usize),
    count: usize,
    device: &Device,
) -> Result<(Vec<f64>, Mat<f64>)> {
    if a.iter().any(|x| !x.is_finite()) {
        return Err(host::not_finite(op));
    }
    let matrix = MatRef::from_row_major_slice(a, n, n);
    let _span = device.span(Stage::Host, op);
    if is_worth(n as u64, count as u64) {
        let host = device.host()?;
        let view = TensorView::from_slice(&host, a, &[n as u64, n as u64])?;
        let threads = Threads::new(&host)?;
        let iteration = Iteration { op, a: matrix, view: &view, count, threads, host: &host };
        if let Some(eigenpairs) = host.in_a_row(|| iteration.run())? {
            return Ok(eigenpairs);
        }
    }
    host::eigen(op, matrix, count, device.cancel())
}

/// Returns the number of basis columns that a flat spectrum takes, as measured.
fn columns(n: u64, count: u64) -> f64 {
    (28.0 + 0.45 * count as f64) * (n as f64).cbrt()
}

/// Returns true if a basis is expected to find the eigenvalues, and in less time than the full decomposition takes.
fn is_worth(n: u64, count: u64) -> bool {
    count > 0 && columns(n, count) < 0.45 * n as f64
}

/// Returns the seconds that [`largest`] is expected to take on one core.
pub(super) fn seconds(n: u64, count: u64) -> f64 {
    let (order, d) = (n as f64, columns(n, count));
    if is_worth(n, count) {
        5e-11 * (2.0 * order * order * d + 8.0 * order * d * d + order.powi(3) / 3.0)
    } else {
        2e-10 * order.powi(3)
    }
}

/// An iteration for the largest eigenvalues of a matrix.
struct Iteration<'a> {
    op: &'static str,
    a: MatRef<'a, f64>,
    view: &'a Tensor<f64>,
    count: usize,
    threads: Threads<'a>,
    host: &'a Device,
}

impl Iteration<'_> {
    /// Returns the eigenvalues and vectors, or None if the iteration did not find them.
    fn run(&self) -> Result<Option<(Vec<f64>, Mat<f64>)>> {
        let n = self.a.nrows();
        let mut krylov = Krylov::new(self.op, self.host, n, n / 2);
        let mut block = krylov.first(&random(self.host, [WIDTH, n], 0)?)?;
        let mut schedule = Schedule::new(n, self.count);
        // The length of the longest image of a unit vector so far.
        let mut length = 0.0f64;
        loop {
            self.threads.check()?;
            // The matrix is symmetric, so its rows are its columns.
            let image = matmul_nt(&block, self.view)?;
            length = lengths(&image)?.into_iter().fold(length, f64::max);
            if length > LONGEST {
                return Ok(None);
            }
            krylov.push(block, image, 0)?;
            block = krylov.next(self.rounding(length))?;
            let is_whole = block.shape()[0] == WIDTH as u64;
            // True if A maps the subspace to itself, or if the basis fills half of the space.
            let is_last = !is_whole || krylov.cols() + WIDTH > n / 2;
            if krylov.cols() >= self.count && (is_last || schedule.due <= krylov.cols()) {
                let ritz = krylov.ritz(self.count)?;
                let norms = krylov.residuals(&ritz)?;
                let excess = self.excess(&ritz, &norms, length);
                if excess <= 1.0 {
                    let vectors = krylov.vectors(&ritz)?.read()?;
                    drop(krylov);
                    let vectors = MatRef::from_column_major_slice(&vectors, n, ritz.theta.len()).to_owned();
                    let proved = self.are_largest(&ritz.theta, vectors.as_ref(), &norms, length)?;
                    return Ok(proved.then_some((ritz.theta, vectors)));
                }
                schedule.advance(krylov.cols(), excess);
            }
            if is_last {
                return Ok(None);
            }
        }
    }

    /// Returns the rounding error of a product with a matrix A of norm `norm`.
    fn rounding(&self, norm: f64) -> f64 {
        4.0 * f64::EPSILON * (self.a.nrows() as f64).sqrt() * norm
    }

    /// Returns the largest ratio of a residual to its bound, for a matrix A of norm `norm` or more.
    fn excess(&self, ritz: &Ritz, norms: &[f64], norm: f64) -> f64 {
        let least = self.rounding(norm);
        let excess = |(theta, norm): (&f64, &f64)| norm / least.max(TOLERANCE * theta);
        ritz.theta.iter().zip(norms).map(excess).fold(0.0, f64::max)
    }

    /// Returns true if A, of norm `norm` or more, has no larger eigenvalues than `values`, whose vectors and residuals are given. The
    /// condition is that σ I - A' is positive definite, where A' is A without the found components and σ is the least of `values` plus a
    /// bound on the rounding error.
    fn are_largest(
        &self,
        values: &[f64],
        vectors: MatRef<'_, f64>,
        residuals: &[f64],
        norm: f64,
    ) -> Result<bool> {
        let n = self.a.nrows();
        let error = residuals.iter().map(|norm| norm * norm).sum::<f64>().sqrt();
        let slack = 4.0 * (error + n as f64 * f64::EPSILON * norm);
        let shift = values[values.len() - 1] + slack;
        let scaled = Mat::from_fn(n, values.len(), |i, j| vectors[(i, j)] * values[j]);
        let a = self.a;
        let mut rest = self.threads.fill([n, n], |i, j| if i == j { shift - a[(i, i)] } else { -a[(i, j)] });
        self.threads.add_product(rest.as_mut(), 1.0, scaled.as_ref(), vectors.transpose());
        is_positive_definite(self.op, rest, self.threads)
    }
}

/// The schedule of the convergence checks.
struct Schedule {
    /// The number of columns at the next check.
    due: usize,
    /// The number of columns at the last check, and the factor by which the residuals were too large.
    last: Option<(usize, f64)>,
}

impl Schedule {
    fn new(n: usize, count: usize) -> Self {
        // About half of the columns that a flat spectrum takes.
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cube root")]
        let half = (15.0 * (n as f64).cbrt()) as usize;
        Self { due: half.max(2 * count), last: None }
    }

    /// Schedules the next check. Residuals decrease by a constant factor per column, or faster.
    fn advance(&mut self, cols: usize, excess: f64) {
        let step = match self.last {
            Some((before, larger)) if larger > excess => {
                let rate = (larger / excess).ln() / (cols - before) as f64;
                0.9 * excess.ln() / rate
            }
            _ => cols as f64 / 5.0,
        };
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most half of them")]
        let step = step.min(cols as f64 / 2.0) as usize;
        self.due = cols + step;
        self.last = Some((cols, excess));
    }
}

/// Returns true if a symmetric matrix is positive definite, as far as its Cholesky factor can tell. Reads the lower triangle.
fn is_positive_definite(op: &'static str, mut a: Mat<f64>, threads: Threads<'_>) -> Result<bool> {
    let n = a.nrows();
    let scratch = cholesky_in_place_scratch::<f64>(PANEL, Par::Seq, Default::default());
    let mut memory = host::buffer(op, scratch)?;
    for start in (0..n).step_by(PANEL) {
        threads.check()?;
        let width = PANEL.min(n - start);
        let (done, rest) = a.as_mut().split_at_col_mut(start);
        let done = done.as_ref().subrows(start, n - start);
        let mut panel = rest.submatrix_mut(start, 0, n - start, width);
        threads.add_product(panel.as_mut(), -1.0, done, done.subrows(0, width).transpose());
        let (mut corner, below) = panel.split_at_row_mut(width);
        let stack = MemStack::new(&mut memory);
        let (none, params) = (Default::default(), Default::default());
        let factored = cholesky_in_place(corner.as_mut(), none, Par::Seq, stack, params);
        end_wide();
        if factored.is_err() {
            return Ok(false);
        }
        threads.each_tile(below, (n - start) * width * width, |(_, tile)| {
            solve_lower_triangular_in_place(corner.as_ref(), tile.transpose_mut(), Par::Seq);
        });
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DeviceOptions, Error, random::gaussian};

    /// Returns a matrix with the eigenvalues `values`: a diagonal matrix between random reflections.
    fn with_values(values: &[f64]) -> Mat<f64> {
        let n = values.len();
        let mut a = Mat::from_fn(n, n, |i, j| if i == j { values[i] } else { 0.0 });
        for seed in 1..4 {
            let mut v = Mat::from_fn(n, 1, |i, _| gaussian(seed, i as u64));
            let length = v.norm_l2();
            v *= faer::Scale(1.0 / length);
            // Computes H A H with H = I - 2 v vᵀ.
            let w = &a * &v;
            let inside = (v.transpose() * &w)[(0, 0)];
            let u = &w - &v * faer::Scale(inside);
            let change = &v * u.transpose() + &u * v.transpose();
            a -= change * faer::Scale(2.0);
        }
        Mat::from_fn(n, n, |i, j| a[(i.max(j), i.min(j))])
    }

    /// Returns a spectrum whose upper end is as dense as that of a random matrix.
    fn falling(n: usize) -> impl Iterator<Item = f64> {
        (0..n).map(move |i| 1.0 - 0.6 * (i as f64 / n as f64).powf(2.0 / 3.0))
    }

    /// Returns spectra, and for each whether the iteration alone finds the largest values, or None if that depends on rounding.
    fn spectra(n: usize) -> Vec<(&'static str, Vec<f64>, Option<bool>)> {
        let led = |first: &[f64]| first.iter().copied().chain(falling(n)).take(n).collect::<Vec<f64>>();
        let times = |factor: f64| falling(n).map(|x| x * factor).collect::<Vec<f64>>();
        let near: Vec<f64> = (0..6).map(|i| 2.0 - 1e-9 * f64::from(i)).collect();
        let few: Vec<f64> = (0..n).map(|i| if i < 20 { 1.0 + i as f64 } else { 0.0 }).collect();
        vec![
            ("flat", times(1.0), Some(true)),
            ("large", times(1e30), Some(true)),
            ("small", times(1e-30), Some(true)),
            ("of squares past the largest f64", times(1e200), Some(false)),
            ("led", led(&[40.0, 13.0, 11.0]), Some(true)),
            ("clustered", led(&near), None),
            ("one huge", led(&[1e5]), None),
            ("one gigantic", led(&[1e12]), None),
            ("of rank 20", few, Some(true)),
            ("of rank 3", [3.0, 2.0, 1.0].into_iter().chain([0.0; 1000]).take(n).collect(), Some(false)),
            ("below zero", times(-1.0), None),
            ("evenly spaced", (0..n).map(|i| i as f64 - n as f64 * 0.8).collect(), None),
            // A block of four vectors finds only four of the twelve directions; the others appear by rounding alone.
            ("twelve times", led(&[3.0; 12]), None),
            ("spikes on ones", [9.0, 8.0].into_iter().chain([1.0; 1000]).take(n).collect(), Some(false)),
            ("zeros", vec![0.0; n], Some(false)),
        ]
    }

    fn threads(count: usize) -> Device {
        let options = DeviceOptions { threads: Some(count), ..DeviceOptions::default() };
        Device::open_with("cpu", &options).unwrap()
    }

    fn values(a: &Mat<f64>) -> Vec<f64> {
        a.row_iter().flat_map(|row| row.iter().copied()).collect()
    }

    fn eigenpairs(a: &Mat<f64>, count: usize, device: &Device) -> Result<(Vec<f64>, Mat<f64>)> {
        largest("test", (&values(a), a.nrows()), count, device)
    }

    /// Calls `f` with an iteration for `count` values.
    fn iterate<T>(a: &Mat<f64>, count: usize, f: impl FnOnce(&Iteration<'_>) -> T) -> T {
        let (host, n) = (threads(2), a.nrows() as u64);
        let values = values(a);
        let view = TensorView::from_slice(&host, &values, &[n, n]).unwrap();
        let threads = Threads::new(&host).unwrap();
        f(&Iteration { op: "test", a: a.as_ref(), view: &view, count, threads, host: &host })
    }

    /// Checks eigenpairs against the spectrum from which the matrix was made.
    fn check(name: &str, a: &Mat<f64>, spectrum: &[f64], values: &[f64], vectors: &Mat<f64>) {
        let (n, count) = (a.nrows(), values.len());
        let mut sorted = spectrum.to_vec();
        sorted.sort_by(|x, y| y.total_cmp(x));
        let norm = sorted.iter().fold(0.0f64, |norm, x| norm.max(x.abs()));
        let rounding = 8.0 * f64::EPSILON * (n as f64).sqrt() * norm;
        let image = a * vectors;
        for j in 0..count {
            let (value, expected) = (values[j], sorted[j]);
            let bound = rounding.max(TOLERANCE * expected.abs());
            assert!((value - expected).abs() <= bound, "{name}: value {j} is {value}, not {expected}");
            let residual = (image.col(j) - vectors.col(j) * faer::Scale(value)).norm_l2();
            assert!(residual <= bound, "{name}: residual {j} is {residual:.1e}, above {bound:.1e}");
        }
        let distance = (vectors.transpose() * vectors - Mat::<f64>::identity(count, count)).norm_max();
        assert!(distance <= 1e-13, "{name}: {distance:.1e} from orthonormal");
    }

    #[test]
    fn hard_spectra_are_found() {
        let device = threads(2);
        for (name, spectrum, is_found) in spectra(640) {
            let a = with_values(&spectrum);
            assert!(is_worth(640, 10));
            let (values, vectors) = eigenpairs(&a, 10, &device).unwrap();
            assert_eq!((values.len(), vectors.shape()), (10, (640, 10)), "{name}");
            check(name, &a, &spectrum, &values, &vectors);
            if let Some(is_found) = is_found {
                let was_found = iterate(&a, 10, |iteration| iteration.run().unwrap().is_some());
                assert_eq!(was_found, is_found, "{name}");
            }
        }
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let spectrum: Vec<f64> = falling(640).collect();
        let a = with_values(&spectrum);
        let alone = eigenpairs(&a, 6, &threads(1)).unwrap();
        check("alone", &a, &spectrum, &alone.0, &alone.1);
        for count in [2, 3, 5] {
            assert!(eigenpairs(&a, 6, &threads(count)).unwrap() == alone, "{count} threads");
        }
    }

    #[test]
    fn what_was_missed_is_seen() {
        let spectrum: Vec<f64> = [5.0, 4.0, 3.0].into_iter().chain(falling(297)).collect();
        let a = with_values(&spectrum);
        let (values, vectors) = host::eigen("test", a.as_ref(), 4, None).unwrap();
        let proved = |which: [usize; 3]| {
            let values = which.map(|j| values[j]);
            let vectors = Mat::from_fn(300, 3, |i, j| vectors[(i, which[j])]);
            iterate(&a, 3, |iteration| iteration.are_largest(&values, vectors.as_ref(), &[0.0; 3], 5.0))
                .unwrap()
        };
        assert!(proved([0, 1, 2]));
        assert!(!proved([0, 1, 3]) && !proved([0, 2, 3]) && !proved([1, 2, 3]));
    }

    #[test]
    fn small_ones_and_all_values() {
        for n in [0, 1, 2, 10, 255, 620] {
            let spectrum: Vec<f64> = falling(n).collect();
            let a = with_values(&spectrum);
            for count in [0, 1, 2, n / 10, n] {
                if count <= n {
                    let (values, vectors) = eigenpairs(&a, count, &threads(1)).unwrap();
                    assert_eq!((values.len(), vectors.shape()), (count, (n, count)));
                    check(&format!("{count} of {n}"), &a, &spectrum, &values, &vectors);
                }
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        for n in [3, 900] {
            for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                let mut a = Mat::<f64>::identity(n, n);
                (a[(2, 1)], a[(1, 2)]) = (bad, bad);
                crate::assert_err!(eigenpairs(&a, 1, &threads(1)), Error::Argument { .. });
            }
        }
    }
}
