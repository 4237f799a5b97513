//! Tests of `teatime distance` in bands of samples, and of resumed runs.

use std::fs;

use serde_json::json;

use crate::support::{Busy, Scratch, assert_has, files};

/// The number of samples: three squares on a side, each up to 1,024 samples wide.
const SAMPLES: usize = 2500;
const VARIANTS: usize = 40;

/// Writes PLINK files of calls that look random.
fn cohort(scratch: &Scratch) {
    let lines = |count: usize, line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    scratch.write("c.fam", lines(SAMPLES, &|i| format!("F{i}\tS{i}\t0\t0\t0\t-9\n")));
    scratch.write("c.bim", lines(VARIANTS, &|i| format!("1\tv{i}\t0\t{}\tA\tG\n", i + 1)));
    let mut state = 1u32;
    let calls = (0..VARIANTS * SAMPLES / 4).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    });
    scratch.write("c.bed", [0x6c, 0x1b, 1].into_iter().chain(calls).collect::<Vec<u8>>());
}

#[test]
fn stopped_runs_are_gone_on_with() {
    let scratch = Scratch::new();
    cohort(&scratch);
    let words =
        |out: &str, more: &str| format!("distance c.bed --out {out} --metric cityblock --threads 2 {more}");
    let record = scratch.record(&words("whole.zarr", "--resume"));
    assert_eq!(record["bands"], json!({ "computed": 1, "squares": 9, "found": 0 }));
    assert_eq!(record["files"], json!(["whole.run.json", "whole.zarr"]));
    // `small` is the least memory for bands as wide as one square, too little for the whole matrix.
    let small = scratch.least(&words("killed.zarr", "--resume --memory 1M"));
    assert_eq!(scratch.least(&words("killed.zarr", "--memory 1M")), small);
    assert!(small < scratch.least(&words("m.npy", &format!("--memory {small}"))));
    let small = format!("--memory {small}");
    // Counts complete squares, without metadata and partial files.
    let squares = || {
        let names = fs::read_dir(scratch.join("killed.zarr/distance")).into_iter().flatten().flatten();
        names.filter(|entry| !entry.file_name().to_string_lossy().starts_with('.')).count()
    };
    // This run has no --resume, and is killed.
    let run = Busy::start(scratch.command(&words("killed.zarr", &small)), || squares() > 1);
    assert!(run.is_some_and(Busy::kill) && squares() < 9 && !scratch.join("killed.run.json").exists());
    for more in ["", "--overwrite"] {
        scratch.refused(&words("killed.zarr", more), 1, &["--resume goes on with it"]);
    }
    scratch.refused(&words("killed.zarr", "--resume --maf 0.3"), 1, &["is of another job"]);
    let page = scratch.ok(&words("killed.zarr", &format!("--resume {small}"))).out;
    assert_has(&page, &["9 squares of each array; ", " were there"]);
    let [killed, whole] = ["killed.zarr", "whole.zarr"].map(|name| files(&scratch.join(name)));
    assert!(killed == whole);
    // A further run has nothing left to compute, and writes a new record.
    let record = scratch.record(&words("killed.zarr", "--resume"));
    assert_eq!(record["bands"], json!({ "computed": 0, "squares": 9, "found": 18 }));
    scratch.refused(&words("killed.zarr", &format!("--overwrite {small}")), 1, &["move them away"]);
    assert!(files(&scratch.join("killed.zarr")) == whole);
}
