//! `./run flight` of a bundle whose suite is a script that crashes, hangs and floods, on the cpu device.
#![cfg(unix)]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Command};

use tempfile::TempDir;

/// The pieces that the help names.
const PIECES: [&str; 14] = [
    "devices", "suite", "rates", "headline", "group", "pairs", "dense", "profile", "missing", "switches",
    "startup", "bed", "bench", "sanitize",
];

/// A suite that lists its modules, or is killed before it does if they are `broken`. Those of `suite` are four or MODULES, and those of
/// `suite_of_genotypes` one or OTHERS. The module crash is killed by a signal, flood writes 30 MB and slow never ends.
const SUITE: &str = r#"#!/usr/bin/env bash
suite=$(basename "$0") modules=${MODULES-brief crash flood last}
[ "$suite" = suite ] || modules=${OTHERS-beside}
result='test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s'
case " $* " in
    *" --list "*)
        [ "$modules" != broken ] || kill -SEGV $$
        for module in $modules; do echo "$suite::$module::on_cpu::test: test"; done
        ;;
    *::crash::*) echo "test $suite::crash::on_cpu::test ... "; kill -SEGV $$ ;;
    *::flood::*) head -c 30000000 /dev/urandom | base64; echo "$result" ;;
    *::slow::*) sleep 600 ;;
    *) echo "$result" ;;
esac
"#;

/// A bundle in a folder of its own.
struct Bundle(TempDir);

impl Bundle {
    fn new() -> Self {
        let bundle = Self(tempfile::tempdir().expect("the temporary folder should be writable"));
        let folder = bundle.folder();
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
        for (from, to) in [("gpu-bundle-run", "run"), ("gpu-bundle-flight", "flight")] {
            fs::copy(scripts.join(from), folder.join(to)).expect("the script should be there");
        }
        // A symbolic link would not do: the program looks for others beside itself.
        let (built, bench) = (env!("CARGO_BIN_EXE_teatime-bench"), folder.join("teatime-bench"));
        let placed = fs::hard_link(built, &bench).or_else(|_| fs::copy(built, &bench).map(drop));
        placed.expect("the program should be there");
        fs::write(folder.join("BUNDLE"), "a bundle for tests\n").expect("the folder should be writable");
        for suite in ["suite", "suite_of_genotypes"] {
            bundle.program(suite, SUITE);
        }
        bundle.program("teatime", "#!/bin/sh\necho \"teatime $*\"\n");
        bundle
    }

    fn folder(&self) -> &Path {
        self.0.path()
    }

    /// Writes a script in place of a program.
    fn program(&self, name: &str, text: &str) {
        let path = self.folder().join(name);
        fs::write(&path, text).expect("the folder should be writable");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it should be ours");
    }

    /// Compresses the programs, which `scripts/gpu-bundle` also does.
    fn compress(&self) {
        // The program has to be a copy. If other tests link it meanwhile, tar says that it changed, and fails.
        let bench = self.folder().join("teatime-bench");
        fs::remove_file(&bench).expect("the program should be there");
        fs::copy(env!("CARGO_BIN_EXE_teatime-bench"), &bench).expect("the folder should be writable");
        let programs = ["suite", "suite_of_genotypes", "teatime", "teatime-bench"];
        let mut tar = Command::new("tar");
        tar.args(["-czf", "programs.tar.gz", "--remove-files"]).args(programs).current_dir(self.folder());
        assert!(tar.status().expect("tar should start").success());
    }

    /// Returns the exit status and the output of `./run flight`.
    fn flight(&self, args: &[&str], modules: Option<&str>) -> (Option<i32>, String) {
        let mut command = Command::new("bash");
        command.arg(self.folder().join("run")).arg("flight").args(args).current_dir(self.folder());
        command.args(["--device", "cpu", "--seconds", "1"]);
        if let Some(modules) = modules {
            command.env("MODULES", modules).env("OTHERS", "");
        }
        let output = command.output().expect("bash should start");
        let said = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        (output.status.code(), said.concat())
    }

    fn archive(&self) -> u64 {
        fs::metadata(self.folder().join("results/flight.tar.gz")).map_or(0, |file| file.len())
    }
}

#[test]
fn a_module_that_crashes_hides_no_other() {
    let bundle = Bundle::new();
    bundle.compress();
    let (code, said) = bundle.flight(&["suite"], None);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("FAILED suite-cpu, module crash: killed by signal 11"), "{said}");
    assert!(said.contains("suite-cpu: 4 tests passed, 1 modules failed"), "{said}");
    assert!(!said.contains("SKIP suite on cuda") && said.contains("FAILED   suite"), "{said}");
    let all = fs::read_dir(bundle.folder().join("results")).expect("there should be results");
    let bytes: u64 = all.filter_map(|file| Some(file.ok()?.metadata().ok()?.len())).sum();
    let archive = bundle.archive();
    assert!(bytes > 40_000_000 && (1..1_000_000).contains(&archive), "{bytes}, {archive}");
}

#[test]
fn a_suite_without_tests_fails() {
    for (modules, reason) in [
        ("", "FAILED suite on cpu: the suite lists no test"),
        ("broken", "FAILED suite: its list of tests: killed by signal 11"),
    ] {
        let bundle = Bundle::new();
        let (code, said) = bundle.flight(&["suite"], Some(modules));
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(reason) && said.contains("FAILED   suite"), "{said}");
        assert!(!said.contains("tests passed"), "{said}");
    }
}

#[test]
fn an_archive_that_cannot_be_written_is_said() {
    let bundle = Bundle::new();
    let (code, said) = bundle.flight(&["suite", "--archive", "new/folder/a.tar.gz"], Some("brief"));
    assert_eq!(code, Some(0), "{said}");
    assert!(bundle.folder().join("new/folder/a.tar.gz").exists(), "{said}");
    let (code, said) = bundle.flight(&["suite", "--archive", "BUNDLE/a.tar.gz"], Some("brief"));
    assert_eq!(code, Some(1), "{said}");
    let kept = said.split("FAILED archive: it stays in ").nth(1).and_then(|rest| rest.lines().next());
    let kept = Path::new(kept.expect("it should be said"));
    assert!(kept.join("flight.tar.gz").exists(), "{said}");
    fs::remove_dir_all(kept).expect("the folder should be ours");
}

#[test]
fn what_there_is_no_time_for_is_named() {
    let bundle = Bundle::new();
    let (code, said) = bundle.flight(&["suite", "--limit", "8"], Some("brief slow then"));
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("suite-cpu: 1 tests passed, 0 modules failed; no time for: slow then"), "{said}");
}

/// The smallest file is decomposed however long it takes.
#[test]
fn a_command_line_that_takes_long_gets_no_larger_file() {
    let bundle = Bundle::new();
    bundle.program("teatime", "#!/bin/sh\nsleep 0.3\n");
    let (code, said) = bundle.flight(&["startup"], None);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("teatime pca of 1650x1000, warm"), "{said}");
    let skipped = said.lines().find(|line| line.contains("teatime pca of 16500x1000"));
    assert!(skipped.is_some_and(|line| line.contains("skipped: it would take about")), "{said}");
    assert!(!said.contains("teatime pca of 165000x1000"), "{said}");
}

#[test]
fn many_long_logs_leave_an_archive_that_travels() {
    let bundle = Bundle::new();
    let results = bundle.folder().join("results");
    fs::create_dir(&results).expect("the folder should be writable");
    let mut state = 1u64;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    let noise: Vec<u8> = (0..20 << 20).map(|_| byte()).collect();
    for (i, part) in noise.chunks(120_000).enumerate() {
        fs::write(results.join(format!("suite-cpu-{i}.log")), part).expect("the folder should be writable");
    }
    let (code, said) = bundle.flight(&["devices"], None);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("the archive has no logs") && (1..16 << 20).contains(&bundle.archive()), "{said}");
}

/// The three calls have all pieces. The first takes at most 7 minutes; a loan of 15 minutes, of which the start of a machine takes up to 3, holds
/// the first two, and another the third.
#[test]
fn three_calls_have_all_pieces() {
    let bundle = Bundle::new();
    let script = fs::read_to_string(bundle.folder().join("flight")).expect("the script should be there");
    let (mut pieces, mut taken) = (Vec::new(), Vec::new());
    for call in ["first", "second", "third"] {
        let line = script.lines().find_map(|line| line.strip_prefix(&format!("{call}=\"")));
        let entries = line.expect("the call should be there").trim_end_matches('"').split(' ');
        // The archive takes some seconds, too.
        let mut seconds = 20;
        for entry in entries {
            let (piece, most) = entry.split_once(':').expect("a piece and its seconds");
            seconds += most.parse::<u32>().expect("a number of seconds");
            pieces.push(piece);
        }
        taken.push(seconds);
    }
    let [first, second, third] = taken[..] else { panic!("{taken:?}") };
    assert!(first <= 7 * 60 && second <= 330 && third <= 9 * 60, "{taken:?}");
    pieces.sort_unstable();
    let mut all = PIECES;
    all.sort_unstable();
    assert_eq!(pieces, all);
}

#[test]
fn every_piece_runs_by_itself() {
    let bundle = Bundle::new();
    let mut help = Command::new("bash");
    let help = help.arg(bundle.folder().join("run")).arg("--help").output().expect("bash should start");
    let help = String::from_utf8_lossy(&help.stdout).into_owned();
    for piece in PIECES {
        assert!(help.contains(piece), "{piece}");
        let archive = bundle.folder().join(format!("{piece}.tar.gz"));
        let archive = archive.to_str().expect("the folder's name should be UTF-8");
        let args = [piece, "--archive", archive, "--limit", "300"];
        let (code, said) = bundle.flight(&args, Some("brief last"));
        // Without a CUDA device, nothing can be profiled, checked or shared.
        let is_skipped = matches!(piece, "profile" | "sanitize" | "group");
        let (expected, status) = if is_skipped { (3, "SKIPPED  ") } else { (0, "done     ") };
        assert_eq!(code, Some(expected), "{piece}: {said}");
        assert!(said.contains(&format!("== flight: {piece}")), "{said}");
        assert!(said.contains(&format!("{status}{piece}")), "{said}");
        assert!(fs::metadata(archive).is_ok_and(|file| file.len() > 0), "{piece}");
        assert!(!said.contains("FAILED"), "{said}");
    }
}
