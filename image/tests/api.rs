//! Tests of the public interface as an application uses it: images in its own storage, resumed, and filtered.
#![allow(clippy::unwrap_used, reason = "tests panic")]

#[path = "../../tests/api/bucket.rs"]
mod bucket;

use std::sync::Arc;

use teatime::{
    ChunkedArray, Device, Error, MissingChunk, Run, StoredType,
    filter::{GaussianOptions, gaussian_box, write_gaussian},
    store::{ArraySpec, Storage},
};
use teatime_image::{Axis, ImageSpec, Multiscale, MultiscaleWriter, Pyramid};

use bucket::Bucket;

fn open(bucket: &Arc<Bucket>, path: &str) -> teatime::Result<Multiscale> {
    let storage: Arc<dyn Storage> = bucket.clone();
    Multiscale::open_in(&storage, path)
}

/// Returns the spec of an image of 30 x 20 pixels in tiles of 8 x 8, with a pyramid.
fn spec() -> ImageSpec {
    let axes = vec![Axis::space("y", "micrometer"), Axis::space("x", "micrometer")];
    let array = ArraySpec::new(StoredType::U16, &[30, 20], &[8, 8]).job("of a formula".to_owned());
    let mut spec = ImageSpec::new(axes, &[0.5, 0.25], array);
    spec.pyramid = Pyramid::UntilWithin(10);
    spec
}

#[test]
fn an_image_in_a_bucket_is_gone_on_with_and_filtered() {
    let bucket = Arc::new(Bucket::default());
    let (device, run) = (Device::cpu(), Run::default());
    let pixel = |y: u64, x: u64| u16::try_from(y * 100 + x * x).unwrap();

    // The first process writes half of the tiles, and the second one the rest.
    for half in 0..2 {
        let image = MultiscaleWriter::resume_in(bucket.clone(), "cells", spec()).unwrap();
        let base = image.base().unwrap();
        for tile in base.left().filter(|tile| half == 1 || tile[0] < 2).collect::<Vec<_>>() {
            let [height, width] = base.extent(&tile)[..] else { panic!("an image has two axes") };
            let rows = 8 * tile[0]..8 * tile[0] + height;
            let columns = 8 * tile[1]..8 * tile[1] + width;
            let pixels: Vec<u16> = rows.flat_map(|y| columns.clone().map(move |x| pixel(y, x))).collect();
            base.write(&tile, &pixels).unwrap();
        }
        let finished = image.finish(&device, &run);
        if half == 0 {
            assert!(matches!(finished, Err(Error::Chunk { .. })), "{finished:?}");
            assert!(open(&bucket, "cells").is_err(), "an image that is not complete is none");
        } else {
            finished.unwrap();
        }
    }

    let image = open(&bucket, "cells").unwrap();
    let shapes = (0..image.levels().len()).map(|level| image.level(level, MissingChunk::Error).unwrap());
    let shapes: Vec<Vec<u64>> = shapes.map(|array| array.shape().to_vec()).collect();
    assert_eq!(shapes, [[30, 20], [15, 10], [8, 5]]);
    assert_eq!(image.levels()[1].scale, [1.0, 0.5]);
    let means = image.level(1, MissingChunk::Error).unwrap().read_chunk(&[0, 0]).unwrap().bytes;
    let first: u16 = (0..4).map(|i| pixel(i / 2, i % 2)).sum();
    assert!((i32::from(u16::from_ne_bytes([means[0], means[1]])) * 4 - i32::from(first)).abs() <= 2);

    // Level 0 is filtered into an image with the same axes, scale and chunks.
    let sigma = image.sigma_in_pixels(0, &[0.5]).unwrap();
    assert_eq!(sigma, [1.0, 2.0]);
    let level: Arc<dyn ChunkedArray> = Arc::new(image.level(0, MissingChunk::Error).unwrap());
    let options = GaussianOptions::default();
    let smooth = ImageSpec::like(&image, 0, ArraySpec::new(StoredType::F32, &[30, 20], &[8, 8])).unwrap();
    let smooth = MultiscaleWriter::create_in(bucket.clone(), "smooth", smooth).unwrap();
    write_gaussian(&level, sigma.clone(), &options, &device, &run, |_| smooth.base()).unwrap();
    smooth.finish(&device, &run).unwrap();
    let smooth = open(&bucket, "smooth").unwrap();
    assert_eq!(smooth.axes(), image.axes());
    let found = smooth.level(0, MissingChunk::Error).unwrap().read_chunk(&[1, 1]).unwrap().bytes;
    let found: Vec<f32> = found.as_chunks().0.iter().map(|bytes| f32::from_ne_bytes(*bytes)).collect();
    let expected = gaussian_box::<f32>(&level, sigma, &options, &[8..16, 8..16], &device, &run).unwrap();
    assert_eq!(found, expected);
}
