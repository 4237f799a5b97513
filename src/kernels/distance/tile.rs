//! Adds up the terms of a block of features in registers.

use pulp::{Arch, NullaryFnOnce, Simd, WithSimd};

use super::{COLS, Params, ROWS, Real, Term};
use crate::kernels::cpu::simd::wide;

/// Returns the sums of a block of features for [`ROWS`] by [`COLS`] observations.
pub(super) fn tile<R: Real>(p: &Params, masked: bool, x: &[[R; ROWS]], y: &[[R; COLS]]) -> [[R; COLS]; ROWS] {
    macro_rules! by_term {
        ($($term:ident => |$a:ident, $b:ident| $value:expr;)*) => {
            match Term::from_code(p.term) {
                $(Term::$term => {
                    let term = |$a: R, $b: R| $value;
                    if masked { wide(TermTile::<R, _, true> { x, y, term }) } else { wide(TermTile::<R, _, false> { x, y, term }) }
                })*
                Term::Largest => wide(Largest { x, y }),
            }
        };
    }
    let power = R::power(p);
    let common = CommonTile { x, y, term: Term::from_code(p.term) };
    if !masked && let Some(sums) = Arch::new().dispatch(common) {
        return sums;
    }
    by_term! {
        Product => |x, y| x * y;
        Square => |x, y| (x - y) * (x - y);
        Absolute => |x, y| (x - y).abs();
        Power => |x, y| (x - y).abs().powf(power);
        Canberra => |x, y| quotient((x - y).abs(), x.abs() + y.abs());
        Sum => |x, y| (x + y).abs();
        Unequal => |x, y| R::from(f32::from(x != y));
        Both => |x, y| R::from(f32::from((x != R::default()) & (y != R::default())));
        One => |x, y| R::from(f32::from((x != R::default()) != (y != R::default())));
        Count => |_x, _y| R::from(1.0);
        X => |x, _y| x;
        Y => |_x, y| y;
        XSquare => |x, _y| x * x;
        YSquare => |_x, y| y * y;
        Root => |x, y| x.sqrt() * y.sqrt();
        Relative => |x, y| relative(x, y);
        Divergence => |x, y| divergence(x, y);
    }
}

/// A tile of any term. It uses no closures for its loops: the compiler may not inline them, and compiles them without wide vectors then.
struct TermTile<'a, R, F, const MASKED: bool> {
    x: &'a [[R; ROWS]],
    y: &'a [[R; COLS]],
    term: F,
}

impl<R: Real, F: Fn(R, R) -> R, const MASKED: bool> NullaryFnOnce for TermTile<'_, R, F, MASKED> {
    type Output = [[R; COLS]; ROWS];

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut sums = [[R::default(); COLS]; ROWS];
        for (x, y) in self.x.iter().zip(self.y) {
            for (sums, &x) in sums.iter_mut().zip(x) {
                for (sum, &y) in sums.iter_mut().zip(y) {
                    let value = (self.term)(x, y);
                    *sum += if MASKED && (x.is_nan() | y.is_nan()) { R::default() } else { value };
                }
            }
        }
        sums
    }
}

/// A tile of a term of one or two instructions, if no element is missing. The compiler unrolls the plain loops of such
/// terms and then does not vectorise them, which is 10 times slower.
struct CommonTile<'a, R> {
    x: &'a [[R; ROWS]],
    y: &'a [[R; COLS]],
    term: Term,
}

impl<R: Real> WithSimd for CommonTile<'_, R> {
    /// The sums; `None` for other terms.
    type Output = Option<[[R; COLS]; ROWS]>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let Self { x, y, term } = self;
        Some(match term {
            Term::Product => add(simd, x, y, |sum, x, y| R::mul_add_vectors(simd, x, y, sum)),
            Term::Square => add(simd, x, y, |sum, x, y| {
                let part = R::sub_vectors(simd, x, y);
                R::mul_add_vectors(simd, part, part, sum)
            }),
            Term::Absolute => add(simd, x, y, |sum, x, y| {
                R::add_vectors(simd, sum, R::abs_vector(simd, R::sub_vectors(simd, x, y)))
            }),
            Term::Sum => add(simd, x, y, |sum, x, y| {
                R::add_vectors(simd, sum, R::abs_vector(simd, R::add_vectors(simd, x, y)))
            }),
            _ => return None,
        })
    }
}

/// Adds the terms of two vectors of each row at a time, so that eight sums are in registers.
#[inline(always)]
fn add<R: Real, S: Simd>(
    simd: S,
    x: &[[R; ROWS]],
    y: &[[R; COLS]],
    term: impl Fn(R::Vector<S>, R::Vector<S>, R::Vector<S>) -> R::Vector<S>,
) -> [[R; COLS]; ROWS] {
    const VECTORS: usize = 2;
    let mut out = [[R::default(); COLS]; ROWS];
    for first in (0..R::vectors::<S>(&out[0]).len()).step_by(VECTORS) {
        let mut sums = [[R::splat(simd, R::default()); VECTORS]; ROWS];
        for (x, y) in x.iter().zip(y) {
            let y = &R::vectors::<S>(y)[first..first + VECTORS];
            for (sums, &x) in sums.iter_mut().zip(x) {
                let x = R::splat(simd, x);
                sums[0] = term(sums[0], x, y[0]);
                sums[1] = term(sums[1], x, y[1]);
            }
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            R::vectors_mut::<S>(out)[first..first + VECTORS].copy_from_slice(&sums);
        }
    }
    out
}

/// Computes the largest |x - y|. NaN never counts as larger.
struct Largest<'a, R> {
    x: &'a [[R; ROWS]],
    y: &'a [[R; COLS]],
}

impl<R: Real> NullaryFnOnce for Largest<'_, R> {
    type Output = [[R; COLS]; ROWS];

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut largest = [[R::default(); COLS]; ROWS];
        for (x, y) in self.x.iter().zip(self.y) {
            for (largest, &x) in largest.iter_mut().zip(x) {
                for (largest, &y) in largest.iter_mut().zip(y) {
                    let value = (x - y).abs();
                    *largest = if value > *largest { value } else { *largest };
                }
            }
        }
        largest
    }
}

/// Returns the quotient, or 0 if `whole` is not above 0.
#[inline(always)]
fn quotient<R: Real>(part: R, whole: R) -> R {
    if whole > R::default() { part / whole } else { R::default() }
}

/// Returns the term `Relative`: with t = (x - y) / (x + y), log(x / y) is 2 artanh t.
#[inline(always)]
fn relative<R: Real>(x: R, y: R) -> R {
    if x <= R::default() || y <= R::default() {
        return if x > R::default() { x * x.ln() } else { R::default() };
    }
    let t = quotient(x - y, x + y);
    let log = if t * t < R::from(0.25) { R::near_log(t) } else { (x / y).ln() };
    x * log
}

/// Returns the term `Divergence`: with t = (x - y) / (x + y), it is (x + y) / 2 times (1 + t) log(1 + t) + (1 - t) log(1 - t).
#[inline(always)]
fn divergence<R: Real>(x: R, y: R) -> R {
    let whole = x + y;
    let t = quotient(x - y, whole);
    let sum = if t * t < R::from(0.25) {
        R::near_divergence(t)
    } else {
        let log = |part: R| if part > R::default() { part * part.ln() } else { R::default() };
        log(R::from(1.0) + t) + log(R::from(1.0) - t)
    };
    R::from(0.5) * whole * sum
}
