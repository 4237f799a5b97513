//! Tests of what `teatime blur` computes from arrays and images, and of the metadata that results keep.

use std::{fs, path::PathBuf, sync::Arc};

use serde_json::json;
use teatime::{
    ChunkedArray, StoredType,
    openings::elements,
    store::{NpyArray, write_npy},
};
use teatime_image::Multiscale;

use crate::support::{Scratch, assert_has, copy, empty_array, fixture};

/// Blurs in f32 and returns the bytes of the output file.
fn blurred(scratch: &Scratch, words: &str) -> Vec<u8> {
    let (input, more) = words.split_once(' ').unwrap();
    scratch.ok(&format!("blur {input} blurred.npy --overwrite --dtype f32 {more}"));
    scratch.bytes("blurred.npy")
}

/// Each option takes effect: the result for an image that numpy wrote equals scipy's Gaussian of the same image.
#[test]
fn as_scipy_has_it() {
    let scratch = Scratch::new();
    let doubles = |path: PathBuf| elements::<f64>(Arc::new(NpyArray::open(path).unwrap()));
    let expected = doubles(fixture("filter/blur_scipy.npy"));
    let words = "--sigma 1.5,0.7 --channel-axis 2 --mode nearest,wrap --dtype f64";
    let page = scratch.ok(&format!("blur @filter/blur.npy soft.npy {words}"));
    assert_has(&page.out, &["23 x 31 x 3 of u16", "soft.run.json, soft.npy"]);
    let found = doubles(scratch.join("soft.npy"));
    assert!(found.len() == 23 * 31 * 3 && found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-10));
    let npy = scratch.bytes("soft.npy");
    let words = "--sigma 1.5,0.7 --mode nearest,wrap --dtype f64 --overwrite";
    // Axes are counted from the end.
    for last in ["--channel-axis -1", "--channel-axis=-1", "--axes -3,-2"] {
        scratch.ok(&format!("blur @filter/blur.npy soft.npy {last} {words}"));
        assert!(scratch.bytes("soft.npy") == npy, "{last}");
    }
    let words = format!("--channel-axis 2 --chunks 5,7,3 --shards 10,14,3 {words}");
    let record = scratch.record(&format!("blur @filter/blur.npy soft.zarr {words}"));
    assert_eq!(record["files"], json!(["soft.run.json", "soft.zarr"]));
    assert_eq!((&record["boxes"]["filtered"], &record["boxes"]["times_decoded"]), (&1.into(), &1.0.into()));
    // The .npy file is gone, since it belonged to the replaced run.
    assert_eq!(scratch.names(), ["soft.run.json", "soft.zarr"]);
    scratch.ok("blur soft.zarr again.npy --sigma 0");
    assert!(scratch.bytes("again.npy") == npy);
}

/// An image that another program wrote stays an image of that version, with its axes and scales.
#[test]
fn images() {
    let scratch = Scratch::new();
    for name in ["ome_0.4.zarr", "ome_0.5.zarr"] {
        scratch.ok(&format!("blur @{name} {name} --sigma 1 --pyramid --dtype f32"));
        let [source, image] = [fixture(name), scratch.join(name)].map(|path| Multiscale::open(path).unwrap());
        assert_eq!((image.axes(), image.version()), (source.axes(), source.version()), "{name}");
        assert_eq!(&image.levels()[0].scale, &source.levels()[0].scale);
    }
}

/// Filters a smaller level, with its own scale and translation; sigma is in the pixels of that level. The time axis is not filtered, whatever
/// channel axis is named.
#[test]
fn a_level() {
    let scratch = Scratch::new();
    scratch.ok("blur @ome_0.5.zarr level.zarr --sigma 0.7 --level 1 --dtype f32");
    let [source, image] =
        [fixture("ome_0.5.zarr"), scratch.join("level.zarr")].map(|path| Multiscale::open(path).unwrap());
    let (level, expected) = (&image.levels()[0], &source.levels()[1]);
    assert_eq!((&level.scale, &level.translation), (&expected.scale, &expected.translation));
    let plain = blurred(&scratch, &format!("@ome_0.5.zarr/{} --sigma 0.7 --axes 2,3,4", expected.path));
    assert!(blurred(&scratch, "level.zarr/0 --sigma 0") == plain);
    let lengths = expected.scale[2..].iter().map(|scale| (0.7 * scale).to_string()).collect::<Vec<_>>();
    let physical = format!("@ome_0.5.zarr --level 1 --physical --sigma {}", lengths.join(","));
    assert!(blurred(&scratch, &physical) == plain);
    let planes = blurred(&scratch, "@ome_0.5.zarr --level 1 --sigma 0.7 --channel-axis 2");
    assert!(planes == blurred(&scratch, "@ome_0.5.zarr --level 1 --sigma 0.7 --axes 3,4") && planes != plain);
}

/// A missing chunk holds the fill value, unless an option declares it damage.
#[test]
fn missing_chunks() {
    let scratch = Scratch::new();
    scratch.ok("blur @filter/blur.npy array.zarr --sigma 0 --chunks 23,31,1");
    fs::remove_file(scratch.join("array.zarr/c/0/0/1")).unwrap();
    copy(&fixture("ome_0.5.zarr"), &scratch.join("image.zarr"));
    let level = Multiscale::open(scratch.join("image.zarr")).unwrap().levels()[0].path.clone();
    fs::remove_dir_all(scratch.join("image.zarr").join(level).join("c/1")).unwrap();
    for words in ["array.zarr --sigma 0.7 --axes 0,1", "image.zarr --sigma 0.7 --axes 2,3,4"] {
        assert!(blurred(&scratch, words) == blurred(&scratch, &format!("{words} --missing-chunk fill")));
        let (input, more) = words.split_once(' ').unwrap();
        let said = ["unless --missing-chunk fill is given", "it is missing from the store"];
        scratch.refused(&format!("blur {input} x.npy {more} --missing-chunk error"), 1, &said);
    }
}

/// The result keeps the version of Zarr, the names of axes and the attributes, except those that change the meaning of elements.
#[test]
fn kept() {
    let scratch = Scratch::new();
    empty_array(&scratch.join("in.zarr"), "<f4", &[6, 8], &[3, 4]);
    scratch.write("in.zarr/0.0", [0; 48]);
    let attributes = json!({
        "_ARRAY_DIMENSIONS": ["y", "x"], "long_name": "heights", "_FillValue": -1.0, "teatime": { "job": "1" },
    });
    scratch.write("in.zarr/.zattrs", attributes.to_string());
    for (words, metadata, version) in [
        ("in.zarr v2.zarr", "v2.zarr/.zattrs", 2),
        ("in.zarr v3.zarr --shards 6,8", "v3.zarr/zarr.json", 3),
        ("v3.zarr again.zarr", "again.zarr/zarr.json", 3),
    ] {
        scratch.ok(&format!("blur {words} --sigma 1"));
        let array = scratch.array(metadata.split('/').next().unwrap(), "");
        // In the result, NaN stands for a missing value.
        assert_eq!((array.missing_value(), array.dimension_names().join(" ")), (None, "y x".into()));
        let metadata = scratch.json(metadata);
        let attributes = if version == 3 { &metadata["attributes"] } else { &metadata };
        let found = [&attributes["long_name"], &attributes["teatime"]["status"]];
        assert_eq!(found, [&json!("heights"), &json!("complete")]);
    }
    assert_eq!(scratch.json("v2.zarr/.zarray")["zarr_format"], 2);
}

/// Values that the attributes declare missing are counted once, whatever the boxes are; an integer output refuses them.
#[test]
fn missing_values_are_counted() {
    let scratch = Scratch::new();
    let values: [i16; 12] = [0, 1, 2, 3, 4, 5, 6, -9999, 8, 9, 10, 11];
    let put = |name: &str, dtype: &str, of: &dyn Fn(&i16) -> Vec<u8>| {
        empty_array(&scratch.join(name), dtype, &[12], &[6]);
        scratch.write(&format!("{name}/.zattrs"), r#"{ "missing_value": -9999, "units": "K" }"#);
        for (i, half) in values.chunks(6).enumerate() {
            scratch.write(&format!("{name}/{i}"), half.iter().flat_map(of).collect::<Vec<_>>());
        }
    };
    put("floats.zarr", "<f4", &|x| f32::from(*x).to_le_bytes().to_vec());
    put("integers.zarr", "<i2", &|x| x.to_le_bytes().to_vec());
    let ran = scratch.ok("blur floats.zarr out.zarr --sigma 1 --radius 1 --chunks 2");
    assert_has(&ran.err, &["1 element is missing, being -9999"]);
    let record = scratch.json("out.run.json");
    assert_eq!((&record["input"]["missing"], &record["input"]["absent_chunks"]), (&1.into(), &0.into()));
    assert_eq!(record["warnings"].as_array().unwrap().len(), 1);
    // NaN stands for missing values in the result, where any finite number may be a value.
    let attributes = scratch.json("out.zarr/.zattrs");
    assert_eq!((attributes.get("missing_value"), &attributes["units"]), (None, &"K".into()));
    scratch.refused("blur integers.zarr no.npy --sigma 1", 1, &["-9999", "--dtype f32"]);
}

/// Missing chunks are counted; an array without any chunk is refused.
#[test]
fn chunks_that_are_not_there() {
    let scratch = Scratch::new();
    empty_array(&scratch.join("in.zarr"), "|u1", &[4, 4], &[2, 2]);
    scratch.refused("blur in.zarr out.npy --sigma 1", 1, &["any of the 4 chunks"]);
    fs::create_dir(scratch.join("in.zarr/1")).unwrap();
    scratch.write("in.zarr/1/0", [9; 4]);
    let record = scratch.record("blur in.zarr out.npy --sigma 0");
    assert_eq!(record["input"]["absent_chunks"], 3);
    assert_has(record["warnings"][0].as_str().unwrap(), &["the other separator"]);
    assert_eq!(scratch.bytes("out.npy")[128..].iter().filter(|byte| **byte == 9).count(), 4);
}

/// A sharded input gives a sharded result unless other chunks are requested.
#[test]
fn shards_stay() {
    let scratch = Scratch::new();
    let values: Vec<f64> = (0..120).map(|i| f64::from(i % 7)).collect();
    write_npy(scratch.join("plain.npy"), &values, [12, 10]).unwrap();
    scratch.ok("blur plain.npy sharded.zarr --sigma 0 --chunks 2,4 --shards 8,8");
    for (words, chunk, shard) in [
        ("same.zarr", [2, 4], Some(vec![8, 8])),
        ("other.zarr --chunks 3,3", [3, 3], None),
        ("longer.zarr --shards 4,8", [2, 4], Some(vec![4, 8])),
    ] {
        scratch.ok(&format!("blur sharded.zarr {words} --sigma 1"));
        let array = scratch.array(words.split(' ').next().unwrap(), "");
        assert_eq!((array.chunk_shape(), array.shard_shape()), (&chunk[..], shard), "{words}");
    }
}

/// A derivative of bytes may be negative, which bytes cannot hold.
#[test]
fn derivatives_of_unsigned_integers_keep_their_sign() {
    let scratch = Scratch::new();
    write_npy(scratch.join("ramp.npy"), &[200u8, 160, 120, 80], [1, 4]).unwrap();
    scratch.ok("blur ramp.npy slope.npy --sigma 1 --order 0,1");
    assert_eq!(NpyArray::open(scratch.join("slope.npy")).unwrap().dtype(), StoredType::F32);
}
