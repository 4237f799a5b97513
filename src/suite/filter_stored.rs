//! Tests of Gaussians of stored arrays: the same bits as for the same arrays on the device.

use std::{
    ops::Range,
    path::Path,
    sync::atomic::{AtomicU32, Ordering},
};

use super::*;
use crate::{
    MissingChunk,
    filter::{GaussianOptions, Mode, PerAxis, gaussian, gaussian_box, write_gaussian},
    openings::{elements, files},
    store::{ArraySpec, ArrayWriter, Folder, MemoryArray, NpyArray, NpyWriter, Storable, ZarrArray},
    stream::Swept,
};

device_tests! { bytes, refused, no_elements; floats, resumed, any_boxes }

pub(super) const SHAPE: [u64; 3] = [5, 33, 48];
pub(super) const CHUNK: [u64; 3] = [2, 10, 21];
pub(super) const TILE: [u64; 3] = [2, 8, 16];

pub(super) fn stored<T: Storable>(values: &[T], shape: &[u64], chunk: &[u64]) -> Array {
    Arc::new(MemoryArray::new("image", values, shape, chunk).unwrap())
}

/// Writes the filtered array as `blurred` into a folder.
pub(super) fn blur(
    x: &Array,
    sigma: &PerAxis<f64>,
    options: &GaussianOptions,
    device: &Device,
    (folder, dtype, tile): (&Path, StoredType, &[u64]),
    run: &Run,
) -> Result<Swept> {
    let spec = ArraySpec::new(dtype, x.shape(), tile);
    write_gaussian(x, sigma.clone(), options, device, run, |job| writer(folder, spec, job))
}

/// Begins or resumes to write an array as `blurred` into a folder.
pub(super) fn writer(folder: &Path, spec: ArraySpec, job: &str) -> Result<ArrayWriter> {
    ArrayWriter::resume(Arc::new(Folder::new(folder)), "blurred", spec.job(job.to_owned()))
}

pub(super) fn within(host: u64) -> Run {
    Run { memory: Budget::default().host(host).device(1 << 28), ..Run::default() }
}

/// Returns the elements of the array `blurred` in a folder.
pub(super) fn read<T: Element>(folder: &Path) -> Vec<T> {
    let array = ZarrArray::open(folder, "blurred", MissingChunk::Error).unwrap();
    elements(Arc::new(array))
}

/// Checks that an array stored as `T` and written as `U`, in boxes of one tile and in one box, has the bits of the whole array.
fn check<T: Sample + Storable, U: Element + Storable>(
    device: &Device,
    sigma: impl Into<PerAxis<f64>>,
    options: &GaussianOptions,
) {
    let (sigma, elements) = (sigma.into(), values::<T>(7, SHAPE.iter().product()));
    let x = Tensor::from_slice(device, &elements, &SHAPE).unwrap();
    let expected: Tensor<U> = gaussian(&x, sigma.clone(), options).unwrap();
    let expected = expected.read().unwrap();
    let array = stored(&elements, &SHAPE, &CHUNK);
    let folder = tempfile::tempdir().unwrap();
    let of = |name: &str, run: &Run| {
        let folder = folder.path().join(name);
        let written = blur(&array, &sigma, options, device, (&folder, U::STORED, &TILE), run)?;
        let same =
            bytemuck::cast_slice::<U, u8>(&read::<U>(&folder)) == bytemuck::cast_slice::<U, u8>(&expected);
        assert!(same, "{name}: {:?} {:?} {sigma:?} {options:?}", T::STORED, U::STORED);
        Ok::<_, Error>(written)
    };
    let (_, small) = least(|run| of("small", run));
    assert_eq!((small.boxes, small.found), (3 * 5 * 3, 0));
    assert!(small.times_covered > 2.0 && small.times_decoded >= 1.0, "{small:?}");
    let whole = of("whole", &Run::default()).unwrap();
    assert!(whole.boxes < small.boxes && whole.times_decoded == 1.0, "{whole:?}");
    assert!(whole.boxes > 1 || whole.times_covered == 1.0, "{whole:?}");
    for ranges in [[0..5, 0..33, 0..48], [1..3, 9..20, 5..6], [4..5, 0..33, 40..48], [2..4, 7..7, 0..48]] {
        let run = Run::default();
        let found: Vec<U> = gaussian_box(&array, sigma.clone(), options, &ranges, device, &run).unwrap();
        let [z, y, x] = ranges.each_ref().map(|range| range.start as usize..range.end as usize);
        let lines = z.flat_map(|z| y.clone().map(move |y| (z * 33 + y) * 48));
        let expected: Vec<U> =
            lines.flat_map(|line| &expected[line + x.start..line + x.end]).copied().collect();
        let same = bytemuck::cast_slice::<U, u8>(&found) == bytemuck::cast_slice::<U, u8>(&expected);
        assert!(same, "{ranges:?}: {:?} {:?} {sigma:?} {options:?}", T::STORED, U::STORED);
    }
}

fn bytes(device: &Device) {
    let modes = [Mode::Wrap, Mode::Reflect, Mode::Constant(3.0)];
    let options = GaussianOptions { mode: modes.into(), ..GaussianOptions::default() };
    check::<u8, u8>(device, [0.8, 2.0, 1.0], &options);
    let options = GaussianOptions { axes: Some(vec![0, 2]), ..GaussianOptions::skimage() };
    check::<u16, f32>(device, [1.5, 0.7], &options);
}

fn floats(device: &Device) {
    // The weights are longer than the first axis, or than the second.
    let options = GaussianOptions { order: [0, 1, 0].into(), ..GaussianOptions::default() };
    check::<f32, f32>(device, [3.0, 1.0, 0.0], &options);
    check::<f16, f16>(device, [0.0, 3.0, 0.5], &GaussianOptions::default());
    if device.limits().f64 {
        check::<i32, f64>(device, 1.0, &GaussianOptions::default());
        check::<f64, f64>(device, 1.0, &GaussianOptions::default());
    }
}

/// Tests random shapes of one to five axes, chunks, tiles, modes, orders, radii and budgets.
fn any_boxes(device: &Device) {
    fn check<T: Sample + Storable>(device: &Device, seed: u32) {
        let mut words = values::<u32>(seed, 64).into_iter();
        let mut below = |n: u64| u64::from(words.next().unwrap()) % n;
        let axes = 1 + below(5);
        let shape: Vec<u64> = (0..axes).map(|_| 1 + below([200, 24, 12, 7, 4][axes as usize - 1])).collect();
        let [chunk, tile]: [Vec<u64>; 2] =
            [(); 2].map(|()| shape.iter().map(|&n| n.div_ceil(3) + below(n)).collect());
        let radius: Vec<u32> = shape.iter().map(|&n| below(n + n / 2 + 2) as u32).collect();
        let modes = [Mode::Reflect, Mode::Mirror, Mode::Nearest, Mode::Wrap, Mode::Constant(2.5)];
        let options = GaussianOptions {
            order: PerAxis::Each(shape.iter().map(|_| (below(8) / 5) as u32).collect()),
            mode: PerAxis::Each(shape.iter().map(|_| modes[below(5) as usize]).collect()),
            radius: Some(PerAxis::Each(radius)),
            ..GaussianOptions::default()
        };
        let sigma = PerAxis::Each(shape.iter().map(|_| below(4) as f64 * 0.7).collect());
        let elements = values::<T>(seed + 1000, shape.iter().product());
        let x = Tensor::from_slice(device, &elements, &shape).unwrap();
        let expected: Tensor<T> = gaussian(&x, sigma.clone(), &options).unwrap();
        let expected = expected.read().unwrap();
        let (array, folder) = (stored(&elements, &shape, &chunk), tempfile::tempdir().unwrap());
        let write = |memory: u64| {
            let target = (folder.path(), T::STORED, &tile[..]);
            blur(&array, &sigma, &options, device, target, &within(memory))
        };
        let Err(Error::Budget { minimum, .. }) = write(10) else { panic!("no budget") };
        write(minimum + below(minimum)).unwrap();
        let same = bytemuck::cast_slice::<T, u8>(&read::<T>(folder.path()))
            == bytemuck::cast_slice::<T, u8>(&expected);
        assert!(same, "{seed}: {shape:?} {chunk:?} {tile:?} {sigma:?} {options:?}");
    }
    // Each box takes some launches, which are slow on an emulated GPU.
    let cases = if device.shares_host_memory() { 60 } else { 6 };
    for seed in (0..3 * cases).step_by(3) {
        check::<f32>(device, seed);
        check::<u8>(device, seed + 1);
        check::<i16>(device, seed + 2);
    }
}

/// If memory is short, boxes are longest along the axis with the largest halo.
#[test]
fn boxes_grow_along_the_halo() {
    let (shape, device) = ([256, 256], cpu());
    let array = stored(&values::<f32>(10, 256 * 256), &shape, &[8, 8]);
    let options = GaussianOptions { radius: Some([8, 1].into()), ..GaussianOptions::default() };
    let covered = |memory: &dyn Fn(u64) -> u64| {
        let write = |memory: u64| {
            let folder = tempfile::tempdir().unwrap();
            let target = (folder.path(), StoredType::F32, &[8, 8][..]);
            blur(&array, &2.0.into(), &options, device, target, &within(memory))
        };
        let Err(Error::Budget { minimum, .. }) = write(10) else { panic!("no budget") };
        write(memory(minimum)).unwrap().times_covered
    };
    let [least, more]: [f64; 2] = [covered(&|least| least), covered(&|least| 2 * least)];
    // A box reads 24 x 10 elements for 8 x 8.
    assert!((3.5..3.75).contains(&least) && more < 2.2, "{least} {more}");
}

/// Calls are stopped after each number of boxes, and another call resumes to the same bytes, without reading for finished boxes.
fn resumed(device: &Device) {
    let (elements, options, sigma) =
        (values::<f32>(8, SHAPE.iter().product()), GaussianOptions::default(), PerAxis::All(1.0));
    let array = stored(&elements, &SHAPE, &CHUNK);
    let write = |folder: &Path, run: &Run| {
        blur(&array, &sigma, &options, device, (folder, StoredType::F32, &TILE), run)
    };
    let whole = tempfile::tempdir().unwrap();
    let none = tempfile::tempdir().unwrap();
    let Err(Error::Budget { minimum, .. }) = write(none.path(), &within(10)) else { panic!() };
    let all = write(whole.path(), &within(minimum)).unwrap();
    for steps in [1, 2, 20, 44] {
        let folder = tempfile::tempdir().unwrap();
        let boxes = AtomicU32::new(0);
        let (run, told) = told(move |_| boxes.fetch_add(1, Ordering::Relaxed) == steps);
        assert_err!(write(folder.path(), &run.memory(within(minimum).memory)), Error::Cancelled);
        let told = told.lock().unwrap();
        let total: u64 = SHAPE.iter().product();
        assert!(told.iter().all(|status| status.rows <= total && status.total == total), "{steps}");
        assert!(told.last().is_some_and(|status| status.rows > 0), "{steps}");
        let rest = write(folder.path(), &within(minimum)).unwrap();
        assert!(rest.found > 0 && rest.found + rest.boxes == all.boxes, "{rest:?}");
        assert!(rest.stats.chunks < all.stats.chunks || steps < 20, "{rest:?}");
        assert!(files(folder.path()) == files(whole.path()), "{steps}");
    }
    // Nothing is left to do; another sigma is another job.
    let again = write(whole.path(), &Run::default()).unwrap();
    assert_eq!((again.boxes, again.stats.chunks), (0, 0));
    let other =
        blur(&array, &2.0.into(), &options, device, (whole.path(), StoredType::F32, &TILE), &Run::default());
    assert!(other.unwrap_err().to_string().contains("another job"));
}

/// An array without elements takes neither time nor memory, however long its other axes are.
fn no_elements(device: &Device) {
    for shape in [[1 << 31, 0], [0, 1 << 31]] {
        let x = stored::<f32>(&[], &shape, &shape.map(|extent: u64| extent.max(1)));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npy");
        let begin = |_: &str| NpyWriter::create(&path, StoredType::F32, &shape);
        let written =
            write_gaussian(&x, 1.0, &GaussianOptions::default(), device, &within(1 << 20), begin).unwrap();
        assert_eq!((written.boxes, NpyArray::open(&path).unwrap().shape()), (0, &shape[..]));
    }
}

fn refused(device: &Device) {
    let (options, run) = (GaussianOptions::default(), Run::default());
    let folder = tempfile::tempdir().unwrap();
    let x = stored(&[1u8; 12], &[3, 4], &[2, 2]);
    let fails = |x: &Array, sigma: f64, spec: ArraySpec, words: &str| {
        let name = words.replace(|c: char| !c.is_alphanumeric(), "");
        let begin = |_: &str| ArrayWriter::create(Arc::new(Folder::new(folder.path())), &name, spec);
        let error = write_gaussian(x, sigma, &options, device, &run, begin).unwrap_err().to_string();
        assert!(error.contains(words), "`{words}` is not in: {error}");
    };
    let spec = |dtype, shape: &[u64]| ArraySpec::new(dtype, shape, &vec![2; shape.len()]);
    fails(&x, 1.0, spec(StoredType::U8, &[4, 3]), "[3, 4]");
    fails(&x, 1.0, spec(StoredType::U16, &[3, 4]), "`writer`: an array of Some(U16)");
    fails(&x, -1.0, spec(StoredType::U8, &[3, 4]), "`sigma`");
    let large = stored(&[i64::MAX, 0], &[2], &[2]);
    fails(&large, 1.0, spec(StoredType::F32, &[2]), "value 9223372036854776000 is above");
    let narrow = options.clone().narrow(true);
    for (large, words) in [
        (stored(&[1 << 24, 0, 0, -(1 << 24) - 1], &[2, 2], &[1, 2]), "value -16777217 is below"),
        (stored(&[1, 0, 0, (1u32 << 24) + 1], &[2, 2], &[1, 2]), "value 16777217 is above"),
    ] {
        let row =
            |row: u64| gaussian_box::<f32>(&large, [0.0, 1.0], &narrow, &[row..row + 1, 0..2], device, &run);
        assert!(row(0).is_ok());
        let error = row(1).unwrap_err();
        assert!(matches!(&error, Error::Chunk { .. }) && error.to_string().contains(words), "{error}");
    }
    let doubles = stored(&[0.5f64; 12], &[3, 4], &[2, 2]);
    if !device.limits().f64 {
        fails(&doubles, 1.0, spec(StoredType::F64, &[3, 4]), "narrow");
    }
    if !device.shares_host_memory() {
        // Each axis has a pass: for the box, which is the whole array, there are two arrays of sums in addition to input and output.
        let x = stored(&values::<f32>(11, SHAPE.iter().product()), &SHAPE, &CHUNK);
        let run = Run { memory: Budget::default().host(1 << 30).device(10), ..Run::default() };
        let target = (&*folder.path().join("none"), StoredType::F32, &TILE[..]);
        let Err(Error::Budget { memory: MemoryKind::Device, minimum, .. }) =
            blur(&x, &20.0.into(), &options, device, target, &run)
        else {
            panic!("no budget")
        };
        let [all, tile]: [u64; 2] = [SHAPE, TILE].map(|shape| 4 * shape.iter().product::<u64>());
        assert_eq!(minimum, 3 * all + tile);
    }
    let range = |start: u64, end: u64| Range { start, end };
    for ranges in [vec![range(0, 3), range(1, 5)], vec![range(0, 3)], vec![range(2, 1), range(0, 4)]] {
        let words = format!("`within`: {ranges:?} of an array of shape [3, 4]");
        assert_refused(gaussian_box::<u8>(&x, 1.0, &options, &ranges, device, &run), &[&words]);
    }
    let all = [0..3, 0..4];
    let wide = gaussian_box::<u16>(&x, 1.0, &options, &all, device, &run);
    assert_refused(wide, &["U16 of an array of U8"]);
    assert_err!(gaussian_box::<u8>(&x, 1.0, &options, &all, device, &within(10)), Error::Budget { .. });
    let six = stored(&[0u8; 1], &[1; 6], &[1; 6]);
    fails(&six, 1.0, spec(StoredType::U8, &[1]), "one to five axes");
}
