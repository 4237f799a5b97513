//! Weighted sums of adjacent lines, and along one line.
//! A sum starts with the centre and continues from the outermost tap to the innermost. (With differences it ends with the centre; with weights
//! without symmetry it starts with the last tap.) So all elements are computed by the same operations, wherever they are.
//!
//! Differences of finite values may be infinite, and differences of infinite values are NaN. Such a sum is computed again from scaled elements.

#![allow(
    clippy::needless_range_loop,
    reason = "closures and iterators are not all inlined, and have narrow vectors then"
)]

use pulp::{Arch, Simd, WithSimd};

use super::{Kind, real::Real};

/// The number of elements to a multiple of which lines are padded: that of two of the longest vectors.
pub(super) const PAD: usize = 32;
/// The number of lines that are computed at once, so that each line that is read serves several.
pub(super) const GROUP: usize = 8;
/// The number of elements of the longest vector.
pub(super) const LANES: usize = PAD / 2;
/// The number of vectors that are computed at once along a line.
const AHEAD: usize = 4;

/// The coefficients of an axis.
#[derive(Clone, Copy)]
pub(super) struct Numbers<'a, R> {
    pub(super) weights: &'a [R],
    pub(super) kind: Kind,
    /// True if sums may be infinite, though their exact values are finite, even for small elements.
    pub(super) may_overflow: bool,
}

impl<R: Real> Numbers<'_, R> {
    /// Computes sums that are not finite again, from elements divided by a power of two: intermediate values then overflow only if the result does.
    /// Infinite elements have no differences, so elements times weights are added. `at(t, i)` is the element that tap t of sum i reads.
    #[cold]
    fn again(&self, sums: &mut [R], at: impl Fn(usize, usize) -> R) {
        const SCALE: f64 = (1u64 << 32) as f64;
        let Self { weights, kind, .. } = *self;
        let (radius, end) = (weights.len() / 2, weights.len() - 1);
        let number = |t: usize| weights[t].to_f64();
        let weight = |t: usize| match kind {
            Kind::Even if t == radius => number(radius) - 2.0 * number(radius - 1),
            Kind::Odd if t < radius => -number(end - t),
            Kind::Any => number(t),
            _ => number(t.max(end - t)),
        };
        for (i, sum) in sums.iter_mut().enumerate().filter(|(_, sum)| !sum.to_f64().is_finite()) {
            let scaled = |t: usize| at(t, i).to_f64() / SCALE;
            if (0..=end).any(|t| scaled(t).is_nan()) {
                continue;
            }
            let steps = |inner: usize| {
                let (before, after) = (inner - 1, end - inner + 1);
                ((scaled(before) - scaled(inner)) + (scaled(after) - scaled(end - inner))) * number(before)
            };
            let apart = (1..=radius).map(steps).sum::<f64>() + scaled(radius) * number(radius);
            let is_apart = kind == Kind::Even && apart.is_finite();
            let again = if is_apart { apart } else { (0..=end).map(|t| scaled(t) * weight(t)).sum() };
            *sum = R::nearest(again * SCALE);
        }
    }
}

/// Adjacent output lines, which are computed from the lines at `places` of `from`; output line g reads from place g on.
#[derive(Clone, Copy)]
pub(super) struct LineGroup<'a, R> {
    pub(super) from: &'a [R],
    /// The place of each line; `shift` is added to all. All are multiples of [`PAD`].
    pub(super) places: &'a [usize],
    pub(super) shift: usize,
    /// The minimum number of elements of each line to compute.
    pub(super) width: usize,
    pub(super) numbers: Numbers<'a, R>,
}

impl<'a, R: Real> LineGroup<'a, R> {
    /// Returns true if sums of line `g` may be infinite though their exact values are finite.
    fn may_overflow(&self, g: usize) -> bool {
        let met = &self.places[g..][..self.numbers.weights.len()];
        let is_large = |place: &usize| R::any_may_overflow(&self.from[place + self.shift..][..self.width]);
        self.numbers.may_overflow || met.iter().any(is_large)
    }

    /// Computes `G` consecutive lines of equal length. With `care`, computes sums again if they are infinite and may be finite.
    pub(super) fn make<const G: usize>(self, out: &mut [R], care: bool) {
        let (arch, lines, kind) = (Arch::new(), self, self.numbers.kind);
        match kind {
            Kind::Any => arch.dispatch(OneByOne::<R, G> { lines, out }),
            Kind::Even => arch.dispatch(InPairs::<R, G, true, false> { lines, out }),
            Kind::Odd => arch.dispatch(InPairs::<R, G, false, true> { lines, out }),
            Kind::Paired => arch.dispatch(InPairs::<R, G, false, false> { lines, out }),
        }
        if care {
            let stride = out.len() / G;
            for (g, out) in out.chunks_exact_mut(stride).enumerate() {
                let out = &mut out[..self.width];
                if R::are_finite(out) || !self.may_overflow(g) {
                    continue;
                }
                self.numbers.again(out, |t, i| self.from[self.places[g + t] + self.shift + i]);
            }
        }
    }

    /// Returns the group that starts at line `first`.
    #[inline(always)]
    pub(super) fn from(self, first: usize) -> Self {
        Self { places: &self.places[first..], ..self }
    }

    /// Returns the elements from i on of the line at place t.
    #[inline(always)]
    fn at<S: Simd, const A: usize>(&self, simd: S, t: usize, i: usize) -> [R::Vector<S>; A] {
        let elements = A * size_of::<R::Vector<S>>() / size_of::<R>();
        let mut values = [R::splat(simd, R::default()); A];
        values.copy_from_slice(
            &R::vectors::<S>(&self.from[self.places[t] + self.shift + i..][..elements])[..A],
        );
        values
    }

    /// Returns the elements of the line at place t. With `APART`, returns `held`, the elements of that line, less the elements of the line
    /// at place `inner`, and stores the latter in `held`.
    #[inline(always)]
    fn term<S: Simd, const A: usize, const APART: bool>(
        &self,
        simd: S,
        [t, inner]: [usize; 2],
        i: usize,
        held: &mut [R::Vector<S>; A],
    ) -> [R::Vector<S>; A] {
        if !APART {
            return self.at::<S, A>(simd, t, i);
        }
        let inner = self.at::<S, A>(simd, inner, i);
        let mut apart = *held;
        for a in 0..A {
            apart[a] = R::sub_vectors(simd, held[a], inner[a]);
        }
        *held = inner;
        apart
    }
}

/// Finds out if all sums are finite: 0 times a sum is NaN if it is not. (It is also NaN if several sums together overflow, which is harmless.)
struct Finite<R: Real, S: Simd> {
    simd: S,
    zero: R::Vector<S>,
    sum: R::Vector<S>,
}

impl<R: Real, S: Simd> Finite<R, S> {
    #[inline(always)]
    fn new(simd: S) -> Self {
        let zero = R::splat(simd, R::default());
        Self { simd, zero, sum: zero }
    }

    #[inline(always)]
    fn see<const N: usize>(&mut self, sums: [R::Vector<S>; N]) {
        let together = sums.into_iter().reduce(|total, one| R::add_vectors(self.simd, total, one));
        self.sum = R::mul_add(self.simd, together.unwrap_or(self.zero), self.zero, self.sum);
    }

    #[inline(always)]
    fn holds(&self) -> bool {
        let mut lanes = [R::default(); PAD];
        R::vectors_mut::<S>(&mut lanes)[0] = self.sum;
        lanes.iter().all(|lane| *lane == R::default())
    }
}

/// Computes lines with weights without symmetry.
struct OneByOne<'a, 'o, R, const G: usize> {
    lines: LineGroup<'a, R>,
    out: &'o mut [R],
}

/// Computes lines with symmetric weights (by differences of neighbours if `APART`), or with antisymmetric weights if `ODD`.
struct InPairs<'a, 'o, R, const G: usize, const APART: bool, const ODD: bool> {
    lines: LineGroup<'a, R>,
    out: &'o mut [R],
}

/// Returns true if vectors have 64 bytes: processors with such vectors have 32 vector registers, others at least 16.
const fn is_long<R: Real, S: Simd>() -> bool {
    size_of::<R::Vector<S>>() >= 64
}

impl<R: Real, const G: usize> WithSimd for OneByOne<'_, '_, R, G> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_long::<R, S>() && G < GROUP { self.in_steps::<S, 2>(simd) } else { self.in_steps::<S, 1>(simd) }
    }
}

impl<R: Real, const G: usize, const APART: bool, const ODD: bool> WithSimd
    for InPairs<'_, '_, R, G, APART, ODD>
{
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        if is_long::<R, S>() && G < GROUP {
            self.in_steps::<S, 2>(simd)
        } else if is_long::<R, S>() || G < GROUP {
            self.in_steps::<S, 1>(simd)
        } else {
            const HALF: usize = GROUP / 2;
            let Self { lines, out } = self;
            let (out, rest) = out.split_at_mut(out.len() / 2);
            InPairs::<R, HALF, APART, ODD> { lines, out }.in_steps::<S, 1>(simd);
            InPairs::<R, HALF, APART, ODD> { lines: lines.from(HALF), out: rest }.in_steps::<S, 1>(simd);
        }
    }
}

impl<R: Real, const G: usize> OneByOne<'_, '_, R, G> {
    #[inline(always)]
    fn in_steps<S: Simd, const A: usize>(self, simd: S) {
        let Self { lines, out } = self;
        let elements = A * size_of::<R::Vector<S>>() / size_of::<R>();
        let (stride, weights) = (out.len() / G, lines.numbers.weights);
        let end = weights.len() - 1;
        let last = R::splat(simd, weights[end]);
        for i in (0..lines.width).step_by(elements) {
            let mut sums = [[last; A]; G];
            for g in 0..G {
                let x = lines.at::<S, A>(simd, g + end, i);
                for a in 0..A {
                    sums[g][a] = R::mul_vectors(simd, x[a], last);
                }
            }
            for t in 0..end {
                let weight = R::splat(simd, weights[t]);
                for g in 0..G {
                    let x = lines.at::<S, A>(simd, t + g, i);
                    for a in 0..A {
                        sums[g][a] = R::mul_add(simd, x[a], weight, sums[g][a]);
                    }
                }
            }
            for g in 0..G {
                R::vectors_mut::<S>(&mut out[g * stride + i..][..elements])[..A].copy_from_slice(&sums[g]);
            }
        }
    }
}

impl<R: Real, const G: usize, const APART: bool, const ODD: bool> InPairs<'_, '_, R, G, APART, ODD> {
    #[inline(always)]
    fn in_steps<S: Simd, const A: usize>(self, simd: S) {
        let Self { lines, out } = self;
        let elements = A * size_of::<R::Vector<S>>() / size_of::<R>();
        let (stride, weights) = (out.len() / G, lines.numbers.weights);
        let radius = weights.len() / 2;
        let centre = R::splat(simd, weights[radius]);
        let zero = [[R::splat(simd, R::default()); A]; G];
        const { assert!(G <= GROUP) };
        for i in (0..lines.width).step_by(elements) {
            let (mut sums, mut before, mut after) = (zero, zero, zero);
            if !APART {
                for g in 0..G {
                    let x = lines.at::<S, A>(simd, g + radius, i);
                    for a in 0..A {
                        sums[g][a] = R::mul_vectors(simd, x[a], centre);
                    }
                }
            }
            // The lines before and after the centres of the G sums. At each step, one new line on each side replaces
            // the line that is no longer needed. Since the loop is unrolled by G, all indices are constants, and no
            // vector moves. `left` and `right` are the lines for the next differences.
            let (mut left, mut right) = (zero[0], zero[0]);
            if radius > 0 {
                (left, right) = (lines.at(simd, 0, i), lines.at(simd, 2 * radius + G - 1, i));
                for g in 1..G {
                    before[g - 1] = lines.term::<S, A, APART>(simd, [g - 1, g], i, &mut left);
                }
                for g in (1..G).rev() {
                    let last = 2 * radius + g;
                    after[g] = lines.term::<S, A, APART>(simd, [last, last - 1], i, &mut right);
                }
            }
            macro_rules! steps {
                ($($step:literal)*) => {
                    for first in (0..radius).step_by(G) {
                        'steps: {$(
                            let (step, t) = ($step, first + $step);
                            if step >= G || t == radius {
                                break 'steps;
                            }
                            let far = t + G - 1;
                            before[(step + G - 1) % G] =
                                lines.term::<S, A, APART>(simd, [far, far + 1], i, &mut left);
                            let last = 2 * radius - t;
                            after[(G - step) % G] =
                                lines.term::<S, A, APART>(simd, [last, last - 1], i, &mut right);
                            let weight = R::splat(simd, weights[t]);
                            for g in 0..G {
                                let (before, after) = (&before[(step + g) % G], &after[(g + G - step) % G]);
                                for a in 0..A {
                                    let pair = if ODD {
                                        R::sub_vectors(simd, before[a], after[a])
                                    } else {
                                        R::add_vectors(simd, before[a], after[a])
                                    };
                                    sums[g][a] = R::mul_add(simd, pair, weight, sums[g][a]);
                                }
                            }
                        )*}
                    }
                };
            }
            // The loop is unrolled by hand: otherwise a compiler may keep the lines in memory.
            steps!(0 1 2 3 4 5 6 7);
            for g in 0..G {
                if APART {
                    let x = lines.at::<S, A>(simd, g + radius, i);
                    for a in 0..A {
                        sums[g][a] = R::mul_add(simd, x[a], centre, sums[g][a]);
                    }
                }
                R::vectors_mut::<S>(&mut out[g * stride + i..][..elements])[..A].copy_from_slice(&sums[g]);
            }
        }
    }
}

/// Sums along one line: sum i has taps that are `step` apart, from element i of the line on.
#[derive(Clone, Copy)]
pub(super) struct LineSums<'a, R> {
    pub(super) line: &'a [R],
    pub(super) step: usize,
    pub(super) numbers: Numbers<'a, R>,
    /// Each element of the line less the element that is `step` behind, for [`Kind::Even`]. Empty for small radii, where sums are faster without it.
    pub(super) apart: &'a [R],
}

impl<R: Real> LineSums<'_, R> {
    /// Returns the sums from element `first` on.
    pub(super) fn from(self, first: usize) -> Self {
        Self { line: &self.line[first..], apart: self.apart.get(first..).unwrap_or_default(), ..self }
    }

    /// Computes a multiple of [`LANES`] sums. With `care`, repeats sums that are infinite and may be finite. Returns true if all were finite.
    #[inline(always)]
    pub(super) fn make(self, out: &mut [R], care: bool) -> bool {
        let is_finite = Arch::new().dispatch(LineSumsTo { along: self, out: &mut *out });
        let Self { line, step, numbers, .. } = self;
        if care && !is_finite && (numbers.may_overflow || R::any_may_overflow(line)) {
            numbers.again(out, |t, i| line[i + t * step]);
        }
        is_finite
    }
}

struct LineSumsTo<'a, 'o, R> {
    along: LineSums<'a, R>,
    out: &'o mut [R],
}

impl<R: Real> WithSimd for LineSumsTo<'_, '_, R> {
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let Self { along, out } = self;
        let lanes = size_of::<R::Vector<S>>() / size_of::<R>();
        let mut finite = Finite::<R, S>::new(simd);
        let (blocks, rest) = R::vectors_mut::<S>(out).as_chunks_mut::<AHEAD>();
        for (i, out) in blocks.iter_mut().enumerate() {
            *out = along.sums::<S, AHEAD>(simd, i * AHEAD * lanes);
            finite.see(*out);
        }
        let first = blocks.len() * AHEAD;
        for (i, out) in rest.iter_mut().enumerate() {
            let sums = along.sums::<S, 1>(simd, (first + i) * lanes);
            *out = sums[0];
            finite.see(sums);
        }
        finite.holds()
    }
}

impl<R: Real> LineSums<'_, R> {
    /// Computes the sums from element `first` on.
    #[inline(always)]
    fn sums<S: Simd, const N: usize>(&self, simd: S, first: usize) -> [R::Vector<S>; N] {
        let Self { line, step, numbers: Numbers { weights, kind, .. }, apart } = *self;
        let elements = N * size_of::<R::Vector<S>>() / size_of::<R>();
        let radius = weights.len() / 2;
        let end = 2 * radius * step;
        // The terms are elements of the line or its differences, of which there is one fewer.
        let is_apart = !apart.is_empty();
        let (terms, last) = if is_apart { (apart, end - step) } else { (line, end) };
        let terms = &terms[first..][..last + elements];
        let middle = &R::vectors::<S>(&line[first + end / 2..][..elements])[..N];
        macro_rules! at {
            ($t:expr) => {
                R::vectors::<S>(&terms[$t..][..elements])
            };
        }
        let mut sums = [R::splat(simd, R::default()); N];
        if kind == Kind::Any {
            let (weight, x) = (R::splat(simd, weights[2 * radius]), at!(end));
            for i in 0..N {
                sums[i] = R::mul_vectors(simd, x[i], weight);
            }
            for t in 0..2 * radius {
                let (weight, x) = (R::splat(simd, weights[t]), at!(t * step));
                for i in 0..N {
                    sums[i] = R::mul_add(simd, x[i], weight, sums[i]);
                }
            }
            return sums;
        }
        let centre = R::splat(simd, weights[radius]);
        if kind == Kind::Even && !is_apart {
            // Computes differences of the line itself, two at a time, so that no vector moves.
            let (mut before, mut after) = (sums, sums);
            before.copy_from_slice(at!(0));
            after.copy_from_slice(at!(end));
            macro_rules! tap {
                ($t:expr, $before:ident $after:ident, $left:ident $right:ident) => {
                    let weight = R::splat(simd, weights[$t]);
                    let ($left, $right) = (at!(($t + 1) * step), at!(end - ($t + 1) * step));
                    for i in 0..N {
                        let left = R::sub_vectors(simd, $before[i], $left[i]);
                        let right = R::sub_vectors(simd, $after[i], $right[i]);
                        sums[i] = R::mul_add(simd, R::add_vectors(simd, left, right), weight, sums[i]);
                    }
                };
            }
            for t in (0..radius - radius % 2).step_by(2) {
                tap!(t, before after, left right);
                tap!(t + 1, left right, next last);
                before.copy_from_slice(next);
                after.copy_from_slice(last);
            }
            if radius % 2 > 0 {
                tap!(radius - 1, before after, left right);
            }
            for i in 0..N {
                sums[i] = R::mul_add(simd, middle[i], centre, sums[i]);
            }
            return sums;
        }
        if !is_apart {
            for i in 0..N {
                sums[i] = R::mul_vectors(simd, middle[i], centre);
            }
        }
        macro_rules! pairs {
            ($join:ident) => {
                for t in 0..radius {
                    let weight = R::splat(simd, weights[t]);
                    let (before, after) = (at!(t * step), at!(last - t * step));
                    for i in 0..N {
                        let pair = R::$join(simd, before[i], after[i]);
                        sums[i] = R::mul_add(simd, pair, weight, sums[i]);
                    }
                }
            };
        }
        if kind == Kind::Paired {
            pairs!(add_vectors);
        } else {
            pairs!(sub_vectors);
        }
        if is_apart {
            for i in 0..N {
                sums[i] = R::mul_add(simd, middle[i], centre, sums[i]);
            }
        }
        sums
    }
}
