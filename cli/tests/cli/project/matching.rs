//! Tests of which variants of the loadings are those of the stores.

use std::{fs, sync::Arc};

use teatime_genotype::Variant;

use super::{assert_close, assert_only_missing, numbers, project, reference, site, sites, write};
use crate::support::{Scratch, json, names, provenance};

#[test]
fn order_swaps_and_other_variants_change_nothing() {
    let scratch = Scratch::new();
    let (old, new, out) = (scratch.join("old.vcz"), scratch.join("new.vcz"), scratch.join("out"));
    write(&old, &sites());
    let loadings = reference(&scratch, &old, &["-k", "4"]);
    let mut changed = sites();
    for site in changed.iter_mut().filter(|site| !site.variant.alternate.contains(',')).step_by(2) {
        let Variant { reference, alternate, .. } = &mut site.variant;
        std::mem::swap(reference, alternate);
        site.dosages.iter_mut().filter(|g| **g >= 0).for_each(|g| *g = 2 - *g);
    }
    // This variant has the same alleles in another order and in small letters.
    changed[3].variant.alternate = "g,t".into();
    // Variants that the reference does not have, one of them at a place that it has; and one twice.
    changed.push(site("1", 105, ["A", "C"], &[2; 6]));
    changed.push(site("2", 100, ["A", "G"], &[2; 6]));
    changed.push(site("1", 100, ["C", "A"], &[2; 6]));
    changed.push(site("3", 100, ["A", "C"], &[2; 6]));
    let again = changed.len() - 2;
    changed[..again].reverse();
    write(&new, &changed);
    let ran = project(&new, &loadings, &out, &[]).ok();
    assert_only_missing(&ran);
    let own = numbers(&loadings.with_file_name("scores.tsv"));
    assert_close(&numbers(&out.join("projection.tsv")), &own, 1e-5, false);
    for words in
        ["20 used, 8 of them with alleles swapped", "of the stores, 3 not in the loadings, 1 repeated"]
    {
        assert!(ran.out.contains(words), "`{words}` is not in: {}", ran.out);
    }
    let record = json(&fs::read_to_string(out.join("run.json")).unwrap());
    provenance(&record, "project", [None, None]);
    assert_eq!(record["command"], "project");
    let expected = serde_json::json!({
        "loadings": {
            "variants": 20, "used": 20, "swapped": 8, "alleles_unknown": 0, "fewer_alleles": 0, "absent": 0,
            "other_alleles": 0, "repeated": 0, "ambiguous": 0, "nowhere": 0, "doubled_id": 0,
        },
        "stores": {
            "variants": 24, "not_in_loadings": 3, "repeated": 1, "ambiguous": 0, "nowhere": 0, "doubled_id": 0,
        },
        "by": "position",
    });
    assert_eq!(record["matched"], expected);
    let missing = sites().iter().flat_map(|site| &site.dosages).filter(|&&g| g < 0).count();
    assert_eq!(record["missing_calls"], missing);
    assert_eq!(record["reference"]["samples"], 6);
    assert_eq!(record["shape"]["samples"], 6);
    let mut files: Vec<_> = record["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    files.sort_unstable();
    assert_eq!(names(&out), files);
    assert_eq!(files, ["projection.eigenvec", "projection.samples.tsv", "projection.tsv", "run.json"]);
}

/// As joint calling names alleles that are of other samples alone.
#[test]
fn names_of_alleles_that_nobody_carries_change_nothing() {
    let scratch = Scratch::new();
    let [old, new, other] = ["old.vcz", "new.vcz", "other.vcz"].map(|name| scratch.join(name));
    write(&old, &sites());
    let loadings = reference(&scratch, &old, &["-k", "4"]);
    let mut named = sites();
    for site in named.iter_mut().filter(|site| !site.variant.alternate.contains(',')).step_by(3) {
        site.variant.alternate += ",TTTT";
    }
    write(&new, &named);
    for more in [&[][..], &["--match", "id", "--max-mismatch", "1"]] {
        let out = scratch.join(&format!("new-{}", more.len()));
        let ran = project(&new, &loadings, &out, more).ok();
        let record = json(&fs::read_to_string(out.join("run.json")).unwrap());
        let plain = project(&old, &loadings, &scratch.join(&format!("old-{}", more.len())), more).ok();
        assert_eq!(ran.err, plain.err);
        let own = json(&fs::read_to_string(scratch.join(&format!("old-{}/run.json", more.len()))).unwrap());
        assert_eq!(record["matched"], own["matched"]);
        let scores =
            |name: &str| fs::read(scratch.join(&format!("{name}-{}/projection.tsv", more.len()))).unwrap();
        assert_eq!(scores("new"), scores("old"));
    }
    // Distances from another store are the same, too.
    write(&other, &sites());
    let table = |store: &std::path::Path, name: &str| {
        let path = scratch.join(name);
        let words = ["--with", &*other.to_string_lossy(), "--metric", "ibs"];
        crate::support::run(crate::support::on_store("distance", store, &path, &words)).ok();
        fs::read(path).unwrap()
    };
    assert_eq!(table(&new, "new.tsv"), table(&old, "old.tsv"));
}

#[test]
fn nothing_in_common_is_refused_however_much_may_be_missing() {
    let scratch = Scratch::new();
    let (old, new) = (scratch.join("old.vcz"), scratch.join("new.vcz"));
    write(&old, &sites());
    let loadings = reference(&scratch, &old, &["-k", "2"]);
    let mut renamed = sites();
    renamed
        .iter_mut()
        .for_each(|site| site.variant.contig = Arc::from(format!("scaffold{}", site.variant.contig)));
    write(&new, &renamed);
    let ran = project(&new, &loadings, &scratch.join("out"), &["--max-mismatch", "1"]);
    assert_eq!(ran.code, 1);
    for words in ["no variant", "--match id", "20 not in the stores", "contig `1`", "`scaffold1`"] {
        assert!(ran.err.contains(words), "`{words}` is not in: {}", ran.err);
    }
    assert!(!scratch.join("out").exists());
}
