//! Tests of `teatime devices`.

use crate::support::{Scratch, json, run};

#[test]
fn lists_what_can_be_passed() {
    let scratch = Scratch::new();
    let listed = json(&scratch.ok("devices --json").out);
    let list = listed.as_array().expect("the list should be an array");
    assert!(list.iter().any(|entry| entry["name"] == "cpu" && entry["default"] == true));
    let table = scratch.ok("devices").out;
    for entry in list {
        assert_ne!(entry["device"].is_null(), entry["why_not"].is_null(), "{entry}");
        assert!(table.contains(entry["name"].as_str().expect("a name should be text")), "{table}");
    }
}

#[test]
fn a_default_that_is_not_there_is_an_error() {
    let scratch = Scratch::new();
    let mut command = scratch.command("devices");
    command.env("TEATIME_DEVICE", "abacus");
    let ran = run(command);
    assert!(ran.code == 1 && ran.err.contains("abacus"), "{}", ran.err);
}

/// Mesa's Vulkan looks for a desktop, and prints an error if there is none.
#[test]
#[cfg(feature = "wgpu")]
fn no_desktop_is_no_error() {
    let scratch = Scratch::new();
    for folder in [None, Some("relative")] {
        for words in ["devices", "pca @all_v3.vcz --out out --overwrite --device wgpu"] {
            let mut command = scratch.command(words);
            for name in ["TEATIME_DEVICE", "NODEVICE_SELECT", "XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "DISPLAY"]
            {
                command.env_remove(name);
            }
            command.envs(folder.map(|folder| ("XDG_RUNTIME_DIR", folder)));
            let ran = run(command).ok();
            assert!(!ran.err.contains("XDG_RUNTIME_DIR"), "{words}: {}", ran.err);
        }
    }
}
