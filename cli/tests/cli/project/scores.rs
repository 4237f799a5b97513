//! Scores: against the reference's own PCA, other tools' projections and the formula.

use std::{fs, path::PathBuf};

use super::{assert_close, numbers, project, reference, sites, unpacked, write};
use crate::support::{Scratch, fixture, json, number};

#[test]
fn the_references_samples_get_their_scores_back() {
    let scratch = Scratch::new();
    let (store, out) = (fixture("all_v3.vcz"), scratch.join("out"));
    let loadings = reference(&scratch, &store, &["--scaler", "binom2", "--maf", "0.05"]);
    let ran = project(&store, &loadings, &out, &["--json"]).ok();
    assert!(ran.err.is_empty(), "{}", ran.err);
    let own = loadings.with_file_name("scores.tsv");
    assert_close(&numbers(&out.join("projection.tsv")), &numbers(&own), 1e-5, false);
    let own = loadings.with_file_name("pca.eigenvec");
    assert_close(&numbers(&out.join("projection.eigenvec")), &numbers(&own), 1e-5, false);
    for (ours, theirs) in [("projection.tsv", "scores.tsv"), ("projection.eigenvec", "pca.eigenvec")] {
        let text = |path: PathBuf| fs::read_to_string(path).unwrap();
        let ids =
            |text: &str| text.lines().map(|l| l.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>();
        let (ours, theirs) = (text(out.join(ours)), text(loadings.with_file_name(theirs)));
        assert_eq!(ours.lines().next(), theirs.lines().next());
        assert_eq!(ids(&ours), ids(&theirs));
    }
    let own = json(&fs::read_to_string(loadings.with_file_name("run.json")).unwrap());
    let record = json(&ran.out);
    assert_eq!(record["matched"]["loadings"]["used"], own["variants"]["used"]);
    assert_eq!(record["allele_counts"], own["allele_counts"]);
}

#[test]
fn stores_are_appended_and_variants_left_out_add_nothing() {
    let scratch = Scratch::new();
    let [old, one, two, out] = ["old.vcz", "one.vcz", "two.vcz", "out"].map(|name| scratch.join(name));
    let mut all = sites();
    write(&old, &all);
    let loadings = reference(&scratch, &old, &["-k", "3"]);
    // One lost, one with other alleles, the others in two stores.
    all.remove(17);
    all[4].variant.alternate = "T".into();
    let second = all.split_off(9);
    write(&one, &second);
    write(&two, &all);
    let more = [two.to_str().unwrap(), "--max-mismatch", "0.1"];
    let ran = project(&one, &loadings, &out, &more).ok();
    for words in ["warning: 2 of 20 variants", "(10 %)", "1 not in the stores, 1 there with other alleles"] {
        assert!(ran.err.contains(words), "`{words}` is not in: {}", ran.err);
    }
    // The formula, from the table's own numbers.
    let text = unpacked(&loadings);
    let mut expected = vec![vec![0.0; 3]; 6];
    for (i, line) in text.lines().skip(2).enumerate().filter(|(i, _)| ![4, 17].contains(i)) {
        let columns: Vec<f64> = line.split('\t').skip(6).map(number).collect();
        for (sample, &dosage) in expected.iter_mut().zip(&sites()[i].dosages) {
            let z = if dosage < 0 { 0.0 } else { (f64::from(dosage) - columns[1]) / columns[2] };
            sample.iter_mut().zip(&columns[3..]).for_each(|(score, u)| *score += u * z);
        }
    }
    assert_close(&numbers(&out.join("projection.tsv")), &expected, 1e-5, false);

    let ran = project(&one, &loadings, &scratch.join("refused"), &[two.to_str().unwrap()]);
    assert_eq!(ran.code, 1);
    for words in
        ["2 of 20 variants", "--max-mismatch 0.05", "1 not in the stores, 1 there with other alleles"]
    {
        assert!(ran.err.contains(words), "`{words}` is not in: {}", ran.err);
    }
    assert!(!scratch.join("refused").exists());
}
