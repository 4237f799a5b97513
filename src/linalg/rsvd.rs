//! Truncated singular value decomposition of a matrix known only through products.

use super::{
    krylov::{Krylov, Ritz, random},
    map::{LinearMap, Pass},
    matrix::Matrix,
    sign::SignRule,
};
use crate::{Device, DeviceOptions, Error, Needs, Result, Run, Status, extent::to_usize};

const OP: &str = "randomized_svd";
/// The part of the square of the largest singular value that products cannot tell from zero, in units of their precision.
const ROUNDING: f64 = 4.0;
/// The part of the largest eigenvalue that counts as zero, in units of the products' precision.
pub(super) const FLOOR: f64 = 4.0 * ROUNDING;
/// Residual at which a component counts as converged when no tolerance is given.
const TOLERANCE: f64 = 1e-4;

/// Oversamples of counted iterations, and columns of a block to a tolerance.
const OVERSAMPLES: usize = 10;

/// When [`randomized_svd`] stops.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Stop {
    /// After q power iterations: q + 2 passes, where a method that multiplies by A and Aᵀ in turn makes 2 q + 2.
    PowerIterations(u32),
    /// When the relative residuals of all k components are at most this, or at the pass limit.
    Tolerance(f64),
}

/// Options of [`randomized_svd`] and [`truncated_svd`](super::truncated_svd).
///
/// ```
/// use teatime::linalg::{Stop, SvdOptions};
/// let options = SvdOptions::default().stop(Stop::PowerIterations(2)).seed(7);
/// assert_eq!(options.block(20), 30);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct SvdOptions {
    /// Columns of the random block beyond k. Default: with [`Stop::PowerIterations`] 10, on which the accuracy depends; with
    /// [`Stop::Tolerance`] what makes 10 columns in all: there the blocks of all passes are kept and used, so that wide blocks cost more
    /// than the passes that they save.
    pub oversamples: Option<usize>,
    /// When to stop.
    pub stop: Stop,
    /// Most passes with [`Stop::Tolerance`].
    pub max_passes: u32,
    /// Seed of the random block.
    pub seed: u64,
    /// The rule that gives each pair of vectors one of two signs.
    pub sign: SignRule,
}

impl Default for SvdOptions {
    /// Tolerance 1e-4, at most 64 passes, seed 0, stable signs.
    fn default() -> Self {
        Self {
            oversamples: None,
            stop: Stop::Tolerance(TOLERANCE),
            max_passes: 64,
            seed: 0,
            sign: SignRule::Stable,
        }
    }
}

crate::setters! {
    SvdOptions {
        oversamples(impl Into<Option<usize>>) = oversamples.into(),
        stop(Stop),
        max_passes(u32),
        seed(u64),
        sign(SignRule),
    }
}

impl SvdOptions {
    /// Columns of the random block for k components, of a matrix with as many.
    pub fn block(&self, k: usize) -> usize {
        let oversamples = self.oversamples.unwrap_or(match self.stop {
            Stop::PowerIterations(_) => OVERSAMPLES,
            Stop::Tolerance(_) => OVERSAMPLES.saturating_sub(k),
        });
        k.saturating_add(oversamples)
    }
}

/// The k largest singular values of a matrix and their right vectors: what [`randomized_svd`] and [`gram_svd`](super::gram_svd()) return.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct RightSvd {
    /// Singular values, falling.
    pub s: Vec<f64>,
    /// Right singular vectors (n, k), orthonormal columns.
    pub v: Matrix,
    /// ‖AᵀA v - σ² v‖ / (σ σ₁) of each component; 0 where σ is 0.
    pub residuals: Vec<f64>,
    /// True where the residual is at most the tolerance (1e-4 where none was given), or as small as products can tell.
    pub converged: Vec<bool>,
    /// Passes over the matrix, that of [`SignRule::MaxAbsU`] among them; 0 from [`gram_svd`](super::gram_svd()), which makes none.
    pub passes: u32,
}

impl RightSvd {
    /// No components of a matrix with n columns.
    pub(crate) fn empty(n: usize) -> Self {
        Self {
            s: Vec::new(),
            v: Matrix::zeros(n, 0),
            residuals: Vec::new(),
            converged: Vec::new(),
            passes: 0,
        }
    }

    /// True if every component converged.
    pub fn is_converged(&self) -> bool {
        self.converged.iter().all(|&converged| converged)
    }
}

/// The `k` largest singular values and right singular vectors of `map`, by randomized block Krylov iteration.
///
/// A Gaussian block of l = k + oversamples columns is multiplied by AᵀA, one pass at a time; each pass's block is made
/// orthonormal and kept, and Rayleigh-Ritz runs on all of them: A ≈ U diag(s) Vᵀ, with `U` from [`left_vectors`].
/// After Musco and Musco, "Randomized block Krylov methods for stronger and faster approximate singular value
/// decomposition" (2015).
///
/// # Shapes
/// `map`: (m, n) -> k values, `v` (n, k). Values past the rank are 0, and their vectors are orthonormal too.
///
/// # Accuracy
/// A component whose residual is r has a value within about r² σ₁² / (4 g σ²) relative, g being its relative distance
/// to the values that are not wanted. AᵀA is multiplied in f32, so a value below about 1.4e-3 of the largest counts as
/// 0, where the map is not [more precise](LinearMap::precision): [`truncated_svd`](super::truncated_svd) of a resident matrix has no such floor.
///
/// # Cost
/// One pass of the map per iteration; with p passes a basis of 2 p n l numbers of f64, and about 5 n (p l)² operations on it. The basis is in
/// the host's memory, where the threads of the map's device compute, or on the device on which the map [takes
/// vectors](LinearMap::keeps_vectors_on). If it were more than half of what `run.memory` gives of that memory, it restarts from the best
/// k + l vectors, which costs passes. Waits some times a pass, for p l² numbers. The result depends on the seed and the map alone unless the
/// basis restarts.
///
/// # Errors
/// [`Error::Argument`] when k is more than min(m, n), when an option is out of range, or when the products hold NaN or
/// infinity; [`Error::Budget`] when not even a restarted basis fits; [`Error::Cancelled`]; what the map reports.
/// Reaching the pass limit is no error: see [`RightSvd::converged`].
///
/// ```
/// use teatime::{Device, Run, Tensor, linalg};
/// let device = Device::best()?;
/// let a = Tensor::from_slice(&device, &[3.0f32, 0.0, 0.0, 4.0, 0.0, 0.0], &[3, 2])?;
/// let svd = linalg::randomized_svd(&a, 1, &linalg::SvdOptions::default(), &Run::default())?;
/// assert!((svd.s[0] - 4.0).abs() < 1e-5 && (svd.v.row(1)[0] - 1.0).abs() < 1e-5);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn randomized_svd(map: &dyn LinearMap, k: usize, options: &SvdOptions, run: &Run) -> Result<RightSvd> {
    let plan = SvdPlan::new(OP, map, k, options, run)?;
    if k == 0 {
        return Ok(RightSvd::empty(plan.n));
    }
    let (krylov, found) = plan.iterate(map, options.seed, run)?;
    let v = Matrix::from_tensor(&krylov.vectors(&found.ritz)?)?.transposed();
    let Found { s, residuals, converged, passes, .. } = found;
    let mut svd = RightSvd { s, v, residuals, converged, passes };
    options.sign.apply(map, &mut svd.v, &mut svd.passes, run)?;
    Ok(svd)
}

/// Calls `sink` with the first row and the rows of each block of U = A V / s, in order: one pass of the map.
///
/// # Shapes
/// `map`: (m, n), `svd` of k components -> blocks of (rows, k), m rows in all. Columns of zero values are 0.
///
/// # Accuracy
/// Columns of converged components are orthonormal to about their residual plus 1e-7 σ₁ / σ.
///
/// # Cost
/// One pass of the map, which keeps within `run.memory` if the map does; one block of U besides, in f64 on the host.
///
/// # Errors
/// Any error that the map or `sink` reports.
pub fn left_vectors(
    map: &dyn LinearMap,
    svd: &RightSvd,
    run: &Run,
    sink: &mut dyn FnMut(u64, &Matrix) -> Result<()>,
) -> Result<()> {
    let pass = Pass::new(run, Status::new(0, 1, map.shape()[0]));
    let mut scaled = Matrix::zeros(0, 0);
    map.apply(&svd.v, &pass, &mut |first, rows| {
        scaled.clone_from(rows);
        for row in scaled.data_mut().chunks_exact_mut(svd.s.len().max(1)) {
            for (value, s) in row.iter_mut().zip(&svd.s) {
                *value = if *s > 0.0 { *value / s } else { 0.0 };
            }
        }
        sink(first, &scaled)
    })
}

/// The best components so far.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) ritz: Ritz,
    s: Vec<f64>,
    pub(crate) residuals: Vec<f64>,
    pub(crate) converged: Vec<bool>,
    pub(crate) passes: u32,
}

impl Found {
    fn worst(&self) -> f64 {
        self.residuals.iter().copied().fold(0.0, f64::max)
    }
}

/// The checked arguments.
#[derive(Debug)]
pub(crate) struct SvdPlan {
    op: &'static str,
    m: u64,
    pub(crate) n: usize,
    k: usize,
    /// Columns of a block.
    pub(crate) l: usize,
    pub(crate) passes: u32,
    /// True to stop before the last pass when all components converged.
    early: bool,
    tolerance: f64,
    /// The precision of the map's products.
    precision: f64,
    /// The device with the basis.
    home: Device,
    /// Columns of the basis that fit the budget.
    capacity: usize,
}

impl SvdPlan {
    pub(crate) fn new(
        op: &'static str,
        map: &dyn LinearMap,
        k: usize,
        options: &SvdOptions,
        run: &Run,
    ) -> Result<Self> {
        let ([m, n], precision) = (map.shape(), map.precision());
        if k as u64 > m.min(n) {
            let why = format!("{k} components of a matrix of {m} x {n}, which has at most {}", m.min(n));
            return Err(Error::argument(op, "k", why));
        }
        let (passes, early, tolerance) = match options.stop {
            Stop::PowerIterations(q) => (q.saturating_add(2), false, TOLERANCE),
            Stop::Tolerance(t) if t > 0.0 && t.is_finite() => (options.max_passes, true, t),
            Stop::Tolerance(t) => {
                return Err(Error::argument(op, "stop", format_args!("a tolerance of {t}; it is above 0")));
            }
        };
        if passes == 0 {
            return Err(Error::argument(op, "max_passes", "0; at least 1 is needed"));
        }
        let cols = usize::try_from(n).ok().filter(|n| n.checked_mul(16).is_some());
        let n = cols.ok_or_else(|| Error::argument(op, "map", format_args!("{n} columns")))?;
        let l = options.block(k).min(n);
        // Both halves of the basis, and beside them a block, its image, two copies while they are made orthonormal
        // or joined with others, and what a restart keeps.
        let column = 16 * n.max(1) as u64;
        let home = home(map)?;
        // Tensors hold a part of a device's default budget already.
        let is_default = run.memory.device.is_none() && !home.shares_host_memory();
        let held = if is_default { home.allocated_bytes() } else { 0 };
        let least = n.min(k + 2 * l);
        let needs = Needs::device(2 * column) * (least + 3 * l + k) as u64;
        let rest = run.memory.fit(&home, Needs::device(held) + needs)?;
        let capacity = least.saturating_add(to_usize(rest.left(&home).of_tensors(&home) / 2 / column));
        Ok(Self { op, m, n, k, l, passes, early, tolerance, precision, home, capacity })
    }

    pub(crate) fn iterate(&self, map: &dyn LinearMap, seed: u64, run: &Run) -> Result<(Krylov, Found)> {
        let longest = to_usize(self.passes.into()).saturating_mul(self.l);
        let mut krylov = Krylov::new(self.op, &self.home, self.n, self.capacity.min(longest).min(self.n));
        let mut block = krylov.first(&random(&self.home, [self.l, self.n], seed)?)?;
        let mut status = Status::new(0, self.passes, self.m);
        loop {
            run.cancel.check()?;
            let image = map.apply_normal_rows(&block, &Pass::new(run, status))?;
            if image.shape() != block.shape() {
                let (wanted, got) =
                    (format!("products of {:?}", block.shape()), format!("{:?}", image.shape()));
                return Err(Error::shape(self.op, wanted, got));
            }
            krylov.push(block, image, self.k + self.l)?;
            self.check(krylov.not_finite()?)?;
            status.pass += 1;
            let found = self.find(&krylov, status.pass)?;
            status.residual = Some(found.worst());
            let done = self.early && found.converged.iter().all(|&converged| converged);
            if done || status.pass == self.passes {
                return Ok((krylov, found));
            }
            block = krylov.next(ROUNDING * self.precision * found.ritz.theta[0])?;
            if block.is_empty() {
                // AᵀA maps the basis to itself, as far as products can tell.
                return Ok((krylov, found));
            }
        }
    }

    fn find(&self, krylov: &Krylov, passes: u32) -> Result<Found> {
        let ritz = krylov.ritz(self.k)?;
        let largest = ritz.theta[0].max(0.0);
        let zero = |theta: f64| theta <= FLOOR * self.precision * largest;
        let s: Vec<f64> =
            ritz.theta.iter().map(|&theta| if zero(theta) { 0.0 } else { theta.sqrt() }).collect();
        let norms = krylov.residuals(&ritz)?;
        let relative = |(&s, norm): (&f64, &f64)| if s > 0.0 { norm / (s * largest.sqrt()) } else { 0.0 };
        let residuals: Vec<f64> = s.iter().zip(&norms).map(relative).collect();
        let small =
            |(r, norm): (&f64, &f64)| *r <= self.tolerance || *norm <= ROUNDING * self.precision * largest;
        let converged = residuals.iter().zip(&norms).map(small).collect();
        Ok(Found { ritz, s, residuals, converged, passes })
    }

    /// # Errors
    /// [`Error::Argument`] where `bad` of `all` products are not finite.
    fn check(&self, [bad, all]: [usize; 2]) -> Result<()> {
        if bad == 0 {
            return Ok(());
        }
        let why = format!(
            "{bad} of the {all} products are NaN or infinite: the matrix holds such values, or its products overflow"
        );
        Err(Error::argument(self.op, if self.op == OP { "map" } else { "a" }, why))
    }
}

/// The device that has the basis: the map's, or the host with its threads.
fn home(map: &dyn LinearMap) -> Result<Device> {
    match (map.keeps_vectors_on(), map.device()) {
        (Some(device), _) if device.limits().f64 => Ok(device.clone()),
        (_, Some(device)) => device.host(),
        _ => Device::open_with("cpu", &DeviceOptions::default().threads(1)),
    }
}
