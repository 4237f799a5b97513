//! Tests of `teatime project`, and the stores that they share.

mod samples;
mod tables;

use std::sync::Arc;

use serde_json::json;
use teatime_genotype::Variant;

use crate::support::{Scratch, Site, assert_has, names, number, provenance, site, store_of, unpacked};

const LOADINGS: &str = "--loadings reference/loadings.tsv.gz";

/// Computes the PCA of a store with its loadings, [`LOADINGS`].
fn reference(scratch: &Scratch, words: &str) {
    scratch.ok(&format!("pca --loadings --overwrite --out reference {words}"));
}

/// Returns the values of a table of samples, without the first `names` columns.
fn numbers(scratch: &Scratch, name: &str, names: usize) -> Vec<Vec<f64>> {
    scratch.rows(name).iter().map(|row| row[names..].iter().map(|value| number(value)).collect()).collect()
}

/// Asserts that values agree within a fraction of their column's largest.
#[track_caller]
fn assert_close(ours: &[Vec<f64>], theirs: &[Vec<f64>]) {
    assert_eq!((ours.len(), ours[0].len()), (theirs.len(), theirs[0].len()));
    for j in 0..ours[0].len() {
        let largest = theirs.iter().fold(0.0, |most: f64, row| most.max(row[j].abs()));
        for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
            let (a, b) = (a[j], b[j]);
            assert!((a - b).abs() <= 1e-5 * largest, "sample {i}, PC{}: {a} and {b}", j + 1);
        }
    }
}

fn write(scratch: &Scratch, name: &str, sites: &[Site]) {
    store_of(&scratch.join(name), "s", sites);
}

/// Returns twenty sites of six samples on two contigs. All sites vary, and some calls are missing.
fn sites() -> Vec<Site> {
    let word =
        |i: usize, j: usize| (u32::try_from(i * 6 + j + 1).unwrap().wrapping_mul(2_654_435_761) >> 20) % 10;
    let dosage = |i: usize, j: usize| match word(i, j) {
        9 => -1,
        word => i8::try_from(word % 3).unwrap(),
    };
    let alleles = [["A", "C"], ["G", "T"], ["AT", "A"], ["C", "T,G"]];
    let site = |i: usize| {
        let dosages: Vec<i8> = (0..6).map(|j| dosage(i, j)).collect();
        let called: Vec<_> = dosages.iter().filter(|&&g| g >= 0).collect();
        assert!(called.iter().any(|g| *g != called[0]), "site {i} should vary");
        site(if i < 12 { "1" } else { "2" }, 100 + (i as u64 % 12) * 10, alleles[i % 4], &dosages)
    };
    (0..20).map(site).collect()
}

/// The reference's samples get their own scores, in tables like those of a PCA, with family names if there are any.
#[test]
fn the_references_samples_get_their_scores_back() {
    let scratch = Scratch::new();
    for (words, columns) in [("@all_v3.vcz --scaler binom2 --maf 0.05", 1), ("@plink1/biallelic.bed -k 2", 2)]
    {
        reference(&scratch, words);
        let store = words.split(' ').next().unwrap();
        let ran = scratch.ok(&format!("project {store} {LOADINGS} --out out --overwrite"));
        assert!(ran.err.is_empty(), "{}", ran.err);
        for (ours, theirs) in [("projection.tsv", "scores.tsv"), ("projection.eigenvec", "pca.eigenvec")] {
            let [ours, theirs] = [format!("out/{ours}"), format!("reference/{theirs}")];
            assert_close(&numbers(&scratch, &ours, columns), &numbers(&scratch, &theirs, columns));
            let names = [ours, theirs].map(|name| {
                let names = |row: Vec<String>| row[..columns].join(" ");
                let first = scratch.text(&name).lines().next().unwrap().to_owned();
                (first, scratch.rows(&name).into_iter().map(names).collect::<Vec<_>>())
            });
            assert_eq!(names[0], names[1]);
        }
        let [record, own] = ["out", "reference"].map(|name| scratch.json(&format!("{name}/run.json")));
        assert_eq!(record["matched"]["loadings"]["used"], own["variants"]["used"]);
        assert_eq!(record["allele_counts"], own["allele_counts"]);
    }
}

/// The variants of several stores are appended, and left-out variants are reported.
#[test]
fn stores_are_appended_and_variants_left_out_are_told() {
    let scratch = Scratch::new();
    let mut all = sites();
    write(&scratch, "old.vcz", &all);
    reference(&scratch, "old.vcz -k 3");
    // One variant is removed and one has other alleles; the rest is spread over two stores.
    all.remove(17);
    all[4].variant.alternate = "T".into();
    let second = all.split_off(9);
    write(&scratch, "one.vcz", &second);
    write(&scratch, "two.vcz", &all);
    let project =
        |stores: &str, more: &str| format!("project {stores} {LOADINGS} --out out --overwrite {more}");
    let reasons = "1 not in the stores, 1 there with other alleles";
    let ran = scratch.ok(&project("one.vcz two.vcz", "--max-mismatch 0.1"));
    assert_has(&ran.err, &["warning: 2 of 20 variants", "(10 %)", reasons]);
    let said = ["2 of 20 variants", "--max-mismatch 0.05", reasons];
    scratch.refused(&project("one.vcz two.vcz", ""), 1, &said);
}

/// Sites that a call set does not have, since no sample varies there, count as if it had them.
#[test]
fn absent_sites_are_reference() {
    let scratch = Scratch::new();
    write(&scratch, "old.vcz", &sites());
    reference(&scratch, "old.vcz -k 2");
    let mut all = sites();
    all.iter_mut().step_by(3).for_each(|site| site.dosages.fill(0));
    write(&scratch, "all.vcz", &all);
    let mut numbers_of_sites = 0..;
    all.retain(|_| numbers_of_sites.next().is_some_and(|at| at % 3 > 0));
    write(&scratch, "some.vcz", &all);
    all.retain(|site| &*site.variant.contig == "1");
    write(&scratch, "contig.vcz", &all);
    // Another table counts the copies of the reference alleles.
    let text = unpacked(&scratch.join("reference/loadings.tsv.gz"));
    let turned = text.lines().enumerate().map(|(at, line)| {
        let mut row: Vec<String> = line.split('\t').map(str::to_owned).collect();
        if at > 1 {
            row[5] = row[3].clone();
            let [frequency, mean] = [6, 7].map(|at| number(&row[at]));
            (row[6], row[7]) = ((1.0 - frequency).to_string(), (2.0 - mean).to_string());
            row[9..].iter_mut().for_each(|loading| *loading = (-number(loading)).to_string());
        }
        row.join("\t") + "\n"
    });
    scratch.write("turned.tsv", turned.collect::<String>());
    let project = |store: &str, table: &str, more: &str| {
        format!("project {store}.vcz --loadings {table} --out {store} --overwrite {more}")
    };
    for method in ["--missing mean", "--missing least-squares"] {
        scratch.ok(&project("all", "reference/loadings.tsv.gz", method));
        for table in ["reference/loadings.tsv.gz", "turned.tsv"] {
            let ran = scratch.ok(&project("some", table, &format!("--absent reference {method}")));
            assert_has(&ran.out, &["13 used, ", "7 not in the stores taken as homozygous reference"]);
            assert!(!ran.err.contains("left out"), "{table}: {}", ran.err);
            let [expected, ours] =
                ["all", "some"].map(|name| numbers(&scratch, &format!("{name}/projection.tsv"), 1));
            assert_close(&ours, &expected);
            let samples = |name: &str| scratch.text(&format!("{name}/projection.samples.tsv"));
            assert_eq!(samples("some"), samples("all"));
            let record = scratch.json("some/run.json");
            assert_eq!((&record["absent"], &record["absent_as_reference"]), (&"reference".into(), &7.into()));
        }
    }
    // Nothing is known of a contig that the stores do not have.
    let of_loadings = |store, more: &str| project(store, "turned.tsv", &format!("--absent reference {more}"));
    let said = ["8 of 16 variants", "(50 %)", "--max-mismatch 0.05", "8 not in the stores"];
    scratch.refused(&of_loadings("contig", ""), 1, &said);
    scratch.refused(&of_loadings("some", "--match id"), 2, &["--absent reference", "--match id"]);
    scratch.write("ids.txt", "v110\n");
    for option in ["--extract", "--exclude"] {
        let words = of_loadings("some", &format!("{option} ids.txt"));
        scratch.refused(&words, 2, &["needs all variants", option]);
    }
}

/// The record counts what was matched, by position or by id, and with alleles swapped.
#[test]
fn what_was_matched_is_told() {
    let scratch = Scratch::new();
    write(&scratch, "old.vcz", &sites());
    reference(&scratch, "old.vcz -k 4");
    let mut changed = sites();
    let Variant { reference, alternate, .. } = &mut changed[0].variant;
    std::mem::swap(reference, alternate);
    changed.push(site("3", 100, ["A", "C"], &[2; 6]));
    write(&scratch, "new.vcz", &changed);
    let ran = scratch.ok(&format!("project new.vcz {LOADINGS} --out out"));
    let said = ["20 used, 1 of them with alleles swapped", "of the stores, 1 not in the loadings"];
    assert_has(&ran.out, &said);
    let record = scratch.json("out/run.json");
    provenance(&record, "project", [None, None]);
    let expected = json!({
        "loadings": {
            "variants": 20, "used": 20, "swapped": 1, "alleles_unknown": 0, "fewer_alleles": 0, "absent": 0,
            "other_alleles": 0, "repeated": 0, "ambiguous": 0, "nowhere": 0, "doubled_id": 0,
        },
        "stores": {
            "variants": 21, "not_in_loadings": 1, "repeated": 0, "ambiguous": 0, "nowhere": 0, "doubled_id": 0,
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
