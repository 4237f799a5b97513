//! Functions of each element, of arrays whose shapes are brought together.

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

/// A function of one number. NaN goes through all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Map {
    /// -x.
    Negative,
    /// |x|.
    Absolute,
    /// The root of x, NaN below 0.
    SquareRoot,
    /// e to the power of x.
    Exponential,
    /// The natural logarithm of x: -infinity of 0, NaN below.
    Logarithm,
}

/// A function of two numbers. NaN goes through all.
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
    /// The smaller one.
    Minimum,
    /// The larger one.
    Maximum,
}

/// A comparison of two numbers. With NaN only [`NotEqual`](Self::NotEqual) holds.
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

/// A tensor, or a number: `2.0`, an f64, is an operand as `&x` is, and becomes f32 or f64 as the tensors do.
#[derive(Clone, Copy, Debug)]
pub struct Operand<'a, T: Element>(Given<'a, T>);

#[derive(Clone, Copy, Debug)]
enum Given<'a, T: Element> {
    Tensor(&'a Tensor<T>),
    Number(f64),
}

impl<'a, T: Element> From<&'a Tensor<T>> for Operand<'a, T> {
    fn from(tensor: &'a Tensor<T>) -> Self {
        Self(Given::Tensor(tensor))
    }
}

// Any type that is computed in f32 leaves it to the other operand.
impl From<f64> for Operand<'_, u8> {
    fn from(number: f64) -> Self {
        Self(Given::Number(number))
    }
}

/// f32 or f64: what is computed of elements of two types. f64 where one of them is f64, `u32` or `i32`.
pub type RealOf<A, B> = <<A as Element>::Real as Real>::With<<B as Element>::Real>;

/// A function of each element. Enqueues; does not wait.
///
/// # Shapes
/// `x`: any, and the result the same.
///
/// # Accuracy
/// In f32; of f64, `u32` and `i32` in f64. Roots, exponentials and logarithms within two units in the last place on cpu and CUDA; elsewhere
/// as precise as WGSL has them: roots within 4.5 units, exponentials within 3 + 2 |x|, logarithms within 3, or for x from 0.5 to 2 within
/// 2^-21 itself; and what is subnormal may be 0.
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
    evaluate("map", function, [Some(input(x.into())), None, None])
}

/// A function of each two elements. Enqueues; does not wait.
///
/// # Shapes
/// As numpy brings them together: axes are counted from the last, and an extent of 1 repeats. So (m, n) goes with rows (n,), with columns
/// (m, 1), and with numbers (). At most three runs of axes may repeat in different operands.
///
/// # Accuracy
/// One rounding on cpu and CUDA, in f32 or f64 ([`RealOf`] the types). Elsewhere in f32: quotients within 2.5 units in the last place where
/// divisors are from 2^-126 to 2^126, and subnormal results may be 0. Comparisons and the smaller and larger of two are exact.
///
/// # Cost
/// One pass over each operand, and a tensor of the result.
///
/// # Errors
/// [`Error::Shape`] for shapes that do not go together; [`Error::Argument`] for two numbers; [`Error::WrongDevice`]; [`Error::Limit`] also when
/// what lies side by side in an operand beyond its first axis does not fit half a binding; as [`map()`].
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
    evaluate("zip", function, [Some(input(a)), Some(input(b)), None])
}

/// 1 where a comparison of two elements holds, else 0. Enqueues; does not wait.
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
    evaluate("compare", function, [Some(input(a)), Some(input(b)), None])
}

/// The smaller of `high` and the larger of `x` and `low`, as numpy's `clip`: `high` where `low` is above it, and NaN where one is NaN. Enqueues;
/// does not wait.
///
/// # Shapes, cost
/// As [`zip`], of three.
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
    evaluate("clamp", Function::Clamp, [Some(input(x)), Some(input(low)), Some(input(high))])
}

/// `a` where `mask` is not 0, else `b`. Enqueues; does not wait.
///
/// # Shapes, cost
/// As [`zip`], of three.
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
    evaluate("select", Function::Select, [Some(input(mask.into())), Some(input(a)), Some(input(b))])
}

/// The elements as another type that holds every value of theirs. Enqueues; does not wait.
///
/// # Shapes, cost
/// As [`cast_lossy`].
///
/// # Errors
/// [`Error::Argument`] for a type that does not, which [`cast_lossy`] takes; as [`cast_lossy`].
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

/// The elements as another type, as Rust's `as` makes one number of another: integers towards 0, at the bounds beyond these, and 0 of NaN; floats the
/// nearest. Unlike `as`, an integer becomes the nearest one too: -1 as `u8` is 0. Enqueues; does not wait, but where [`Tensor::try_clone`] does
/// for elements of the same type.
///
/// # Shapes
/// `x`: any, and the result the same.
///
/// # Accuracy
/// f64, `u32` and `i32` may become f16 and bf16 by way of f32.
///
/// # Cost
/// One pass over `x`, and a tensor of its shape.
///
/// # Errors
/// [`Error::NoF64`] on a device that does not [compute in f64](crate::Limits::f64), for results of f64, of f64 for all but f32, and of `u32` for
/// `i32` and the other way; [`Error::Limit`] and [`Error::OutOfMemory`] when the device has no room.
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

/// [`cast_lossy`] by another name.
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
    run(op, function, wide, [Some(input(x.into())), None, None])
}

/// An operand of any type.
#[derive(Clone, Copy)]
struct Input<'a> {
    shape: &'a [u64],
    given: Either<'a>,
}

#[derive(Clone, Copy)]
enum Either<'a> {
    Tensor(&'a dyn Untyped),
    Number(f64),
}

fn input<T: Element>(operand: Operand<'_, T>) -> Input<'_> {
    match operand.0 {
        Given::Tensor(tensor) => Input { shape: tensor.shape(), given: Either::Tensor(tensor) },
        Given::Number(number) => Input { shape: &[], given: Either::Number(number) },
    }
}

/// [`run`] in f64 where one of the operands asks for it.
fn evaluate<O: Element>(
    op: &'static str,
    function: Function,
    operands: [Option<Input<'_>>; 3],
) -> Result<Tensor<O>> {
    let wide = operands.iter().flatten().find_map(|operand| match operand.given {
        Either::Tensor(tensor) if tensor.dtype().is_wide() => Some(tensor.device()),
        _ => None,
    });
    wide.map_or(Ok(()), |device| device.computes_f64(op))?;
    run(op, function, wide.is_some(), operands)
}

/// The function of its operands, of which the last may be numbers.
fn run<O: Element>(
    op: &'static str,
    function: Function,
    wide: bool,
    operands: [Option<Input<'_>>; 3],
) -> Result<Tensor<O>> {
    let tensors = operands.iter().flatten().filter_map(|operand| match operand.given {
        Either::Tensor(tensor) => Some(tensor),
        Either::Number(_) => None,
    });
    let tensors: Vec<_> = tensors.collect();
    let Some(device) = tensors.first().map(|tensor| tensor.device()) else {
        return Err(Error::argument(op, "operands", "one of them has to be a tensor"));
    };
    for tensor in &tensors {
        device.has(op, "operands", tensor.device())?;
    }
    let shapes: Vec<_> = operands.iter().flatten().map(|operand| operand.shape).collect();
    let mut out = Tensor::empty(device, &together(op, &shapes)?)?;
    if out.is_empty() {
        return Ok(out);
    }
    // A number before a tensor is one of a single element.
    let of_f32 = |number: f64| Tensor::from_slice(device, &[nearest_f32(number)], &[]);
    let of_f64 = |number: f64| Tensor::from_slice(device, &[number], &[]);
    let last =
        operands.iter().rposition(|operand| matches!(operand, Some(Input { given: Either::Tensor(_), .. })));
    let mut stored: [Option<Box<dyn Untyped>>; 3] = [const { None }; 3];
    for (operand, stored) in operands.iter().zip(&mut stored).take(last.unwrap_or(0)) {
        if let Some(Input { given: Either::Number(number), .. }) = *operand {
            *stored = Some(if wide { Box::new(of_f64(number)?) } else { Box::new(of_f32(number)?) });
        }
    }
    let operands = std::array::from_fn(|i| match &stored[i] {
        Some(number) => Some(Input { shape: &[], given: Either::Tensor(&**number) }),
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
    operands: [Option<Input<'a>>; 3],
}

impl Launches<'_> {
    /// The two words of the number that an operand is, if it is one.
    fn number(&self, operand: usize) -> [u32; 2] {
        match self.operands[operand] {
            Some(Input { given: Either::Number(number), .. }) if self.wide => bytemuck::cast(number),
            Some(Input { given: Either::Number(number), .. }) => [nearest_f32(number).to_bits(), 0],
            _ => [0; 2],
        }
    }

    fn tensor(&self, operand: usize) -> Option<&dyn Untyped> {
        match self.operands[operand]?.given {
            Either::Tensor(tensor) => Some(tensor),
            Either::Number(_) => None,
        }
    }

    /// Fills the output, in as many launches as the device's limits ask for.
    fn into<O: Element>(self, out: &mut Tensor<O>) -> Result<()> {
        let shapes = self.operands.map(|operand| operand.map_or(&[][..], |operand| operand.shape));
        let Axes { extents, steps } = Axes::new(self.op, out.shape(), shapes)?;
        let flat = extents[..2] == [1, 1];
        let row = if flat { 1 } else { extents[1] * extents[2] };
        // Elements of an operand that belong to one row.
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
            self.device.launch(
                &ELEMENTWISE,
                &spec(self.is_narrow::<O>(), self.wide),
                grid,
                &args,
                &params,
            )?;
        }
        Ok(())
    }

    /// True where one of the types is another than f32.
    fn is_narrow<O: Element>(&self) -> bool {
        let other = |i| self.tensor(i).is_some_and(|tensor| tensor.dtype() != DType::F32);
        O::DTYPE != DType::F32 || (0..3).any(other)
    }

    /// Elements of the output that a launch makes: all, or so many that each launch begins at the device's alignment.
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
                (false, [0, ..]) => {
                    if spans[i] <= fits {
                        u64::MAX
                    } else {
                        0
                    }
                }
                // Elements that lie in as many rows as fit, wherever they begin.
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
