//! Tests of inputs in zip archives.

use std::{collections::BTreeMap, fs, path::Path};

use teatime::openings::{files, stored, zip};

use crate::support::{Scratch, copy, fixture};

/// Returns an archive of the files of a folder, below `root` within it.
fn zipped(folder: &Path, root: &str) -> Vec<u8> {
    let all: BTreeMap<_, _> =
        files(folder).into_iter().map(|(name, bytes)| (format!("{root}{name}"), bytes)).collect();
    zip(&all.iter().map(|(name, bytes)| stored(name, bytes)).collect::<Vec<_>>())
}

/// A command writes the same bytes for an archive as for the folder that is in it.
#[test]
fn results_are_those_of_the_folder() {
    let scratch = Scratch::new();
    for (fixture_name, name) in [("biallelic.vcz", "x.vcz"), ("ngff_0.5.zarr", "y.zarr")] {
        copy(&fixture(fixture_name), &scratch.join(name));
        for (ending, root) in [("zip", String::new()), ("OZX", format!("{name}/"))] {
            fs::write(scratch.join(&format!("{name}.{ending}")), zipped(&scratch.join(name), &root)).unwrap();
        }
    }
    for (command, store, within) in [
        ("pca IN --out OUT -k 2", "x.vcz", ""),
        ("grm IN --out OUT", "x.vcz", ""),
        ("blur IN OUT/x.zarr --sigma 1 --axes 0,1 --resume", "x.vcz", "/call_genotype"),
        ("blur IN OUT/x.zarr --sigma 1", "y.zarr", ""),
        ("blur IN OUT/x.zarr --sigma 1", "y.zarr", "/scale0/floats"),
    ] {
        let results = ["", ".zip", ".OZX"].map(|ending| {
            let words = command.replace("IN", &format!("{store}{ending}{within}")).replace("OUT", "out");
            scratch.ok(&words);
            let mut all = files(&scratch.join("out"));
            fs::remove_dir_all(scratch.join("out")).unwrap();
            // The record has the name of the input, which a result that is resumed also has.
            all.retain(|name, bytes| {
                !name.ends_with("run.json") && !String::from_utf8_lossy(bytes).contains("\"job\"")
            });
            all
        });
        assert!(!results[0].is_empty() && results.iter().all(|found| *found == results[0]), "{command}");
    }
    scratch.refused("svd x.vcz.zip --out out", 1, &["x.vcz.zip", "group"]);
    scratch.refused("blur x.vcz.zip/none out.zarr --sigma 1", 1, &["x.vcz.zip/none"]);
    let damaged = zipped(&scratch.join("x.vcz"), "");
    fs::write(scratch.join("x.vcz.zip"), &damaged[..damaged.len() - 1]).unwrap();
    scratch.refused("pca x.vcz.zip --out out", 1, &["x.vcz.zip: is no zip archive"]);
    scratch.refused("svd x.vcz.zip/call_genotype --out out", 1, &["x.vcz.zip: is no zip archive"]);
}
