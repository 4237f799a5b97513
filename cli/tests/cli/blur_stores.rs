//! Tests of what `teatime blur` makes of stores: levels, axes, chunks that are not there, attributes; and of results that are there.

use std::{
    fs,
    path::{Path, PathBuf},
};

use teatime::{
    ChunkedArray, MissingChunk,
    store::{NpyArray, ZarrArray, write_npy},
};
use teatime_image::Multiscale;

use crate::{
    blur::{blur, fixture},
    support::{Scratch, copy, empty_array, json, names},
};

/// An image of time, channels and space, in two levels.
fn cells() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/tests/fixtures/ome_0.5.zarr")
}

/// The elements of a blur of an array, as a .npy file has them.
fn blurred(scratch: &Scratch, input: &Path, more: &[&str]) -> Vec<u8> {
    let out = scratch.join("blurred.npy");
    blur(input, &out, &[&["--overwrite", "--dtype", "f32"], more].concat()).ok();
    fs::read(out).unwrap()
}

/// Another level than that of full size, with its scale and translation; sigma in its pixels.
#[test]
fn a_level() {
    let scratch = Scratch::new();
    let (source, out) = (Multiscale::open(cells()).unwrap(), scratch.join("level.zarr"));
    blur(&cells(), &out, &["--sigma", "0.7", "--level", "1", "--dtype", "f32"]).ok();
    let image = Multiscale::open(&out).unwrap();
    let (level, expected) = (&image.levels()[0], &source.levels()[1]);
    assert_eq!((&level.scale, &level.translation), (&expected.scale, &expected.translation));
    let array = cells().join(&expected.path);
    let plain = blurred(&scratch, &array, &["--sigma", "0.7", "--axes", "2,3,4"]);
    assert!(blurred(&scratch, &out.join("0"), &["--sigma", "0"]) == plain);
    let lengths = expected.scale[2..].iter().map(|scale| (0.7 * scale).to_string()).collect::<Vec<_>>();
    let physical = ["--level", "1", "--physical", "--sigma", &lengths.join(",")];
    assert!(blurred(&scratch, &cells(), &physical) == plain);
    let ran = blur(&cells(), &scratch.join("x.zarr"), &["--sigma", "1", "--level", "2"]);
    assert!(ran.code == 1 && ran.err.contains("2 levels"), "{}", ran.err);
}

/// The time axis of an image is left alone, too, whatever axis is named.
#[test]
fn channels_of_an_image() {
    let scratch = Scratch::new();
    let of = |more: &[&str]| blurred(&scratch, &cells(), &[&["--sigma", "0.7"], more].concat());
    let space = of(&[]);
    assert!(of(&["--channel-axis", "1"]) == space);
    let planes = of(&["--channel-axis", "2"]);
    assert!(planes == of(&["--axes", "3,4"]) && planes != space);
}

/// A chunk that is not there holds the fill value, unless that is said to be damage.
#[test]
fn missing_chunks() {
    let scratch = Scratch::new();
    let (image, array) = (scratch.join("image.zarr"), scratch.join("array.zarr"));
    let all = fixture("blur.npy");
    blur(&all, &array, &["--sigma", "0", "--chunks", "23,31,1"]).ok();
    fs::remove_file(array.join("c/0/0/1")).unwrap();
    copy(&cells(), &image);
    let level = image.join(&Multiscale::open(&image).unwrap().levels()[0].path);
    fs::remove_dir_all(level.join("c/1")).unwrap();
    for (input, axes) in [(&array, "0,1"), (&image, "2,3,4")] {
        let words = ["--sigma", "0.7", "--axes", axes];
        let some = blurred(&scratch, input, &words);
        assert!(some == blurred(&scratch, input, &[&words[..], &["--missing-chunk", "fill"]].concat()));
        let out = scratch.join("x.npy");
        let ran = blur(input, &out, &[&words[..], &["--missing-chunk", "error"]].concat());
        assert!(ran.code == 1 && ran.err.contains("unless --missing-chunk fill is given"), "{}", ran.err);
        assert!(ran.err.contains("it is missing from the store") && !out.exists(), "{}", ran.err);
    }
    // Zeros stay zeros, and what is beside them along an axis that is left alone is as it was.
    let out = scratch.join("blurred.npy");
    let [some, every] = [&array, &all].map(|input| {
        blurred(&scratch, input, &["--sigma", "0.7", "--channel-axis", "2"]);
        let bytes = NpyArray::open(&out).unwrap().read_chunk(&[0, 0, 0]).unwrap().bytes;
        bytes.chunks(4).map(|x| f32::from_le_bytes(x.try_into().unwrap())).collect::<Vec<_>>()
    });
    for (i, (some, every)) in some.iter().zip(&every).enumerate() {
        assert!(if i % 3 == 1 { *some == 0.0 } else { some == every }, "{i}: {some} {every}");
    }
}

/// The version of Zarr, names of axes and attributes, but those that would change what numbers mean.
#[test]
fn kept() {
    let scratch = Scratch::new();
    let input = scratch.join("in.zarr");
    empty_array(&input, "<f4", &[6, 8], &[3, 4]);
    fs::write(input.join("0.0"), [0; 48]).unwrap();
    let attributes = serde_json::json!({
        "_ARRAY_DIMENSIONS": ["y", "x"], "long_name": "heights", "_FillValue": -1.0, "teatime": { "job": "1" },
    });
    fs::write(input.join(".zattrs"), attributes.to_string()).unwrap();
    let of = |name: &str| -> serde_json::Value { json(&fs::read_to_string(scratch.join(name)).unwrap()) };
    let names = |name: &str| {
        let array = ZarrArray::open(scratch.join(name), "", MissingChunk::Error).unwrap();
        // A missing value of a result is NaN.
        assert_eq!(array.missing_value(), None);
        array.dimension_names().to_vec()
    };
    blur(&input, &scratch.join("v2.zarr"), &["--sigma", "1"]).ok();
    let attributes = of("v2.zarr/.zattrs");
    assert_eq!(
        (&attributes["long_name"], &of("v2.zarr/.zarray")["zarr_format"]),
        (&"heights".into(), &2.into())
    );
    assert_eq!(
        (names("v2.zarr"), &attributes["teatime"]["status"]),
        (vec!["y".into(), "x".into()], &"complete".into())
    );
    for (name, from) in [("v3.zarr", "in.zarr"), ("again.zarr", "v3.zarr")] {
        let shards = (name == "v3.zarr").then_some(["--shards", "6,8"]);
        let words: Vec<&str> = ["--sigma", "1"].into_iter().chain(shards.into_iter().flatten()).collect();
        blur(&scratch.join(from), &scratch.join(name), &words).ok();
        let metadata = of(&format!("{name}/zarr.json"));
        assert_eq!(
            (&metadata["attributes"]["long_name"], names(name)),
            (&"heights".into(), vec!["y".into(), "x".into()])
        );
    }
}

/// Without `--overwrite` what is there stays as it is, be it a result or not.
#[test]
fn there_already() {
    let scratch = Scratch::new();
    let image = fixture("blur.npy");
    for (name, other) in [("a.npy", "a.zarr"), ("b.zarr", "b.npy")] {
        let (out, stem) = (scratch.join(name), &name[..1]);
        blur(&image, &out, &["--sigma", "1"]).ok();
        let before = names(&scratch.join("."));
        for name in [name, other] {
            let ran = blur(&image, &scratch.join(name), &["--sigma", "2"]);
            let words = format!("holds results ({stem}.run.json); --overwrite replaces them");
            assert!(ran.code == 1 && ran.err.contains(&words), "{}", ran.err);
        }
        assert_eq!(names(&scratch.join(".")), before);
    }
    let mine = scratch.join("mine.npy");
    write_npy(&mine, &[1u8], [1, 1]).unwrap();
    let bytes = fs::read(&mine).unwrap();
    for more in [&[][..], &["--overwrite"]] {
        let ran = blur(&image, &mine, &[&["--sigma", "1"], more].concat());
        let words = "holds mine.npy, which no mine.run.json of `teatime blur` lists";
        assert!(ran.code == 1 && ran.err.contains(words), "{}", ran.err);
    }
    assert!(fs::read(&mine).unwrap() == bytes);
}

/// Values that are missing by the attributes spread as NaN and are counted, once, whatever the boxes are; integers refuse them.
#[test]
fn missing_values_spread_as_nan() {
    let scratch = Scratch::new();
    let values: [i16; 12] = [0, 1, 2, 3, 4, 5, 6, -9999, 8, 9, 10, 11];
    let bytes = |values: &[i16]| values.iter().flat_map(|x| f32::from(*x).to_le_bytes()).collect::<Vec<_>>();
    let put = |name: &str, dtype: &str, chunks: [Vec<u8>; 2]| {
        let input = scratch.join(name);
        empty_array(&input, dtype, &[12], &[6]);
        fs::write(input.join(".zattrs"), r#"{ "missing_value": -9999, "units": "K" }"#).unwrap();
        chunks.iter().enumerate().for_each(|(i, chunk)| fs::write(input.join(i.to_string()), chunk).unwrap());
        input
    };
    let floats = put("floats.zarr", "<f4", [bytes(&values[..6]), bytes(&values[6..])]);
    let out = scratch.join("out.zarr");
    let ran = blur(&floats, &out, &["--sigma", "1", "--radius", "1", "--chunks", "2"]).ok();
    assert!(ran.err.contains("1 element is missing, being -9999"), "{}", ran.err);
    let record = json(&fs::read_to_string(scratch.join("out.run.json")).unwrap());
    assert_eq!((&record["input"]["missing"], &record["input"]["absent_chunks"]), (&1.into(), &0.into()));
    assert_eq!(record["warnings"].as_array().unwrap().len(), 1);
    let array = ZarrArray::open(&out, "", MissingChunk::Error).unwrap();
    let found: Vec<f32> = (0..6)
        .flat_map(|i| array.read_chunk(&[i]).unwrap().bytes)
        .collect::<Vec<u8>>()
        .chunks(4)
        .map(|x| f32::from_le_bytes(x.try_into().unwrap()))
        .collect();
    // Within a line of slope 1, that of scipy with `reflect` elsewhere.
    for (i, found) in found.iter().enumerate() {
        let right = if (1..11).contains(&i) { i as f32 } else { *found };
        assert!(
            if (6..9).contains(&i) { found.is_nan() } else { (found - right).abs() < 1e-5 },
            "{i}: {found}"
        );
    }
    let attributes = json(&fs::read_to_string(out.join(".zattrs")).unwrap());
    // NaN is missing in the result, where any number may be a value.
    assert_eq!((attributes.get("missing_value"), &attributes["units"]), (None, &"K".into()));

    let whole = |values: &[i16]| values.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<_>>();
    let integers = put("integers.zarr", "<i2", [whole(&values[..6]), whole(&values[6..])]);
    let ran = blur(&integers, &scratch.join("no.npy"), &["--sigma", "1"]);
    assert!(ran.code == 1 && ran.err.contains("-9999") && ran.err.contains("--dtype f32"), "{}", ran.err);
    let more = ["--sigma", "1", "--radius", "1", "--dtype", "f32"];
    let [one, other] = [&floats, &integers].map(|input| {
        let out = scratch.join("one.npy");
        blur(input, &out, &[&more[..], &["--overwrite"]].concat()).ok();
        fs::read(out).unwrap()
    });
    assert!(one == other);
}

/// Chunks that are not there are counted; where none is, that is no array.
#[test]
fn chunks_that_are_not_there() {
    let scratch = Scratch::new();
    let input = scratch.join("in.zarr");
    empty_array(&input, "|u1", &[4, 4], &[2, 2]);
    let ran = blur(&input, &scratch.join("out.npy"), &["--sigma", "1"]);
    assert!(ran.code == 1 && ran.err.contains("any of the 4 chunks"), "{}", ran.err);
    assert_eq!(scratch.names(), ["in.zarr"]);
    fs::create_dir(input.join("1")).unwrap();
    fs::write(input.join("1/0"), [9; 4]).unwrap();
    let ran = blur(&input, &scratch.join("out.npy"), &["--sigma", "0", "--json"]).ok();
    let record = json(&ran.out);
    assert_eq!(record["input"]["absent_chunks"], 3);
    assert!(record["warnings"][0].as_str().unwrap().contains("the other separator"), "{record}");
    let bytes = NpyArray::open(scratch.join("out.npy")).unwrap().read_chunk(&[0, 0]).unwrap().bytes;
    assert_eq!(bytes.iter().filter(|byte| **byte == 9).count(), 4);
}

/// Shards stay shards, unless other chunks are asked for; where memory does not hold one, that is said.
#[test]
fn shards_stay() {
    let scratch = Scratch::new();
    let plain = scratch.join("plain.npy");
    let values: Vec<f64> = (0..120).map(|i| f64::from(i % 7)).collect();
    write_npy(&plain, &values, [12, 10]).unwrap();
    let shapes = |name: &str| {
        let array = ZarrArray::open(scratch.join(name), "", MissingChunk::Error).unwrap();
        (array.chunk_shape().to_vec(), array.inner_chunk_shape())
    };
    let sharded = scratch.join("sharded.zarr");
    blur(&plain, &sharded, &["--sigma", "0", "--chunks", "2,4", "--shards", "8,8"]).ok();
    blur(&sharded, &scratch.join("same.zarr"), &["--sigma", "1"]).ok();
    assert_eq!(shapes("same.zarr"), (vec![8, 8], Some(vec![2, 4])));
    blur(&sharded, &scratch.join("other.zarr"), &["--sigma", "1", "--chunks", "3,3"]).ok();
    assert_eq!(shapes("other.zarr"), (vec![3, 3], None));
    blur(&sharded, &scratch.join("longer.zarr"), &["--sigma", "1", "--shards", "4,8"]).ok();
    assert_eq!(shapes("longer.zarr"), (vec![4, 8], Some(vec![2, 4])));
    let ran = blur(&sharded, &scratch.join("none.zarr"), &["--sigma", "1", "--memory", "1K"]);
    assert!(ran.code == 1 && ran.err.contains("its shards are decoded whole, each of 512 B"), "{}", ran.err);
}
