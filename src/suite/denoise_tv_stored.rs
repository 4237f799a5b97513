//! Tests of total variation denoising of stored images: the same bits as on the device, however they are cut.

use std::{
    path::Path,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use super::filter_stored::{read, stored, within, writer};
use super::*;
use crate::{
    filter::{DenoisedTv, TvOptions, denoise_tv, write_denoised_tv},
    store::ArraySpec,
};

device_tests! { types_and_refusals; cut_anyhow }

const SHAPE: [u64; 4] = [2, 4, 13, 270];
const CHUNK: [u64; 4] = [2, 3, 10, 100];
const TILE: [u64; 4] = [1, 2, 8, 130];

fn write(
    x: &Array,
    options: &TvOptions,
    device: &Device,
    (folder, dtype): (&Path, StoredType),
    run: &Run,
) -> Result<DenoisedTv> {
    let tile = &TILE[TILE.len() - x.shape().len()..];
    write_denoised_tv(x, options, device, run, |job| {
        writer(folder, ArraySpec::new(dtype, x.shape(), tile), job)
    })
}

/// Returns the host memory that a refusal names, which is enough.
fn named(write: impl Fn(&Run) -> Result<DenoisedTv>) -> u64 {
    let Err(Error::Budget { minimum, .. }) = write(&within(10)) else { panic!("10 bytes should not do") };
    write(&within(minimum)).unwrap();
    minimum
}

/// Returns little host memory, of at least `host` bytes, for which `write` succeeds.
fn little(mut host: u64, write: impl Fn(&Run) -> Result<DenoisedTv>) -> u64 {
    while let Err(Error::Budget { .. }) = write(&within(host)) {
        host += host / 4;
    }
    host
}

fn cut_anyhow(device: &Device) {
    let x = values::<u8>(31, SHAPE.iter().product());
    let array = stored(&x, &SHAPE, &CHUNK);
    let x = Tensor::from_slice(device, &x, &SHAPE).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let volumes = TvOptions::default().axes([1, 2, 3]).weight(0.4).eps(2e-3);
    let planes = volumes.clone().axes([2, 3]).eps(5e-3);
    for (i, options) in [volumes.clone().max_iterations(5).eps(0.0), volumes, planes].iter().enumerate() {
        // An emulated GPU takes long for it; iterations in planes end by the same rule.
        if i == 1 && cfg!(feature = "cuda-emulator") && device.info().backend == Backend::Cuda {
            continue;
        }
        let of = |name: &str, run: &Run| {
            let folder = folder.path().join(format!("{i}{name}"));
            let _ = std::fs::remove_dir_all(&folder);
            let denoised = write(&array, options, device, (&folder, StoredType::F32), run)?;
            Ok::<_, Error>((read::<f32>(&folder), denoised))
        };
        let (whole, of_whole) = match of("whole", &Run::default()) {
            // A binding of 64 KiB does not hold a tile with its halo.
            Err(Error::Limit { max, .. }) if max < 1 << 16 => continue,
            result => result.unwrap(),
        };
        // The fields of an image may not fit a binding of the device.
        if let Ok((expected, iterations)) = denoise_tv::<_, f32>(&x, options) {
            assert!(whole == expected.read().unwrap(), "{options:?}");
            assert_eq!(of_whole.iterations, iterations);
        }
        // The memory for all iterations may be that of a whole image, and the iteration ends earlier.
        let small = |run: &Run| Ok(of("small", run)?.1);
        let named = named(small);
        let least = if options.eps > 0.0 { little(named / 4, small).min(named) } else { named };
        for memory in [least, 3 * least].into_iter().take(if i == 0 { 2 } else { 1 }) {
            let (small, of_small) = of("small", &within(memory)).unwrap();
            assert!(small == whole, "{memory} {options:?}");
            assert_eq!(of_small.iterations, of_whole.iterations, "{memory}");
            let boxes = [&of_small, &of_whole].map(|denoised| denoised.swept.boxes);
            let is_small = device.limits().binding < 1 << 20;
            assert!(boxes[0] > boxes[1] || memory > least || is_small, "{boxes:?}");
        }
    }
}

fn types_and_refusals(device: &Device) {
    let (shape, folder) = ([3u64, 40], tempfile::tempdir().unwrap());
    let options = TvOptions::default();
    let run = Run::default();
    let path = |name: &str| folder.path().join(name);
    let wide = values::<f64>(32, 120);
    let array = stored(&wide, &shape, &[2, 16]);
    let write_to =
        |name: &str, options: &TvOptions, dtype| write(&array, options, device, (&path(name), dtype), &run);
    if device.limits().f64 {
        let x = Tensor::from_slice(device, &wide, &shape).unwrap();
        let expected = denoise_tv::<_, f64>(&x, &options).unwrap().0.read().unwrap();
        write_to("f64", &options, StoredType::F64).unwrap();
        assert_eq!(read::<f64>(&path("f64")), expected);
        write_to("f32", &options, StoredType::F32).unwrap();
        let rounded: Vec<f32> = expected.iter().map(|&x| x as f32).collect();
        assert_eq!(read::<f32>(&path("f32")), rounded);
    } else {
        assert_err!(write_to("f64", &options, StoredType::F64), Error::NoF64 { .. });
    }
    let narrow: Vec<f32> = wide.iter().map(|&x| x as f32).collect();
    let expected =
        denoise_tv::<_, f32>(&Tensor::from_slice(device, &narrow, &shape).unwrap(), &options).unwrap().0;
    write_to("narrow", &options.clone().narrow(true), StoredType::F32).unwrap();
    assert_eq!(read::<f32>(&path("narrow")), expected.read().unwrap());
    let refused = write_to("u8", &options.clone().narrow(true), StoredType::U8);
    assert_err!(refused, Error::Argument { name: "writer", .. });
    let refused = write_to("axes", &options.clone().axes([2]), StoredType::F64);
    assert_err!(refused, Error::Argument { name: "axes", .. });
    for (bad, words) in [(f32::NAN, "NaN"), (f32::INFINITY, "inf"), (-3e17, "below")] {
        let mut x = narrow.clone();
        x[77] = bad;
        let refused =
            write(&stored(&x, &shape, &[2, 16]), &options, device, (&path(words), StoredType::F32), &run);
        let error = assert_err!(refused, Error::Chunk { .. });
        assert!(error.to_string().contains(words), "{error}");
    }
    let empty = stored(&[0u16; 0], &[0, 4], &[1, 4]);
    let none = write(&empty, &options, device, (&path("empty"), StoredType::F32), &run);
    assert!(none.unwrap().iterations.is_empty());
}

/// A pass that was cancelled goes on where it ended, and an array that is complete is not computed again. Devices only compute boxes.
#[test]
fn resumed() {
    let device = cpu();
    let x = values::<u8>(33, SHAPE[1..].iter().product());
    let array = stored(&x, &SHAPE[1..], &CHUNK[1..]);
    for (eps, most) in [(0.0, 4), (2e-3, 200)] {
        let options = TvOptions::default().axes([1, 2]).eps(eps).max_iterations(most);
        let [whole, folder] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let to = |folder: &Path, run: &Run| write(&array, &options, device, (folder, StoredType::F32), run);
        let anew = |run: &Run| to(tempfile::tempdir().unwrap().path(), run);
        let named = named(anew);
        let memory = if eps > 0.0 { little(named / 4, anew).min(named) } else { named };
        // Each pass begins by telling that no row is done; the last one writes.
        let (run, statuses) = told(|_| false);
        let expected = to(whole.path(), &run.memory(within(memory).memory)).unwrap();
        let last = statuses.lock().unwrap().iter().filter(|status| status.rows == 0).count();
        let begun = AtomicUsize::new(0);
        let (run, _) = told(move |status| {
            let begun = begun.fetch_add((status.rows == 0).into(), Relaxed);
            begun == last && 2 * status.rows > status.total
        });
        assert_err!(to(folder.path(), &run.memory(within(memory).memory)), Error::Cancelled);
        let rest = to(folder.path(), &within(memory)).unwrap();
        assert!(rest.swept.found > 0, "{rest:?}");
        assert_eq!(rest.iterations, expected.iterations);
        let again = to(folder.path(), &within(memory)).unwrap();
        assert_eq!((again.swept.boxes, again.iterations), (0, expected.iterations));
        assert!(read::<f32>(folder.path()) == read::<f32>(whole.path()));
    }
}
