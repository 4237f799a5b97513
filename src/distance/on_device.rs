//! Distances that stay on the device, as f32.

use std::ops::Range;

use super::{
    Metric, Options,
    job::{Job, Measure},
    operands::Operands,
    sums::PreparedObservations,
};
#[cfg(doc)]
use crate::Error;
use crate::{
    Device, Element, Needs, Result, Run, Status, Tensor,
    dtype::{halves, nearest_f32},
    extent::{blocks, pieces, to_usize},
    kernel::{Grid, small},
    kernels::{
        WG,
        distance::Term,
        finish_distance::{FINISH_DISTANCE, Formula, Params, spec},
    },
    launch::Arg,
    packed::pair_products::{exponent, power_of_two},
    tensor::Pending,
};

/// Returns the distances of [`pairwise`](super::pairwise) as f32 on the device. Enqueues the distances. Waits for the checks of the arguments
/// and, if there are more than some millions of pairs, for all but the last millions of distances.
///
/// # Shapes
/// As [`pairwise`](super::pairwise): (m, m) or (m, n), with the observations of `x` as rows. Symmetric to the bit if `y` is not given and the
/// metric is symmetric.
///
/// # Accuracy
/// On devices that [compute in f64](crate::Limits::f64), the cpu and CUDA, a distance is that of `pairwise` rounded to f32, or one of the two
/// adjacent f32, unless it is [expanded](Options::expanded).
///
/// Other devices compute distances from the same sums in pairs of f32. A distance is within 4 units in the last place of that of `pairwise`
/// there. For `minkowski` with an exponent p other than 1 and 2, it is within 2^-18 of it, or 2^-20 / p if that is more. For `cosine` and
/// `correlation` with missing elements, it may be off by 2^-40 more, and for `correlation` by 1 + μ²/σ² times that, with μ and σ as in [the
/// bound on their sums](super#accuracy). Distances below 2^-126 may be 0. `NaN` is in the same places as with `pairwise`, except for an
/// observation that varies as little as rounding does, which may or may not count as constant.
///
/// # Cost
/// As [`pairwise`](super::pairwise), but no pair takes host memory or a transfer. Device memory: 4 bytes for each pair, and one block of sums,
/// up to 32 MiB for each of the metric's terms. If a block has an observation whose distances are all NaN, a word is uploaded for each of the
/// block's observations.
///
/// # Errors
/// As [`pairwise`](super::pairwise); [`Error::Limit`] when the distances of one observation do not fit a binding;
/// [`Error::Budget`] when all distances and one pair's sums do not fit the budget of the device.
///
/// ```
/// use teatime::{Device, Run, Tensor, distance::{Metric, Options, pairwise_tensor}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[0.0f32, 0.0, 3.0, 4.0], &[2, 2])?;
/// let distances = pairwise_tensor(&x, None, Metric::CityBlock, &Options::default(), &Run::default())?;
/// assert_eq!((distances.shape(), distances.read()?), (&[2, 2][..], vec![0.0, 7.0, 7.0, 0.0]));
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn pairwise_tensor<T: Element>(
    x: &Tensor<T>,
    y: Option<&Tensor<T>>,
    metric: Metric,
    options: &Options,
    run: &Run,
) -> Result<Tensor<f32>> {
    let job = Job::new(x, y, metric, options)?;
    let (measure, [m, n]) = (&job.measure, job.extents().map(|extent| extent as u64));
    let bytes = m.saturating_mul(n).saturating_mul(4);
    // Products come before their sums, while the sums of the previous block are still there.
    let sums = Needs::device(if options.expanded { 24 } else { 8 * measure.terms.len() as u64 });
    let side = measure.side_of(sums, Needs::device(bytes), &run.memory)?;
    let lines = measure.device.limits().rows_per_launch(n, WG)?;
    let mut out = Tensor::empty(&measure.device, &[m, n])?;
    if !out.is_empty() {
        fill(&job, [side, lines], run, &mut out)?;
    }
    Ok(out)
}

/// Enqueues all distances, in blocks with `side` observations along each side, writing `lines` lines of the output at a time.
fn fill<T: Element>(
    job: &Job<'_, T>,
    [side, lines]: [u64; 2],
    run: &Run,
    out: &mut Tensor<f32>,
) -> Result<()> {
    let measure = &job.measure;
    let clear = Tensor::zeros(&measure.device, &[2 * side])?;
    let extents = job.extents().map(|extent| extent as u64);
    let expanded = job.expanded()?;
    let terms = if expanded.is_some() { &[] } else { &measure.terms[..] };
    let mut sums = BlockSums { expanded, ..BlockSums::new(measure, terms, extents, side, run)? };
    sums.each(job, &mut |sums, rows, columns| {
        let flags = measure.flags(&rows, &columns)?;
        let flags = flags.as_ref().unwrap_or(&clear);
        let mut write =
            |is_transposed| measure.write_block((sums, flags), [&rows, &columns], out, lines, is_transposed);
        write(false)?;
        if measure.is_lower() { write(true) } else { Ok(()) }
    })
}

/// A function that takes the sums of one block after the other, and the block's rows and columns.
pub(super) type SumSink<'a> = dyn FnMut(&Tensor<f32>, Range<u64>, Range<u64>) -> Result<()> + 'a;

/// Sums of blocks of pairs, which stay on the device. Each block reuses the memory of the previous one, unless sums are expanded.
pub(super) struct BlockSums<'a> {
    measure: &'a Measure,
    terms: &'a [Term],
    side: u64,
    run: &'a Run,
    sums: Tensor<f32>,
    expanded: Option<&'a Operands>,
    ends: Ends,
}

impl<'a> BlockSums<'a> {
    /// Takes the memory of the sums of these terms for a block of m and n observations, at most `side` along each side.
    pub(super) fn new(
        measure: &'a Measure,
        terms: &'a [Term],
        [m, n]: [u64; 2],
        side: u64,
        run: &'a Run,
    ) -> Result<Self> {
        let sums = Tensor::empty(&measure.device, &[terms.len() as u64 * m.min(side), 2 * n.min(side)])?;
        Ok(Self { measure, terms, side, run, sums, expanded: None, ends: Ends::new(&measure.device)? })
    }

    /// Enqueues each block of a job (of the lower triangle if symmetric), passes its sums to `sink`, term after term, and reports progress.
    pub(super) fn each<T: Element>(&mut self, job: &Job<'_, T>, sink: &mut SumSink<'_>) -> Result<()> {
        let ([x, y], run) = (job.operands(), self.run);
        let (mut status, mut passed) = (Status::new(0, 1, x.count), 0);
        let mut tell = |done| {
            if done > status.rows {
                status.rows = done;
                run.progress.tell(status);
            }
        };
        for rows in job.parts(x.range()) {
            let count = rows.end - rows.start;
            self.add((x, rows, passed), y, sink, &mut tell)?;
            passed += count;
        }
        // The last rows are still being computed.
        tell(passed);
        Ok(())
    }

    /// Enqueues the sums of each block of some observations of x with y, as [`each`](Self::each) does. `before` observations of x were passed
    /// earlier. Passes the number of those whose blocks are done to `done`.
    pub(super) fn add<T: Element>(
        &mut self,
        (x, all, before): (&PreparedObservations<'_, T>, Range<u64>, u64),
        y: &PreparedObservations<'_, T>,
        sink: &mut SumSink<'_>,
        done: &mut dyn FnMut(u64),
    ) -> Result<()> {
        let Self { measure, terms, side, run, sums, expanded, ends } = self;
        for rows in pieces(all.clone(), *side) {
            let paired = measure.paired_with(&rows, &y.range());
            for columns in pieces(paired.clone(), *side) {
                run.cancel.check()?;
                let pairs = (rows.end - rows.start) * (columns.end - columns.start);
                if let Some(operands) = expanded {
                    *sums = operands.sums(rows.clone(), columns.clone())?;
                }
                for (&term, i) in terms.iter().zip(0..) {
                    let (x, y) = ((x, rows.clone()), (y, columns.clone()));
                    measure.enqueue_term(term, x, y, (sums, i * pairs))?;
                }
                let last = if columns.end == paired.end { rows.end } else { rows.start };
                sink(sums, rows.clone(), columns)?;
                if let Some(passed) = ends.enqueue(before + last - all.start)? {
                    done(passed);
                }
            }
        }
        Ok(())
    }
}

/// Markers of the ends of blocks. Each waits for the previous one, so that the host is at most one block ahead of the device.
pub(super) struct Ends {
    /// A word whose download completes once all earlier work is done.
    word: Tensor<u32>,
    /// The previous marker, and the number of observations that are done when it completes.
    before: Option<(Pending<u32>, u64)>,
}

impl Ends {
    pub(super) fn new(device: &Device) -> Result<Self> {
        Ok(Self { word: Tensor::zeros(device, &[1])?, before: None })
    }

    /// Enqueues a marker, waits for the previous one, and returns the number of observations done by then.
    pub(super) fn enqueue(&mut self, end: u64) -> Result<Option<u64>> {
        let now = (self.word.download()?, end);
        let Some((before, done)) = self.before.replace(now) else { return Ok(None) };
        before.wait()?;
        Ok(Some(done))
    }
}

impl Measure {
    /// Enqueues the distances of a block from the sums of its terms, in place or transposed, `lines` lines of the output at a time. `flags` are for
    /// the rows, then for the columns.
    fn write_block(
        &self,
        (sums, flags): (&Tensor<f32>, &Tensor<u32>),
        [rows, columns]: [&Range<u64>; 2],
        out: &mut Tensor<f32>,
        lines: u64,
        transposed: bool,
    ) -> Result<()> {
        let n = out.shape()[1];
        let [height, width] = [rows, columns].map(|range| range.end - range.start);
        let (along, across) = if transposed { (columns, rows) } else { (rows, columns) };
        let (formula, factor) = self.formula();
        let terms = self.terms.len() as u64;
        let sums = sums.window(0..2 * terms * height * width).arg;
        // Only the differences between indices matter; the indices themselves may exceed the kernel's u32.
        let least = rows.start.min(columns.start);
        for part in blocks(along.end - along.start, lines) {
            let [first, end] = [part.start, part.end].map(|line| (along.start + line) * n);
            let target = out.window_update(first..end);
            // The part's start in the block, its size, and the output's strides.
            let count = part.end - part.start;
            let ([row, col], size, steps) = match transposed {
                true => ([0, part.start], [height, count], [1, n]),
                false => ([part.start, 0], [count, width], [n, 1]),
            };
            let params = Params {
                rows: small(size[0]),
                cols: small(size[1]),
                sums0: small(row * width + col),
                sums_step: small(width),
                term_step: small(height * width),
                out0: target.start + small(across.start),
                out_row_step: small(steps[0]),
                out_col_step: small(steps[1]),
                row_flag0: small(row),
                col_flag0: small(height + col),
                row0: small(rows.start + row - least),
                col0: small(columns.start + col - least),
                lower: self.is_lower().into(),
                zero_diagonal: (self.is_self && self.metric.is_zero_on_diagonal()).into(),
                ..self.params(formula, factor)
            };
            self.finish((sums, self.wide), flags.as_read(), target.arg, &params)?;
        }
        Ok(())
    }

    /// Returns the formula that computes distances from sums, and the factor of the sums.
    pub(super) fn formula(&self) -> (Formula, f64) {
        let formula = match self.metric {
            Metric::Minkowski(1.0) => Formula::Plain,
            Metric::Minkowski(2.0) => Formula::Root,
            metric => metric.formula(self.terms.len() == 1),
        };
        // Ratios need no factor.
        let factor = match formula {
            Formula::Root | Formula::Power => self.unscale,
            Formula::Plain | Formula::Largest => self.factors[0],
            _ => 1.0,
        };
        (formula, factor)
    }

    /// Returns the parameters that all launches with this formula share.
    pub(super) fn params(&self, formula: Formula, factor: f64) -> Params {
        // The factor is applied in two steps, as it may be beyond f32 although distances are not.
        let first = power_of_two(exponent(factor) / 2);
        let power = self.metric.power();
        let [features, features_rest] = halves(self.features as f64, false);
        let [inverse, inverse_rest] = halves(power.recip(), false);
        let [[power_low, power_high], [factor_low, factor_high]] =
            [power, factor].map(bytemuck::cast::<f64, [u32; 2]>);
        Params {
            formula: formula as u32,
            terms: small(self.terms.len() as u64),
            missing: self.options.missing as u32,
            features,
            features_rest,
            power_low,
            power_high,
            inverse,
            inverse_rest,
            factor_low,
            factor_high,
            factor_first: nearest_f32(first),
            factor_second: nearest_f32(factor / first),
            ..Params::default()
        }
    }

    /// Returns flags for a block's observations whose distances are all NaN: of rows, then of columns. `None` if there are none.
    fn flags(&self, rows: &Range<u64>, columns: &Range<u64>) -> Result<Option<Tensor<u32>>> {
        let [x, y] = [(0, rows), (usize::from(!self.is_self), columns)]
            .map(|(side, range)| &self.undefined[side][to_usize(range.start)..to_usize(range.end)]);
        let flags: Vec<u32> = x.iter().chain(y).map(|&flag| flag.into()).collect();
        match flags.contains(&1) {
            true => Tensor::from_slice(&self.device, &flags, &[flags.len() as u64]).map(Some),
            false => Ok(None),
        }
    }

    /// Enqueues the distances of a matrix of pairs, or another formula, row by row, in launches that fit bindings. Sums are f64 if `wide`.
    pub(super) fn finish_rows(
        &self,
        (sums, wide): (&Tensor<f32>, bool),
        out: &mut Tensor<f32>,
        params: &Params,
    ) -> Result<()> {
        let [m, n, terms, term_step] =
            [params.rows, params.cols, params.terms, params.term_step].map(u64::from);
        let words = 1 + params.paired;
        let most = self.device.limits().rows_per_launch(2 * n, WG)?;
        let clear = Tensor::<u32>::zeros(&self.device, &[most.min(m).max(n)])?;
        for rows in blocks(m, most) {
            let [start, end] = [rows.start * n, rows.end * n];
            let from = sums.window(2 * start..2 * ((terms - 1) * term_step + end));
            let to = out.window_update(u64::from(words) * start..u64::from(words) * end);
            let part = Params {
                rows: small(rows.end - rows.start),
                sums0: from.start / 2,
                sums_step: params.cols,
                out0: to.start / words,
                out_row_step: params.cols,
                out_col_step: 1,
                row0: params.row0 + small(rows.start),
                ..*params
            };
            self.finish((from.arg, wide), clear.as_read(), to.arg, &part)?;
        }
        Ok(())
    }

    /// Enqueues the kernel that finishes the sums of all terms.
    fn finish(
        &self,
        (sums, wide): (Arg<'_>, bool),
        flags: Arg<'_>,
        out: Arg<'_>,
        params: &Params,
    ) -> Result<()> {
        let pairs = u64::from(params.rows) * u64::from(params.cols);
        let groups = pairs.div_ceil(WG.into());
        let grid = Grid::linear(groups, self.device.limits().groups_per_axis, 64 * pairs)?;
        self.device.launch(&FINISH_DISTANCE, &spec(wide), grid, &[sums, flags, out], params)
    }
}
