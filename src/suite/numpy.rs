//! Tests against numpy: shapes that broadcast, NaN, infinity and ties, in f32 and f64.

use std::{fmt, sync::LazyLock};

use serde_json::Value;

use super::elementwise::{COMPARISONS, ZIPS};
use super::*;
use crate::array::{Compare, any, argmax, argmin, clamp, compare, max, mean, min, select, sum, zip};

device_tests! { as_numpy }

/// The results that `tests/fixtures/numpy_semantics.py` wrote.
static CASES: LazyLock<Vec<Value>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../tests/fixtures/numpy_semantics.json")).unwrap()
});

/// Returns the function that has numpy's name here, such as `LessEqual` for `less_equal`.
fn named<T: fmt::Debug>(functions: impl IntoIterator<Item = T>, name: &str) -> Option<T> {
    functions.into_iter().find(|function| format!("{function:?}").to_lowercase() == name.replace('_', ""))
}

/// Returns the shape and the elements of an array.
fn array(stored: &Value) -> (Vec<u64>, Vec<f64>) {
    let shape = stored["shape"].as_array().unwrap().iter().map(|extent| extent.as_u64().unwrap());
    let values = stored["values"].as_str().unwrap().split_whitespace().map(|x| x.parse().unwrap());
    (shape.collect(), values.collect())
}

fn read<T: Element>(x: &Tensor<T>) -> (Vec<u64>, Vec<f64>) {
    (x.shape().to_vec(), x.read().unwrap().into_iter().map(T::to_f64).collect())
}

fn computed<R: Real>(device: &Device, case: &Value) -> Result<(Vec<u64>, Vec<f64>)> {
    let op = case["op"].as_str().unwrap();
    let upload = |stored| {
        let (shape, values) = array(stored);
        let values: Vec<R> = values.into_iter().map(R::nearest).collect();
        Tensor::from_slice(device, &values, &shape).unwrap()
    };
    let operands: Vec<_> = case["operands"].as_array().unwrap().iter().map(upload).collect();
    let x = &operands[0];
    if let Some(function) = named(ZIPS, op) {
        return Ok(read(&zip(function, x, &operands[1])?));
    }
    if let Some(comparison) = named(COMPARISONS.map(|(comparison, _)| comparison), op) {
        return Ok(read(&compare(comparison, x, &operands[1])?));
    }
    let axis = || usize::try_from(case["axis"].as_u64().unwrap()).unwrap();
    Ok(match op {
        "clip" => read(&clamp(x, &operands[1], &operands[2])?),
        "where" => {
            let mask = compare(Compare::NotEqual, x, 0.0)?;
            read(&select(&mask, &operands[1], &operands[2])?)
        }
        "sum" => read(&sum(x, axis())?),
        "mean" => read(&mean(x, axis())?),
        "min" => read(&min(x, axis())?),
        "max" => read(&max(x, axis())?),
        "argmin" => read(&argmin(x, axis())?),
        "argmax" => read(&argmax(x, axis())?),
        "any" => read(&any(x, axis())?),
        _ => panic!("{op}"),
    })
}

fn check<R: Real>(device: &Device, case: &Value) {
    match (computed::<R>(device, case), case.get("out").map(array)) {
        (Ok((shape, found)), Some((expected_shape, expected))) => {
            assert_eq!(shape, expected_shape, "{case}");
            let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
            assert_eq!(found.len(), expected.len(), "{case}");
            assert!(found.iter().zip(&expected).all(same), "{case}: {found:?}");
        }
        (Err(error), None) => {
            assert!(matches!(error, Error::Shape { .. } | Error::Argument { .. }), "{case}: {error}");
        }
        (found, _) => panic!("{case}: {found:?}"),
    }
}

fn as_numpy(device: &Device) {
    for case in &*CASES {
        check::<f32>(device, case);
        if device.limits().f64 {
            check::<f64>(device, case);
        }
    }
}
