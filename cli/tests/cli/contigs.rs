//! Tests of which contigs take part, and of what is reported about them.

use std::{fs, ops::Range};

use serde_json::{Value, json};

use crate::support::{Scratch, Site, assert_has, dosage, plain_array, site, store_of};

/// The contigs of a store's rows. In chunks of 1,000 variants, the third chunk has X only.
const CONTIGS: [(&str, Range<u64>); 5] =
    [("chr1", 0..1400), ("chrX", 1400..3300), ("chr2", 3300..3600), ("chrM", 3600..3650), ("0", 3650..3660)];
const ALL: Range<u64> = 0..3660;

/// Writes these rows as a separate store.
fn store(scratch: &Scratch, name: &str, rows: impl IntoIterator<Item = u64>) {
    let of_row = |row: u64| -> Site {
        let (contig, _) = CONTIGS.iter().find(|(_, range)| range.contains(&row)).unwrap();
        site(contig, 100 + row, ["A", "C"], &(0..12).map(|i| dosage(row, i)).collect::<Vec<_>>())
    };
    store_of(&scratch.join(name), "s", &rows.into_iter().map(of_row).collect::<Vec<_>>());
}

/// Runs a command and returns its record and its messages.
fn run(scratch: &Scratch, words: &str) -> (Value, String) {
    let ran = scratch.ok(&format!("{words} --overwrite --json"));
    (crate::support::json(&ran.out), ran.err)
}

#[test]
fn sex_mitochondria_and_unplaced_are_told() {
    let scratch = Scratch::new();
    store(&scratch, "all.vcz", ALL);
    let told = "warning: 1,960 variants of sex chromosomes, mitochondria or unknown places take part: 1,900 on X, \
                50 on MT, 10 on 0; --autosome leaves them out";
    for name in ["pca", "grm"] {
        let (record, err) = run(&scratch, &format!("{name} all.vcz --out {name}"));
        assert!(err.lines().any(|line| line == told), "{err}");
        assert_eq!(record["warnings"][0], told["warning: ".len()..]);
        let contigs = json!({
            "autosomes": 22, "asked": null, "left_out": 0, "autosomal": 1700, "sex": {"X": 1900}, "mitochondrial": 50,
            "unplaced": 10, "other": 0,
        });
        assert_eq!(record["contigs"], contigs);
    }
    // A projection reports only variants that the loadings have too; variants on contig 0 are not among them.
    run(&scratch, "pca all.vcz --out all --loadings");
    run(&scratch, "pca all.vcz --out autosomes --loadings --autosome");
    for (words, warning) in [
        ("all/loadings.tsv.gz", Some(told.replace("1,960", "1,950").replace(", 10 on 0", ""))),
        ("all/loadings.tsv.gz --autosome --max-mismatch 1", None),
        ("autosomes/loadings.tsv.gz", None),
    ] {
        let (record, err) = run(&scratch, &format!("project all.vcz --out project --loadings {words}"));
        let of_contigs = err.lines().find(|line| line.contains("sex chromosomes")).map(str::to_owned);
        assert_eq!(of_contigs, warning, "{err}");
        let x = if warning.is_some() { json!({"X": 1900}) } else { json!({}) };
        assert_eq!((&record["contigs"]["autosomal"], &record["contigs"]["sex"]), (&1700.into(), &x));
    }
    let (record, err) = run(&scratch, "pca all.vcz --out asked --chr 1-2,X,MT,7");
    assert_eq!(err, "warning: --chr: no variant is on `7`\n");
    let contigs = &record["contigs"];
    assert_eq!((&contigs["asked"], &contigs["left_out"]), (&"--chr 1-2,X,MT,7".into(), &10.into()));
    let ran = scratch.ok("pca all.vcz --out summary --autosome");
    assert_has(&ran.out, &["1,960 of other contigs left out by --autosome"]);
    assert!(ran.err.is_empty(), "{}", ran.err);
}

/// A choice of contigs has the variants of a store of these alone. Chunks of other contigs only are not read: the test removes them.
#[test]
fn chosen_contigs_are_a_store_of_their_own() {
    let scratch = Scratch::new();
    store(&scratch, "all.vcz", ALL);
    store(&scratch, "alone.vcz", (0..1400).chain(3300..3600));
    fs::remove_file(scratch.join("all.vcz/call_genotype/2.0.0")).unwrap();
    let counts = |words: &str| run(&scratch, &format!("pca {words} --out out")).0["allele_counts"].clone();
    let alone = counts("alone.vcz");
    assert!(["--autosome", "--chr 1,2"].iter().all(|chosen| counts(&format!("all.vcz {chosen}")) == alone));
    scratch.refused("pca all.vcz --out lost", 1, &["chunk [2, 0, 0]"]);
}

/// Writes a .bed of 230 variants, with the contigs and positions that `of` returns.
fn bed(scratch: &Scratch, name: &str, of: impl Fn(usize) -> (String, usize)) {
    scratch.copies("plink1/biallelic", name, &["bed", "fam"]);
    let bytes = scratch.bytes(&format!("{name}.bed"));
    scratch.write(&format!("{name}.bed"), &bytes[..3 + 230 * 15]);
    let line = |row| {
        let (contig, position) = of(row);
        format!("{contig}\tv{row}\t0\t{position}\tC\tA\n")
    };
    scratch.write(&format!("{name}.bim"), (0..230).map(line).collect::<String>());
}

/// Contigs 23 to 26 are X, Y, XY and MT of a human, and autosomes of other species.
#[test]
fn contigs_of_other_species() {
    let scratch = Scratch::new();
    // Contigs 1 to 38 have five variants each, and X has the rest.
    let dog = |row: usize| if row < 190 { (1 + row / 5).to_string() } else { "X".into() };
    bed(&scratch, "dog", |row| (dog(row), 1000 * (1 + row % 5)));
    bed(&scratch, "human", |row| ((1 + row / 9).to_string(), 1000 * (1 + row % 9)));
    for (words, expected) in [
        ("dog --chr 1-38", json!([null, 40, 0, 0])),
        ("dog --chr-set 38 --autosome", json!([38, 40, 190, 0])),
        ("dog --chr-set 22 --chr 1-22", json!([22, 120, 110, 0])),
        ("human --chr MT", json!([22, 225, 0, 5])),
    ] {
        let (record, _) = run(&scratch, &format!("pca {words} --out out -k 3"));
        let counts = ["autosomes", "left_out", "autosomal", "mitochondrial"];
        assert_eq!(json!(counts.map(|name| record["contigs"][name].clone())), expected, "{words}");
    }
    let said = ["--autosome: no variant", "--chr-set says how many autosomes there are"];
    scratch.refused("pca dog --out new --autosome", 1, &said);
    // The contig length in the metadata tells whether a store of one contig is human.
    store(&scratch, "alone.vcz", 0..30);
    plain_array(&scratch.join("alone.vcz/contig_length"), "<i8", &[1], &[0; 8]);
    for (length, autosomes) in [(0_i64, json!(22)), (248_956_422, json!(22)), (122_678_785, json!(null))] {
        scratch.write("alone.vcz/contig_length/0", length.to_le_bytes());
        let (record, _) = run(&scratch, "pca alone.vcz --out alone");
        assert_eq!(record["contigs"]["autosomes"], autosomes, "{length}");
    }
}

/// Sample names are made up for one store, but not for several, where they would claim that the samples are the same people.
#[test]
fn stores_without_names() {
    let scratch = Scratch::new();
    store(&scratch, "all.vcz", 0..30);
    store(&scratch, "named.vcz", 30..60);
    fs::remove_dir_all(scratch.join("all.vcz/sample_id")).unwrap();
    let (record, err) = run(&scratch, "pca all.vcz --out one");
    let warning = "all.vcz has no names of samples: they are numbered from S0001 on";
    assert_has(&err, &[warning]);
    assert_has(&record["warnings"].to_string(), &[warning]);
    assert_eq!(scratch.rows("one/scores.tsv")[11][0], "S0012");
    for stores in ["all.vcz named.vcz", "named.vcz all.vcz", "all.vcz all.vcz"] {
        scratch.refused(&format!("pca {stores} --out two"), 1, &["all.vcz: it has no names of samples"]);
    }
}

#[test]
fn contigs_that_are_not_there() {
    let scratch = Scratch::new();
    store(&scratch, "all.vcz", ALL);
    let said = ["--chr 5-9: no variant", "`0`, `chr1`, `chr2`, `chrM`, `chrX`"];
    scratch.refused("pca all.vcz --out new/x --chr 5-9", 1, &said);
    // An unreadable column is an error for commands that need it.
    scratch.write("all.vcz/variant_contig/0", "damaged");
    scratch.refused("pca all.vcz --out new/x --chr 1", 1, &["variant_contig: chunk [0]"]);
    let ran = scratch.ok("pca all.vcz --out fine");
    assert!(ran.err.starts_with("warning: which contigs the variants are on is not known: "), "{}", ran.err);
}

/// A missing chunk of contigs is reported once, though it is read twice.
#[test]
fn chunks_of_contigs_that_are_not_there_are_told() {
    let scratch = Scratch::new();
    store(&scratch, "own.vcz", ALL);
    fs::remove_file(scratch.join("own.vcz/variant_contig/2")).unwrap();
    let warning = "own.vcz: 1 chunk of variant_contig is not there and is read as its fill value (contig `chr1`), as writers \
                   leave out chunks of nothing else; lost ones would look the same";
    let (record, err) = run(&scratch, "pca --loadings --autosome own.vcz --out pca");
    assert!(err.lines().any(|line| line == format!("warning: {warning}")), "{err}");
    let warnings = record["warnings"].as_array().unwrap();
    assert_eq!(warnings.iter().filter(|w| **w == *warning).count(), 1, "{warnings:?}");
}
