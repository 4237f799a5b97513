//! Weighted sums of lines side by side, and along one line. A sum begins with the centre (of weights without symmetry with the
//! last), and goes on from the outermost to the innermost: the same operations for each element, wherever it stands.

use pulp::{Arch, Simd, WithSimd};

use super::{Kind, real::Real};

/// Elements that lines are padded to a multiple of.
pub(super) const PAD: usize = 64;
/// Lines that are made at once, so that each line read serves several.
pub(super) const GROUP: usize = 4;
/// Vectors that are made at once along a line.
const AHEAD: usize = 4;

/// `G` lines next to each other, of lines that stand at `places` of `from`; line g takes those from place g on.
pub(super) struct Lines<'a, R, const G: usize> {
    pub(super) from: &'a [R],
    /// Where each line stands, and what is added to that: multiples of [`PAD`].
    pub(super) places: &'a [usize],
    pub(super) shift: usize,
    pub(super) weights: &'a [R],
    pub(super) kind: Kind,
    /// The lines made, one after another, each of as many elements.
    pub(super) out: &'a mut [R],
}

impl<R: Real, const G: usize> Lines<'_, R, G> {
    pub(super) fn make(self) {
        Arch::new().dispatch(self);
    }
}

impl<R: Real, const G: usize> WithSimd for Lines<'_, R, G> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { from, places, shift, weights, kind, out } = self;
        let lanes = size_of::<R::Vector<S>>() / size_of::<R>();
        let width = out.len() / G / lanes;
        let shift = shift / lanes;
        let from = R::vectors::<S>(from);
        let out = R::vectors_mut::<S>(out);
        let places = &places[..weights.len() + G - 1];
        let radius = weights.len() / 2;
        let zero = R::splat(simd, R::default());
        for i in 0..width {
            // Closures and iterators would not all be inlined, and what is not has narrow vectors.
            macro_rules! at {
                ($t:expr) => {
                    from[places[$t] / lanes + shift + i]
                };
            }
            let mut sums = [zero; G];
            if kind == Kind::Any {
                let last = R::splat(simd, weights[2 * radius]);
                for g in 0..G {
                    sums[g] = R::mul(simd, at!(g + 2 * radius), last);
                }
                for t in 0..2 * radius {
                    let weight = R::splat(simd, weights[t]);
                    for g in 0..G {
                        sums[g] = R::mul_add(simd, at!(t + g), weight, sums[g]);
                    }
                }
            } else {
                let centre = R::splat(simd, weights[radius]);
                for g in 0..G {
                    sums[g] = R::mul(simd, at!(g + radius), centre);
                }
                // The neighbours of the G lines before and after, of which one each is new at each step.
                let (mut before, mut after) = ([zero; G], [zero; G]);
                if radius > 0 {
                    for g in 1..G {
                        before[g] = at!(g - 1);
                        after[g - 1] = at!(2 * radius + g);
                    }
                }
                for t in 0..radius {
                    for g in 1..G {
                        before[g - 1] = before[g];
                        after[G - g] = after[G - g - 1];
                    }
                    before[G - 1] = at!(t + G - 1);
                    after[0] = at!(2 * radius - t);
                    let weight = R::splat(simd, weights[t]);
                    for g in 0..G {
                        let pair = if kind == Kind::Even {
                            R::add(simd, before[g], after[g])
                        } else {
                            R::sub(simd, before[g], after[g])
                        };
                        sums[g] = R::mul_add(simd, pair, weight, sums[g]);
                    }
                }
            }
            for g in 0..G {
                out[g * width + i] = sums[g];
            }
        }
    }
}

/// One line along itself: element i is a sum of those `step` apart, from element i of the line on.
pub(super) struct Along<'a, R> {
    pub(super) line: &'a [R],
    pub(super) step: usize,
    pub(super) weights: &'a [R],
    pub(super) kind: Kind,
    /// A multiple of [`PAD`].
    pub(super) out: &'a mut [R],
}

impl<R: Real> Along<'_, R> {
    pub(super) fn make(self) {
        Arch::new().dispatch(self);
    }
}

impl<R: Real> WithSimd for Along<'_, R> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { line, step, weights, kind, out } = self;
        let lanes = size_of::<R::Vector<S>>() / size_of::<R>();
        let radius = weights.len() / 2;
        let end = 2 * radius * step;
        let zero = R::splat(simd, R::default());
        let out = R::vectors_mut::<S>(out).as_chunks_mut::<AHEAD>().0;
        for (i, out) in out.iter_mut().enumerate() {
            // What the sums of these elements see.
            let line = &line[i * AHEAD * lanes..][..end + AHEAD * lanes];
            macro_rules! at {
                ($t:expr) => {
                    R::vectors::<S>(&line[$t..][..AHEAD * lanes])
                };
            }
            let mut sums = [zero; AHEAD];
            if kind == Kind::Any {
                let (last, x) = (R::splat(simd, weights[2 * radius]), at!(end));
                for i in 0..AHEAD {
                    sums[i] = R::mul(simd, x[i], last);
                }
                for t in 0..2 * radius {
                    let (weight, x) = (R::splat(simd, weights[t]), at!(t * step));
                    for i in 0..AHEAD {
                        sums[i] = R::mul_add(simd, x[i], weight, sums[i]);
                    }
                }
            } else {
                let (centre, x) = (R::splat(simd, weights[radius]), at!(end / 2));
                for i in 0..AHEAD {
                    sums[i] = R::mul(simd, x[i], centre);
                }
                for t in 0..radius {
                    let weight = R::splat(simd, weights[t]);
                    let (before, after) = (at!(t * step), at!(end - t * step));
                    for i in 0..AHEAD {
                        let pair = if kind == Kind::Even {
                            R::add(simd, before[i], after[i])
                        } else {
                            R::sub(simd, before[i], after[i])
                        };
                        sums[i] = R::mul_add(simd, pair, weight, sums[i]);
                    }
                }
            }
            *out = sums;
        }
    }
}
