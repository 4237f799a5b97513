//! Attributes that change values in ways that are not supported: refused by name.

use super::*;

fn refused(metadata: &Value, attributes: Option<&Value>) -> String {
    let scratch = Scratch::new();
    scratch.array("a", metadata, &[]);
    if let Some(attributes) = attributes {
        scratch.put("a/.zattrs", attributes.to_string());
    }
    match ZarrArray::open(scratch.path(), "a", MissingChunk::Error) {
        Err(Error::Store { path, why }) => {
            assert!(path.ends_with("/a"), "{path}");
            why.into()
        }
        other => panic!("{metadata}: {other:?}"),
    }
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
        let in_v2 = refused(&v2(&[4, 3], &[4, 3], "|i1", Value::Null), Some(&attributes));
        let mut metadata = v3(&[4, 3], &[4, 3], "int8", json!([{ "name": "bytes" }]));
        metadata["attributes"] = attributes;
        for why in [in_v2, refused(&metadata, None)] {
            assert!(why.contains(&format!("`{name}`")), "{why}");
        }
    }
    for filter in ["fixedscaleoffset", "quantize", "astype"] {
        let mut metadata = v2(&[4, 3], &[4, 3], "|i1", Value::Null);
        metadata["filters"] = json!([{ "id": filter, "offset": 0, "scale": 2, "dtype": "|i1" }]);
        assert!(refused(&metadata, None).contains(&format!("`{filter}`")));
        let codecs = json!([{ "name": format!("numcodecs.{filter}") }, { "name": "bytes" }]);
        assert!(refused(&v3(&[4, 3], &[4, 3], "int8", codecs), None).contains(filter));
    }
}
