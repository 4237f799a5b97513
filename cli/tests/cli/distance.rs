//! Tests of `teatime distance` on stores that other tools wrote.

use std::fs;

use serde_json::json;
use teatime::ChunkedArray;

use crate::support::{Scratch, assert_has, fixture, npy, plain_array, provenance, store};

#[test]
fn plink_writes_the_same_bytes() {
    let scratch = Scratch::new();
    for name in ["biallelic.dist", "biallelic.dist.bin"] {
        let words = "--metric cityblock --missing rescale --overwrite";
        scratch.ok(&format!("distance @plink1/biallelic.bed --out {name} {words}"));
        for name in [name, "biallelic.dist.id"] {
            assert_eq!(scratch.bytes(name), fs::read(fixture(&format!("plink19/{name}"))).unwrap(), "{name}");
        }
    }
    // The earlier triangle is gone, since it belonged to the replaced record.
    assert_eq!(scratch.names(), ["biallelic.dist.bin", "biallelic.dist.id", "biallelic.run.json"]);
}

/// Each ending has its own files, which replace those of another ending.
#[test]
fn endings_choose_formats() {
    let scratch = Scratch::new();
    let of = |ending: &str, more: &str| {
        let words = format!("--metric ibs --het-het 0.5 --overwrite {more}");
        scratch.ok(&format!("distance @all_v2.vcz --out x{ending} {words}"));
        scratch.names().join(" ")
    };
    assert_eq!(of(".npy", ""), "x.id x.npy x.run.json");
    npy(&scratch.join("x.npy"), [60, 60]);
    let ids = scratch.text("x.id");
    assert!(ids.starts_with("A00\nA01\n") && ids.lines().count() == 60);
    assert_eq!(of(".zarr", ""), "x.run.json x.zarr");
    let array = scratch.array("x.zarr", "distance");
    let axes = array.dimension_names().join(" ");
    assert_eq!((array.shape(), &*axes), (&[60, 60][..], "samples_0 samples_1"));
    assert_eq!(of(".tsv", ""), "x.run.json x.tsv");
    assert!(scratch.text("x.tsv").starts_with("sample\tA00\tA01\t"));
    assert_eq!(of(".npy", "--neighbors 3"), "x.id x.neighbors.npy x.npy x.run.json");
    npy(&scratch.join("x.npy"), [60, 3]);
    assert_eq!(of(".tsv", "--neighbors 3"), "x.run.json x.tsv");
    let table = scratch.rows("x.tsv");
    assert_eq!((table.len(), &*table[0][0], &*table[1][1]), (180, "A00", "2"));
    assert_eq!(of(".zarr", "--neighbors 3"), "x.run.json x.zarr");
    let there = |name| scratch.join("x.zarr").join(name).exists();
    assert!(["neighbor", "distance", "sample_id"].into_iter().all(there));
}

#[test]
fn the_record_is_whole() {
    let scratch = Scratch::new();
    let words = "--maf 0.05 --geno 0.1 --threads 2 --metric hamming";
    let record = scratch.record(&format!("distance @all_v3.vcz --out deep/er/x.npy {words}"));
    assert_eq!(record, scratch.json("deep/er/x.run.json"));
    provenance(&record, "distance", [None, None]);
    assert_eq!((&record["metric"], &record["missing"]), (&"hamming".into(), &"rescale".into()));
    assert_eq!(record["files"], json!(["x.run.json", "x.npy", "x.id"]));
    let (dropped, total) = (&record["variants"]["dropped"], record["variants"]["total"].as_u64().unwrap());
    let dropped = ["above_max_missing", "below_min_maf"].map(|rule| dropped[rule].as_u64().unwrap());
    assert!(total == 240 && dropped.iter().all(|n| *n > 0));
    assert_eq!(record["variants_kept"].as_u64().unwrap(), total - dropped.iter().sum::<u64>());
    let page = scratch.ok("distance @all_v3.vcz --out deep/er/x.npy --overwrite").out;
    assert_has(&page, &["euclidean, missing rescale", "240 variants x 60 samples", "wrote", "x.npy"]);
}

#[test]
fn the_record_says_how_neighbors_were_found() {
    let scratch = Scratch::new();
    for (metric, bands, said) in [
        ("hamming", json!(1), "3 of each sample, of distances in 1 band\n"),
        ("canberra", json!(null), "3 of each sample, of the matrix of all distances"),
    ] {
        let words = format!("distance @all_v2.vcz --out x.npy --neighbors 3 --metric {metric} --overwrite");
        assert_has(&scratch.ok(&words).out, &[said]);
        let record = scratch.json("x.run.json");
        assert_eq!(record["neighbors"], json!({ "k": 3, "bands": bands }));
        assert_eq!(record["files"], json!(["x.run.json", "x.npy", "x.neighbors.npy", "x.id"]));
    }
    let words = "distance @all_v2.vcz --out x.npy --overwrite";
    for more in ["--neighbors 3 --missing propagate", "--missing propagate"] {
        assert_has(&scratch.ok(&format!("{words} {more}")).err, &["pairs of samples is NaN"]);
    }
    assert!(scratch.json("x.run.json")["neighbors"].is_null());
    assert_eq!(scratch.names(), ["x.id", "x.npy", "x.run.json"]);
}

/// Writes calls of two samples.
fn calls(scratch: &Scratch, calls: &[[u8; 4]]) {
    fs::create_dir(scratch.join("calls.zarr")).unwrap();
    scratch.write("calls.zarr/.zgroup", r#"{"zarr_format": 2}"#);
    let shape = [calls.len() as u64, 2, 2];
    plain_array(&scratch.join("calls.zarr/call_genotype"), "|i1", &shape, calls.as_flattened());
}

/// Two samples have four haplotypes at four sites, and one allele is missing.
#[test]
fn haplotypes_are_samples_of_one_allele() {
    let scratch = Scratch::new();
    calls(&scratch, &[[0, 1, 2, 0], [1, 1, 0, 0], [0, 0, 3, 255], [0, 2, 2, 2]]);
    let words =
        "distance calls.zarr --out x.npy --metric cityblock --missing ignore --overwrite --haplotypes";
    scratch.ok(&format!("{words} --tree single"));
    assert_eq!(scratch.text("x.id"), "S0001_1\nS0001_2\nS0002_1\nS0002_2\n");
    assert_has(&scratch.text("x.nwk"), &["'S0002_1':0.5", "'S0002_2':0.5"]);
    let record = scratch.record(&format!("{words} --counted-allele 2"));
    // The tree is gone, since it belonged to the replaced run.
    assert_eq!(scratch.names(), ["calls.zarr", "x.id", "x.npy", "x.run.json"]);
    assert_eq!((&record["shape"]["samples"], &record["shape"]["ploidy"]), (&4.into(), &1.into()));
    assert_eq!((&record["haplotypes"], &record["counted_allele"]), (&true.into(), &"2".into()));
}

/// Two samples have the calls 0/1 and 2/2 at the first site, 0/0 and 1/2 at the second.
#[test]
fn alleles_are_told_apart_or_said_to_be_merged() {
    let scratch = Scratch::new();
    calls(&scratch, &[[0, 1, 2, 2], [0, 0, 1, 2]]);
    let warning = "2 variants of more than two alleles, of which all but the reference are taken for one";
    for (words, merged, warns) in [
        ("cityblock", false, false),
        ("cityblock --merge-alleles", true, false),
        ("hamming", true, true),
        ("hamming --haplotypes", false, false),
        ("cityblock --neighbors 1", false, false),
    ] {
        let ran = scratch.ok(&format!("distance calls.zarr --out x.npy --overwrite --metric {words}"));
        let record = scratch.json("x.run.json");
        assert_eq!((&record["multiallelic"], &record["merged"]), (&2.into(), &merged.into()), "{words}");
        assert_eq!(ran.err.contains(warning), warns, "{words} {}", ran.err);
    }
    // A store that is written in bands requires --merge-alleles, and warns then.
    let resume = "distance calls.zarr --out y.zarr --resume";
    let refused = scratch.run(resume);
    assert!(refused.code == 1 && refused.err.contains("--merge-alleles: 2 of the variants have"));
    assert_has(&scratch.ok(&format!("{resume} --merge-alleles")).out, &[warning]);
}

#[test]
fn trees_are_among_the_results() {
    let scratch = Scratch::new();
    let record = scratch.record("distance @all_v2.vcz --out x.tsv --tree average --metric ibs");
    assert_eq!(record["files"], json!(["x.run.json", "x.tsv", "x.nwk"]));
    assert_eq!(record["tree"], "average");
    let newick = scratch.text("x.nwk");
    assert!(newick.ends_with(");\n") && newick.matches('(').count() == 59);
    let page = scratch.ok("distance @all_v2.vcz --out x.tsv --tree ward --overwrite").out;
    assert_has(&page, &["ward linkage", "x.nwk"]);
}

#[test]
fn results_are_replaced_only_when_asked() {
    let scratch = Scratch::new();
    let distance = |words: &str| scratch.ok(&format!("distance @all_v3.vcz --out {words}"));
    distance("x.npy");
    scratch.refused("distance @all_v3.vcz --out x.npy", 1, &["--overwrite"]);
    // `--overwrite` does not remove another result in the same folder.
    distance("y.npy");
    distance("x.tsv --overwrite");
    assert_eq!(scratch.names(), ["x.run.json", "x.tsv", "y.id", "y.npy", "y.run.json"]);
    fs::remove_file(scratch.join("x.run.json")).unwrap();
    scratch.write("x.tsv", "mine");
    scratch.refused("distance @all_v3.vcz --out x.tsv --overwrite", 1, &["holds x.tsv"]);
    // Results with another ending do not interfere with it, nor with the input store in the same folder.
    distance("x.npy");
    distance("x.npy --overwrite");
    assert_eq!(scratch.text("x.tsv"), "mine");
    // Files that another command wrote are not replaced.
    let said = "holds results of `teatime distance` (x.run.json), which `teatime pairwise` does not replace; choose another name";
    scratch.refused("pairwise x.npy --out x.npy --overwrite", 1, &[said]);
}

#[test]
fn words_of_metrics_arrive() {
    let scratch = Scratch::new();
    store(&scratch.join("both"), &["a", "b"], &[&[1, 1], &[0, 1]]);
    for (words, expected) in [("", 0.75), ("--het-het 1", 0.75), ("--het-het 0.5", 0.5)] {
        let record = scratch.record(&format!("distance both --out x.npy --metric ibs --overwrite {words}"));
        assert_eq!(npy(&scratch.join("x.npy"), [2, 2])[1], expected, "{words}");
        assert_eq!((&record["metric"], &record["het_het"]), (&"ibs".into(), &(2.0 * expected - 0.5).into()));
    }
    let record = scratch.record("distance both --out y.zarr --metric minkowski --p 3");
    let attributes = scratch.json("y.zarr/.zattrs");
    assert_eq!((&attributes["metric"], &attributes["p"]), (&"minkowski".into(), &3.0.into()));
    assert_eq!(record["p"], 3.0);
}
