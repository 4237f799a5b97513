//! Tests of the matching of the stores' variants with the variants of the loadings.

use std::sync::Arc;

use serde_json::json;
use teatime_genotype::Variant;

use super::{LOADINGS, assert_close, numbers, reference, sites, write};
use crate::support::{Scratch, assert_has, names, provenance, site};

#[test]
fn order_swaps_and_other_variants_change_nothing() {
    let scratch = Scratch::new();
    write(&scratch, "old.vcz", &sites());
    reference(&scratch, "old.vcz -k 4");
    let mut changed = sites();
    for site in changed.iter_mut().filter(|site| !site.variant.alternate.contains(',')).step_by(2) {
        let Variant { reference, alternate, .. } = &mut site.variant;
        std::mem::swap(reference, alternate);
        site.dosages.iter_mut().filter(|g| **g >= 0).for_each(|g| *g = 2 - *g);
    }
    // This variant has the same alleles in another order and in lower case.
    changed[3].variant.alternate = "g,t".into();
    // The reference lacks the first two variants, although it has the position of one; the third occurs twice.
    changed.push(site("1", 105, ["A", "C"], &[2; 6]));
    changed.push(site("2", 100, ["A", "G"], &[2; 6]));
    changed.push(site("1", 100, ["C", "A"], &[2; 6]));
    changed.push(site("3", 100, ["A", "C"], &[2; 6]));
    let again = changed.len() - 2;
    changed[..again].reverse();
    write(&scratch, "new.vcz", &changed);
    let ran = scratch.ok(&format!("project new.vcz {LOADINGS} --out out"));
    let is_of_missing = |line: &str| line.contains("of the calls of the variants used");
    assert!(ran.err.lines().all(is_of_missing), "{}", ran.err);
    let [ours, own] = ["out/projection.tsv", "reference/scores.tsv"].map(|name| numbers(&scratch, name, 1));
    assert_close(&ours, &own);
    let said =
        ["20 used, 8 of them with alleles swapped", "of the stores, 3 not in the loadings, 1 repeated"];
    assert_has(&ran.out, &said);
    let record = scratch.json("out/run.json");
    provenance(&record, "project", [None, None]);
    let expected = json!({
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
    assert_eq!((&record["missing_calls"], &record["reference"]["samples"]), (&missing.into(), &6.into()));
    let files = json!(["run.json", "projection.tsv", "projection.eigenvec", "projection.samples.tsv"]);
    assert_eq!((&record["files"], names(&scratch.join("out")).len()), (&files, 4));
    // Sites of both contigs have one id, and four ids occur once.
    let words = format!("project old.vcz {LOADINGS} --out id --match id --max-mismatch 1");
    let matched = &scratch.record(&words)["matched"];
    assert_eq!((&matched["by"], &matched["loadings"]["used"]), (&"id".into(), &4.into()));
}

#[test]
fn nothing_in_common_is_refused_however_much_may_be_missing() {
    let scratch = Scratch::new();
    write(&scratch, "old.vcz", &sites());
    reference(&scratch, "old.vcz -k 2");
    let mut renamed = sites();
    let other = |name: &str| Arc::from(format!("scaffold{name}"));
    renamed.iter_mut().for_each(|site| site.variant.contig = other(&site.variant.contig));
    write(&scratch, "new.vcz", &renamed);
    let said = ["no variant", "--match id", "20 not in the stores", "contig `1`", "`scaffold1`"];
    scratch.refused(&format!("project new.vcz {LOADINGS} --out out --max-mismatch 1"), 1, &said);
}
