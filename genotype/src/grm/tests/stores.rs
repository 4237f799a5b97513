//! Tests of relationship matrices of stores against other tools, and of writing them as stores.

use std::sync::Arc;

use teatime::{
    ChunkedArray, MissingChunk,
    openings::elements,
    store::{NpyArray, ZarrArray},
};

use super::*;
use crate::tests::{fixture, stored};

/// Reads a lower triangle of f32, as plink2 wrote it.
fn triangle(name: &str) -> Vec<f64> {
    binary::<f32>(fixture("plink2").join(name)).into_iter().map(f64::from).collect()
}

fn lower(n: usize, entry: impl Fn(usize, usize) -> f64) -> Vec<f64> {
    (0..n).flat_map(|j| (0..=j).map(move |k| (j, k))).map(|(j, k)| entry(j, k)).collect()
}

fn assert_close(actual: &[f64], expected: &[f64]) {
    assert_eq!(actual.len(), expected.len());
    for (at, (a, e)) in actual.iter().zip(expected).enumerate() {
        assert!((a - e).abs() < 1e-6, "entry {at}: {a} against {e}");
    }
}

#[test]
fn plink2_has_the_same() {
    for (missing, name) in [(MissingCalls::Pairwise, "pairwise"), (MissingCalls::Mean, "meanimpute")] {
        let options = GrmOptions { missing, ..GrmOptions::default() };
        let grm = compute(&stored("biallelic.vcz", None), &options).unwrap();
        let n = grm.matrix.rows();
        assert_close(&lower(n, |j, k| grm.matrix.row(j)[k]), &triangle(&format!("{name}.grm.bin")));
        assert_eq!(lower(n, |j, k| grm.variants(j, k)), triangle(&format!("{name}.grm.N.bin")));
    }
}

/// plink2's covariance is `VanRaden`'s numerator divided by M.
#[test]
fn plink2_has_the_same_covariance() {
    let missing = MissingCalls::Mean;
    let options = GrmOptions { method: GrmMethod::VanRaden1, missing, ..GrmOptions::default() };
    let grm = compute(&stored("biallelic.vcz", None), &options).unwrap();
    let expected = triangle("cov.grm.bin");
    let factor = expected[0] / grm.matrix.row(0)[0];
    assert_close(&lower(grm.matrix.rows(), |j, k| factor * grm.matrix.row(j)[k]), &expected);
}

#[test]
fn numpy_has_the_same() {
    for &missing in MissingCalls::ALL {
        let options = GrmOptions { method: GrmMethod::VanRaden1, missing, ..GrmOptions::default() };
        let path = fixture(&format!("numpy/vanraden1.{}.npy", missing.name()));
        let expected: Vec<f64> = elements(Arc::new(NpyArray::open(path).unwrap()));
        for name in ["all_v2.vcz", "all_v3.vcz", "allel.zarr", "malariagen.zarr"] {
            assert_close(compute(&stored(name, None), &options).unwrap().matrix.data(), &expected);
        }
    }
}

fn array(path: &std::path::Path, name: &str) -> Arc<ZarrArray> {
    Arc::new(ZarrArray::open(path, name, MissingChunk::Error).unwrap())
}

#[test]
fn zarr_stores() {
    let (scratch, grm) = (tempfile::tempdir().unwrap(), small());
    let path = scratch.path().join("x.zarr");
    assert!(matches!(grm.write_zarr(&path, &["a"]), Err(Error::Argument { .. })));
    grm.write_zarr(&path, &["a", "b b", "c"]).unwrap();
    assert_eq!(entries(&scratch), ["x.zarr"]);
    let matrix = array(&path, "genomic_relationship");
    assert_eq!(matrix.chunk_shape(), [3, 3]);
    assert_eq!(matrix.dimension_names(), ["samples_0", "samples_1"]);
    assert_eq!(elements::<f64>(matrix), grm.matrix.data());
    let counts = elements::<u32>(array(&path, "shared_variants")).into_iter().map(f64::from);
    assert!(counts.eq(grm.shared.as_ref().unwrap().data().iter().copied()));
    assert!(matches!(grm.write_zarr(&path, &["a", "b", "c"]), Err(Error::Store { .. })));
    let options = GrmOptions { missing: MissingCalls::Mean, ..GrmOptions::default() };
    let mean = compute(&memory(&dosages(60, 3), &[60, 3], &[20, 3]), &options).unwrap();
    mean.write_zarr(scratch.path().join("mean.zarr"), &["a", "b", "c"]).unwrap();
    assert!(!scratch.path().join("mean.zarr/shared_variants").exists());
}

#[test]
fn stores_of_several_chunks() {
    let scratch = tempfile::tempdir().unwrap();
    let n = 1003;
    let grm = compute(&memory(&dosages(6, n), &[6, 1003], &[6, 1003]), &GrmOptions::default()).unwrap();
    let path = scratch.path().join("x.zarr");
    grm.write_zarr(&path, &vec!["s"; n]).unwrap();
    let matrix = array(&path, "genomic_relationship");
    assert_eq!(matrix.chunk_shape(), [1000, 1000]);
    assert_eq!(elements::<u64>(matrix), bytemuck::cast_slice::<f64, u64>(grm.matrix.data()));
}
