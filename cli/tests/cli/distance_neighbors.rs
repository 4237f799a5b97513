//! `teatime distance --neighbors`, beside the matrix of all distances.

use std::{fs, path::Path};

use teatime::{ChunkedArray, MissingChunk, store::ZarrArray};

use crate::support::{Ran, Scratch, fixture, json, npy, on_store, provenance, run};

const SAMPLES: usize = 60;

fn distance(store: &str, out: &Path, more: &[&str]) -> Ran {
    run(on_store("distance", &fixture(store), out, more))
}

/// The `k` nearest of each by a stable sort of the matrix.
fn expected(matrix: &[f64], k: usize, similarity: bool) -> (Vec<u64>, Vec<f64>) {
    let nearest = |(row, distances): (usize, &[f64])| {
        let mut sorted: Vec<(usize, f64)> = distances.iter().copied().enumerate().collect();
        sorted.retain(|&(number, _)| number != row);
        sorted.sort_by(|a, b| if similarity { b.1.total_cmp(&a.1) } else { a.1.total_cmp(&b.1) });
        sorted.truncate(k);
        sorted
    };
    let sorted = matrix.chunks(SAMPLES).enumerate().flat_map(nearest);
    sorted.map(|(number, distance)| (number as u64, distance)).unzip()
}

/// The elements of a numpy file of 8 bytes each, (samples, k).
fn rows(path: &Path, descr: &str, k: usize) -> Vec<[u8; 8]> {
    let bytes = fs::read(path).unwrap();
    let header = String::from_utf8_lossy(&bytes[10..128]);
    let words = format!("'descr': '{descr}', 'fortran_order': False, 'shape': ({SAMPLES}, {k})");
    assert!(header.contains(&words), "{header}");
    bytes[128..].as_chunks().0.to_vec()
}

#[test]
fn formats_hold_what_a_sort_says() {
    let scratch = Scratch::new();
    for (metric, k, option) in [
        ("euclidean", 4, &[][..]),
        ("ibs", 59, &[]),
        ("ibs", 3, &["--het-het", "0.5"]),
        ("correlation", 1, &[]),
    ] {
        let of = |ending: &str, more: &[&str]| {
            let path = scratch.join(&format!("{metric}{ending}"));
            distance("all_v2.vcz", &path, &[&["--metric", metric, "--overwrite"], option, more].concat())
                .ok();
            path
        };
        let (numbers, distances) = expected(&npy(&of(".npy", &[])), k, metric == "ibs");
        let words = k.to_string();
        let neighbors = ["--neighbors", &words];

        let path = of(".npy", &neighbors);
        let found = rows(&path, "<f8", k).into_iter().map(f64::from_le_bytes);
        assert!(found.eq(distances.iter().copied()), "{metric}");
        let found = rows(&scratch.join(&format!("{metric}.neighbors.npy")), "<i8", k);
        assert!(found.into_iter().map(u64::from_le_bytes).eq(numbers.iter().copied()), "{metric}");
        let ids = fs::read_to_string(scratch.join(&format!("{metric}.id"))).unwrap();
        let ids: Vec<&str> = ids.lines().collect();
        assert_eq!(ids.len(), SAMPLES);

        // The numbers' file gives way with the rest.
        let table = fs::read_to_string(of(".tsv", &neighbors)).unwrap();
        assert!(!scratch.join(&format!("{metric}.neighbors.npy")).exists());
        let mut lines = table.lines();
        assert_eq!(lines.next(), Some("sample\trank\tneighbor\tdistance"));
        let pairs = numbers.iter().zip(&distances).enumerate();
        let expected = pairs.map(|(at, (&number, distance))| {
            (ids[at / k], (at % k + 1).to_string(), ids[usize::try_from(number).unwrap()], *distance)
        });
        let found = lines.map(|line| line.split('\t').collect::<Vec<_>>());
        let found = found.map(|cells| (cells[0], cells[1].to_owned(), cells[2], cells[3].parse().unwrap()));
        assert!(found.eq(expected), "{metric}");

        let store = of(".zarr", &neighbors);
        let read = |name: &str| {
            let array = ZarrArray::open(&store, name, MissingChunk::Error).unwrap();
            assert_eq!(array.shape(), [SAMPLES as u64, k as u64]);
            array.read_chunk(&[0, 0]).unwrap().bytes
        };
        assert_eq!(whole_numbers(&read("neighbor")), numbers, "{metric}");
        let bits: Vec<u64> = distances.iter().map(|distance| distance.to_bits()).collect();
        assert_eq!(whole_numbers(&read("distance")), bits, "{metric}");
        assert!(store.join("sample_id").exists());
    }
}

fn whole_numbers(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect()
}

#[test]
fn the_record_says_how() {
    let scratch = Scratch::new();
    let out = scratch.join("x.npy");
    let of = |metric: &str, more: &[&str]| {
        let words = ["--neighbors", "3", "--metric", metric, "--overwrite"];
        distance("all_v2.vcz", &out, &[&words, more].concat()).ok()
    };
    let record = json(&of("hamming", &["--json"]).out);
    provenance(&record, "distance", [None, None]);
    assert_eq!(record["neighbors"], serde_json::json!({ "k": 3, "bands": 1 }));
    assert!(record["bands"].is_null());
    assert_eq!(record["files"], serde_json::json!(["x.run.json", "x.npy", "x.neighbors.npy", "x.id"]));
    let page = of("hamming", &[]).out;
    assert!(page.contains("3 of each sample, of distances in 1 band\n"), "{page}");
    let page = of("canberra", &[]).out;
    assert!(page.contains("3 of each sample, of the matrix of all distances"), "{page}");
    let record = json(&of("canberra", &["--json"]).out);
    assert_eq!(record["neighbors"], serde_json::json!({ "k": 3, "bands": null }));
    let propagated = of("hamming", &["--missing", "propagate"]);
    assert!(propagated.err.contains("pairs of samples is NaN"), "{}", propagated.err);
    distance("all_v2.vcz", &out, &["--overwrite"]).ok();
    let record = json(&fs::read_to_string(scratch.join("x.run.json")).unwrap());
    assert!(record["neighbors"].is_null());
    assert_eq!(scratch.names(), ["x.id", "x.npy", "x.run.json"]);
}

#[test]
fn what_cannot_be_is_named() {
    let scratch = Scratch::new();
    let says = |out: &str, more: &[&str], code: i32, words: &str| {
        let ran = distance("all_v3.vcz", &scratch.join(out), more);
        assert!(ran.code == code && ran.err.contains(words), "{} {}", ran.code, ran.err);
        assert!(scratch.names().is_empty(), "{:?} is left", scratch.names());
    };
    for out in ["x.dist", "x.dist.bin"] {
        // Before any work.
        says(
            out,
            &["--neighbors", "2", "--memory", "1K"],
            2,
            "--neighbors is for --out D.npy, D.tsv or D.zarr",
        );
    }
    for more in [&["--tree", "ward"][..], &["--resume"]] {
        says("x.zarr", &[&["--neighbors", "2"], more].concat(), 2, "cannot be used with");
    }
    for k in ["0", "60"] {
        says("x.tsv", &["--neighbors", k], 1, &format!("--neighbors: {k} of 60 samples: from 1 to 59"));
    }
    says("x.tsv", &["--neighbors=-1"], 2, "--neighbors");
    says(
        "x.tsv",
        &["--neighbors", "2", "--memory", "1K"],
        1,
        "memory budget of 1.0 KiB is too small: this needs at least",
    );
    let words =
        "memory budget, for the matrix of all distances, of 1.0 KiB is too small: this needs at least";
    says("x.tsv", &["--neighbors", "2", "--metric", "canberra", "--memory", "1K"], 1, words);
}
