//! The folder of results among signals and other runs.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use crate::support::{Ran, Scratch, command, copy, fixture, json, names, on_store, pca, plain_array, rows};

/// A command that is at work, by what it makes.
struct Busy(Child);

impl Busy {
    /// Starts it and waits until `busy`.
    fn start(mut command: Command, busy: impl Fn() -> bool) -> Self {
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut started = Self(child.expect("the binary should start"));
        let deadline = Instant::now() + Duration::from_secs(60);
        while !busy() {
            assert!(started.ended().is_none(), "the command ended before it was busy");
            assert!(Instant::now() < deadline);
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
        started
    }

    fn ended(&mut self) -> Option<ExitStatus> {
        self.0.try_wait().expect("a child can be waited for")
    }

    fn signal(&self, signal: &str) {
        let kill = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
        assert!(kill.expect("there should be a kill command").success());
    }

    fn wait(mut self) -> std::process::Output {
        let deadline = Instant::now() + Duration::from_secs(60);
        while self.ended().is_none() {
            if Instant::now() > deadline {
                self.0.kill().expect("a child can be killed");
                panic!("it does not end");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.0.wait_with_output().expect("it should have ended")
    }
}

/// A command that heeds signals, even where the tests run in the background of a script, which has them ignored.
fn heeding<I: IntoIterator<Item: AsRef<std::ffi::OsStr>>>(args: I) -> Command {
    if !cfg!(target_os = "linux") {
        return command(args);
    }
    let mut heeding = Command::new("env");
    heeding.args(["--default-signal=INT,TERM,HUP", env!("CARGO_BIN_EXE_teatime")]).args(args);
    heeding.env("TEATIME_DEVICE", "cpu").stdin(Stdio::null());
    heeding
}

/// A PCA of more variants than any machine reads in the time of a test.
fn long_pca(out: &Path) -> Vec<OsString> {
    let store = fixture("all_v3.vcz").into_os_string();
    let more = ["--method".into(), "exact".into(), "--out".into(), out.into(), "--overwrite".into()];
    [vec!["pca".into()], vec![store; 5000], more.into()].concat()
}

fn hidden(out: &Path) -> usize {
    names(out).iter().filter(|name| name.starts_with('.')).count()
}

#[test]
fn signals_leave_nothing_of_a_pca() {
    for (signal, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let scratch = Scratch::new();
        let run = Busy::start(heeding(long_pca(&scratch.join("out"))), || !scratch.names().is_empty());
        run.signal(signal);
        let ran = Ran::from(run.wait());
        assert_eq!((ran.code, ran.err.trim()), (code, "interrupted"), "{signal}");
        assert!(scratch.names().is_empty(), "{signal}: {:?}", scratch.names());
    }
}

#[test]
fn an_interrupt_leaves_nothing_of_a_demo() {
    let scratch = Scratch::new();
    let out = scratch.join("new/demo");
    let args = ["demo", "--out", &out.to_string_lossy(), "--variants", "3000000"];
    let chunks = || out.exists() && names(&out).iter().any(|name| !names(&out.join(name)).is_empty());
    let run = Busy::start(heeding(args), chunks);
    run.signal("-INT");
    let ran = Ran::from(run.wait());
    assert_eq!((ran.code, ran.err.trim()), (130, "interrupted"));
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

/// As under `nohup`, on systems that tell.
#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_is_ignored_stays_ignored() {
    let scratch = Scratch::new();
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_teatime")]);
    shell.args(long_pca(&scratch.join("out"))).env("TEATIME_DEVICE", "cpu");
    let mut run = Busy::start(shell, || !scratch.names().is_empty());
    run.signal("-HUP");
    std::thread::sleep(Duration::from_millis(300));
    assert!(run.ended().is_none());
    run.signal("-TERM");
    assert_eq!(Ran::from(run.wait()).code, 143);
    assert!(scratch.names().is_empty(), "{:?}", scratch.names());
}

#[test]
fn after_a_kill_the_next_run_works() {
    let scratch = Scratch::new();
    let (out, store) = (scratch.join("out"), fixture("all_v3.vcz"));
    pca(&store, &out, &["-k", "3"]).ok();
    let before = fs::read(out.join("scores.tsv")).unwrap();
    let run = Busy::start(command(long_pca(&out)), || hidden(&out) > 0);
    run.signal("-KILL");
    assert_eq!(run.wait().status.code(), None);
    assert_eq!(fs::read(out.join("scores.tsv")).unwrap(), before);
    let left = names(&out).into_iter().find(|name| name.starts_with('.')).unwrap();
    let ran = pca(&store, &out, &["-k", "2", "--overwrite"]).ok();
    let warning = format!("warning: {}: `{left}` left by a run that was killed", out.display());
    assert!(ran.err.starts_with(&warning), "{}", ran.err);
    assert!(fs::read_to_string(out.join("run.json")).unwrap().contains("left by a run that was killed"));
    assert_eq!(rows(&out.join("scores.tsv"))[0].len(), 3);
    assert!(out.join(left).exists(), "it may be of a run on another machine");
}

/// The components that were computed are not lost because a later variant has no place.
#[test]
fn an_error_in_the_loadings_keeps_the_components() {
    let scratch = Scratch::new();
    let (out, store) = (scratch.join("out"), scratch.join("store.vcz"));
    copy(&fixture("all_v3.vcz"), &store);
    fs::remove_dir_all(store.join("variant_position")).unwrap();
    let positions = (0..239).chain([-1_i32]).flat_map(i32::to_le_bytes).collect::<Vec<_>>();
    plain_array(&store.join("variant_position"), "<i4", &[240], &positions);
    let ran = pca(&store, &out, &["--loadings", "--threads", "1"]);
    let all = names(&out);
    let [left] = &all[..] else { panic!("{all:?}") };
    let left = out.join(left);
    let words = format!("; the results so far are in {}\n", left.display());
    assert!(ran.code == 1 && ran.err.contains("variant 239 is at position -1"), "{}", ran.err);
    assert!(ran.err.ends_with(&words), "{}", ran.err);
    pca(&store, &scratch.join("whole"), &["--threads", "1"]).ok();
    for name in ["scores.tsv", "pca.eigenvec", "pca.eigenval", "eigenvalues.tsv"] {
        let read = |folder: &Path| fs::read(folder.join(name)).unwrap();
        assert!(read(&left) == read(&scratch.join("whole")), "{name}");
    }
    assert_eq!(
        names(&left).iter().filter(|name| ["run.json", "loadings.tsv.gz"].contains(&&***name)).count(),
        0
    );
}

#[test]
fn runs_at_once_do_not_mix_their_files() {
    let scratch = Scratch::new();
    let (out, store) = (scratch.join("out"), fixture("all_v3.vcz"));
    for round in 0..3 {
        let start = |k: usize| {
            let mut command = on_store("pca", &store, &out, &["--overwrite", "-k", &k.to_string()]);
            command.args(k.is_multiple_of(2).then_some("--loadings"));
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary should start")
        };
        let runs: Vec<Child> = (1..=4).map(|i| start(round + i)).collect();
        let ran: Vec<Ran> = runs.into_iter().map(|run| run.wait_with_output().unwrap().into()).collect();
        assert!(ran.iter().any(|ran| ran.code == 0));
        for ran in ran.iter().filter(|ran| ran.code != 0) {
            assert!(ran.code == 1 && ran.err.contains("another run"), "{}", ran.err);
        }
        let record = json(&fs::read_to_string(out.join("run.json")).unwrap());
        let k = usize::try_from(record["shape"]["components"].as_u64().unwrap()).unwrap();
        assert_eq!(rows(&out.join("scores.tsv"))[0].len(), k + 1);
        assert_eq!(rows(&out.join("pca.eigenvec"))[0].len(), k + 1);
        assert_eq!(rows(&out.join("eigenvalues.tsv")).len(), k);
        assert_eq!(fs::read_to_string(out.join("pca.eigenval")).unwrap().lines().count(), k);
        assert_eq!(out.join("loadings.tsv.gz").exists(), k.is_multiple_of(2));
        let mut files: Vec<_> =
            record["files"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        files.sort_unstable();
        assert_eq!(names(&out), files);
    }
}
