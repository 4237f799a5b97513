//! Real genotypes: new samples as plink 1.9 writes them, without the names of alleles that none of them carries.

use std::{fs, path::Path};

use super::{assert_close, project, reference};
use crate::support::{Scratch, fixture, json, number, rows};

/// Numbers after so many columns of names.
fn after(names: usize, path: &Path) -> Vec<Vec<f64>> {
    rows(path).iter().map(|row| row[names..].iter().map(|value| number(value)).collect()).collect()
}

#[test]
fn known_alleles_tell_which_way_round() {
    let scratch = Scratch::new();
    let (old, new, out) = (fixture("hapmap/reference.bed"), fixture("hapmap/new.bed"), scratch.join("out"));
    let expected = after(1, &fixture("hapmap/scores.tsv"));
    for [counted, of_new] in [["a1", "a1"], ["a1", "a2"], ["a2", "a1"]] {
        let loadings = reference(&scratch, &old, &["-k", "4", "--counted-allele", counted]);
        let more = ["--counted-allele", of_new, "--overwrite", "--json"];
        let ran = project(&new, &loadings, &out, &more).ok();
        let record = json(&ran.out);
        let matched = &record["matched"];
        assert_eq!(
            (&matched["loadings"]["used"], &matched["stores"]["not_in_loadings"]),
            (&603.into(), &0.into())
        );
        assert_eq!(matched["loadings"]["fewer_alleles"], 98);
        assert_close(&after(2, &out.join("projection.tsv")), &expected, 1e-5, true);
        // One sample of five has no call of 46 variants.
        let warning = "1 sample lacks more than 5 % of the calls of the variants used";
        assert!(ran.err.contains(warning) && ran.err.contains("`NA06994 (7.63 %)`"), "{}", ran.err);
        assert_eq!(record["samples"]["many_missing"], 1);
        let calls = after(2, &out.join("projection.samples.tsv"));
        let missing: Vec<f64> = calls.iter().map(|row| row[1]).collect();
        assert_eq!(missing, [9.0, 6.0, 9.0, 46.0, 5.0]);
    }
}

#[test]
fn other_builds_and_names_of_the_contig() {
    let scratch = Scratch::new();
    let loadings = reference(&scratch, &fixture("hapmap/reference.bed"), &["-k", "4"]);
    let text = fs::read_to_string(fixture("hapmap/new.bim")).unwrap();
    let new = scratch.join("new.bed");
    for name in ["new.bed", "new.fam"] {
        fs::copy(fixture("hapmap").join(name), scratch.join(name)).unwrap();
    }
    let expected = after(1, &fixture("hapmap/scores.tsv"));
    // By id, positions need not be numbers.
    for (shift, by) in [(Some(0), "position"), (Some(381_546), "id"), (None, "id")] {
        let line = |line: &str| {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let position: u64 = columns[3].parse().unwrap();
            let position = shift.map_or_else(|| "NA".into(), |shift| (position + shift).to_string());
            format!("chr22 {} 0 {position} {} {}\n", columns[1], columns[4], columns[5])
        };
        fs::write(scratch.join("new.bim"), text.lines().map(line).collect::<String>()).unwrap();
        let out = scratch.join("out");
        let ran = project(&new, &loadings, &out, &["--match", by, "--overwrite", "--json"]).ok();
        assert_eq!(json(&ran.out)["matched"]["by"], by);
        assert_close(&after(2, &out.join("projection.tsv")), &expected, 1e-5, true);
    }
    let ran = project(&new, &loadings, &scratch.join("none"), &[]);
    assert!(ran.code == 1 && ran.err.contains("position \"NA\""), "{}", ran.err);
}
