//! Runs the tests of the Python package with the interpreter that `TEATIME_PYTHON` names, which has what `requirements.txt` beside
//! this file says. Without it they are skipped, unless `TEATIME_REQUIRE_DEVICES` is set, as where CI runs.

use std::{env, fs, path::Path, process::Command};

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
    // Python looks into the folder that it is started in first: not into the package's, where the compiled module is not.
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
            .status()
            .expect("the interpreter should start");
        assert!(ran.success(), "{arguments:?}: {ran}");
    };
    let [tests, settings] = ["tests", "pyproject.toml"].map(|name| here.join(name));
    let [tests, settings, modules] =
        [&tests, &settings, &module].map(|path| path.to_str().expect("a folder should have a plain name"));
    let pytest = ["-m", "pytest", "-p", "no:cacheprovider", "-c", settings];
    run(&[&pytest[..], &[tests]].concat());
    run(&[&pytest[..], &["--doctest-modules", "--import-mode=importlib", modules]].concat());
}
