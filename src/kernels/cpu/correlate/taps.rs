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
        // As many as registers have room for.
        if size_of::<R::Vector<S>>() >= 64 {
            self.in_steps::<S, 2>(simd)
        } else {
            self.in_steps::<S, 1>(simd)
        }
    }
}

#[allow(
    clippy::needless_range_loop,
    reason = "closures and iterators are not all inlined, and have narrow vectors then"
)]
impl<R: Real, const G: usize> Lines<'_, R, G> {
    /// `A` vectors of each line at once.
    #[inline(always)]
    fn in_steps<S: Simd, const A: usize>(self, simd: S) {
        let elements = A * size_of::<R::Vector<S>>() / size_of::<R>();
        let width = self.out.len() / G;
        for i in (0..width).step_by(elements) {
            let sums = if self.kind == Kind::Any {
                self.one_by_one::<S, A>(simd, i)
            } else {
                self.in_pairs::<S, A>(simd, i)
            };
            for g in 0..G {
                let out = R::vectors_mut::<S>(&mut self.out[g * width + i..][..elements]);
                out[..A].copy_from_slice(&sums[g]);
            }
        }
    }

    /// Elements from i on of the line at place t.
    #[inline(always)]
    fn at<S: Simd, const A: usize>(&self, simd: S, t: usize, i: usize) -> [R::Vector<S>; A] {
        let elements = A * size_of::<R::Vector<S>>() / size_of::<R>();
        let mut values = [R::splat(simd, R::default()); A];
        values.copy_from_slice(
            &R::vectors::<S>(&self.from[self.places[t] + self.shift + i..][..elements])[..A],
        );
        values
    }

    #[inline(always)]
    fn one_by_one<S: Simd, const A: usize>(&self, simd: S, i: usize) -> [[R::Vector<S>; A]; G] {
        let end = self.weights.len() - 1;
        let mut sums = [[R::splat(simd, R::default()); A]; G];
        let last = R::splat(simd, self.weights[end]);
        for g in 0..G {
            let x = self.at::<S, A>(simd, g + end, i);
            for a in 0..A {
                sums[g][a] = R::mul_vectors(simd, x[a], last);
            }
        }
        for t in 0..end {
            let weight = R::splat(simd, self.weights[t]);
            for g in 0..G {
                let x = self.at::<S, A>(simd, t + g, i);
                for a in 0..A {
                    sums[g][a] = R::mul_add(simd, x[a], weight, sums[g][a]);
                }
            }
        }
        sums
    }

    #[inline(always)]
    fn in_pairs<S: Simd, const A: usize>(&self, simd: S, i: usize) -> [[R::Vector<S>; A]; G] {
        let radius = self.weights.len() / 2;
        let zero = [[R::splat(simd, R::default()); A]; G];
        let (mut sums, mut before, mut after) = (zero, zero, zero);
        let centre = R::splat(simd, self.weights[radius]);
        for g in 0..G {
            let x = self.at::<S, A>(simd, g + radius, i);
            for a in 0..A {
                sums[g][a] = R::mul_vectors(simd, x[a], centre);
            }
        }
        // The neighbours of the G lines before and after. One each is new at each step, and takes the place of the line that is
        // needed no more: unrolled by G, every place is a constant, and no vector moves.
        if radius > 0 {
            for g in 1..G {
                before[g - 1] = self.at(simd, g - 1, i);
                after[g] = self.at(simd, 2 * radius + g, i);
            }
        }
        for first in (0..radius).step_by(G) {
            for step in 0..G {
                let t = first + step;
                if t == radius {
                    break;
                }
                before[(step + G - 1) % G] = self.at(simd, t + G - 1, i);
                after[(G - step) % G] = self.at(simd, 2 * radius - t, i);
                let weight = R::splat(simd, self.weights[t]);
                for g in 0..G {
                    let (before, after) = (&before[(step + g) % G], &after[(g + G - step) % G]);
                    for a in 0..A {
                        let pair = if self.kind == Kind::Even {
                            R::add_vectors(simd, before[a], after[a])
                        } else {
                            R::sub_vectors(simd, before[a], after[a])
                        };
                        sums[g][a] = R::mul_add(simd, pair, weight, sums[g][a]);
                    }
                }
            }
        }
        sums
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

#[allow(clippy::needless_range_loop, reason = "as above")]
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
                    sums[i] = R::mul_vectors(simd, x[i], last);
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
                    sums[i] = R::mul_vectors(simd, x[i], centre);
                }
                for t in 0..radius {
                    let weight = R::splat(simd, weights[t]);
                    let (before, after) = (at!(t * step), at!(end - t * step));
                    for i in 0..AHEAD {
                        let pair = if kind == Kind::Even {
                            R::add_vectors(simd, before[i], after[i])
                        } else {
                            R::sub_vectors(simd, before[i], after[i])
                        };
                        sums[i] = R::mul_add(simd, pair, weight, sums[i]);
                    }
                }
            }
            *out = sums;
        }
    }
}
