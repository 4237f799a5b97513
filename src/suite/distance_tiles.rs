//! Tests of distances that are written tile by tile, against those that the host holds.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use super::*;
use crate::{
    MissingChunk,
    distance::{
        Metric, Missing, Options, condensed, pairwise, pairwise_counted, write_condensed, write_pairwise,
    },
    openings::{Puts, elements, files},
    store::{ArraySpec, ArrayWriter, Compression, Folder, NpyArray, NpyWriter, WritableStorage, ZarrArray},
};

device_tests! { squares, refused; runs_of_pairs, resumed }

fn spec(dtype: StoredType, shape: &[u64], tile: &[u64]) -> ArraySpec {
    let mut spec = ArraySpec::new(dtype, shape, tile);
    (spec.compression, spec.checksum, spec.job) =
        (Compression::Zstd { level: 1 }, true, Some("distances".into()));
    spec
}

fn start(folder: &Path, spec: ArraySpec) -> ArrayWriter {
    ArrayWriter::resume(Arc::new(Folder::new(folder)), "d", spec).unwrap()
}

/// Returns the bits of distances or counts, in C order; those of f32 as f64.
fn bits_of(array: Array) -> Vec<u64> {
    match array.dtype() {
        StoredType::F64 | StoredType::U64 => elements(array),
        _ => elements::<f32>(array).into_iter().map(|x| f64::from(x).to_bits()).collect(),
    }
}

fn read(folder: &Path) -> Vec<u64> {
    bits_of(Arc::new(ZarrArray::open(folder, "d", MissingChunk::Error).unwrap()))
}

fn stored(values: &[f64], dtype: StoredType) -> Vec<u64> {
    let stored = |&x: &f64| if dtype == StoredType::F64 { x } else { f64::from(x as f32) };
    values.iter().map(|x| stored(x).to_bits()).collect()
}

/// Returns a budget for blocks of about `side` observations on a side.
fn small_blocks(elements: u64, side: u64) -> Run {
    Run { memory: Budget::default().host(8 * elements + 40 * side * side), ..Run::default() }
}

fn nonnegative(device: &Device, seed: u32, count: u64) -> Tensor<f32> {
    let values: Vec<f32> = values::<u8>(seed, count * 5).into_iter().map(|x| f32::from(x) + 0.3).collect();
    Tensor::from_slice(device, &values, &[count, 5]).unwrap()
}

fn squares(device: &Device) {
    let (x, y) = (nonnegative(device, 1, 70), nonnegative(device, 2, 41));
    for (metric, y, dtype, tile) in [
        (Metric::Euclidean, None, StoredType::F64, [32, 32]),
        (Metric::JensenShannon, None, StoredType::F32, [19, 19]),
        (Metric::Correlation, None, StoredType::F64, [80, 80]),
        (Metric::Canberra, None, StoredType::F64, [9, 30]),
        (Metric::KlDivergence, None, StoredType::F64, [32, 32]),
        (Metric::CityBlock, Some(&y), StoredType::F32, [32, 24]),
    ] {
        let options = Options::default();
        let all = pairwise(&x, y, metric, &options, &Run::default()).unwrap();
        let shape = [all.rows() as u64, all.cols() as u64];
        for run in [Run::default(), small_blocks(6 * tile[0].min(70) * tile[1].min(70), 16)] {
            let folder = tempfile::tempdir().unwrap();
            let writer = start(folder.path(), spec(dtype, &shape, &tile));
            write_pairwise(&x, y, metric, &options, &run, (writer, None)).unwrap();
            assert!(read(folder.path()) == stored(all.data(), dtype), "{metric} {tile:?} {run:?}");
            let path = folder.path().join("d.npy");
            let writer = NpyWriter::create(&path, dtype, &shape).unwrap().tile(&tile);
            write_pairwise(&x, y, metric, &options, &run, (writer, None)).unwrap();
            let file = bits_of(Arc::new(NpyArray::open(&path).unwrap()));
            assert!(file == stored(all.data(), dtype), ".npy: {metric} {tile:?} {run:?}");
        }
    }
    // Products of other sizes have other last bits.
    let options = Options::default().expanded(true);
    let whole = pairwise(&x, None, Metric::SqEuclidean, &options, &Run::default()).unwrap();
    for tile in [[32, 32], [7, 70]] {
        let folder = tempfile::tempdir().unwrap();
        let writer = start(folder.path(), spec(StoredType::F64, &[70, 70], &tile));
        write_pairwise(&x, None, Metric::SqEuclidean, &options, &Run::default(), (writer, None)).unwrap();
        let written = read(folder.path()).into_iter().map(f64::from_bits);
        let largest = whole.data().iter().copied().fold(0.0, f64::max);
        written.zip(whole.data()).for_each(|(x, y)| assert!((x - y).abs() <= 1e-5 * largest, "{x} {y}"));
    }
    // One observation has only NaN, and a rule for missing elements is given.
    let mut values = x.read().unwrap();
    values[5..10].fill(f32::NAN);
    let x = Tensor::from_slice(device, &values, &[70, 5]).unwrap();
    let options = Options { missing: Missing::Rescale, ..Options::default() };
    let folder = tempfile::tempdir().unwrap();
    let writer = start(folder.path(), spec(StoredType::F64, &[70, 70], &[32, 32]));
    write_pairwise(&x, None, Metric::Cosine, &options, &Run::default(), (writer, None)).unwrap();
    let all = pairwise(&x, None, Metric::Cosine, &options, &Run::default()).unwrap();
    assert!(read(folder.path()) == stored(all.data(), StoredType::F64));
    // The numbers of features are written too, in tiles that are squares and in others.
    for (y, tile) in [(None, [32, 32]), (None, [20, 32]), (Some(&x), [32, 32])] {
        let folder = tempfile::tempdir().unwrap();
        let writer = start(folder.path(), spec(StoredType::F64, &[70, 70], &tile));
        let counts = start(&folder.path().join("shared"), spec(StoredType::U64, &[70, 70], &tile));
        let run = Run::default();
        write_pairwise(&x, y, Metric::Cosine, &options, &run, (writer, Some(counts))).unwrap();
        let all = pairwise_counted(&x, y, Metric::Cosine, &options, &run).unwrap();
        assert!(read(folder.path()) == stored(all.distances.data(), StoredType::F64));
        let counts: Vec<u64> = all.shared.unwrap().data().iter().map(|&count| count as u64).collect();
        assert!(read(&folder.path().join("shared")) == counts, "{tile:?}");
    }
}

fn runs_of_pairs(device: &Device) {
    for (count, tile) in [(40, 100), (40, 700), (40, 1000), (2, 1), (3, 2), (40, 39)] {
        let x = nonnegative(device, 3, count);
        let all = condensed(&x, Metric::Euclidean, &Options::default(), &Run::default()).unwrap();
        for (dtype, run) in [(StoredType::F64, Run::default()), (StoredType::F32, small_blocks(3 * tile, 16))]
        {
            let folder = tempfile::tempdir().unwrap();
            let writer = start(folder.path(), spec(dtype, &[all.len() as u64], &[tile]));
            write_condensed(&x, Metric::Euclidean, &Options::default(), &run, writer).unwrap();
            assert!(read(folder.path()) == stored(&all, dtype), "{count} {tile} {dtype:?}");
        }
    }
}

/// Calls are stopped after each number of tiles, and another call resumes to the same bytes.
fn resumed(device: &Device) {
    let x = nonnegative(device, 4, 70);
    let write = |folder: &Path, run: &Run| {
        let writer = start(folder, spec(StoredType::F32, &[70, 70], &[30, 30]));
        write_pairwise(&x, None, Metric::Euclidean, &Options::default(), run, (writer, None))
    };
    let whole = tempfile::tempdir().unwrap();
    write(whole.path(), &Run::default()).unwrap();
    // One of two mirrored tiles is missing, then the other.
    for removed in ["d/c/0/1", "d/c/1/0"] {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), &Run::default()).unwrap();
        std::fs::remove_file(folder.path().join(removed)).unwrap();
        write(folder.path(), &Run::default()).unwrap();
        assert!(files(folder.path()) == files(whole.path()), "{removed}");
    }
    for steps in 1..6 {
        let folder = tempfile::tempdir().unwrap();
        let tiles = AtomicU32::new(0);
        let (run, told) = told(move |_| tiles.fetch_add(1, Ordering::Relaxed) + 1 == steps);
        assert_err!(write(folder.path(), &run), Error::Cancelled);
        assert!(told.lock().unwrap().iter().all(|status| status.rows <= status.total), "{steps}");
        assert!(files(folder.path()).len() < files(whole.path()).len());
        write(folder.path(), &Run::default()).unwrap();
        assert!(files(folder.path()) == files(whole.path()), "{steps}");
    }
}

fn refused(device: &Device) {
    let x = nonnegative(device, 5, 8);
    let folder = tempfile::tempdir().unwrap();
    let create = |name: &str, spec| ArrayWriter::create(Arc::new(Folder::new(folder.path())), name, spec);
    let (plain, run) = (Options::default(), Run::default());
    let write = |writer, run: &Run| write_pairwise(&x, None, Metric::Euclidean, &plain, run, (writer, None));
    for (name, dtype, shape, words) in [
        ("i32", StoredType::I32, &[8, 8][..], "distances are f32 or f64"),
        ("f16", StoredType::F16, &[8, 8], "distances are f32 or f64"),
        ("wide", StoredType::F32, &[8, 9], "[8, 8]"),
        ("flat", StoredType::F32, &[28], "[8, 8]"),
    ] {
        let error = write(create(name, ArraySpec::new(dtype, shape, &[4, 4][..shape.len()])).unwrap(), &run);
        assert_refused(error, &[words]);
    }
    let flat = |name| create(name, ArraySpec::new(StoredType::F64, &[28], &[4])).unwrap();
    assert_refused(write_condensed(&x, Metric::KlDivergence, &plain, &run, flat("kl")), &["not symmetric"]);
    // The budget is less than a tile takes.
    let square = |name: &str| create(name, ArraySpec::new(StoredType::F64, &[8, 8], &[4, 4])).unwrap();
    let (least, _) = least(|run| write(square(&format!("{:?}", run.memory.host)), run));
    assert!(least > 6 * 8 * 16, "{least}");
    // An existing array is kept.
    square("enough");
    let before = files(folder.path());
    assert_refused(create("enough", ArraySpec::new(StoredType::F64, &[8, 8], &[4, 4])), &["exists already"]);
    assert!(files(folder.path()) == before);
}

/// A disk that is full at any put leaves whole tiles, and another call goes on to the same bytes.
#[test]
fn a_full_disk_keeps_whole_tiles() {
    let x = nonnegative(&Device::cpu(), 6, 60);
    let write = |storage: Arc<dyn WritableStorage>| {
        let writer = ArrayWriter::resume(storage, "d", spec(StoredType::F64, &[60, 60], &[10, 10]))?;
        write_pairwise(&x, None, Metric::Euclidean, &Options::default(), &Run::default(), (writer, None))
    };
    let whole = tempfile::tempdir().unwrap();
    write(Arc::new(Folder::new(whole.path()))).unwrap();
    for at in [0, 1, 2, 20] {
        let folder = tempfile::tempdir().unwrap();
        let put = |puts: &Puts, count: u64, key: &str, value: &[u8]| {
            if count < puts.at { puts.folder.put(key, value) } else { Err(io::ErrorKind::StorageFull.into()) }
        };
        let full = Puts { folder: Folder::new(folder.path()), count: 0.into(), at, put };
        let error = write(Arc::new(full)).unwrap_err();
        let is_full = |error: &Error| matches!(error, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull);
        assert!(is_full(&error), "{error}");
        assert_eq!(files(folder.path()).len() as u64, at);
        write(Arc::new(Folder::new(folder.path()))).unwrap();
        assert!(files(folder.path()) == files(whole.path()), "{at}");
    }
}
