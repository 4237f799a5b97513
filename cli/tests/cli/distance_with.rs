//! Tests of `teatime distance --with`: distances between the samples of two stores.

use serde_json::json;

use crate::support::{Scratch, assert_has, npy, site, store_of};

/// Writes two stores of six and five variants. They share three: one has its alleles swapped, two are in another order. One has other alleles.
fn stores(scratch: &Scratch) {
    let ours = [
        site("1", 10, ["A", "C"], &[0, 1, 2]),
        site("1", 20, ["A", "G"], &[2, 2, 0]),
        site("1", 20, ["A", "T"], &[0, 0, 1]),
        site("1", 30, ["C", "G"], &[1, -1, 0]),
        site("1", 40, ["C", "T"], &[1, 1, 1]),
        site("1", 50, ["C", "T"], &[2, 0, 0]),
    ];
    let theirs = [
        site("1", 20, ["A", "T"], &[1, 0]),
        site("1", 20, ["A", "G"], &[2, 0]),
        site("1", 30, ["G", "C"], &[0, 2]),
        site("1", 40, ["C", "A"], &[0, 0]),
        site("1", 60, ["C", "T"], &[0, 0]),
    ];
    store_of(&scratch.join("new.vcz"), "n", &ours);
    store_of(&scratch.join("known.vcz"), "k", &theirs);
}

const WORDS: &str = "distance new.vcz --with known.vcz --metric cityblock --overwrite";

/// The shared variants are `20 A G`, `20 A T` and `30 C G`; the other store's dosages are 2 0, 1 0 and, with swapped alleles, 2 0. The second sample
/// lacks the last variant, which the metric rescales for.
#[test]
fn formats_hold_the_same() {
    let scratch = Scratch::new();
    stores(&scratch);
    scratch.ok(&format!("{WORDS} --out d.npy"));
    assert_eq!(npy(&scratch.join("d.npy"), [3, 2]), [2.0, 3.0, 1.5, 3.0, 4.0, 1.0]);
    assert_eq!(["d.id", "d.with.id"].map(|name| scratch.text(name)), ["n0\nn1\nn2\n", "k0\nk1\n"]);
    // The files of the replaced run are gone.
    scratch.ok(&format!("{WORDS} --out d.zarr"));
    assert!(scratch.join("d.zarr/sample_id_with").exists());
    assert_eq!(scratch.names(), ["d.run.json", "d.zarr", "known.vcz", "new.vcz"]);
    // Matched by id, the two variants of one id are left out, so that n1 lacks the only shared variant.
    scratch.ok(&format!("{WORDS} --out d.tsv --match id"));
    assert_eq!(scratch.text("d.tsv"), "sample\tk0\tk1\nn0\t1\t1\nn1\tNaN\tNaN\nn2\t2\t0\n");
}

#[test]
fn the_nearest_of_the_other_store() {
    let scratch = Scratch::new();
    stores(&scratch);
    let record = scratch.record(&format!("{WORDS} --out d.npy --neighbors 1"));
    assert_eq!(record["neighbors"], json!({ "k": 1, "bands": null }));
    let files = ["d.run.json", "d.npy", "d.neighbors.npy", "d.id", "d.with.id"];
    assert_eq!((&record["files"], &record["with"]["matched"]), (&json!(files), &3.into()));
    assert_eq!(npy(&scratch.join("d.npy"), [3, 1]), [2.0, 1.5, 1.0]);
    for k in [0, 3] {
        let said = format!("--neighbors: {k} of 2 samples: from 1 to 2");
        scratch.refused(&format!("{WORDS} --out d.npy --neighbors {k}"), 1, &[&said]);
    }
}

#[test]
fn what_did_not_match_is_counted() {
    let scratch = Scratch::new();
    stores(&scratch);
    let record = scratch.record(&format!("{WORDS} --out d.npy"));
    assert_eq!(record["files"], json!(["d.run.json", "d.npy", "d.id", "d.with.id"]));
    let expected = json!({
        "path": "known.vcz", "arrays": ["call_genotype"], "samples": 2, "variants": 5, "matched_by": "position",
        "matched": 3, "swapped": 1, "alleles_unknown": 0, "fewer_alleles": 0,
        "left_out": {
            "absent": 1, "other_alleles": 1, "repeated": 0, "ambiguous": 0, "nowhere": 0, "doubled_id": 0,
        },
        "stores_left_out": { "absent": 3, "repeated": 0, "ambiguous": 0, "nowhere": 0, "doubled_id": 0 },
    });
    assert_eq!((&record["with"], &record["variants_kept"]), (&expected, &3.into()));
    let page = scratch.ok(&format!("{WORDS} --out d.npy")).out;
    let said = [
        "5 variants x 2 samples",
        "3 used, 1 of them with alleles swapped; 1 not in the stores, 1 there with other alleles or none",
        "of the stores, 3 not in STORE2",
    ];
    assert_has(&page, &said);
    // --maf counts the samples of both stores.
    assert_eq!(scratch.record(&format!("{WORDS} --out d.npy --maf 0.3"))["variants_kept"], 2);
    let said = "none of the 3 variants is left";
    scratch.refused(&format!("{WORDS} --out d.npy --chr 1 --maf 0.5"), 1, &[said]);
    store_of(&scratch.join("far.vcz"), "f", &[site("1", 70, ["A", "C"], &[0])]);
    let said = "far.vcz is in the stores: of 1, 1 not in the stores; of another genome build";
    scratch.refused("distance new.vcz --with far.vcz --out x.npy", 1, &[said]);
}
