//! Tests of smaller levels, against means by definition.

use std::sync::{Arc, OnceLock};

use half::f16;
use teatime::{
    Device, DeviceOptions, Status, StoredType,
    openings::{Map, least, told, within},
    store::{ArraySpec, Compression, Shuffle, Storable, ZarrFormat},
};

use super::{device, fill, fixture, levels, noise, number_of, open, place, spec, written};
use crate::{ImageSpec, Multiscale, MultiscaleWriter, Pyramid};

/// Returns the mean of one pixel by definition, in f64.
fn naive_mean(before: &(Vec<u64>, Vec<f64>), factors: &[u64], at: &[u64]) -> f64 {
    let (shape, pixels) = before;
    let (mut sum, mut count) = (0.0, 0.0);
    for step in 0..factors.iter().product() {
        let steps = place(step, factors);
        let from: Vec<u64> = at.iter().zip(factors).zip(steps).map(|((at, f), step)| at * f + step).collect();
        if from.iter().zip(shape).all(|(at, n)| at < n) {
            sum += pixels[number_of(&from, shape)];
            count += 1.0;
        }
    }
    sum / count
}

/// Compares each level with the naive means of the level before, `rounded` as documented.
fn check<T: Storable>(
    names: &str,
    shape: &[u64],
    chunk: &[u64],
    pixel: fn(u64) -> T,
    to_f64: fn(T) -> f64,
    rounded: fn(f64) -> f64,
) {
    let values = written(spec(names, T::STORED, shape, chunk), |at| pixel(noise(at)));
    let image = open(&values);
    let all: Vec<(Vec<u64>, Vec<f64>)> = levels::<T>(&image)
        .into_iter()
        .map(|(shape, pixels)| (shape, pixels.into_iter().map(to_f64).collect()))
        .collect();
    let base = (0..).map(|n| to_f64(pixel(noise(&place(n, shape)))));
    assert!(all[0].1.iter().copied().zip(base).all(|(found, expected)| found == expected));
    let end = &all[all.len() - 1].0;
    assert!(end.iter().rev().take(2).all(|&n| n == 1), "{end:?}");
    for pair in all.windows(2) {
        let [before, after] = pair else { unreachable!() };
        let factors: Vec<u64> =
            before.0.iter().zip(&after.0).map(|(n, less)| if n == less { 1 } else { 2 }).collect();
        assert!(before.0.iter().zip(&after.0).zip(&factors).all(|((n, less), f)| n.div_ceil(*f) == *less));
        for (number, &found) in after.1.iter().enumerate() {
            let expected = rounded(naive_mean(before, &factors, &place(number as u64, &after.0)));
            assert_eq!(found, expected, "{names} {shape:?} to {:?}, {number}", after.0);
        }
    }
}

/// Sizes are odd and even, chunks odd, in all types; 64-bit integers are within the range that f64 holds.
#[test]
fn levels_are_means() {
    let even: fn(f64) -> f64 = f64::round_ties_even;
    for shape in [[1, 1], [1, 257], [2, 3], [3, 255], [255, 257], [257, 1]] {
        check("yx", &shape, &[33, 64], |n| n as u8, f64::from, even);
        check("yx", &shape, &[64, 50], |n| n as i16, f64::from, even);
        check("yx", &shape, &[300, 300], |n| (n >> 40) as f32 / 3.0, f64::from, |x| f64::from(x as f32));
    }
    let shape = [5, 9, 17];
    check("zyx", &shape, &[2, 4, 5], |n| n as i8, f64::from, even);
    check("zyx", &shape, &[2, 4, 5], |n| n as u16, f64::from, even);
    check("zyx", &shape, &[2, 4, 5], |n| n as u32, f64::from, even);
    check("zyx", &shape, &[2, 4, 5], |n| n as i32, f64::from, even);
    check("zyx", &shape, &[2, 4, 5], |n| n >> 14, |n| n as f64, even);
    check("zyx", &shape, &[2, 4, 5], |n| n as i64 >> 14, |n| n as f64, even);
    check("zyx", &shape, &[2, 4, 5], |n| n as f64, |n| n, |n| n);
    let finite = |n: u64| f16::from_bits(n as u16 & 0xbfff);
    check("zyx", &shape, &[2, 4, 5], finite, f64::from, |x| f64::from(naive_f16(x)));
    check("tczyx", &[2, 3, 3, 6, 5], &[1, 2, 2, 4, 4], |n| n as u8, f64::from, even);
}

/// Returns the nearest f16, the even one in a tie.
fn naive_f16(x: f64) -> f16 {
    static ALL: OnceLock<Vec<f64>> = OnceLock::new();
    let all = ALL.get_or_init(|| (0..0x7c00).map(|bits| f16::from_bits(bits).to_f64()).collect());
    let above = all.partition_point(|&y| y < x.abs());
    let near = [above.saturating_sub(1), above].into_iter().min_by(|&a, &b| {
        let far = |n: usize| (all[n] - x.abs()).abs();
        far(a).total_cmp(&far(b)).then((a % 2).cmp(&(b % 2)))
    });
    let near = f16::from_bits(near.unwrap() as u16);
    if x < 0.0 { -near } else { near }
}

/// A constant image stays constant, also at the limits of a type; NaN is only where it was.
#[test]
fn constants_stay() {
    fn constant<T: Storable + PartialEq + std::fmt::Debug>(value: T) {
        let values = written(spec("zyx", T::STORED, &[3, 7, 6], &[2, 3, 4]), |_| value);
        for (_, pixels) in levels::<T>(&open(&values)) {
            assert!(pixels.iter().all(|pixel| *pixel == value), "{value:?}: {pixels:?}");
        }
    }
    for value in [i64::MIN, -1, i64::MAX] {
        constant(value);
    }
    constant(u64::MAX);
    constant(i8::MIN);
    constant(u8::MAX);
    constant(f64::MAX);
    constant(f64::MIN);
    constant(f32::MAX);
    constant(f32::from_bits(1));
    constant(f16::MAX);
    constant(f16::from_bits(1));
    constant(f64::INFINITY);
    let pixel = |at: &[u64]| if *at == [3, 5] { f32::NAN } else { 2.0 };
    let values = written(spec("yx", StoredType::F32, &[8, 8], &[4, 4]), pixel);
    for (shape, pixels) in levels::<f32>(&open(&values)) {
        let nan = number_of(&[3 * shape[0] / 8, 5 * shape[1] / 8], &shape);
        let is_right = |(at, pixel): (usize, f32)| if at == nan { pixel.is_nan() } else { pixel == 2.0 };
        assert!(pixels.into_iter().enumerate().all(is_right));
    }
}

/// The mean is just above the midpoint of two f16 values, and exactly the midpoint in f32.
#[test]
fn f16_is_rounded_once() {
    let pixels = [1.0, 1.0, 2.0 + 2f64.powi(-9), 2f64.powi(-24)].map(f16::from_f64);
    for sign in [1.0, -1.0] {
        let pixel = |at: &[u64]| f16::from_f64(sign) * pixels[number_of(at, &[2, 2])];
        let values = written(spec("yx", StoredType::F16, &[2, 2], &[2, 2]), pixel);
        assert_eq!(levels::<f16>(&open(&values))[1].1, [f16::from_f64(sign * (1.0 + 2f64.powi(-10)))]);
    }
}

/// Chunks, shards, compression, threads and memory do not change pixels.
#[test]
fn pixels_are_the_same_however_they_are_stored() {
    let shape = [3, 2, 37, 50];
    let pixel = |at: &[u64]| noise(at) as u16;
    let of = |spec: ImageSpec| levels::<u16>(&open(&written(spec, pixel)));
    let expected = of(spec("tcyx", StoredType::U16, &shape, &[3, 2, 37, 50]));
    assert_eq!(expected.len(), 7);
    for (chunk, shard) in [
        ([1, 1, 8, 8], None),
        ([2, 1, 5, 30], None),
        ([1, 1, 4, 8], Some(vec![1, 2, 16, 16])),
        ([1, 1, 64, 64], Some(vec![3, 1, 64, 128])),
    ] {
        let mut spec = spec("tcyx", StoredType::U16, &shape, &chunk);
        (spec.array.shard_shape, spec.array.checksum) = (shard, true);
        spec.array.compression = Compression::Zstd { level: 1 };
        assert!(of(spec) == expected, "{chunk:?}");
    }
    let mut two = spec("tcyx", StoredType::U16, &shape, &[1, 1, 16, 16]);
    two.array.format = ZarrFormat::V2;
    two.array.compression = Compression::Blosc { level: 1, shuffle: Shuffle::Bytes };
    assert!(of(two) == expected);

    // Runs with the minimum memory and one byte less, with one thread and with several.
    let spec = spec("tcyx", StoredType::U16, &shape, &[1, 1, 8, 8]);
    let begin = || {
        let values = Arc::new(Map::default());
        let image = MultiscaleWriter::create_in(values.clone(), "", spec.clone()).unwrap();
        fill(&image.base().unwrap(), pixel).unwrap();
        (values, image)
    };
    let (bytes, ()) = least(|run| begin().1.finish(device(), run).map(|_| ()));
    for threads in [1, 4] {
        let options = DeviceOptions::default().threads(threads);
        let device = Device::open_with("cpu", &options).unwrap();
        let (values, image) = begin();
        let (run, told) = told(|_| false);
        image.finish(&device, &run.memory(within(bytes).memory)).unwrap();
        assert!(levels::<u16>(&open(&values)) == expected);
        // Work goes tile by tile, since there is no memory for two tiles.
        let first = |status: &&Status| status.pass == 0;
        assert_eq!(told.lock().unwrap().iter().filter(first).count(), 3 * 2 * 3 * 4);
    }
}

/// The centre of a box of pixels is where OME puts it; time, channels and flat stacks are not downsampled.
#[test]
fn scales_and_translations() {
    let mut spec = spec("tczyx", StoredType::U8, &[3, 2, 4, 40, 16], &[1, 1, 4, 16, 16]);
    (spec.scale, spec.translation) = (vec![2.0, 1.0, 3.0, 0.5, 0.25], vec![7.0, 0.0, -1.0, 10.0, 0.0]);
    spec.pyramid = Pyramid::UntilWithin(5);
    let values = written(spec.clone(), |_| 1u8);
    let image = open(&values);
    let shapes: Vec<Vec<u64>> = levels::<u8>(&image).into_iter().map(|(shape, _)| shape).collect();
    // Stacks of 4 are flat relative to 40 and 20, but not to 16 and less.
    assert_eq!(shapes, [[3, 2, 4, 40, 16], [3, 2, 4, 20, 8], [3, 2, 4, 10, 4], [3, 2, 2, 5, 2]]);
    let level = |n: usize| (&*image.levels()[n].scale, &*image.levels()[n].translation);
    assert_eq!(level(0), (&*spec.scale, &*spec.translation));
    assert_eq!(level(1), (&[2.0, 1.0, 3.0, 1.0, 0.5][..], &[7.0, 0.0, -1.0, 10.25, 0.125][..]));
    assert_eq!(level(2), (&[2.0, 1.0, 3.0, 2.0, 1.0][..], &[7.0, 0.0, -1.0, 10.75, 0.375][..]));
    assert_eq!(level(3), (&[2.0, 1.0, 6.0, 4.0, 2.0][..], &[7.0, 0.0, 0.5, 11.75, 0.875][..]));
    // If pixels hold their own positions, means are where the level says they are, except at the ends.
    let mut spec = super::spec("yx", StoredType::F64, &[24, 40], &[16, 16]);
    (spec.scale, spec.translation, spec.pyramid) = (vec![0.5, 3.0], vec![10.0, -2.0], Pyramid::Levels(4));
    let values = written(spec, |at| 10.0 + 0.5 * at[0] as f64 + 1000.0 * (3.0 * at[1] as f64 - 2.0));
    let image = open(&values);
    for (level, (shape, pixels)) in image.levels().iter().zip(levels::<f64>(&image)) {
        for (number, pixel) in pixels.into_iter().enumerate() {
            let at = place(number as u64, &shape);
            let [y, x] = [0, 1].map(|axis| level.translation[axis] + level.scale[axis] * at[axis] as f64);
            assert_eq!(pixel, y + 1000.0 * x);
        }
    }
}

#[test]
fn numbers_of_levels() {
    let count = |pyramid: Pyramid, shape: [u64; 2]| {
        let mut spec = spec("yx", StoredType::U8, &shape, &[512, 512]);
        spec.pyramid = pyramid;
        MultiscaleWriter::create_in(Arc::new(Map::default()), "", spec).unwrap().shapes().count()
    };
    assert_eq!(count(Pyramid::None, [1000, 1000]), 1);
    for (side, levels) in [(256, 1), (257, 2), (512, 2), (513, 3), (1024, 3)] {
        assert_eq!(count(Pyramid::UntilWithin(256), [side, 10]), levels, "{side}");
    }
    assert_eq!(count(Pyramid::Levels(3), [1000, 1]), 3);
    assert_eq!(count(Pyramid::Levels(1), [1000, 1000]), 1);
    assert_eq!(count(Pyramid::Levels(3), [2, 1]), 2);
    assert_eq!(count(Pyramid::UntilWithin(1), [3, 5]), 4);
}

/// ngff-zarr's means agree: the same scale, translation and pixels, except the odd end, which it leaves out.
#[test]
fn ngff_zarr_has_the_same_means() {
    let theirs = Multiscale::open(fixture("ngff_0.5.zarr")).unwrap();
    let mut spec = ImageSpec::like(&theirs, 0, ArraySpec::new(StoredType::F32, &[5, 6], &[5, 6])).unwrap();
    spec.pyramid = Pyramid::Levels(2);
    let values = written(spec, |at| (6 * at[0] + at[1]) as f32);
    let ours = open(&values);
    assert_eq!((ours.axes(), ours.name()), (theirs.axes(), theirs.name()));
    for (one, other) in ours.levels().iter().zip(theirs.levels()) {
        assert_eq!((&one.scale, &one.translation), (&other.scale, &other.translation));
    }
    let (ours, theirs) = (&levels::<f32>(&ours)[1], &levels::<f32>(&theirs)[1]);
    assert_eq!((&*ours.0, &*theirs.0), (&[3, 3][..], &[2, 3][..]));
    assert_eq!(ours.1[..6], theirs.1);
}
