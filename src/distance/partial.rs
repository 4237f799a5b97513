//! Sums over some of the features, which merge with sums over other features and finally become distances.

use std::ops::Range;

use super::{
    Metric, Missing, Options,
    frame::{Frame, Way, between},
    job::SIDE,
    metric::{Prepare, Scaling},
    partial_sums::PartialSums,
    precision::{factor, is_exact, is_wide, shares},
    results::zeros,
    sums::{ObservationPairs, PreparedObservations, extents, largest},
};
use crate::{
    Device, Element, Error, Needs, Result, Tensor,
    dtype::{halves, joined},
    extent::to_usize,
    kernels::distance::{TILE, Term},
};

/// Sums over features for each pair of observations, on a device: of x with itself, or of x with y. Each chunk of features is added to the sums.
/// [`Partial::export`] returns the sums as host values, which merge and become distances.
///
/// # Cost
/// Device memory: 8 bytes for each pair and each of the metric's one to six terms. Without y, about half the pairs are kept if the metric is
/// symmetric.
///
/// ```
/// use teatime::{Device, Tensor, distance::{Metric, Missing, Options, Partial}};
/// let device = Device::best()?;
/// let options = Options::default().missing(Missing::Ignore);
/// let partial = || Partial::new(&device, 2, None, Metric::Euclidean, &options);
///
/// // Two observations: three features here, in two chunks, and one elsewhere.
/// let mut here = partial()?;
/// here.add(&Tensor::from_slice(&device, &[0.0f32, f32::NAN, 3.0, 5.0], &[2, 2])?, None)?;
/// here.add(&Tensor::from_slice(&device, &[1u8, 1], &[2, 1])?, None)?;
/// let mut elsewhere = partial()?;
/// elsewhere.add(&Tensor::from_slice(&device, &[6i16, 2], &[2, 1])?, None)?;
///
/// let mut sums = here.export()?;
/// sums.merge(&elsewhere.export()?)?;
/// let result = sums.finish()?;
/// assert_eq!(result.distances.data(), [0.0, 5.0, 5.0, 0.0]);
/// assert!(result.shared.is_some_and(|shared| shared.data() == [3.0, 3.0, 3.0, 4.0]));
/// # Ok::<(), teatime::Error>(())
/// ```
#[derive(Debug)]
pub struct Partial {
    device: Device,
    metric: Metric,
    terms: Vec<Term>,
    options: Options,
    features: u64,
    /// True if sums are f64; none before the first features.
    wide: Option<bool>,
    /// True as long as no sum was rounded to f32.
    accurate: bool,
    /// False after an addition that ended midway.
    is_whole: bool,
    /// The observations of x, and of y unless the observations of x are paired with themselves.
    sides: Vec<Side>,
    panels: Vec<SumPanel>,
}

/// The state of the observations of one operand.
#[derive(Debug)]
struct Side {
    name: &'static str,
    undefined: Vec<bool>,
    /// The frame of each observation. All frames are equal for metrics that scale all observations alike.
    frames: Vec<Frame>,
    /// The sum of each observation over all features, if the caller gave sums.
    sums: Option<Vec<f64>>,
}

/// Sums for some observations of x.
#[derive(Debug)]
struct SumPanel {
    rows: Range<u64>,
    /// The number of observations of y, counted from the first.
    columns: u64,
    /// One tensor for each term, (rows, 2 columns).
    sums: Vec<Tensor<f32>>,
}

impl Side {
    fn new((count, name): (u64, &'static str)) -> Result<Self> {
        let count = to_usize(count);
        Ok(Self { name, undefined: zeros(count)?, frames: zeros(count)?, sums: None })
    }

    fn count(&self) -> u64 {
        self.undefined.len() as u64
    }
}

impl Partial {
    /// Creates sums over no features: for m observations paired with themselves, or for m of x with n of y.
    ///
    /// [`Options::columns`] gives the orientation of the added features; the other options are as in [`pairwise`](super::pairwise).
    ///
    /// # Errors
    /// [`Error::Argument`] for an exponent that is not above 0, and a rule for missing elements that the metric does not support;
    /// [`Error::Limit`] when the sums of one observation do not fit a binding; [`Error::OutOfMemory`]; [`Error::OutOfHostMemory`].
    pub fn new(device: &Device, m: u64, n: Option<u64>, metric: Metric, options: &Options) -> Result<Self> {
        metric.check(options.missing)?;
        options.not_expanded("distance")?;
        let width = n.unwrap_or(m);
        let (room, tile) = (device.limits().room(), u64::from(TILE));
        let row = width.saturating_mul(8);
        let mut height = (room / row.max(1)).min(SIDE);
        if height == 0 {
            return Err(Error::Limit { what: "bytes of an observation's sums", requested: row, max: room });
        }
        if height >= tile {
            height -= height % tile;
        }
        let masked = options.missing != Missing::Propagate;
        let given = [Some(m), n].into_iter().flatten().zip(["x", "y"]);
        let mut partial = Self {
            device: device.clone(),
            metric,
            terms: metric.terms_in_parts(masked),
            options: Options { negative: masked && options.negative, ..*options },
            features: 0,
            wide: None,
            accurate: true,
            is_whole: true,
            sides: given.map(Side::new).collect::<Result<_>>()?,
            panels: Vec::new(),
        };
        for start in (0..m).step_by(to_usize(height)) {
            let rows = start..m.min(start + height);
            let columns = if partial.is_lower() { rows.end } else { width };
            let shape = [rows.end - start, 2 * columns];
            let sums = partial.terms.iter().map(|_| Tensor::zeros(device, &shape));
            let sums = sums.collect::<Result<_>>()?;
            partial.panels.push(SumPanel { rows, columns, sums });
        }
        Ok(partial)
    }

    /// Returns the memory for m observations paired with themselves or with n others: the sums on the device, and the maximum that
    /// [`export`](Self::export) and [`PartialSums::finish`] take on the host.
    pub fn needs(m: u64, n: Option<u64>, metric: Metric, missing: Missing) -> Needs {
        let terms = metric.terms_in_parts(missing != Missing::Propagate).len() as u64;
        let width = n.unwrap_or(m);
        let pairs = m.saturating_mul(width);
        let panel = width.saturating_mul(m.min(SIDE));
        // On the device, rows of a panel end at the diagonal of the panel's last row.
        let (held, exported) = match n.is_none() && metric.is_symmetric() {
            true => {
                ((pairs / 2).saturating_add((panel / 2).saturating_add(m)), (pairs / 2).saturating_add(m))
            }
            false => (pairs, pairs),
        };
        let [held, exported] = [held, exported].map(|pairs| pairs.saturating_mul(8 * terms));
        let panel = panel.saturating_mul(8);
        Needs::device(held) + Needs::host(exported) + Needs::host(panel) + Needs::host(16) * pairs
    }

    /// Takes the sum of each observation over all its features, including features added elsewhere; [`Metric::JensenShannon`] divides by it. A
    /// first pass over the features computes the sums, for example with [`row_stats`](crate::linalg::row_stats). The sum of an observation that
    /// has NaN may be NaN.
    ///
    /// # Errors
    /// [`Error::Argument`] for another metric, and for a negative or infinite sum; [`Error::Shape`] unless each observation has one sum.
    pub fn with_sums(mut self, x: &[f64], y: Option<&[f64]>) -> Result<Self> {
        if self.metric != Metric::JensenShannon {
            let why = format_args!("{} takes no sums of observations", self.metric);
            return Err(Error::argument("distance", "metric", why));
        }
        let sums = [x, y.unwrap_or_default()];
        let counts = [0, 1].map(|side| self.sides.get(side).map_or(0, |side| side.undefined.len()));
        if sums.map(<[f64]>::len) != counts {
            let [x, y] = counts;
            let got = format_args!("{:?}", sums.map(<[f64]>::len));
            return Err(Error::shape("distance", format_args!("{x} sums of x and {y} of y"), got));
        }
        for (side, sums) in self.sides.iter_mut().zip(sums) {
            side.undefined.iter_mut().zip(sums).for_each(|(undefined, sum)| *undefined |= sum.is_nan());
            shares((side.name, 0), sums, &mut side.undefined, true)?;
            side.sums = Some(sums.into());
        }
        Ok(self)
    }

    /// Adds the next features of all observations, of any element type. Waits for the checks of the elements, not for the sums.
    ///
    /// # Shapes
    /// `x`: (m, k), `y`: (n, k); with [`Options::columns`], `x`: (k, m), `y`: (k, n). `y` is given if `n` was given to `new`.
    ///
    /// # Errors
    /// [`Error::Shape`]; [`Error::WrongDevice`]; [`Error::NoF64`]; [`Error::Argument`] for features that need f64 after sums in f32, a `y` that
    /// is missing or unexpected, an infinite element, a negative element if the metric excludes it ([table](super#metrics)), and
    /// [`Metric::JensenShannon`] without [sums](Self::with_sums); [`Error::Limit`] when one row does not fit a binding. After any of these
    /// errors nothing was added. [`Error::Cancelled`] and what the device reports: either nothing was added, or some sums lack these features
    /// and every later call returns [`Error::Argument`].
    pub fn add<T: Element>(&mut self, x: &Tensor<T>, y: Option<&Tensor<T>>) -> Result<()> {
        let [_, features] = extents(x, self.options.columns)?;
        let alone = is_wide::<T>(x.device(), &self.terms, Prepare::Nothing, &self.options)?;
        let wide = self.wide.unwrap_or(alone);
        if alone && !wide {
            let why = format_args!(
                "{:?} in f64 after sums in f32 in one `Partial`: those of two merge, and `narrow` rounds to f32",
                T::DTYPE
            );
            return Err(Error::argument("distance", "x", why));
        }
        self.check()?;
        let mut operands = vec![self.operand(&self.sides[0], x, features, wide)?];
        match (self.sides.get(1), y) {
            (Some(side), Some(y)) => operands.push(self.operand(side, y, features, wide)?),
            (None, None) => {}
            (side, _) => {
                let why = if side.is_some() { "is missing" } else { "x is taken with itself" };
                return Err(Error::argument("distance", "y", why));
            }
        }
        if features > 0 {
            self.wide = Some(wide);
            self.accurate &= wide || is_exact::<T>(&self.terms, Prepare::Nothing);
            let (metric, lower) = (self.metric, self.is_lower());
            let frames = self.frames(&mut operands, wide)?;
            self.is_whole = false;
            self.take_frames(frames, wide)?;
            let (x, y) = (&operands[0], &operands[operands.len() - 1]);
            for SumPanel { rows, columns, sums } in &mut self.panels {
                let (x, y) = ((x, rows.clone()), (y, 0..*columns));
                let pairs =
                    ObservationPairs { x, y, features: 0..features, accumulate: true, sums0: 0, y_step: 0 };
                for (&term, sums) in self.terms.iter().zip(sums) {
                    pairs.add(term, metric.power(), &self.options, lower, sums)?;
                }
            }
            self.is_whole = true;
        }
        self.features += features;
        for (side, operand) in self.sides.iter_mut().zip(operands) {
            let undefined = side.undefined.iter_mut().zip(operand.undefined);
            undefined.for_each(|(flag, new)| *flag |= new);
        }
        Ok(())
    }

    /// Returns the frames of all observations, updated for the features to add, and sets the operands' tables to them.
    fn frames<T: Element>(
        &self,
        operands: &mut [PreparedObservations<'_, T>],
        wide: bool,
    ) -> Result<Vec<Vec<Frame>>> {
        let mut frames: Vec<_> = self.sides.iter().map(|side| side.frames.clone()).collect();
        let scaling = self.metric.scaling(wide);
        if let Scaling::Common(range) = scaling {
            let sizes = operands.iter().map(|operand| largest(&operand.sizes)).fold(0.0, f64::max);
            let before = frames.iter().flatten().next().map_or(0.0, |frame| frame.scale);
            let mut scale = before;
            if sizes > 0.0 && (before == 0.0 || sizes * before >= range[1].exp2()) {
                scale = between(range, sizes);
                let factors = self.terms.iter().map(|term| factor(*term, self.metric, scale.recip()));
                if !factors.into_iter().all(|factor| factor.is_normal()) {
                    scale = 1.0;
                }
            }
            frames.iter_mut().flatten().for_each(|frame| frame.scale = scale);
        }
        for (operand, frames) in operands.iter_mut().zip(&mut frames).filter(|_| scaling != Scaling::None) {
            if scaling == Scaling::Each {
                frames.iter_mut().zip(&operand.sizes).for_each(|(frame, size)| frame.fit(*size, wide));
            }
            if self.metric == Metric::Correlation {
                operand.find_shifts(frames, self.features, &self.options)?;
            }
            let entries: Vec<_> = frames.iter().map(Frame::entry).collect();
            operand.set_table(&entries)?;
        }
        Ok(frames)
    }

    /// Converts the sums so far to these frames; for frames that differ by powers of two, this is exact.
    fn take_frames(&mut self, frames: Vec<Vec<Frame>>, wide: bool) -> Result<()> {
        let ways = |(side, new): (&Side, &Vec<Frame>)| -> Vec<Way> {
            side.frames.iter().zip(new).map(|(old, new)| Way::new(old.plain(), new.plain())).collect()
        };
        let ways: Vec<_> = self.sides.iter().zip(&frames).map(ways).collect();
        let (of_x, of_y) = (&ways[0], &ways[ways.len() - 1]);
        if self.features > 0 && of_x.iter().chain(of_y).any(|way| !way.is_none()) {
            let by_pair = self.metric.scaling(wide) == Scaling::Each;
            let (masked, features) = (self.options.missing != Missing::Propagate, self.features as f64);
            let scale = of_x.first().map_or(1.0, |way| way.factor);
            let factors = self.terms.iter().map(|term| factor(*term, self.metric, scale));
            let factors: Vec<f64> = factors.collect();
            let mut values = vec![0.0; factors.len()];
            for SumPanel { rows, columns, sums } in &mut self.panels {
                let width = to_usize(*columns).max(1);
                let mut host_sums = sums.iter().map(Tensor::read).collect::<Result<Vec<_>>>()?;
                for pair in 0..host_sums.first().map_or(0, |sums| sums.len() / 2) {
                    let of_term = |sums: &Vec<f32>| joined(&sums.as_chunks().0[pair], wide);
                    values.iter_mut().zip(&host_sums).for_each(|(value, sums)| *value = of_term(sums));
                    if by_pair {
                        let count = values.last().copied().filter(|_| masked).unwrap_or(features);
                        let way = of_x[to_usize(rows.start) + pair / width];
                        Way::take([way, of_y[pair % width]], &mut values, count);
                    } else {
                        values.iter_mut().zip(&factors).for_each(|(value, factor)| *value *= factor);
                    }
                    for (sums, value) in host_sums.iter_mut().zip(&values) {
                        sums.as_chunks_mut().0[pair] = halves(*value, wide);
                    }
                }
                for (sums, changed) in sums.iter_mut().zip(&host_sums) {
                    *sums = Tensor::from_slice(&self.device, changed, sums.shape())?;
                }
            }
        }
        self.sides.iter_mut().zip(frames).for_each(|(side, frames)| side.frames = frames);
        Ok(())
    }

    /// Returns the current sums on the host. Waits.
    ///
    /// # Errors
    /// [`Error::OutOfHostMemory`]; [`Error::Argument`] after an [`add`](Self::add) that ended midway; what the device reports.
    pub fn export(&self) -> Result<PartialSums> {
        self.check()?;
        let mut exported = PartialSums {
            metric: self.metric,
            missing: self.options.missing,
            negative: self.options.negative,
            features: self.features,
            wide: self.accurate,
            undefined_x: self.sides[0].undefined.clone(),
            undefined_y: self.sides.get(1).map(|y| y.undefined.clone()),
            frames_x: self.plain_frames(&self.sides[0]),
            frames_y: self.sides.get(1).map(|y| self.plain_frames(y)),
            sums: Vec::new(),
        };
        let scale = match self.metric.scaling(self.wide == Some(true)) {
            Scaling::Common(_) => self.sides[0].frames.first().map_or(1.0, Frame::factor),
            _ => 1.0,
        };
        for term in 0..self.terms.len() {
            let unscaled = factor(self.terms[term], self.metric, scale.recip());
            let mut pair_sums = zeros(exported.pairs())?;
            for panel in &self.panels {
                let sums = panel.sums[term].read()?;
                let [first, width] = [panel.rows.start, panel.columns.max(1)].map(to_usize);
                for (row, sums) in (first..).zip(sums.as_chunks().0.chunks(width)) {
                    let row = exported.row(row);
                    let out = pair_sums[row.clone()].iter_mut().zip(&sums[..row.len()]);
                    out.for_each(|(out, sum)| *out = unscaled * joined(sum, self.wide == Some(true)));
                }
            }
            exported.sums.push(pair_sums);
        }
        Ok(exported)
    }

    fn plain_frames(&self, side: &Side) -> Vec<[f64; 2]> {
        let each = self.metric.scaling(true) == Scaling::Each;
        side.frames.iter().filter(|_| each).map(Frame::plain).collect()
    }

    /// Fails with [`Error::Argument`] after an addition that ended midway.
    fn check(&self) -> Result<()> {
        if self.is_whole {
            return Ok(());
        }
        let why = "an earlier `add` failed or was cancelled midway, so that its sums are of no use";
        Err(Error::argument("distance", "partial", why))
    }

    fn is_lower(&self) -> bool {
        self.sides.len() == 1 && self.metric.is_symmetric()
    }

    /// Checks and prepares the features to add.
    fn operand<'a, T: Element>(
        &self,
        side: &Side,
        x: &'a Tensor<T>,
        features: u64,
        wide: bool,
    ) -> Result<PreparedObservations<'a, T>> {
        self.device.has("distance", side.name, x.device())?;
        if extents(x, self.options.columns)? != [side.count(), features] {
            let (name, count) = (side.name, side.count());
            let expected = format_args!("{features} features of {count} observations of {name}");
            return Err(Error::shape("distance", expected, format_args!("{:?}", x.shape())));
        }
        let mut operand =
            PreparedObservations::new((side.name, x, 0), self.metric, Prepare::Nothing, wide, &self.options)?;
        match &side.sums {
            Some(sums) => {
                let entries = shares((side.name, 0), sums, &mut side.undefined.clone(), operand.wide)?;
                operand.set_table(&entries)?;
            }
            None if self.metric == Metric::JensenShannon => {
                let why = format_args!("{} needs the sum of each observation: `with_sums`", self.metric);
                return Err(Error::argument("distance", "metric", why));
            }
            None => {}
        }
        Ok(operand)
    }
}
