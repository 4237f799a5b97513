//! Applies a function to the elements of up to three arrays with broadcast axes.

use rayon::prelude::*;

use super::{
    WG,
    cpu::{correlate::Real as Stored, simd::wide},
};
use crate::{
    DType,
    dtype::with_dtype,
    kernel::{CpuArg, CpuLaunch, Kernel, codes, kernel, params},
};

params! {
    /// Parameters of the kernel. The output has three axes. A launch computes `n` elements, from `first` on, counted
    /// from the start of its windows. An operand's steps are 0 along the axes that it lacks.
    pub(crate) struct Params {
        /// A [`Function`].
        pub(crate) function: u32,
        pub(crate) operands: u32,
        pub(crate) n: u32,
        pub(crate) first: u32,
        /// The extents of the last two axes.
        pub(crate) extent1: u32,
        pub(crate) extent2: u32,
        pub(crate) out_type: u32,
        pub(crate) a_type: u32,
        pub(crate) a0: u32,
        pub(crate) a_step0: u32,
        pub(crate) a_step1: u32,
        pub(crate) a_step2: u32,
        pub(crate) b_type: u32,
        pub(crate) b0: u32,
        pub(crate) b_step0: u32,
        pub(crate) b_step1: u32,
        pub(crate) b_step2: u32,
        pub(crate) c_type: u32,
        pub(crate) c0: u32,
        pub(crate) c_step0: u32,
        pub(crate) c_step1: u32,
        pub(crate) c_step2: u32,
        /// The values that replace absent operands b and c: the bits of an f32, or the two words of an f64.
        pub(crate) b_low: u32,
        pub(crate) b_high: u32,
        pub(crate) c_low: u32,
        pub(crate) c_high: u32,
    }
}

pub(crate) static ELEMENTWISE: Kernel<Params> =
    kernel!("elementwise", Params, [Read, Read, Read, Write], elementwise, specs, [Function]);

codes! {
    /// A function of elements. Shaders rely on the order: functions before `Add` have one operand, functions from `Clamp`
    /// on have three, and all others two. `Less` is the first comparison. Functions from `Negative`, `Add` and `Less` on
    /// are those of [`Map`](crate::array::Map), [`Zip`](crate::array::Zip) and [`Compare`](crate::array::Compare).
    pub(crate) enum Function {
        Copy,
        Truncate,
        Negative,
        Absolute,
        SquareRoot,
        Exponential,
        Logarithm,
        Add,
        Subtract,
        Multiply,
        Divide,
        Minimum,
        Maximum,
        Less,
        LessEqual,
        Greater,
        GreaterEqual,
        Equal,
        NotEqual,
        Clamp,
        Select,
    }
}

/// Returns the constants of a program. Arrays of f32 only have a program of their own, and so has computation in f64.
pub(crate) fn spec(narrow: bool, wide: bool) -> [(&'static str, u32); 3] {
    [("WG", WG), ("NARROW", (narrow && !wide).into()), ("WIDE", wide.into())]
}

fn specs() -> Vec<Vec<(&'static str, u32)>> {
    [[false, false], [true, false], [false, true]].map(|[narrow, wide]| spec(narrow, wide).to_vec()).to_vec()
}

/// The number of elements of a task, and of elements that are computed at once.
const PIECE: usize = 1 << 14;
const BLOCK: usize = 1 << 10;

/// The type in which elements are computed: f32 or f64.
trait Number: Stored {
    /// Returns the number that two words of the parameters hold.
    fn number(low: u32, high: u32) -> Self;
    /// Applies the function to each element, and overwrites the first operand.
    fn apply(function: Function, a: &mut [Self], b: &[Self], c: &[Self]);
}

macro_rules! number {
    ($real:ident, $number:expr) => {
        impl Number for $real {
            fn number(low: u32, high: u32) -> Self {
                $number(low, high)
            }

            fn apply(function: Function, a: &mut [Self], b: &[Self], c: &[Self]) {
                // NaN is passed on, as in numpy.
                let least = |a: Self, b: Self| if a < b || a.is_nan() { a } else { b };
                let most = |a: Self, b: Self| if a > b || a.is_nan() { a } else { b };
                let truth = |holds: bool| Self::from(u8::from(holds));
                match function {
                    Function::Copy | Function::Truncate => {}
                    Function::Negative => map(a, |a| -a),
                    Function::Absolute => map(a, Self::abs),
                    Function::SquareRoot => map(a, Self::sqrt),
                    Function::Exponential => map(a, Self::exp),
                    Function::Logarithm => map(a, Self::ln),
                    Function::Add => zip(a, b, |a, b| a + b),
                    Function::Subtract => zip(a, b, |a, b| a - b),
                    Function::Multiply => zip(a, b, |a, b| a * b),
                    Function::Divide => zip(a, b, |a, b| a / b),
                    Function::Minimum => zip(a, b, least),
                    Function::Maximum => zip(a, b, most),
                    Function::Less => zip(a, b, |a, b| truth(a < b)),
                    Function::LessEqual => zip(a, b, |a, b| truth(a <= b)),
                    Function::Greater => zip(a, b, |a, b| truth(a > b)),
                    Function::GreaterEqual => zip(a, b, |a, b| truth(a >= b)),
                    Function::Equal => zip(a, b, |a, b| truth(a == b)),
                    Function::NotEqual => zip(a, b, |a, b| truth(a != b)),
                    Function::Clamp => join(a, b, c, |a, low, high| least(most(a, low), high)),
                    Function::Select => join(a, b, c, |mask, b, c| if mask != 0.0 { b } else { c }),
                }
            }
        }
    };
}

number!(f32, |low, _| f32::from_bits(low));
number!(f64, |low, high| bytemuck::cast([low, high]));

#[inline(always)]
fn map<R: Copy>(a: &mut [R], f: impl Fn(R) -> R) {
    wide(
        #[inline(always)]
        || a.iter_mut().for_each(|a| *a = f(*a)),
    );
}

#[inline(always)]
fn zip<R: Copy>(a: &mut [R], b: &[R], f: impl Fn(R, R) -> R) {
    wide(
        #[inline(always)]
        || a.iter_mut().zip(b).for_each(|(a, &b)| *a = f(*a, b)),
    );
}

#[inline(always)]
fn join<R: Copy>(a: &mut [R], b: &[R], c: &[R], f: impl Fn(R, R, R) -> R) {
    wide(
        #[inline(always)]
        || a.iter_mut().zip(b).zip(c).for_each(|((a, &b), &c)| *a = f(*a, b, c)),
    );
}

/// One operand: its elements, or a number that replaces them.
struct ElementSource<'a, R> {
    arg: &'a CpuArg<'a>,
    dtype: DType,
    start: usize,
    steps: [usize; 3],
    number: Option<R>,
}

impl<R: Number> ElementSource<'_, R> {
    /// Returns the operand's elements for the outputs from index `first` on: in place if possible, otherwise copied to `room`.
    fn values<'a>(&'a self, first: usize, extents: [usize; 2], room: &'a mut [R]) -> &'a [R] {
        let column = first % extents[1];
        let side_by_side = self.steps[2] == 1 && column + room.len() <= extents[1];
        if self.number.is_none() && self.dtype == R::DTYPE && side_by_side {
            return &self.arg.read::<R>()[self.line(first / extents[1], extents) + column..][..room.len()];
        }
        self.load(first, extents, room);
        room
    }

    /// Returns the operand's index at the start of a row of the output.
    fn line(&self, row: usize, [extent1, _]: [usize; 2]) -> usize {
        self.start + row / extent1 * self.steps[0] + row % extent1 * self.steps[1]
    }

    /// Writes the operand's elements for the outputs from index `first` on.
    fn load(&self, first: usize, extents: [usize; 2], out: &mut [R]) {
        if let Some(number) = self.number {
            return out.fill(number);
        }
        with_dtype!(self.dtype, T => {
            let elements = self.arg.read::<T>();
            let (mut done, mut place) = (0, first);
            while done < out.len() {
                let (row, column) = (place / extents[1], place % extents[1]);
                let run = (extents[1] - column).min(out.len() - done);
                let (start, out) = (self.line(row, extents), &mut out[done..done + run]);
                if self.steps[2] == 0 {
                    out.fill(R::nearest(elements[start]));
                } else {
                    let line = &elements[start + column..][..run];
                    wide(
                        #[inline(always)]
                        || out.iter_mut().zip(line).for_each(|(out, x)| *out = R::nearest(*x)),
                    );
                }
                (done, place) = (done + run, place + run);
            }
        });
    }
}

fn elementwise(launch: CpuLaunch<'_>) {
    if launch.constant("WIDE") == 1 { compute::<f64>(launch) } else { compute::<f32>(launch) }
}

fn compute<R: Number>(launch: CpuLaunch<'_>) {
    let p: Params = launch.params();
    let function = Function::from_code(p.function);
    let [a, b, c, out] = launch.args();
    let operand = |i, arg, dtype, [start, steps @ ..]: [u32; 4], [low, high]: [u32; 2]| ElementSource {
        arg,
        dtype: DType::from_code(dtype),
        start: start as usize,
        steps: steps.map(|step| step as usize),
        number: (p.operands < i).then(|| R::number(low, high)),
    };
    let operands = [
        operand(1, &a, p.a_type, [p.a0, p.a_step0, p.a_step1, p.a_step2], [0; 2]),
        operand(2, &b, p.b_type, [p.b0, p.b_step0, p.b_step1, p.b_step2], [p.b_low, p.b_high]),
        operand(3, &c, p.c_type, [p.c0, p.c_step0, p.c_step1, p.c_step2], [p.c_low, p.c_high]),
    ];
    let (dtype, extents) =
        (DType::from_code(p.out_type), [p.extent1, p.extent2].map(|extent| extent as usize));
    let size = usize::try_from(dtype.size()).expect("an element should be small");
    let out = &mut out.write::<u8>()[..p.n as usize * size];
    out.par_chunks_mut(PIECE * size).enumerate().for_each(|(piece, out)| {
        let mut room = [[R::default(); BLOCK]; 3];
        for (block, out) in out.chunks_mut(BLOCK * size).enumerate() {
            let (first, len) = (p.first as usize + piece * PIECE + block * BLOCK, out.len() / size);
            let [a, b, c] = &mut room;
            let (b, c) = (&mut b[..len], &mut c[..len]);
            let [b, c] = [operands[1].values(first, extents, b), operands[2].values(first, extents, c)];
            if dtype == R::DTYPE {
                let out = bytemuck::cast_slice_mut(out);
                operands[0].load(first, extents, out);
                R::apply(function, out, b, c);
                continue;
            }
            let a = &mut a[..len];
            operands[0].load(first, extents, a);
            R::apply(function, a, b, c);
            if function == Function::Truncate {
                R::truncate(a, dtype);
            }
            R::store(a, dtype, out);
        }
    });
}
