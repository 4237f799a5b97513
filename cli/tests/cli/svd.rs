//! Tests of `teatime svd` on arrays that numpy wrote.

use std::sync::Arc;

use serde_json::json;
use teatime::{openings::elements, store::write_npy};

use crate::support::{Scratch, assert_has, npy, number, plain_array, provenance};

const ROWS: usize = 1100;
const COLUMNS: usize = 7;

/// Writes a matrix whose rows are far from 0 to x.npy.
fn far(scratch: &Scratch) {
    let values: Vec<f64> = (0..ROWS * COLUMNS).map(|i| 1e6 + ((i * 7919) % 1013) as f64 / 100.0).collect();
    write_npy(scratch.join("x.npy"), &values, [ROWS, COLUMNS]).unwrap();
}

#[test]
fn formats_hold_the_same() {
    let scratch = Scratch::new();
    far(&scratch);
    let of = |format: &str| {
        let words = "--center columns --left --right --overwrite";
        scratch.record(&format!("svd x.npy --out out {words} --format {format}"))
    };
    let record = of("npy");
    provenance(&record, "svd", [None, None]);
    let shape = json!({ "rows": ROWS, "columns": COLUMNS, "components": COLUMNS });
    let found = ["shape", "center", "computed_in", "method", "route", "missing_elements", "converged"];
    let expected =
        [&shape, &"columns".into(), &"f64".into(), &"exact".into(), &"qr".into(), &0.into(), &true.into()];
    assert_eq!(found.map(|entry| &record[entry]), expected);
    let files = ["run.json", "singular_values.tsv", "scree.svg", "left.npy", "right.npy"];
    assert_eq!(record["files"], json!(files));
    let [u, v] = [("left", ROWS), ("right", COLUMNS)]
        .map(|(side, rows)| npy(&scratch.join(&format!("out/{side}.npy")), [rows, COLUMNS]));
    let table = scratch.rows("out/singular_values.tsv");
    for row in &table {
        let s = number(&row[1]);
        assert!((number(&row[2]) / (s * s / (ROWS - 1) as f64) - 1.0).abs() < 1e-12, "{row:?}");
    }
    assert!((table.iter().map(|row| number(&row[3])).sum::<f64>() - 1.0).abs() < 1e-12);

    of("zarr");
    for (name, expected) in [("left", &u), ("right", &v)] {
        let array = scratch.array(&format!("out/{name}.zarr"), "");
        assert!(elements::<f64>(Arc::new(array)) == *expected, "{name}");
    }
    of("tsv");
    for (name, axis, expected) in [("left", "row", &u), ("right", "column", &v)] {
        let name = format!("out/{name}.tsv");
        assert!(scratch.text(&name).starts_with(&format!("{axis}\t1\t2\t3\t4\t5\t6\t7\n0\t")));
        let cells = scratch.rows(&name).into_iter().flat_map(|row| row.into_iter().skip(1));
        assert!(cells.map(|cell| number(&cell)).eq(expected.iter().copied()), "{name}");
    }
}

/// Arrays that are appended are one matrix; what they lack becomes the mean of the column in all.
#[test]
fn several_arrays_and_missing_elements() {
    let scratch = Scratch::new();
    far(&scratch);
    let bytes: Vec<u8> = (0u8..21).map(|i| if i == 9 { 255 } else { i.wrapping_mul(37) % 101 }).collect();
    plain_array(&scratch.join("marked"), "|u1", &[3, COLUMNS as u64], &bytes);
    scratch.write("marked/.zattrs", json!({ "_FillValue": 255 }).to_string());
    let said = "marked: 1 element of all arrays is NaN or missing, first in row 1, column 2; --missing mean";
    scratch.refused("svd x.npy marked --out out", 1, &[said]);
    let words = "-k 3 --missing mean --center rows --method randomized --narrow";
    let ran = scratch.ok(&format!("svd x.npy marked --out out {words}"));
    let said = "marked: 1 element is missing, being 255 as its attributes say: taken as the mean";
    assert_has(&ran.err, &[said]);
    let said = ["1,103 rows x 7 columns", "randomized (krylov-on-device): asked for", "center rows"];
    assert_has(&ran.out, &said);
    let record = scratch.json("out/run.json");
    let arrays = json!([
        { "path": "x.npy", "rows": ROWS, "dtype": "f64", "missing": null, "absent_chunks": 0 },
        { "path": "marked", "rows": 3, "dtype": "u8", "missing": 1, "absent_chunks": 0 },
    ]);
    let found = ["arrays", "missing_elements", "computed_in"].map(|entry| &record[entry]);
    assert_eq!(found, [&arrays, &1.into(), &"f32".into()]);
    let names = scratch.text("out/singular_values.tsv").lines().next().unwrap().to_owned();
    assert_eq!(names, "component\tsingular_value\tshare\tresidual\tconverged");
}

#[test]
fn what_has_not_converged_is_told() {
    let scratch = Scratch::new();
    far(&scratch);
    let words = "svd x.npy --out out --center both -k 2 --method randomized --oversamples 0 --max-passes 1 --tolerance 1e-9";
    assert_has(&scratch.ok(words).err, &["warning: 2 of 2 components did not converge", "--max-passes"]);
    scratch.refused(&format!("{} --strict", words.replace("out out", "out other")), 1, &["(--strict)"]);
}
