//! `teatime pca` on stores that other tools wrote, against results that other tools computed.

use std::{fs, io::Read, path::Path};

use crate::support::{
    Scratch, fixture, json, names, number, pca, plain_array, provenance, rows, store, teatime,
};

/// Compares a table of vectors with plink2's: the same text but for signs and the last digits.
fn assert_like_plink(out: &Path, name: &str, ids: bool) {
    let read = |path: &Path| fs::read_to_string(path).expect("the table should be there");
    let (ours, theirs) =
        (read(&out.join("pca.eigenvec")), read(&fixture(&format!("plink2/{name}.eigenvec"))));
    assert_eq!(ours.lines().next(), theirs.lines().next());
    assert_eq!(ours.lines().count(), theirs.lines().count());
    assert_eq!(ours.ends_with('\n'), theirs.ends_with('\n'));
    let table = |text: &str| -> Vec<Vec<String>> {
        text.lines().skip(1).map(|line| line.split('\t').map(str::to_owned).collect()).collect()
    };
    let (ours, theirs) = (table(&ours), table(&theirs));
    for column in 1..=10 {
        let dot: f64 = ours.iter().zip(&theirs).map(|(a, b)| number(&a[column]) * number(&b[column])).sum();
        for (row, (a, b)) in ours.iter().zip(&theirs).enumerate() {
            assert!(!ids || a[0] == b[0], "row {row}");
            let difference = number(&a[column]) - dot.signum() * number(&b[column]);
            assert!(difference.abs() < 2e-5, "row {row}, PC{column}: {} and {}", a[column], b[column]);
        }
    }
    let values = |path: &Path| read(path).lines().map(str::to_owned).collect::<Vec<_>>();
    let ours = values(&out.join("pca.eigenval"));
    let theirs = values(&fixture(&format!("plink2/{name}.eigenval")));
    assert_eq!(ours.len(), theirs.len());
    for (a, b) in ours.iter().zip(&theirs) {
        assert!((number(a) / number(b) - 1.0).abs() < 1e-5, "{a} and {b}");
    }
}

#[test]
fn a_sample_without_calls_is_named() {
    let scratch = Scratch::new();
    let path = scratch.join("store");
    let rows: &[&[i8]] =
        &[&[0, 1, -1, 2, 1], &[1, 0, -1, 0, 2], &[2, 0, -1, 1, 1], &[0, 2, -1, 1, 0], &[1, 1, -1, 2, 0]];
    store(&path, &["a", "b", "none", "d", "e"], rows);
    for method in ["exact", "randomized"] {
        let ran = pca(&path, &scratch.join(method), &["-k", "3", "--method", method]).ok();
        let warning = "warning: 1 sample at 0 in every component, as those without calls are: `none`";
        assert!(ran.err.lines().any(|line| line == warning), "{method}: {}", ran.err);
    }
}

#[test]
fn plink2_writes_the_same() {
    let scratch = Scratch::new();
    for scaler in ["patterson", "binom2"] {
        let out = scratch.join(scaler);
        pca(&fixture("biallelic.vcz"), &out, &["--scaler", scaler]).ok();
        assert_like_plink(&out, "meanimpute", true);
    }
    let out = scratch.join("complete");
    pca(&fixture("dosages_v2.zarr"), &out, &["--array", "uint8_zlib"]).ok();
    assert_like_plink(&out, "complete", false);
}

#[test]
fn loadings_name_variants_and_what_a_projection_needs() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    pca(&fixture("all_v2.vcz"), &out, &["--loadings", "-k", "3"]).ok();
    let file = fs::File::open(out.join("loadings.tsv.gz")).unwrap();
    let mut text = String::new();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    let mut lines = text.lines();
    let values: Vec<_> =
        rows(&out.join("eigenvalues.tsv")).into_iter().map(|mut row| row.swap_remove(1)).collect();
    let first =
        "#teatime-loadings\tversion=1\tscaler=patterson\tploidy=2\tsamples=60\tvariants=240\trows=232";
    assert_eq!(lines.next(), Some(&*format!("{first}\tsingular_values={}", values.join(","))));
    let header = "contig\tposition\tid\tref\talt\tcounted\tfrequency\tmean\tscale\tPC1\tPC2\tPC3";
    assert_eq!(lines.next(), Some(header));
    let table: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
    // 240 without those that do not vary or have no call.
    assert_eq!(table.len(), 232);
    assert_eq!((table[0][0], table[0][2], table.last().unwrap()[0]), ("2L", "rs0", "3R"));
    let multiallelic = table.iter().find(|row| row[4].contains(',')).unwrap();
    assert_eq!(multiallelic[4], multiallelic[5]);
}

#[test]
fn the_record_says_what_happened() {
    let scratch = Scratch::new();
    let out = scratch.join("new/out");
    let more = ["--json", "--maf", "0.05", "--geno", "0.02", "--threads", "1", "-k", "4"];
    let ran = pca(&fixture("all_v3.vcz"), &out, &more).ok();
    let record = json(&ran.out);
    assert_eq!(record, json(&fs::read_to_string(out.join("run.json")).unwrap()));
    assert_eq!(record["schema_version"], 1);
    assert_eq!(record["command"], "pca");
    assert_eq!(record["device"]["name"], "cpu");
    provenance(&record, "pca", [None, None]);
    assert_eq!(record["threads"], 1);
    assert_eq!(record["stores"][0]["arrays"], serde_json::json!(["call_genotype"]));
    assert_eq!(
        record["shape"],
        serde_json::json!({"variants": 240, "samples": 60, "ploidy": 2, "components": 4})
    );
    let counts = &record["variants"];
    let dropped: u64 = counts["dropped"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum();
    assert_eq!(counts["used"].as_u64().unwrap() + dropped, 240);
    assert!(counts["dropped"]["below_min_maf"].as_u64().unwrap() > 0, "{counts}");
    assert!(counts["dropped"]["above_max_missing"].as_u64().unwrap() > 0, "{counts}");
    assert_eq!(record["method"], "exact");
    assert_eq!(record["components"].as_array().map(Vec::len), Some(4));
    assert!(record["allele_counts"].as_str().unwrap().starts_with("fnv1a64:"));
    for stage in ["wall", "open", "pca", "write", "read", "decode", "stalled", "upload", "compute", "solve"] {
        assert!(record["seconds"][stage].as_f64().is_some_and(|s| (0.0..60.0).contains(&s)), "{stage}");
    }
    assert!(record["bytes"]["peak_device"].as_u64().unwrap() > 0);
    assert_eq!(record["bytes"]["peak_host"].is_u64(), cfg!(target_os = "linux"));
    let mut files: Vec<_> = record["files"].as_array().unwrap().iter().map(|f| f.as_str().unwrap()).collect();
    files.sort_unstable();
    assert_eq!(names(&out), files);
}

/// One call of three alleles makes a whole store three alleles wide.
#[test]
fn a_triploid_call_among_diploid_ones() {
    let scratch = Scratch::new();
    let (path, diploid) = (scratch.join("wide.zarr"), scratch.join("diploid.zarr"));
    let word = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let mut calls: Vec<[u8; 2]> =
        (0..400).map(|i| [word(i) % 5 / 3, word(i + 999) % 2].map(|x| u8::from(x > 0))).collect();
    let wide: Vec<[u8; 3]> =
        calls.iter().enumerate().map(|(i, &[a, b])| [a, b, if i == 77 { 1 } else { 254 }]).collect();
    calls[77] = [255; 2];
    for (store, ploidy, calls) in [(&path, 3, wide.as_flattened()), (&diploid, 2, calls.as_flattened())] {
        fs::create_dir(store).unwrap();
        fs::write(store.join(".zgroup"), r#"{"zarr_format": 2}"#).unwrap();
        plain_array(&store.join("call_genotype"), "|i1", &[40, 10, ploidy], calls);
        // Names that are numbers.
        let names: Vec<u8> = (100..110_i64).flat_map(i64::to_le_bytes).collect();
        plain_array(&store.join("sample_id"), "<i8", &[10], &names);
    }
    let ran = pca(&path, &scratch.join("refused"), &["-k", "2"]);
    assert_eq!(ran.code, 1);
    let words = "allele -2 pads a call of lower ploidy than 3; a ploidy above 2 must be that of all calls, unless \
                 --ploidy-mismatch missing is given";
    assert!(ran.err.contains(words), "{}", ran.err);
    let missing = ["--ploidy-mismatch", "missing"];
    let ran = pca(&path, &scratch.join("out"), &[&["-k", "2"], &missing[..]].concat()).ok();
    let change = "1 call of another ploidy than 2 taken as missing; there is room for 3 alleles a call";
    assert!(ran.out.contains(change), "{}", ran.out);
    let record = json(&fs::read_to_string(scratch.join("out/run.json")).unwrap());
    assert_eq!(record["ploidy_mismatch"], serde_json::json!({"stored": 3, "ploidy": 2, "calls": 1}));
    assert_eq!(record["shape"]["ploidy"], 2);
    let expected = json(&pca(&diploid, &scratch.join("expected"), &["-k", "2", "--json"]).ok().out);
    for key in ["allele_counts", "components"] {
        assert_eq!(record[key], expected[key], "{key}");
    }
    // Only one of two stores is wide.
    let more = [path.to_str().unwrap(), "-k", "2"];
    let refused = pca(&diploid, &scratch.join("two"), &more);
    let words = "which must be that of all calls, unless --ploidy-mismatch missing is given, got [40, 10, ";
    assert!(refused.code == 1 && refused.err.contains(words), "{}", refused.err);
}

#[test]
#[cfg(feature = "wgpu")]
fn the_record_says_which_budgets_were_given() {
    let scratch = Scratch::new();
    let record = |out: &str, more: &[&str]| {
        let more = [&["--json"], more].concat();
        json(&pca(&fixture("all_v3.vcz"), &scratch.join(out), &more).ok().out)
    };
    provenance(&record("given", &["--memory", "1G"]), "pca", [Some(1 << 30), None]);
    let more = ["--device", "wgpu", "--device-memory", "64M"];
    provenance(&record("both", &more), "pca", [None, Some(64 << 20)]);
}

#[test]
fn only_overwrite_replaces_results() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    fs::create_dir(&out).unwrap();
    fs::write(out.join("notes.txt"), "mine").unwrap();
    pca(&fixture("all_v3.vcz"), &out, &["--loadings"]).ok();
    let before = fs::read(out.join("scores.tsv")).unwrap();
    let ran = pca(&fixture("all_v3.vcz"), &out, &["-k", "2"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("--overwrite") && ran.err.contains("out"), "{}", ran.err);
    assert_eq!(before, fs::read(out.join("scores.tsv")).unwrap());
    pca(&fixture("all_v3.vcz"), &out, &["-k", "2", "--overwrite"]).ok();
    assert!(!out.join("loadings.tsv.gz").exists(), "loadings of another run");
    assert_eq!(fs::read_to_string(out.join("notes.txt")).unwrap(), "mine");
    assert_eq!(rows(&out.join("scores.tsv"))[0].len(), 3);
    assert_eq!(names(&out).len(), 7);
}

#[test]
fn components_that_do_not_converge() {
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let few = ["--power-iterations", "0", "--oversamples", "0"];
    let ran = pca(&fixture("all_v3.vcz"), &out, &few).ok();
    assert!(ran.err.starts_with("warning: ") && ran.err.contains("did not converge"), "{}", ran.err);
    assert_eq!(ran.err.lines().count(), 1, "{}", ran.err);
    assert!(ran.out.contains("randomized") && ran.out.contains("not converged"), "{}", ran.out);
    assert!(rows(&out.join("eigenvalues.tsv")).iter().any(|row| row[5] == "false"));
    let ran = pca(&fixture("all_v3.vcz"), &scratch.join("strict"), &[&few[..], &["--strict"]].concat());
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("did not converge"), "{}", ran.err);
    assert_eq!(scratch.names(), ["out"]);
    pca(&fixture("all_v3.vcz"), &scratch.join("fine"), &["--strict"]).ok();
}

#[test]
fn wrong_usage_has_its_own_code() {
    let store = fixture("all_v3.vcz");
    let store = store.to_string_lossy();
    let scratch = Scratch::new();
    let out = scratch.join("out");
    let out = out.to_string_lossy();
    for (args, word) in [
        (&["pca", &*store][..], "--out"),
        (&["pca", "--out", &*out], "STORE"),
        (
            &["pca", &*store, "--out", &*out, "--tolerance", "1e-3", "--power-iterations", "2"],
            "cannot be used",
        ),
        (&["pca", &*store, "--out", &*out, "--tolerance", "1e-3", "--method", "exact"], "--tolerance"),
        (&["pca", &*store, "--out", &*out, "--scaler", "best"], "patterson"),
        (&["pca", &*store, "--out", &*out, "-k", "0"], "at least 1"),
        (&["pca", &*store, "--out", &*out, "--maf", "0.7"], "0.5"),
        (&["pca", &*store, "--out", &*out, "--geno", "-1"], "--geno"),
        (&["pca", &*store, "--out", &*out, "--memory", "lots"], "512M"),
        (&["pca", &*store, "--out", &*out, "--threads", "0"], "at least 1"),
        (&["brew"], "brew"),
    ] {
        let ran = teatime(args);
        assert_eq!(ran.code, 2, "{args:?}: {}", ran.err);
        assert!(ran.err.contains(word), "{args:?}: {}", ran.err);
    }
    assert!(scratch.names().is_empty());
    assert!(teatime(["pca", "--help"]).ok().out.contains("pca.eigenvec"));
}

/// As PLINK 1.9 says it: "Total genotyping rate is". Low ones are warned of, of all calls and of samples.
#[test]
fn call_rates() {
    let scratch = Scratch::new();
    let store = |name: &str, missing: &[usize]| {
        let dosage = |i: usize| if missing.contains(&i) { 255 } else { [0, 1, 2][i * i % 7 % 3] };
        let path = scratch.join(name);
        plain_array(&path, "|i1", &[20, 5], &(0..100).map(dosage).collect::<Vec<_>>());
        path
    };
    let run = |path: &Path| pca(path, &scratch.join("out"), &["-k", "2", "--overwrite"]).ok();
    let record = || json(&fs::read_to_string(scratch.join("out/run.json")).unwrap());
    let ran = run(&store("whole", &[]));
    assert!(!ran.out.contains("call rate") && !ran.err.contains("call rate"), "{}{}", ran.out, ran.err);
    assert_eq!((&record()["calls"]["missing"], &record()["calls"]["rate"]), (&0.into(), &1.0.into()));
    // Three of the fourth sample and one of the second.
    let ran = run(&store("few", &[3, 8, 13, 21]));
    assert!(
        ran.out.contains("4 of 100 calls missing: call rate 0.96, of samples at least 0.85 (`S0004`)"),
        "{}",
        ran.out
    );
    assert!(
        ran.err.contains("1 sample has a call rate below 90 %, the lowest first: `S0004`"),
        "{}",
        ran.err
    );
    assert!(!ran.err.contains("the call rate is"), "{}", ran.err);
    let lowest = &record()["calls"]["lowest_samples"];
    assert_eq!(
        lowest,
        &serde_json::json!([{ "sample": "S0004", "rate": 0.85 }, { "sample": "S0002", "rate": 0.95 }])
    );
    let ran = run(&store("many", &(0..30).collect::<Vec<_>>()));
    assert!(ran.err.contains("the call rate is 0.7, below 90 %"), "{}", ran.err);
}
