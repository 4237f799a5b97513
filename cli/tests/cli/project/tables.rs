//! Tests of tables of loadings, and of refused ones.

use std::{fs, io::Write};

use flate2::{Compression, write::GzEncoder};

use super::{LOADINGS, assert_close, numbers, reference, sites, write};
use crate::support::{Scratch, names, plain_array, unpacked};

/// Returns a scratch folder with a store and its loadings, and the text of the loadings.
fn with_loadings() -> (Scratch, String) {
    let scratch = Scratch::new();
    write(&scratch, "old.vcz", &sites());
    reference(&scratch, "old.vcz -k 2");
    let text = unpacked(&scratch.join("reference/loadings.tsv.gz"));
    (scratch, text)
}

fn project(table: &str) -> String {
    format!("project old.vcz --loadings {table} --out out --overwrite")
}

fn packed(parts: &[&[u8]]) -> Vec<u8> {
    let mut file = Vec::new();
    for part in parts {
        let mut member = GzEncoder::new(file, Compression::fast());
        member.write_all(part).unwrap();
        file = member.finish().unwrap();
    }
    file
}

/// Files that are no valid table are named: truncated, broken or too long files, a folder, a pipe.
#[test]
fn damaged_files_are_named() {
    let (scratch, text) = with_loadings();
    // An uncompressed table is accepted, and so are two gzip members.
    scratch.write("table.tsv", &text);
    let (first, second) = text.as_bytes().split_at(text.len() / 2);
    scratch.write("two.gz", packed(&[first, second]));
    for table in ["table.tsv", "two.gz"] {
        scratch.ok(&project(table));
    }
    let bytes = scratch.bytes("reference/loadings.tsv.gz");
    let refused = |bytes: &[u8], said: &[&str]| {
        scratch.write("cut.gz", bytes);
        scratch.refused(&project("cut.gz"), 1, &[&["cut.gz"], said].concat());
    };
    for length in [10, 40, bytes.len() / 2, bytes.len() - 9, bytes.len() - 3] {
        refused(&bytes[..length], &[]);
    }
    let mut broken = bytes.clone();
    broken[bytes.len() / 2] ^= 0x55;
    refused(&broken, &[]);
    refused(b"#teatime-loadings\t\xff\xfe\n", &["line 1", "UTF-8"]);
    // A line that is small only when compressed is not read into memory whole.
    let start: String = text.lines().take(2).map(|line| format!("{line}\n")).collect();
    refused(&packed(&[start.as_bytes(), &vec![b'A'; 17 << 20], b"\n"]), &["line 3", "more than 16 MiB"]);
    scratch.refused(&project("nowhere.gz"), 1, &["nowhere.gz"]);
    scratch.refused(&project("reference"), 1, &["is a folder", "loadings.tsv.gz"]);
    // Opening a named pipe blocks until there is a writer.
    if cfg!(unix) {
        let made = std::process::Command::new("mkfifo").arg(scratch.join("pipe")).status();
        assert!(made.expect("there should be a mkfifo command").success());
        scratch.refused(&project("pipe"), 1, &["pipe", "is not a file", "--loadings"]);
    }
}

#[test]
fn damaged_lines_are_named() {
    let (scratch, text) = with_loadings();
    let lines: Vec<&str> = text.lines().collect();
    let head = |count: usize| format!("{}\n", lines[..count].join("\n"));
    let with = |line: usize, column: usize, value: &str| {
        let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let mut columns: Vec<&str> = lines[line - 1].split('\t').collect();
        columns[column] = value;
        lines[line - 1] = columns.join("\t");
        lines.join("\n") + "\n"
    };
    let replaced = |from: &str, to: &str| text.replacen(from, to, 1);
    for (table, said) in [
        (String::new(), &["table.tsv", "no table of loadings"][..]),
        ("#CHROM\tPOS\n".into(), &["no table of loadings", "#teatime-loadings"]),
        (replaced("version=1", "version=2"), &["line 1", "version 2"]),
        (replaced("patterson", "best"), &["line 1", "`best`"]),
        (replaced("samples=6", "samples=six"), &["line 1", "samples=six"]),
        (replaced("ploidy=2", "ploidy=1"), &["ploidy 1", "ploidy 2"]),
        (replaced("rows=20", "rows=9999999999999999999"), &["no memory for 9999999999999999999"]),
        (replaced("singular_values=", "singular_values=NaN,"), &["line 1", "`NaN`"]),
        (replaced("singular_values=", "singular_values=9,"), &["3 singular values of 2"]),
        (lines[0].into(), &["line 1", "ends within"]),
        (head(1), &["line 1", "ends here"]),
        (replaced("counted", "count"), &["line 2", "columns are not contig"]),
        (replaced("PC2", "PC3"), &["line 2", "columns"]),
        (head(2), &["ends after 0 of 20"]),
        (head(9), &["line 9", "ends after 7 of 20"]),
        (text[..text.len() - 4].into(), &["line 22", "ends within"]),
        (with(7, 10, "1\t2"), &["line 7", "12 columns instead of 11"]),
        (with(7, 1, "x"), &["line 7", "position `x`"]),
        (with(7, 5, "N"), &["line 7", "counts `N`"]),
        (with(8, 6, "NaN"), &["line 8", "frequency: NaN"]),
        (with(8, 7, "1.9"), &["line 8", "mean 1.9", "ploidy 2"]),
        (with(8, 8, "0"), &["line 8", "scale: 0"]),
        (with(8, 9, "one"), &["line 8", "PC1: `one`"]),
        (with(8, 10, "inf"), &["line 8", "PC2 is inf"]),
    ] {
        scratch.write("table.tsv", table);
        scratch.refused(&project("table.tsv"), 1, said);
    }
}

#[test]
fn tables_of_earlier_versions() {
    let (scratch, text) = with_loadings();
    let (_, rest) = text.split_once('\n').unwrap();
    scratch.write("table.tsv", format!("#teatime-loadings\tversion=1\tscaler=patterson\n{rest}"));
    let record = scratch.record(&project("table.tsv"));
    assert!(record["reference"]["singular_values"].is_null() && record["reference"]["samples"].is_null());
    // Without singular values, no eigenvectors are written.
    assert_eq!(names(&scratch.join("out")), ["projection.samples.tsv", "projection.tsv", "run.json"]);
    let [ours, own] = ["out/projection.tsv", "reference/scores.tsv"].map(|name| numbers(&scratch, name, 1));
    assert_close(&ours, &own);
    // The table does not state its ploidy, but its means do.
    plain_array(&scratch.join("haploid"), "|i1", &[20, 6, 1], &[0; 120]);
    scratch.refused("project haploid --loadings table.tsv --out new", 1, &["line 3", "ploidy 1"]);
    scratch.refused(&format!("project haploid {LOADINGS} --out new"), 1, &["ploidy 2", "ploidy 1"]);
}

#[test]
fn other_refusals() {
    let (scratch, _) = with_loadings();
    // Variants without alleles are known by position only, and a store that is given twice repeats each position.
    write(&scratch, "plain.vcz", &sites());
    fs::remove_dir_all(scratch.join("plain.vcz/variant_allele")).unwrap();
    scratch.ok("pca plain.vcz --out by_row --loadings -k 1");
    let mut without = sites();
    without.iter_mut().for_each(|site| site.dosages.fill(-1));
    write(&scratch, "without.vcz", &without);
    let said = ["variants of the stores repeat the position", "without alleles"];
    let words = "project plain.vcz plain.vcz --loadings by_row/loadings.tsv.gz --out new";
    scratch.refused(words, 1, &said);
    let words = format!("project without.vcz {LOADINGS} --out new");
    scratch.refused(&words, 1, &["no call of the 20 variants"]);
    // The folder of the reference holds a record already.
    let before = crate::support::files(&scratch.join("reference"));
    for more in ["", "--overwrite"] {
        let words = format!("project old.vcz {LOADINGS} --out reference {more}");
        scratch.refused(&words, 1, &["does not replace", "`teatime pca`"]);
    }
    assert!(crate::support::files(&scratch.join("reference")) == before);
}
