//! `teatime blur` on an image that numpy wrote, against scipy's Gaussian of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use teatime::{
    ChunkedArray, MissingChunk,
    store::{NpyArray, ZarrArray, write_npy},
};
use teatime_image::Multiscale;

use crate::support::{Ran, Scratch, command, json, names, run};

pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/filter").join(name)
}

pub(crate) fn blur(input: &Path, out: &Path, more: &[&str]) -> Ran {
    let mut words = command(["blur"]);
    words.args([input, out]).args(["--device", "cpu"]).args(more);
    run(words)
}

/// The elements of an array of f64 of three axes, of which the last is in one chunk.
fn elements(array: &dyn ChunkedArray) -> Vec<f64> {
    let [shape, chunk] = [array.shape(), array.chunk_shape()]
        .map(|extents| extents.iter().map(|&n| usize::try_from(n).unwrap()).collect::<Vec<usize>>());
    let mut out = vec![f64::NAN; shape.iter().product()];
    for (i, j) in
        (0..shape[0]).step_by(chunk[0]).flat_map(|i| (0..shape[1]).step_by(chunk[1]).map(move |j| (i, j)))
    {
        let at = [i / chunk[0], j / chunk[1], 0].map(|at| at as u64);
        let bytes = array.read_chunk(&at).unwrap().bytes;
        for (row, bytes) in bytes.chunks(8 * chunk[2]).enumerate() {
            let (i, j) = (i + row / chunk[1], j + row % chunk[1]);
            if i < shape[0] && j < shape[1] {
                let values = bytes.chunks(8).map(|bytes| f64::from_le_bytes(bytes.try_into().unwrap()));
                let place = (i * shape[1] + j) * shape[2];
                out[place..place + shape[2]].iter_mut().zip(values).for_each(|(out, value)| *out = value);
            }
        }
    }
    out
}

const SCIPYS: [&str; 8] =
    ["--sigma", "1.5,0.7", "--channel-axis", "2", "--mode", "nearest,wrap", "--dtype", "f64"];

#[test]
fn as_scipy_has_it() {
    let (scratch, image) = (Scratch::new(), fixture("blur.npy"));
    let expected = elements(&NpyArray::open(fixture("blur_scipy.npy")).unwrap());
    let check = |found: &[f64]| {
        assert_eq!(found.len(), 23 * 31 * 3);
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-10;
        assert!(found.iter().zip(&expected).all(close));
    };
    let npy = scratch.join("soft.npy");
    let page = blur(&image, &npy, &SCIPYS).ok().out;
    assert!(page.contains("23 x 31 x 3 of u16") && page.contains("soft.run.json, soft.npy"), "{page}");
    check(&elements(&NpyArray::open(&npy).unwrap()));
    // Axes from the end.
    for last in [&["--channel-axis", "-1"][..], &["--channel-axis=-1"], &["--axes", "-3,-2"]] {
        let words = [&SCIPYS[..2], last, &SCIPYS[4..], &["--overwrite"]].concat();
        blur(&image, &npy, &words).ok();
        check(&elements(&NpyArray::open(&npy).unwrap()));
    }
    let zarr = scratch.join("soft.zarr");
    let more = ["--chunks", "5,7,3", "--shards", "10,14,3", "--overwrite", "--json"];
    let record = json(&blur(&image, &zarr, &[&SCIPYS[..], &more].concat()).ok().out);
    assert_eq!(record["files"], serde_json::json!(["soft.run.json", "soft.zarr"]));
    assert_eq!((&record["boxes"]["filtered"], &record["boxes"]["times_decoded"]), (&1.into(), &1.0.into()));
    check(&elements(&ZarrArray::open(&zarr, "", MissingChunk::Error).unwrap()));
    // The .npy was of this command.
    assert_eq!(scratch.names(), ["soft.run.json", "soft.zarr"]);
    // The result is filtered once more.
    blur(&zarr, &scratch.join("twice.npy"), &["--sigma", "0.5"]).ok();
}

/// Images that other programs wrote: the axes along space are filtered, in their units, and the result is such an image.
#[test]
fn images() {
    let scratch = Scratch::new();
    for name in ["ome_0.4.zarr", "ome_0.5.zarr"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/tests/fixtures").join(name);
        let source = Multiscale::open(&path).unwrap();
        let (out, axes, scale) = (scratch.join(name), source.spatial_axes(), &source.levels()[0].scale);
        let words =
            |of: &dyn Fn(usize) -> String| axes.iter().map(|&axis| of(axis)).collect::<Vec<_>>().join(",");
        let lengths = words(&|axis| (1.5 * scale[axis]).to_string());
        blur(&path, &out, &["--sigma", &lengths, "--physical", "--pyramid", "--dtype", "f32"]).ok();
        let image = Multiscale::open(&out).unwrap();
        assert_eq!((image.axes(), image.version()), (source.axes(), source.version()), "{name}");
        assert_eq!(image.levels()[0].scale, source.levels()[0].scale);
        let lengths: Vec<f64> = axes.iter().map(|&axis| 1.5 * scale[axis]).collect();
        let pixels = source.sigma_in_pixels(0, &lengths).unwrap();
        let (sigma, axes) = (words(&|axis| pixels[axis].to_string()), words(&|axis| axis.to_string()));
        let (plain, copied) =
            (scratch.join(&format!("{name}.plain.npy")), scratch.join(&format!("{name}.copy.npy")));
        let words = ["--sigma", &sigma, "--axes", &axes, "--dtype", "f32"];
        blur(&path.join(&source.levels()[0].path), &plain, &words).ok();
        blur(&out.join("0"), &copied, &["--sigma", "0"]).ok();
        assert!(fs::read(plain).unwrap() == fs::read(copied).unwrap(), "{name}");
    }
    for (name, words) in [("ngff_0.5.zarr", "y in nanometer, x in millimeter"), ("plate.zarr", "plate")] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../image/tests/fixtures").join(name);
        let ran = blur(&path, &scratch.join("other.zarr"), &["--sigma", "0.7", "--physical"]);
        assert!(ran.code == 1 && ran.err.contains(words), "{}", ran.err);
    }
}

/// A chunk that cannot be read is named, and what was made without it stays where it is to be gone on with, by the same input.
#[test]
fn damaged_and_one_that_is_the_result() {
    let (scratch, image) = (Scratch::new(), fixture("blur.npy"));
    let [copy, soft, whole] = ["copy.zarr", "soft.zarr", "whole.zarr"].map(|name| scratch.join(name));
    blur(&image, &copy, &["--sigma", "0", "--chunks", "5,7,3"]).ok();
    // Boxes of one chunk.
    let ran = blur(&copy, &soft, &["--sigma", "0.5", "--memory", "1K"]);
    let least = ran.err.split_once("(--memory ").and_then(|(_, least)| least.split_once(')')).unwrap().0;
    let words = ["--sigma", "0.5", "--memory", least, "--resume"];
    blur(&copy, &whole, &words).ok();
    let damaged = copy.join("c/2/3/0");
    let bytes = fs::read(&damaged).unwrap();
    fs::write(&damaged, &bytes[..bytes.len() / 2]).unwrap();
    let ran = blur(&copy, &soft, &["--sigma", "0.5"]);
    assert!(ran.code == 1 && ran.err.contains("copy.zarr: chunk [2, 3, 0]"), "{}", ran.err);
    assert!(!soft.exists());
    let ran = blur(&copy, &soft, &words);
    assert!(ran.code == 1 && ran.err.contains("--resume goes on with it"), "{}", ran.err);
    let made = |row: u64| soft.join(format!("c/{row}/0/0")).exists();
    assert!(made(0) && !made(4));
    let ran = blur(&copy, &soft, &words);
    assert!(ran.code == 1 && ran.err.contains("copy.zarr: chunk [2, 3, 0]"), "{}", ran.err);
    fs::write(&damaged, &bytes).unwrap();
    let ran = blur(&copy, &soft, &words);
    assert!(ran.code == 1 && ran.err.contains("is of another job"), "{}", ran.err);
    fs::remove_dir_all(&soft).unwrap();
    blur(&copy, &soft, &words).ok();
    for at in (0..5).flat_map(|row| (0..5).map(move |column| format!("c/{row}/{column}/0"))) {
        assert!(fs::read(soft.join(&at)).unwrap() == fs::read(whole.join(&at)).unwrap(), "{at}");
    }
    for (input, out) in [(&soft, &soft), (&soft.join("c"), &soft), (&image, &image)] {
        for how in ["--overwrite", "--resume"] {
            let ran = blur(input, out, &["--sigma", "1", how]);
            assert!(ran.code == 1 && ran.err.contains("holds the input; choose another name"), "{}", ran.err);
        }
    }
}

#[test]
fn refused() {
    let (scratch, image) = (Scratch::new(), fixture("blur.npy"));
    let says = |out: &str, more: &[&str], code: i32, words: &str| {
        let ran = blur(&image, &scratch.join(out), more);
        assert!(ran.code == code && ran.err.contains(words), "{} {}", ran.code, ran.err);
        assert!(scratch.names().is_empty(), "{:?} is left", scratch.names());
    };
    says("x.npy", &[], 2, "--sigma");
    says("x.png", &["--sigma", "1"], 2, "ends with one of .npy, .zarr");
    says("x.npy", &["--sigma", "-1"], 1, "--sigma: -1; it is a finite number from 0 on");
    says("x.npy", &["--sigma", "1,2"], 1, "--sigma: 2 values for 3 filtered axes");
    says("x.npy", &["--sigma", "1", "--axes", "0,3"], 1, "--axes: 3 of 3 axes");
    says("x.npy", &["--sigma", "1", "--axes", "0", "--channel-axis", "1"], 2, "cannot be used with");
    says("x.npy", &["--sigma", "1", "--channel-axis", "3"], 1, "--channel-axis: 3 of 3 axes");
    says("x.npy", &["--sigma", "1", "--channel-axis", "-4"], 1, "--channel-axis: -4 of 3 axes");
    says("x.npy", &["--sigma", "1", "--axes", "0,-4"], 1, "--axes: -4 of 3 axes");
    says("x.npy", &["--sigma", "1", "--order", "101"], 1, "--order");
    says("x.npy", &["--sigma", "1", "--order", "-1"], 2, "invalid value '-1' for '--order");
    says("x.npy", &["--sigma", "1", "--radius", "-1"], 2, "invalid value '-1' for '--radius");
    says("x.npy", &["--sigma", "1", "--mode", "reflected"], 2, "possible values");
    says("x.npy", &["--sigma", "1", "--cval", "3"], 2, "--cval is of --mode constant alone");
    says("x.npy", &["--sigma", "1", "--memory", "1K"], 1, "at least");
    says("x.npy", &["--sigma", "1", "--resume"], 2, "--resume is for a .zarr alone");
    says("x.zarr", &["--sigma", "1", "--chunks", "4,4"], 1, "chunk");
    says("x.zarr", &["--sigma", "1", "--chunks", "4,4,3", "--shards", "6,4,3"], 1, "shard");
    says("x.zarr", &["--sigma", "1", "--level", "1"], 2, "--level is of OME-Zarr images alone");
    says("x.zarr", &["--sigma", "1", "--physical"], 2, "--physical is of OME-Zarr images alone");
    says("x.zarr", &["--sigma", "1", "--pyramid"], 2, "--pyramid is of OME-Zarr images alone");
    for (flag, value) in [("--pyramid", None), ("--chunks", Some("4,4,3")), ("--shards", Some("8,8,3"))] {
        let more: Vec<&str> = ["--sigma", "1", flag].into_iter().chain(value).collect();
        says("x.npy", &more, 2, &format!("{flag} is for OUT.zarr alone"));
    }
    says("x.npy", &["--sigma", "1", "--compression", "zstd"], 2, "--compression is for OUT.zarr alone");
    let none = blur(&scratch.join("none.zarr"), &scratch.join("x.npy"), &["--sigma", "1"]);
    assert!(none.code == 1 && none.err.contains("none.zarr"), "{}", none.err);
    // A folder that is not ours stays as it is.
    let mine = scratch.join("mine.zarr");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("notes.txt"), "").unwrap();
    let ran = blur(&image, &mine, &["--sigma", "1", "--resume"]);
    assert!(ran.code == 1 && ran.err.contains("mine.zarr: is there, and is no Zarr array"), "{}", ran.err);
    assert_eq!((names(&mine), scratch.names()), (vec!["notes.txt".into()], vec!["mine.zarr".into()]));
}

/// The derivative of a falling ramp in bytes is below 0: it is not all zeros.
#[test]
fn derivatives_of_unsigned_integers_keep_their_sign() {
    let scratch = Scratch::new();
    let (ramp, out) = (scratch.join("ramp.npy"), scratch.join("slope.npy"));
    let values: Vec<u8> = (0..40).map(|i| 200 - 4 * i).collect();
    write_npy(&ramp, &values, [1, 40]).unwrap();
    let words = ["--sigma", "1", "--order", "0,1"];
    blur(&ramp, &out, &words).ok();
    let chunk = NpyArray::open(&out).unwrap().read_chunk(&[0, 0]).unwrap();
    let slope: Vec<f32> = teatime::bytemuck::pod_collect_to_vec(&chunk.bytes);
    assert!(slope.len() == 40 && slope[10..30].iter().all(|slope| (slope + 4.0).abs() < 0.01), "{slope:?}");
    let ran = blur(&ramp, &scratch.join("same.npy"), &[&words[..], &["--dtype", "same"]].concat());
    assert!(ran.code == 1 && ran.err.contains("--dtype same: derivatives are negative too"), "{}", ran.err);
}
