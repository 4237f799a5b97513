//! Tests of which contigs take part, and what is told of them.

use std::{
    fs,
    io::Read,
    ops::Range,
    path::{Path, PathBuf},
};

use teatime_genotype::{Variant, VcfZarrHeader};

use crate::support::{self, Scratch, command, copy, fixture, json, pca, plain_array, teatime, write_store};

const SAMPLES: usize = 12;

/// Contigs of the rows of a store. In chunks of 1,000 variants, the third has nothing but X.
const CONTIGS: [(&str, Range<u64>); 5] =
    [("chr1", 0..1400), ("chrX", 1400..3300), ("chr2", 3300..3600), ("chrM", 3600..3650), ("0", 3650..3660)];
const AUTOSOMES: [Range<u64>; 2] = [0..1400, 3300..3600];

fn all() -> Vec<u64> {
    (0..3660).collect()
}

/// Writes these rows as a store of their own.
fn store(path: &Path, rows: &[u64]) {
    let of = |row: u64| CONTIGS.iter().find(|(_, range)| range.contains(&row)).unwrap().0;
    let samples = (0..SAMPLES).map(|i| format!("s{i}")).collect();
    let header = VcfZarrHeader::new(
        samples,
        CONTIGS.iter().map(|(name, _)| (*name).into()).collect(),
        rows.len() as u64,
    );
    let allele = |row: u64, i: usize| {
        let word = (row * 17 + i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
        if word.is_multiple_of(61) { -1 } else { i8::from(word % 10 < 2 + row % 5) }
    };
    let calls: Vec<i8> = rows.iter().flat_map(|&row| (0..2 * SAMPLES).map(move |i| allele(row, i))).collect();
    let variant = |&row: &u64| Variant {
        contig: of(row).into(),
        position: 100 + row,
        id: format!("v{row}"),
        reference: "A".into(),
        alternate: "C".into(),
    };
    write_store(path, header, &calls, &rows.iter().map(variant).collect::<Vec<_>>());
}

/// Runs a command on stores: its record, and what it said.
fn run(name: &str, stores: &[&Path], out: &Path, more: &[&str]) -> (serde_json::Value, String) {
    let mut command = command([name]);
    command.args(stores).arg("--out").arg(out).args(more).arg("--json");
    let ran = support::run(command).ok();
    (json(&ran.out), ran.err)
}

/// The results: some do not depend on where rows are, and names and places in the table of loadings do.
fn results(out: &Path) -> Vec<String> {
    let mut files = vec!["pca.eigenval", "pca.eigenvec", "scores.tsv", "eigenvalues.tsv"]
        .into_iter()
        .map(|name| fs::read_to_string(out.join(name)).unwrap())
        .collect::<Vec<_>>();
    let mut text = String::new();
    let file = fs::File::open(out.join("loadings.tsv.gz")).unwrap();
    flate2::read::GzDecoder::new(file).read_to_string(&mut text).unwrap();
    files.push(text);
    files
}

#[test]
fn sex_mitochondria_and_unplaced_are_told() {
    let scratch = Scratch::new();
    let path = scratch.join("all.vcz");
    store(&path, &all());
    let told = "warning: 1,960 variants of sex chromosomes, mitochondria or unknown places take part: 1,900 on X, \
                50 on MT, 10 on 0; --autosome leaves them out";
    for name in ["pca", "grm"] {
        let (record, err) = run(name, &[&path], &scratch.join(name), &[]);
        assert!(err.lines().any(|line| line == told), "{err}");
        assert_eq!(record["warnings"][0], told["warning: ".len()..]);
        let contigs = serde_json::json!({
            "autosomes": 22, "asked": null, "left_out": 0, "autosomal": 1700, "sex": {"X": 1900}, "mitochondrial": 50,
            "unplaced": 10, "other": 0,
        });
        assert_eq!(record["contigs"], contigs);
    }
    // A projection tells of the variants that the loadings have as well; those on contig 0 are nowhere.
    run("pca", &[&path], &scratch.join("all"), &["--loadings"]);
    run("pca", &[&path], &scratch.join("autosomes"), &["--loadings", "--autosome"]);
    for (loadings, more, warning) in [
        ("all", &[][..], Some(told.replace("1,960", "1,950").replace(", 10 on 0", ""))),
        ("all", &["--autosome", "--max-mismatch", "1"], None),
        ("autosomes", &[], None),
    ] {
        let file = scratch.join(loadings).join("loadings.tsv.gz");
        let file = file.to_string_lossy();
        let more = [&["--overwrite", "--loadings", &*file], more].concat();
        let (record, err) = run("project", &[&path], &scratch.join("project"), &more);
        let of_contigs = err.lines().find(|line| line.contains("sex chromosomes")).map(str::to_owned);
        assert_eq!(of_contigs, warning, "{err}");
        let x = if warning.is_some() { serde_json::json!({"X": 1900}) } else { serde_json::json!({}) };
        assert_eq!((&record["contigs"]["autosomal"], &record["contigs"]["sex"]), (&1700.into(), &x));
    }
    let out = scratch.join("asked");
    let (record, err) = run("pca", &[&path], &out, &["--chr", "1-2,X,MT,7"]);
    assert_eq!(err, "warning: --chr: no variant is on `7`\n");
    assert_eq!(
        (&record["contigs"]["asked"], &record["contigs"]["left_out"]),
        (&json("\"--chr 1-2,X,MT,7\""), &json("10"))
    );
    let ran = pca(&path, &scratch.join("summary"), &["--autosome"]).ok();
    assert!(ran.out.contains("1,960 of other contigs left out by --autosome"), "{}", ran.out);
    assert!(ran.err.is_empty(), "{}", ran.err);
}

/// As from a store of nothing else; chunks of nothing else are not read, since they are not there.
#[test]
fn chosen_contigs_are_a_store_of_their_own() {
    let scratch = Scratch::new();
    let [path, alone, tail] = ["all.vcz", "alone.vcz", "tail.vcz"].map(|name| scratch.join(name));
    store(&path, &all());
    store(&alone, &AUTOSOMES.into_iter().flatten().collect::<Vec<_>>());
    store(&tail, &(3500..3660).collect::<Vec<_>>());
    // Twice the last autosomal rows.
    let twice = scratch.join("twice.vcz");
    store(&twice, &AUTOSOMES.into_iter().flatten().chain(3500..3600).collect::<Vec<_>>());
    fs::remove_file(path.join("call_genotype/2.0.0")).unwrap();
    for (name, stores, alone) in [("one", &[&*path][..], &alone), ("two", &[&*path, &*tail], &twice)] {
        let (ours, theirs) = (scratch.join(name), scratch.join(&format!("{name}-alone")));
        let (record, _) = run("pca", stores, &ours, &["--loadings", "--autosome"]);
        let (expected, _) = run("pca", &[alone], &theirs, &["--loadings"]);
        assert!(results(&ours) == results(&theirs), "{name}");
        for key in ["allele_counts", "variants", "components"] {
            assert_eq!(record[key], expected[key], "{name}: {key}");
        }
    }
    let (record, _) = run("grm", &[&path], &scratch.join("grm"), &["--chr", "1,2"]);
    let (expected, _) = run("grm", &[&alone], &scratch.join("grm-alone"), &[]);
    assert_eq!(record["allele_counts"], expected["allele_counts"]);

    let loadings = scratch.join("one/loadings.tsv.gz");
    let loadings = ["--loadings", &*loadings.to_string_lossy()];
    run("project", &[&path], &scratch.join("project"), &[&loadings[..], &["--autosome"]].concat());
    run("project", &[&alone], &scratch.join("project-alone"), &loadings);
    let scores = |name: &str| fs::read(scratch.join(name).join("projection.tsv")).unwrap();
    assert_eq!(scores("project"), scores("project-alone"));
    let ran = pca(&path, &scratch.join("lost"), &[]);
    assert!(ran.code == 1 && ran.err.contains("chunk [2, 0, 0]"), "{}", ran.err);
}

/// A .bed of these variants of the fixture, with the contigs `2L` and `3R` as `1` and `X`.
fn bed(scratch: &Scratch, name: &str, rows: Range<usize>) -> PathBuf {
    let bytes = fs::read(fixture("plink1/biallelic.bed")).unwrap();
    let calls: Vec<u8> = bytes[3..].chunks(15).skip(rows.start).take(rows.len()).flatten().copied().collect();
    fs::write(scratch.join(&format!("{name}.bed")), [&bytes[..3], &calls].concat()).unwrap();
    let bim = fs::read_to_string(fixture("plink1/biallelic.bim")).unwrap();
    let bim: String = bim.lines().skip(rows.start).take(rows.len()).map(|line| format!("{line}\n")).collect();
    let bim = bim.replace("2L\t", "1\t").replace("3R\t", "23\t");
    fs::write(scratch.join(&format!("{name}.bim")), bim).unwrap();
    fs::copy(fixture("plink1/biallelic.fam"), scratch.join(&format!("{name}.fam"))).unwrap();
    scratch.join(&format!("{name}.bed"))
}

#[test]
fn contigs_of_beds_of_either_mode() {
    let scratch = Scratch::new();
    // Row 30 of the 150 on the first contig is not biallelic.
    let alone = bed(&scratch, "alone", 0..148);
    let minor = bed(&scratch, "all", 0..237);
    let major = scratch.join("major.bed");
    fs::copy(fixture("plink1/sample_major.bed"), &major).unwrap();
    for kind in ["bim", "fam"] {
        fs::copy(minor.with_extension(kind), major.with_extension(kind)).unwrap();
    }
    let expected = run("pca", &[&alone], &scratch.join("expected"), &["--loadings"]).0;
    for path in [minor, major] {
        let out = scratch.join(path.file_stem().unwrap().to_str().unwrap());
        let (record, err) = run("pca", &[&path], &out, &["--autosome", "--loadings"]);
        assert!(err.is_empty(), "{err}");
        assert_eq!(record["contigs"]["left_out"], 89);
        assert_eq!(record["allele_counts"], expected["allele_counts"]);
        assert!(results(&out) == results(&scratch.join("expected")));
    }
}

/// A .bed of 230 variants, whose contigs and positions `of` tells.
fn bed_of(scratch: &Scratch, name: &str, of: impl Fn(usize) -> (String, usize)) -> PathBuf {
    let path = bed(scratch, name, 0..230);
    let line = |row| {
        let (contig, position) = of(row);
        format!("{contig}\tv{row}\t0\t{position}\tC\tA\n")
    };
    fs::write(path.with_extension("bim"), (0..230).map(line).collect::<String>()).unwrap();
    path
}

/// 23 to 26 are X, Y, XY and MT of a human; else autosomes.
#[test]
fn contigs_of_other_species() {
    let scratch = Scratch::new();
    // Five variants a contig: 1 to 38, and the rest on X.
    let dog = bed_of(&scratch, "dog", |row| {
        (if row < 190 { (1 + row / 5).to_string() } else { "X".into() }, 1000 * (1 + row % 5))
    });
    let number = |row: usize| (1 + row / 9).to_string();
    let human = bed_of(&scratch, "human", |row| (number(row), 1000 * (1 + row % 9)));
    let sheep = bed_of(&scratch, "sheep", |row| (number(row), 1_000_000 * (1 + row % 9)));
    let counts = |record: &serde_json::Value| {
        let contigs = &record["contigs"];
        let of = |name: &str| contigs[name].as_u64();
        (
            of("autosomes"),
            contigs["left_out"].as_u64().unwrap(),
            of("autosomal").unwrap(),
            of("mitochondrial").unwrap(),
        )
    };
    for (path, more, expected) in [
        (&dog, &["--chr", "1-38"][..], (None, 40, 0, 0)),
        (&dog, &["--chr", "23-26"], (None, 210, 0, 0)),
        (&dog, &["--chr-set", "38", "--autosome"], (Some(38), 40, 190, 0)),
        (&dog, &["--chr-set", "38", "--chr", "39"], (Some(38), 190, 0, 0)),
        (&dog, &["--chr-set", "22", "--chr", "1-22"], (Some(22), 120, 110, 0)),
        (&human, &["--autosome"], (Some(22), 32, 198, 0)),
        (&human, &["--chr", "MT"], (Some(22), 225, 0, 5)),
        (&sheep, &["--chr", "1-26"], (None, 0, 0, 0)),
        (&sheep, &["--chr-set", "26", "--autosome"], (Some(26), 0, 230, 0)),
    ] {
        let more = [more, &["-k", "3", "--overwrite"]].concat();
        let (record, _) = run("pca", &[path], &scratch.join("out"), &more);
        assert_eq!(counts(&record), expected, "{more:?}");
    }
    let words = ["--autosome: no variant", "--chr-set says how many autosomes there are"];
    support::refused("pca", &dog, &["--autosome"], 1, &words);
    support::refused("pca", &dog, &["--chr-set", "0"], 2, &["--chr-set"]);
    // A store of one contig: its header names the others, and how long they are.
    let alone = scratch.join("alone.vcz");
    store(&alone, &(0..30).collect::<Vec<_>>());
    let lengths = |first: i64| {
        fs::write(alone.join("contig_length/0"), [first, 0, 0, 0, 0].map(i64::to_le_bytes).concat()).unwrap();
        run("pca", &[&alone], &scratch.join("alone"), &["--overwrite"]).0["contigs"]["autosomes"].as_u64()
    };
    plain_array(&alone.join("contig_length"), "<i8", &[5], &[0; 40]);
    assert_eq!([lengths(0), lengths(248_956_422), lengths(122_678_785)], [Some(22), Some(22), None]);
}

/// Names of samples: none are invented for several stores, which would be those of the same people.
#[test]
fn stores_without_names() {
    let scratch = Scratch::new();
    let path = scratch.join("all.vcz");
    store(&path, &(0..30).collect::<Vec<_>>());
    fs::remove_dir_all(path.join("sample_id")).unwrap();
    let (record, err) = run("pca", &[&path], &scratch.join("one"), &[]);
    let warning = format!("{} has no names of samples: they are numbered from S0001 on", path.display());
    assert!(
        err.contains(&warning) && record["warnings"].as_array().unwrap().contains(&warning.clone().into()),
        "{err}"
    );
    let scores = fs::read_to_string(scratch.join("one/scores.tsv")).unwrap();
    assert_eq!(scores.lines().nth(12).unwrap().split('\t').next(), Some("S0012"));
    let named = scratch.join("named.vcz");
    store(&named, &(30..60).collect::<Vec<_>>());
    for stores in [[&path, &named], [&named, &path], [&path, &path]] {
        let mut command = command(["pca"]);
        command.args(stores).arg("--out").arg(scratch.join("two"));
        let ran = support::run(command);
        assert!(ran.code == 1 && ran.err.contains("all.vcz: it has no names of samples"), "{}", ran.err);
    }
}

#[test]
fn contigs_that_are_not_there() {
    let scratch = Scratch::new();
    let path = scratch.join("all.vcz");
    store(&path, &all());
    let refused =
        |store: &Path, more: &[&str], code, words: &[&str]| support::refused("pca", store, more, code, words);
    refused(&path, &["--chr", "5-9"], 1, &["--chr 5-9: no variant", "`0`, `chr1`, `chr2`, `chrM`, `chrX`"]);
    refused(&fixture("all_v3.vcz"), &["--autosome"], 1, &["--autosome: no variant", "`2L`, `3R`"]);
    refused(
        &fixture("dosages_v2.zarr"),
        &["--array", "int64_gzip", "--chr", "1"],
        1,
        &["the stores have `.`"],
    );
    refused(&path, &["--chr", "9-5"], 2, &["`9-5` ends before it starts"]);
    refused(&path, &["--chr", "1,,2"], 2, &["a name is missing"]);
    refused(&path, &["--chr", "1", "--autosome"], 2, &["cannot be used with"]);
    // A column that cannot be read is an error for what needs it.
    fs::write(path.join("variant_contig/0"), "damaged").unwrap();
    refused(&path, &["--chr", "1"], 1, &["variant_contig: chunk [0]"]);
    let ran = pca(&path, &scratch.join("fine"), &[]).ok();
    assert!(ran.err.starts_with("warning: which contigs the variants are on is not known: "), "{}", ran.err);
    for name in ["pca", "project", "grm"] {
        let help = teatime([name, "--help"]).ok().out;
        assert!(help.contains("--chr <LIST>") && help.contains("--autosome"), "{help}");
    }
}

/// bio2zarr leaves out chunks of contig 0, which come first: those are known. Of others it is told that they are not there.
#[test]
fn chunks_of_contigs_that_are_not_there_are_told() {
    let scratch = Scratch::new();
    let told = |path: &Path, n: &str, contig: &str| {
        format!(
            "{}: {n} not there and {} read as its fill value (contig `{contig}`), as writers leave out chunks of nothing \
             else; lost ones would look the same",
            path.display(),
            n.rsplit(' ').next().unwrap()
        )
    };
    let path = scratch.join("own.vcz");
    store(&path, &all());
    fs::remove_file(path.join("variant_contig/2")).unwrap();
    let warning = told(&path, "1 chunk of variant_contig is", "chr1");
    for (name, more) in [
        ("pca", &[][..]),
        ("pca", &["--loadings", "--autosome"]),
        ("pca", &["--chr", "2"]),
        ("grm", &["--chr", "1"]),
    ] {
        let (record, err) = run(name, &[&path], &scratch.join(name), &[more, &["--overwrite"]].concat());
        assert!(err.lines().any(|line| line == format!("warning: {warning}")), "{err}");
        let warnings = record["warnings"].as_array().unwrap();
        assert_eq!(warnings.iter().filter(|w| **w == *warning).count(), 1, "{warnings:?}");
        let at = scratch.join(name).join("run.json");
        assert_eq!(json(&fs::read_to_string(at).unwrap())["warnings"], record["warnings"]);
    }
    // In fixtures the first of three is not there.
    for (chunk, n) in [(None, 1), (Some("c/1"), 2), (Some("c/2"), 2)] {
        let path = scratch.join(&format!("fixture-{}", chunk.map_or("none", |chunk| &chunk[2..])));
        copy(&fixture("all_v3.vcz"), &path);
        if let Some(chunk) = chunk {
            fs::remove_file(path.join("variant_contig").join(chunk)).unwrap();
        }
        let (record, err) = run("pca", &[&path], &scratch.join("out"), &["--overwrite"]);
        if chunk.is_none() {
            assert!(err.is_empty(), "{err}");
        } else {
            let warning = told(&path, &format!("{n} chunks of variant_contig are"), "2L");
            assert_eq!(record["warnings"], serde_json::json!([warning]));
        }
    }
}
