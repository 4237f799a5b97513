//! Tests of images that other programs wrote, and of damaged ones.

use std::sync::Arc;

use serde_json::{Value as Json, json};
use teatime::{ChunkedArray, Error, MissingChunk, StoredType};

use super::{elements, fixture, json_of, refused, storage, values_of};
use crate::{Axis, AxisKind, Multiscale, OmeVersion};

fn open(name: &str) -> Multiscale {
    Multiscale::open(fixture(name)).unwrap()
}

fn five_axes() -> Vec<Axis> {
    let space = ["z", "y", "x"].map(|name| Axis::space(name, "micrometer"));
    [vec![Axis::time("t", "second"), Axis::channel("c")], space.to_vec()].concat()
}

/// ome-zarr wrote both versions: level 0 has consecutive numbers, and level 1 has every other number.
#[test]
fn images_of_ome_zarr() {
    for (name, version, seconds) in
        [("ome_0.4.zarr", OmeVersion::V04, 0.5), ("ome_0.5.zarr", OmeVersion::V05, 1.0)]
    {
        let image = open(name);
        assert_eq!((image.version(), image.name()), (version, Some("cells")));
        assert_eq!(image.axes(), five_axes());
        assert_eq!(image.spatial_axes(), [2, 3, 4]);
        let [whole, half] = image.levels() else { panic!("{:?}", image.levels()) };
        assert_eq!((&*whole.path, &*half.path), ("s0", "s1"));
        assert_eq!(whole.scale, [seconds, 1.0, 2.0, 0.5, 0.25]);
        assert_eq!(half.scale, [seconds, 1.0, 2.0, 1.0, 0.5]);
        assert_eq!(whole.translation, [0.0, 0.0, 0.0, 10.0, 20.0]);
        assert_eq!(half.translation, [0.0, 0.0, 0.0, 10.25, 20.125]);
        let channels = image.omero().unwrap()["channels"].as_array().unwrap();
        assert_eq!(channels[1]["label"], "membranes");

        let level = |n| image.level(n, MissingChunk::Fill).unwrap();
        assert_eq!((level(0).shape(), level(0).dtype()), (&[2, 2, 3, 8, 10][..], StoredType::U16));
        let pixels: Vec<u16> = elements(Arc::new(level(0)));
        assert!(pixels.iter().copied().eq(0..960), "{name}");
        let every_other = (0..960).filter(|n| n % 2 == 0 && n / 10 % 2 == 0);
        assert!(elements::<u16>(Arc::new(level(1))).into_iter().eq(every_other), "{name}");
    }
}

/// Images before version 0.4 have neither kinds of axes, units nor scales.
#[test]
fn images_of_early_versions() {
    for (name, version, axes) in [
        ("0.1", OmeVersion::V01, None),
        ("0.2", OmeVersion::V02, None),
        ("0.3", OmeVersion::V03, Some(["t", "c", "z", "y", "x"])),
    ] {
        let values = values_of("ome_0.4.zarr");
        let mut image = json!({ "version": name, "datasets": [{ "path": "s0" }, { "path": "s1" }] });
        if let Some(axes) = axes {
            image["axes"] = json!(axes);
        }
        values.set(".zattrs", json!({ "multiscales": [image] }).to_string());
        let image = Multiscale::open_in(&storage(&values), "").unwrap();
        assert_eq!((image.version(), image.name()), (version, None));
        let expected = five_axes().into_iter().map(|axis| Axis { unit: None, ..axis });
        assert!(image.axes().iter().cloned().eq(expected));
        let [whole, half] = image.levels() else { panic!("{:?}", image.levels()) };
        assert_eq!((&whole.scale, &half.scale), (&vec![1.0; 5], &vec![1.0, 1.0, 1.0, 2.0, 2.0]));
        assert_eq!(half.translation, [0.0; 5]);
        let level = image.level(0, MissingChunk::Fill).unwrap();
        assert!(elements::<u16>(Arc::new(level)).into_iter().eq(0..960), "{name}");

        // An image of version 0.4 does not name its axes by strings alone.
        let text = String::from_utf8(values.all()[".zattrs"].to_vec()).unwrap();
        values.set(".zattrs", text.replace(name, "0.4"));
        refused(Multiscale::open_in(&storage(&values), ""), &["multiscales[0].axes"]);
    }
    let values = values_of("ome_0.4.zarr");
    let image = json!({ "version": "0.3", "axes": ["y", "x"], "datasets": [{ "path": "s0" }] });
    values.set(".zattrs", json!({ "multiscales": [image] }).to_string());
    refused(Multiscale::open_in(&storage(&values), ""), &["s0: has 5 axes, expected the 2"]);
}

#[test]
fn images_of_bioio_and_ngff_zarr() {
    let image = open("bioio.zarr");
    assert_eq!((image.version(), image.name(), image.levels().len()), (OmeVersion::V05, Some("shards"), 2));
    assert_eq!(image.axes()[0].kind, AxisKind::Channel);
    assert_eq!(image.levels()[1].scale, [1.0, 1.0, 1.0]);
    let level = image.level(0, MissingChunk::Error).unwrap();
    assert_eq!((level.chunk_shape(), level.shard_shape()), (&[1, 4, 6][..], Some(vec![1, 8, 12])));
    assert!(elements::<u8>(Arc::new(level)).into_iter().eq(0..192));

    for (name, version) in [("ngff_0.4.zarr", OmeVersion::V04), ("ngff_0.5.zarr", OmeVersion::V05)] {
        let image = open(name);
        assert_eq!((image.version(), image.name()), (version, Some("floats")));
        assert_eq!(image.axes(), [Axis::space("y", "nanometer"), Axis::space("x", "millimeter")]);
        let whole = &image.levels()[0];
        assert_eq!([&*whole.scale, &*whole.translation], [[2.0, 3.0], [-1.0, 4.0]]);
        let pixels: Vec<f32> = elements(Arc::new(image.level(0, MissingChunk::Error).unwrap()));
        assert!(pixels.into_iter().eq((0..30u8).map(f32::from)));
    }
}

/// An image in a plate opens; for anything else, the message says what was found.
#[test]
fn what_is_no_image() {
    let plate = fixture("plate.zarr");
    let image = Multiscale::open(plate.join("A/1/0")).unwrap();
    assert!(elements::<u8>(Arc::new(image.level(0, MissingChunk::Fill).unwrap())).into_iter().eq(0..20));
    assert_eq!((image.axes()[0].unit.as_deref(), image.name()), (None, Some("/A/1/0")));

    refused(Multiscale::open(&plate), &["plate.zarr", "wells `A/1`, `A/2`", "such as `A/1/0`"]);
    refused(Multiscale::open(plate.join("A/1")), &["A/1", "a well of a plate, with the images `0`"]);
    refused(Multiscale::open(plate.join("A")), &["A/.zattrs", "has no `multiscales`"]);
    refused(Multiscale::open(plate.join("A/1/0/s0")), &["s0", "is an array, not an image"]);
    refused(Multiscale::open(plate.join("B")), &["B", "is no Zarr group"]);
    let within = fixture("ngff_0.5.zarr").join("scale0");
    refused(Multiscale::open(within), &["scale0", "`attributes.ome.multiscales`"]);

    let scratch = tempfile::tempdir().unwrap();
    std::fs::create_dir(scratch.path().join("zarr.json")).unwrap();
    let error = refused(Multiscale::open(scratch.path()), &["zarr.json"]);
    assert!(matches!(error, Error::Io { .. }), "{error}");

    let values = values_of("ome_0.4.zarr");
    let open = || Multiscale::open_in(&storage(&values), "");
    values.set(".zattrs", json!({ "bioformats2raw.layout": 3 }).to_string());
    for n in [0, 1, 10] {
        values.set(&format!("{n}/.zgroup"), "{}");
    }
    refused(open(), &["bioformats2raw", "`0`, `1`, `10`: name one"]);
    values.set("OME/.zattrs", json!({ "series": ["0", "1", 2] }).to_string());
    refused(open(), &["bioformats2raw", "`0`, `1`: name one"]);
    let labels: Vec<_> = (0..10).map(|n| format!("l{n}")).collect();
    values.set(".zattrs", json!({ "labels": labels }).to_string());
    refused(open(), &["a list of labels, `l0`", "`l7` and 2 more"]);
    values.set(".zattrs", json!({ "plate": { "wells": 3 } }).to_string());
    refused(open(), &["wells (it names none)", "such as (it names none)"]);
    values.remove(".zattrs");
    let words = ["map:.zattrs: has no `multiscales`", "an array in it can be named by itself: `s0`, `s1`"];
    refused(open(), &words);
}

/// Each damage of metadata is reported with the file, the key, the value found and what was expected.
#[test]
fn damaged_metadata() {
    let axes = "attributes.ome.multiscales[0].axes";
    let first = "attributes.ome.multiscales[0].datasets[0].coordinateTransformations";
    let whole = json!([{ "type": "scale", "scale": [1e300, 1, 1, 1, 1] },
        { "type": "translation", "translation": [0, 0, 0, 0, 0] }, 1]);
    let outside = vec!["datasets[0].path` is \"../s0\"", "a path within the image"];
    let cases: Vec<(&str, Json, Vec<&str>)> = vec![
        ("/attributes", json!(3), vec!["has no `attributes.ome.multiscales`"]),
        ("OME/version", json!("0.6"), vec!["`attributes.ome.version` is \"0.6\"", "\"0.5\""]),
        ("OME/version", json!(0.5), vec!["`attributes.ome.version` is 0.5, expected a string"]),
        ("OME/omero", json!("bright"), vec!["`attributes.ome.omero` is \"bright\", expected an object"]),
        ("OME/multiscales", json!({}), vec!["`attributes.ome.multiscales` is {}, expected a list"]),
        ("OME/multiscales", json!([]), vec!["one image: there are 0"]),
        ("OME/multiscales", json!([{ "name": "a" }, {}]), vec!["is [{\"name\":\"a\"},{}]", "there are 2"]),
        ("IMAGE/name", json!([]), vec!["multiscales[0].name` is []", "a string"]),
        ("IMAGE/axes", Json::Null, vec!["has no", axes, "a list"]),
        ("IMAGE/axes", json!(["y", "x"]), vec!["axes[0].name`", "a string"]),
        ("IMAGE/axes", json!(vec![0; 6]), vec![axes, "at most 5 axes: there are 6"]),
        ("IMAGE/axes/0/type", json!(3), vec!["axes[0].type` is 3", "a string"]),
        ("IMAGE/axes/2/type", json!("channel"), vec!["2 along channels"]),
        ("IMAGE/axes/0/type", json!("space"), vec!["4 axes go along space"]),
        ("IMAGE/axes/3/unit", json!({}), vec!["axes[3].unit` is {}"]),
        ("IMAGE/axes/3/name", json!("x"), vec!["two axes are called `x`"]),
        ("IMAGE/datasets", json!([]), vec!["datasets` is []", "at least one level"]),
        ("IMAGE/datasets/0/path", json!("../s0"), outside),
        ("IMAGE/datasets/1", json!(7), vec!["has no", "datasets[1].path", "a string"]),
        ("FIRST", Json::Null, vec!["has no", first]),
        ("FIRST", json!([]), vec![first, "a scale"]),
        ("FIRST/0/type", json!("translation"), vec![first, "\"scale\""]),
        ("FIRST/1/type", json!("affine"), vec!["\"translation\""]),
        ("FIRST/0/scale", json!([1, 2]), vec!["[0].scale` is [1,2]", "a list of 5 numbers"]),
        ("FIRST/0/scale/4", json!("2"), vec!["a list of 5 numbers"]),
        ("FIRST/0/scale/4", json!(0), vec!["numbers above 0"]),
        ("FIRST/0/scale/4", json!(-0.5), vec!["numbers above 0"]),
        ("FIRST/1/translation", json!([]), vec!["a list of 5 numbers"]),
        ("FIRST", json!([0, 0, 0]), vec![first]),
        ("IMAGE/coordinateTransformations", whole, vec!["a translation or nothing"]),
    ];
    for (pointer, value, needles) in cases {
        let values = values_of("ome_0.5.zarr");
        let mut json = json_of(&values, "zarr.json");
        let pointer = pointer
            .replace("FIRST", "IMAGE/datasets/0/coordinateTransformations")
            .replace("IMAGE", "OME/multiscales/0")
            .replace("OME", "/attributes/ome");
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        match json.pointer_mut(parent).unwrap() {
            Json::Object(parent) => drop(parent.insert(name.to_owned(), value)),
            parent => parent[name.parse::<usize>().unwrap()] = value,
        }
        values.set("zarr.json", json.to_string());
        let error = refused(Multiscale::open_in(&storage(&values), ""), &needles);
        assert!(matches!(&error, Error::Store { path, .. } if **path == *"map:zarr.json"), "{error}");
    }
    // Each scale is finite, but their product is not.
    let values = values_of("ome_0.5.zarr");
    let mut json = json_of(&values, "zarr.json");
    let image = &mut json["attributes"]["ome"]["multiscales"][0];
    image["datasets"][1]["coordinateTransformations"][0]["scale"][0] = json!(1e300);
    image["coordinateTransformations"] = json!([{ "type": "scale", "scale": [1e300, 1, 1, 1, 1] }]);
    values.set("zarr.json", json.to_string());
    let words = ["datasets[1].coordinateTransformations", "finite with those of the whole"];
    refused(Multiscale::open_in(&storage(&values), ""), &words);

    let values = values_of("ome_0.4.zarr");
    let text = String::from_utf8(values.all()[".zattrs"].to_vec()).unwrap();
    values.set(".zattrs", text.replace("\"0.4\"", "\"0.9\""));
    refused(Multiscale::open_in(&storage(&values), ""), &[".zattrs", "multiscales[0].version` is \"0.9\""]);
    values.set(".zattrs", &text[..text.len() / 2]);
    refused(Multiscale::open_in(&storage(&values), ""), &[".zattrs", "is not valid JSON"]);
}

/// Random damage of metadata never causes a panic, and an image that opens has a positive scale for each axis.
#[test]
fn random_damage_panics_nowhere() {
    let (mut state, mut opened) = (1u64, 0);
    let mut below = |n: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % n
    };
    let values = values_of("ome_0.4.zarr");
    let text = json_of(&values, ".zattrs").to_string().into_bytes();
    let pieces: [&[u8]; 8] = [b"null", b"-1", b"1e999", b"[]", b"{}", b"\"\"", b"0", b","];
    for _ in 0..1500 {
        let mut text = text.clone();
        for _ in 0..1 + below(2) {
            let at = below(text.len());
            let piece = pieces[below(pieces.len())];
            let end = (at + below(6)).min(text.len());
            text.splice(at..end, piece.iter().copied());
        }
        values.set(".zattrs", text);
        if let Ok(image) = Multiscale::open_in(&storage(&values), "") {
            opened += 1;
            let axes = image.axes().len();
            for (n, level) in image.levels().iter().enumerate() {
                assert_eq!(level.scale.len(), axes);
                assert!(level.scale.iter().all(|&size| size > 0.0 && size.is_finite()));
                image.level(n, MissingChunk::Fill).ok();
                image.sigma_in_pixels(n, &[1.0]).ok();
            }
        }
    }
    assert!(opened > 50, "{opened}");
}

#[test]
fn levels_that_are_not_as_said() {
    let values = values_of("ome_0.5.zarr");
    let image = Multiscale::open_in(&storage(&values), "").unwrap();
    let error = refused(image.level(2, MissingChunk::Fill), &["2, and map: has 2 levels"]);
    assert!(matches!(error, Error::Argument { .. }));
    let mut json = json_of(&values, "s0/zarr.json");
    json["dimension_names"] = json!(["c", "t", "z", "y", "x"]);
    values.set("s0/zarr.json", json.to_string());
    let words = ["map:s0", "has the axes c, t, z, y, x, expected", "t, c, z, y, x"];
    refused(image.level(0, MissingChunk::Fill), &words);
    // Missing dimension names are no contradiction.
    json["dimension_names"] = Json::Null;
    values.set("s0/zarr.json", json.to_string());
    image.level(0, MissingChunk::Fill).unwrap();
    let flat = json_of(&values_of("ngff_0.5.zarr"), "scale0/floats/zarr.json");
    values.set("s0/zarr.json", flat.to_string());
    let words = ["map:s0", "has 2 axes, expected the 5 of its image: t, c, z, y, x"];
    refused(image.level(0, MissingChunk::Fill), &words);
    values.remove("s0/zarr.json");
    refused(image.level(0, MissingChunk::Fill), &["map:s0", "no such array"]);
    // This path would lead out of the image.
    let text = json_of(&values, "zarr.json").to_string().replace("\"s1\"", "\"../s1\"");
    values.set("zarr.json", text);
    let words = ["datasets[1].path` is \"../s1\"", "a path within the image"];
    refused(Multiscale::open_in(&storage(&values), ""), &words);
    // A path that begins with `/`, like a file's, is relative to the image.
    let text = json_of(&values, "zarr.json").to_string().replace("\"../s1\"", "\"//s1/\"");
    values.set("zarr.json", text);
    let image = Multiscale::open_in(&storage(&values), "").unwrap();
    assert_eq!(image.levels()[1].path, "s1");
    image.level(1, MissingChunk::Fill).unwrap();
}

#[test]
fn lengths_in_pixels() {
    let image = open("ome_0.5.zarr");
    assert_eq!(image.sigma_in_pixels(0, &[1.0]).unwrap(), [0.0, 0.0, 0.5, 2.0, 4.0]);
    assert_eq!(image.sigma_in_pixels(1, &[1.0, 0.0, 3.0]).unwrap(), [0.0, 0.0, 0.5, 0.0, 6.0]);
    let refuse = |sigma: &[f64], needles: &[&str]| {
        let error = refused(image.sigma_in_pixels(0, sigma), needles);
        assert!(matches!(error, Error::Argument { name: "sigma", .. }), "{error}");
    };
    refuse(&[], &["0 numbers, expected one or 3: z in micrometer, y in micrometer"]);
    refuse(&[1.0, 2.0], &["2 numbers, expected one or 3"]);
    refuse(&[-1.0], &["-1 micrometer along `z`", "at least 0"]);
    refuse(&[1.0, f64::NAN, 1.0], &["NaN micrometer along `y`"]);
    refuse(&[1.0, 1.0, f64::INFINITY], &["inf micrometer along `x`"]);
    refuse(&[1.0, 1.0, 1e308], &["along `x`, whose pixels are 0.25 micrometer", "too many pixels"]);
    refused(image.sigma_in_pixels(5, &[1.0]), &["5, and", "has 2 levels"]);
    let units = open("ngff_0.4.zarr");
    let words = "1 for axes of several units: y in nanometer, x in millimeter";
    refused(units.sigma_in_pixels(0, &[1.0]), &[words]);
    assert_eq!(units.sigma_in_pixels(1, &[2.0, 3.0]).unwrap(), [0.5, 0.5]);
    let none = Multiscale::open(fixture("plate.zarr/A/1/0")).unwrap();
    refused(none.sigma_in_pixels(0, &[-2.0]), &["-2 (no unit) along `y`"]);
}

/// Axes without a type are classified by name; a custom type is neither space nor time.
#[test]
fn axes_without_types() {
    let values = values_of("ome_0.4.zarr");
    let mut json = json_of(&values, ".zattrs");
    for axis in json["multiscales"][0]["axes"].as_array_mut().unwrap() {
        axis.as_object_mut().unwrap().remove("type");
    }
    values.set(".zattrs", json.to_string());
    let image = Multiscale::open_in(&storage(&values), "").unwrap();
    assert_eq!(image.axes(), five_axes());
    json["multiscales"][0]["axes"][1] = json!({ "name": "angle", "type": "rotation" });
    values.set(".zattrs", json.to_string());
    let image = Multiscale::open_in(&storage(&values), "").unwrap();
    assert_eq!(image.axes()[1].kind, AxisKind::Other(Some("rotation".into())));
    assert_eq!(image.spatial_axes(), [2, 3, 4]);
    json["multiscales"][0]["axes"][1] = json!({ "name": "phase", "type": null });
    values.set(".zattrs", json.to_string());
    let image = Multiscale::open_in(&storage(&values), "").unwrap();
    assert_eq!(image.axes()[1].kind, AxisKind::Other(None));
}
