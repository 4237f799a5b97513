//! Tests of `teatime pca` on stores that other tools wrote, against results that other tools computed.

use std::fs;

use serde_json::json;

use crate::support::{Scratch, assert_has, fixture, names, number, plain_array, provenance, store, unpacked};

/// The tables have plink2's lines, names and eigenvalues, and vectors of length 1. Goldens of the library compare the vectors.
#[test]
fn tables_are_like_plink2s() {
    let scratch = Scratch::new();
    scratch.ok("pca @biallelic.vcz --out out --scaler binom2");
    let theirs = |ending: &str| fs::read_to_string(fixture(&format!("plink2/meanimpute.{ending}"))).unwrap();
    let names = |text: &str| -> Vec<String> {
        let (header, rows) = text.split_once('\n').unwrap();
        let names = rows.lines().map(|line| line.split('\t').next().unwrap());
        [header].into_iter().chain(names).map(str::to_owned).collect()
    };
    assert_eq!(names(&scratch.text("out/pca.eigenvec")), names(&theirs("eigenvec")));
    let length: f64 = scratch.rows("out/pca.eigenvec").iter().map(|row| number(&row[1]).powi(2)).sum();
    assert!((length - 1.0).abs() < 1e-4, "{length}");
    let [ours, theirs] = [scratch.text("out/pca.eigenval"), theirs("eigenval")];
    assert_eq!(ours.lines().count(), theirs.lines().count());
    let mut pairs = ours.lines().zip(theirs.lines());
    assert!(pairs.all(|(a, b)| (number(a) / number(b) - 1.0).abs() < 1e-5), "{ours} {theirs}");
}

/// Warnings name samples that are 0 in every component, and names that other programs split at white space.
#[test]
fn odd_samples_are_named() {
    let scratch = Scratch::new();
    let rows: &[&[i8]] =
        &[&[0, 1, -1, 2, 1], &[1, 0, -1, 0, 2], &[2, 0, -1, 1, 1], &[0, 2, -1, 1, 0], &[1, 1, -1, 2, 0]];
    store(&scratch.join("store"), &["a", "b", "none", "d", "e"], rows);
    store(&scratch.join("spaced"), &["a b", "c", "d e"], &[&[0, 1, 2], &[1, 0, 0]]);
    let central = "warning: 1 sample at 0 in every component, as those without calls are: `none`";
    let spaced =
        "warning: 2 names of samples with white space, at which plink2 and R divide columns: `a b`, `d e`";
    for (words, warning) in [
        ("store -k 3 --method exact", central),
        ("store -k 3 --method randomized", central),
        ("spaced -k 1", spaced),
    ] {
        let ran = scratch.ok(&format!("pca {words} --out out --overwrite"));
        assert!(ran.err.lines().any(|line| line == warning), "{words}: {}", ran.err);
    }
}

#[test]
fn loadings_name_variants_and_what_a_projection_needs() {
    let scratch = Scratch::new();
    scratch.ok("pca @all_v2.vcz --out out --loadings -k 3");
    let text = unpacked(&scratch.join("out/loadings.tsv.gz"));
    let mut lines = text.lines();
    let values: Vec<_> =
        scratch.rows("out/eigenvalues.tsv").into_iter().map(|mut row| row.swap_remove(1)).collect();
    let first =
        "#teatime-loadings\tversion=1\tscaler=patterson\tploidy=2\tsamples=60\tvariants=240\trows=232";
    assert_eq!(lines.next(), Some(&*format!("{first}\tsingular_values={}", values.join(","))));
    let header = "contig\tposition\tid\tref\talt\tcounted\tfrequency\tmean\tscale\tPC1\tPC2\tPC3";
    assert_eq!(lines.next(), Some(header));
    let table: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    // The 8 of 240 variants that do not vary or have no call are left out.
    assert_eq!(table.len(), 232);
    assert_eq!((table[0][0], table[0][2], table[231][0]), ("2L", "rs0", "3R"));
    assert!(table.iter().any(|row| row[4].contains(',')) && table.iter().all(|row| row[4] == row[5]));
}

#[test]
fn the_record_says_what_happened() {
    let scratch = Scratch::new();
    let record = scratch.record("pca @all_v3.vcz --out new/out --maf 0.05 --geno 0.02 --threads 1 -k 4");
    assert_eq!(record, scratch.json("new/out/run.json"));
    provenance(&record, "pca", [None, None]);
    for (pointer, expected) in [
        ("/schema_version", json!(1)),
        ("/command", json!("pca")),
        ("/device/name", json!("cpu")),
        ("/threads", json!(1)),
        ("/stores/0/arrays", json!(["call_genotype"])),
        ("/shape", json!({"variants": 240, "samples": 60, "ploidy": 2, "components": 4})),
        ("/method", json!("exact")),
    ] {
        assert_eq!(record.pointer(pointer), Some(&expected));
    }
    let counts = &record["variants"];
    let dropped: u64 = counts["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(counts["used"].as_u64().unwrap() + dropped, 240);
    let rules = ["below_min_maf", "above_max_missing"].map(|rule| counts["dropped"][rule].as_u64().unwrap());
    assert!(rules.iter().all(|n| *n > 0), "{counts}");
    assert_eq!(record["components"].as_array().map(Vec::len), Some(4));
    assert!(record["calls"]["lowest_samples"][0]["rate"].as_f64().is_some_and(|rate| rate < 1.0), "{record}");
    assert!(record["allele_counts"].as_str().unwrap().starts_with("fnv1a64:"));
    for stage in ["wall", "open", "pca", "write", "read", "decode", "stalled", "upload", "compute", "solve"] {
        assert!(record["seconds"][stage].as_f64().is_some_and(|s| (0.0..60.0).contains(&s)), "{stage}");
    }
    assert!(record["bytes"]["peak_device"].as_u64().unwrap() > 0);
    assert_eq!(record["bytes"]["peak_host"].is_u64(), cfg!(target_os = "linux"));
    let mut files: Vec<_> = record["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    files.sort_unstable();
    assert_eq!(names(&scratch.join("new/out")), files);
}

/// A single call of three alleles makes the whole store three alleles wide.
#[test]
fn a_triploid_call_among_diploid_ones() {
    let scratch = Scratch::new();
    let word = |at: u64| (at + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let allele = |at: u64| match (at % 3, at / 3) {
        (2, 77) => 1,
        (2, _) => 254,
        _ => u8::from(word(at).is_multiple_of(3)),
    };
    plain_array(&scratch.join("wide"), "|i1", &[40, 10, 3], &(0..1200).map(allele).collect::<Vec<_>>());
    let said = "allele -2 pads a call of lower ploidy than 3; a ploidy above 2 must be that of all calls, unless \
                --ploidy-mismatch missing is given";
    scratch.refused("pca wide --out new -k 2", 1, &[said]);
    let page = scratch.ok("pca wide --out out -k 2 --ploidy-mismatch missing").out;
    let said = "1 call of another ploidy than 2 taken as missing; there is room for 3 alleles a call";
    assert_has(&page, &[said]);
    let record = scratch.json("out/run.json");
    assert_eq!(record["ploidy_mismatch"], json!({"stored": 3, "ploidy": 2, "calls": 1}));
    assert_eq!(record["shape"]["ploidy"], 2);
}

#[test]
#[cfg(feature = "wgpu")]
fn the_record_says_which_budgets_were_given() {
    let scratch = Scratch::new();
    for (words, given) in [
        ("--memory 1G", [Some(1 << 30), None]),
        ("--device wgpu --device-memory 64M", [None, Some(64 << 20)]),
    ] {
        let record = scratch.record(&format!("pca @all_v3.vcz --out out --overwrite {words}"));
        provenance(&record, "pca", given);
    }
}

#[test]
fn components_that_do_not_converge() {
    let scratch = Scratch::new();
    let few = "pca @all_v3.vcz --power-iterations 0 --oversamples 0 --out";
    let ran = scratch.ok(&format!("{few} out"));
    assert!(ran.err.starts_with("warning: ") && ran.err.contains("did not converge"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert_has(&ran.out, &["randomized", "not converged"]);
    assert!(scratch.rows("out/eigenvalues.tsv").iter().any(|row| row[5] == "false"));
    scratch.refused(&format!("{few} strict --strict"), 1, &["did not converge"]);
    scratch.ok("pca @all_v3.vcz --out fine --strict");
}
