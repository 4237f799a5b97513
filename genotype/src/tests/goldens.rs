//! Tests of PCA against numpy, PLINK 2 and scikit-allel.

use super::*;

fn assert_vectors(actual: &Matrix, expected: &[Vec<f64>], tolerance: f64) {
    for j in 0..actual.cols() {
        let dot: f64 = actual.column(j).zip(expected).map(|(a, e)| a * e[j]).sum();
        assert!((dot.abs() - 1.0).abs() < tolerance, "component {j}: |r| = {}", dot.abs());
    }
}

#[test]
fn numpy_with_every_scaler() {
    let mut digest = None;
    for (name, array) in [
        ("all_v2.vcz", None),
        ("all_v3.vcz", None),
        ("allel.zarr", None),
        ("malariagen.zarr", None),
        ("dosages_v2.zarr", Some("int64_gzip")),
        ("dosages_v2.zarr", Some("int16_big_endian_order_f")),
        ("dosages_v2.zarr", Some("float32_zstd")),
        ("dosages_v2.zarr", Some("float64_blosc_lz4")),
        ("dosages_v3.zarr", Some("int32_gzip")),
        ("dosages_v3.zarr", Some("float32_zstd")),
        ("dosages_v3.zarr", Some("float64_blosc_zstd")),
        ("dosages_v3.zarr", Some("int8_sharded_zstd_crc32c")),
    ] {
        let genotypes = stored(name, array);
        for &scaler in Scaler::ALL {
            let golden = table(&format!("numpy/all.{}.tsv", scaler.name()), 1);
            let options = PcaOptions { scaler, ..options(10) };
            let pca = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
            assert_eq!((pca.counts.used, pca.digest), (232, *digest.get_or_insert(pca.digest)), "{name}");
            assert_values(&pca.singular_values, &golden[0], 1e-6);
            assert_vectors(&pca.vectors, &golden[1..], 1e-6);
        }
    }
}

#[test]
fn plink2_eigenvalues_and_vectors() {
    for (name, array, golden) in
        [("biallelic.vcz", None, "meanimpute"), ("dosages_v2.zarr", Some("uint8_zlib"), "complete")]
    {
        let pca = pca(&stored(name, array), &Device::cpu(), &options(10), &Run::default()).unwrap();
        for (actual, expected) in pca.eigenvalues().iter().zip(table(&format!("plink2/{golden}.eigenval"), 0))
        {
            assert!((actual / expected[0] - 1.0).abs() < 1e-5, "{actual} against {expected:?}");
        }
        assert_vectors(&pca.vectors, &table(&format!("plink2/{golden}.eigenvec"), 1), 1e-5);
    }
}

#[test]
fn scikit_allel_explained_variance_and_scores() {
    let store = stored("dosages_v3.zarr", Some("uint8_sharded_crc32c"));
    assert_eq!(store.variants(), 126);
    let pca = pca(&store, &Device::cpu(), &options(10), &Run::default()).unwrap();
    let golden = table("allel/pca.tsv", 1);
    assert_values(&pca.explained_variance(), &golden[0], 1e-6);
    let scores = pca.scores();
    for (row, expected) in golden[1..].iter().enumerate() {
        for (actual, expected) in scores.row(row).iter().zip(expected) {
            assert!((actual.abs() - expected.abs()).abs() < 1e-4, "{actual} against {expected}");
        }
    }
}
