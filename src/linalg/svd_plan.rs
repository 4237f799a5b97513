//! The arguments of the block Krylov iteration after all checks, and its memory.

use super::{
    krylov::{Krylov, Ritz},
    map::LinearMap,
    map_tensor::ON_THE_WAY,
    right_svd::{Stop, SvdOptions, TOLERANCE},
    sign::SignRule,
};
use crate::{Budget, Device, DeviceOptions, Error, Needs, Result, Run, extent::to_usize};

/// The fraction of the largest singular value's square that products cannot tell from zero, in units of their precision.
pub(super) const ROUNDING: f64 = 4.0;
/// The fraction of the largest eigenvalue up to which an eigenvalue counts as zero, in units of the products' precision.
pub(super) const FLOOR: f64 = 4.0 * ROUNDING;

/// The best components so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    pub(crate) ritz: Ritz,
    pub(super) s: Vec<f64>,
    pub(crate) residuals: Vec<f64>,
    pub(crate) converged: Vec<bool>,
}

impl Found {
    /// Returns the largest residual.
    pub(super) fn worst(&self) -> f64 {
        self.residuals.iter().copied().fold(0.0, f64::max)
    }
}

/// The arguments of the iteration, after all checks.
#[derive(Debug)]
pub(crate) struct SvdPlan {
    pub(super) op: &'static str,
    pub(super) m: u64,
    pub(super) n: usize,
    pub(super) k: usize,
    /// The number of columns of a block.
    pub(super) l: usize,
    pub(super) passes: u32,
    /// True if the iteration stops before the last pass once all components converged.
    pub(super) early: bool,
    tolerance: f64,
    pub(super) precision: f64,
    /// The device that holds the basis.
    pub(super) home: Device,
    /// The maximum number of columns of the basis, which fits the budget.
    pub(super) capacity: usize,
    /// The caller's budget for the passes, in which the basis is held.
    pub(crate) memory: Budget,
    /// The bytes of host memory for products that are kept, if any are.
    pub(super) kept: Option<u64>,
    pub(super) seed: u64,
    pub(super) sign: SignRule,
    /// The argument that products come from, in messages.
    source: &'static str,
}

impl SvdPlan {
    /// Creates the plan for the products that `of` describes.
    pub(super) fn new(
        op: &'static str,
        of: Products,
        k: usize,
        options: &SvdOptions,
        run: &Run,
    ) -> Result<Self> {
        let Products { shape: [m, n], precision, home, device, needs: pass, saved, names: [matrix, source] } =
            of;
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
        let n = cols.ok_or_else(|| Error::argument(op, matrix, format_args!("{n} columns")))?;
        let (l, seed, sign) = (options.block(k).min(n), options.seed, options.sign);
        let column = 16 * n.max(1) as u64;
        // Tensors already hold a part of a device's default budget.
        let is_default = run.memory.device.is_none() && !home.shares_host_memory();
        let held = if is_default { home.allocated_bytes() } else { 0 };
        let least = n.min(k + 2 * l);
        let needs = Needs::device(held) + least_basis(n, k, l);
        // Products are saved between two passes, in what the basis leaves to these. Tensors on the host leave the room of their copies too.
        let saved_bytes = if saved { copies(&home, n, l) } else { Needs::default() };
        let saving = Needs::host(saved_bytes.host.saturating_sub(pass.host)) * 2;
        run.memory.fit(&device, needs.on(&home) + pass + saving)?;
        let rest = run.memory.fit(&device, needs.on(&home) + pass)?.left(&home).of_tensors(&home);
        let more = to_usize(rest / 2 / column);
        let longest = to_usize(passes.into()).saturating_mul(l).min(n);
        let capacity = least.saturating_add(more).min(longest);
        let needs = needs + Needs::device(column) * capacity.saturating_sub(least) as u64;
        let memory = run.memory.fit(&home, needs)?;
        // The basis and the least pass come first, so that keeping products changes neither.
        let room = memory.fit(&device, pass.max(saved_bytes))?.left_of_host() / 2;
        let beside = (Needs::host(8) * k as u64 + Needs::host(if saved { 8 } else { 0 }) * l as u64) * m;
        let beside = (beside + ON_THE_WAY * l as u64).host;
        // Products more precise than f32 are not kept.
        let is_wanted = options.left && k > 0 && precision >= f32::EPSILON.into();
        let kept = if is_wanted { room.checked_sub(beside) } else { None };
        let kept = kept.map(|room| room.min((Needs::host(4) * longest as u64 * m).host));
        let memory = memory.fit_host(kept.map_or(0, |kept| kept.saturating_add(beside)))?;
        Ok(Self {
            op,
            m,
            n,
            k,
            l,
            passes,
            early,
            tolerance,
            precision,
            home,
            capacity,
            memory,
            kept,
            seed,
            sign,
            source,
        })
    }

    /// Returns the best components in a basis.
    pub(super) fn find(&self, krylov: &Krylov) -> Result<Found> {
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
        Ok(Found { ritz, s, residuals, converged })
    }

    /// Fails with [`Error::Argument`] if any product is not finite: `bad` of `all` are not.
    pub(super) fn check(&self, [bad, products]: [usize; 2]) -> Result<()> {
        if bad == 0 {
            return Ok(());
        }
        let why = format!(
            "{bad} of the {products} products are NaN or infinite: the matrix holds such values, or its products overflow"
        );
        Err(Error::argument(self.op, self.source, why))
    }
}

/// Returns the memory of the shortest basis of vectors of n elements, for k components by blocks of l columns: both halves of the basis, a block,
/// its image, two copies while these are made orthonormal or joined with others, and the vectors that a restart keeps.
pub(crate) fn least_basis(n: usize, k: usize, l: usize) -> Needs {
    Needs::device(32) * n.max(1) as u64 * (n.min(k + 2 * l) + 3 * l + k) as u64
}

/// Returns the host memory of the copies that save a product of l vectors of n elements, where tensors of `home` do not leave it to them.
pub(crate) fn copies(home: &Device, n: usize, l: usize) -> Needs {
    Needs::host(if home.shares_host_memory() { 0 } else { 16 }) * l as u64 * n as u64
}

/// The properties of the products with a matrix (m, n).
pub(super) struct Products {
    pub(super) shape: [u64; 2],
    pub(super) precision: f64,
    /// The device that holds the basis.
    pub(super) home: Device,
    /// The map's device and the least memory of a pass.
    pub(super) device: Device,
    pub(super) needs: Needs,
    /// True if products are saved between two passes.
    pub(super) saved: bool,
    /// The arguments that the shape and the products come from, in messages.
    pub(super) names: [&'static str; 2],
}

impl Products {
    /// Returns the products of a map, in messages `source`, with blocks of at most `l` columns; the basis is on its device, or on the host.
    pub(super) fn from_map(map: &dyn LinearMap, l: usize, source: &'static str) -> Result<Self> {
        let home = match (map.keeps_vectors_on(), map.device()) {
            (Some(device), _) if device.limits().f64 => device.clone(),
            (_, Some(device)) => device.host()?,
            _ => one_thread()?,
        };
        let shape = map.shape();
        let device = map.device().unwrap_or(&home).clone();
        let needs = map.needs(shape[1].min(l as u64));
        let precision = map.precision();
        Ok(Self { shape, precision, home, device, needs, saved: false, names: ["map", source] })
    }
}

pub(super) fn one_thread() -> Result<Device> {
    Device::open_with("cpu", &DeviceOptions::default().threads(1))
}
