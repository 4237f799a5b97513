//! Runs the tests of the Python package with the interpreter that `TEATIME_PYTHON` names, which has the packages of `requirements.txt`
//! beside this file. Without it the tests are skipped, unless `TEATIME_REQUIRE_DEVICES` is set, as in CI.

use std::{env, fs, io, io::Write, path::Path, process::Command, thread};

#[test]
#[allow(clippy::print_stdout, reason = "what is skipped is said aloud")]
fn the_package_passes_its_tests() {
    let Some(python) = env::var_os("TEATIME_PYTHON") else {
        assert!(
            env::var_os("TEATIME_REQUIRE_DEVICES").is_none(),
            "TEATIME_PYTHON names no interpreter: scripts/test makes one"
        );
        println!("skipped: TEATIME_PYTHON names no interpreter; scripts/test makes one");
        return;
    };
    let package = tempfile::tempdir().expect("a folder for the package should be made");
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let built = env::current_exe().expect("a test should know where it is");
    let library =
        built.with_file_name(format!("{}_teatime{}", env::consts::DLL_PREFIX, env::consts::DLL_SUFFIX));
    let module = package.path().join("teatime");
    fs::create_dir(&module).expect("the package's folder should be made");
    // Python first looks into the folder in which it is started, which must not be the package's: that has no compiled module.
    for entry in fs::read_dir(here.join("teatime")).expect("the package should be readable") {
        let entry = entry.expect("the package should be readable").path();
        if entry.is_file() && entry.extension().is_none_or(|ending| ending != "so") {
            let name = entry.file_name().expect("an entry should have a name");
            fs::copy(&entry, module.join(name)).expect("a module should be copied");
        }
    }
    fs::copy(&library, module.join("_teatime.abi3.so")).expect("the compiled module should be copied");
    let run = |arguments: &[&str]| {
        let ran = Command::new(&python)
            .args(arguments)
            .current_dir(package.path())
            .env("PYTHONPATH", package.path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .expect("the interpreter should start");
        // `println!` shows output only if a test fails.
        io::stdout().write_all(&[ran.stdout, ran.stderr].concat()).expect("what it said should be shown");
        assert!(ran.status.success(), "{arguments:?}: {}", ran.status);
    };
    let [tests, settings] = ["tests", "pyproject.toml"].map(|name| here.join(name));
    let text = |path: &Path| path.to_str().expect("a folder should have a plain name").to_owned();
    let [modules, settings] = [&module, &settings].map(|path| text(path));
    let pytest = ["-m", "pytest", "-p", "no:cacheprovider", "-c", &settings];
    // The tests of dask take as long as all others, and wait for processes most of the time.
    let [cluster, dask] = ["test_cluster.py", "test_dask.py"].map(|name| text(&tests.join(name)));
    let ignored = [&cluster, &dask].map(|path| format!("--ignore={path}"));
    thread::scope(|scope| {
        scope.spawn(|| {
            run(&[&pytest[..], &[&cluster, &dask]].concat());
            run(&[&pytest[..], &["--doctest-modules", "--import-mode=importlib", &modules]].concat());
        });
        run(&[&pytest[..], &[&text(&tests), &ignored[0], &ignored[1]]].concat());
    });
}
