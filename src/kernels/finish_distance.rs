//! Makes distances from the sums of a metric's terms: `out[i, j] = formula(sums[i, j])`, as f32, or as pairs that stay on the device.

use bytemuck::Pod;
use rayon::prelude::*;

use super::WG;
use crate::{
    dtype::{halves, joined, nearest_f32},
    kernel::{CpuArg, CpuLaunch, Kernel, codes, kernel, params},
};

params! {
    /// Parameters of the kernel.
    pub(crate) struct Params {
        /// The numbers of rows and columns of pairs of the launch.
        pub(crate) rows: u32,
        pub(crate) cols: u32,
        /// The index of the first pair, and the number of pairs from one row of the sums to the next.
        pub(crate) sums0: u32,
        pub(crate) sums_step: u32,
        /// The number of pairs from the sums of one term to those of the next.
        pub(crate) term_step: u32,
        /// The index of the first distance, and the number of output elements from one row of the sums to the next, and
        /// from one column to the next. A step of 1 along rows transposes.
        pub(crate) out0: u32,
        pub(crate) out_row_step: u32,
        pub(crate) out_col_step: u32,
        /// The index of the first flag of the rows, and of the columns.
        pub(crate) row_flag0: u32,
        pub(crate) col_flag0: u32,
        /// The indices of the first row and the first column in the whole result.
        pub(crate) row0: u32,
        pub(crate) col0: u32,
        /// 1 if pairs whose column index is above the row index are left out, otherwise 0.
        pub(crate) lower: u32,
        /// 1 if the distance of a row from the column with the same index is set to 0 (unless it is NaN), otherwise 0.
        pub(crate) zero_diagonal: u32,
        /// 1 if a distance is stored as two numbers, which [`joined`] makes an f64; 0 if it is stored as one f32.
        pub(crate) paired: u32,
        /// A [`Formula`].
        pub(crate) formula: u32,
        /// The number of terms that have sums: from 1 to 6.
        pub(crate) terms: u32,
        /// A rule for [`Missing`] elements: from `Rescale` on, sums are rescaled.
        pub(crate) missing: u32,
        /// The number of features: the nearest f32, and the remainder.
        pub(crate) features: f32,
        pub(crate) features_rest: f32,
        /// The exponent of [`Formula::Power`] as the words of an f64, and its reciprocal as the nearest f32 and the remainder.
        pub(crate) power_low: u32,
        pub(crate) power_high: u32,
        pub(crate) inverse: f32,
        pub(crate) inverse_rest: f32,
        /// A power of two by which distances are multiplied: the words of an f64, and two f32 whose product it is.
        pub(crate) factor_low: u32,
        pub(crate) factor_high: u32,
        pub(crate) factor_first: f32,
        pub(crate) factor_second: f32,
        /// Always 0, which the shader's compiler cannot know.
        pub(crate) zero: u32,
    }
}

pub(crate) static FINISH_DISTANCE: Kernel<Params> =
    kernel!("finish_distance", Params, [Read, Read, ReadWrite], finish_distance, specs, [Formula, Missing]);

/// The maximum number of terms of a metric.
const TERMS: usize = 6;

codes! {
    /// The formula that makes a distance from the sums of a metric's terms.
    pub(crate) enum Formula {
        /// The sum.
        Plain = 1,
        /// The square root of the sum.
        Root,
        /// The largest term, which is never rescaled.
        Largest,
        /// The root of the sum with another exponent.
        Power,
        /// Half the squared distance of vectors of length 1.
        HalfSquare,
        /// 1 less the cosine, from Σ x y, Σ x² and Σ y².
        Angle,
        /// [`Angle`](Self::Angle) of vectors less their means, from Σ x and Σ y in addition.
        CentredAngle,
        /// The first sum divided by the second; NaN unless the second is above 0.
        Ratio,
        /// The sum divided by the number of features; 0 if there are none.
        Share,
        /// The number of features that exactly one vector has, divided by the number that at least one has; 0 if there are none.
        ShareOfAny,
        /// The number of features that exactly one vector has, divided by the sum of both vectors' numbers of features; NaN if that is 0.
        RatioOfBoth,
        /// The number of features that not both vectors have, divided by the number of all features; 0 if there are none.
        ShareOfNone,
        /// Half the sum.
        Half,
        /// The square root of half the sum.
        RootOfHalf,
        /// The square root of 1 less the sum.
        RootOfRest,
    }
}

codes! {
    /// A rule for missing elements.
    #[derive(Default)]
    #[non_exhaustive]
    pub enum Missing {
        /// All distances of an observation that has NaN are NaN.
        #[default]
        Propagate,
        /// A feature is left out for a pair unless both observations have it, as in sgkit.
        Ignore,
        /// Like [`Ignore`](Self::Ignore), but sums are multiplied by the number of all features divided by the number of features that both
        /// observations have. The distance is NaN if the latter is 0. This is scikit-learn's `nan_euclidean_distances`.
        Rescale,
        /// Like [`Rescale`](Self::Rescale), but the distance is 0 if there is no feature that both observations have.
        RescaleOrZero,
    }
}

/// The relative size of rounding errors that may remain when terms cancel, in f32 and in f64.
pub(crate) const NOISE: f64 = 1.0 / (1u64 << 20) as f64;
pub(crate) const NOISE_WIDE: f64 = 1.0 / (1u64 << 47) as f64;

pub(crate) fn spec(wide: bool) -> [(&'static str, u32); 2] {
    [("WG", WG), ("WIDE", wide.into())]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [false, true].map(|wide| spec(wide).to_vec()).to_vec()
}

/// The computation of a distance from sums.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finished {
    pub(crate) formula: Formula,
    /// The exponent of [`Formula::Power`].
    pub(crate) power: f64,
    pub(crate) features: f64,
    /// The rule for missing elements. Unless it is `Propagate`, the last sum is the number of features that both observations have.
    pub(crate) missing: Missing,
    /// The relative size of rounding errors that may remain when terms cancel.
    pub(crate) noise: f64,
}

impl Finished {
    /// Returns the distance for the sums of the terms.
    #[inline(always)]
    pub(crate) fn distance(self, sums: &[f64]) -> f64 {
        let both = match (self.missing, sums) {
            (Missing::Propagate, _) | (_, []) => self.features,
            (_, [.., both]) => *both,
        };
        let rescale = match self.missing {
            Missing::Propagate | Missing::Ignore => 1.0,
            Missing::Rescale if both == 0.0 => return f64::NAN,
            Missing::RescaleOrZero if both == 0.0 => return 0.0,
            Missing::Rescale | Missing::RescaleOrZero => self.features / both,
        };
        let sum = sums[0];
        match self.formula {
            Formula::Plain => sum * rescale,
            Formula::Root => (sum * rescale).sqrt(),
            Formula::Largest => sum,
            Formula::Power => (sum * rescale).powf(self.power.recip()),
            Formula::HalfSquare => (sum / 2.0).min(2.0),
            Formula::Angle => angle(sum, sums[1] * sums[2]),
            Formula::CentredAngle => {
                let [xx, yy, x, y] = [1, 2, 3, 4].map(|i| sums[i]);
                // If all elements of a vector are equal, only a rounding error remains, which counts as 0.
                let spread = |squares: f64, sum: f64| {
                    let spread = both * squares - sum * sum;
                    if spread > both * squares * self.noise { spread } else { 0.0 }
                };
                angle(both * sum - x * y, spread(xx, x) * spread(yy, y))
            }
            Formula::Ratio => ratio(sum, sums[1]),
            Formula::Share => share(sum, both),
            Formula::ShareOfAny => share(sum, sum + sums[1]),
            Formula::RatioOfBoth => ratio(sum, sum + 2.0 * sums[1]),
            Formula::ShareOfNone => share(both - sum, both),
            Formula::Half => sum / 2.0,
            Formula::RootOfHalf => (sum / 2.0).max(0.0).sqrt(),
            Formula::RootOfRest => (1.0 - sum).max(0.0).sqrt(),
        }
    }
}

/// Returns the cosine distance of two vectors from their product and the product of their squared lengths. It is
/// limited to 0 to 2, which rounding may exceed, and NaN if a length is 0.
pub(crate) fn angle(product: f64, squares: f64) -> f64 {
    (1.0 - ratio(product, squares.sqrt())).clamp(0.0, 2.0)
}

/// Returns the ratio, or NaN unless `whole` is above 0.
fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { f64::NAN }
}

/// Returns the ratio, or 0 unless `whole` is above 0.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The minimum number of output rows of a task, since adjacent pairs of the sums share a cache line.
const LINES: usize = 16;

/// The work of one launch.
struct Work<'a> {
    p: Params,
    finished: Finished,
    factor: f64,
    wide: bool,
    sums: &'a [[f32; 2]],
    undefined: &'a [u32],
}

impl Work<'_> {
    /// Writes a pair's distance in its stored form, unless the launch leaves the pair out.
    #[inline(always)]
    fn write<T>(&self, row: usize, col: usize, out: &mut T, stored: &impl Fn(f64) -> T) {
        let p = &self.p;
        let [row_number, col_number] = [p.row0 as usize + row, p.col0 as usize + col];
        if p.lower == 1 && col_number > row_number {
            return;
        }
        let place = p.sums0 as usize + row * p.sums_step as usize + col;
        let (mut values, terms) = ([0.0; TERMS], p.terms as usize);
        for (term, value) in values[..terms].iter_mut().enumerate() {
            *value = joined(&self.sums[place + term * p.term_step as usize], self.wide);
        }
        let is_undefined = self.undefined[p.row_flag0 as usize + row] != 0
            || self.undefined[p.col_flag0 as usize + col] != 0
            || values.iter().any(|value| value.is_nan());
        let distance =
            if is_undefined { f64::NAN } else { self.finished.distance(&values[..terms]) * self.factor };
        let is_own = p.zero_diagonal == 1 && row_number == col_number && !distance.is_nan();
        *out = stored(if is_own { 0.0 } else { distance });
    }

    fn write_all<T: Pod + Send>(&self, out: CpuArg<'_>, stored: impl Fn(f64) -> T + Sync) {
        let p = &self.p;
        let transposed = p.out_col_step != 1;
        let (lines, len, step) = match transposed {
            true => (p.cols, p.rows, p.out_col_step),
            false => (p.rows, p.cols, p.out_row_step),
        };
        let (lines, len, step) = (lines as usize, len as usize, step as usize);
        if lines == 0 || len == 0 {
            return;
        }
        let out = &mut out.write::<T>()[p.out0 as usize..][..(lines - 1) * step + len];
        out.par_chunks_mut(LINES * step).enumerate().for_each(|(task, out)| {
            let first = task * LINES;
            if transposed {
                for row in 0..len {
                    for (i, line) in out.chunks_mut(step).enumerate() {
                        self.write(row, first + i, &mut line[row], &stored);
                    }
                }
            } else {
                for (i, line) in out.chunks_mut(step).enumerate() {
                    let line = line[..len].iter_mut().enumerate();
                    line.for_each(|(col, out)| self.write(first + i, col, out, &stored));
                }
            }
        });
    }
}

fn finish_distance(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let wide = launch.constant("WIDE") != 0;
    let [sums, undefined, out] = launch.args();
    let finished = Finished {
        formula: Formula::from_code(p.formula),
        power: bytemuck::cast([p.power_low, p.power_high]),
        features: f64::from(p.features) + f64::from(p.features_rest),
        missing: Missing::from_code(p.missing),
        noise: if wide { NOISE_WIDE } else { NOISE },
    };
    let work = Work {
        p,
        finished,
        factor: bytemuck::cast([p.factor_low, p.factor_high]),
        wide,
        sums: sums.read(),
        undefined: undefined.read(),
    };
    match p.paired {
        0 => work.write_all(out, nearest_f32),
        _ => work.write_all(out, |distance| halves(distance, true)),
    }
}
