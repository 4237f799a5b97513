//! Tests of `teatime pairwise` on arrays that numpy wrote.

use std::fs;

use serde_json::json;
use teatime::{ChunkedArray, store::write_npy};

use crate::support::{Scratch, assert_has, files, npy, number, plain_array, provenance};

/// Returns the shape of a store's array, its axes, and the bytes of its first chunk in groups of eight.
fn array(scratch: &Scratch, store: &str, name: &str) -> (Vec<u64>, String, Vec<[u8; 8]>) {
    let array = scratch.array(store, name);
    let bytes = array.read_chunk(&vec![0; array.shape().len()]).unwrap().bytes;
    (array.shape().to_vec(), array.dimension_names().join(" "), bytes.as_chunks().0.to_vec())
}

#[test]
fn formats_hold_the_same() {
    let scratch = Scratch::new();
    let of = |ending: &str, more: &str| {
        let words = "--missing ignore --negative-missing --overwrite";
        scratch.record(&format!("pairwise @distance/counts.npy --out d{ending} {words} {more}"))
    };
    let record = of(".npy", "");
    let square = npy(&scratch.join("d.npy"), [6, 6]);
    provenance(&record, "pairwise", [None, None]);
    let input = json!({
        "path": crate::support::fixture("distance/counts.npy"), "observations": 6, "features": 9, "dtype": "i64",
        "missing": null, "absent_chunks": 0,
    });
    assert_eq!((&record["x"], &record["with"], &record["undefined"]), (&input, &().into(), &0.into()));
    of(".zarr", "");
    let (shape, axes, values) = array(&scratch, "d.zarr", "distance");
    assert_eq!((shape, &*axes), (vec![6, 6], "observations_0 observations_1"));
    assert!(values.into_iter().map(f64::from_le_bytes).eq(square.iter().copied()));
    let (_, _, shared) = array(&scratch, "d.zarr", "shared_features");
    assert!(shared.into_iter().all(|count| u64::from_le_bytes(count) == 9));
    of(".tsv", "");
    assert!(scratch.text("d.tsv").starts_with("observation\t0\t1\t2\t3\t4\t5\n0\t"));
    // The table of neighbors has their indices, and the distances of the matrix.
    assert_eq!(of(".tsv", "--neighbors 2")["neighbors"], 2);
    let rows = scratch.rows("d.tsv");
    let cell = |row: &[String], at: usize| row[at].parse::<usize>().unwrap();
    for (at, row) in rows.iter().enumerate() {
        assert_eq!([cell(row, 0), cell(row, 1)], [at / 2, at % 2 + 1]);
        assert_eq!(number(&row[3]), square[6 * cell(row, 0) + cell(row, 2)]);
    }
    of(".npy", "--neighbors 2");
    npy(&scratch.join("d.npy"), [6, 2]);
    let numbers = scratch.bytes("d.neighbors.npy")[128..].as_chunks().0.to_vec();
    of(".zarr", "--neighbors 2");
    let (shape, axes, found) = array(&scratch, "d.zarr", "neighbor");
    assert_eq!((shape, &*axes, found), (vec![6, 2], "observations neighbors", numbers));
    assert_eq!(scratch.names(), ["d.run.json", "d.zarr"]);

    let record = of(".npy", "--observations columns");
    assert_eq!((npy(&scratch.join("d.npy"), [9, 9]).len(), &record["x"]["observations"]), (81, &9.into()));
    let record = of(".npy", "--with @distance/counts.npy");
    assert_eq!((npy(&scratch.join("d.npy"), [6, 6]), &record["with"]["observations"]), (square, &6.into()));
}

/// A table and a store have the pairs of the matrix that are within the radius.
#[test]
fn radius() {
    let scratch = Scratch::new();
    let of = |ending: &str, more: &str| {
        scratch.record(&format!("pairwise @distance/counts.npy --out d{ending} --overwrite {more}"))
    };
    of(".npy", "");
    let square = npy(&scratch.join("d.npy"), [6, 6]);
    let mut distances = square.clone();
    distances.sort_by(f64::total_cmp);
    let radius = distances[distances.len() / 2];
    let near = |row: usize| {
        let far = &square[6 * row..6 * (row + 1)];
        let mut near: Vec<usize> = (0..6).filter(|&column| column != row && far[column] <= radius).collect();
        near.sort_by(|&a, &b| far[a].total_cmp(&far[b]));
        near
    };
    let record = of(".tsv", &format!("--radius {radius}"));
    let rows = scratch.rows("d.tsv");
    let count: usize = (0..6).map(|row| near(row).len()).sum();
    assert!((6..30).contains(&count) && count == rows.len(), "{count}");
    assert_eq!((&record["radius"], &record["pairs"]), (&radius.into(), &count.into()));
    assert_eq!((&record["neighbors"], &record["undefined"]), (&().into(), &().into()));
    let pairs = (0..6)
        .flat_map(|row| near(row).into_iter().enumerate().map(move |(rank, column)| (row, rank + 1, column)));
    for ((row, rank, column), cells) in pairs.zip(&rows) {
        let [a, b, c] = [0, 1, 2].map(|at| cells[at].parse::<usize>().unwrap());
        assert_eq!((a, b, c, number(&cells[3])), (row, rank, column, square[6 * row + column]));
    }
    of(".zarr", &format!("--radius {radius}"));
    let line = |name: &str| array(&scratch, "d.zarr", name);
    let whole = |values: Vec<[u8; 8]>| values.into_iter().map(u64::from_le_bytes).collect::<Vec<_>>();
    let (shape, axis, ends) = line("indptr");
    assert_eq!((shape, &*axis), (vec![7], "bounds"));
    let lengths: Vec<u64> = whole(ends).windows(2).map(|ends| ends[1] - ends[0]).collect();
    assert_eq!(lengths, (0..6).map(|row| near(row).len() as u64).collect::<Vec<_>>());
    let (shape, axis, neighbors) = line("neighbor");
    assert_eq!((shape, &*axis), (vec![count as u64], "pairs"));
    assert!(whole(neighbors).into_iter().eq((0..6).flat_map(near).map(|column| column as u64)));
    let (.., values) = line("distance");
    assert!(values.into_iter().map(f64::from_le_bytes).eq(rows.iter().map(|cells| number(&cells[3]))));
    assert_eq!(scratch.json("d.zarr/.zattrs")["radius"], radius);
    // Values of a similarity are at least the radius, which may be negative and infinite.
    let record = of(".tsv", "--radius=-inf --metric inner_product --with @distance/counts.npy");
    assert_eq!((&record["radius"], &record["pairs"]), (&"-inf".into(), &36.into()));
    // Nothing may be within.
    for ending in [".zarr", ".tsv"] {
        assert_eq!(of(ending, "--radius 1e9 --metric inner_product")["pairs"], 0);
    }
    assert_eq!(scratch.text("d.tsv"), "observation\trank\tneighbor\tdistance\n");
}

/// Warnings name the reasons why distances are NaN.
#[test]
fn warnings() {
    let scratch = Scratch::new();
    let values = [288.0f32, 288.0, 288.0, 288.5, 287.0, 291.0, 0.0, 0.0, 0.0];
    write_npy(scratch.join("x.npy"), &values, [3, 3]).unwrap();
    for (metric, count, why) in [
        ("correlation", 8, "all elements of an observation are the same"),
        ("cosine", 5, "all elements of an observation are 0"),
        ("jensenshannon", 5, "an observation adds up to 0"),
    ] {
        let ran = scratch.ok(&format!("pairwise x.npy --out d.npy --overwrite --metric {metric}"));
        assert_has(&ran.err, &[&format!("{count} distances are NaN: an element is NaN, or {why}")]);
    }
}

/// Stopped runs resume, and end with the same bytes.
#[test]
fn tiles() {
    let scratch = Scratch::new();
    let values: Vec<f32> = (0..2100 * 4).map(|i| ((i * 7919) % 1013) as f32).collect();
    write_npy(scratch.join("x.npy"), &values, [2100, 4]).unwrap();
    let record = scratch.record("pairwise x.npy --out w.zarr --resume");
    assert_eq!((&record["tiles"], &record["undefined"]), (&true.into(), &().into()));
    // A matrix that does not fit in memory is written in tiles without `--resume` too.
    assert_eq!(scratch.record("pairwise x.npy --out s.zarr --memory 64M")["tiles"], true);
    let record = scratch.record("pairwise x.npy --out n.npy --memory 64M");
    assert_eq!((&record["tiles"], &record["undefined"]), (&true.into(), &0.into()));
    let tiles = |store: &str| files(&scratch.join(store).join("distance"));
    assert!(tiles("s.zarr") == tiles("w.zarr"));
    // A stopped run leaves the store like this.
    assert_has(&scratch.text("w.zarr/distance/.zattrs"), &["complete"]);
    for name in ["w.zarr/distance/1.0", "w.run.json"] {
        fs::remove_file(scratch.join(name)).unwrap();
    }
    scratch.refused("pairwise x.npy --out w.zarr", 1, &["--resume goes on with it"]);
    scratch.refused("pairwise x.npy --out w.zarr --resume --metric cityblock", 1, &["another job"]);
    scratch.ok("pairwise x.npy --out w.zarr --resume --memory 64M");
    assert!(tiles("s.zarr") == tiles("w.zarr"));
    // The numbers of shared features are stored too if elements may be missing.
    scratch.ok("pairwise x.npy --out c.zarr --resume --missing ignore");
    assert!(scratch.join("c.zarr/shared_features/1.1").exists());
    // Without memory for a tile, no output is left.
    write_npy(scratch.join("tall.npy"), &values[..1500 * 4], [1500, 4]).unwrap();
    scratch.refused("pairwise tall.npy --out t.zarr --memory 24M", 1, &["at least"]);
    let record = scratch.record("pairwise tall.npy --out t.zarr --memory 52M");
    let bytes = &record["budgets"]["host"]["bytes"];
    assert_eq!((&record["tiles"], bytes), (&true.into(), &(52u64 << 20).into()));
    // Equal bytes of another type are another job; so are x and y swapped, and other elements.
    write_npy(scratch.join("b.npy"), &[200u8, 1, 7], [3, 1]).unwrap();
    write_npy(scratch.join("i.npy"), &[-56i8, 1, 7], [3, 1]).unwrap();
    scratch.ok("pairwise b.npy --with b.npy --out r.zarr --resume");
    scratch.ok("pairwise i.npy --with b.npy --out u.zarr --resume");
    write_npy(scratch.join("x.npy"), &values.iter().map(|x| x + 1.0).collect::<Vec<_>>(), [2100, 4]).unwrap();
    for words in ["i.npy --with i.npy --out r.zarr", "b.npy --with i.npy --out u.zarr", "x.npy --out w.zarr"]
    {
        scratch.refused(&format!("pairwise {words} --resume"), 1, &["another job"]);
    }
}

#[test]
#[cfg(feature = "wgpu")]
fn f64_where_it_is_not_computed() {
    let scratch = Scratch::new();
    let words = "pairwise @distance/signed.npy --out d.npy --device wgpu";
    scratch.refused(words, 1, &["--narrow"]);
    scratch.ok(&format!("{words} --narrow"));
}

/// One side may have no observations.
#[test]
fn empty() {
    let scratch = Scratch::new();
    write_npy(scratch.join("x.npy"), &[1.0f32; 15], [3, 5]).unwrap();
    write_npy::<f32>(scratch.join("none.npy"), &[], [0, 5]).unwrap();
    scratch.ok("pairwise x.npy --with none.npy --out d.npy");
    npy(&scratch.join("d.npy"), [3, 0]);
    scratch.ok("pairwise x.npy --with none.npy --out e.zarr");
    assert_eq!(scratch.array("e.zarr", "distance").shape(), [3, 0]);
}

/// Elements that the attributes declare missing are counted, in floating point and integers, and ignored as NaN is.
#[test]
fn missing_values_of_attributes() {
    let scratch = Scratch::new();
    let values = [1i16, 2, -9, 4, 3, 5, 1, 1, 2, 7, -9, 3];
    let floats: Vec<u8> = values.iter().flat_map(|x| f32::from(*x).to_le_bytes()).collect();
    let integers: Vec<u8> = values.iter().flat_map(|x| i64::from(*x).to_le_bytes()).collect();
    for (name, dtype, bytes) in [("f32", "<f4", floats), ("i64", "<i8", integers)] {
        plain_array(&scratch.join(name), dtype, &[4, 3], &bytes);
        scratch.write(&format!("{name}/.zattrs"), r#"{ "_FillValue": -9 }"#);
        for missing in ["propagate", "ignore"] {
            let ran = scratch.ok(&format!("pairwise {name} --out d.npy --missing {missing} --overwrite"));
            let has_nan = npy(&scratch.join("d.npy"), [4, 4]).iter().any(|x| x.is_nan());
            assert_eq!(has_nan, missing == "propagate");
            let x = &scratch.json("d.run.json")["x"];
            assert_eq!((&x["missing"], &x["dtype"]), (&2.into(), &name.into()));
            assert_has(&ran.err, &["2 elements are missing, being -9"]);
        }
    }
}
