//! `teatime project`: against the reference's own PCA and other tools' projections, and what it refuses.

use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use teatime::zarr::{Variant, VcfZarrHeader, VcfZarrWriter};

use crate::support::{Ran, Scratch, command, fixture, json, names, number, pca, plain_array, rows};

/// `teatime project STORE --loadings LOADINGS --out OUT` and words.
fn project(store: &Path, loadings: &Path, out: &Path, more: &[&str]) -> Ran {
    let mut command = command(["project".as_ref(), store.as_os_str(), "--loadings".as_ref()]);
    command.args([loadings.as_os_str(), "--out".as_ref(), out.as_os_str()]).args(more);
    command.output().expect("the binary should start").into()
}

/// The PCA of a store with its loadings: their path.
fn reference(scratch: &Scratch, store: &Path, more: &[&str]) -> PathBuf {
    let out = scratch.join("reference");
    pca(store, &out, &[&["--loadings", "--overwrite"], more].concat()).ok();
    out.join("loadings.tsv.gz")
}

fn unpacked(path: &Path) -> String {
    let mut text = String::new();
    MultiGzDecoder::new(fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text
}

/// Numbers of a table of samples, without their names.
fn numbers(path: &Path) -> Vec<Vec<f64>> {
    rows(path).iter().map(|row| row[1..].iter().map(|value| number(value)).collect()).collect()
}

/// Every number as near to the other's as a fraction of its column's largest, or its negative in all of the column.
fn assert_close(ours: &[Vec<f64>], theirs: &[Vec<f64>], tolerance: f64, any_sign: bool) {
    assert_eq!((ours.len(), ours[0].len()), (theirs.len(), theirs[0].len()));
    for j in 0..ours[0].len() {
        let dot: f64 = ours.iter().zip(theirs).map(|(a, b)| a[j] * b[j]).sum();
        let sign = if any_sign { dot.signum() } else { 1.0 };
        let largest = theirs.iter().fold(0.0, |most: f64, row| most.max(row[j].abs()));
        for (i, (a, b)) in ours.iter().zip(theirs).enumerate() {
            let (a, b) = (a[j], b[j] * sign);
            assert!((a - b).abs() <= tolerance * largest, "sample {i}, PC{}: {a} and {b}", j + 1);
        }
    }
}

/// A place and its alleles, with the dosages of the samples.
struct Site {
    variant: Variant,
    dosages: Vec<i8>,
}

fn site(contig: &str, position: u64, alleles: [&str; 2], dosages: &[i8]) -> Site {
    let [reference, alternate] = alleles.map(str::to_owned);
    let variant =
        Variant { contig: contig.into(), position, id: format!("v{position}"), reference, alternate };
    Site { variant, dosages: dosages.to_vec() }
}

/// Writes a store of diploids.
fn write(path: &Path, sites: &[Site]) {
    let samples = (0..sites[0].dosages.len()).map(|i| format!("s{i}")).collect();
    let mut contigs: Vec<String> = sites.iter().map(|site| site.variant.contig.to_string()).collect();
    contigs.dedup();
    contigs.sort_unstable();
    contigs.dedup();
    let mut header = VcfZarrHeader::new(samples, contigs, sites.len() as u64);
    header.alleles = 3;
    let alleles = |dosage: &i8| match dosage {
        -1 => [-1, -1],
        dosage => [dosage / 2, dosage - dosage / 2],
    };
    let calls: Vec<i8> = sites.iter().flat_map(|site| site.dosages.iter().flat_map(alleles)).collect();
    let variants: Vec<Variant> = sites.iter().map(|site| site.variant.clone()).collect();
    drop(fs::remove_dir_all(path));
    let writer = VcfZarrWriter::create(path, header).unwrap();
    writer.write_chunk(0, &calls, &variants).unwrap();
    writer.finish().unwrap();
}

/// Twenty sites of six samples on two contigs, all of which vary; some calls are missing.
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

#[test]
fn the_references_samples_get_their_scores_back() {
    let scratch = Scratch::new();
    for (store, more) in [
        ("biallelic.vcz", &[][..]),
        ("all_v3.vcz", &["--scaler", "binom2", "--maf", "0.05"]),
        ("all_v2.vcz", &["--scaler", "none", "-k", "3"]),
        ("allel.zarr", &["--scaler", "standard"]),
        ("malariagen.zarr", &["--scaler", "center"]),
    ] {
        let (store, out) = (fixture(store), scratch.join("out"));
        let loadings = reference(&scratch, &store, more);
        let ran = project(&store, &loadings, &out, &["--overwrite", "--json"]).ok();
        assert!(ran.err.is_empty(), "{}", ran.err);
        let own = loadings.with_file_name("scores.tsv");
        assert_close(&numbers(&out.join("projection.tsv")), &numbers(&own), 1e-5, false);
        let own = loadings.with_file_name("pca.eigenvec");
        assert_close(&numbers(&out.join("projection.eigenvec")), &numbers(&own), 1e-5, false);
        for (ours, theirs) in [("projection.tsv", "scores.tsv"), ("projection.eigenvec", "pca.eigenvec")] {
            let text = |path: PathBuf| fs::read_to_string(path).unwrap();
            let ids = |text: &str| {
                text.lines().map(|l| l.split('\t').next().unwrap().to_owned()).collect::<Vec<_>>()
            };
            let (ours, theirs) = (text(out.join(ours)), text(loadings.with_file_name(theirs)));
            assert_eq!(ours.lines().next(), theirs.lines().next());
            assert_eq!(ids(&ours), ids(&theirs));
        }
        let own = json(&fs::read_to_string(loadings.with_file_name("run.json")).unwrap());
        let record = json(&ran.out);
        assert_eq!(record["matched"]["loadings"]["used"], own["variants"]["used"]);
        assert_eq!(record["allele_counts"], own["allele_counts"]);
    }
}

#[test]
fn other_tools_project_alike() {
    let scratch = Scratch::new();
    let store = fixture("projection.zarr");
    for (set, golden) in [("complete", "projection/allel.tsv"), ("biallelic", "projection/flashpca.tsv")] {
        let [old, new] = ["reference", "new"].map(|part| format!("{set}_{part}"));
        let loadings = reference(&scratch, &store, &["--array", &old]);
        let out = scratch.join("out");
        let ran = project(&store, &loadings, &out, &["--array", &new, "--overwrite", "--json"]).ok();
        // Rows of a plain array have neither places nor alleles.
        assert!(ran.err.starts_with("warning: ") && ran.err.contains("alleles being unknown"), "{}", ran.err);
        let m = json(&ran.out)["reference"]["variants"].as_f64().unwrap();
        let divisor = if set == "complete" { 1.0 } else { (2.0 * m).sqrt() };
        let ours: Vec<Vec<f64>> = numbers(&out.join("projection.tsv"))
            .iter()
            .map(|row| row.iter().map(|score| score / divisor).collect())
            .collect();
        assert_close(&ours, &numbers(&fixture(golden)), 1e-5, true);
    }
}

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
    // The same alleles in another order and in small letters.
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
    assert!(ran.err.is_empty(), "{}", ran.err);
    let own = numbers(&loadings.with_file_name("scores.tsv"));
    assert_close(&numbers(&out.join("projection.tsv")), &own, 1e-5, false);
    for words in
        ["20 used, 8 of them with alleles swapped", "of the stores, 3 not in the loadings, 1 repeated"]
    {
        assert!(ran.out.contains(words), "`{words}` is not in: {}", ran.out);
    }
    let record = json(&fs::read_to_string(out.join("run.json")).unwrap());
    assert_eq!(record["command"], "project");
    let expected = serde_json::json!({
        "loadings": {
            "variants": 20, "used": 20, "swapped": 8, "alleles_unknown": 0, "absent": 0, "other_alleles": 0, "repeated": 0,
        },
        "stores": {"variants": 24, "not_in_loadings": 3, "repeated": 1},
    });
    assert_eq!(record["matched"], expected);
    let missing = sites().iter().flat_map(|site| &site.dosages).filter(|&&g| g < 0).count();
    assert_eq!(record["missing_calls"], missing);
    assert_eq!(record["reference"]["samples"], 6);
    assert_eq!(record["shape"]["samples"], 6);
    let mut files: Vec<_> = record["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    files.sort_unstable();
    assert_eq!(names(&out), files);
    assert_eq!(files, ["projection.eigenvec", "projection.tsv", "run.json"]);
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

#[test]
fn nothing_in_common_is_refused_however_much_may_be_missing() {
    let scratch = Scratch::new();
    let (old, new) = (scratch.join("old.vcz"), scratch.join("new.vcz"));
    write(&old, &sites());
    let loadings = reference(&scratch, &old, &["-k", "2"]);
    let mut renamed = sites();
    renamed
        .iter_mut()
        .for_each(|site| site.variant.contig = Arc::from(format!("chr{}", site.variant.contig)));
    write(&new, &renamed);
    let ran = project(&new, &loadings, &scratch.join("out"), &["--max-mismatch", "1"]);
    assert_eq!(ran.code, 1);
    for words in ["no variant", "20 not in the stores", "contig `1`", "`chr1`"] {
        assert!(ran.err.contains(words), "`{words}` is not in: {}", ran.err);
    }
    assert!(!scratch.join("out").exists());
}

/// Runs on a changed table and expects an error that has all the words, and no output.
fn refused(scratch: &Scratch, store: &Path, loadings: &Path, more: &[&str], words: &[&str]) {
    let out = scratch.join("refused/out");
    let ran = project(store, loadings, &out, more);
    assert_eq!(ran.code, 1, "{words:?}: {}", ran.err);
    assert!(ran.err.starts_with("error: "), "{}", ran.err);
    for word in words {
        assert!(ran.err.contains(word), "`{word}` is not in: {}", ran.err);
    }
    assert!(ran.out.is_empty(), "{}", ran.out);
    assert!(!scratch.join("refused").exists(), "something is left");
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
        refused(&scratch, &store, &table, &[], words);
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
        refused(&scratch, &store, &cut, &[], &["cut.tsv.gz"]);
    }
    let mut broken = bytes.clone();
    broken[bytes.len() / 2] ^= 0x55;
    fs::write(&cut, &broken).unwrap();
    refused(&scratch, &store, &cut, &[], &["cut.tsv.gz"]);

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
    refused(&scratch, &store, &table, &[], &["line 1", "UTF-8"]);
    refused(&scratch, &store, &scratch.join("nowhere.gz"), &[], &["nowhere.gz"]);
    refused(&scratch, &store, &scratch.join("reference"), &[], &["is a folder", "loadings.tsv.gz"]);
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
    assert_eq!(names(&out), ["projection.tsv", "run.json"], "without singular values no eigenvectors");
    let own = numbers(&loadings.with_file_name("scores.tsv"));
    assert_close(&numbers(&out.join("projection.tsv")), &own, 1e-5, false);
    // It does not say its ploidy, but its means do.
    let haploid = scratch.join("haploid.zarr");
    plain_array(&haploid, "|i1", &[20, 6, 1], &[0; 120]);
    refused(&scratch, &haploid, &table, &[], &["line 3", "ploidy 1"]);
}

#[test]
fn counted_reference_alleles_turn_dosages_round() {
    let scratch = Scratch::new();
    let store = scratch.join("old.vcz");
    write(&store, &sites());
    let loadings = reference(&scratch, &store, &["-k", "2"]);
    // The same components with the reference allele counted: frequency, mean and loadings of the other allele.
    let turned = |line: &str| {
        let mut columns: Vec<String> = line.split('\t').map(str::to_owned).collect();
        columns[5] = columns[3].clone();
        let [frequency, mean] = [6, 7].map(|i| number(&columns[i]));
        (columns[6], columns[7]) = ((1.0 - frequency).to_string(), (2.0 - mean).to_string());
        for value in &mut columns[9..] {
            *value = (-number(value)).to_string();
        }
        columns.join("\t") + "\n"
    };
    let text = unpacked(&loadings);
    let mut lines = text.lines();
    let head: Vec<&str> = lines.by_ref().take(2).collect();
    let table = scratch.join("table.tsv");
    fs::write(&table, format!("{}\n{}", head.join("\n"), lines.map(turned).collect::<String>())).unwrap();
    let out = scratch.join("out");
    let record = json(&project(&store, &table, &out, &["--json"]).ok().out);
    assert_eq!(record["matched"]["loadings"]["swapped"], 20);
    let own = numbers(&loadings.with_file_name("scores.tsv"));
    assert_close(&numbers(&out.join("projection.tsv")), &own, 1e-5, false);
}

#[test]
fn other_refusals() {
    let scratch = Scratch::new();
    let store = scratch.join("old.vcz");
    write(&store, &sites());
    let loadings = reference(&scratch, &store, &["-k", "2"]);
    let haploid = scratch.join("haploid.zarr");
    plain_array(&haploid, "|i1", &[20, 6, 1], &[0; 120]);
    refused(&scratch, &haploid, &loadings, &[], &["ploidy 2", "ploidy 1"]);
    refused(&scratch, &scratch.join("nowhere"), &loadings, &[], &["nowhere"]);
    // Rows of plain arrays have no more than a number, which two of them share.
    let plain = scratch.join("plain.zarr");
    let dosages: Vec<u8> = (0..120).map(|i| i % 3).collect();
    plain_array(&plain, "|i1", &[20, 6], &dosages);
    let by_row = scratch.join("by_row");
    pca(&plain, &by_row, &["--loadings", "-k", "1"]).ok();
    let (by_row, twice) = (by_row.join("loadings.tsv.gz"), [plain.to_str().unwrap()]);
    refused(
        &scratch,
        &plain,
        &by_row,
        &twice,
        &["variants of the stores repeat the position", "without alleles"],
    );
    refused(&scratch, &store, &loadings, &["--memory", "1K"], &["--memory", "needs at least"]);
    refused(&scratch, &store, &loadings, &["--device", "abacus"], &["abacus"]);
    let usage = project(&store, &loadings, &scratch.join("refused"), &["--max-mismatch", "2"]);
    assert_eq!(usage.code, 2);
    assert!(usage.err.contains("--max-mismatch"), "{}", usage.err);

    // The reference's own folder holds a record already.
    let folder = loadings.parent().unwrap();
    let before = names(folder);
    let ran = project(&store, &loadings, folder, &[]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("--overwrite"), "{}", ran.err);
    assert_eq!(names(folder), before);
}

#[test]
fn the_same_bits_with_other_threads_and_memory() {
    let scratch = Scratch::new();
    let store = fixture("all_v3.vcz");
    let loadings = reference(&scratch, &store, &[]);
    let out = scratch.join("out");
    let runs = [["1", "64M"], ["4", "64M"], ["2", "1G"]].map(|[threads, memory]| {
        let more = ["--threads", threads, "--memory", memory, "--overwrite"];
        project(&store, &loadings, &out, &more).ok();
        ["projection.tsv", "projection.eigenvec"].map(|name| fs::read(out.join(name)).unwrap())
    });
    assert!(runs[0] == runs[1] && runs[0] == runs[2]);
}
