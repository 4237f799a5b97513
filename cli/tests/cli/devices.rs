//! `teatime devices`.

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
