//! Tests of Gaussians of stored arrays in special cases: full disks, missing chunks, NaN and infinity, types that tensors lack.

use std::{io, sync::atomic::Ordering};

use super::filter_stored::{CHUNK, SHAPE, TILE, blur, read, stored, within};
use super::*;
use crate::{
    MissingChunk,
    filter::{GaussianOptions, Mode, gaussian, gaussian_box, write_gaussian},
    openings::Puts,
    store::{ArraySpec, ArrayWriter, BoxWriter, Folder, ZarrArray},
};

device_tests! { ; missing_and_not_finite }

/// A tile that finds the disk full ends the pass, however many threads write; written tiles stay, and a later call adds the rest.
#[test]
fn a_full_disk() {
    let options = DeviceOptions { threads: Some(8), binding: Some(16 << 10), ..DeviceOptions::default() };
    let device = Device::open_with("cpu", &options).unwrap();
    // A box of one tile and its halo fits a binding, but a box of two tiles does not.
    let (shape, tile) = ([512, 512], [32, 64]);
    let elements = values::<f32>(12, shape.iter().product());
    let (array, folder) = (stored(&elements, &shape, &[64, 64]), tempfile::tempdir().unwrap());
    let write = |at: u64| {
        let disk = Puts::full_once(folder.path(), at);
        let written =
            write_gaussian(&array, 1.0, &GaussianOptions::default(), &device, &Run::default(), |job| {
                let spec = ArraySpec::new(StoredType::F32, &shape, &tile).job(job.to_owned());
                ArrayWriter::resume(disk.clone(), "blurred", spec)
            });
        (written, disk.count.load(Ordering::Relaxed))
    };
    // The disk takes the metadata and 20 tiles, and one tile is lost.
    let (stopped, puts) = write(21);
    let Err(Error::Io { path, source }) = stopped else { panic!("{stopped:?}") };
    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
    assert!(path.contains("blurred"), "{path}");
    assert!(puts < 80, "{puts} of 128 tiles");
    let (written, more) = write(u64::MAX);
    let written = written.unwrap();
    assert_eq!((written.found, written.boxes), (puts - 2, 130 - puts));
    assert_eq!(more, written.boxes + 1);
    let x = Tensor::from_slice(cpu(), &elements, &shape).unwrap();
    let expected: Tensor<f32> = gaussian(&x, 1.0, &GaussianOptions::default()).unwrap();
    assert!(read::<f32>(folder.path()) == expected.read().unwrap());
}

/// skimage's ranges also apply to types that tensors do not hold: booleans are 0 and 1 already.
#[test]
fn ranges_of_stored_types() {
    let (device, options, run) = (cpu(), GaussianOptions::skimage(), Run::default());
    let (elements, folder) = ([0u8, 1, 1, 0, 1, 0, 0, 1], tempfile::tempdir().unwrap());
    let spec = ArraySpec::new(StoredType::Bool, &[2, 4], &[2, 4]);
    let writer = ArrayWriter::create(Arc::new(Folder::new(folder.path())), "mask", spec).unwrap();
    writer.write_box_bytes(&[0..2, 0..4], &elements).unwrap();
    BoxWriter::finish(writer).unwrap();
    let mask: Array = Arc::new(ZarrArray::open(folder.path(), "mask", MissingChunk::Error).unwrap());
    let blurred =
        |x: &Array| -> Vec<f32> { gaussian_box(x, 0.7, &options, &[0..2, 0..4], device, &run).unwrap() };
    let x = Tensor::from_slice(device, &elements.map(f32::from), &[2, 4]).unwrap();
    let expected = gaussian::<_, f32>(&x, 0.7, &options).unwrap().read().unwrap();
    assert!(blurred(&mask) == expected);
    let refused = gaussian_box::<u8>(&mask, 0.7, &options, &[0..2, 0..4], device, &run).unwrap_err();
    assert!(matches!(refused, Error::Argument { name: "preserve_range", .. }), "{refused}");
    let units = elements.map(|x| i64::from(x) << 52);
    for (got, expected) in blurred(&stored(&units, &[2, 4], &[2, 3])).iter().zip(&expected) {
        assert!((got * 2048.0 - expected).abs() < 1e-6, "{got} for {expected} / 2048");
    }
}

/// A missing chunk holds the fill value, or is an error that names it; NaN and infinity spread across the sides of boxes as within one box.
fn missing_and_not_finite(device: &Device) {
    let mut elements: Vec<f32> = values(13, SHAPE.iter().product());
    let place = |[z, y, x]: [u64; 3]| ((z * SHAPE[1] + y) * SHAPE[2] + x) as usize;
    elements[place([0, 9, 20])] = f32::NAN;
    elements[place([4, 32, 47])] = f32::INFINITY;
    elements[place([2, 0, 0])] = f32::NEG_INFINITY;
    let folder = tempfile::tempdir().unwrap();
    let spec = ArraySpec::new(StoredType::F32, &SHAPE, &CHUNK).fill(0.25);
    let writer = ArrayWriter::create(Arc::new(Folder::new(folder.path())), "x", spec).unwrap();
    let all = SHAPE.map(|n| 0..n);
    writer.write_box_bytes(&all, bytemuck::cast_slice(&elements)).unwrap();
    BoxWriter::finish(writer).unwrap();
    std::fs::remove_file(folder.path().join("x/c/1/2/0")).unwrap();
    for (z, y, x) in (2..4).flat_map(|z| (20..30).flat_map(move |y| (0..21).map(move |x| (z, y, x)))) {
        elements[place([z, y, x])] = 0.25;
    }
    let tensor = Tensor::from_slice(device, &elements, &SHAPE).unwrap();
    let options = GaussianOptions { mode: Mode::Wrap.into(), ..GaussianOptions::default() };
    let expected = gaussian::<_, f32>(&tensor, 0.8, &options).unwrap().read().unwrap();
    assert!(expected.iter().any(|x| x.is_nan()) && expected.iter().any(|x| x.is_infinite()));
    let write = |missing: MissingChunk, memory: u64| {
        let array: Array = Arc::new(ZarrArray::open(folder.path(), "x", missing).unwrap());
        let target = (folder.path(), StoredType::F32, &TILE[..]);
        blur(&array, &0.8.into(), &options, device, target, &within(memory))
    };
    let Err(Error::Budget { minimum, .. }) = write(MissingChunk::Fill, 10) else { panic!("no budget") };
    assert_refused(write(MissingChunk::Error, minimum), &["chunk [1, 2, 0]: it is missing"]);
    let written = write(MissingChunk::Fill, minimum).unwrap();
    assert!(written.boxes > 1 && written.found > 0, "{written:?}");
    let found = read::<f32>(folder.path());
    assert!(found.iter().zip(&expected).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()));
}
