//! Attributes that change the meaning of stored numbers, as defined by CF and xarray.

use base64::{Engine, prelude::BASE64_STANDARD};
use half::f16;
use serde_json::Value;

use super::guard::Why;
use crate::{StoredType, dtype::nearest_f32};

/// Returns the number that marks missing elements, as an element of `dtype` holds it, if `attributes` give one.
/// Attributes that scale values, or reinterpret their bits as another type, are refused with an error that names them.
pub(super) fn missing_value(attributes: &Value, dtype: StoredType) -> Why<Option<f64>> {
    let get = |name: &str| attributes.get(name).filter(|value| !value.is_null());
    let refuse = |name: &str, value: &Value| {
        Err(format!("its attribute `{name}`, which is {value}, changes its values: that is not supported"))
    };
    for (name, neutral) in [("scale_factor", 1.0), ("add_offset", 0.0)] {
        if let Some(value) = get(name).filter(|&value| number(value) != Some(neutral)) {
            return refuse(name, value);
        }
    }
    if let Some(value) = get("_Unsigned").filter(|value| value.as_str() != Some("false")) {
        return refuse("_Unsigned", value);
    }
    let mut missing: Option<(f64, &str)> = None;
    for name in ["_FillValue", "missing_value"] {
        let Some(value) = get(name) else { continue };
        let this = number(value).ok_or_else(|| format!("its attribute `{name}`, {value}, is no number"))?;
        let this = stored(this, dtype);
        if let Some((other, first)) = missing.filter(|(other, _)| other.to_bits() != this.to_bits()) {
            return Err(format!("its attributes `{first}`, {other}, and `{name}`, {this}, differ"));
        }
        missing = Some((this, name));
    }
    Ok(missing.map(|(value, _)| value))
}

/// Reads a number from JSON, either alone or as the only element of a list. A floating-point number may also be given by name or, as
/// xarray writes it to Zarr v3, as base64 of a little-endian f64.
fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::Array(values) => match values.as_slice() {
            [value] if !value.is_array() => number(value),
            _ => None,
        },
        Value::String(text) => match text.as_str() {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            text => Some(f64::from_le_bytes(BASE64_STANDARD.decode(text).ok()?.try_into().ok()?)),
        },
        _ => None,
    }
}

/// Returns the nearest number that an element of `dtype` holds; all NaNs become the same NaN.
fn stored(value: f64, dtype: StoredType) -> f64 {
    let value = match dtype {
        StoredType::F16 => f16::from_f64(value).to_f64(),
        StoredType::F32 => nearest_f32(value).into(),
        _ => value,
    };
    if value.is_nan() { f64::NAN } else { value }
}
