//! Fill values in the various forms that programs write.

use serde_json::Value;

use crate::store::marked::WHOLE;

/// Rewrites a fill value that is written in another form, such as `0.0` or `"0"` for integers, as the number it stands for.
pub(super) fn adapt(json: &mut Value, dtype: &str) {
    let Some(fill) = json.get_mut("fill_value") else { return };
    let dtype = dtype.trim_start_matches(['<', '>', '|', '=']);
    let number = match &*fill {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => {
            text.trim().parse::<serde_json::Number>().ok().and_then(|number| number.as_f64())
        }
        _ => None,
    };
    let Some(number) = number else { return };
    if dtype == "bool" || dtype == "b1" {
        if number == 0.0 || number == 1.0 {
            *fill = (number == 1.0).into();
        }
    } else if dtype.starts_with('f') {
        *fill = number.into();
    } else if dtype.starts_with(['i', 'u']) && number.fract() == 0.0 && number.abs() <= WHOLE as f64 {
        #[allow(clippy::cast_possible_truncation, reason = "a whole number of 53 bits")]
        let number = number as i64;
        // Larger numbers stay as written.
        *fill = number.into();
    }
}

/// Describes a fill value that could not be read.
pub(super) fn wrong(fill: &str, dtype: &str, why: &dyn std::fmt::Display) -> String {
    format!("its fill value {fill} is none of its data type {dtype}: {why}")
}
