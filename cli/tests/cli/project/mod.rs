//! `teatime project`, and the stores that its tests are made of.

mod hapmap;
mod matching;
mod samples;
mod scores;
mod tables;

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use flate2::read::MultiGzDecoder;
use teatime_genotype::{Variant, VcfZarrHeader};

use crate::support::{self, Ran, Scratch, calls, number, on_store, pca, rows, run, write_store};

/// `teatime project STORE --loadings LOADINGS --out OUT` and words.
fn project(store: &Path, loadings: &Path, out: &Path, more: &[&str]) -> Ran {
    run(on_store("project", store, out, &[&["--loadings", loadings.to_str().unwrap()], more].concat()))
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
    let calls = calls(sites.iter().flat_map(|site| &site.dosages));
    let variants: Vec<Variant> = sites.iter().map(|site| site.variant.clone()).collect();
    drop(fs::remove_dir_all(path));
    write_store(path, header, &calls, &variants);
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

/// Nothing is warned of but missing calls, of which the samples have many.
fn assert_only_missing(ran: &Ran) {
    let missing =
        |line: &str| line.starts_with("warning: ") && line.contains("of the calls of the variants used");
    assert!(ran.err.lines().all(missing), "{}", ran.err);
}

fn refused(store: &Path, loadings: &Path, more: &[&str], words: &[&str]) {
    let more = [&["--loadings", loadings.to_str().unwrap()], more].concat();
    support::refused("project", store, &more, 1, words);
}
