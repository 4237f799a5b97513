//! Tests of elementwise functions, and of broadcast shapes.

use super::*;
use crate::array::{Compare, Map, Zip, cast, cast_lossy, clamp, compare, map, select, zip};

device_tests! {
    functions_of_one, functions_of_two, comparisons, bounds, choices, every_type, every_cast, bounds_of_casts, shapes_that_go_together,
    sizes_around_words, parts_of_a_tensor, numbers_in_any_place, empty, refused, other_devices;
    past_the_largest_grid, operands_beyond_a_binding,
}

/// Common numbers, special values and NaN.
const NUMBERS: [f32; 22] = [
    0.0,
    -0.0,
    1e-40,
    -1e-45,
    1.0,
    -1.0,
    0.5,
    -2.75,
    3.0e-30,
    -1.2e-20,
    1.0e30,
    -3.4e38,
    3.4e38,
    88.5,
    -87.0,
    1_234_567.0,
    -16_777_216.0,
    f32::INFINITY,
    f32::NEG_INFINITY,
    f32::NAN,
    f32::MIN_POSITIVE,
    0.1,
];

/// Asserts that results equal `of` of the operands, are both NaN, or differ by at most `units` of f32; a subnormal result may be 0. If a device
/// flushes subnormal operands to 0, the results of 0 are accepted too, with the operand's sign or without.
#[track_caller]
fn check<const N: usize>(
    what: &str,
    device: &Device,
    found: &[f32],
    operands: [&[f32]; N],
    of: impl Fn([f64; N]) -> f64,
    units: impl Fn(usize) -> f64,
) {
    let least = smallest(device);
    assert_eq!([found.len(); N], operands.map(<[f32]>::len), "{what}");
    for (i, &found) in found.iter().enumerate() {
        let given = operands.map(|operand| f64::from(operand[i]));
        let same = |expected: f64| {
            let near = expected as f32;
            let close = (f64::from(found) - expected).abs()
                <= units(i) * f64::from(f32::EPSILON) * expected.abs() + f64::from(f32::MIN_POSITIVE);
            found == near || found.is_nan() && near.is_nan() || near.is_finite() && close
        };
        let flushed =
            |zero: fn(f64) -> f64| same(of(given.map(|x| if x.abs() < least { zero(x) } else { x })));
        let is_right = same(of(given)) || flushed(|x| 0.0_f64.copysign(x)) || flushed(|_| 0.0);
        assert!(is_right, "{what}: {found:e} of {given:?} at {i}");
    }
}

fn tensor<T: Element>(device: &Device, values: &[T]) -> Tensor<T> {
    Tensor::from_slice(device, values, &[values.len() as u64]).unwrap()
}

fn functions_of_one(device: &Device) {
    let x: Vec<f32> = NUMBERS.into_iter().chain(values::<f32>(1, 1000).iter().map(|x| 80.0 * x)).collect();
    let exact = |function: Map| match function {
        Map::Negative => |x: f64| -x,
        Map::Absolute => f64::abs,
        Map::SquareRoot => f64::sqrt,
        Map::Exponential => f64::exp,
        Map::Logarithm => f64::ln,
    };
    for function in [Map::Negative, Map::Absolute, Map::SquareRoot, Map::Exponential, Map::Logarithm] {
        let found = map(function, &tensor(device, &x)).unwrap().read().unwrap();
        // The bounds are WGSL's, plus half a unit for the rounding of the reference.
        let wgsl = !device.limits().f64;
        let units = |i: usize| match function {
            Map::Negative | Map::Absolute => 0.0,
            Map::SquareRoot => 4.5,
            Map::Exponential if wgsl => 3.5 + 2.0 * f64::from(x[i]).abs(),
            // From 0.5 to 2, the bound is absolute.
            Map::Logarithm if wgsl => 3.5 + 4.0 / f64::from(x[i]).ln().abs().max(1e-9),
            _ => 2.0,
        };
        check(&format!("{function:?}"), device, &found, [&x], |[x]| exact(function)(x), units);
    }
    let wide: Vec<f64> = x.iter().map(|&x| f64::from(x) / 3.0).collect();
    match map(Map::Exponential, &tensor(device, &wide)) {
        Ok(found) => {
            let pairs = found.read().unwrap().into_iter().zip(&wide).filter(|(_, x)| x.is_finite());
            let (found, expected): (Vec<f64>, Vec<_>) =
                pairs.map(|(y, x)| (y, Reference::from(x.exp()))).unzip();
            assert_close("exp", &found, &expected, dot_of(DType::F64, 1));
        }
        Err(error) => {
            assert!(!device.limits().f64 && matches!(error, Error::NoF64 { op: "map", .. }), "{error}")
        }
    }
}

/// Returns every pair of [`NUMBERS`].
fn pairs() -> (Vec<f32>, Vec<f32>) {
    NUMBERS.iter().flat_map(|&a| NUMBERS.map(|b| (a, b))).unzip()
}

fn least(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.min(b) }
}

fn most(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn of_two(function: Zip) -> fn(f64, f64) -> f64 {
    match function {
        Zip::Add => |a, b| a + b,
        Zip::Subtract => |a, b| a - b,
        Zip::Multiply => |a, b| a * b,
        Zip::Divide => |a, b| a / b,
        Zip::Minimum => least,
        Zip::Maximum => most,
    }
}

pub(super) const ZIPS: [Zip; 6] =
    [Zip::Add, Zip::Subtract, Zip::Multiply, Zip::Divide, Zip::Minimum, Zip::Maximum];

fn functions_of_two(device: &Device) {
    let (a, b) = pairs();
    let (ta, tb) = (tensor(device, &a), tensor(device, &b));
    for function in ZIPS {
        let found = zip(function, &ta, &tb).unwrap().read().unwrap();
        let units = |_| if function == Zip::Divide { 3.0 } else { 1.0 };
        check(&format!("{function:?}"), device, &found, [&a, &b], |[a, b]| of_two(function)(a, b), units);
    }
}

type Holds = fn(f32, f32) -> bool;

pub(super) const COMPARISONS: [(Compare, Holds); 6] = [
    (Compare::Less, |a, b| a < b),
    (Compare::LessEqual, |a, b| a <= b),
    (Compare::Greater, |a, b| a > b),
    (Compare::GreaterEqual, |a, b| a >= b),
    (Compare::Equal, |a, b| a == b),
    (Compare::NotEqual, |a, b| a != b),
];

fn comparisons(device: &Device) {
    let (a, b) = pairs();
    let (ta, tb) = (tensor(device, &a), tensor(device, &b));
    for (comparison, holds) in COMPARISONS {
        let expected: Vec<u8> = a.iter().zip(&b).map(|(&a, &b)| holds(a, b).into()).collect();
        assert_eq!(compare(comparison, &ta, &tb).unwrap().read().unwrap(), expected, "{comparison:?}");
    }
}

fn bounds(device: &Device) {
    let x = tensor(device, &NUMBERS);
    let found = clamp(&x, -1.0, &tensor(device, &[2.0f32])).unwrap().read().unwrap();
    check("clamp", device, &found, [&NUMBERS], |[x]| least(most(x, -1.0), 2.0), |_| 0.0);
    let wide = tensor(device, &[1.0f64]);
    assert_eq!(clamp(&wide, 0.0, 1.0).is_ok(), device.limits().f64);
    assert_eq!(compare(Compare::Less, &wide, 1.0).is_ok(), device.limits().f64);
}

fn choices(device: &Device) {
    let mask: Vec<u8> = (0..NUMBERS.len()).map(|i| [0, 1, 255][i % 3]).collect();
    let masks: Vec<f32> = mask.iter().copied().map(f32::from).collect();
    let found = select(&tensor(device, &mask), &tensor(device, &NUMBERS), 7.0).unwrap().read().unwrap();
    let chosen = |[x, mask]: [f64; 2]| if mask > 0.0 { x } else { 7.0 };
    check("select", device, &found, [&NUMBERS, &masks], chosen, |_| 0.0);
}

/// Combines each type with itself and with bytes.
fn every_type(device: &Device) {
    fn with<T: Sample>(device: &Device)
    where
        T::Real: Real,
    {
        let (x, y) = (values::<T>(2, 1001), values::<u8>(3, 1001));
        let found = zip(Zip::Subtract, &tensor(device, &x), &tensor(device, &y));
        if T::DTYPE.is_wide() && !device.limits().f64 {
            assert!(matches!(found, Err(Error::NoF64 { op: "zip", .. })));
            return;
        }
        let expected: Vec<_> =
            x.iter().zip(&y).map(|(x, y)| Reference::from(x.value() - f64::from(*y))).collect();
        let what = format!("{:?}", T::DTYPE);
        let found: Vec<f64> = found.unwrap().read().unwrap().into_iter().map(Element::to_f64).collect();
        assert_close(&what, &found, &expected, if T::DTYPE.is_wide() { EXACT } else { ONE_OPERATION });
        let equal = compare(Compare::Equal, &tensor(device, &x), &tensor(device, &x)).unwrap();
        assert_eq!(equal.read().unwrap(), vec![1; x.len()], "{what}");
    }
    for_each_type!(with(device));
}

/// Returns the result of Rust's `as`; for integers out of range, the nearest bound.
fn expected_cast<U: Sample>(value: f64) -> f64 {
    let whole = |least: f64, most: f64| if value.is_nan() { 0.0 } else { value.trunc().clamp(least, most) };
    match U::DTYPE {
        DType::U8 => whole(0.0, 255.0),
        DType::I8 => whole(-128.0, 127.0),
        DType::U16 => whole(0.0, 65535.0),
        DType::I16 => whole(-32768.0, 32767.0),
        DType::U32 => whole(0.0, u32::MAX.into()),
        DType::I32 => whole(i32::MIN.into(), i32::MAX.into()),
        DType::F32 => f64::from(value as f32),
        DType::F16 => f16::from_f32(value as f32).to_f64(),
        DType::BF16 => bf16::from_f32(value as f32).to_f64(),
        DType::F64 => value,
    }
}

fn check_cast<T: Sample, U: Sample>(device: &Device, x: &[T]) {
    if T::DTYPE == U::DTYPE {
        return;
    }
    let found = cast_lossy::<U, _>(&tensor(device, x));
    let what = format!("{:?} to {:?}", T::DTYPE, U::DTYPE);
    let found = match found {
        Ok(found) => found.read().unwrap(),
        Err(error) => {
            let is_wide = T::DTYPE.is_wide() || U::DTYPE == DType::F64;
            let is_right = !device.limits().f64 && is_wide && matches!(error, Error::NoF64 { .. });
            assert!(is_right, "{what}: {error}");
            return;
        }
    };
    for (x, found) in x.iter().zip(found) {
        let expected = expected_cast::<U>(x.value());
        let same = found.value() == expected || found.value().is_nan() && expected.is_nan();
        // A device may flush subnormal values to 0.
        let tiny = expected.abs() < f64::from(f32::MIN_POSITIVE) && found.value() == 0.0;
        assert!(same || tiny, "{what}: {found:?} of {x:?}");
    }
    let exact = cast::<U, _>(&tensor(device, x));
    let holds_all = x.iter().all(|x| x.value().is_nan() || expected_cast::<U>(x.value()) == x.value());
    assert!(exact.is_err() || holds_all, "{what}");
}

fn every_cast(device: &Device) {
    fn of<T: Sample>(device: &Device) {
        fn to<U: Sample>(device: &Device, x: &[impl Sample]) {
            check_cast::<_, U>(device, x);
        }
        let x = values::<T>(4, 501);
        for_each_type!(to(device, &x));
    }
    for_each_type!(of(device));
}

fn bounds_of_casts(device: &Device) {
    let x: Vec<f32> = NUMBERS
        .into_iter()
        .chain([
            254.9,
            255.5,
            256.0,
            -0.9,
            127.9,
            -128.9,
            65535.5,
            4.294_967e9,
            2_147_483_500.0,
            -2_147_483_648.0,
            65504.0,
            65520.0,
        ])
        .collect();
    check_cast::<f32, u8>(device, &x);
    check_cast::<f32, i8>(device, &x);
    check_cast::<f32, u16>(device, &x);
    check_cast::<f32, i16>(device, &x);
    check_cast::<f32, u32>(device, &x);
    check_cast::<f32, i32>(device, &x);
    check_cast::<f32, f16>(device, &x);
    check_cast::<f32, bf16>(device, &x);
    check_cast::<u32, u8>(device, &[0, 255, 256, 16_777_217, u32::MAX]);
    check_cast::<u32, i32>(device, &[0, 1 << 31, u32::MAX, 16_777_217, i32::MAX as u32]);
    check_cast::<i32, u32>(device, &[i32::MIN, -1, 0, 16_777_217, i32::MAX]);
    check_cast::<i32, i16>(device, &[i32::MIN, -32_769, -32_768, 32_768, i32::MAX]);
    check_cast::<f64, f32>(device, &[1.0 + 1e-12, 1e300, -1e300, f64::NAN, 1e-320, 0.1]);
    check_cast::<f64, u8>(device, &[0.999_999_999_999, 255.999_999_999, -1e-300, 1e300]);
    // Some types hold every value, and some do not.
    let bytes = tensor(device, &[1u8, 255]);
    assert_eq!(cast::<i16, _>(&bytes).unwrap().read().unwrap(), [1, 255]);
    let halves = cast::<f16, _>(&bytes).unwrap().read().unwrap();
    assert_eq!(halves, [1.0, 255.0].map(f16::from_f32));
    assert_eq!(cast::<u8, _>(&bytes).unwrap().read().unwrap(), [1, 255]);
    assert_err!(cast::<i8, _>(&bytes), Error::Argument { op: "cast", name: "x", .. });
    assert!(cast::<f16, _>(&tensor(device, &[1u16])).is_err());
    assert!(cast::<u8, _>(&tensor(device, &[1.0f32])).is_err());
}

/// Returns the operand's element for an index of the result, by numpy's broadcasting rule.
fn at(x: &[f32], shape: &[u64], out: &[u64], mut place: u64) -> f32 {
    let (mut step, mut i) = (1, 0);
    for (axis, &extent) in out.iter().enumerate().rev() {
        let along = place % extent;
        place /= extent;
        if let Some(axis) = (axis + shape.len()).checked_sub(out.len()) {
            i += if shape[axis] == 1 { 0 } else { along * step };
            step *= shape[axis];
        }
    }
    x[i as usize]
}

fn check_shapes(device: &Device, a: &[u64], b: &[u64], out: &[u64]) {
    let make = |seed, shape: &[u64]| {
        let x = values::<f32>(seed, shape.iter().product());
        let tensor = Tensor::from_slice(device, &x, shape).unwrap();
        (x, tensor)
    };
    let ((xa, ta), (xb, tb)) = (make(5, a), make(6, b));
    let found = zip(Zip::Subtract, &ta, &tb).unwrap_or_else(|error| panic!("{a:?} {b:?}: {error}"));
    assert_eq!(found.shape(), out, "{a:?} {b:?}");
    let expected = (0..out.iter().product()).map(|i| at(&xa, a, out, i) - at(&xb, b, out, i));
    assert!(found.read().unwrap().into_iter().eq(expected), "{a:?} {b:?}");
    // Several elements of the result share a word.
    let found = compare(Compare::Less, &ta, &tb).unwrap().read().unwrap();
    let expected = (0..out.iter().product()).map(|i| u8::from(at(&xa, a, out, i) < at(&xb, b, out, i)));
    assert!(found.into_iter().eq(expected), "{a:?} {b:?}: comparison");
}

fn shapes_that_go_together(device: &Device) {
    for (a, b, out) in [
        (&[7u64, 5][..], &[7u64, 5][..], &[7u64, 5][..]),
        (&[2, 3, 4, 5], &[3, 1, 1], &[2, 3, 4, 5]),
        (&[2, 3, 4, 5], &[2, 1, 4, 5], &[2, 3, 4, 5]),
        (&[300, 257], &[257], &[300, 257]),
        (&[300, 257], &[300, 1], &[300, 257]),
        (&[300, 1], &[257], &[300, 257]),
        (&[6, 1, 700], &[6, 9, 1], &[6, 9, 700]),
        (&[3000, 1], &[3000, 3], &[3000, 3]),
        (&[1, 3000], &[3, 1], &[3, 3000]),
    ] {
        check_shapes(device, a, b, out);
    }
}

fn sizes_around_words(device: &Device) {
    for len in [1, 2, 3, 4, 5, 63, 64, 65, 255, 256, 257, 511, 513, 1023, 1025, 16_383, 16_385] {
        check_shapes(device, &[len], &[len], &[len]);
        let halves = cast_lossy::<f16, _>(&tensor(device, &values::<f32>(7, len))).unwrap();
        let expected: Vec<f16> = values::<f32>(7, len).into_iter().map(f16::from_f32).collect();
        assert_eq!(halves.read().unwrap(), expected, "{len}");
    }
}

/// Rows of bytes begin within a word.
fn parts_of_a_tensor(device: &Device) {
    let (x, tx) = matrix::<u8>(device, 8, 9, 7);
    let part = tx.rows(3..8).unwrap();
    let found = zip(Zip::Add, &*part, &*tx.rows(0..1).unwrap()).unwrap().read().unwrap();
    let expected: Vec<f32> = (21..56).map(|i| f32::from(x[i]) + f32::from(x[i % 7])).collect();
    assert_eq!(found, expected);
    assert_eq!(cast::<u8, _>(&*part).unwrap().read().unwrap(), x[21..56]);
    let mask = select(&part, &*tx.rows(1..2).unwrap(), 1.0).unwrap().read().unwrap();
    assert!((0..35).all(|i| mask[i] == if x[21 + i] > 0 { f32::from(x[7 + i % 7]) } else { 1.0 }));
}

fn numbers_in_any_place(device: &Device) {
    let x = tensor(device, &[1.0f32, 2.0]);
    assert_eq!(zip(Zip::Subtract, 5.0, &x).unwrap().read().unwrap(), [4.0, 3.0]);
    assert_eq!(clamp(1.5, 0.0, &x).unwrap().read().unwrap(), [1.0, 1.5]);
    assert_eq!(clamp(1.5, &x, 1.75).unwrap().read().unwrap(), [1.5, 1.75]);
    let mask = tensor(device, &[0u8, 1]);
    assert_eq!(select(&mask, 1.0, 2.0).unwrap().read().unwrap(), [2.0, 1.0]);
    if device.limits().f64 {
        let x = tensor(device, &[1.0f64, 2.0]);
        assert_eq!(zip(Zip::Divide, 1.0, &x).unwrap().read().unwrap(), [1.0, 0.5]);
        assert_eq!(zip(Zip::Multiply, &x, 0.1).unwrap().read().unwrap(), [0.1, 0.2]);
    }
}

fn empty(device: &Device) {
    let x = Tensor::<f32>::zeros(device, &[0, 3]).unwrap();
    assert_eq!(zip(Zip::Add, &x, &Tensor::<f32>::zeros(device, &[1, 3]).unwrap()).unwrap().shape(), [0, 3]);
    assert_eq!(map(Map::Absolute, &x).unwrap().shape(), [0, 3]);
    assert_eq!(cast::<f32, u8>(&Tensor::zeros(device, &[0]).unwrap()).unwrap().shape(), [0]);
}

fn refused(device: &Device) {
    let of = |shape: &[u64]| Tensor::<f32>::zeros(device, shape).unwrap();
    assert_err!(zip(Zip::Add, &of(&[2, 1, 4, 1]), &of(&[1, 3, 1, 5])), Error::Shape { op: "zip", .. });
    assert_err!(zip(Zip::Add, 1.0, 2.0), Error::Argument { op: "zip", name: "operands", .. });
}

fn other_devices(device: &Device) {
    let there = Tensor::<f32>::zeros(device, &[2]).unwrap();
    let here = Tensor::<f32>::zeros(cpu(), &[2]).unwrap();
    let found: Result<Tensor<f32>> = zip(Zip::Add, &there, &here);
    let is_refused = matches!(found, Err(Error::WrongDevice { op: "zip", .. }));
    assert_eq!(is_refused, !device.is_same(cpu()), "{found:?}");
}

fn past_the_largest_grid(device: &Device) {
    for (a, b, out) in [
        (&[300_001u64][..], &[300_001u64][..], &[300_001u64][..]),
        (&[3001, 101], &[101], &[3001, 101]),
        (&[101, 3001], &[101, 1], &[101, 3001]),
        (&[70, 60, 70], &[60, 1], &[70, 60, 70]),
    ] {
        check_shapes(device, a, b, out);
    }
}

/// A row larger than half a binding is refused, unless the operands have equal shapes.
fn operands_beyond_a_binding(device: &Device) {
    let most = device.limits().binding / 4;
    if most > 1 << 20 {
        return;
    }
    let of = |shape: &[u64]| Tensor::<f32>::zeros(device, shape).unwrap();
    assert_err!(zip(Zip::Add, &of(&[2, most + 1]), &of(&[2, 1])), Error::Limit { .. });
    let len = 2 * (most + 1);
    let x: Vec<f32> = (0..len).map(|i| (i % 1000) as f32).collect();
    let x = Tensor::from_slice(device, &x, &[2, most + 1]).unwrap();
    let mut expected = (0..len).map(|i| 3.0 * (i % 1000) as f32);
    let sum = zip(Zip::Add, &x, &zip(Zip::Multiply, &x, 2.0).unwrap()).unwrap();
    assert!(sum.read().unwrap().into_iter().all(|found| expected.next() == Some(found)));
}
