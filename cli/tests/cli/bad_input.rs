//! Tests of input that must end in a clear error: no panic, no hang, and nothing left behind.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::support::{self, Scratch, command, copy, fixture, pca, plain_array, run, store};

fn refused(store: &Path, more: &[&str], words: &[&str]) {
    support::refused("pca", store, more, 1, words);
}

/// A copy of a store, and the path of a file in it.
fn damaged(scratch: &Scratch, file: &str) -> (PathBuf, PathBuf) {
    let path = scratch.join("damaged.vcz");
    drop(fs::remove_dir_all(&path));
    copy(&fixture("all_v3.vcz"), &path);
    let file = path.join(file);
    assert!(file.exists(), "{}", file.display());
    (path, file)
}

#[test]
fn no_store() {
    let scratch = Scratch::new();
    refused(&scratch.join("nowhere"), &[], &["nowhere"]);
    let file = scratch.join("file.vcf");
    fs::write(&file, "##fileformat=VCFv4.3").unwrap();
    refused(&file, &[], &["file.vcf", "is a VCF file", "vcf2zarr", "--make-bed"]);
    let file = scratch.join("file");
    fs::write(&file, "text").unwrap();
    refused(&file, &[], &["is a file", ".bed"]);
    let folder = scratch.join("folder");
    fs::create_dir(&folder).unwrap();
    refused(&folder, &[], &["folder", "not a Zarr store"]);
}

#[test]
fn remote_stores() {
    let (store, loadings) = (fixture("all_v3.vcz"), fixture("all_v3.vcz/zarr.json"));
    let [store, loadings] = [&store, &loadings].map(|path| path.to_string_lossy());
    for url in ["s3://bucket/a.vcz", "gs://bucket/a", "https://example.org/a.vcz", "http://example.org/a.bed"]
    {
        for args in [
            &["pca", url, "--out", "out"][..],
            &["grm", &store, url, "--out", "out"],
            &["pca", &store, "--out", url],
            &["project", &store, "--out", "out", "--loadings", url],
            &["project", url, "--out", "out", "--loadings", &loadings],
            &["demo", "--out", url],
        ] {
            let scratch = Scratch::new();
            let mut command = command(args);
            command.current_dir(scratch.join(""));
            let ran = run(command);
            assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
            for words in [url, "on disks", "copy"] {
                assert!(ran.err.contains(words), "{words}: {}", ran.err);
            }
            assert!(scratch.names().is_empty(), "{:?}", scratch.names());
        }
    }
}

#[test]
fn no_genotypes() {
    refused(&fixture("dosages_v3.zarr"), &[], &["call_genotype", "--array", "float32_zstd"]);
    refused(&fixture("all_v3.vcz"), &["--array", "nothing"], &["nothing"]);
    refused(&fixture("all_v3.vcz"), &["--array", "variant_position"], &["variant_position", "axes"]);
    refused(&fixture("all_v3.vcz"), &["--array", "call_genotype_mask"], &["call_genotype_mask", "Bool"]);
    refused(&fixture("all_v3.vcz"), &["--array", "sample_id"], &["sample_id"]);
}

/// Names that would break lines and columns of a table, or act on a terminal: of samples, families, and variants where these
/// are written.
#[test]
fn control_characters_in_names() {
    let scratch = Scratch::new();
    let path = scratch.join("names.vcz");
    for name in ["a\tb", "a\n", "\u{1b}[2J", "a\u{7f}", "a\u{85}b", "\0"] {
        drop(fs::remove_dir_all(&path));
        store(&path, &["x", name, "z"], &[&[0, 1, 2], &[1, 0, 0]]);
        // A name that ends with a NUL is shorter in some layouts, and not in this one.
        refused(&path, &["-k", "1"], &["names.vcz", "the sample \"", "control character"]);
    }
    for kind in ["bed", "bim"] {
        fs::copy(fixture(&format!("plink1/few5.{kind}")), scratch.join(&format!("names.{kind}"))).unwrap();
    }
    let fam = fs::read_to_string(fixture("plink1/few5.fam")).unwrap();
    let bed = scratch.join("names.bed");
    fs::write(scratch.join("names.fam"), fam.replacen("0\t", "\u{7}\t", 1)).unwrap();
    refused(&bed, &["-k", "1"], &["names.bed: the family \"\\u{7}\" has a control character"]);
    fs::write(scratch.join("names.fam"), fam).unwrap();
    let bim = fs::read_to_string(scratch.join("names.bim")).unwrap();
    for (column, what) in ["contig", "variant", "", "", "allele", "allele"].iter().enumerate() {
        let mut columns: Vec<_> = bim.lines().next().unwrap().split('\t').map(str::to_owned).collect();
        columns[column] += "\u{1b}";
        let rest = bim.split_once('\n').unwrap().1;
        fs::write(scratch.join("names.bim"), format!("{}\n{rest}", columns.join("\t"))).unwrap();
        let words = format!("the {what} \"");
        match *what {
            "" => {}
            "contig" => refused(&bed, &["-k", "1", "--chr", "1"], &[&words, "control character"]),
            _ => refused(&bed, &["-k", "1", "--loadings"], &[&words, "control character"]),
        }
    }
}

#[test]
fn white_space_in_names_is_told() {
    let scratch = Scratch::new();
    let path = scratch.join("names.vcz");
    store(&path, &["a b", "c", "d e"], &[&[0, 1, 2], &[1, 0, 0]]);
    let ran = pca(&path, &scratch.join("out"), &["-k", "1"]).ok();
    let warning =
        "warning: 2 names of samples with white space, at which plink2 and R divide columns: `a b`, `d e`";
    assert!(ran.err.lines().any(|line| line == warning), "{}", ran.err);
}

#[test]
fn stores_that_disagree() {
    let scratch = Scratch::new();
    let rows: &[&[i8]] = &[&[0, 1, 2], &[1, 0, 0]];
    let [abc, acb, apq, ab] = ["abc", "acb", "apq", "ab"].map(|name| scratch.join(name));
    store(&abc, &["a", "b", "c"], rows);
    store(&acb, &["a", "c", "b"], rows);
    store(&apq, &["a", "p", "q"], rows);
    store(&ab, &["a", "b"], &[&[0, 1], &[1, 0]]);
    let with = |other: &Path, words: &[&str]| refused(&abc, &["-k", "1", &other.to_string_lossy()], words);
    with(&acb, &["another order", "sample 2", "`c`", "`b`"]);
    let not_in = |n: &str, one: &Path, other: &Path, names: &str| {
        format!("{n} of {} not in {}: {names}", one.display(), other.display())
    };
    let (left, right) =
        (not_in("2 samples", &abc, &apq, "`b`, `c`"), not_in("2 samples", &apq, &abc, "`p`, `q`"));
    with(&apq, &[&format!("{left}; {right}")]);
    with(&ab, &[&not_in("1 sample", &abc, &ab, "`c`")]);
    let twice = pca(&abc, &scratch.join("twice"), &["-k", "1", &abc.join("../abc").to_string_lossy()]).ok();
    assert!(twice.err.contains("abc is given 2 times"), "{}", twice.err);
    let aba = scratch.join("aba");
    store(&aba, &["a", "b", "a"], rows);
    refused(&aba, &["-k", "1"], &["aba", "`a` occurs more than once"]);
}

#[test]
fn damaged_chunks_are_named() {
    let scratch = Scratch::new();
    let chunk = "call_genotype/c/1/2/0";
    let (path, file) = damaged(&scratch, chunk);
    let bytes = fs::read(&file).unwrap();
    let words = ["call_genotype", "[1, 2, 0]"];
    fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    refused(&path, &[], &words);
    fs::write(&file, vec![0xa5; bytes.len()]).unwrap();
    refused(&path, &[], &words);
    fs::write(&file, []).unwrap();
    refused(&path, &[], &words);
    fs::remove_file(&file).unwrap();
    let why = "an error unless --missing-chunk fill is given: missing chunks then hold the fill value, 0";
    refused(&path, &[], &[&words[..], &[why, "source bio2zarr-0.2.1", "vcf_zarr_version 0.5"]].concat());
    // Unless it is asked for.
    pca(&path, &scratch.join("filled"), &["--missing-chunk", "fill"]).ok();
    // A chunk that decodes to more than its shape.
    fs::copy(fixture("biallelic.vcz").join("call_genotype/c/0/0/0"), &file).unwrap();
    refused(&path, &[], &words);
}

#[test]
fn nothing_to_decompose() {
    let scratch = Scratch::new();
    let path = scratch.join("missing");
    store(&path, &["a", "b", "c"], &[&[-1, -1, -1][..]; 4]);
    refused(&path, &["-k", "1"], &["none of the 4 variants", "4 have no call"]);
    let path = scratch.join("constant");
    store(&path, &["a", "b", "c"], &[&[1, 1, 1], &[0, 0, -1], &[2, 2, 2]]);
    refused(&path, &["-k", "1"], &["none of the 3 variants", "3 do not vary"]);
    refused(&path, &["-k", "1", "--method", "randomized"], &["none of the 3 variants"]);
    let path = scratch.join("empty");
    plain_array(&path, "|i1", &[4, 0], &[]);
    refused(&path, &["-k", "1"], &["empty: 4 variants of 0 samples"]);
    refused(&fixture("all_v3.vcz"), &["-k", "61"], &["-k", "61", "60"]);
}

#[test]
fn dosages_out_of_range() {
    let scratch = Scratch::new();
    let array = |name: &str, dtype: &str, bytes: &[u8]| {
        let path = scratch.join(name);
        plain_array(&path, dtype, &[2, 3], bytes);
        path
    };
    let floats = |values: [f32; 6]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    let words = |value: &'static str| ["[0, 0]", value];
    let infinite = array("infinite", "<f4", &floats([0.0, 1.0, f32::INFINITY, 2.0, 1.0, 0.0]));
    refused(&infinite, &["-k", "1"], &words("inf"));
    let large = array("large", "<f4", &floats([0.0, 1.0, 2.5, 2.0, 1.0, 0.0]));
    refused(&large, &["-k", "1"], &words("2.5"));
    let wide = [0i16, 1, 300, 2, 1, 0].iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>();
    refused(&array("wide", "<i2", &wide), &["-k", "1"], &words("300"));
    refused(&array("bytes", "|u1", &[0, 1, 255, 2, 1, 0]), &["-k", "1"], &words("255"));
    let nan = array("nan", "<f4", &floats([0.0, 1.0, f32::NAN, 2.0, 1.0, 0.0]));
    refused(&nan, &["-k", "1"], &words("NaN"));
    refused(&nan, &["-k", "1"], &["unless --nan-missing is given"]);
    pca(&nan, &scratch.join("nan_missing"), &["-k", "1", "--nan-missing"]).ok();
    let three = array("three", "|u1", &[0, 1, 3, 2, 1, 0]);
    let standard = ["-k", "1", "--scaler", "standard"];
    pca(&three, &scratch.join("unbounded"), &standard).ok();
    refused(&three, &[&standard[..], &["--bounded-dosages"]].concat(), &words("3"));
    // Below zero is a missing call of integers; of floating point it is where an attribute says so.
    let missing = array("missing", "|i1", &[0, 1, 255, 2, 1, 0]);
    pca(&missing, &scratch.join("out"), &["-k", "1"]).ok();
    let missing = array("negative", "<f4", &floats([0.0, 1.0, -1.0, 2.0, 1.0, 0.0]));
    refused(&missing, &["-k", "1"], &words("-1"));
    fs::write(missing.join(".zattrs"), r#"{ "missing_value": -1 }"#).unwrap();
    pca(&missing, &scratch.join("marked"), &["-k", "1"]).ok();
}

#[test]
fn output_that_cannot_be_written() {
    let scratch = Scratch::new();
    let file = scratch.join("file");
    fs::write(&file, "mine").unwrap();
    for out in [file.clone(), file.join("below")] {
        let ran = pca(&fixture("all_v3.vcz"), &out, &[]);
        assert_eq!(ran.code, 1);
        assert!(ran.err.contains("file"), "{}", ran.err);
    }
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    assert_eq!(scratch.names(), ["file"]);
    // Known before anything is read.
    let ran = pca(&scratch.join("nowhere"), &file, &[]);
    assert!(ran.err.contains("is a file"), "{}", ran.err);
}

#[test]
fn devices_and_budgets_that_do_not_do() {
    let store = fixture("all_v3.vcz");
    refused(&store, &["--device", "abacus"], &["abacus", "cpu"]);
    refused(&store, &["--memory", "1K"], &["--memory", "at least", "1.0 KiB"]);
    // The memory that the message names is enough.
    let scratch = Scratch::new();
    let err = pca(&store, &scratch.join("out"), &["--memory", "1K"]).err;
    let least = err.split("--memory ").nth(1).unwrap().trim_end().trim_end_matches(')').to_owned();
    pca(&store, &scratch.join("out"), &["--memory", &least]).ok();
}

#[test]
fn a_folder_of_stores_is_no_store() {
    refused(&fixture(""), &[], &["is a folder of stores"]);
}
