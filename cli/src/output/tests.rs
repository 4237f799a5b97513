//! Tests of the contents of a folder of results after a run ends in each way.

use std::sync::RwLock;

use super::*;

const SCORES: &str = "scores.tsv";
const EIGENVEC: &str = "pca.eigenvec";
const EIGENVAL: &str = "pca.eigenval";
const PLOT: &str = "pca.svg";
const RESULTS: [&str; 5] = [RECORD, EIGENVEC, EIGENVAL, SCORES, PLOT];

/// A test that starts processes holds this for writing: until a child runs its own program, it holds the locks of all runs of this process.
static STARTS: RwLock<()> = RwLock::new(());

fn prepare(target: &Path, overwrite: bool) -> Result<Output, String> {
    Output::begin(target, "pca", &RESULTS, &[], overwrite).map_err(|failure| failure.to_string())
}

/// Writes files that hold `text`, and a record that lists them.
fn fill(output: &Output, names: &[&str], text: &str) {
    for name in names {
        output.put(name, |file| write!(file, "{text}")).unwrap();
    }
    let record = serde_json::json!({ "command": "pca", "files": output.files(), "text": text });
    output.put(RECORD, |file| write!(file, "{record}")).unwrap();
}

fn run(target: &Path, names: &[&str], text: &str) {
    let output = prepare(target, true).unwrap();
    fill(&output, names, text);
    output.move_all().unwrap();
}

/// Returns the names and the texts of the files in a folder, sorted by name.
fn contents(folder: &Path) -> Vec<(String, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let content =
        |entry: fs::DirEntry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()));
    let mut all: Vec<_> = entries.map(content).map(|(name, text)| (name, text.unwrap())).collect();
    all.sort();
    all
}

fn names_in(folder: &Path) -> Vec<String> {
    contents(folder).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_dropped_output_leaves_nothing() {
    let _no_starts = STARTS.read().unwrap();
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("a/b/out");
    let output = prepare(&target, false).unwrap();
    output.put(SCORES, |file| writeln!(file, "x")).unwrap();
    assert!(output.path(SCORES).exists() && !target.join(SCORES).exists());
    drop(output);
    assert!(!root.path().join("a").exists());

    let output = prepare(&target, false).unwrap();
    fill(&output, &[SCORES], "x");
    output.move_all().unwrap();
    assert_eq!(names_in(&target), [RECORD, SCORES]);
    fs::write(target.join("mine.txt"), "mine").unwrap();
    assert!(prepare(&target, false).is_err());
    run(&target, &[EIGENVEC], "y");
    assert_eq!(names_in(&target), ["mine.txt", EIGENVEC, RECORD], "stale results go, other files stay");
}

/// Another run may be working on another machine.
#[test]
fn folders_of_other_runs_stay() {
    let _no_starts = STARTS.read().unwrap();
    let root = tempfile::tempdir().unwrap();
    let (target, other) = (root.path().join("out"), root.path().join("out/.teatime.partial-other"));
    assert_eq!(left(&target, RECORD), None);
    fs::create_dir_all(&other).unwrap();
    fs::write(other.join(SCORES), "busy").unwrap();
    run(&target, &[SCORES], "x");
    drop(prepare(&target, true));
    assert_eq!(contents(&other), [(SCORES.to_owned(), "busy".to_owned())]);
    let left = left(&target, RECORD).unwrap();
    assert!(left.contains("`.teatime.partial-other` left by a run") && !left.contains(ASIDE), "{left}");
}

/// The environment variable that is set in the process of a run that is to be killed, and in no other.
const DIES: &str = "TEATIME_TEST_DIES_BEFORE_MOVE";

/// Ends the process before one of the last moves of files.
pub(crate) fn may_die(move_: usize) {
    if std::env::var(DIES).is_ok_and(|at| at == move_.to_string()) {
        std::process::abort();
    }
}

/// Starts a run that another test kills during its last steps. Does nothing if the test harness starts it.
#[test]
fn killed() {
    if let Some(target) = std::env::var_os("TEATIME_TEST_TARGET") {
        run(Path::new(&target), &[SCORES, EIGENVEC], "new");
    }
}

#[test]
fn after_a_kill_among_the_last_steps_earlier_results_come_back() {
    let _alone = STARTS.write().unwrap();
    // Three files are moved aside, then two files and the record are moved in.
    for at in 0..=6 {
        let root = tempfile::tempdir().unwrap();
        let target = root.path().join("out");
        run(&target, &[SCORES, EIGENVEC], "old");
        let before = contents(&target);
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "output::tests::killed"]).env("TEATIME_TEST_TARGET", &target);
        let ended = child.env(DIES, at.to_string()).output().unwrap();
        assert_eq!(ended.status.success(), at == 6, "{ended:?}");
        let said = left(&target, RECORD);
        if at == 6 {
            assert!(said.is_none() && contents(&target)[0].1 == "new");
            continue;
        }
        let said = said.unwrap();
        let entries = fs::read_dir(&target).unwrap().map(|entry| entry.unwrap().path());
        let scratch = entries.into_iter().find(|path| path.is_dir()).unwrap();
        let aside = scratch.join(ASIDE);
        assert_eq!(said.contains(&*aside.to_string_lossy()), at > 0, "{said}");
        if let Err(why) = prepare(&target, true) {
            assert!(at > 0 && why.contains(&said), "{why}");
        }
        // Follows the message's advice.
        for entry in fs::read_dir(&aside).unwrap() {
            let path = entry.unwrap().path();
            fs::rename(&path, target.join(path.file_name().unwrap())).unwrap();
        }
        fs::remove_dir_all(scratch).unwrap();
        assert_eq!(contents(&target), before, "{at}");
        drop(prepare(&target, true).unwrap());
    }
}

#[test]
fn only_what_the_record_lists_gives_way() {
    let _no_starts = STARTS.read().unwrap();
    let root = tempfile::tempdir().unwrap();
    let mine = |names: &[(&str, &str)], word: &str| {
        let target = root.path().join(word);
        fs::create_dir(&target).unwrap();
        names.iter().for_each(|(name, text)| fs::write(target.join(name), text).unwrap());
        let before = contents(&target);
        for overwrite in [false, true] {
            let why = prepare(&target, overwrite).unwrap_err();
            assert!(why.contains(&format!("holds {word}, which no run.json")), "{why}");
        }
        assert_eq!(contents(&target), before);
    };
    mine(&[(SCORES, "mine")], SCORES);
    mine(&[(RECORD, "{\"name\": \"mine\"}")], RECORD);
    mine(&[(RECORD, "{\"command\": \"pca\", \"files\": [\"run.json\"]}"), (PLOT, "mine")], PLOT);
    // A file that is no result is not replaced either, whatever a record says.
    let target = root.path().join("out");
    fs::create_dir(&target).unwrap();
    fs::write(target.join("mine.txt"), "mine").unwrap();
    fs::write(target.join(RECORD), r#"{"command": "pca", "files": ["run.json", "mine.txt"]}"#).unwrap();
    run(&target, &[SCORES], "x");
    assert_eq!(names_in(&target), ["mine.txt", RECORD, SCORES]);
}

#[test]
fn a_failure_among_the_last_steps_brings_the_earlier_results_back() {
    let _no_starts = STARTS.read().unwrap();
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("out");
    run(&target, &[SCORES, EIGENVEC, EIGENVAL], "old");
    let mut before = contents(&target);
    let output = prepare(&target, true).unwrap();
    fill(&output, &[SCORES, EIGENVEC, EIGENVAL, PLOT], "new");
    fs::write(target.join(PLOT), "mine").unwrap();
    let why = output.move_all().unwrap_err().to_string();
    assert!(why.contains(PLOT) && why.contains("exists"), "{why}");
    // The new results stay in the scratch folder.
    let (_, scratch) = why.split_once("the results so far are in ").unwrap();
    let new: Vec<_> = contents(Path::new(scratch)).into_iter().filter(|(_, text)| text == "new").collect();
    assert_eq!(new.len(), 4, "{new:?}");
    assert_eq!(names_in(Path::new(scratch)).len(), 5);
    fs::remove_dir_all(scratch).unwrap();
    before.push((PLOT.into(), "mine".into()));
    before.sort();
    assert_eq!(contents(&target), before);
}

/// The test acts like a disk that fails between a move and its undoing.
#[test]
fn earlier_results_that_cannot_go_back_are_named() {
    let _no_starts = STARTS.read().unwrap();
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("out");
    run(&target, &[SCORES], "old");
    let output = prepare(&target, true).unwrap();
    fill(&output, &[SCORES], "new");
    let mut moves = Moves::default();
    output.move_in(&mut moves).unwrap();
    // Something else now has the record's place.
    fs::create_dir_all(output.path(RECORD).join("other")).unwrap();
    let undone = moves.undo();
    let why = output.keep_both(Failure::Error("broken".into()), undone.is_ok()).to_string();
    let (_, named) = why.split_once("broken; the results so far are in ").unwrap();
    let (scratch, aside) = named.split_once(", earlier ones in ").unwrap();
    assert_eq!(Path::new(aside), Path::new(scratch).join(ASIDE));
    let old = contents(Path::new(aside));
    assert!(old.len() == 2 && old.iter().any(|(name, text)| name == SCORES && text == "old"), "{old:?}");
}

#[test]
#[cfg(unix)]
fn one_run_at_a_time() {
    let _no_starts = STARTS.read().unwrap();
    let root = tempfile::tempdir().unwrap();
    let target = root.path().join("out");
    let first = prepare(&target, false).unwrap();
    let why = prepare(&target, false).unwrap_err();
    assert!(why.contains("another run of teatime is writing run.json there"), "{why}");
    // A run that writes results under other names may start, and does not mistake these results for those of a killed run.
    let named = |name: &str| Output::begin(&target, "blur", &[name], &[], false);
    let other = named("b.run.json").unwrap();
    assert!(named("b.run.json").is_err());
    for name in ["a.b.run.json", "a.run.json"] {
        assert!(named(name).unwrap().left.is_none(), "{name}");
    }
    drop(other);
    fill(&first, &[SCORES], "first");
    first.move_all().unwrap();
    assert_eq!(contents(&target)[1].1, "first");
    drop(prepare(&target, true).unwrap());
}

#[test]
fn stores_take_no_results() {
    let _no_starts = STARTS.read().unwrap();
    let root = tempfile::tempdir().unwrap();
    for name in [".zgroup", ".zarray", "zarr.json"] {
        let store = root.path().join(name.trim_start_matches('.'));
        fs::create_dir_all(store.join("call_genotype/c")).unwrap();
        fs::write(store.join(name), "{}").unwrap();
        for below in ["", "out", "call_genotype/c", "call_genotype/new/out"] {
            let why = prepare(&store.join(below), true).unwrap_err();
            assert!(why.contains("is a Zarr store") && why.contains(name), "{why}");
        }
        assert_eq!(fs::read_dir(&store).unwrap().count(), 2);
        assert!(!store.join("call_genotype/new").exists());
    }
}
