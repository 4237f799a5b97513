//! `teatime distance --with`: distances between the samples of two stores.

use std::{fs, path::Path, sync::Arc};

use teatime_genotype::{Variant, VcfZarrHeader};

use crate::support::{Ran, Scratch, calls, fixture, json, npy, npy_of, on_store, run, write_store};

fn distance(store: &Path, with: &Path, out: &Path, more: &[&str]) -> Ran {
    run(on_store("distance", store, out, &[&["--with", with.to_str().unwrap()], more].concat()))
}

/// A position, alleles, and the dosages of the samples.
type Site<'a> = (u64, [&'a str; 2], &'a [i8]);

fn write(path: &Path, prefix: &str, sites: &[Site]) {
    let samples = (0..sites[0].2.len()).map(|i| format!("{prefix}{i}")).collect();
    let header = VcfZarrHeader::new(samples, vec!["1".into()], sites.len() as u64);
    let variant = |(position, [reference, alternate], _): &Site| Variant {
        contig: Arc::from("1"),
        position: *position,
        id: format!("rs{position}"),
        reference: (*reference).to_owned(),
        alternate: (*alternate).to_owned(),
    };
    let variants: Vec<_> = sites.iter().map(variant).collect();
    write_store(path, header, &calls(sites.iter().flat_map(|(_, _, dosages)| *dosages)), &variants);
}

/// Two stores: of six and five variants, three are in both, one of them turned round, two in another order; one has other alleles.
fn stores(scratch: &Scratch) -> [std::path::PathBuf; 2] {
    let [store, other] = ["new.vcz", "known.vcz"].map(|name| scratch.join(name));
    let ours: [Site; 6] = [
        (10, ["A", "C"], &[0, 1, 2]),
        (20, ["A", "G"], &[2, 2, 0]),
        (20, ["A", "T"], &[0, 0, 1]),
        (30, ["C", "G"], &[1, -1, 0]),
        (40, ["C", "T"], &[1, 1, 1]),
        (50, ["C", "T"], &[2, 0, 0]),
    ];
    let theirs: [Site; 5] = [
        (20, ["A", "T"], &[1, 0]),
        (20, ["A", "G"], &[2, 0]),
        (30, ["G", "C"], &[0, 2]),
        (40, ["C", "A"], &[0, 0]),
        (60, ["C", "T"], &[0, 0]),
    ];
    write(&store, "n", &ours);
    write(&other, "k", &theirs);
    [store, other]
}

/// The distances over `20 A G`, `20 A T` and `30 C G`, which the others have as 2 0, 1 0 and, turned round, 2 0. The second sample lacks
/// the last, which is made up for.
const CITYBLOCK: [f64; 6] = [2.0, 3.0, 1.5, 3.0, 4.0, 1.0];

#[test]
fn formats_hold_the_same() {
    let scratch = Scratch::new();
    let [store, other] = stores(&scratch);
    let more = ["--metric", "cityblock", "--overwrite"];
    let [npy, table, zarr] = ["d.npy", "d.tsv", "d.zarr"].map(|name| scratch.join(name));
    distance(&store, &other, &npy, &more).ok();
    assert_eq!(npy_of(&npy, [3, 2]), CITYBLOCK);
    let names = ["d.id", "d.with.id"].map(|name| fs::read_to_string(scratch.join(name)).unwrap());
    assert_eq!(names, ["n0\nn1\nn2\n", "k0\nk1\n"]);
    distance(&store, &other, &table, &more).ok();
    assert_eq!(fs::read_to_string(&table).unwrap(), "sample\tk0\tk1\nn0\t2\t3\nn1\t1.5\t3\nn2\t4\t1\n");
    // The files of the run that gave way are gone.
    assert_eq!(scratch.names(), ["d.run.json", "d.tsv", "known.vcz", "new.vcz"]);
    distance(&store, &other, &zarr, &more).ok();
    assert!(zarr.join("sample_id_with").exists());
    // By id, the same but for the two of one id.
    distance(&store, &other, &npy, &["--metric", "cityblock", "--overwrite", "--match", "id"]).ok();
    let found = npy_of(&npy, [3, 2]);
    assert_eq!([0, 1, 4, 5].map(|at| found[at]), [1.0, 1.0, 2.0, 0.0]);
    assert!(found[2].is_nan() && found[3].is_nan(), "n1 lacks the only one");
}

#[test]
fn the_nearest_of_the_other_store() {
    let scratch = Scratch::new();
    let [store, other] = stores(&scratch);
    let more = |k| ["--metric", "cityblock", "--overwrite", "--neighbors", k];
    let [npy, table, zarr] = ["d.npy", "d.tsv", "d.zarr"].map(|name| scratch.join(name));
    let ran = distance(&store, &other, &npy, &[&more("1")[..], &["--json"]].concat()).ok();
    let record = json(&ran.out);
    assert_eq!(record["neighbors"], serde_json::json!({ "k": 1, "bands": null }));
    let files = ["d.run.json", "d.npy", "d.neighbors.npy", "d.id", "d.with.id"];
    assert_eq!((&record["files"], &record["with"]["matched"]), (&serde_json::json!(files), &3.into()));
    assert_eq!(npy_of(&npy, [3, 1]), [2.0, 1.5, 1.0]);
    assert_eq!(fs::read_to_string(scratch.join("d.with.id")).unwrap(), "k0\nk1\n");
    distance(&store, &other, &table, &more("2")).ok();
    let lines = "n0\t1\tk0\t2\nn0\t2\tk1\t3\nn1\t1\tk0\t1.5\nn1\t2\tk1\t3\nn2\t1\tk1\t1\nn2\t2\tk0\t4\n";
    let written = fs::read_to_string(&table).unwrap();
    assert_eq!(written, format!("sample\trank\tneighbor\tdistance\n{lines}"));
    assert_eq!(scratch.names(), ["d.run.json", "d.tsv", "known.vcz", "new.vcz"]);
    distance(&store, &other, &zarr, &more("2")).ok();
    assert!(zarr.join("sample_id_with").exists());
    for k in ["0", "3"] {
        let ran = distance(&store, &other, &npy, &more(k));
        let words = format!("--neighbors: {k} of 2 samples: from 1 to 2");
        assert!(ran.code == 1 && ran.err.contains(&words), "{}", ran.err);
    }
}

#[test]
fn what_did_not_match_is_counted() {
    let scratch = Scratch::new();
    let [store, other] = stores(&scratch);
    let out = scratch.join("d.npy");
    let ran = distance(&store, &other, &out, &["--json"]).ok();
    let record = json(&ran.out);
    assert_eq!(record["files"], serde_json::json!(["d.run.json", "d.npy", "d.id", "d.with.id"]));
    let with = &record["with"];
    assert!(with["path"].as_str().unwrap().ends_with("known.vcz"), "{with}");
    let numbers = ["samples", "variants", "matched", "swapped"].map(|name| with[name].as_u64().unwrap());
    assert_eq!((numbers, &with["matched_by"]), ([2, 5, 3, 1], &"position".into()));
    assert_eq!((&with["left_out"]["absent"], &with["left_out"]["other_alleles"]), (&1.into(), &1.into()));
    assert_eq!(with["stores_left_out"]["absent"], 3);
    assert_eq!(record["variants_kept"], 3);
    let page = distance(&store, &other, &out, &["--overwrite"]).ok().out;
    for words in [
        "5 variants x 2 samples",
        "3 used, 1 of them with alleles swapped; 1 not in the stores, 1 there with other alleles or none",
        "of the stores, 3 not in STORE2",
    ] {
        assert!(page.contains(words), "`{words}` is not in: {page}");
    }
    // --maf counts the samples of both, --chr is of the first.
    let page = distance(&store, &other, &out, &["--overwrite", "--maf", "0.3", "--json"]).ok().out;
    assert_eq!(json(&page)["variants_kept"], 2);
    let none = distance(&store, &other, &out, &["--overwrite", "--chr", "1", "--maf", "0.5"]);
    assert!(none.code == 1 && none.err.contains("none of the 3 variants is left"), "{}", none.err);
}

/// The samples of a .bed from themselves, as a Zarr store has them, whichever allele is counted.
#[test]
fn a_bed_with_a_store() {
    let scratch = Scratch::new();
    let [bed, zarr] = ["plink1/biallelic.bed", "biallelic.vcz"].map(fixture);
    let [square, out] = ["s.npy", "d.npy"].map(|name| scratch.join(name));
    for (of, more) in [(&bed, ["--counted-allele", "a2"]), (&zarr, ["--haplotypes", "--overwrite"])] {
        run(on_store("distance", &zarr, &square, if of == &zarr { &more } else { &[] })).ok();
        distance(of, &zarr, &out, &more).ok();
        assert_eq!(npy(&out), npy(&square), "{more:?}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let scratch = Scratch::new();
    let [store, other] = stores(&scratch);
    let says = |out: &str, more: &[&str], words: &str| {
        let ran = distance(&store, &other, &scratch.join(out), more);
        assert!(ran.code == 2 && ran.err.contains(words), "{} {}", ran.code, ran.err);
    };
    says("x.dist", &[], "PLINK's files are of distances of samples from one another");
    says("x.dist.bin", &[], "PLINK's files are of distances of samples from one another");
    says("x.npy", &["--tree", "average"], "--tree is of distances of samples from one another");
    says("x.zarr", &["--resume"], "--resume is of distances of samples from one another");
    says("x.npy", &["--counted-allele", "1"], "--with matches variants by the names of their alleles");
    let alone = run(on_store("distance", &store, &scratch.join("x.npy"), &["--match", "id"]));
    assert!(alone.code == 2 && alone.err.contains("--with"), "{}", alone.err);
    let far = scratch.join("far.vcz");
    write(&far, "f", &[(70, ["A", "C"], &[0])]);
    let none = distance(&store, &far, &scratch.join("x.npy"), &[]);
    let words = "far.vcz is in the stores: of 1, 1 not in the stores; of another genome build";
    assert!(none.code == 1 && none.err.contains(words), "{}", none.err);
    let missing = distance(&store, &scratch.join("none.vcz"), &scratch.join("x.npy"), &[]);
    assert!(missing.code == 1 && missing.err.contains("none.vcz"), "{}", missing.err);
    assert_eq!(scratch.names(), ["far.vcz", "known.vcz", "new.vcz"]);
}
