//! `teatime blur` that is killed, finds no room, finds another input, or is not alone.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use teatime::{
    Device, Run, StoredType,
    store::{ArraySpec, write_npy},
};
use teatime_image::{Axis, ImageSpec, Multiscale, MultiscaleWriter};

use crate::{
    blur::{blur, fixture},
    support::{Scratch, command, empty_array, json, names, run},
};

/// An image of 264 x 512 pixels, in 4 x 16 chunks.
fn image(path: &Path) {
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

/// A command that is stopped as soon as it has begun.
struct Stopped(Child);

impl Stopped {
    /// Starts it, waits until `begun`, and sends a signal. None where it has ended by then.
    fn by(signal: &str, mut words: Command, begun: impl Fn() -> bool) -> Option<Self> {
        let mut child = words.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !begun() && child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(1));
        }
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        let busy = child.try_wait().unwrap().is_none_or(|ended| ended.code().is_none());
        (sent.success() && busy).then_some(Self(child))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It may have ended by its signal.
        self.0.kill().ok();
        self.0.wait().unwrap();
    }
}

fn words(input: &Path, out: &Path, more: &[&str]) -> Command {
    let mut words = command(["blur"]);
    words.args([input, out]).args(more);
    words
}

/// The least memory: boxes of one chunk.
fn least(input: &Path, scratch: &Scratch, more: &[&str]) -> String {
    let ran =
        blur(input, &scratch.join("none.zarr"), &[&["--sigma", "0.5", "--memory", "1K"], more].concat());
    ran.err.split_once("(--memory ").and_then(|(_, least)| least.split_once(')')).unwrap().0.to_owned()
}

/// Files by their place within a folder, but for those that say how arrays came about.
fn pixels(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut all = Vec::new();
    for name in names(folder) {
        let path = folder.join(&name);
        if path.is_dir() {
            all.extend(pixels(&path));
        } else if name != "zarr.json" {
            let bytes = fs::read(&path).unwrap();
            all.push((path, bytes));
        }
    }
    all
}

#[track_caller]
fn assert_same(a: &Path, b: &Path) {
    let [one, other] = [a, b].map(|folder| {
        let within = |(path, bytes): (PathBuf, _)| (path.strip_prefix(folder).unwrap().to_owned(), bytes);
        pixels(folder).into_iter().map(within).collect::<Vec<_>>()
    });
    assert!(one == other && one.len() > 16, "{} and {}", one.len(), other.len());
}

/// A run on an image with a pyramid is killed in its first level and gone on with, and once more where some smaller levels are there.
#[test]
fn killed() {
    let scratch = Scratch::new();
    let [input, out, expected] = ["in.zarr", "out.zarr", "expected.zarr"].map(|name| scratch.join(name));
    image(&input);
    let memory = least(&input, &scratch, &[]);
    let more = ["--sigma", "0.5", "--resume", "--pyramid"];
    let killed = || {
        fs::remove_dir_all(&out).ok();
        let little = words(&input, &out, &[&more[..], &["--memory", &memory, "--threads", "1"]].concat());
        Stopped::by("-KILL", little, || out.join("0/c/0/0").exists())
    };
    assert!((0..9).any(|_| killed().is_some()), "it ends before it is killed");
    assert!(!out.join("0/c/3/15").exists() && !out.join("1").exists());
    let refused = blur(&input, &out, &["--sigma", "0.5"]);
    assert!(refused.code == 1 && refused.err.contains("--resume goes on with it"), "{}", refused.err);
    let record = json(&blur(&input, &out, &[&more[..], &["--json"]].concat()).ok().out);
    assert!(record["boxes"]["filtered"].as_u64() > Some(0), "{record}");
    blur(&input, &expected, &more).ok();
    assert_same(&out, &expected);
    for name in ["zarr.json", "1/c/1/1"] {
        fs::remove_file(out.join(name)).unwrap();
    }
    blur(&input, &out, &more).ok();
    assert_same(&out, &expected);
    assert_eq!(Multiscale::open(&out).unwrap().levels().len(), 2);
}

/// Several blurs into one folder; two of one name are refused, and what one leaves that is killed is of its own name.
#[test]
fn at_once() {
    let scratch = Scratch::new();
    let (endless, small) = (scratch.join("endless.zarr"), scratch.join("small.npy"));
    empty_array(&endless, "|u1", &[1 << 20, 1 << 20], &[1 << 10, 1 << 10]);
    write_npy(&small, &[1.0f32; 12], [3, 4]).unwrap();
    let folder = scratch.join("out");
    let out = |name: &str| folder.join(name);
    // Once it writes, it holds nothing that others need.
    let begun = || folder.exists() && names(&folder).iter().any(|name| !names(&folder.join(name)).is_empty());
    let held = Stopped::by("-STOP", words(&endless, &out("a.zarr"), &["--sigma", "0.5"]), begun).unwrap();
    let other = blur(&small, &out("b.zarr"), &["--sigma", "0.5"]).ok();
    assert_eq!(other.err, "");
    for name in ["a.zarr", "a.npy"] {
        let second = blur(&small, &out(name), &["--sigma", "0.5"]);
        let words = "out: another run of teatime is writing a.run.json there";
        assert!(second.code == 1 && second.err.contains(words), "{name}: {}", second.err);
    }
    drop(held);
    assert_eq!(blur(&small, &out("c.npy"), &["--sigma", "0.5"]).ok().err, "");
    let next = blur(&small, &out("a.zarr"), &["--sigma", "0.5"]).ok();
    assert!(next.err.contains(".teatime.partial-a.") && next.err.contains("was killed"), "{}", next.err);
    let results = ["a.run.json", "a.zarr", "b.run.json", "b.zarr", "c.npy", "c.run.json"];
    assert_eq!(names(&folder)[1..], results);
}

/// A chunk that finds no room is named; what is done stays.
#[test]
fn no_room() {
    let scratch = Scratch::new();
    let [input, out, expected] = ["in.npy", "out.zarr", "expected.zarr"].map(|name| scratch.join(name));
    // Two chunks that zstd makes small, and two that it does not.
    let mut state = 1u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32
    };
    let values: Vec<f32> = (0..4 * 4096).map(|i| if i < 2 * 4096 { 1.0 } else { next() }).collect();
    write_npy(&input, &values, [256, 64]).unwrap();
    let memory = least(&input, &scratch, &["--chunks", "64,64"]);
    let more = ["--sigma", "0.5", "--chunks", "64,64", "--resume", "--memory", &memory];
    blur(&input, &expected, &more).ok();
    // A block of `ulimit` has 512 or 1,024 bytes.
    let mut limited = Command::new("sh");
    limited.args([
        "-c",
        "trap '' XFSZ; ulimit -f 10; exec \"$0\" \"$@\"",
        env!("CARGO_BIN_EXE_teatime"),
        "blur",
    ]);
    limited.args([&input, &out]).args(more).env("TEATIME_DEVICE", "cpu").stdin(Stdio::null());
    let ran = run(limited);
    assert!(ran.code == 1 && ran.err.contains("out.zarr/c/2/0"), "{}", ran.err);
    assert!(ran.err.contains("--resume goes on with it"), "{}", ran.err);
    assert_eq!(names(&out.join("c")), ["0", "1", "2"]);
    assert!(names(&out.join("c/2")).is_empty(), "{:?}", names(&out.join("c/2")));
    blur(&input, &out, &more).ok();
    for chunk in ["c/0/0", "c/1/0", "c/2/0", "c/3/0"] {
        assert!(fs::read(out.join(chunk)).unwrap() == fs::read(expected.join(chunk)).unwrap(), "{chunk}");
    }
}

/// `--resume` knows the input by its files, not by the words for its place; others are another job.
#[test]
fn another_input() {
    let scratch = Scratch::new();
    let (input, out) = (scratch.join("in.zarr"), scratch.join("out.zarr"));
    blur(&fixture("blur.npy"), &input, &["--sigma", "0", "--chunks", "23,31,1"]).ok();
    let more = ["--sigma", "0.5", "--resume"];
    blur(&input, &out, &more).ok();
    blur(&scratch.join("./in.zarr"), &out, &more).ok();
    fs::copy(input.join("c/0/0/1"), input.join("c/0/0/0")).unwrap();
    let ran = blur(&input, &out, &more);
    assert!(ran.code == 1 && ran.err.contains("another job"), "{}", ran.err);
}

/// A path of an image's metadata that begins with `/` is one within the image, also where there is such a folder beside it.
#[test]
fn another_level() {
    let scratch = Scratch::new();
    let [input, out, decoy] = ["in.zarr", "out.zarr", "decoy"].map(|name| scratch.join(name));
    image(&input);
    fs::create_dir(&decoy).unwrap();
    let level = input.join(decoy.strip_prefix("/").unwrap());
    fs::create_dir_all(level.parent().unwrap()).unwrap();
    fs::rename(input.join("0"), &level).unwrap();
    let mut metadata = json(&fs::read_to_string(input.join("zarr.json")).unwrap());
    let mut named = |path: &str| {
        metadata["attributes"]["ome"]["multiscales"][0]["datasets"][0]["path"] = path.into();
        fs::write(input.join("zarr.json"), metadata.to_string()).unwrap();
    };
    named(&decoy.display().to_string());
    let more = ["--sigma", "0.5", "--resume"];
    blur(&input, &out, &more).ok();
    fs::copy(level.join("c/0/1"), level.join("c/0/0")).unwrap();
    let ran = blur(&input, &out, &more);
    assert!(ran.code == 1 && ran.err.contains("another job"), "{}", ran.err);
    named("../decoy");
    let ran = blur(&input, &scratch.join("other.zarr"), &more);
    assert!(ran.code == 1 && ran.err.contains("datasets[0].path` is \"../decoy\""), "{}", ran.err);
}

/// A change of the input during the run is noticed at its end, and nothing stays.
#[test]
fn changed_meanwhile() {
    let scratch = Scratch::new();
    let changed = |nth: u32| {
        let [input, out] = ["in", "out"].map(|name| scratch.join(&format!("{name}{nth}.zarr")));
        empty_array(&input, "|u1", &[1 << 13, 1 << 13], &[1 << 8, 1 << 8]);
        let child =
            words(&input, &out, &["--sigma", "3"]).stderr(Stdio::piped()).stdout(Stdio::null()).spawn();
        let deadline = Instant::now() + Duration::from_secs(60);
        while !names(&scratch.join("")).iter().any(|name| name.contains("partial")) && !out.exists() {
            assert!(Instant::now() < deadline);
            sleep(Duration::from_millis(1));
        }
        fs::write(input.join("0.0"), vec![7; 1 << 16]).unwrap();
        let is_too_late = out.exists();
        let ran = child.unwrap().wait_with_output().unwrap();
        let error = String::from_utf8(ran.stderr).unwrap();
        assert!(is_too_late || error.contains("changed while it was read") && !out.exists(), "{error}");
        !is_too_late
    };
    assert!((0..5).any(changed), "it ends before the input is changed");
}

/// A file may have no byte: that is an error, and not the end of the process.
#[test]
fn no_file_may_grow() {
    let scratch = Scratch::new();
    let [input, out] = ["in.npy", "out/out.npy"].map(|name| scratch.join(name));
    write_npy(&input, &[1.0f32; 4096], [64, 64]).unwrap();
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 1; exec \"$0\" blur \"$@\" --sigma 1", env!("CARGO_BIN_EXE_teatime")]);
    limited.args([&input, &out]).env("TEATIME_DEVICE", "cpu").stdin(Stdio::null());
    let ran = run(limited);
    assert!(ran.code == 1 && ran.err.contains("out.npy"), "{} {}", ran.code, ran.err);
    assert_eq!(scratch.names(), ["in.npy"]);
}

/// Something with the name of a record or of an output is not waited for, and not read to an end that it does not have.
#[test]
fn outputs_that_are_no_files() {
    let scratch = Scratch::new();
    let input = scratch.join("in.npy");
    write_npy(&input, &[1.0f32; 12], [3, 4]).unwrap();
    for (place, words) in [
        ("a.run.json", "holds a.run.json"),
        ("a.zarr/.zattrs", "holds a.zarr"),
        (".teatime.partial-a.x", ""),
        ("a.npy", "holds a.npy"),
    ] {
        for is_endless in [false, true] {
            let folder = scratch.join(&format!("{}{is_endless}", place.replace('/', "")));
            let place = folder.join(place);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            if is_endless {
                std::os::unix::fs::symlink("/dev/zero", &place).unwrap();
            } else {
                assert!(Command::new("mkfifo").arg(&place).status().unwrap().success());
            }
            let mut timed = Command::new("timeout");
            timed.args([
                "--signal=KILL",
                "20",
                env!("CARGO_BIN_EXE_teatime"),
                "blur",
                "--sigma",
                "1",
                "--overwrite",
            ]);
            let out = if place.ends_with(".zattrs") { "a.zarr" } else { "a.npy" };
            timed.args([&input, &folder.join(out)]).env("TEATIME_DEVICE", "cpu").stdin(Stdio::null());
            let ran = run(timed);
            let expected = i32::from(!words.is_empty());
            assert!(
                ran.code == expected && ran.err.contains(words),
                "{}: {} {}",
                place.display(),
                ran.code,
                ran.err
            );
        }
    }
}
