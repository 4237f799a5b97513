//! A test that runs the example.
#![cfg(feature = "zarr")]
#![allow(clippy::unwrap_used, reason = "tests panic")]

#[allow(dead_code, reason = "its own main")]
#[path = "../examples/pca.rs"]
mod example;

use std::path::Path;

#[test]
fn the_example_runs() {
    example::run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/biallelic.vcz")).unwrap();
}
