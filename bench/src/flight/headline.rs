//! The headline: the truncated SVD of 10,000,000 x 20,000 random entries, or of a fraction of the rows, stage by stage.

use std::{cell::RefCell, time::Instant};

use teatime::{
    Device, DeviceKind, Result, Run, Status, Tensor,
    linalg::{LinearMap, Matrix, Pass, RowSink, Stop, SvdOptions, randomized_svd},
    packed::{PackedMatrix, PackedRows, packed_uniform},
    to_usize,
};

use super::rows::{COLUMNS, Kind, WIDTH, WORDS, operand, panel, size, timed};
use crate::{measure::Session, report::Unit::Milliseconds};

/// The fractions of the headline's rows that are measured, by name.
pub(super) const SHARES: [(&str, u64); 5] =
    [("0.0001", 1000), ("0.001", 10_000), ("0.01", 100_000), ("0.1", 1_000_000), ("1", 10_000_000)];
const COMPONENTS: usize = 10;
/// The number of runs for a median.
const RUNS: usize = 3;

/// Measures every fraction that fits the memory and the time, after a warm-up run.
pub(super) fn headline(session: &mut Session<'_>) {
    let started = Instant::now();
    if let Err(error) = warm(session.device) {
        return session.failed("headline", &error.to_string());
    }
    let sizes = SHARES.map(|(share, rows)| (format!("headline {share}"), rows));
    let sizes: Vec<_> = sizes.into_iter().filter(|(id, _)| session.wants(id)).collect();
    let left = session.budget - started.elapsed().as_secs_f64();
    session.grow(left, sizes, |rows| size(&rows).memory, one);
}

/// Runs every kernel of the headline once.
fn warm(device: &Device) -> Result<()> {
    let [_, (_, rows), ..] = SHARES;
    let rows = if device.info().kind == DeviceKind::Discrete { rows * 10 } else { SHARES[0].1 };
    svd(device, rows).map(drop)
}

/// Runs the whole headline and returns the seconds for making the matrix and for the decomposition.
pub(crate) fn svd(device: &Device, rows: u64) -> Result<[f64; 2]> {
    let run = Run::default();
    let started = Instant::now();
    let matrix = PackedMatrix::random(device, rows, COLUMNS, 0, &run)?;
    let made = started.elapsed().as_secs_f64();
    randomized_svd(&matrix, COMPONENTS, &options(), &run)?;
    Ok([made, started.elapsed().as_secs_f64() - made])
}

fn options() -> SvdOptions {
    SvdOptions::default().stop(Stop::PowerIterations(0)).oversamples(WIDTH - COMPONENTS)
}

/// Measures one fraction, each stage separately and several times.
fn one(session: &mut Session<'_>, id: &str, rows: u64) -> Result<()> {
    let device = session.device;
    if device.members().len() > 1 {
        return together(session, id, rows);
    }
    let mut stages = making(device, rows)?;
    let run = Run::default();
    let (matrix, made) = timed(device, || PackedMatrix::random(device, rows, COLUMNS, 0, &run))?;
    stages.push(("matrix made, memory taken", vec![made]));
    stages.extend(passes(&matrix)?);
    stages.extend(whole(&matrix)?);
    for (name, seconds) in stages {
        session.record(&format!("{id}: {name}"), &size(&rows).text, Milliseconds, 1.0, &seconds);
    }
    let [name, whole, part] =
        ["packed_adjoint", "pass", "packed_apply"].map(|stage| format!("{id}: {stage}, none missing"));
    session.difference(&name, &whole, &part);
    Ok(())
}

/// Measures one fraction on the members of a group, whose passes are one stage.
fn together(session: &mut Session<'_>, id: &str, rows: u64) -> Result<()> {
    let seconds = (0..RUNS).map(|_| svd(session.device, rows)).collect::<Result<Vec<_>>>()?;
    for (stage, name) in ["matrix made, memory taken", SVD].into_iter().enumerate() {
        let seconds: Vec<f64> = seconds.iter().map(|seconds| seconds[stage]).collect();
        session.record(&format!("{id}: {name}"), &size(&rows).text, Milliseconds, 1.0, &seconds);
    }
    Ok(())
}

/// The name of the stage that has all others.
const SVD: &str = "svd, 10 components, 2 passes";

/// The name of each stage, and the seconds of its runs.
type Found = Vec<(&'static str, Vec<f64>)>;

fn repeated(mut work: impl FnMut() -> Result<f64>) -> Result<Vec<f64>> {
    (0..RUNS).map(|_| work()).collect()
}

/// Times the making of the matrix, panel by panel, without keeping panels.
fn making(device: &Device, rows: u64) -> Result<Found> {
    let panel = panel(device);
    let panels = || (0..rows).step_by(to_usize(panel)).map(|first| (first, panel.min(rows - first)));
    let codes = |(first, count)| packed_uniform(device, 0, first, count, COLUMNS).map(drop);
    Ok(vec![("packed_uniform", repeated(|| Ok(timed(device, || panels().try_for_each(codes))?.1))?)])
}

/// Times the stages of a pass, and the copies in a pass alone.
fn passes(matrix: &PackedMatrix) -> Result<Found> {
    let (device, staged, x) = (matrix.device(), Staged::new(matrix)?, operand()?);
    let apply = repeated(|| staged.apply_alone(&x))?;
    let mut stages: [Vec<f64>; 3] = Default::default();
    for _ in 0..RUNS {
        let (_, times) = staged.pass(&x)?;
        stages.iter_mut().zip(times).for_each(|(times_of_stage, one)| times_of_stage.push(one));
    }
    let [start, middle, end] = stages;
    // Three digits for each number, in rows of 64 bytes.
    let digits = vec![1u8; to_usize(16 * WORDS * 64)];
    let upload = || Tensor::from_slice(device, &digits, &[digits.len() as u64]);
    let sums = vec![1u32; to_usize(2 * COLUMNS) * WIDTH];
    let sums = Tensor::from_slice(device, &sums, &[sums.len() as u64])?;
    Ok(vec![
        ("packed_apply, none missing", apply),
        ("pass, none missing", middle),
        ("operand: host, then copy", start),
        ("copy of the operand", repeated(|| Ok(timed(device, upload)?.1))?),
        ("sums: copy, then host", end),
        ("copy of the sums", repeated(|| Ok(timed(device, || sums.read())?.1))?),
    ])
}

/// Times the decomposition, the part of it outside passes, and a product whose rows are read one by one.
fn whole(matrix: &PackedMatrix) -> Result<Found> {
    let (device, staged, x, run) = (matrix.device(), Staged::new(matrix)?, operand()?, Run::default());
    let (mut whole, mut outside) = (Vec::new(), Vec::new());
    for _ in 0..RUNS {
        let (_, total) = timed(device, || randomized_svd(&staged, COMPONENTS, &options(), &run))?;
        whole.push(total);
        outside.push(total - staged.spent.take().iter().sum::<f64>());
    }
    let pass = Pass::new(&run, Status::new(0, 1, matrix.shape()[0]));
    let (_, apply) = timed(device, || matrix.apply(&x, &pass, &mut |_, _| Ok(())))?;
    Ok(vec![(SVD, whole), ("svd without its passes: host", outside), ("PackedMatrix::apply", vec![apply])])
}

/// A packed matrix whose passes are timed stage by stage.
struct Staged<'a> {
    matrix: &'a PackedMatrix,
    table: Tensor<f32>,
    /// The seconds of each pass.
    spent: RefCell<Vec<f64>>,
}

impl<'a> Staged<'a> {
    fn new(matrix: &'a PackedMatrix) -> Result<Self> {
        let table = Kind::PLAIN.table(matrix.device(), panel(matrix.device()).min(matrix.shape()[0]))?;
        Ok(Self { matrix, table, spent: RefCell::default() })
    }

    fn each(&self, f: &mut dyn FnMut(PackedRows<'_>) -> Result<()>) -> Result<()> {
        let run = Run::default();
        let pass = Pass::new(&run, Status::new(0, 1, self.matrix.shape()[0]));
        self.matrix.each(&pass, &mut |panel| f(panel.packed()?))
    }

    /// Returns the seconds of `A X` on the device.
    fn apply_alone(&self, x: &Matrix) -> Result<f64> {
        let device = self.matrix.device();
        let pass = Kind::PLAIN.start(device, x)?;
        Ok(timed(device, || self.each(&mut |rows| pass.weigh(rows, &self.table)))?.1)
    }

    /// Returns `Aᵀ (A X)`, and the seconds for the operand, on the device, and for the sums.
    fn pass(&self, x: &Matrix) -> Result<(Matrix, [f64; 3])> {
        let device = self.matrix.device();
        let (mut pass, start) = timed(device, || Kind::PLAIN.start(device, x))?;
        let ((), middle) = timed(device, || self.each(&mut |rows| pass.add(rows, &self.table)))?;
        let (product, end) = timed(device, || pass.finish())?;
        Ok((product, [start, middle, end]))
    }
}

impl LinearMap for Staged<'_> {
    fn shape(&self) -> [u64; 2] {
        self.matrix.shape()
    }

    fn device(&self) -> Option<&Device> {
        Some(self.matrix.device())
    }

    fn apply_normal(&self, x: &Matrix, _: &Pass<'_>) -> Result<Matrix> {
        let (product, stages) = self.pass(x)?;
        self.spent.borrow_mut().push(stages.iter().sum());
        Ok(product)
    }

    fn apply(&self, x: &Matrix, pass: &Pass<'_>, sink: &mut RowSink<'_>) -> Result<()> {
        self.matrix.apply(x, pass, sink)
    }
}
