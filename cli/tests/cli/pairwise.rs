//! `teatime pairwise` on arrays that numpy wrote.

use std::{
    fs,
    path::{Path, PathBuf},
};

use teatime::{
    ChunkedArray, MissingChunk,
    store::{ZarrArray, write_npy},
};

use crate::support::{self, Ran, Scratch, json, names, npy_of, on_store, plain_array, provenance, run};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/distance").join(name)
}

fn pairwise(x: &Path, out: &Path, more: &[&str]) -> Ran {
    run(on_store("pairwise", x, out, more))
}

#[test]
fn formats_hold_the_same() {
    let scratch = Scratch::new();
    let (x, y) = (fixture("counts.npy"), fixture("signed.npy"));
    let of = |ending: &str, more: &[&str]| {
        let path = scratch.join(&format!("d{ending}"));
        let options = ["--missing", "ignore", "--negative-missing", "--overwrite", "--json"];
        let record = json(&pairwise(&x, &path, &[&options, more].concat()).ok().out);
        (path, record)
    };
    let (path, record) = of(".npy", &[]);
    let square = npy_of(&path, [6, 6]);
    provenance(&record, "pairwise", [None, None]);
    let input = serde_json::json!({
        "path": x, "observations": 6, "features": 9, "dtype": "i64", "missing": null, "absent_chunks": 0,
    });
    assert_eq!((&record["x"], &record["with"], &record["undefined"]), (&input, &().into(), &0.into()));
    let numbers = |path: &Path, name: &str| {
        let array = ZarrArray::open(path, name, MissingChunk::Error).unwrap();
        let bytes = array.read_chunk(&[0, 0]).unwrap().bytes;
        (array.shape().to_vec(), array.dimension_names().to_vec(), bytes.as_chunks().0.to_vec())
    };
    let (path, _) = of(".zarr", &[]);
    let axes = ["observations_0", "observations_1"].map(String::from).to_vec();
    let (shape, names, values) = numbers(&path, "distance");
    assert_eq!((shape, names), (vec![6, 6], axes));
    assert!(values.into_iter().map(f64::from_le_bytes).eq(square.iter().copied()));
    let (_, _, shared) = numbers(&path, "shared_features");
    assert!(shared.into_iter().all(|count| u64::from_le_bytes(count) == 9));
    let (path, _) = of(".tsv", &[]);
    let rows = support::rows(&path);
    assert_eq!(fs::read_to_string(&path).unwrap().lines().next(), Some("observation\t0\t1\t2\t3\t4\t5"));
    for (i, (row, expected)) in rows.iter().zip(square.chunks(6)).enumerate() {
        assert_eq!(row[0], i.to_string());
        assert!(row[1..].iter().map(|cell| support::number(cell)).eq(expected.iter().copied()));
    }

    // The nearest, of equal distances the earlier first: two rows are the same.
    let (path, record) = of(".npy", &["--neighbors", "2"]);
    assert_eq!(record["neighbors"], 2);
    let nearest: Vec<(u64, f64)> = (0..6)
        .flat_map(|row| {
            let mut all: Vec<(u64, f64)> =
                (0..6).map(|other| (other as u64, square[6 * row + other])).collect();
            all.remove(row);
            all.sort_by(|a, b| a.1.total_cmp(&b.1));
            all.truncate(2);
            all
        })
        .collect();
    assert!(npy_of(&path, [6, 2]).into_iter().eq(nearest.iter().map(|(_, distance)| *distance)));
    let bytes = fs::read(scratch.join("d.neighbors.npy")).unwrap();
    let found = bytes[128..].as_chunks().0.iter().map(|bytes| u64::from_le_bytes(*bytes));
    assert!(found.eq(nearest.iter().map(|(number, _)| *number)));
    let (path, _) = of(".zarr", &["--neighbors", "2"]);
    let (shape, axes, found) = numbers(&path, "neighbor");
    assert_eq!((shape, axes), (vec![6, 2], ["observations", "neighbors"].map(String::from).to_vec()));
    assert!(found.into_iter().map(u64::from_le_bytes).eq(nearest.iter().map(|(number, _)| *number)));
    let (path, _) = of(".tsv", &["--neighbors", "2"]);
    let rows = support::rows(&path);
    let expected = nearest.iter().enumerate().map(|(at, (number, distance))| {
        [(at / 2).to_string(), (at % 2 + 1).to_string(), number.to_string(), distance.to_string()].to_vec()
    });
    assert!(rows.into_iter().eq(expected));
    assert_eq!(scratch.names(), ["d.run.json", "d.tsv"]);

    let (path, record) = of(".npy", &["--observations", "columns"]);
    assert_eq!((npy_of(&path, [9, 9]).len(), &record["x"]["observations"]), (81, &9.into()));
    // Another array is next: two of its columns are those of X.
    let (path, record) = of(".npy", &["--with", fixture("counts.npy").to_str().unwrap()]);
    assert_eq!((npy_of(&path, [6, 6]), &record["with"]["observations"]), (square, &6.into()));
    let wrong = pairwise(&x, &scratch.join("w.npy"), &["--with", y.to_str().unwrap()]);
    assert!(wrong.code == 1 && wrong.err.contains("9 and 7"), "{}", wrong.err);
}

/// Why distances are NaN.
#[test]
fn warnings() {
    let scratch = Scratch::new();
    let (x, out) = (scratch.join("x.npy"), scratch.join("d.npy"));
    write_npy(&x, &[288.0f32, 288.0, 288.0, 288.5, 287.0, 291.0, 0.0, 0.0, 0.0], [3, 3]).unwrap();
    let of = |more: &[&str]| pairwise(&x, &out, &[&["--overwrite"], more].concat()).ok().err;
    for (metric, why) in [
        (
            "correlation",
            "8 distances are NaN: an element is NaN, or all elements of an observation are the same",
        ),
        ("cosine", "5 distances are NaN: an element is NaN, or all elements of an observation are 0"),
        ("jensenshannon", "5 distances are NaN: an element is NaN, or an observation adds up to 0"),
    ] {
        let warning = of(&["--metric", metric]);
        assert!(warning.contains(why), "{warning}");
    }
}

/// Runs that are stopped go on, and end with the same bytes.
#[test]
fn tiles() {
    let scratch = Scratch::new();
    let values: Vec<f32> = (0..2100 * 4).map(|i| ((i * 7919) % 1013) as f32).collect();
    let (x, whole, stopped) = (scratch.join("x.npy"), scratch.join("w.zarr"), scratch.join("s.zarr"));
    write_npy(&x, &values, [2100, 4]).unwrap();
    let record = json(&pairwise(&x, &whole, &["--resume", "--json"]).ok().out);
    assert_eq!((&record["tiles"], &record["undefined"]), (&true.into(), &().into()));
    // A matrix that does not fit memory as a whole is written in tiles, too.
    let least = pairwise(&x, &stopped, &["--memory", "1K"]);
    assert!(least.code == 1 && least.err.contains("at least"), "{}", least.err);
    let record = json(&pairwise(&x, &stopped, &["--memory", "64M", "--json"]).ok().out);
    assert_eq!(record["tiles"], true);
    let tiles = |store: &Path| -> Vec<(String, Vec<u8>)> {
        let files = names(&store.join("distance"));
        files
            .into_iter()
            .map(|name| (name.clone(), fs::read(store.join("distance").join(name)).unwrap()))
            .collect()
    };
    assert!(tiles(&stopped) == tiles(&whole));
    // As a run leaves it that was stopped.
    let attributes = whole.join("distance/.zattrs");
    let text = fs::read_to_string(&attributes).unwrap();
    assert!(text.contains("complete"), "{text}");
    fs::remove_file(whole.join("distance/1.0")).unwrap();
    fs::remove_file(scratch.join("w.run.json")).unwrap();
    let refused = pairwise(&x, &whole, &[]);
    assert!(refused.code == 1 && refused.err.contains("--resume goes on with it"), "{}", refused.err);
    let other = pairwise(&x, &whole, &["--resume", "--metric", "cityblock"]);
    assert!(other.code == 1 && other.err.contains("another job"), "{}", other.err);
    pairwise(&x, &whole, &["--resume", "--memory", "64M"]).ok();
    assert!(tiles(&stopped) == tiles(&whole));
    // The numbers of features, too, where elements may be missing.
    let counted = scratch.join("c.zarr");
    pairwise(&x, &counted, &["--resume", "--missing", "ignore"]).ok();
    let shared = ZarrArray::open(&counted, "shared_features", MissingChunk::Error).unwrap();
    let bytes = shared.read_chunk(&[1, 0]).unwrap().bytes;
    assert_eq!(shared.shape(), [2100, 2100]);
    assert!(bytes.as_chunks().0.iter().all(|&count| u64::from_le_bytes(count) == 4));
    // Without memory for a tile nothing is left.
    let (tall, none) = (scratch.join("tall.npy"), scratch.join("t.zarr"));
    write_npy(&tall, &values[..1500 * 4], [1500, 4]).unwrap();
    let refused = pairwise(&tall, &none, &["--memory", "24M"]);
    assert!(refused.code == 1 && refused.err.contains("at least"), "{}", refused.err);
    assert!(!none.exists());
    let record = json(&pairwise(&tall, &none, &["--memory", "52M", "--json"]).ok().out);
    assert_eq!(
        (&record["tiles"], &record["budgets"]["host"]["bytes"]),
        (&true.into(), &(52u64 << 20).into())
    );
    // Equal bytes of another type are another job, and so are x and y the other way round.
    let [bytes, signed, mine] = ["b.npy", "i.npy", "mine.zarr"].map(|name| scratch.join(name));
    write_npy(&bytes, &[200u8, 1, 7], [3, 1]).unwrap();
    write_npy(&signed, &[-56i8, 1, 7], [3, 1]).unwrap();
    let job = |x: &Path, y: &Path, name: &str| {
        let out = scratch.join(name);
        let found = pairwise(x, &out, &["--with", y.to_str().unwrap(), "--resume"]);
        (found.code, found.err)
    };
    assert_eq!(job(&bytes, &bytes, "r.zarr").0, 0);
    for (x, y, name) in [(&signed, &signed, "r.zarr"), (&signed, &bytes, "u.zarr")] {
        assert_eq!(job(&signed, &bytes, "u.zarr").0, 0);
        let (code, why) = if name == "r.zarr" { job(x, y, name) } else { job(y, x, name) };
        assert!(code == 1 && why.contains("another job"), "{why}");
    }
    // A store that is not ours stays as it is.
    fs::create_dir(&mine).unwrap();
    fs::write(mine.join(".zattrs"), "{}").unwrap();
    let (code, why) = job(&bytes, &bytes, "mine.zarr");
    assert!(code == 1 && why.contains("has no array `distance`"), "{why}");
    assert_eq!(names(&mine), [".zattrs"]);
    // Other numbers make it another job.
    write_npy(&x, &values.iter().map(|x| x + 1.0).collect::<Vec<_>>(), [2100, 4]).unwrap();
    let other = pairwise(&x, &whole, &["--resume"]);
    assert!(other.code == 1 && other.err.contains("another job"), "{}", other.err);
}

#[test]
fn refused() {
    let scratch = Scratch::new();
    let says = |x: &Path, out: &str, more: &[&str], code: i32, words: &str| {
        let ran = pairwise(x, &scratch.join("new").join(out), more);
        assert!(ran.code == code && ran.err.contains(words), "{} {}", ran.code, ran.err);
        assert!(!scratch.join("new").exists());
    };
    let x = &fixture("counts.npy");
    let ran = run(on_store("distance", x, &scratch.join("d.npy"), &[]));
    assert!(ran.code == 1 && ran.err.contains("teatime pairwise"), "{}", ran.err);
    says(x, "d.dist", &[], 2, "ends with one of .npy, .tsv, .zarr");
    says(x, "d.npy", &["--metric", "euclid"], 2, "possible values");
    says(x, "d.npy", &["--p", "3"], 2, "--p is of --metric minkowski alone");
    says(x, "d.npy", &["--metric", "minkowski", "--p", "-1"], 1, "exponent -1");
    says(x, "d.npy", &["--metric", "hellinger", "--missing", "rescale"], 1, "hellinger knows no rule");
    says(x, "d.npy", &["--negative-missing"], 2, "--negative-missing is for");
    says(x, "d.npy", &["--resume"], 2, "--resume is for a .zarr alone");
    says(x, "d.zarr", &["--resume", "--neighbors", "2"], 2, "cannot be used with");
    says(x, "d.npy", &["--neighbors", "6"], 1, "--neighbors: 6 of 5 other observations");
    says(x, "d.npy", &["--memory", "100"], 1, "at least");
    says(&scratch.join("none.npy"), "d.npy", &[], 1, "none.npy");
    let line = scratch.join("line");
    plain_array(&line, "<f4", &[2], &[0; 8]);
    says(&line, "d.npy", &[], 1, "[2]");
    let text = scratch.join("text.npy");
    fs::write(&text, "1,2,3").unwrap();
    says(&text, "d.npy", &[], 1, "no .npy file");
    let infinite = scratch.join("infinite.npy");
    write_npy(&infinite, &[1.0, f64::INFINITY], [2, 1]).unwrap();
    says(&infinite, "d.npy", &[], 1, "infinite.npy: observation 1: an infinite element");
    let out = scratch.join("d.npy");
    fs::write(&out, "mine").unwrap();
    for more in [&[][..], &["--overwrite"]] {
        assert_eq!(pairwise(x, &out, more).code, 1);
        assert_eq!(fs::read(&out).unwrap(), b"mine");
    }
}

#[test]
#[cfg(feature = "wgpu")]
fn f64_where_it_is_not_computed() {
    let scratch = Scratch::new();
    let (x, out) = (fixture("signed.npy"), scratch.join("d.npy"));
    let refused = pairwise(&x, &out, &["--device", "wgpu"]);
    assert!(refused.code == 1 && refused.err.contains("--narrow"), "{}", refused.err);
    pairwise(&x, &out, &["--device", "wgpu", "--narrow"]).ok();
}

/// Observations without features, and no others.
#[test]
fn empty() {
    let scratch = Scratch::new();
    let [x, none, out] = ["x.npy", "none.npy", "d.npy"].map(|name| scratch.join(name));
    write_npy(&x, &[1.0f32; 15], [3, 5]).unwrap();
    write_npy::<f32>(&none, &[], [0, 5]).unwrap();
    pairwise(&x, &out, &["--with", none.to_str().unwrap()]).ok();
    assert!(npy_of(&out, [3, 0]).is_empty());
    pairwise(&none, &out, &["--with", x.to_str().unwrap(), "--overwrite"]).ok();
    assert!(npy_of(&out, [0, 3]).is_empty());
    write_npy::<f32>(&none, &[], [3, 0]).unwrap();
    pairwise(&none, &out, &["--overwrite"]).ok();
    assert_eq!(npy_of(&out, [3, 3]), [0.0; 9]);
    let zarr = scratch.join("d.zarr");
    write_npy::<f32>(&none, &[], [0, 5]).unwrap();
    pairwise(&x, &zarr, &["--with", none.to_str().unwrap(), "--overwrite"]).ok();
    assert_eq!(ZarrArray::open(&zarr, "distance", MissingChunk::Error).unwrap().shape(), [3, 0]);
}

/// Elements that are missing by the attributes are counted, of floating point and of integers, and left out as NaN is.
#[test]
fn missing_values_of_attributes() {
    let scratch = Scratch::new();
    let values = [1i16, 2, -9, 4, 3, 5, 1, 1, 2, 7, -9, 3];
    let out = scratch.join("d.npy");
    let floats: Vec<u8> = values.iter().flat_map(|x| f32::from(*x).to_le_bytes()).collect();
    let integers: Vec<u8> = values.iter().flat_map(|x| i64::from(*x).to_le_bytes()).collect();
    for (name, dtype, bytes) in [("f32", "<f4", floats), ("i64", "<i8", integers)] {
        let path = scratch.join(name);
        plain_array(&path, dtype, &[4, 3], &bytes);
        fs::write(path.join(".zattrs"), r#"{ "_FillValue": -9 }"#).unwrap();
        for missing in ["propagate", "ignore"] {
            let ran = pairwise(&path, &out, &["--missing", missing, "--overwrite", "--json"]).ok();
            assert_eq!(npy_of(&out, [4, 4]).iter().any(|x| x.is_nan()), missing == "propagate");
            let record = json(&ran.out);
            assert_eq!((&record["x"]["missing"], &record["x"]["dtype"]), (&2.into(), &name.into()));
            assert!(ran.err.contains("2 elements are missing, being -9"), "{}", ran.err);
        }
    }
}
