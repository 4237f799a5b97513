//! The operands of the products that give squared distances, and the bound of their error.

use std::ops::Range;

use super::{results::zeros, sums::PreparedObservations};
use crate::{
    DType, Device, Element, Needs, Result, Tensor, TensorView,
    array::{Zip, concat, mean, zip},
    dtype::nearest_f32,
    extent::to_usize,
    linalg::{
        matmul::{Op, Product},
        reduce,
        rows::Rows,
    },
};

/// The number of columns that hold half of a squared length, in parts that TF32 holds exactly; and that of them, as many ones, and zeros.
const PARTS: usize = 3;
const COLUMNS: u64 = 8;
/// Rows of a multiple of so many elements may be operands of a vendor's fast products, whichever is the first.
const ALIGNED: u64 = 4;

/// The maximum number of terms of one sum of a fine product.
const DEPTH: u64 = 512;

/// Bounds of relative errors: of a product of two numbers in TF32; of the device's squared lengths; of a centred element; of exact sums.
const TF32: f64 = 1.0 / (1u64 << 9) as f64;
const SQUARES: f64 = 1.0 / (1u64 << 16) as f64;
const CENTRED: f64 = 1.0 / (1u64 << 22) as f64;
const SUMS: f64 = 1.0 / (1u64 << 14) as f64;

/// The operands of products, and the squared lengths of their rows.
pub(super) struct Operands {
    /// The elements of y, and those of x unless y is x, minus the means of the features of y.
    y: Tensor<f32>,
    x: Option<Tensor<f32>>,
    /// For x and for y: minus half of the squared length, then ones; or the other way around. The product of these, and that of the elements, add
    /// up to minus half of the squared distance.
    lengths: [Tensor<f32>; 2],
    /// For x, or y if y is x: the squared lengths.
    squares: Vec<f64>,
    /// The largest length of an observation of y.
    longest: f64,
    /// Bounds of the relative errors of a product of two numbers, and of a sum.
    errors: [f64; 2],
    /// A bound of the error of a sum of products, or of squares, that are too small for normal numbers.
    tiny: f64,
    /// The factors that make a product the sum of squared differences, as a pair of f32: (1, 1, 2).
    pair: Tensor<f32>,
}

impl Operands {
    /// Returns the memory of the operands of m and n observations, and that of making them.
    pub(super) fn needs([m, n]: [u64; 2], features: u64, is_self: bool) -> Needs {
        let rows = if is_self { n } else { m + n };
        let width = features + ALIGNED;
        // Elements are converted, scaled and centred one after the other.
        Needs::device(4 * width) * (rows + 2 * m.max(n)) + (Needs::device(32) + Needs::host(96)) * (m + n)
    }

    /// Makes the operands of x and y, which are the same if `is_self`. All distances from an observation of y are NaN if it is undefined.
    pub(super) fn new<T: Element>(
        [x, y]: [&PreparedObservations<'_, T>; 2],
        is_self: bool,
        undefined: &[bool],
    ) -> Result<Self> {
        let (device, features) = (y.x.device(), y.x.shape()[1]);
        let others = prepared(y)?;
        let mut means = mean(&*others, 0)?.read()?;
        if means.iter().any(|mean| mean.is_nan()) {
            // An element takes the place of a mean that is NaN. Without one, there are no distances.
            let first = undefined.iter().position(|undefined| !undefined).unwrap_or(0) as u64;
            let elements = others.rows(first..first + 1)?.read()?;
            for (mean, element) in means.iter_mut().zip(elements).filter(|(mean, _)| mean.is_nan()) {
                *mean = if element.is_nan() { 0.0 } else { element };
            }
        }
        let means = Tensor::from_slice(device, &means, &[features])?;
        let x = if is_self { None } else { Some(centred(&*prepared(x)?, &means)?) };
        let y = centred(&others, &means)?;
        let squares_of = |x: &Tensor<f32>| -> Result<Vec<f64>> {
            let stats = reduce::enqueue("distance", x, false, [true, false])?.wait()?;
            Ok(stats.iter().map(|stats| stats.sum_squares).collect())
        };
        let of_y = squares_of(&y)?;
        let of_x = x.as_ref().map(squares_of).transpose()?;
        let longest = of_y.iter().copied().fold(0.0, f64::max).sqrt();
        let of_x = of_x.as_ref().unwrap_or(&of_y);
        let lengths = [lengths(device, of_x, false)?, lengths(device, &of_y, true)?];
        let squares = of_x.clone();
        let terms = (features + ALIGNED + COLUMNS) as f64;
        // The vendor's library may round factors to TF32, and adds products less exactly then.
        let errors = match device.limits().tf32 {
            true => [TF32, terms / (1u64 << 22) as f64],
            false => [0.0, 1.01 * terms / (1u64 << 24) as f64],
        };
        let tiny = terms * f64::from(f32::MIN_POSITIVE);
        let pair = Tensor::from_slice(device, &[-2.0, 0.0], &[1, 1, 2])?;
        Ok(Self { y, x, lengths, squares, longest, errors, tiny, pair })
    }

    /// Returns minus half of the squared distance of some observations of x to some of y. Enqueues. Fine products are of f32, in short sums.
    pub(super) fn products(&self, rows: Range<u64>, columns: Range<u64>, fine: bool) -> Result<Tensor<f32>> {
        let depth = if fine { DEPTH } else { u64::MAX };
        let shape = [rows.end - rows.start, columns.end - columns.start];
        let mut products = Tensor::empty(self.y.device(), &shape)?;
        let elements = [self.x.as_ref().unwrap_or(&self.y), &self.y];
        for ([a, b], accumulate) in [(elements, false), (self.lengths.each_ref(), true)] {
            let (a, b) = (Rows::new(a, rows.clone()), Rows::new(b, columns.clone()));
            let product = Product::new("distance", Op::Nt, a, b);
            let product = Product { accumulate, depth, tf32: !fine, ..product };
            product.run(&mut products)?;
        }
        Ok(products)
    }

    /// Returns the sums of squared differences of some observations of x and some of y, as pairs of f32. Enqueues.
    pub(super) fn sums(&self, rows: Range<u64>, columns: Range<u64>) -> Result<Tensor<f32>> {
        let [m, n] = [&rows, &columns].map(|range| range.end - range.start);
        // Rounding may leave products above 0.
        let products = zip(Zip::Minimum, &self.products(rows, columns, true)?, 0.0)?;
        zip(Zip::Multiply, &products.reshape(&[m, n, 1])?, &self.pair)?.reshape(&[m, 2 * n])
    }

    /// True if each observation of y that is no candidate of an observation of x has a larger sum than `sum`, that of its farthest neighbor so far.
    /// `product` is the lowest of the candidates' products. NaN excludes nothing.
    pub(super) fn excludes(&self, line: u64, product: f64, sum: f64) -> bool {
        let (own, tiny) = (self.squares[to_usize(line)], self.tiny);
        let length = own.sqrt();
        // Observations of a larger length are farther away than `sum` says, whatever their products.
        let reach = self.longest.min(1.001 * length + 2.0 * (sum + tiny).sqrt()) + 2.0 * tiny.sqrt();
        let halves = (own + reach * reach) / 2.0;
        let [factors, rounding] = self.errors;
        let error =
            factors * length * reach + rounding * (length * reach + halves) + SQUARES * halves + 4.0 * tiny;
        let distance = (-2.0 * (product + error)).max(0.0).sqrt() - CENTRED * (length + reach);
        distance > 0.0 && sum + tiny < (1.0 - SUMS) * distance * distance
    }
}

/// Returns the elements of observations as kernels of distances take them: minus their shift, times their scale.
fn prepared<'a, T: Element>(operand: &PreparedObservations<'a, T>) -> Result<TensorView<'a, f32>> {
    let (device, count) = (operand.x.device(), operand.count);
    let mut x = match T::DTYPE {
        DType::F32 => operand.x.view().cast(),
        _ => TensorView::new(operand.x.to_f32()?),
    };
    let table = operand.table.read()?;
    let table = table.as_chunks::<3>().0;
    for (column, plain, function) in
        [(0, 0.0, Zip::Subtract), (1, 0.0, Zip::Subtract), (2, 1.0, Zip::Multiply)]
    {
        let values: Vec<f32> = table.iter().map(|entry| entry[column]).collect();
        if values.iter().any(|&value| value != plain) {
            x = TensorView::new(zip(function, &*x, &Tensor::from_slice(device, &values, &[count, 1])?)?);
        }
    }
    Ok(x)
}

/// Subtracts the means of features. Zeros follow the features up to a multiple of [`ALIGNED`].
fn centred(x: &Tensor<f32>, means: &Tensor<f32>) -> Result<Tensor<f32>> {
    let (centred, [rows, features]) = (zip(Zip::Subtract, x, means)?, x.matrix("distance")?);
    match features.next_multiple_of(ALIGNED) - features {
        0 => Ok(centred),
        more => concat(&[&centred, &Tensor::zeros(x.device(), &[rows, more])?], 1),
    }
}

/// Returns minus half of each squared length in parts, and as many ones, or ones first; then zeros.
fn lengths(device: &Device, squares: &[f64], ones_first: bool) -> Result<Tensor<f32>> {
    let width = to_usize(COLUMNS);
    let mut lengths: Vec<f32> = zeros(squares.len() * width)?;
    for (columns, square) in lengths.chunks_mut(width).zip(squares) {
        let (first, last) = columns[..2 * PARTS].split_at_mut(PARTS);
        let (halves, ones) = if ones_first { (last, first) } else { (first, last) };
        ones.fill(1.0);
        let mut rest = -square / 2.0;
        for part in halves {
            // TF32 has 10 bits of mantissa.
            *part = f32::from_bits(nearest_f32(rest).to_bits() & !0x1fff);
            rest -= f64::from(*part);
        }
    }
    Tensor::from_slice(device, &lengths, &[squares.len() as u64, COLUMNS])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operands(square: f64, longest: f64) -> Operands {
        let none = || Tensor::zeros(&Device::cpu(), &[1, COLUMNS]).unwrap();
        let (y, lengths, squares) = (none(), [none(), none()], vec![square]);
        let (errors, tiny, pair) = ([0.0, 1e-6], 60.0 * f64::from(f32::MIN_POSITIVE), none());
        Operands { y, x: None, lengths, squares, longest, errors, tiny, pair }
    }

    /// A product of -1 is a squared distance of 2.
    #[test]
    fn larger_sums_are_excluded() {
        let unit = operands(1.0, 1.0);
        for (product, sum, excludes) in
            [(-1.0, 1.9, true), (-1.0, 1.9999, false), (-1.0, 2.1, false), (1.0, 0.0, false)]
        {
            assert_eq!(unit.excludes(0, product, sum), excludes, "{product} {sum}");
        }
        assert!(!unit.excludes(0, f64::NAN, 0.5) && !unit.excludes(0, -1.0, f64::NAN));
        assert!(!operands(1.0, 1e9).excludes(0, -1e-6, 1e-7));
    }

    /// Devices may take products below the normal numbers for 0.
    #[test]
    fn products_that_are_too_small_exclude_nothing() {
        assert!(!operands(1e-43, 3e-22).excludes(0, -1e-43, 1e-44));
        assert!(!operands(1e-37, 3e-19).excludes(0, -1e-37, 1e-38));
    }
}
