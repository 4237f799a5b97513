//! Tests of `teatime blur` when it is killed, has no disk space, gets another input, or does not run alone.

use std::{fs, path::Path, process::Command};

use teatime::{
    Device, Run, StoredType,
    store::{ArraySpec, write_npy},
};
use teatime_image::{Axis, ImageSpec, Multiscale, MultiscaleWriter};

use crate::support::{Busy, Scratch, empty_array, files, names, run};

/// Writes an image of 264 x 512 pixels, in 4 x 16 chunks.
pub(crate) fn image(path: &Path) {
    let axes = vec![Axis::space("y", "micrometer"), Axis::space("x", "micrometer")];
    let array = ArraySpec::new(StoredType::U8, &[264, 512], &[66, 32]);
    let image = MultiscaleWriter::create(path, ImageSpec::new(axes, &[1.0, 1.0], array)).unwrap();
    let base = image.base().unwrap();
    for (tile, first) in base.tiles().zip(1..) {
        let pixels: Vec<u8> = (0..66 * 32).map(|pixel: u32| (pixel * 29 / first).to_le_bytes()[0]).collect();
        base.write(&tile, &pixels).unwrap();
    }
    image.finish(&Device::cpu(), &Run::default()).unwrap();
}

/// Asserts that two folders hold the same files, except those that describe the run.
#[track_caller]
fn assert_same(scratch: &Scratch, a: &str, b: &str) {
    let [one, other] = [a, b].map(|name| {
        let mut all = files(&scratch.join(name));
        all.retain(|name, _| !name.ends_with("zarr.json"));
        all
    });
    assert!(one == other && one.len() > 3, "{} and {}", one.len(), other.len());
}

/// A run on an image with a pyramid is killed in its first level and resumed, then killed and resumed again after some smaller levels exist.
#[test]
fn killed() {
    let scratch = Scratch::new();
    image(&scratch.join("in.zarr"));
    // With the least memory, boxes have one chunk.
    let least = scratch.least("blur in.zarr none.zarr --sigma 0.5 --pyramid --memory 1K");
    let words = "--sigma 0.5 --resume --pyramid";
    let killed = || {
        fs::remove_dir_all(scratch.join("out.zarr")).ok();
        let little = scratch.command(&format!("blur in.zarr out.zarr {words} --memory {least} --threads 1"));
        Busy::start(little, || scratch.join("out.zarr/0/c/0/0").exists()).is_some_and(Busy::kill)
    };
    assert!((0..9).any(|_| killed()), "it ends before it is killed");
    assert!(["0/c/3/15", "1"].iter().all(|name| !scratch.join("out.zarr").join(name).exists()));
    scratch.refused("blur in.zarr out.zarr --sigma 0.5", 1, &["--resume goes on with it"]);
    let record = scratch.record(&format!("blur in.zarr out.zarr {words}"));
    assert!(record["boxes"]["filtered"].as_u64() > Some(0), "{record}");
    scratch.ok(&format!("blur in.zarr expected.zarr {words}"));
    assert_same(&scratch, "out.zarr", "expected.zarr");
    for name in ["zarr.json", "1/c/1/1"] {
        fs::remove_file(scratch.join("out.zarr").join(name)).unwrap();
    }
    scratch.ok(&format!("blur in.zarr out.zarr {words}"));
    assert_same(&scratch, "out.zarr", "expected.zarr");
    assert_eq!(Multiscale::open(scratch.join("out.zarr")).unwrap().levels().len(), 2);
}

/// An unreadable chunk is named; the output so far is kept, and a run on the same input can resume it.
#[test]
fn damaged() {
    let scratch = Scratch::new();
    scratch.ok("blur @filter/blur.npy copy.zarr --sigma 0 --chunks 5,7,3");
    let least = scratch.least("blur copy.zarr none.zarr --sigma 0.5 --memory 1K");
    let words = format!("--sigma 0.5 --memory {least} --resume");
    scratch.ok(&format!("blur copy.zarr whole.zarr {words}"));
    let (damaged, said) = ("copy.zarr/c/2/3/0", "copy.zarr: chunk [2, 3, 0]");
    let bytes = scratch.bytes(damaged);
    scratch.write(damaged, &bytes[..bytes.len() / 2]);
    scratch.refused("blur copy.zarr soft.zarr --sigma 0.5", 1, &[said]);
    let resume = format!("blur copy.zarr soft.zarr {words}");
    let ran = scratch.run(&resume);
    assert!(ran.code == 1 && ran.err.contains("--resume goes on with it"), "{}", ran.err);
    let made = |row: u64| scratch.join(&format!("soft.zarr/c/{row}/0/0")).exists();
    assert!(made(0) && !made(4));
    let ran = scratch.run(&resume);
    assert!(ran.code == 1 && ran.err.contains(said), "{}", ran.err);
    scratch.write(damaged, &bytes);
    scratch.refused(&resume, 1, &["is of another job"]);
    fs::remove_dir_all(scratch.join("soft.zarr")).unwrap();
    scratch.ok(&resume);
    assert_same(&scratch, "soft.zarr", "whole.zarr");
}

/// Several blurs may write into one folder; two with one output name are refused, and a killed run leaves files of its own name only.
#[test]
fn at_once() {
    let scratch = Scratch::new();
    empty_array(&scratch.join("endless.zarr"), "|u1", &[1 << 20, 1 << 20], &[1 << 10, 1 << 10]);
    write_npy(scratch.join("small.npy"), &[1.0f32; 12], [3, 4]).unwrap();
    let folder = scratch.join("out");
    // Once a run writes its output, it holds no lock that other runs need.
    let begun = || folder.exists() && names(&folder).iter().any(|name| !names(&folder.join(name)).is_empty());
    let held = Busy::start(scratch.command("blur endless.zarr out/a.zarr --sigma 0.5"), begun).unwrap();
    held.signal("-STOP");
    assert_eq!(scratch.ok("blur small.npy out/b.zarr --sigma 0.5").err, "");
    for name in ["a.zarr", "a.npy"] {
        let said = "out: another run of teatime is writing a.run.json there";
        scratch.refused(&format!("blur small.npy out/{name} --sigma 0.5"), 1, &[said]);
    }
    drop(held);
    assert_eq!(scratch.ok("blur small.npy out/c.npy --sigma 0.5").err, "");
    let next = scratch.ok("blur small.npy out/a.zarr --sigma 0.5");
    assert!(next.err.contains(".teatime.partial-a.") && next.err.contains("was killed"), "{}", next.err);
    let results = ["a.run.json", "a.zarr", "b.run.json", "b.zarr", "c.npy", "c.run.json"];
    assert_eq!(names(&folder)[1..], results);
}

/// If no file may grow by even a byte, the run ends with an error instead of being killed by a signal.
#[test]
fn no_file_may_grow() {
    let scratch = Scratch::new();
    write_npy(scratch.join("in.npy"), &[1.0f32; 4096], [64, 64]).unwrap();
    let ran = run(scratch.behind("ulimit -f 1; exec", "blur in.npy out/out.npy --sigma 1"));
    assert!(ran.code == 1 && ran.err.contains("out.npy"), "{} {}", ran.code, ran.err);
    assert_eq!(scratch.names(), ["in.npy"]);
}

/// `--resume` recognises the input by its files, not by the path as typed; another input is another job.
#[test]
fn another_input() {
    let scratch = Scratch::new();
    scratch.ok("blur @filter/blur.npy in.zarr --sigma 0 --chunks 23,31,1");
    for input in ["in.zarr", "./in.zarr"] {
        scratch.ok(&format!("blur {input} out.zarr --sigma 0.5 --resume"));
    }
    fs::copy(scratch.join("in.zarr/c/0/0/1"), scratch.join("in.zarr/c/0/0/0")).unwrap();
    scratch.refused("blur in.zarr out.zarr --sigma 0.5 --resume", 1, &["another job"]);
}

/// A change of the input during the run is detected at the end, and no result is kept.
#[test]
fn changed_meanwhile() {
    let scratch = Scratch::new();
    let changed = |nth: u32| {
        let (input, out) = (format!("in{nth}.zarr"), scratch.join(&format!("out{nth}.zarr")));
        empty_array(&scratch.join(&input), "|u1", &[1 << 13, 1 << 13], &[1 << 8, 1 << 8]);
        let begun = || scratch.names().iter().any(|name| name.contains("partial"));
        let busy = Busy::start(scratch.command(&format!("blur {input} out{nth}.zarr --sigma 3")), begun);
        scratch.write(&format!("{input}/0.0"), vec![7; 1 << 16]);
        let Some(busy) = busy.filter(|_| !out.exists()) else { return false };
        let (code, error) = busy.end();
        assert!(code == 1 && error.contains("changed while it was read") && !out.exists(), "{error}");
        true
    };
    assert!((0..5).any(changed), "it ends before the input is changed");
}

/// A named pipe or an endless device in place of a record or an output is neither waited for nor read without end.
#[test]
fn outputs_that_are_no_files() {
    let scratch = Scratch::new();
    write_npy(scratch.join("in.npy"), &[1.0f32; 12], [3, 4]).unwrap();
    for (place, said) in [
        ("a.run.json", "holds a.run.json"),
        ("a.zarr/.zattrs", "holds a.zarr"),
        (".teatime.partial-a.x", ""),
        ("a.npy", "holds a.npy"),
    ] {
        for is_endless in [false, true] {
            let folder = format!("{}{is_endless}", place.replace('/', ""));
            let path = scratch.join(&folder).join(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            if is_endless {
                std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
            } else {
                assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
            }
            let out = if place.ends_with(".zattrs") { "a.zarr" } else { "a.npy" };
            let words = format!("blur in.npy {folder}/{out} --sigma 1 --overwrite");
            let ran = run(scratch.behind("exec timeout --signal=KILL 20", &words));
            assert_eq!(ran.code, i32::from(!said.is_empty()), "{place}: {}", ran.err);
            assert!(ran.err.contains(said), "{place}: {}", ran.err);
        }
    }
}
