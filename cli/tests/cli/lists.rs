//! Tests of --keep, --remove, --extract and --exclude.

use std::{fs, ops::Range};

use serde_json::json;

use crate::support::{Scratch, Site, assert_has, dosage, site, write_store};

const SAMPLES: Range<u64> = 0..14;
const ROWS: Range<u64> = 0..2600;
/// The samples and rows that the lists below choose: none is in the second chunk of 1,000 rows.
const KEPT: [u64; 9] = [0, 1, 2, 5, 6, 8, 9, 10, 13];
const TAKEN: [Range<u64>; 3] = [3..200, 201..340, 2100..2597];

/// Writes these rows and samples as a store NAME.vcz, and as NAME.bed with its tables.
fn both(scratch: &Scratch, name: &str, rows: impl IntoIterator<Item = u64>, samples: &[u64]) {
    let contig = |row| if row < 2000 { "1" } else { "chrX" };
    let rows: Vec<u64> = rows.into_iter().collect();
    let dosages = |row| samples.iter().map(|&sample| dosage(row, sample)).collect::<Vec<_>>();
    let sites: Vec<Site> =
        rows.iter().map(|&row| site(contig(row), 100 + row, ["A", "C"], &dosages(row))).collect();
    let names = samples.iter().map(|sample| format!("s{sample}"));
    write_store(&scratch.join(&format!("{name}.vcz")), names.collect(), &sites);
    let mut bed = vec![0x6c, 0x1b, 1];
    for site in &sites {
        let codes = site.dosages.chunks(4).map(|four| {
            let code = |dosage: &i8| [1, 3, 2, 0][usize::try_from(dosage + 1).unwrap()];
            four.iter().rev().fold(0, |byte, dosage| byte << 2 | code(dosage))
        });
        bed.extend(codes);
    }
    let bim = rows.iter().map(|&row| format!("{} v{} 0 {} C A\n", contig(row), 100 + row, 100 + row));
    let fam = samples.iter().map(|sample| format!("f{} s{sample} 0 0 0 -9\n", sample % 2));
    scratch.write(&format!("{name}.bed"), bed);
    scratch.write(&format!("{name}.bim"), bim.collect::<String>());
    scratch.write(&format!("{name}.fam"), fam.collect::<String>());
}

/// Returns stores of all and of the chosen alone, and the lists that choose them.
fn stores() -> Scratch {
    let scratch = Scratch::new();
    both(&scratch, "all", ROWS, &SAMPLES.collect::<Vec<_>>());
    both(&scratch, "alone", TAKEN.into_iter().flatten(), &KEPT);
    let line = |sample: u64| format!("f{}\ts{sample}\r\n", sample % 2);
    let kept = KEPT.into_iter().chain([0, 4, 99]).map(line);
    scratch.write("keep.txt", format!("\u{feff}#FID IID\r\n{}", kept.collect::<String>()));
    scratch.write("remove.txt", "f0 s4\nf1 s11\n");
    // Positions 103 to 439, and 2,200 to 2,696.
    scratch.write("regions.bed", "chr1 102 439\n23 2199 2696\n");
    scratch.write("exclude.txt", "v300 1:5 rs1 rs1\n");
    scratch
}

const LISTS: &str = "--keep keep.txt --remove remove.txt --extract regions.bed --exclude exclude.txt";

/// Chunks of rows that are not listed are not read: the test removes them.
#[test]
fn the_listed_are_a_store_of_their_own() {
    let scratch = stores();
    fs::remove_file(scratch.join("all.vcz/call_genotype/1.0.0")).unwrap();
    for ending in ["vcz", "bed"] {
        let [alone, all] = ["alone", "all"].map(|name| format!("{name}.{ending}"));
        for (command, out) in [
            ("pca -k 3 --loadings", ""),
            ("grm", ""),
            ("distance --metric ibs", "/d.npy"),
            ("distance --metric cityblock --with alone.vcz", "/d.tsv"),
            ("project --loadings 0/loadings.tsv.gz", ""),
        ] {
            scratch.ok(&format!("{command} {alone} --out expected{out}"));
            let record = scratch.record(&format!("{command} {all} --out ours{out} {LISTS}"));
            assert_eq!(scratch.results("ours"), scratch.results("expected"), "{command} {ending}");
            assert_eq!(record["shape"]["samples"], KEPT.len(), "{command}");
            assert_eq!(record["shape"]["variants"], 833, "{command}");
            let counts = |name: &str| record["contigs"][name].clone();
            assert_eq!([counts("autosomal"), counts("sex")], [json!(336), json!({"X": 497})], "{command}");
            if command.starts_with("pca") {
                fs::rename(scratch.join("expected"), scratch.join("0")).unwrap();
            } else {
                fs::remove_dir_all(scratch.join("expected")).unwrap();
            }
            fs::remove_dir_all(scratch.join("ours")).unwrap();
        }
        fs::remove_dir_all(scratch.join("0")).unwrap();
    }
}

#[test]
fn lists_are_told() {
    let scratch = stores();
    let ran = scratch.ok(&format!("grm all.bed --out grm --chr 1,X {LISTS}"));
    let lines = ["--keep keep.txt: 10 of 14 samples left", "--remove remove.txt: 9 of 10 samples left"];
    assert_has(&ran.out, &lines);
    assert_has(&ran.out, &["--extract regions.bed: 834 of 2,600 variants left"]);
    assert_has(&ran.out, &["--exclude exclude.txt: 833 of 834 variants"]);
    let warnings = [
        "warning: --keep: 1 of 11 ids of keep.txt are not among the samples",
        "warning: --keep: 1 id of keep.txt repeats an earlier one",
        "warning: --exclude: 2 of 3 ids of exclude.txt are not among the variants",
        "warning: --exclude: 1 id of exclude.txt repeats an earlier one",
    ];
    assert_has(&ran.err, &warnings);
    let chosen = json!({
        "option": "--exclude", "path": "exclude.txt", "entries": 3, "repeated": 1, "absent": 2, "before": 834, "left": 833,
    });
    assert_eq!(scratch.json("grm/run.json")["chosen"][3], chosen);
    assert_eq!(scratch.json("grm/run.json")["chosen"][2]["entries"], 2);
    // A BED of any name, with the first position of regions.
    scratch.write("regions", "chr1 103 439\n");
    for (argument, left) in [("bed1:regions", 337), ("bed0:regions", 336)] {
        let record = scratch.record(&format!("grm all.vcz --out {left} --extract {argument}"));
        assert_eq!(record["shape"]["variants"], left);
    }
}

#[test]
fn lists_that_leave_nothing_name_the_option() {
    let scratch = stores();
    scratch.write("ids.txt", "s1\ns2\n");
    scratch.write("every.txt", "f0 s0\n");
    let refused = |words: &str, said: &[&str]| scratch.refused(&format!("grm {words} --out new"), 1, said);
    let said = ["--keep ids.txt: 0 of 14 samples left: 2 of 2 ids of", "an id alone is of family 0"];
    refused("all.bed --keep ids.txt", &said);
    let said = ["--remove every.txt: 0 of 1 sample left"];
    refused("all.bed --keep every.txt --remove every.txt", &said);
    let said = ["--extract ids.txt: 0 of 2,600 variants left: 2 of 2 ids", "bed0:FILE or bed1:FILE"];
    refused("all.vcz --extract ids.txt", &said);
    refused("all.vcz --extract regions.bed --exclude regions.bed", &["--exclude regions.bed: 0 of 834"]);
    let said = ["all.bed: is a .bed of PLINK's genotypes"];
    refused("all.vcz --extract all.bed", &said);
    refused("all.vcz --exclude bed1:ids.txt", &["ids.txt: line 1 is no region"]);
    refused("all.vcz --remove none.txt", &["none.txt"]);
}
