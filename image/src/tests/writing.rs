//! Tests of images that we write: metadata, existing outputs, faults.

use std::{
    path::Path,
    process::Command,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use serde_json::json;
use teatime::{
    Error, Result, Run, StoredType,
    openings::{Map, told},
    store::{ArraySpec, Compression, Shuffle, ZarrFormat},
};

use super::{
    axes, device, fill, fixture, json_of, noise, number_of, open, refused, spec, storage, values_of, written,
};
use crate::{Axis, AxisKind, ImageSpec, Multiscale, MultiscaleWriter, OmeVersion, Pyramid};

/// Compares the metadata of both versions word for word.
#[test]
fn metadata_of_both_versions() {
    let source = Multiscale::open(fixture("ome_0.4.zarr")).unwrap();
    let array = ArraySpec::new(StoredType::U16, &[2, 2, 3, 4, 6], &[1, 1, 3, 4, 4]);
    let mut spec = ImageSpec::like(&source, 1, array).unwrap();
    spec.pyramid = Pyramid::Levels(2);
    let axes = json!([
        { "name": "t", "type": "time", "unit": "second" }, { "name": "c", "type": "channel" },
        { "name": "z", "type": "space", "unit": "micrometer" }, { "name": "y", "type": "space", "unit": "micrometer" },
        { "name": "x", "type": "space", "unit": "micrometer" },
    ]);
    let datasets = json!([
        { "path": "0", "coordinateTransformations": [{ "type": "scale", "scale": [0.5, 1.0, 2.0, 1.0, 0.5] },
            { "type": "translation", "translation": [0.0, 0.0, 0.0, 10.25, 20.125] }] },
        { "path": "1", "coordinateTransformations": [{ "type": "scale", "scale": [0.5, 1.0, 4.0, 2.0, 1.0] },
            { "type": "translation", "translation": [0.0, 0.0, 1.0, 10.75, 20.375] }] },
    ]);
    let mut omero = json!(source.omero());
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        spec.array.format = format;
        let values = written(spec.clone(), |at| noise(at) as u16);
        let mut image = json!({ "name": "cells", "axes": axes, "datasets": datasets, "type": "mean" });
        if format == ZarrFormat::V2 {
            image["version"] = json!("0.4");
            assert_eq!(json_of(&values, ".zattrs"), json!({ "multiscales": [image], "omero": omero }));
            assert_eq!(json_of(&values, ".zgroup"), json!({ "zarr_format": 2 }));
            assert!(values.all().contains_key("0/1/0/0/0/1"), "chunks in folders");
        } else {
            omero.as_object_mut().unwrap().remove("version");
            let ome = json!({ "version": "0.5", "multiscales": [image], "omero": omero });
            let group = json!({ "zarr_format": 3, "node_type": "group", "attributes": { "ome": ome } });
            assert_eq!(json_of(&values, "zarr.json"), group);
            assert_eq!(json_of(&values, "1/zarr.json")["dimension_names"], json!(["t", "c", "z", "y", "x"]));
            assert!(values.all().contains_key("0/c/1/0/0/0/1"));
        }
        let image = open(&values);
        assert_eq!((image.axes(), &image.levels()[0].scale), (source.axes(), &source.levels()[1].scale));
        assert_eq!(image.version(), if format == ZarrFormat::V2 { OmeVersion::V04 } else { OmeVersion::V05 });
    }
    let plain = super::spec("yx", StoredType::U8, &[2, 2], &[2, 2]);
    let values = written(ImageSpec { pyramid: Pyramid::None, ..plain }, |_| 0u8);
    let level =
        json!({ "path": "0", "coordinateTransformations": [{ "type": "scale", "scale": [1.0, 1.0] }] });
    let image = &json_of(&values, "zarr.json")["attributes"]["ome"]["multiscales"][0];
    assert_eq!((&image["datasets"], image.get("name"), image.get("type")), (&json!([level]), None, None));
}

/// An image whose writer is killed at any put does not open, and another process resumes it to the same bytes.
#[test]
fn killed_anywhere_and_gone_on_with() {
    for format in [ZarrFormat::V2, ZarrFormat::V3] {
        let mut spec = spec("cyx", StoredType::U8, &[2, 9, 10], &[1, 4, 4]);
        spec.array.format = format;
        spec.array.job = Some("noise".into());
        let go_on = |values: &Arc<Map>| -> Result<()> {
            let image = MultiscaleWriter::resume_in(values.clone(), "image", spec.clone())?;
            fill(&image.base()?, |at| noise(at) as u8)?;
            image.finish(device(), &Run::default())
        };
        let whole = Arc::new(Map::default());
        go_on(&whole).unwrap();
        let expected = whole.all();
        // A second run puts only the metadata of five levels and the group, a missing tile and a damaged one.
        let (puts, tile, damaged) = if format == ZarrFormat::V2 {
            (14, "image/1/1/0/1", "image/0/0/0/0")
        } else {
            (8, "image/1/c/1/0/1", "image/0/c/0/0/0")
        };
        whole.remove(tile);
        whole.set(damaged, "damaged");
        whole.puts.store(puts, Relaxed);
        go_on(&whole).unwrap();
        assert!(whole.all() == expected);
        let mut killed = 0;
        loop {
            let values = Arc::new(Map::default());
            values.puts.store(killed, Relaxed);
            if go_on(&values).is_ok() {
                break;
            }
            assert!(Multiscale::open_in(&storage(&values), "image").is_err(), "{killed}");
            // The resuming process is killed too.
            values.puts.store(3, Relaxed);
            go_on(&values).ok();
            values.puts.store(u64::MAX, Relaxed);
            go_on(&values).unwrap();
            assert!(values.all() == expected, "{killed}");
            killed += 1;
        }
        assert!(killed > 40, "{killed}");
    }
}

/// An existing folder is left alone unless it holds the same image.
#[test]
fn what_is_there_already() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("image.zarr");
    let mut spec = spec("yx", StoredType::U8, &[6, 6], &[4, 4]);
    refused(MultiscaleWriter::resume(&path, spec.clone()), &["names no job"]);
    assert!(!path.exists());
    let image = MultiscaleWriter::create(&path, spec.clone()).unwrap();
    let error = refused(MultiscaleWriter::create(&path, spec.clone()), &["image.zarr", "exists already"]);
    assert!(matches!(error, Error::Store { .. }));
    let finished = image.finish(device(), &Run::default());
    let error = refused(finished, &["image.zarr/0", "[0, 0]", "was not written"]);
    assert!(matches!(error, Error::Chunk { .. }));
    refused(Multiscale::open(&path), &["is no Zarr group"]);

    spec.array.job = Some("first".into());
    refused(MultiscaleWriter::resume(&path, spec.clone()), &["is of another job"]);
    let path = scratch.path().join("other.zarr");
    let image = MultiscaleWriter::resume(&path, spec.clone()).unwrap();
    fill(&image.base().unwrap(), |at| noise(at) as u8).unwrap();
    image.finish(device(), &Run::default()).unwrap();
    let changes: [fn(&mut ImageSpec); 6] = [
        |spec| spec.array.job = Some("second".into()),
        |spec| spec.scale[0] = 2.0,
        |spec| spec.name = Some("other".into()),
        |spec| spec.axes[0].unit = None,
        |spec| spec.pyramid = Pyramid::Levels(2),
        |spec| spec.array.chunk_shape = vec![6, 6],
    ];
    for change in changes {
        let mut other = spec.clone();
        change(&mut other);
        refused(MultiscaleWriter::resume(&path, other), &["other.zarr/0", "is of another job"]);
    }
    MultiscaleWriter::resume(&path, spec.clone()).unwrap();
    // The folder holds an image of another program, or no store at all.
    let foreign = values_of("ome_0.5.zarr");
    let before = foreign.all();
    let resumed = MultiscaleWriter::resume_in(foreign.clone(), "", spec.clone());
    refused(resumed, &["is there, and has no array `0`"]);
    refused(MultiscaleWriter::create_in(foreign.clone(), "", spec.clone()), &["exists already"]);
    assert!(foreign.all() == before);
    let notes = scratch.path().join("notes");
    std::fs::create_dir(&notes).unwrap();
    MultiscaleWriter::create(&notes, spec.clone()).unwrap();
    std::fs::remove_dir_all(notes.join("0")).unwrap();
    std::fs::write(notes.join("note.txt"), "mine").unwrap();
    refused(MultiscaleWriter::create(&notes, spec.clone()), &["notes", "exists already"]);
    refused(MultiscaleWriter::resume(&notes, spec.clone()), &["notes", "has no array `0`"]);
    let error = refused(MultiscaleWriter::create(notes.join("note.txt"), spec), &["note.txt"]);
    assert!(matches!(error, Error::Io { .. }));
}

#[test]
fn images_that_may_not_be() {
    let refuse = |needles: &[&str], change: &dyn Fn(&mut ImageSpec)| {
        let mut spec = spec("cyx", StoredType::U8, &[2, 6, 6], &[1, 4, 4]);
        change(&mut spec);
        let error = refused(MultiscaleWriter::create_in(Arc::new(Map::default()), "", spec), needles);
        assert!(matches!(error, Error::Argument { .. }), "{error}");
    };
    refuse(&["`axes`: 1, expected 2 to 5"], &|spec| spec.axes.truncate(1));
    refuse(&["`axes`: 6, expected 2 to 5"], &|spec| spec.axes.extend(axes("tzq")));
    refuse(&["1 axes go along space"], &|spec| spec.axes = axes("tcx"));
    refuse(&["two axes are called `x`"], &|spec| spec.axes = axes("xyx"));
    refuse(&["y, x, c, expected those of time first"], &|spec| spec.axes = axes("yxc"));
    refuse(&["at most one of each"], &|spec| {
        spec.axes = axes("ccyx");
        spec.axes[0] = Axis { name: "angle".into(), kind: AxisKind::Other(None), unit: None };
    });
    refuse(&["`scale`: [1.0, 1.0, 0.0]", "above 0"], &|spec| spec.scale[2] = 0.0);
    refuse(&["`scale`: [1.0, 1.0, NaN]"], &|spec| spec.scale[2] = f64::NAN);
    refuse(&["`scale`", "3 finite numbers above 0"], &|spec| spec.scale = vec![1.0]);
    refuse(&["`translation`: [inf, 0.0, 0.0]"], &|spec| spec.translation[0] = f64::INFINITY);
    refuse(&["`array`: a shape of [2, 0, 6]"], &|spec| spec.array.shape[1] = 0);
    refuse(&["`array`", "in chunks of [1, 0, 4]"], &|spec| spec.array.chunk_shape[1] = 0);
    refuse(&["`array`", "in chunks of [1, 4]"], &|spec| spec.array.chunk_shape = vec![1, 4]);
    refuse(&["`array`", "a shape of [6, 6]", "expected 3 axes"], &|spec| spec.array.shape = vec![6, 6]);
    refuse(&["of Some(Bool), expected numbers"], &|spec| spec.array.dtype = Some(StoredType::Bool));
    refuse(&["of None"], &|spec| spec.array.dtype = None);
    refuse(&["`pyramid`: 0"], &|spec| spec.pyramid = Pyramid::Levels(0));
    refuse(&["`pyramid`: 0"], &|spec| spec.pyramid = Pyramid::UntilWithin(0));
    // These errors concern the array alone.
    refuse(&["neither shards nor checksums"], &|spec| {
        (spec.array.format, spec.array.checksum) = (ZarrFormat::V2, true)
    });
    refuse(&["do not divide"], &|spec| spec.array.shard_shape = Some(vec![1, 6, 6]));
    refuse(&["more than"], &|spec| spec.array.shape = vec![u64::MAX, 1 << 63, u64::MAX]);
    let source = Multiscale::open(fixture("ome_0.4.zarr")).unwrap();
    let like = ImageSpec::like(&source, 2, ArraySpec::new(StoredType::U8, &[1], &[1]));
    let error = refused(like, &["2, and", "has 2 levels"]);
    assert!(matches!(error, Error::Argument { .. }));
}

/// Progress increases with each pass, a cancelled call ends with that error, and a damaged tile is named.
#[test]
fn progress_and_faults() {
    let begin = |values: &Arc<Map>| {
        let mut spec = spec("cyx", StoredType::U8, &[2, 33, 20], &[1, 8, 8]);
        (spec.array.job, spec.array.checksum) = (Some("job".into()), true);
        let image = MultiscaleWriter::resume_in(values.clone(), "", spec).unwrap();
        fill(&image.base().unwrap(), |at| noise(at) as u8).unwrap();
        image
    };
    let (run, statuses) = told(|_| false);
    let values = Arc::new(Map::default());
    begin(&values).finish(device(), &run).unwrap();
    let statuses = statuses.lock().unwrap();
    assert!(statuses.is_sorted_by_key(|status| (status.pass, status.rows)), "{statuses:?}");
    let ends = statuses.iter().filter(|status| status.rows == status.total);
    let ends: Vec<_> = ends.map(|status| (status.pass, status.rows, status.passes)).collect();
    assert_eq!(ends, [(0, 17, 6), (1, 9, 6), (2, 5, 6), (3, 3, 6), (4, 2, 6), (5, 1, 6)]);

    let ((run, _), values) = (told(|status| status.pass == 1), Arc::new(Map::default()));
    assert!(matches!(begin(&values).finish(device(), &run), Err(Error::Cancelled)));
    assert!(values.all().contains_key("2/zarr.json") && !values.all().contains_key("zarr.json"));
    assert!(!values.all().contains_key("4/zarr.json"));

    let values = Arc::new(Map::default());
    let image = begin(&values);
    let mut chunk = values.all()["0/c/1/2/0"].to_vec();
    chunk[3] ^= 1;
    values.set("0/c/1/2/0", chunk);
    let error = refused(image.finish(device(), &Run::default()), &["map:0", "[1, 2, 0]"]);
    assert!(matches!(error, Error::Chunk { .. }), "{error}");
    let values = Arc::new(Map::default());
    let image = begin(&values);
    values.puts.store(4, Relaxed);
    let error = refused(image.finish(device(), &Run::default()), &["killed"]);
    assert!(matches!(error, Error::Io { .. }), "{error}");
}

/// `TEATIME_OME_ZARR_PYTHON` names a Python with the packages of `tests/fixtures/requirements.txt`; the test is skipped without it.
#[test]
fn ome_zarr_reads_it() {
    let Some(python) = std::env::var_os("TEATIME_OME_ZARR_PYTHON") else { return };
    let scratch = tempfile::tempdir().unwrap();
    let source = Multiscale::open(fixture("ome_0.5.zarr")).unwrap();
    for (name, format) in [("v2", ZarrFormat::V2), ("v3", ZarrFormat::V3), ("shards", ZarrFormat::V3)] {
        for dtype in [StoredType::U8, StoredType::F32] {
            let array = ArraySpec::new(dtype, &[2, 2, 5, 70, 61], &[1, 1, 4, 16, 16]);
            let mut spec = ImageSpec::like(&source, 0, array).unwrap();
            spec.pyramid = Pyramid::UntilWithin(16);
            spec.array.format = format;
            spec.array.compression = Compression::Blosc { level: 1, shuffle: Shuffle::Bytes };
            if name == "shards" {
                spec.array.shard_shape = Some(vec![1, 1, 8, 32, 64]);
            }
            let path = scratch.path().join(format!("{name}_{dtype:?}.zarr"));
            let image = MultiscaleWriter::create(&path, spec).unwrap();
            let base = image.base().unwrap();
            let pixel = |at: &[u64]| (number_of(at, &[2, 2, 5, 70, 61]) % 251) as u8;
            match dtype {
                StoredType::U8 => fill(&base, pixel).unwrap(),
                _ => fill(&base, |at| f32::from(pixel(at))).unwrap(),
            }
            image.finish(device(), &Run::default()).unwrap();
        }
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/read_back.py");
    let ran = Command::new(python).arg(script).arg(scratch.path()).output().unwrap();
    let text = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat();
    assert!(ran.status.success() && text.contains("6 images as they should be"), "{text}");
}

/// Partial images with this text as their job can be resumed.
#[test]
fn words_of_a_job_stay() {
    let pyramids = [Pyramid::None, Pyramid::UntilWithin(256), Pyramid::Levels(2)];
    for (pyramid, text) in pyramids.into_iter().zip(["None", "UntilWithin(256)", "Levels(2)"]) {
        let mut spec = spec("yx", StoredType::U8, &[2, 3], &[2, 2]);
        spec.array.job = Some("noise".into());
        let axis = |name| format!(r#"{{"name":"{name}","type":"space","unit":"micrometer"}}"#);
        let axes = format!("[{},{}]", axis("y"), axis("x"));
        let expected = format!("noise\0[null,{axes},[1.0,1.0],[0.0,0.0],null,\"{text}\"]");
        assert_eq!(ImageSpec { pyramid, ..spec }.levels()[0].array.job, Some(expected));
    }
}
