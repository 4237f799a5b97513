//! `teatime devices`.

#[cfg(feature = "wgpu")]
use crate::support::{Ran, Scratch, fixture};
use crate::support::{command, json, teatime};

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
    let output =
        command(["devices"]).env("TEATIME_DEVICE", "abacus").output().expect("the binary should start");
    assert_eq!(output.status.code(), Some(1));
    let err = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(err.contains("abacus"), "{err}");
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
            let ran = Ran::from(command.output().expect("the binary should start")).ok();
            assert!(!ran.err.contains("XDG_RUNTIME_DIR"), "{args:?}: {}", ran.err);
        }
    }
}
