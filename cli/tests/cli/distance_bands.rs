//! `teatime distance` for some samples at a time, and runs that go on where others were stopped.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::support::{Ran, Scratch, fixture, json, names, on_store, run};

/// Squares have sides of 1024 samples: three of them.
const SAMPLES: usize = 2500;
const VARIANTS: usize = 40;

/// PLINK files of calls that look random.
fn cohort(scratch: &Scratch) -> PathBuf {
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    fs::write(scratch.join("c.fam"), lines(SAMPLES, &|i| format!("F{i}\tS{i}\t0\t0\t0\t-9\n"))).unwrap();
    fs::write(scratch.join("c.bim"), lines(VARIANTS, &|i| format!("1\tv{i}\t0\t{}\tA\tG\n", i + 1))).unwrap();
    let mut state = 1u32;
    let calls = (0..VARIANTS * SAMPLES / 4).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    fs::write(scratch.join("c.bed"), [0x6c, 0x1b, 1].into_iter().chain(calls).collect::<Vec<u8>>()).unwrap();
    scratch.join("c.bed")
}

fn distance(store: &Path, out: &Path, more: &[&str]) -> Ran {
    run(on_store("distance", store, out, &[&["--metric", "cityblock", "--threads", "2"], more].concat()))
}

/// The files of a folder and of those in it.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let name = PathBuf::from(path.file_name().unwrap());
        if path.is_dir() {
            found.extend(files(&path).into_iter().map(|(key, bytes)| (name.join(key), bytes)));
        } else {
            found.insert(name, fs::read(&path).unwrap());
        }
    }
    found
}

/// The least memory that a refused run names.
fn least(ran: &Ran) -> String {
    assert_eq!(ran.code, 1, "{}", ran.err);
    let (_, least) = ran.err.split_once("--memory ").unwrap_or_else(|| panic!("{}", ran.err));
    least.split(')').next().unwrap().to_owned()
}

#[test]
fn stopped_runs_are_gone_on_with() {
    let scratch = Scratch::new();
    let bed = cohort(&scratch);
    let [whole, killed, matrix] = ["whole.zarr", "killed.zarr", "m.npy"].map(|name| scratch.join(name));
    let record = json(&distance(&bed, &whole, &["--resume", "--json"]).ok().out);
    assert_eq!(record["bands"], serde_json::json!({ "computed": 1, "squares": 9, "found": 0 }));
    assert_eq!(record["files"], serde_json::json!(["whole.run.json", "whole.zarr"]));
    // The least for one square's width, which the whole matrix does not fit.
    let small = least(&distance(&bed, &killed, &["--resume", "--memory", "1M"]));
    assert_eq!(least(&distance(&bed, &killed, &["--memory", "1M"])), small);
    let more = least(&distance(&bed, &matrix, &["--memory", &small]));
    assert!(small.parse::<u64>().unwrap() < more.parse().unwrap(), "{small} {more}");
    // Without --resume, and killed.
    let mut child =
        on_store("distance", &bed, &killed, &["--metric", "cityblock", "--threads", "2", "--memory", &small])
            .spawn()
            .unwrap();
    let started = Instant::now();
    // Without metadata, and what is not whole.
    let squares = || {
        let names = fs::read_dir(killed.join("distance")).into_iter().flatten().flatten();
        names.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
    };
    while squares() < 2 && child.try_wait().unwrap().is_none() {
        assert!(started.elapsed() < Duration::from_secs(60), "it writes nothing");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(squares() < 9 && !scratch.join("killed.run.json").exists());
    for more in [&[][..], &["--overwrite"]] {
        let refused = distance(&bed, &killed, more);
        assert!(refused.code == 1 && refused.err.contains("--resume goes on with it"), "{}", refused.err);
    }
    let other = distance(&bed, &killed, &["--resume", "--maf", "0.3"]);
    assert!(other.code == 1 && other.err.contains("is of another job"), "{}", other.err);
    let page = distance(&bed, &killed, &["--resume", "--memory", &small]).ok().out;
    assert!(page.contains("9 squares of each array; ") && page.contains(" were there"), "{page}");
    assert!(files(&killed) == files(&whole));
    // Once more: nothing is left to do, and the record is new.
    let record = json(&distance(&bed, &killed, &["--resume", "--json"]).ok().out);
    assert_eq!(record["bands"], serde_json::json!({ "computed": 0, "squares": 9, "found": 18 }));
    let refused = distance(&bed, &killed, &["--overwrite", "--memory", &small]);
    assert!(refused.code == 1 && refused.err.contains("move them away"), "{}", refused.err);
    assert!(files(&killed) == files(&whole));
}

#[test]
fn what_cannot_be_resumed_is_named() {
    let scratch = Scratch::new();
    let says = |out: &str, more: &[&str], code: i32, words: &str| {
        let ran = run(on_store("distance", &fixture("all_v3.vcz"), &scratch.join(out), more));
        assert!(ran.code == code && ran.err.contains(words), "{} {}", ran.code, ran.err);
        assert!(scratch.names().is_empty(), "{:?} is left", scratch.names());
    };
    says("x.npy", &["--resume"], 2, "--resume is for a .zarr alone");
    says("x.zarr", &["--resume", "--overwrite"], 2, "cannot be used with");
    says("x.zarr", &["--resume", "--tree", "ward"], 2, "cannot be used with");
    says("x.zarr", &["--resume", "--metric", "canberra"], 1, "--metric: canberra is computed in f32");
    // The least is that of the whole matrix where bands do not help.
    says("x.zarr", &["--metric", "canberra", "--memory", "1K"], 1, "at least");
    // A folder that is not ours stays as it is.
    let mine = scratch.join("mine.zarr");
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join("notes.txt"), "").unwrap();
    let ran = run(on_store("distance", &fixture("all_v3.vcz"), &mine, &["--resume"]));
    assert!(
        ran.code == 1 && ran.err.contains("mine.zarr: is there, and has no array `distance`"),
        "{}",
        ran.err
    );
    assert_eq!((names(&mine), scratch.names()), (vec!["notes.txt".into()], vec!["mine.zarr".into()]));
}
