//! Attributes that change values in ways that are not supported: refused by name.

use super::*;

fn refused(metadata: &Value, attributes: &Value) -> String {
    let scratch = Scratch::new();
    scratch.array("a", metadata, &[]);
    scratch.put("a/.zattrs", attributes.to_string());
    metadata::why(&scratch)
}

#[test]
fn others_are_refused_by_name() {
    for (attributes, name) in [
        (json!({ "scale_factor": 0.5 }), "scale_factor"),
        (json!({ "scale_factor": "1/2" }), "scale_factor"),
        (json!({ "add_offset": -1 }), "add_offset"),
        (json!({ "_Unsigned": "true" }), "_Unsigned"),
        (json!({ "_FillValue": "none" }), "_FillValue"),
        (json!({ "_FillValue": [1, 2] }), "_FillValue"),
        (json!({ "_FillValue": 3, "missing_value": 4 }), "missing_value"),
    ] {
        let in_v2 = refused(&v2(&[4, 3], &[4, 3], "|i1", Value::Null), &attributes);
        let mut metadata = v3(&[4, 3], &[4, 3], "int8", json!([{ "name": "bytes" }]));
        metadata["attributes"] = attributes;
        for why in [in_v2, refused(&metadata, &json!({}))] {
            assert!(why.contains(&format!("`{name}`")), "{why}");
        }
    }
}
