//! Tables of loadings, and what is refused.

use std::{fs, io::Write};

use flate2::{Compression, write::GzEncoder};

use super::{assert_close, numbers, project, reference, refused, sites, unpacked, write};
use crate::support::{Scratch, json, names, pca, plain_array};

/// A table that gzip makes small is not read into memory whole.
#[test]
fn a_line_without_end_is_refused() {
    let scratch = Scratch::new();
    let store = scratch.join("old.vcz");
    write(&store, &sites());
    let text = unpacked(&reference(&scratch, &store, &["-k", "2"]));
    let long = scratch.join("long.tsv.gz");
    let mut file = GzEncoder::new(fs::File::create(&long).unwrap(), Compression::fast());
    for line in text.lines().take(2) {
        writeln!(file, "{line}").unwrap();
    }
    file.write_all(&vec![b'A'; 17 << 20]).unwrap();
    file.write_all(b"\n").unwrap();
    file.finish().unwrap();
    refused(&store, &long, &[], &["long.tsv.gz", "line 3", "more than 16 MiB"]);
}

/// Opening a named pipe waits for a writer.
#[test]
#[cfg(unix)]
fn a_pipe_is_no_table() {
    let scratch = Scratch::new();
    let store = scratch.join("old.vcz");
    write(&store, &sites());
    let pipe = scratch.join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.expect("there should be a mkfifo command").success());
    refused(&store, &pipe, &[], &["pipe", "is not a file", "--loadings"]);
}

#[test]
fn damaged_tables_are_named() {
    let scratch = Scratch::new();
    let store = scratch.join("old.vcz");
    write(&store, &sites());
    let loadings = reference(&scratch, &store, &["-k", "2"]);
    let table = scratch.join("table.tsv");
    let fails = |text: &str, words: &[&str]| {
        fs::write(&table, text).unwrap();
        refused(&store, &table, &[], words);
    };
    let text = unpacked(&loadings);
    let lines: Vec<&str> = text.lines().collect();
    // The table as it is, unpacked, will do.
    fs::write(&table, &text).unwrap();
    project(&store, &table, &scratch.join("plain"), &[]).ok();

    let file = fs::File::create(scratch.join("two.gz")).unwrap();
    let mut file = GzEncoder::new(file, Compression::fast());
    let half = text.len() / 2;
    file.write_all(&text.as_bytes()[..half]).unwrap();
    let mut file = GzEncoder::new(file.finish().unwrap(), Compression::fast());
    file.write_all(&text.as_bytes()[half..]).unwrap();
    file.finish().unwrap();
    project(&store, &scratch.join("two.gz"), &scratch.join("members"), &[]).ok();

    let bytes = fs::read(&loadings).unwrap();
    let cut = scratch.join("cut.tsv.gz");
    for length in [10, 40, bytes.len() / 2, bytes.len() - 9, bytes.len() - 3] {
        fs::write(&cut, &bytes[..length]).unwrap();
        refused(&store, &cut, &[], &["cut.tsv.gz"]);
    }
    let mut broken = bytes.clone();
    broken[bytes.len() / 2] ^= 0x55;
    fs::write(&cut, &broken).unwrap();
    refused(&store, &cut, &[], &["cut.tsv.gz"]);

    fails("", &["table.tsv", "no table of loadings"]);
    fails("#CHROM\tPOS\n", &["no table of loadings", "#teatime-loadings"]);
    fails(&text.replacen("version=1", "version=2", 1), &["line 1", "version 2"]);
    fails(&text.replacen("patterson", "best", 1), &["line 1", "`best`"]);
    fails(&text.replacen("samples=6", "samples=six", 1), &["line 1", "samples=six"]);
    fails(&text.replacen("ploidy=2", "ploidy=1", 1), &["ploidy 1", "ploidy 2"]);
    fails(&text.replacen("rows=20", "rows=9999999999999999999", 1), &["no memory for 9999999999999999999"]);
    fails(&text.replacen("singular_values=", "singular_values=NaN,", 1), &["line 1", "`NaN`"]);
    fails(&text.replacen("singular_values=", "singular_values=9,", 1), &["3 singular values of 2"]);
    fails(lines[0], &["line 1", "ends within"]);
    fails(&format!("{}\n", lines[0]), &["line 1", "ends here"]);
    fails(&text.replacen("counted", "count", 1), &["line 2", "columns are not contig"]);
    fails(&text.replacen("PC2", "PC3", 1), &["line 2", "columns"]);
    fails(&format!("{}\n", lines[..2].join("\n")), &["ends after 0 of 20"]);
    fails(&format!("{}\n", lines[..9].join("\n")), &["line 9", "ends after 7 of 20"]);
    fails(&text[..text.len() - 4], &["line 22", "ends within"]);

    let with = |line: usize, column: usize, value: &str| {
        let mut lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        let mut columns: Vec<&str> = lines[line - 1].split('\t').collect();
        columns[column] = value;
        lines[line - 1] = columns.join("\t");
        lines.join("\n") + "\n"
    };
    fails(&with(7, 10, "1\t2"), &["line 7", "12 columns instead of 11"]);
    fails(&with(7, 1, "x"), &["line 7", "position `x`"]);
    fails(&with(7, 5, "N"), &["line 7", "counts `N`"]);
    fails(&with(8, 6, "NaN"), &["line 8", "frequency: NaN"]);
    fails(&with(8, 7, "1.9"), &["line 8", "mean 1.9", "ploidy 2"]);
    fails(&with(8, 8, "0"), &["line 8", "scale: 0"]);
    fails(&with(8, 9, "one"), &["line 8", "PC1: `one`"]);
    fails(&with(8, 10, "inf"), &["line 8", "PC2 is inf"]);
    fs::write(&table, b"#teatime-loadings\t\xff\xfe\n").unwrap();
    refused(&store, &table, &[], &["line 1", "UTF-8"]);
    refused(&store, &scratch.join("nowhere.gz"), &[], &["nowhere.gz"]);
    refused(&store, &scratch.join("reference"), &[], &["is a folder", "loadings.tsv.gz"]);
}

#[test]
fn tables_of_earlier_versions() {
    let scratch = Scratch::new();
    let store = scratch.join("old.vcz");
    write(&store, &sites());
    let loadings = reference(&scratch, &store, &["-k", "2"]);
    let text = unpacked(&loadings);
    let (_, rest) = text.split_once('\n').unwrap();
    let table = scratch.join("table.tsv");
    fs::write(&table, format!("#teatime-loadings\tversion=1\tscaler=patterson\n{rest}")).unwrap();
    let out = scratch.join("out");
    let record = json(&project(&store, &table, &out, &["--json"]).ok().out);
    assert!(record["reference"]["singular_values"].is_null() && record["reference"]["samples"].is_null());
    // Without singular values no eigenvectors.
    assert_eq!(names(&out), ["projection.samples.tsv", "projection.tsv", "run.json"]);
    let own = numbers(&loadings.with_file_name("scores.tsv"));
    assert_close(&numbers(&out.join("projection.tsv")), &own, 1e-5, false);
    // It does not say its ploidy, but its means do.
    let haploid = scratch.join("haploid.zarr");
    plain_array(&haploid, "|i1", &[20, 6, 1], &[0; 120]);
    refused(&haploid, &table, &[], &["line 3", "ploidy 1"]);
}

#[test]
fn other_refusals() {
    let scratch = Scratch::new();
    let store = scratch.join("old.vcz");
    write(&store, &sites());
    let loadings = reference(&scratch, &store, &["-k", "2"]);
    let haploid = scratch.join("haploid.zarr");
    plain_array(&haploid, "|i1", &[20, 6, 1], &[0; 120]);
    refused(&haploid, &loadings, &[], &["ploidy 2", "ploidy 1"]);
    refused(&scratch.join("nowhere"), &loadings, &[], &["nowhere"]);
    // Variants without alleles have no more than a position, which those of a store that is given twice share.
    let plain = scratch.join("plain.vcz");
    write(&plain, &sites());
    fs::remove_dir_all(plain.join("variant_allele")).unwrap();
    let by_row = scratch.join("by_row");
    pca(&plain, &by_row, &["--loadings", "-k", "1"]).ok();
    let (by_row, twice) = (by_row.join("loadings.tsv.gz"), [plain.to_str().unwrap()]);
    refused(&plain, &by_row, &twice, &["variants of the stores repeat the position", "without alleles"]);
    let mut without = sites();
    without.iter_mut().for_each(|site| site.dosages.fill(-1));
    write(&scratch.join("without.vcz"), &without);
    refused(&scratch.join("without.vcz"), &loadings, &[], &["no call of the 20 variants"]);
    refused(&store, &loadings, &["--memory", "1K"], &["--memory", "needs at least"]);
    refused(&store, &loadings, &["--device", "abacus"], &["abacus"]);
    let usage = project(&store, &loadings, &scratch.join("refused"), &["--max-mismatch", "2"]);
    assert_eq!(usage.code, 2);
    assert!(usage.err.contains("--max-mismatch"), "{}", usage.err);
    let usage = project(&store, &loadings, &scratch.join("refused"), &["--counted-allele", "1"]);
    assert_eq!(usage.code, 2);
    assert!(
        usage.err.contains("teatime project matches variants by the names of their alleles"),
        "{}",
        usage.err
    );

    // The reference's own folder holds a record already.
    let folder = loadings.parent().unwrap();
    let before = names(folder);
    let record = || fs::read(folder.join("run.json")).unwrap();
    let own = record();
    for more in [&[][..], &["--overwrite"]] {
        let ran = project(&store, &loadings, folder, more);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("does not replace") && ran.err.contains("`teatime pca`"), "{}", ran.err);
        assert_eq!(names(folder), before);
        assert!(record() == own, "the reference's record should stay");
    }
}
