//! The ways of a decomposition of a stored matrix: their choice by cost and memory, and their work.

use std::sync::Arc;

use super::{
    Source, StoredSvdOptions, SvdMethod, SvdRoute, Vectors,
    standardize::{Measure, Standardized},
};
use crate::{
    ChunkedArray, Device, Error, Needs, Real, Result, Run, Status, StoredType,
    extent::to_usize,
    linalg::{
        Checkpoint, GroupMatrix, LinearMap, Pass, RightSvd, SignRule, Stop, TruncatedSvd,
        gram_svd::gram_svd_of,
        gram_svd_seconds,
        qr::MAX_COLUMNS,
        randomized_svd, randomized_svd_with_checkpoint, rsvd,
        svd_plan::{copies, least_basis},
        truncated::whole,
    },
    stream::{AsStored, Convert, StreamStats, matrix::StoredMatrix},
};

/// The seconds of a multiplication of a product in f32 on one core; and the multiplications that take as long as reading an element.
const STEP: f64 = 1e-11;
const READ: f64 = 100.0;
/// The seconds up to which QR is taken whatever the iteration costs, since it is more accurate.
const FEW: f64 = 1.0;
/// The number of products that flat spectra take to reach the default tolerance.
const FLAT_PASSES: u32 = 20;
/// The longest shorter side for which QR is taken if an exact decomposition is asked for: its last step takes a second.
const QR_SIDE: u64 = 1024;

/// The seconds that each way is expected to take on one core, and the number of products of the iteration.
struct Costs {
    qr: f64,
    gram: f64,
    iteration: f64,
    passes: u32,
}

/// A decomposition that is to be computed.
pub(super) struct Job<'a> {
    pub(super) arrays: &'a [Arc<dyn ChunkedArray>],
    pub(super) convert: Arc<Standardized>,
    pub(super) shape: [u64; 2],
    pub(super) k: usize,
    pub(super) in_f64: bool,
    pub(super) options: &'a StoredSvdOptions,
    /// The place of the iteration's products, if these are saved.
    pub(super) checkpoint: Option<&'a Checkpoint>,
    pub(super) device: &'a Device,
    pub(super) run: &'a Run,
}

pub(super) struct Solved {
    pub(super) vectors: Vectors,
    /// The number of readings of the arrays, and their stats unless `vectors` has them.
    pub(super) readings: u32,
    pub(super) stats: StreamStats,
}

impl Job<'_> {
    pub(super) fn solve(&self, route: SvdRoute, measure: &Measure<'_>) -> Result<Solved> {
        let (vectors, readings, stats) = match (route, self.in_f64) {
            (SvdRoute::Gram, _) => self.by_gram()?,
            (SvdRoute::KrylovStreamed, _) => {
                // Members read plans of their own, which share no chunks with that of the moments.
                let matrix = self.matrix(false)?.keeping(&measure.plan).by_member()?;
                let svd = self.iterate(&matrix, self.run)?;
                let readings = svd.passes - svd.found;
                if svd.has_image() || !self.options.svd.left {
                    matrix.drop_kept();
                }
                (Vectors::of_map(svd, Source::Stored(Box::new(matrix))), readings, StreamStats::default())
            }
            (SvdRoute::Qr, false) => self.by_qr(Vectors::F32)?,
            (SvdRoute::Qr, true) => self.by_qr(Vectors::F64)?,
            (SvdRoute::KrylovOnDevice, false) => self.on_device::<f32>()?,
            (SvdRoute::KrylovOnDevice, true) => self.on_device::<f64>()?,
        };
        Ok(Solved { vectors, readings, stats })
    }

    /// Returns the host memory that the passes leave for chunks that are kept between them.
    pub(super) fn room(&self, route: SvdRoute, run: &Run) -> Result<u64> {
        if route != SvdRoute::KrylovStreamed || self.k == 0 || self.device.members().len() > 1 {
            return Ok(0);
        }
        let (matrix, svd) = (self.matrix(false)?, &self.options.svd);
        let plan = rsvd::plan(&matrix, self.k, svd, self.checkpoint.is_some(), run)?;
        let [_, room] = matrix.bytes(self.shape[1].min(svd.block(self.k) as u64), &plan.memory)?;
        Ok(room)
    }

    fn matrix(&self, is_transposed: bool) -> Result<StoredMatrix> {
        let convert: Arc<dyn Convert> = match (self.convert.is_identity, self.in_f64) {
            (false, _) => self.convert.clone(),
            (true, false) => Arc::new(AsStored(StoredType::F32)),
            (true, true) => Arc::new(AsStored(StoredType::F64)),
        };
        StoredMatrix::converted(self.arrays.to_vec(), convert, self.in_f64, is_transposed, self.device)
    }

    /// Returns the matrix whose columns are of the shorter side, its rows divided among the members of the group.
    fn tall(&self) -> Result<GroupMatrix<StoredMatrix>> {
        self.matrix(self.shape[0] < self.shape[1])?.by_member()
    }

    /// Returns the bytes of the matrix on the device.
    fn bytes(&self) -> u64 {
        let [m, n] = self.shape;
        m.saturating_mul(n).saturating_mul(if self.in_f64 { 8 } else { 4 })
    }

    /// Returns the memory of a matrix whose rows stay on the members.
    fn resident(&self, matrix: &GroupMatrix<StoredMatrix>) -> Needs {
        self.device.members_need(Needs::device(matrix.bytes_of_part()))
    }

    /// Chooses the way, and says why. Fails with [`Error::Budget`] if neither `measure` nor a way that the options allow fits the memory.
    pub(super) fn choose(&self, measure: &Measure<'_>) -> Result<(SvdRoute, String)> {
        let ([m, n], short) = (self.shape, self.shape[0].min(self.shape[1]));
        let (l, k) = ((self.options.svd.block(self.k) as u64).min(n), self.k as u64);
        let (alone, tall, square) = (self.matrix(false)?, self.tall()?, short.saturating_mul(short));
        let fit =
            |needs: Needs| self.run.memory.fit(self.device, needs.max(measure.needs()) + measure.kept());
        let gram_fits = fit(tall.gram_needs().max(tall.needs(k)).max(Needs::host(32) * square));
        let fits_buffer = |bytes: u64| bytes <= self.device.limits().buffer;
        // QR holds three matrices, and one of a wide matrix's transpose.
        let held = Needs::device(self.bytes()) * if m < n { 4 } else { 3 };
        let can_qr = fits_buffer(self.bytes()) && short <= MAX_COLUMNS;
        let qr_fits = can_qr.then(|| fit(held + Needs::host(80) * square + alone.needs(0)));
        let has_qr = matches!(qr_fits, Some(Ok(_)));
        let or_of_qr = |error: Error| match qr_fits {
            Some(Err(qr)) => error.or_of_less_memory(qr),
            _ => error,
        };
        let home = if self.device.limits().f64 { self.device.clone() } else { self.device.host()? };
        let matrix = alone.by_member()?;
        let least = least_basis(to_usize(n), self.k, to_usize(l)).on(&home) + matrix.needs(l);
        let is_saved = u64::from(self.checkpoint.is_some());
        let least = least + copies(&home, to_usize(n), to_usize(l)) * 2 * is_saved;
        let iteration_fits = fit(least);
        let stays = fits_buffer(matrix.bytes_of_part()) && fit(self.resident(&matrix) + least).is_ok();
        let krylov = if stays { SvdRoute::KrylovOnDevice } else { SvdRoute::KrylovStreamed };

        let Costs { qr, gram, iteration, passes } = self.costs(stays);
        let (square_of, products) =
            (format!("the {short} x {short} Gram matrix"), format!("{passes} products"));
        let (route, why) = match self.options.method {
            _ if k == 0 => (SvdRoute::KrylovStreamed, "no component is wanted".into()),
            SvdMethod::Randomized => {
                iteration_fits?;
                (krylov, "asked for".into())
            }
            SvdMethod::Exact if has_qr && (short <= QR_SIDE || gram_fits.is_err()) => {
                (SvdRoute::Qr, "exact was asked for, and the matrix fits the device".into())
            }
            SvdMethod::Exact => {
                gram_fits.map_err(or_of_qr)?;
                let why = if has_qr { "QR costs more" } else { "QR does not fit the memory budget" };
                (SvdRoute::Gram, format!("exact was asked for, and {why}"))
            }
            SvdMethod::Auto if has_qr && qr <= iteration.max(FEW) => {
                (SvdRoute::Qr, "the matrix fits the device, and QR costs little".into())
            }
            SvdMethod::Auto => match (gram_fits, iteration_fits) {
                (Err(_), Err(_)) if has_qr => (SvdRoute::Qr, "nothing else fits the memory budget".into()),
                (Err(gram), Err(iteration)) => return Err(or_of_qr(iteration.or_of_less_memory(gram))),
                (Err(_), _) => (krylov, format!("{square_of} does not fit the memory budget")),
                (_, Err(_)) => (SvdRoute::Gram, "the iteration does not fit the memory budget".into()),
                _ if gram <= iteration => {
                    (SvdRoute::Gram, format!("{square_of} costs less than the {products} that are expected"))
                }
                _ => (krylov, format!("the {products} that are expected cost less than {square_of}")),
            },
        };
        Ok((route, why))
    }

    /// Returns the expected costs. The iteration reads the matrix once if it `stays` on the device.
    fn costs(&self, stays: bool) -> Costs {
        let ([m, n], short) = (self.shape, self.shape[0].min(self.shape[1]));
        let passes = match self.options.svd.stop {
            Stop::PowerIterations(q) => q.saturating_add(2),
            Stop::Tolerance(_) => self.options.svd.max_passes.min(FLAT_PASSES),
        };
        let (elements, side, products) = (m as f64 * n as f64, short as f64, f64::from(passes.max(1)));
        let readings = if stays { 1.0 } else { products };
        let columns = self.options.svd.block(self.k) as f64;
        Costs {
            // Three rounds take 9 products, and the rest takes one second for 1,000 columns.
            qr: STEP * elements * (9.0 * side + READ) + side.powi(3) * 1e-9,
            gram: STEP * elements * (side + READ) + gram_svd_seconds(short, self.k as u64),
            iteration: STEP * elements * (4.0 * columns * products + READ * readings),
            passes,
        }
    }

    fn by_qr<R: Real>(&self, of: fn(TruncatedSvd<R>) -> Vectors) -> Result<(Vectors, u32, StreamStats)> {
        let matrix = self.matrix(false)?;
        let mut svd = whole(&matrix.load::<R>(self.run)?, self.k)?;
        svd.set_signs(self.options.svd.sign, false)?;
        Ok((of(svd), 1, matrix.stats()))
    }

    fn on_device<R: Real>(&self) -> Result<(Vectors, u32, StreamStats)> {
        let matrix = self.matrix(false)?.by_member()?;
        let run = self.run.clone().memory(self.run.memory.fit(self.device, self.resident(&matrix))?);
        let tensors = matrix.load::<R>(&run)?;
        let svd = self.iterate(&tensors, &run)?;
        Ok((Vectors::of_map(svd, Source::OnDevice(Box::new(tensors))), 1, matrix.stats()))
    }

    /// Finds the components of a map by the iteration.
    fn iterate(&self, map: &dyn LinearMap, run: &Run) -> Result<RightSvd> {
        let options = self.options;
        let Some(checkpoint) = self.checkpoint else {
            return randomized_svd(map, self.k, &options.svd, run);
        };
        let mut checkpoint = checkpoint
            .clone()
            .property("center", format!("{:?}", options.center).to_lowercase())
            .property("scale", options.scale)
            .property("means and deviations", format!("{:016x}", self.convert.digest()));
        let devices = self.device.members().len();
        if devices > 1 {
            checkpoint = checkpoint.property("devices", devices);
        }
        randomized_svd_with_checkpoint(map, self.k, &options.svd, &checkpoint, run)
    }

    fn by_gram(&self) -> Result<(Vectors, u32, StreamStats)> {
        let (matrix, is_transposed) = (self.tall()?, self.shape[0] < self.shape[1]);
        let sign = match (is_transposed, self.options.svd.sign) {
            // The right vectors of the transpose are the left ones of the matrix.
            (true, SignRule::MaxAbsU) => SignRule::MaxAbsV,
            (true, SignRule::MaxAbsV) => SignRule::MaxAbsU,
            (_, sign) => sign,
        };
        let gram = matrix.gram(&Pass::new(self.run, Status::new(0, 1, matrix.shape()[0])))?;
        let mut svd = gram_svd_of(&gram, self.k, sign, self.device, matrix.precision())?;
        drop(gram);
        if sign == SignRule::MaxAbsU {
            sign.apply(&matrix, &mut svd.v, &mut svd.passes, self.run)?;
        }
        let (readings, map) = (1 + svd.passes, Source::Stored(Box::new(matrix)));
        Ok((Vectors::Map { svd, map, is_transposed }, readings, StreamStats::default()))
    }
}

impl Vectors {
    fn of_map(svd: RightSvd, map: Source) -> Self {
        Self::Map { svd, map, is_transposed: false }
    }
}
