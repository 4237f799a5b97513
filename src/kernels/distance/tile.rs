//! Terms of a block of features, added up in registers.

use pulp::{Arch, NullaryFnOnce, Simd, WithSimd};

use super::{COLS, Params, ROWS, Term};
use crate::kernels::cpu::simd::wide;

/// The sums of a block, of [`ROWS`] and [`COLS`] observations.
pub(super) fn tile(p: &Params, masked: bool, x: &[[f32; ROWS]], y: &[[f32; COLS]]) -> [[f32; COLS]; ROWS] {
    macro_rules! by_term {
        ($($term:ident => |$a:ident, $b:ident| $value:expr;)*) => {
            match p.term {
                $(term if term == Term::$term as u32 => {
                    let term = |$a: f32, $b: f32| $value;
                    if masked { wide(Tile::<_, true> { x, y, term }) } else { wide(Tile::<_, false> { x, y, term }) }
                })*
                _ => wide(Largest { x, y }),
            }
        };
    }
    let power = p.power;
    if !masked && let Some(term) = Common::of(p.term) {
        return Arch::new().dispatch(CommonTile { x, y, term });
    }
    by_term! {
        Product => |x, y| x * y;
        Square => |x, y| (x - y) * (x - y);
        Absolute => |x, y| (x - y).abs();
        Power => |x, y| (x - y).abs().powf(power);
        Canberra => |x, y| quotient((x - y).abs(), x.abs() + y.abs());
        Sum => |x, y| (x + y).abs();
        Unequal => |x, y| f32::from(x != y);
        Both => |x, y| f32::from((x != 0.0) & (y != 0.0));
        One => |x, y| f32::from((x != 0.0) != (y != 0.0));
        Count => |_x, _y| 1.0;
        X => |x, _y| x;
        Y => |_x, y| y;
        XSquare => |x, _y| x * x;
        YSquare => |_x, y| y * y;
        Root => |x, y| x.sqrt() * y.sqrt();
        Relative => |x, y| relative(x, y);
        Divergence => |x, y| divergence(x, y);
    }
}

/// No closures: the compiler need not inline them, and compiles them without wide vectors then.
struct Tile<'a, F, const MASKED: bool> {
    x: &'a [[f32; ROWS]],
    y: &'a [[f32; COLS]],
    term: F,
}

impl<F: Fn(f32, f32) -> f32, const MASKED: bool> NullaryFnOnce for Tile<'_, F, MASKED> {
    type Output = [[f32; COLS]; ROWS];

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut sums = [[0.0; COLS]; ROWS];
        for (x, y) in self.x.iter().zip(self.y) {
            for (sums, &x) in sums.iter_mut().zip(x) {
                for (sum, &y) in sums.iter_mut().zip(y) {
                    let value = (self.term)(x, y);
                    *sum += if MASKED && (x.is_nan() | y.is_nan()) { 0.0 } else { value };
                }
            }
        }
        sums
    }
}

/// Terms of one or two instructions. Their loops are unrolled before they are vectorised, and then are not: 10 times slower.
#[derive(Clone, Copy)]
enum Common {
    Product,
    Square,
    Absolute,
    Sum,
}

impl Common {
    fn of(term: u32) -> Option<Self> {
        let terms = [Term::Product, Term::Square, Term::Absolute, Term::Sum];
        let common = [Self::Product, Self::Square, Self::Absolute, Self::Sum];
        terms.iter().zip(common).find_map(|(&of, common)| (of as u32 == term).then_some(common))
    }
}

/// A [`Tile`] of those, where no element is missing.
struct CommonTile<'a> {
    x: &'a [[f32; ROWS]],
    y: &'a [[f32; COLS]],
    term: Common,
}

impl WithSimd for CommonTile<'_> {
    type Output = [[f32; COLS]; ROWS];

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Self::Output {
        let Self { x, y, term } = self;
        match term {
            Common::Product => add(simd, x, y, |sum, x, y| simd.mul_add_f32s(x, y, sum)),
            Common::Square => add(simd, x, y, |sum, x, y| {
                let part = simd.sub_f32s(x, y);
                simd.mul_add_f32s(part, part, sum)
            }),
            Common::Absolute => {
                add(simd, x, y, |sum, x, y| simd.add_f32s(sum, simd.abs_f32s(simd.sub_f32s(x, y))))
            }
            Common::Sum => {
                add(simd, x, y, |sum, x, y| simd.add_f32s(sum, simd.abs_f32s(simd.add_f32s(x, y))))
            }
        }
    }
}

/// Sums of which as many vectors as there are registers for are made at once.
#[inline(always)]
fn add<S: Simd>(
    simd: S,
    x: &[[f32; ROWS]],
    y: &[[f32; COLS]],
    term: impl Fn(S::f32s, S::f32s, S::f32s) -> S::f32s,
) -> [[f32; COLS]; ROWS] {
    const VECTORS: usize = 2;
    let mut out = [[0.0; COLS]; ROWS];
    for first in (0..COLS / S::F32_LANES).step_by(VECTORS) {
        let mut sums = [[simd.splat_f32s(0.0); VECTORS]; ROWS];
        for (x, y) in x.iter().zip(y) {
            let y = &S::as_simd_f32s(y).0[first..first + VECTORS];
            for (sums, &x) in sums.iter_mut().zip(x) {
                let x = simd.splat_f32s(x);
                sums[0] = term(sums[0], x, y[0]);
                sums[1] = term(sums[1], x, y[1]);
            }
        }
        for (out, sums) in out.iter_mut().zip(sums) {
            S::as_mut_simd_f32s(out).0[first..first + VECTORS].copy_from_slice(&sums);
        }
    }
    out
}

/// The largest |x - y|. NaN is no larger than anything.
struct Largest<'a> {
    x: &'a [[f32; ROWS]],
    y: &'a [[f32; COLS]],
}

impl NullaryFnOnce for Largest<'_> {
    type Output = [[f32; COLS]; ROWS];

    #[inline(always)]
    fn call(self) -> Self::Output {
        let mut largest = [[0.0; COLS]; ROWS];
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

/// 0 of two zeros.
#[inline(always)]
fn quotient(part: f32, whole: f32) -> f32 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// With t = (x - y) / (x + y), log(x / y) is 2 artanh t; where t is small, by its series, in which nothing cancels.
#[inline(always)]
fn relative(x: f32, y: f32) -> f32 {
    if x <= 0.0 || y <= 0.0 {
        return if x > 0.0 { x * x.ln() } else { 0.0 };
    }
    let t = quotient(x - y, x + y);
    let square = t * t;
    let log = if square < 0.25 {
        2.0 * t * (0..11).rev().fold(0.0, |sum, n| sum * square + 1.0 / (2 * n + 1) as f32)
    } else {
        (x / y).ln()
    };
    x * log
}

/// With t = (x - y) / (x + y), half of x + y times (1 + t) log(1 + t) + (1 - t) log(1 - t); where t is small, by the series
/// Σ t^2n / (n (2 n - 1)), in which nothing cancels.
#[inline(always)]
fn divergence(x: f32, y: f32) -> f32 {
    let whole = x + y;
    let t = quotient(x - y, whole);
    let square = t * t;
    let sum = if square < 0.25 {
        SERIES.iter().rev().fold(0.0, |sum, factor| (sum + factor) * square)
    } else {
        let log = |part: f32| if part > 0.0 { part * part.ln() } else { 0.0 };
        log(1.0 + t) + log(1.0 - t)
    };
    0.5 * whole * sum
}

/// 1 / (n (2 n - 1)).
const SERIES: [f32; 10] = [
    1.0,
    1.0 / 6.0,
    1.0 / 15.0,
    1.0 / 28.0,
    1.0 / 45.0,
    1.0 / 66.0,
    1.0 / 91.0,
    1.0 / 120.0,
    1.0 / 153.0,
    1.0 / 190.0,
];
