//! Tests of unusable metadata: the array is refused when it is opened, with the path and the reason.

use super::*;
use crate::openings::assert_refused;

fn refused(metadata: &Value) -> String {
    why(&Scratch::of(metadata, &[]))
}

/// Returns why the array `a` cannot be opened.
fn why(scratch: &Scratch) -> String {
    match ZarrArray::open(scratch.path(), "a", MissingChunk::Fill) {
        Err(Error::Store { path, why, .. }) => {
            assert!(Path::new(&*path).ends_with("a"), "{path}");
            why.into()
        }
        other => panic!("{other:?}"),
    }
}

fn with(mut metadata: Value, key: &str, value: Value) -> Value {
    metadata[key] = value;
    metadata
}

fn good2() -> Value {
    v2(&[10, 4], &[5, 4], "|i1", blosc_meta())
}

fn good3() -> Value {
    v3(&[10, 4], &[5, 4], "int8", bytes())
}

#[test]
fn the_good_ones_open() {
    for metadata in [good2(), good3()] {
        Scratch::of(&metadata, &[]).filled();
    }
}

#[test]
fn absurd_sizes() {
    let huge = [1_u64 << 40, 1 << 62, 1 << 63, u64::MAX];
    for n in huge {
        for (shape, chunks) in [([n, n], [5, 4]), ([n, n], [n, n]), ([10, 4], [n, 1]), ([n, 4], [n, 4])] {
            refused(&v2(&shape, &chunks, "|i1", blosc_meta()));
            refused(&v3(&shape, &chunks, "float64", little_endian()));
        }
    }
    refused(&v2(&[1_000_000_000_000; 2], &[1000, 1000], "|i1", blosc_meta()));
    // The sizes are refused even if the array has no elements.
    refused(&v2(&[0, 1 << 40, 1 << 40], &[1, 1, 1], "|i1", blosc_meta()));
    refused(&v2(&[1; 65], &[1; 65], "|i1", blosc_meta()));
    refused(&v2(&[3 << 30], &[3 << 30], "|i1", blosc_meta()));
    assert!(refused(&v2(&[1 << 40], &[1 << 31], "<f8", Value::Null)).contains("17179869184 bytes"));
    // A huge array in small chunks is accepted.
    Scratch::of(&v2(&[1 << 40, 4], &[5, 4], "|i1", blosc_meta()), &[]).filled();
}

#[test]
fn chunks_at_the_cap_open_and_fill_is_refused_or_given() {
    let scratch = Scratch::of(&v2(&[2 << 30], &[2 << 30], "|i1", Value::Null), &[("0", vec![0; 16])]);
    assert_refused(scratch.filled().read_chunk(&[0]), &["it has 16 bytes, expected 2147483648"]);
}

#[test]
fn broken_shapes_and_chunks() {
    for metadata in [good2(), good3()] {
        for value in
            [json!("x"), json!([-1, 4]), json!([1.5, 4]), json!([10]), json!(null), json!([10, 4, 2])]
        {
            refused(&with(metadata.clone(), "shape", value));
        }
    }
    for chunks in [json!([0, 4]), json!([5]), json!([5, -4]), json!([5, 4, 1]), json!(null), json!("x")] {
        refused(&with(good2(), "chunks", chunks.clone()));
        let grid = json!({ "name": "regular", "configuration": { "chunk_shape": chunks } });
        refused(&with(good3(), "chunk_grid", grid));
    }
    let grid = json!({ "name": "rectilinear", "configuration": { "chunk_shapes": [[5, 5], [4]] } });
    assert!(refused(&with(good3(), "chunk_grid", grid)).contains("rectilinear"));
}

#[test]
fn unsupported_codecs_are_named() {
    for id in ["bytes", "categorize", "nonsense"] {
        let why = refused(&v2(&[10, 4], &[5, 4], "|i1", json!({ "id": id })));
        assert!(why.contains(&format!("`{id}`")) && why.contains("blosc, zstd, gzip"), "{why}");
        let why = refused(&with(good2(), "filters", json!([{ "id": id }])));
        assert!(why.contains(&format!("`{id}`")), "{why}");
    }
    for name in ["lz4", "zfp", "packbits", "nonsense", "numcodecs.nonsense"] {
        for codecs in [json!([{ "name": "bytes" }, name]), json!([name, { "name": "bytes" }]), json!([name])]
        {
            let why = refused(&with(good3(), "codecs", codecs));
            assert!(why.contains(&format!("`{name}`")) && why.contains("supported"), "{why}");
        }
    }
}

#[test]
fn impossible_chains() {
    let bytes = || json!({ "name": "bytes" });
    let order = |order: Value| json!([{ "name": "transpose", "configuration": { "order": order } }, bytes()]);
    let shard = |inner: Value| {
        let mut codecs = in_shards(&[], json!([bytes()]), little_endian());
        codecs[0]["configuration"]["chunk_shape"] = inner;
        codecs
    };
    let cases = [
        json!([]),
        json!(null),
        json!([zstd_codec()]),
        json!([zstd_codec(), bytes()]),
        json!([bytes(), bytes()]),
        json!([{ "name": "vlen-utf8" }]),
        order(json!([0, 0])),
        order(json!([0, 2])),
        order(json!([0])),
        order(json!([1, 0, 2])),
        order(json!("F")),
        shard(json!([0, 4])),
        shard(json!([3, 4])),
        shard(json!([5])),
        shard(json!([10, 4])),
        shard(json!([-1, 4])),
    ];
    for codecs in cases {
        refused(&with(good3(), "codecs", codecs));
    }
    let mut nested = shard(json!([5, 2]));
    nested[0]["configuration"]["codecs"] = shard(json!([5, 1]));
    refused(&with(good3(), "codecs", nested));
    let mut packed_index = shard(json!([5, 2]));
    packed_index[0]["configuration"]["index_codecs"] = json!([bytes(), zstd_codec()]);
    refused(&with(good3(), "codecs", packed_index));
    // 2^28 inner chunks, for which the index would take 4 GiB.
    let many = v3(&[1 << 28, 1], &[1 << 28, 1], "int8", shard(json!([1, 1])));
    assert!(refused(&many).contains("inner chunks"));
}

#[test]
fn unsupported_types_are_named() {
    for dtype in
        ["<M8[ns]", "<c8", "|V4", "nonsense", "", "é", "<U999999999999", "|S99999999999", "|Sx", "|S0"]
    {
        refused(&v2(&[10, 4], &[5, 4], dtype, blosc_meta()));
    }
    refused(&with(good2(), "dtype", json!([["a", "<i4"], ["b", "<f4"]])));
    refused(&with(good2(), "dtype", json!([["a", "|V99999999999"]])));
    refused(&with(good2(), "dtype", format!("|V{}", "9".repeat(1000)).into()));
    for dtype in ["complex64", "int4", "bfloat16", "nonsense", "r8"] {
        let why = refused(&with(good3(), "data_type", dtype.into()));
        assert!(why.contains(dtype), "{why}");
    }
    for bytes in [json!(u64::MAX), json!(0), json!(-1), json!(1_u64 << 40), json!("x")] {
        let dtype = json!({ "name": "null_terminated_bytes", "configuration": { "length_bytes": bytes } });
        refused(&with(good3(), "data_type", dtype));
        let dtype = json!({ "name": "fixed_length_utf32", "configuration": { "length_bytes": bytes } });
        refused(&with(with(good3(), "data_type", dtype), "fill_value", "".into()));
    }
}

#[test]
fn other_broken_members() {
    refused(&with(good2(), "order", "Z".into()));
    refused(&with(good2(), "dimension_separator", "!".into()));
    refused(&with(good2(), "fill_value", json!({ "a": 1 })));
    refused(&with(good2(), "zarr_format", 4.into()));
    refused(&with(good3(), "fill_value", 1000.into()));
    refused(&with(good3(), "storage_transformers", json!([{ "name": "x" }])));
    refused(&with(good3(), "chunk_key_encoding", json!({ "name": "x" })));
    refused(&with(good3(), "must_know_this", json!({ "name": "x" })));
}

#[test]
fn not_json_and_not_there() {
    let deep = "[".repeat(100_000);
    for name in [".zarray", "zarr.json"] {
        for text in ["", "{", "[]", "null", "1e999", "\u{0}", &deep] {
            let scratch = Scratch::new();
            scratch.put(&format!("a/{name}"), text);
            let error = ZarrArray::open(scratch.path(), "a", MissingChunk::Error).unwrap_err();
            assert!(matches!(error, Error::Store { .. }), "{error}");
        }
        let scratch = Scratch::new();
        scratch.put(&format!("a/{name}"), " ".repeat((16 << 20) + 1));
        assert_refused(ZarrArray::open(scratch.path(), "a", MissingChunk::Error), &["more than"]);
    }
    let scratch = Scratch::new();
    scratch.put("g/.zgroup", r#"{"zarr_format":2}"#);
    scratch.put("h/zarr.json", r#"{"zarr_format":3,"node_type":"group"}"#);
    scratch.put("f", "x");
    scratch.put("sparse/.zgroup", r#"{"zarr_format":2}"#);
    scratch.put("sparse/.zattrs", r#"{"encoding-type":"csr_matrix"}"#);
    scratch.put("lost/.zattrs", "{}");
    let (metadata, chunk) = text(&["a", "b"]);
    scratch.array("names", &metadata, &[("0", chunk)]);
    for n in 0..10 {
        scratch.put(&format!("h/a{n}/.zarray"), "{}");
        scratch.put(&format!("h/g{n}/.zgroup"), "{}");
    }
    for (path, why) in [
        ("nothing", "no such array"),
        ("g", "g: is a group, not an array"),
        (
            "h",
            "is a group, not an array; name one of those in it: `a0`, `a1`, `a2`, `a3`, `a4`, `a5`, `a6`, `a7`, ...",
        ),
        ("f", "no such array"),
        ("sparse", "a sparse matrix (csr_matrix)"),
        ("lost", "is a group"),
        ("names", "strings"),
        ("../x", "not a path within"),
        ("g/./x", "not a path within"),
    ] {
        let error = ZarrArray::open(scratch.path(), path, MissingChunk::Error).unwrap_err().to_string();
        assert!(error.contains(why), "{path}: {error}");
    }
}

/// Tests fill values in the forms that zarr-python, tensorstore and other programs write; an invalid one is reported with its type.
#[test]
fn fill_values_of_other_kinds() {
    for (dtype, name, fill, bytes) in [
        ("|u1", "uint8", json!(7.0), vec![7]),
        ("|u1", "uint8", json!("7"), vec![7]),
        ("<i2", "int16", json!(-3.0), (-3i16).to_ne_bytes().to_vec()),
        ("|b1", "bool", json!(1), vec![1]),
        ("|b1", "bool", json!(0.0), vec![0]),
        ("<f4", "float32", json!(2), 2f32.to_ne_bytes().to_vec()),
        ("<f4", "float32", json!("2.5"), 2.5f32.to_ne_bytes().to_vec()),
        ("<f4", "float32", json!("-Infinity"), f32::NEG_INFINITY.to_ne_bytes().to_vec()),
        ("<i8", "int64", json!(i64::MIN), i64::MIN.to_ne_bytes().to_vec()),
        ("<u8", "uint64", json!(u64::MAX), u64::MAX.to_ne_bytes().to_vec()),
    ] {
        for metadata in [v2(&[1], &[1], dtype, Value::Null), v3(&[1], &[1], name, little_endian())] {
            let scratch = Scratch::of(&with(metadata, "fill_value", fill.clone()), &[]);
            assert_eq!(scratch.filled().read_chunk(&[0]).unwrap().bytes, bytes, "{name} {fill}");
        }
    }
    for fill in [json!(0.5), json!(1000), json!("NaN"), json!("x"), json!(1e300)] {
        let why = refused(&with(good2(), "fill_value", fill.clone()));
        assert!(why.contains(&format!("its fill value {fill} ")) && why.contains("|i1"), "{why}");
        let why = refused(&with(good3(), "fill_value", fill.clone()));
        assert!(why.contains(&format!("its fill value {fill} ")) && why.contains("int8"), "{why}");
    }
}

/// Reads the numbers that Python writes although JSON lacks them, except within strings; and a byte order mark.
#[test]
fn pythons_json() {
    let scratch = Scratch::new();
    let text = r#"{ "a": NaN, "b": [-Infinity, Infinity, "NaN \" NaN, \\"], "Infinity": -1 }"#;
    scratch.put("x.json", text);
    scratch.put("bom.json", format!("\u{feff}{text}"));
    let folder = Folder::new(scratch.path());
    let right = json!({ "a": "NaN", "b": ["-Infinity", "Infinity", "NaN \" NaN, \\"], "Infinity": -1 });
    for name in ["x.json", "bom.json"] {
        assert_eq!(read_json(&folder, name).unwrap().unwrap(), right);
    }
    for text in ["NaNa", "{ \"a\": Nan }", "[Infinity", "\u{feff}\u{feff}1"] {
        scratch.put("bad.json", text);
        assert!(read_json(&folder, "bad.json").unwrap_err().to_string().contains("not valid JSON"), "{text}");
    }
    scratch.array("a", &v2(&[1], &[1], "<f4", Value::Null), &[]);
    scratch.put("a/.zattrs", r#"{ "missing_value": NaN, "valid_range": [0, Infinity] }"#);
    assert!(scratch.filled().missing_value().is_some_and(f64::is_nan));
}

/// Attributes that change values in ways that are not supported are refused by name.
#[test]
fn unsupported_attributes_are_named() {
    for (attributes, name) in [
        (json!({ "scale_factor": 0.5 }), "scale_factor"),
        (json!({ "scale_factor": "1/2" }), "scale_factor"),
        (json!({ "add_offset": -1 }), "add_offset"),
        (json!({ "_Unsigned": "true" }), "_Unsigned"),
        (json!({ "_FillValue": "none" }), "_FillValue"),
        (json!({ "_FillValue": [1, 2] }), "_FillValue"),
        (json!({ "_FillValue": 3, "missing_value": 4 }), "missing_value"),
    ] {
        let scratch = Scratch::of(&good2(), &[]);
        scratch.put("a/.zattrs", attributes.to_string());
        for why in [why(&scratch), refused(&with(good3(), "attributes", attributes))] {
            assert!(why.contains(&format!("`{name}`")), "{why}");
        }
    }
}

/// Metadata with changed bytes is either an error or opens an array whose chunks can be read without a panic.
#[test]
fn flipped_metadata() {
    let shards = in_shards(&[2, 3], json!([{ "name": "bytes" }, "crc32c"]), index_codecs(true));
    let cases = [
        (good2(), "0.0"),
        (good3(), "c/0/0"),
        (v3(&[8, 12], &[4, 6], "int8", shards), "c/0/0"),
        (with(v2(&[3], &[3], "|S4", Value::Null), "fill_value", "".into()), "0"),
    ];
    for (case, (metadata, key)) in cases.iter().enumerate() {
        let scratch = Scratch::of(metadata, &[(key, vec![0; 20])]);
        let name = if metadata["zarr_format"] == 3 { "a/zarr.json" } else { "a/.zarray" };
        let good = metadata.to_string().into_bytes();
        let mut numbers = Numbers(77 + case as u64);
        for _ in 0..1500 {
            let mut bytes = good.clone();
            let at = numbers.below(bytes.len());
            // Digits and brackets find more faults than random bytes do.
            bytes[at] = b"0123456789-,[]{}\"e."[numbers.below(19)];
            scratch.put(name, &bytes);
            if let Ok(array) = scratch.open("a") {
                let index = vec![0; array.metadata.shape.len()];
                array.fetch(&index, None).and_then(|fetched| array.decode(fetched, false)).ok();
            }
        }
    }
}
