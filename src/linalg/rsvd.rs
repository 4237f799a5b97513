//! Truncated singular value decomposition of a matrix known only through products.

use std::sync::Arc;

use super::{
    checkpoint::{Checkpoint, properties},
    kept::Image,
    map::{LinearMap, Pass, RowSink},
    map_tensor::BLOCK,
    matrix::Matrix,
    right_svd::{OP, RightSvd, SvdOptions},
    sign::SignRule,
    steps::SvdSteps,
    svd_plan::{Products, SvdPlan},
};
#[cfg(doc)]
use crate::Error;
use crate::{
    Result, Run, Status,
    extent::{blocks, to_usize},
};

/// Returns the `k` largest singular values and right singular vectors of `map`, found by randomized block Krylov iteration.
///
/// A Gaussian block of l = k + oversamples columns is multiplied by AᵀA, once per pass. The block of each pass is made orthonormal and kept,
/// and Rayleigh-Ritz runs on all blocks: A ≈ U diag(s) Vᵀ, with `U` from [`left_vectors`]. The method follows Musco and Musco, "Randomized
/// block Krylov methods for stronger and faster approximate singular value decomposition" (2015).
///
/// # Shapes
/// `map`: (m, n) -> k values, `v` (n, k). Values beyond the rank are 0, and their vectors are orthonormal too.
///
/// # Accuracy
/// The value of a component with residual r has a relative error of about r² σ₁² / (4 g σ²), where g is the value's relative distance to the
/// values that are not wanted. AᵀA is multiplied in f32, so a value below about 1.4e-3 of the largest counts as 0, unless the map is [more
/// precise](LinearMap::precision). [`truncated_svd`](super::truncated_svd) of a resident matrix has no such floor.
///
/// # Cost
/// One pass of the map per iteration. With p passes, the basis has 2 p n l values of f64, and computing with it takes about 5 n (p l)²
/// operations. The basis is on the device on which the map [takes vectors](LinearMap::keeps_vectors_on). Otherwise it is in the host's
/// memory, and the threads of the map's device compute. A basis that exceeds its share of `run.memory`, the least basis and half of what that
/// and a [pass](LinearMap::needs) leave, restarts from the best k + l vectors, which costs passes. Each pass waits several times, for p l²
/// values. The result depends on the seed and the map alone, unless the basis restarts.
///
/// With [`SvdOptions::left`] the host also keeps m values of f32 for each of the p l columns, and m k values of f64 for the result. They take
/// at most half of the host memory that the basis and the least pass leave. The values and the right vectors stay the same to the bit, but
/// for signs of [`SignRule::MaxAbsU`] where two entries are equal up to rounding.
///
/// # Errors
/// [`Error::Argument`] when k is more than min(m, n), when an option is out of range, or when the products hold NaN or infinity;
/// [`Error::Budget`] when not even a restarted basis fits; [`Error::Cancelled`]; any error that the map reports. Reaching the pass limit is
/// no error: see [`RightSvd::converged`].
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
    decompose(map, k, options, None, run)
}

/// Works as [`randomized_svd`], and puts the product of each pass at `checkpoint`, or takes it from there: a call that is stopped or killed at
/// any time is continued by the same call, to the same bits. Shapes and results are those of [`randomized_svd`], to the bit.
///
/// The basis is made again from the products, without a pass. If memory bounds the basis, a call within another budget goes on from the last
/// product whose vectors are the same. Products stay at the checkpoint when the call is done; a call that finds them all makes no pass.
///
/// # Cost
/// In addition to that of [`randomized_svd`], each pass puts 8 n l bytes at the checkpoint, and with [`SvdOptions::left`] 4 m l more, and waits
/// until they are there. For this the host holds 16 n l bytes while no pass runs, and another 8 m l if there is room to keep these products.
/// A product that is found costs the algebra between two passes.
///
/// # Errors
/// As [`randomized_svd`]; [`Error::Store`] if the checkpoint is that of another job, with a property that differs; [`Error::Io`] if it cannot
/// be read or written, for example on a full disk. Products that were put stay. A product that is damaged is made again, but
/// for one that was kept for left vectors, which then take a pass.
pub fn randomized_svd_with_checkpoint(
    map: &dyn LinearMap,
    k: usize,
    options: &SvdOptions,
    checkpoint: &Checkpoint,
    run: &Run,
) -> Result<RightSvd> {
    decompose(map, k, options, Some(checkpoint), run)
}

/// Plans a [`randomized_svd`], whose products are saved if `is_saved`.
pub(crate) fn plan(
    map: &dyn LinearMap,
    k: usize,
    options: &SvdOptions,
    is_saved: bool,
    run: &Run,
) -> Result<SvdPlan> {
    let products = Products { saved: is_saved, ..Products::from_map(map, options.block(k), "map")? };
    SvdPlan::new(OP, products, k, options, run)
}

fn decompose(
    map: &dyn LinearMap,
    k: usize,
    options: &SvdOptions,
    checkpoint: Option<&Checkpoint>,
    run: &Run,
) -> Result<RightSvd> {
    let plan = plan(map, k, options, checkpoint.is_some(), run)?;
    let run = &run.clone().memory(plan.memory);
    let devices = [map.device().unwrap_or(&plan.home), &plan.home];
    let job = properties(map.shape(), map.precision(), devices, k, options);
    let mut steps = SvdSteps::start(plan)?;
    let saved = checkpoint.map(|checkpoint| checkpoint.open(job)).transpose()?;
    steps.run(map, saved.as_ref(), run)?;
    let mut svd = steps.unsigned()?;
    match steps.image()? {
        Some(mut image) => {
            let negative =
                options.sign.negative(if options.sign == SignRule::MaxAbsU { &image } else { &svd.v });
            svd.v.negate_columns(&negative);
            image.negate_columns(&negative);
            svd.image = Some(Arc::new(Image::new(image, &svd.v)));
        }
        None if k > 0 => options.sign.apply(map, &mut svd.v, &mut svd.passes, run)?,
        None => {}
    }
    Ok(svd)
}

/// Calls `sink` with the index of the first row and the rows of each block of U = A V / s, in order.
///
/// This takes one pass of the map, or none if `svd` was computed [for left vectors](SvdOptions::left) and kept the products that its passes
/// made: A V is the sum of these products, weighted as the vectors of the basis are in V. They are kept if
///
/// - the map gives them ([`LinearMap::apply_both`]), as a [`StoredMatrix`](crate::stream::StoredMatrix) and a resident
///   [`Tensor`](crate::Tensor) do, with the [precision](LinearMap::precision) of f32,
/// - the host's memory has room for them,
/// - and the basis does not restart.
///
/// Otherwise, and if `svd.v` was changed, there is a pass. `map` is the matrix that was decomposed.
///
/// # Shapes
/// `map`: (m, n), `svd` of k components -> blocks of (rows, k), m rows in all. Columns of U for singular values of 0 are 0.
///
/// # Accuracy
/// Columns of converged components are orthonormal to about their residual plus 1e-7 σ₁ / σ, with a pass or without. The last bits differ.
///
/// # Cost
/// At most one pass of the map, which keeps within `run.memory` if the map does, and memory for one block of U in f64 on the host.
///
/// # Errors
/// Any error that the map or `sink` reports.
pub fn left_vectors(map: &dyn LinearMap, svd: &RightSvd, run: &Run, sink: &mut RowSink<'_>) -> Result<()> {
    let m = map.shape()[0];
    let pass = Pass::new(run, Status::new(0, 1, m));
    let mut scaled = Matrix::zeros(0, 0);
    let mut divide = |first: u64, rows: &Matrix| {
        scaled.clone_from(rows);
        for row in scaled.data_mut().chunks_exact_mut(svd.s.len().max(1)) {
            for (value, s) in row.iter_mut().zip(&svd.s) {
                *value = if *s > 0.0 { *value / s } else { 0.0 };
            }
        }
        sink(first, &scaled)
    };
    let Some(image) = svd.image.as_ref().filter(|image| image.is_of(m, &svd.v)) else {
        return map.apply(&svd.v, &pass, &mut divide);
    };
    let (image, k) = (&image.product, svd.s.len());
    blocks(m, BLOCK).try_for_each(|rows| {
        let values = &image.data()[to_usize(rows.start) * k..to_usize(rows.end) * k];
        divide(rows.start, &Matrix::from_vec(values.to_vec(), values.len() / k.max(1), k)?)?;
        pass.tell(rows.end)
    })
}
