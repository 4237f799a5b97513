//! `teatime distance` on stores that other tools wrote, against what PLINK computed of them.

use std::{fs, path::Path};

use teatime::{ChunkedArray, MissingChunk, store::ZarrArray};

use crate::support::{self, Ran, Scratch, fixture, json, npy, on_store, plain_array, provenance, run};

fn distance(store: &Path, out: &Path, more: &[&str]) -> Ran {
    run(on_store("distance", store, out, more))
}

#[test]
fn plink_writes_the_same_bytes() {
    let scratch = Scratch::new();
    let bed = fixture("plink1/biallelic.bed");
    for (name, options) in [
        ("biallelic.dist", &["--metric", "cityblock", "--missing", "rescale"][..]),
        ("biallelic.dist.bin", &["--metric", "cityblock", "--missing", "rescale", "--overwrite"]),
        ("biallelic.dist.id", &[]),
    ] {
        let path = scratch.join(name);
        if !options.is_empty() {
            distance(&bed, &path, options).ok();
        }
        assert_eq!(fs::read(path).unwrap(), fs::read(fixture("plink19").join(name)).unwrap(), "{name}");
    }
    // The triangle that was there belonged to the record that gave way.
    assert_eq!(scratch.names(), ["biallelic.dist.bin", "biallelic.dist.id", "biallelic.run.json"]);
}

#[test]
fn formats_hold_the_same() {
    let scratch = Scratch::new();
    let of = |ending: &str| {
        let path = scratch.join(&format!("x{ending}"));
        distance(&fixture("all_v2.vcz"), &path, &["--overwrite"]).ok();
        path
    };
    let square = npy(&of(".npy"));
    let ids = fs::read_to_string(scratch.join("x.id")).unwrap();
    assert!(ids.starts_with("A00\nA01\n") && ids.lines().count() == 60);
    let array = ZarrArray::open(of(".zarr"), "distance", MissingChunk::Error).unwrap();
    let axes = ["samples_0", "samples_1"].map(String::from);
    assert_eq!((array.shape(), array.dimension_names()), (&[60, 60][..], &axes[..]));
    let bytes = array.read_chunk(&[0, 0]).unwrap().bytes;
    let values: Vec<f64> = bytes.chunks(8).map(|b| f64::from_le_bytes(b.try_into().unwrap())).collect();
    assert_eq!(values, square);
    let table = fs::read_to_string(of(".tsv")).unwrap();
    let mut lines = table.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    assert_eq!((names[0], names.len()), ("sample", 61));
    for (row, cells) in lines.enumerate() {
        assert_eq!(cells[0], names[row + 1]);
        let numbers: Vec<f64> = cells[1..].iter().map(|cell| cell.parse().unwrap()).collect();
        assert_eq!(numbers, square[60 * row..60 * (row + 1)]);
    }
}

#[test]
fn the_record_is_whole() {
    let scratch = Scratch::new();
    let out = scratch.join("deep/er/x.npy");
    let more = ["--json", "--maf", "0.05", "--geno", "0.1", "--threads", "2", "--metric", "hamming"];
    let ran = distance(&fixture("all_v3.vcz"), &out, &more).ok();
    let record = json(&ran.out);
    assert_eq!(record, json(&fs::read_to_string(scratch.join("deep/er/x.run.json")).unwrap()));
    provenance(&record, "distance", [None, None]);
    assert_eq!((&record["metric"], &record["missing"]), (&"hamming".into(), &"rescale".into()));
    assert_eq!(record["files"], serde_json::json!(["x.run.json", "x.npy", "x.id"]));
    let (dropped, total) = (&record["variants"]["dropped"], record["variants"]["total"].as_u64().unwrap());
    let dropped = ["above_max_missing", "below_min_maf"].map(|rule| dropped[rule].as_u64().unwrap());
    assert!(total == 240 && dropped.iter().all(|n| *n > 0));
    assert_eq!(record["variants_kept"].as_u64().unwrap(), total - dropped.iter().sum::<u64>());
    let page = distance(&fixture("all_v3.vcz"), &out, &["--overwrite"]).ok().out;
    for words in ["euclidean, missing rescale", "240 variants x 60 samples", "wrote", "x.npy"] {
        assert!(page.contains(words), "`{words}` is not in: {page}");
    }
}

/// The four haplotypes of two samples at four sites, one allele missing.
#[test]
fn haplotypes_are_samples_of_one_allele() {
    let scratch = Scratch::new();
    let path = scratch.join("calls.zarr");
    fs::create_dir(&path).unwrap();
    fs::write(path.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    let calls = [[0i8, 1, 2, 0], [1, 1, 0, 0], [0, 0, 3, -1], [0, 2, 2, 2]];
    let bytes: Vec<u8> = calls.concat().iter().map(|allele| allele.cast_unsigned()).collect();
    plain_array(&path.join("call_genotype"), "|i1", &[4, 2, 2], &bytes);
    let out = scratch.join("x.npy");
    let of = |more: &[&str]| {
        let words = ["--metric", "cityblock", "--missing", "ignore", "--overwrite", "--haplotypes"];
        distance(&path, &out, &[&words, more].concat()).ok();
    };
    of(&["--tree", "single"]);
    assert_eq!(fs::read_to_string(scratch.join("x.id")).unwrap(), "S0001_1\nS0001_2\nS0002_1\nS0002_2\n");
    let newick = fs::read_to_string(scratch.join("x.nwk")).unwrap();
    assert!(newick.contains("'S0002_1':0.5") && newick.contains("'S0002_2':0.5"), "{newick}");
    of(&["--counted-allele", "2"]);
    // The tree belonged to the run that gave way.
    assert_eq!(scratch.names(), ["calls.zarr", "x.id", "x.npy", "x.run.json"]);
    let record = json(&fs::read_to_string(scratch.join("x.run.json")).unwrap());
    assert_eq!((&record["shape"]["samples"], &record["shape"]["ploidy"]), (&4.into(), &1.into()));
    assert_eq!((&record["haplotypes"], &record["counted_allele"]), (&true.into(), &"2".into()));
}

/// Two sites of two samples: 0/1 and 2/2, 0/0 and 1/2.
#[test]
fn alleles_are_told_apart_or_said_to_be_merged() {
    let scratch = Scratch::new();
    let path = scratch.join("calls.zarr");
    fs::create_dir(&path).unwrap();
    fs::write(path.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
    plain_array(&path.join("call_genotype"), "|i1", &[2, 2, 2], &[0, 1, 2, 2, 0, 0, 1, 2]);
    let of = |name: &str, more: &[&str]| {
        let ran = distance(&path, &scratch.join(name), &[&["--overwrite", "--json"], more].concat());
        (ran.code, json(if ran.code == 0 { &ran.out } else { "null" }), ran.err)
    };
    let warning = "2 variants of more than two alleles, of which all but the reference are taken for one";
    for (words, merged, warns) in [
        (&["--metric", "cityblock"][..], false, false),
        (&["--metric", "cityblock", "--merge-alleles"], true, false),
        (&["--metric", "hamming"], true, true),
        (&["--metric", "hamming", "--haplotypes"], false, false),
        (&["--metric", "cityblock", "--neighbors", "1"], false, false),
    ] {
        let (code, record, err) = of("x.npy", words);
        assert_eq!(code, 0, "{err}");
        assert_eq!((&record["multiallelic"], &record["merged"]), (&2.into(), &merged.into()), "{words:?}");
        assert_eq!(err.contains(warning), warns, "{words:?} {err}");
    }
    // A store that is written by some samples at a time is made only with --merge-alleles, and warns then.
    let resumed = |more: &[&str]| distance(&path, &scratch.join("y.zarr"), &[&["--resume"], more].concat());
    let refused = resumed(&[]);
    assert!(
        refused.code == 1 && refused.err.contains("--merge-alleles: 2 of the variants have"),
        "{}",
        refused.err
    );
    let page = resumed(&["--merge-alleles"]).ok().out;
    assert!(page.contains(warning), "{page}");
}

#[test]
fn trees_are_among_the_results() {
    let scratch = Scratch::new();
    let out = scratch.join("x.tsv");
    let more = ["--tree", "average", "--metric", "ibs", "--json"];
    let record = json(&distance(&fixture("all_v2.vcz"), &out, &more).ok().out);
    assert_eq!(record["files"], serde_json::json!(["x.run.json", "x.tsv", "x.nwk"]));
    assert_eq!(record["tree"], "average");
    let newick = fs::read_to_string(scratch.join("x.nwk")).unwrap();
    assert!(newick.ends_with(");\n") && newick.matches('(').count() == 59);
    assert!((0..60).all(|i| newick.contains(&format!("{}{:02}:", ["A", "B", "C"][i / 20], i % 20))));
    let page = distance(&fixture("all_v2.vcz"), &out, &["--tree", "ward", "--overwrite"]).ok().out;
    assert!(page.contains("ward linkage") && page.contains("x.nwk"), "{page}");
}

#[test]
fn haplotypes_alleles_and_trees_that_cannot_be() {
    let says = |store: &str, more: &[&str], words: &[&str]| {
        let scratch = Scratch::new();
        let ran = distance(&fixture(store), &scratch.join("new/x.npy"), more);
        assert!(ran.code == 1 && words.iter().all(|word| ran.err.contains(word)), "{}", ran.err);
        assert!(scratch.names().is_empty(), "{:?} is left", scratch.names());
    };
    for (option, words) in
        [(&["--haplotypes"][..], "have no haplotypes"), (&["--counted-allele", "1"], "have no alleles")]
    {
        let dosages = [option, &["--array", "int32_gzip"]].concat();
        says("dosages_v3.zarr", &dosages, &["int32_gzip", "dosages", words]);
    }
    says("plink1/few5.bed", &["--haplotypes"], &["few5.bed", "have no haplotypes"]);
    says("all_v3.vcz", &["--tree", "single", "--metric", "inner_product"], &["--tree: inner_product is a"]);
    let propagate = ["--tree", "single", "--missing", "propagate"];
    says("all_v3.vcz", &propagate, &["--tree: the distance of", "of 1770 pairs of samples is NaN"]);
}

#[test]
fn results_are_replaced_only_when_asked() {
    let scratch = Scratch::new();
    let [npy, table, other] = ["x.npy", "x.tsv", "y.npy"].map(|name| scratch.join(name));
    distance(&fixture("all_v3.vcz"), &npy, &[]).ok();
    let refused = distance(&fixture("all_v3.vcz"), &npy, &[]);
    assert!(refused.code == 1 && refused.err.contains("--overwrite"), "{}", refused.err);
    // Another result beside it is nobody's to remove.
    distance(&fixture("all_v3.vcz"), &other, &[]).ok();
    distance(&fixture("all_v3.vcz"), &table, &["--overwrite"]).ok();
    assert_eq!(scratch.names(), ["x.run.json", "x.tsv", "y.id", "y.npy", "y.run.json"]);
    fs::remove_file(scratch.join("x.run.json")).unwrap();
    fs::write(&table, "mine").unwrap();
    let refused = distance(&fixture("all_v3.vcz"), &table, &["--overwrite"]);
    assert!(refused.code == 1 && refused.err.contains("holds x.tsv"), "{}", refused.err);
    // Beside it, results of another ending are no harm, nor beside the store that they are of.
    distance(&fixture("all_v3.vcz"), &npy, &[]).ok();
    distance(&fixture("all_v3.vcz"), &npy, &["--overwrite"]).ok();
    assert_eq!(fs::read_to_string(&table).unwrap(), "mine");
    // Files that another command wrote are not replaced.
    let pairwise = run(on_store("pairwise", &npy, &npy, &["--overwrite"]));
    let words = "holds results of `teatime distance` (x.run.json), which `teatime pairwise` does not replace; choose another name";
    assert!(pairwise.code == 1 && pairwise.err.contains(words), "{}", pairwise.err);
}

#[test]
fn words_of_metrics_arrive() {
    let scratch = Scratch::new();
    let store = scratch.join("x.vcz");
    support::store(&store, &["a", "b", "c"], &[&[0, 2, 2], &[1, 2, 0], &[2, 1, 0]]);
    let both = scratch.join("both.vcz");
    support::store(&both, &["a", "b"], &[&[1, 1], &[0, 1]]);
    for (words, expected) in [(&[][..], 0.75), (&["--het-het", "1"], 0.75), (&["--het-het", "0.5"], 0.5)] {
        let words = [&["--metric", "ibs", "--overwrite", "--json"], words].concat();
        let record = json(&distance(&both, &scratch.join("x.npy"), &words).ok().out);
        assert_eq!(npy(&scratch.join("x.npy"))[1], expected, "{words:?}");
        assert_eq!((&record["metric"], &record["het_het"]), (&"ibs".into(), &(2.0 * expected - 0.5).into()));
    }
    distance(&store, &scratch.join("y.zarr"), &["--metric", "minkowski", "--p", "3"]).ok();
    let attributes = json(&fs::read_to_string(scratch.join("y.zarr/.zattrs")).unwrap());
    assert_eq!((&attributes["metric"], &attributes["p"]), (&"minkowski".into(), &3.0.into()));
    assert_eq!(json(&fs::read_to_string(scratch.join("y.run.json")).unwrap())["p"], 3.0);
}

#[test]
fn names_that_plink_would_split_are_refused() {
    let scratch = Scratch::new();
    let store = scratch.join("x.vcz");
    support::store(&store, &["a b", "c"], &[&[0, 2]]);
    let refused = distance(&store, &scratch.join("x.dist"), &[]);
    assert!(refused.code == 1 && refused.err.contains("white space"), "{}", refused.err);
    distance(&store, &scratch.join("x.tsv"), &[]).ok();
}

#[test]
fn bad_words_are_named() {
    let scratch = Scratch::new();
    let says = |out: &str, more: &[&str], code: i32, words: &str| {
        let ran = distance(&fixture("all_v3.vcz"), &scratch.join(out), more);
        assert!(ran.code == code && ran.err.contains(words), "{} {}", ran.code, ran.err);
    };
    says("x.csv", &[], 2, "ends with one of .zarr, .tsv, .npy, .dist, .dist.bin");
    says(".npy", &[], 2, "ends with one of");
    says("x.npy", &["--metric", "manhatten"], 2, "cityblock");
    says("x.npy", &["--memory", "1K"], 1, "at least");
    says("x.npy", &["--p", "3"], 2, "--metric minkowski alone");
    says("x.npy", &["--metric", "minkowski", "--p", "-1"], 1, "above 0");
    says("x.npy", &["--metric", "ibs", "--missing", "rescale"], 1, "a mean already");
    says("x.npy", &["--het-het", "0.5"], 2, "--het-het is of --metric ibs alone");
    says("x.npy", &["--metric", "ibs", "--het-het", "0.7"], 2, "[possible values: 1, 0.5]");
    says("x.npy", &["--metric", "ibs", "--het-het", "0.5", "--haplotypes"], 1, "of ploidy 2, not 1");
    says("x.npy", &["--counted-allele", "128"], 2, "nor a number from 0 to 127");
    says("x.npy", &["--tree", "centroid"], 2, "[possible values: single, complete, average");
    let propagated =
        distance(&fixture("all_v3.vcz"), &scratch.join("x.npy"), &["--missing", "propagate"]).ok();
    assert!(propagated.err.contains("pairs of samples is NaN"), "{}", propagated.err);
}
