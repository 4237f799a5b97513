//! Tests of the public interface as an application uses it, on every device of this machine.
#![cfg(feature = "zarr")]
#![allow(clippy::unwrap_used, reason = "tests panic")]

#[path = "../../tests/api/bucket.rs"]
mod bucket;
#[allow(dead_code, reason = "its own main")]
#[path = "../examples/pca.rs"]
mod example;

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{Device, MissingChunk, Run, distance::Metric, store::WritableStorage};
use teatime_genotype::{
    DistanceOptions, GenotypeStore, Genotypes, GrmOptions, PcaOptions, SampleMetric, bed::BedFile, distances,
    grm, pca,
};

use bucket::Bucket;

/// Returns the path of a fixture: 237 variants of 60 samples, as a store and as PLINK files.
fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn stored(store: &GenotypeStore) -> Genotypes {
    Genotypes::new(store.arrays().to_vec()).unwrap()
}

/// Returns every usable device, each card once.
fn devices() -> impl Iterator<Item = Device> {
    let usable =
        Device::all().into_iter().filter(|listed| listed.info.is_ok() && listed.same_card_as.is_none());
    usable.map(|listed| Device::open(&listed.name).unwrap())
}

#[test]
fn the_example_runs() {
    example::run(&fixture("biallelic.vcz")).unwrap();
}

/// Adds the files of a folder to a bucket.
fn fill(bucket: &Bucket, folder: &Path, prefix: &str) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let key = format!("{prefix}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            fill(bucket, &path, &format!("{key}/"));
        } else {
            bucket.put(&key, &fs::read(&path).unwrap()).unwrap();
        }
    }
}

/// A store in the application's own storage and .bed files give the results of the store in a folder, to the bit.
#[test]
fn the_place_and_the_format_change_no_bit() {
    let bucket = Arc::new(Bucket::default());
    fill(&bucket, &fixture("biallelic.vcz"), "");
    let bucket = GenotypeStore::open_in(bucket, None, MissingChunk::Error).unwrap();
    let folder = GenotypeStore::open(fixture("biallelic.vcz"), None, MissingChunk::Error).unwrap();
    assert_eq!(bucket.sample_ids().unwrap(), folder.sample_ids().unwrap());
    assert_eq!(bucket.variants(0..237).unwrap(), folder.variants(0..237).unwrap());
    let bed = BedFile::open(fixture("plink1/biallelic")).unwrap().genotypes().unwrap();
    let (folder, others) = (stored(&folder), [stored(&bucket), bed]);
    let (options, run) = (PcaOptions::default().components(3), Run::default());
    let metric = DistanceOptions::default().metric(SampleMetric::Of(Metric::CityBlock));
    for device in devices() {
        let components = pca(&folder, &device, &options, &run).unwrap();
        let relationships = grm(&folder, &device, &GrmOptions::default(), &run).unwrap();
        let apart = distances(&folder, &device, &metric, &run).unwrap();
        for other in &others {
            let found = pca(other, &device, &options, &run).unwrap();
            assert_eq!(found.singular_values, components.singular_values, "{device:?}");
            assert_eq!(found.vectors, components.vectors, "{device:?}");
            let found = grm(other, &device, &GrmOptions::default(), &run).unwrap();
            assert_eq!(found.matrix, relationships.matrix, "{device:?}");
            let found = distances(other, &device, &metric, &run).unwrap();
            assert_eq!(
                (found.matrix, found.shared),
                (apart.matrix.clone(), apart.shared.clone()),
                "{device:?}"
            );
        }
    }
}
