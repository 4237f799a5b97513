//! The singular value decomposition of stored matrices: centred, scaled, and by the cheapest method.

mod routes;
mod standardize;

use std::sync::Arc;

use self::{
    routes::{Job, Solved},
    standardize::{Measure, Standard, Standardized},
};
use super::{
    StreamStats,
    matrix::{StoredMatrix, extents},
};
#[cfg(doc)]
use crate::linalg::randomized_svd;
use crate::{
    Budget, ChunkedArray, Device, Error, Real, Result, Run, StoredType, Tensor,
    extent::blocks,
    linalg::{
        Checkpoint, GroupMatrix, LinearMap, Matrix, RightSvd, RowSink, SvdOptions, TruncatedSvd, left_vectors,
    },
};

const OP: &str = "svd_stored";

/// The means that are subtracted from a matrix before its decomposition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Center {
    /// None: the decomposition is that of the matrix as stored.
    #[default]
    None,
    /// The mean of each column, as in principal component analysis of the rows.
    Columns,
    /// The mean of each row.
    Rows,
    /// The means of each row and of each column, which leave rows and columns with a mean of 0.
    Both,
}

/// The method of [`svd_stored`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SvdMethod {
    /// Chooses QR if the matrix fits the device and QR is expected to cost at most a second, or what the iteration costs; else the Gram matrix
    /// if that fits the memory and costs no more than the iteration; else the iteration.
    #[default]
    Auto,
    /// All components at once: by QR if the matrix fits the device and its shorter side has at most 1,024 elements, else by the Gram matrix
    /// of the shorter side.
    Exact,
    /// Block Krylov iteration, by [`randomized_svd`].
    Randomized,
}

/// The way by which a decomposition was computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SvdRoute {
    /// The exact decomposition of a matrix that was on the device, by QR. It squares nothing.
    Qr,
    /// The eigenvectors of the Gram matrix of the shorter side, which was added up in one pass.
    Gram,
    /// Block Krylov iteration on a matrix that was on the device.
    KrylovOnDevice,
    /// Block Krylov iteration on a matrix that each pass read again.
    KrylovStreamed,
}

impl SvdRoute {
    /// Returns the name of the route: `qr`, `gram`, `krylov-on-device` or `krylov-streamed`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Qr => "qr",
            Self::Gram => "gram",
            Self::KrylovOnDevice => "krylov-on-device",
            Self::KrylovStreamed => "krylov-streamed",
        }
    }
}

/// Options of [`svd_stored`]. By default, nothing is subtracted, and the method is chosen by its expected cost.
///
/// ```
/// use teatime::stream::{Center, StoredSvdOptions};
/// let options = StoredSvdOptions::default().center(Center::Columns).scale(true);
/// assert!(!options.missing_mean);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct StoredSvdOptions {
    /// The means that are subtracted.
    pub center: Center,
    /// True to divide each column by its standard deviation, as scikit-learn's `StandardScaler` (`ddof=0`), and for [`Center::Rows`] each row
    /// by its own. Constant columns and rows are divided by 1. Not with [`Center::Both`].
    pub scale: bool,
    /// True to put the mean of its column in place of each NaN, as scikit-learn's `SimpleImputer`, before anything else; otherwise NaN is an
    /// error.
    pub missing_mean: bool,
    /// True to compute f64 and integers of 32 and 64 bits in f32. They are centred and scaled in f64 first.
    pub narrow: bool,
    /// The method.
    pub method: SvdMethod,
    /// The options of the iteration, and the rule of signs.
    pub svd: SvdOptions,
}

crate::setters! {
    StoredSvdOptions {
        center(Center), scale(bool), missing_mean(bool), narrow(bool), method(SvdMethod), svd(SvdOptions),
    }
}

/// The decomposition that [`svd_stored`] returns: `A ≈ U diag(s) Vᵀ` of the centred and scaled matrix A (m, n).
#[derive(Debug)]
#[non_exhaustive]
pub struct StoredSvd {
    /// The shape [m, n].
    pub shape: [u64; 2],
    /// Singular values, in descending order.
    pub s: Vec<f64>,
    /// The residuals of the components, as in [`RightSvd::residuals`]; 0 by QR.
    pub residuals: Vec<f64>,
    /// True for each component that converged, as in [`RightSvd::converged`].
    pub converged: Vec<bool>,
    /// The mean of each column, whether it was subtracted or not.
    pub means: Vec<f64>,
    /// The variance of each column, with the number of rows as divisor.
    pub variances: Vec<f64>,
    /// The sum of the squares of the elements of A, and so of all its singular values. With [`Center::Both`] it is a difference, to about 1e-16 of
    /// the squared means of the rows.
    pub total: f64,
    /// The number of elements that were NaN.
    pub missing: u64,
    /// True if products were in f64.
    pub in_f64: bool,
    /// The way by which the components were found.
    pub route: SvdRoute,
    /// The reason for the way.
    pub reason: String,
    /// The number of readings of the arrays: for means and sums of squares, and for the components.
    pub readings: u32,
    /// The number of passes over the matrix for the components, as in [`RightSvd::passes`]; 1 by QR and by the Gram matrix.
    pub passes: u32,
    /// The number of these passes whose products a [checkpoint](svd_stored_with_checkpoint) had, so that they were not made again.
    pub found: u32,
    /// The number of members of a [group](Device::group) that shared the work: 1 by QR, which the first device computes.
    pub devices: usize,
    /// The budget that was planned with.
    pub memory: Budget,
    center: Center,
    /// The stats of the readings before those of `vectors`.
    stats: StreamStats,
    vectors: Vectors,
}

/// The source of singular vectors.
enum Vectors {
    /// The right vectors of a map, and the map, whose products are the left vectors. With `is_transposed`, it is the map of Aᵀ.
    Map {
        svd: RightSvd,
        map: Source,
        is_transposed: bool,
    },
    F32(TruncatedSvd<f32>),
    F64(TruncatedSvd<f64>),
}

impl std::fmt::Debug for Vectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let made = if matches!(self, Self::Map { .. }) { "by a pass" } else { "on the device" };
        write!(f, "Vectors({made})")
    }
}

/// A matrix that is multiplied.
enum Source {
    Stored(Box<GroupMatrix<StoredMatrix>>),
    OnDevice(Box<dyn LinearMap + Send + Sync>),
}

impl Source {
    fn map(&self) -> &dyn LinearMap {
        match self {
            Self::Stored(map) => &**map,
            Self::OnDevice(map) => &**map,
        }
    }
}

impl StoredSvd {
    /// Calls `sink` with the index of the first row and the rows of each block of U (m, k), in order. Blocks start at multiples of 1,024
    /// rows. By QR, and by the Gram matrix of a matrix with fewer rows than columns, U is there; otherwise this takes one pass, unless the iteration
    /// kept the products of its passes ([`SvdOptions::left`]).
    ///
    /// # Errors
    /// The errors of a pass; any error that `sink` returns.
    pub fn left(&self, run: &Run, sink: &mut RowSink<'_>) -> Result<()> {
        self.side(true, run, sink)
    }

    /// Calls `sink` as [`left`](Self::left) does, with V (n, k), which takes a pass only by the Gram matrix of a matrix with fewer rows than
    /// columns.
    ///
    /// # Errors
    /// As `left`.
    pub fn right(&self, run: &Run, sink: &mut RowSink<'_>) -> Result<()> {
        self.side(false, run, sink)
    }

    fn side(&self, is_left: bool, run: &Run, sink: &mut RowSink<'_>) -> Result<()> {
        match &self.vectors {
            Vectors::Map { svd, is_transposed, .. } if *is_transposed == is_left => rows_of(&svd.v, sink),
            Vectors::Map { svd, map, .. } => left_vectors(map.map(), svd, run, sink),
            Vectors::F32(svd) => blocks_of(if is_left { &svd.u } else { &svd.v }, sink),
            Vectors::F64(svd) => blocks_of(if is_left { &svd.u } else { &svd.v }, sink),
        }
    }

    /// Returns the variance of the rows along each component, s² / (m - 1), as scikit-learn's `PCA`; `None` unless columns of two rows or more
    /// were centred.
    pub fn explained_variance(&self) -> Option<Vec<f64>> {
        let is_centred = matches!(self.center, Center::Columns | Center::Both);
        (is_centred && self.shape[0] > 1)
            .then(|| self.s.iter().map(|s| s * s / (self.shape[0] as f64 - 1.0)).collect())
    }

    /// Returns the share of each component in the sum of the squares of all elements: s² over their sum. If columns were centred, it is the
    /// `explained_variance_ratio_` of scikit-learn's `PCA`. It is 0 for a matrix of zeros.
    pub fn shares(&self) -> Vec<f64> {
        self.s.iter().map(|s| if self.total > 0.0 { s * s / self.total } else { 0.0 }).collect()
    }

    /// Returns the stats of all readings so far, those of [`left`](Self::left) and [`right`](Self::right) included.
    pub fn stats(&self) -> StreamStats {
        let mut stats = self.stats;
        if let Vectors::Map { map: Source::Stored(map), .. } = &self.vectors {
            stats.add(&map.stats());
        }
        stats
    }
}

fn rows_of(vectors: &Matrix, sink: &mut RowSink<'_>) -> Result<()> {
    if vectors.rows() == 0 { Ok(()) } else { sink(0, vectors) }
}

fn blocks_of<R: Real>(vectors: &Tensor<R>, sink: &mut RowSink<'_>) -> Result<()> {
    blocks(vectors.shape()[0], 4096)
        .try_for_each(|rows| sink(rows.start, &Matrix::from_tensor(&*vectors.rows(rows.clone())?)?))
}

/// Returns the `k` largest singular values of stored matrices, appended along their rows, and the vectors of both sides. Elements may be of any
/// type; they need not fit memory.
///
/// The first pass computes means and sums of squares in f64. Elements are then centred and scaled in f64 before they are rounded, so
/// that deviations from a large mean keep their digits, and divided by a power of two, so that their squares stay within the type. Elements of
/// f32 or f64 that need none of this are multiplied as they are stored.
///
/// # Shapes
/// `arrays`: (mᵢ, n) each, m rows in all -> k values, U (m, k), V (n, k).
///
/// # Accuracy
/// f64 and integers of 32 and 64 bits are computed in f64, if the device [computes in it](crate::Limits::f64), and others in f32.
/// [`SvdRoute::Qr`] is as accurate as [`svd`](crate::linalg::svd()). The iteration is as accurate as [`randomized_svd`]. The Gram matrix
/// squares the singular values, as the iteration does: a value below 1.4e-3 of the largest counts as 0, or 6e-8 in f64 for short matrices,
/// and a value σ has an error of about 1e-7 σ₁² / σ (2e-16 in f64). By the Gram matrix of a matrix with fewer rows than columns,
/// [`SignRule::Stable`](crate::linalg::SignRule) and `DaskSum` read u in place of v. Sums of squares of elements have to be between 1e-300 and 1e300.
///
/// # Cost
/// One pass for means, and a second one if rows are centred and elements missing. Then QR takes one pass, the Gram matrix one and n²
/// memory for the shorter side n (16 bytes an element on the device and 32 on the host), and the iteration one if the matrix fits the device
/// and otherwise one for each product. [`StoredSvd::left`] and [`right`](StoredSvd::right) say when they take one more.
///
/// The Gram matrix of the rows of a matrix that has fewer of them than columns is added up over blocks of 1,024 columns or more.
///
/// Each member of a [group](Device::group) multiplies some of the rows, or of the columns for a Gram matrix of the rows: those that stay on it,
/// or those that it reads in each pass. Sums of the members are added in their order, so the last bits of values and vectors depend on the
/// number of members. Means, variances and QR do not, which the first device computes. Left vectors take one more pass.
///
/// # Errors
/// [`Error::Argument`] for more components than m or n, for `scale` with [`Center::Both`], for an option of the iteration out of range, for
/// squares beyond f64, and for a group of devices of different kinds; [`Error::Shape`] for arrays that are no matrices or of different columns;
/// [`Error::Store`] with the number and the first place of elements that are NaN, unless [`missing_mean`](StoredSvdOptions::missing_mean)
/// replaces them, and for a column with no other; [`Error::NoF64`] for an array of f64 on a device that does not compute in it, unless [`narrow`](StoredSvdOptions::narrow) is set;
/// [`Error::Chunk`] for what cannot be read, and for infinity; [`Error::Budget`] with the least that would do; [`Error::Cancelled`].
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, store::MemoryArray, stream::{Center, StoredSvdOptions, svd_stored}};
/// // Both columns are far from 0, and one varies twice as much as the other.
/// let rows = [1e6f32 + 2.0, 1e6, 1e6 - 2.0, 1e6, 1e6, 1e6 + 1.0, 1e6, 1e6 - 1.0];
/// let array = Arc::new(MemoryArray::new("a", &rows, &[4, 2], &[4, 2])?);
/// let (device, run) = (Device::best()?, Run::default());
/// let svd = svd_stored(vec![array], 2, &StoredSvdOptions::default().center(Center::Columns), &device, &run)?;
/// assert!((svd.s[0] - 8f64.sqrt()).abs() < 1e-5 && (svd.s[1] - 2f64.sqrt()).abs() < 1e-5);
/// svd.left(&run, &mut |first, rows| {
///     assert!(first == 0 && (rows[(0, 0)] - 0.5f64.sqrt()).abs() < 1e-5);
///     Ok(())
/// })?;
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn svd_stored(
    arrays: Vec<Arc<dyn ChunkedArray>>,
    k: usize,
    options: &StoredSvdOptions,
    device: &Device,
    run: &Run,
) -> Result<StoredSvd> {
    decompose(arrays, k, options, None, device, run)
}

/// Works as [`svd_stored`], and puts the product of each pass of the iteration at `checkpoint`, or takes it from there: a call that is stopped or
/// killed at any time is continued by the same call, to the same bits, on any number of threads and the same number of devices. The first pass,
/// for means, is made again.
///
/// Centring, scaling and a digest of the moments of columns and rows are added to the [properties](Checkpoint::property). The moments do not tell
/// whether rows have changed places, so the caller adds what does, such as paths and times of change. Exact methods leave the checkpoint alone.
///
/// # Errors
/// As [`svd_stored`]; [`Error::Store`] for the checkpoint of another job, with what differs; [`Error::Io`] if it cannot be read or written.
pub fn svd_stored_with_checkpoint(
    arrays: Vec<Arc<dyn ChunkedArray>>,
    k: usize,
    options: &StoredSvdOptions,
    checkpoint: &Checkpoint,
    device: &Device,
    run: &Run,
) -> Result<StoredSvd> {
    decompose(arrays, k, options, Some(checkpoint), device, run)
}

fn decompose(
    arrays: Vec<Arc<dyn ChunkedArray>>,
    k: usize,
    options: &StoredSvdOptions,
    checkpoint: Option<&Checkpoint>,
    device: &Device,
    run: &Run,
) -> Result<StoredSvd> {
    let shape @ [m, n] = extents(&arrays)?;
    if k as u64 > m.min(n) {
        let why = format!("{k} components of a matrix of {m} x {n}, which has at most {}", m.min(n));
        return Err(Error::argument(OP, "k", why));
    }
    if options.scale && options.center == Center::Both {
        let why = "standard deviations of a matrix whose rows and columns are both centred";
        return Err(Error::argument(OP, "scale", why));
    }
    device.has_one_kind(OP)?;
    let has = |types: &[StoredType]| arrays.iter().any(|array| types.contains(&array.dtype()));
    let integers = [StoredType::I32, StoredType::U32, StoredType::I64, StoredType::U64];
    let is_f64 = !options.narrow && has(&[StoredType::F64]);
    if is_f64 {
        device.computes_f64(OP)?;
    }
    let in_f64 = is_f64 || !options.narrow && has(&integers) && device.limits().f64;
    let device = &device.also_cancelled_by(&run.cancel);
    let planned = run.memory.planned(device);
    let mut measure = Measure::new(&arrays, shape, options, device)?;
    let convert = Arc::new(Standardized::of_type(in_f64));
    let mut job = Job { arrays: &arrays, convert, shape, k, in_f64, options, checkpoint, device, run };
    let (route, reason) = job.choose(&measure)?;
    let memory = run.memory.fit(device, measure.kept())?;
    let run = &run.clone().memory(memory);
    measure.room = job.room(route, run)?;
    let Standard { convert, power, total, means, variances, missing, passes, mut stats } =
        Standard::new(&measure, in_f64, run)?;
    (job.convert, job.run) = (Arc::new(convert), run);
    let Solved { vectors, readings, stats: of_route } = job.solve(route, &measure)?;
    stats.add(&of_route);
    let (s, residuals, converged, [made, resumed]) = match &vectors {
        Vectors::Map { svd, .. } => (&svd.s, &svd.residuals, &svd.converged, [svd.passes.max(1), svd.found]),
        Vectors::F32(svd) => (&svd.s, &svd.residuals, &svd.converged, [svd.passes, 0]),
        Vectors::F64(svd) => (&svd.s, &svd.residuals, &svd.converged, [svd.passes, 0]),
    };
    Ok(StoredSvd {
        shape,
        s: s.iter().map(|s| s * power).collect(),
        residuals: residuals.clone(),
        converged: converged.clone(),
        means,
        variances,
        total,
        missing,
        in_f64,
        route,
        reason,
        readings: passes + readings,
        passes: made,
        found: resumed,
        devices: if route == SvdRoute::Qr { 1 } else { device.members().len() },
        memory: planned,
        center: options.center,
        stats,
        vectors,
    })
}
