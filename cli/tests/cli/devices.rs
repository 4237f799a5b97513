//! `teatime devices`.

#[cfg(feature = "wgpu")]
use crate::support::{Scratch, fixture};
use crate::support::{command, json, run, teatime};

#[test]
fn lists_what_can_be_passed() {
    let listed = json(&teatime(["devices", "--json"]).ok().out);
    let list = listed.as_array().expect("the list should be an array");
    assert!(list.iter().any(|entry| entry["name"] == "cpu" && entry["default"] == true));
    for entry in list {
        assert_ne!(entry["device"].is_null(), entry["why_not"].is_null(), "{entry}");
    }
    let table = teatime(["devices"]).ok().out;
    for entry in list {
        assert!(table.contains(entry["name"].as_str().expect("a name should be text")), "{table}");
    }
}

#[test]
fn a_default_that_is_not_there_is_an_error() {
    let mut command = command(["devices"]);
    command.env("TEATIME_DEVICE", "abacus");
    let ran = run(command);
    assert!(ran.code == 1 && ran.err.contains("abacus"), "{}", ran.err);
}

/// Mesa's Vulkan looks for a desktop, and prints that there is none as an error.
#[test]
#[cfg(feature = "wgpu")]
fn no_desktop_is_no_error() {
    let (scratch, store) = (Scratch::new(), fixture("all_v3.vcz"));
    let (store, out) = (store.to_string_lossy(), scratch.join("out"));
    for folder in [None, Some("relative")] {
        for args in [
            &["devices"][..],
            &["devices", "--json"],
            &["pca", &store, "--out", &out.to_string_lossy(), "--overwrite"],
            &["pca", &store, "--out", &out.to_string_lossy(), "--overwrite", "--device", "wgpu"],
        ] {
            let mut command = command(args);
            for name in ["TEATIME_DEVICE", "NODEVICE_SELECT", "XDG_RUNTIME_DIR", "WAYLAND_DISPLAY", "DISPLAY"]
            {
                command.env_remove(name);
            }
            command.envs(folder.map(|folder| ("XDG_RUNTIME_DIR", folder)));
            let ran = run(command).ok();
            assert!(!ran.err.contains("XDG_RUNTIME_DIR"), "{args:?}: {}", ran.err);
        }
    }
}
