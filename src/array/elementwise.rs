//! Elementwise functions of arrays whose shapes are broadcast.

use std::marker::PhantomData;

use super::broadcast::{Axes, together};
use crate::{
    DType, Device, Element, Error, Real, Result, Tensor,
    dtype::nearest_f32,
    extent::to_usize,
    kernel::{Grid, small},
    kernels::{
        WG,
        elementwise::{ELEMENTWISE, Function, Params, spec},
    },
    untyped::Untyped,
};

/// A function of one number. All functions propagate NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Map {
    /// -x.
    Negative,
    /// |x|.
    Absolute,
    /// The square root of x, NaN below 0.
    SquareRoot,
    /// e to the power of x.
    Exponential,
    /// The natural logarithm of x; -infinity for 0, NaN below 0.
    Logarithm,
}

/// A function of two numbers. All functions propagate NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Zip {
    /// a + b.
    Add,
    /// a - b.
    Subtract,
    /// a b.
    Multiply,
    /// a / b.
    Divide,
    /// The smaller of both.
    Minimum,
    /// The larger of both.
    Maximum,
}

/// A comparison of two numbers. If either is NaN, only [`NotEqual`](Self::NotEqual) holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compare {
    /// a < b.
    Less,
    /// a <= b.
    LessEqual,
    /// a > b.
    Greater,
    /// a >= b.
    GreaterEqual,
    /// a == b.
    Equal,
    /// a != b.
    NotEqual,
}

/// A tensor or a number. The number `2.0` (an f64) is an operand just as `&x` is, and becomes f32 or f64 to match the tensors.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a, T: Element>(Given<'a>, PhantomData<T>);

/// An operand with its type erased.
#[derive(Clone, Copy, Debug)]
enum Given<'a> {
    Tensor(&'a dyn Untyped),
    Number(f64),
}

impl<'a> Given<'a> {
    fn tensor(self) -> Option<&'a dyn Untyped> {
        if let Self::Tensor(tensor) = self { Some(tensor) } else { None }
    }

    fn shape(self) -> &'a [u64] {
        self.tensor().map_or(&[], Untyped::shape)
    }
}

impl<'a, T: Element> From<&'a Tensor<T>> for Operand<'a, T> {
    fn from(tensor: &'a Tensor<T>) -> Self {
        Self(Given::Tensor(tensor), PhantomData)
    }
}

// Implemented for a type that is computed in f32, so that the other operand determines the precision.
impl From<f64> for Operand<'_, u8> {
    fn from(number: f64) -> Self {
        Self(Given::Number(number), PhantomData)
    }
}

/// The type in which elements of two types are computed: f64 if one of them is f64, `u32` or `i32`, otherwise f32.
pub type RealOf<A, B> = <<A as Element>::Real as Real>::With<<B as Element>::Real>;

/// Applies a function to each element. Enqueues; does not wait.
///
/// # Shapes
/// `x`: any; the result has the same shape.
///
/// # Accuracy
/// Computes in f32, or in f64 for f64, `u32` and `i32`. Roots, exponentials and logarithms are within two units in the last place on cpu and
/// CUDA. On other devices they have the precision of WGSL: roots within 4.5 units, exponentials within 3 + 2 |x|, logarithms within 3, or for x
/// from 0.5 to 2 within 2^-21 absolutely; and subnormal values may be 0.
///
/// # Cost
/// One pass over `x`, and a tensor of its shape.
///
/// # Errors
/// [`Error::NoF64`] for f64, `u32` and `i32` on a device that does not [compute in f64](crate::Limits::f64); [`Error::Limit`] and
/// [`Error::OutOfMemory`] when the device has no room.
///
/// ```
/// use teatime::{Device, Tensor, array::{Map, map}};
/// let x = Tensor::from_slice(&Device::best()?, &[1u8, 4, 9], &[3])?;
/// assert_eq!(map(Map::Negative, &x)?.read()?, [-1.0f32, -4.0, -9.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn map<T: Element>(function: Map, x: &Tensor<T>) -> Result<Tensor<T::Real>> {
    let function = match function {
        Map::Negative => Function::Negative,
        Map::Absolute => Function::Absolute,
        Map::SquareRoot => Function::SquareRoot,
        Map::Exponential => Function::Exponential,
        Map::Logarithm => Function::Logarithm,
    };
    evaluate("map", function, [Some(Given::Tensor(x)), None, None])
}

/// Applies a function to each pair of elements. Enqueues; does not wait.
///
/// # Shapes
/// Shapes broadcast as in numpy: axes are aligned from the last, and an extent of 1 repeats. So (m, n) combines with rows (n,), with columns
/// (m, 1), and with numbers (). At most three groups of adjacent axes may repeat in different operands.
///
/// # Accuracy
/// Rounded once on cpu and CUDA, in f32 or f64 ([`RealOf`] the types). On other devices f32, with quotients within 2.5 units in the last place
/// for divisors from 2^-126 to 2^126, and subnormal results may be 0. Comparisons, minima and maxima are exact.
///
/// # Cost
/// One pass over each operand, and the memory of the result.
///
/// # Errors
/// [`Error::Shape`] for shapes that do not broadcast; [`Error::Argument`] for two numbers; [`Error::WrongDevice`]; [`Error::Limit`] also if the
/// contiguous part of an operand beyond its first axis does not fit half a binding; otherwise as [`map()`].
///
/// ```
/// use teatime::{Device, Tensor, array::{Zip, zip}};
/// let device = Device::best()?;
/// let x = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0], &[2, 2])?;
/// let row = Tensor::from_slice(&device, &[10.0f32, 20.0], &[2])?;
/// assert_eq!(zip(Zip::Add, &x, &row)?.read()?, [11.0, 22.0, 13.0, 24.0]);
/// assert_eq!(zip(Zip::Subtract, 1.0, &row)?.read()?, [-9.0, -19.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn zip<'a, A: Element, B: Element>(
    function: Zip,
    a: impl Into<Operand<'a, A>>,
    b: impl Into<Operand<'a, B>>,
) -> Result<Tensor<RealOf<A, B>>> {
    let function = match function {
        Zip::Add => Function::Add,
        Zip::Subtract => Function::Subtract,
        Zip::Multiply => Function::Multiply,
        Zip::Divide => Function::Divide,
        Zip::Minimum => Function::Minimum,
        Zip::Maximum => Function::Maximum,
    };
    let (a, b) = (a.into(), b.into());
    evaluate("zip", function, [Some(a.0), Some(b.0), None])
}

/// Returns 1 where a comparison of two elements holds, otherwise 0. Enqueues; does not wait.
///
/// # Shapes, cost
/// As [`zip`].
///
/// # Errors
/// As [`zip`].
///
/// ```
/// use teatime::{Device, Tensor, array::{Compare, compare}};
/// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, f32::NAN, 3.0], &[3])?;
/// assert_eq!(compare(Compare::Greater, &x, 2.0)?.read()?, [0, 0, 1]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn compare<'a, A: Element, B: Element>(
    comparison: Compare,
    a: impl Into<Operand<'a, A>>,
    b: impl Into<Operand<'a, B>>,
) -> Result<Tensor<u8>> {
    let function = match comparison {
        Compare::Less => Function::Less,
        Compare::LessEqual => Function::LessEqual,
        Compare::Greater => Function::Greater,
        Compare::GreaterEqual => Function::GreaterEqual,
        Compare::Equal => Function::Equal,
        Compare::NotEqual => Function::NotEqual,
    };
    let (a, b) = (a.into(), b.into());
    evaluate("compare", function, [Some(a.0), Some(b.0), None])
}

/// Clamps `x` as numpy's `clip`: the minimum of `high` and the maximum of `x` and `low`. Returns `high` if `low` is above it, and NaN if any is
/// NaN. Enqueues; does not wait.
///
/// # Shapes, cost
/// As [`zip`], for three operands.
///
/// # Errors
/// As [`zip`].
///
/// ```
/// use teatime::{Device, Tensor, array::clamp};
/// let x = Tensor::from_slice(&Device::best()?, &[-1.0f32, 0.25, f32::NAN, 7.0], &[4])?;
/// let x = clamp(&x, 0.0, 1.0)?.read()?;
/// assert!(x[..2] == [0.0, 0.25] && x[2].is_nan() && x[3] == 1.0);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn clamp<'a, A: Element, B: Element, C: Element>(
    x: impl Into<Operand<'a, A>>,
    low: impl Into<Operand<'a, B>>,
    high: impl Into<Operand<'a, C>>,
) -> Result<Tensor<RealOf<RealOf<A, B>, C>>> {
    let (x, low, high) = (x.into(), low.into(), high.into());
    evaluate("clamp", Function::Clamp, [x.0, low.0, high.0].map(Some))
}

/// Returns `a` where `mask` is not 0, otherwise `b`. Enqueues; does not wait.
///
/// # Shapes, cost
/// As [`zip`], for three operands.
///
/// # Errors
/// As [`zip`].
///
/// ```
/// use teatime::{Device, Tensor, array::{Compare, compare, select}};
/// let x = Tensor::from_slice(&Device::best()?, &[1.0f32, f32::NAN, 3.0], &[3])?;
/// // NaN alone does not equal itself.
/// let known = compare(Compare::Equal, &x, &x)?;
/// assert_eq!(select(&known, &x, 0.0)?.read()?, [1.0, 0.0, 3.0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn select<'a, A: Element, B: Element>(
    mask: &'a Tensor<u8>,
    a: impl Into<Operand<'a, A>>,
    b: impl Into<Operand<'a, B>>,
) -> Result<Tensor<RealOf<A, B>>> {
    let (a, b) = (a.into(), b.into());
    evaluate("select", Function::Select, [Given::Tensor(mask), a.0, b.0].map(Some))
}

/// Converts the elements to a type that holds all values of their type. Enqueues; does not wait.
///
/// # Shapes, cost
/// As [`cast_lossy`].
///
/// # Errors
/// [`Error::Argument`] for a type that does not hold all values, for which [`cast_lossy`] exists; otherwise as [`cast_lossy`].
///
/// ```
/// use teatime::{Device, Tensor, array::cast};
/// let x = Tensor::from_slice(&Device::best()?, &[1u8, 255], &[2])?;
/// assert_eq!(cast::<f32, _>(&x)?.read()?, [1.0, 255.0]);
/// assert!(cast::<i8, _>(&x).is_err());
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn cast<U: Element, T: Element>(x: &Tensor<T>) -> Result<Tensor<U>> {
    if !T::DTYPE.is_within(U::DTYPE) {
        let why =
            format!("{:?} does not hold every {:?}; `cast_lossy` gives what is nearest", U::DTYPE, T::DTYPE);
        return Err(Error::argument("cast", "x", why));
    }
    converted("cast", x)
}

/// Converts the elements to another type, as Rust's `as` converts a number: to integers, it rounds towards 0, saturates at the bounds, and makes
/// NaN 0; to floats, it rounds to nearest. Unlike with `as`, an integer saturates too: -1 as `u8` is 0. Enqueues; does not wait, except for
/// elements of the same type where [`Tensor::try_clone`] waits.
///
/// # Shapes
/// `x`: any; the result has the same shape.
///
/// # Accuracy
/// f64, `u32` and `i32` may be converted to f16 and bf16 through f32.
///
/// # Cost
/// One pass over `x`, and a tensor of its shape.
///
/// # Errors
/// [`Error::NoF64`] on a device that does not [compute in f64](crate::Limits::f64): for results of f64, for conversions from f64 except to f32,
/// and between `u32` and `i32`; [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
///
/// ```
/// use teatime::{Device, Tensor, array::cast_lossy};
/// let x = Tensor::from_slice(&Device::best()?, &[-1.5f32, 1.9, 300.0, f32::NAN], &[4])?;
/// assert_eq!(cast_lossy::<u8, _>(&x)?.read()?, [0, 1, 255, 0]);
/// # Ok::<(), teatime::Error>(())
/// ```
pub fn cast_lossy<U: Element, T: Element>(x: &Tensor<T>) -> Result<Tensor<U>> {
    converted("cast_lossy", x)
}

/// [`cast_lossy`] with another name in errors.
pub(crate) fn converted<U: Element, T: Element>(op: &'static str, x: &Tensor<T>) -> Result<Tensor<U>> {
    use DType::{F32, F64, I32, U32};
    let (from, to) = (T::DTYPE, U::DTYPE);
    let integers = matches!(from, U32 | I32) && matches!(to, U32 | I32);
    if from == to {
        return Ok(x.try_clone()?.cast());
    }
    if to == F64 || from == F64 && to != F32 || integers {
        x.device().computes_f64(op)?;
    }
    let wide = x.device().limits().f64 && (from.is_wide() || to.is_wide());
    let function = if to.is_integer() && !from.is_integer() { Function::Truncate } else { Function::Copy };
    run(op, function, wide, [Some(Given::Tensor(x)), None, None])
}

/// Calls [`run`], in f64 if one of the operands requires it.
fn evaluate<O: Element>(
    op: &'static str,
    function: Function,
    operands: [Option<Given<'_>>; 3],
) -> Result<Tensor<O>> {
    let mut tensors = operands.iter().flatten().filter_map(|operand| operand.tensor());
    let wide = tensors.find(|tensor| tensor.dtype().is_wide());
    wide.map_or(Ok(()), |tensor| tensor.device().computes_f64(op))?;
    run(op, function, wide.is_some(), operands)
}

/// Computes the function of its operands; only the last operands may be numbers.
fn run<O: Element>(
    op: &'static str,
    function: Function,
    wide: bool,
    operands: [Option<Given<'_>>; 3],
) -> Result<Tensor<O>> {
    let tensors: Vec<_> = operands.iter().flatten().filter_map(|operand| operand.tensor()).collect();
    let Some(device) = tensors.first().map(|tensor| tensor.device()) else {
        return Err(Error::argument(op, "operands", "one of them has to be a tensor"));
    };
    for tensor in &tensors {
        device.has(op, "operands", tensor.device())?;
    }
    let shapes: Vec<_> = operands.iter().flatten().map(|operand| operand.shape()).collect();
    let mut out = Tensor::empty(device, &together(op, &shapes)?)?;
    if out.is_empty() {
        return Ok(out);
    }
    // A number before a tensor becomes a tensor of one element.
    let of_f32 = |number: f64| Tensor::from_slice(device, &[nearest_f32(number)], &[]);
    let of_f64 = |number: f64| Tensor::from_slice(device, &[number], &[]);
    let last = operands.iter().rposition(|operand| matches!(operand, Some(Given::Tensor(_))));
    let mut stored: [Option<Box<dyn Untyped>>; 3] = [const { None }; 3];
    for (operand, stored) in operands.iter().zip(&mut stored).take(last.unwrap_or(0)) {
        if let Some(Given::Number(number)) = *operand {
            *stored = Some(if wide { Box::new(of_f64(number)?) } else { Box::new(of_f32(number)?) });
        }
    }
    let operands = std::array::from_fn(|i| match &stored[i] {
        Some(number) => Some(Given::Tensor(&**number)),
        None => operands[i],
    });
    Launches { op, function, wide, device, operands }.into(&mut out)?;
    Ok(out)
}

struct Launches<'a> {
    op: &'static str,
    function: Function,
    wide: bool,
    device: &'a Device,
    operands: [Option<Given<'a>>; 3],
}

impl Launches<'_> {
    /// Returns the two words of an operand that is a number, 0s for a tensor.
    fn number(&self, operand: usize) -> [u32; 2] {
        match self.operands[operand] {
            Some(Given::Number(number)) if self.wide => bytemuck::cast(number),
            Some(Given::Number(number)) => [nearest_f32(number).to_bits(), 0],
            _ => [0; 2],
        }
    }

    fn tensor(&self, operand: usize) -> Option<&dyn Untyped> {
        self.operands[operand]?.tensor()
    }

    /// Fills the output, in as many launches as the device's limits require.
    fn into<O: Element>(self, out: &mut Tensor<O>) -> Result<()> {
        let shapes = self.operands.map(|operand| operand.map_or(&[][..], Given::shape));
        let Axes { extents, steps } = Axes::new(self.op, out.shape(), shapes)?;
        let flat = extents[..2] == [1, 1];
        let row = if flat { 1 } else { extents[1] * extents[2] };
        // The number of elements of each operand that one row uses.
        let spans = steps.map(|steps| (extents[1] - 1) * steps[1] + (extents[2] - 1) * steps[2] + 1);
        let step = self.step(out, row, flat, steps, spans)?;
        let (total, limits) = (out.len(), self.device.limits());
        for first in (0..total).step_by(to_usize(step)) {
            let n = step.min(total - first);
            let (row0, last) = (first / row, (first + n - 1) / row);
            let windows: [_; 3] = std::array::from_fn(|i| {
                let (tensor, steps) = (self.tensor(i)?, steps[i]);
                Some(tensor.window(match flat {
                    true if steps[2] == 1 => first..first + n,
                    true => 0..1,
                    false => row0 * steps[0]..last * steps[0] + spans[i],
                }))
            });
            let start = |i: usize| windows[i].map_or(0, |window| window.start);
            let dtype = |i: usize| self.tensor(i).map_or(0, |tensor| tensor.dtype().code());
            let axis = |i: usize, axis: usize| small(steps[i][axis]);
            let [[b_low, b_high], [c_low, c_high]] = [self.number(1), self.number(2)];
            let params = Params {
                function: self.function as u32,
                operands: windows.iter().flatten().map(|_| 1).sum(),
                n: small(n),
                first: small(first - row0 * row),
                extent1: small(extents[1]),
                extent2: small(if flat { n } else { extents[2] }),
                out_type: O::DTYPE.code(),
                a_type: dtype(0),
                a0: start(0),
                a_step0: axis(0, 0),
                a_step1: axis(0, 1),
                a_step2: axis(0, 2),
                b_type: dtype(1),
                b0: start(1),
                b_step0: axis(1, 0),
                b_step1: axis(1, 1),
                b_step2: axis(1, 2),
                c_type: dtype(2),
                c0: start(2),
                c_step0: axis(2, 0),
                c_step1: axis(2, 1),
                c_step2: axis(2, 2),
                b_low,
                b_high,
                c_low,
                c_high,
            };
            let [Some(a), b, c] = windows else { unreachable!("the first operand should be a tensor") };
            let target = out.window_mut(first..first + n);
            let args = [a.arg, b.unwrap_or(a).arg, c.unwrap_or(a).arg, target.arg];
            let words = n.div_ceil((4 / O::DTYPE.size()).max(1));
            let grid = Grid::linear(words.div_ceil(WG.into()), limits.groups_per_axis, n)?;
            let spec = spec(self.is_narrow::<O>(), self.wide);
            self.device.launch(&ELEMENTWISE, &spec, grid, &args, &params)?;
        }
        Ok(())
    }

    /// True if one of the types is not f32.
    fn is_narrow<O: Element>(&self) -> bool {
        let other = |i| self.tensor(i).is_some_and(|tensor| tensor.dtype() != DType::F32);
        O::DTYPE != DType::F32 || (0..3).any(other)
    }

    /// Returns the number of output elements of a launch: all, or a number for which each launch begins at the device's alignment.
    fn step<O: Element>(
        &self,
        out: &Tensor<O>,
        row: u64,
        flat: bool,
        steps: [[u64; 3]; 3],
        spans: [u64; 3],
    ) -> Result<u64> {
        let limits = self.device.limits();
        let room = limits.room();
        let groups = u64::from(limits.groups_per_axis).saturating_pow(2).saturating_mul(WG.into());
        let mut step = (room / O::DTYPE.size()).min(1 << 30).min(groups);
        let mut largest = O::DTYPE.size() * row;
        for i in 0..3 {
            let Some(tensor) = self.tensor(i) else { continue };
            let fits = room / tensor.dtype().size();
            largest = largest.max(spans[i].saturating_mul(tensor.dtype().size()));
            step = step.min(match (flat, steps[i]) {
                (true, [_, _, 0]) => u64::MAX,
                (true, _) => fits,
                (false, [0, ..]) if spans[i] <= fits => u64::MAX,
                (false, [0, ..]) => 0,
                // Takes as many rows as fit, wherever they begin.
                (false, [along, ..]) => (fits / along).saturating_sub(1).saturating_mul(row) + 1,
            });
        }
        let total = out.len();
        let step = if step >= total { total } else { step / limits.alignment * limits.alignment };
        let fits = step > 0 && (flat || row.saturating_add(step) <= u32::MAX.into());
        let what = "bytes in one row of a matrix";
        fits.then_some(step).ok_or(Error::Limit { what, requested: largest, max: room / 2 })
    }
}
