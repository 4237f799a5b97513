//! Tests of sweeps with a caller's operations and folds: results equal those of the whole array, however it is cut, and faults end in errors.

use std::{
    ops::Range,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use super::filter_stored::{CHUNK, SHAPE, TILE, read, stored, within};
use super::*;
use crate::{
    Needs,
    array::{Zip, zip},
    store::{ArraySpec, ArrayWriter, NpyArray, NpyWriter, Storable},
    stream::{AsStored, Beyond, BoxOperation, Fold, Place, Sweep},
};

device_tests! { mapped, folded, refused, types, faults_of_operations, full_devices }

/// Computes each element minus its predecessor along the first axis, minus the element two places later along the last. The first axis wraps around;
/// beyond the end of the last axis, elements are 0.
struct Neighbors<'a> {
    /// The function that is called for each box, with its index.
    each: &'a Each<'a>,
    count: AtomicU32,
}

type Each<'a> = dyn Fn(u32, &Place) -> Result<()> + Sync + 'a;

impl<'a> Neighbors<'a> {
    fn new(each: &'a Each<'a>) -> Self {
        Self { each, count: AtomicU32::new(0) }
    }

    fn plain() -> Self {
        Self::new(&|_, _| Ok(()))
    }
}

impl BoxOperation for Neighbors<'_> {
    type Input = f32;
    type Output = f32;

    fn halo(&self, axis: usize) -> [u64; 2] {
        [[1, 0], [0, 0], [0, 2]][axis]
    }

    fn beyond(&self, axis: usize) -> Beyond {
        if axis == 0 { Beyond::Wrap } else { Beyond::Clip }
    }

    fn needs(&self, shape: &[u64], _: &Device) -> Needs {
        Needs::host(8 * shape.iter().product::<u64>())
    }

    fn run(&self, x: &Tensor<f32>, place: &Place, out: &mut Tensor<f32>) -> Result<()> {
        (self.each)(self.count.fetch_add(1, Relaxed), place)?;
        assert_eq!((x.shape(), out.shape()), (&place.shape[..], &place.extents()[..]));
        let values = x.read()?;
        let [_, height, width] = [0, 1, 2].map(|axis| place.shape[axis]);
        let at = |z: u64, y: u64, x: u64| values[((z * height + y) * width + x) as usize];
        let [before, extents] = [&place.before, &place.extents()];
        let mut made = Vec::new();
        for z in before[0]..before[0] + extents[0] {
            for y in 0..extents[1] {
                for x in 0..extents[2] {
                    let after = if x + 2 < width { at(z, y, x + 2) } else { 0.0 };
                    made.push(at(z, y, x) - at(z - 1, y, x) - after);
                }
            }
        }
        out.write(&made)
    }
}

/// Returns [`Neighbors`] of a whole array.
fn expected(x: &[f32]) -> Vec<f32> {
    let [depth, height, width] = SHAPE.map(|extent| extent as usize);
    let at = |z: usize, y: usize, x_: usize| x[(z * height + y) * width + x_];
    let place = |i: usize| [i / width / height, i / width % height, i % width];
    let output = |[z, y, x]: [usize; 3]| {
        let after = if x + 2 < width { at(z, y, x + 2) } else { 0.0 };
        at(z, y, x) - at((z + depth - 1) % depth, y, x) - after
    };
    (0..x.len()).map(place).map(output).collect()
}

fn elements() -> (Vec<i16>, Vec<f32>) {
    let elements = values::<i16>(3, SHAPE.iter().product());
    let real = elements.iter().map(|&x| x.into()).collect();
    (elements, real)
}

fn writer(folder: &std::path::Path) -> Result<ArrayWriter> {
    filter_stored::writer(folder, ArraySpec::new(StoredType::F32, &SHAPE, &TILE), "neighbors")
}

fn mapped(device: &Device) {
    let (stored_as, real) = elements();
    let (array, expected) = (stored(&stored_as, &SHAPE, &CHUNK), expected(&real));
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, operation: &Neighbors, run: &Run| {
        let folder = folder.path().join(name);
        let swept = Sweep::new(&array, device, run).map(operation, writer(&folder)?)?;
        assert_eq!(read::<f32>(&folder), expected, "{name}");
        Ok::<_, Error>(swept)
    };
    let (_, small) = least(|run| write("small", &Neighbors::plain(), run));
    assert_eq!((small.boxes, small.found), (3 * 5 * 3, 0));
    let whole = write("whole", &Neighbors::plain(), &Run::default()).unwrap();
    assert!(whole.boxes < small.boxes && whole.times_covered < small.times_covered, "{whole:?}");
    // Sweeps a part of the array into memory.
    let run = Run::default();
    let ranges = [1..3, 9..20, 5..47];
    let part = Sweep::new(&array, device, &run).within(&ranges).unwrap().map_to_host(&Neighbors::plain());
    let [z, y, x] = ranges.map(|range| range.start as usize..range.end as usize);
    let lines = z.flat_map(|z| y.clone().map(move |y| (z * 33 + y) * 48));
    let of_part: Vec<f32> = lines.flat_map(|line| &expected[line + x.start..line + x.end]).copied().collect();
    assert_eq!(part.unwrap(), of_part);
}

/// A fold that keeps each box, doubled, on the device, and adds up all boxes at the end; it counts how often it was started.
struct Sum {
    sums: Vec<Tensor<f32>>,
    begun: u32,
    sum: f32,
    each: fn(&Place) -> Result<()>,
}

impl Sum {
    fn new(each: fn(&Place) -> Result<()>) -> Self {
        Self { sums: Vec::new(), begun: 0, sum: 0.0, each }
    }
}

impl Fold for Sum {
    type Input = f32;

    fn begin(&mut self, _: &Device) -> Result<()> {
        (self.sums, self.begun) = (Vec::new(), self.begun + 1);
        Ok(())
    }

    fn add(&mut self, x: &Tensor<f32>, place: &Place) -> Result<()> {
        (self.each)(place)?;
        self.sums.push(zip(Zip::Add, x, x)?);
        Ok(())
    }

    fn settle(&mut self) -> Result<()> {
        self.sum = 0.0;
        for doubled in &self.sums {
            self.sum += doubled.read()?.iter().sum::<f32>() / 2.0;
        }
        Ok(())
    }
}

fn folded(device: &Device) {
    // Elements are whole numbers, so that every order gives the same sum.
    let small: Vec<u8> = (0..SHAPE.iter().product::<u64>()).map(|i| (i * i % 7) as u8).collect();
    let total = |values: &mut dyn Iterator<Item = &u8>| values.map(|&x| f32::from(x)).sum::<f32>();
    let array = stored(&small, &SHAPE, &CHUNK);
    let fold = |run: &Run, ranges: &[Range<u64>]| {
        let mut sums = [Sum::new(|_| Ok(())), Sum::new(|_| Ok(()))];
        let [one, two] = &mut sums;
        let swept = Sweep::new(&array, device, run).within(ranges)?.fold(&mut [one, two])?;
        assert!(sums.iter().all(|sum| sum.begun == 1));
        Ok::<_, Error>((swept, sums.map(|sum| sum.sum)))
    };
    let whole = SHAPE.map(|extent| 0..extent);
    for (swept, sums) in [least(|run| fold(run, &whole)).1, fold(&Run::default(), &whole).unwrap()] {
        assert_eq!(sums, [total(&mut small.iter()); 2]);
        // One pass serves both.
        assert_eq!((swept.times_decoded, swept.stats.chunks), (1.0, 3 * 4 * 3));
    }
    let part = [2..5, 0..33, 0..48];
    let rest = total(&mut small[2 * 33 * 48..].iter());
    assert_eq!(fold(&Run::default(), &part).unwrap().1, [rest; 2]);
    assert_eq!(fold(&Run::default(), &[2..2, 0..33, 0..48]).unwrap().1, [0.0; 2]);
}

fn refused(device: &Device) {
    let run = Run::default();
    let folder = tempfile::tempdir().unwrap();
    let map = |array: &Array, dtype, shape: &[u64]| {
        let writer = NpyWriter::create(folder.path().join("x.npy"), dtype, shape).unwrap();
        Sweep::new(array, device, &run).map(&Neighbors::plain(), writer).unwrap_err().to_string()
    };
    let fails = |error: &str, words: &str| assert!(error.contains(words), "`{words}` is not in: {error}");
    let x = stored(&[1u8; 12], &[1, 3, 4], &[1, 2, 2]);
    fails(&map(&x, StoredType::U8, &[1, 3, 4]), "`writer`: an array of Some(U8) for elements of F32");
    fails(&map(&x, StoredType::F32, &[1, 4, 3]), "[1, 3, 4]");
    let doubles = stored(&[0.5f64; 12], &[1, 3, 4], &[1, 2, 2]);
    fails(&map(&doubles, StoredType::F32, &[1, 3, 4]), "holds F64, which is not read as F32 without a rule");
    let large = stored(&[(1i32 << 24) + 1; 12], &[1, 3, 4], &[1, 2, 2]);
    fails(&map(&large, StoredType::F32, &[1, 3, 4]), "value 16777217 is above 16777216");
    assert!(NpyArray::open(folder.path().join("x.npy")).is_err());
    let writer = NpyWriter::create(folder.path().join("x.npy"), StoredType::F32, &[1, 3, 4]).unwrap();
    let part = Sweep::new(&x, device, &run).within(&[0..1, 0..2, 0..4]).unwrap();
    fails(&part.map(&Neighbors::plain(), writer).unwrap_err().to_string(), "`within`: a range alone");
    // The caller's conversion decides what the stored bytes mean.
    let bits = stored(&[1.5f32.to_bits(); 12], &[1, 3, 4], &[1, 2, 2]);
    let sweep = Sweep::new(&bits, device, &run).convert(Arc::new(AsStored(StoredType::U32)));
    assert_eq!(sweep.map_to_host(&Neighbors::plain()).unwrap()[..4], [-1.5, -1.5, 0.0, 0.0]);
    let range = |start: u64, end: u64| Range { start, end };
    for ranges in [vec![range(0, 1), range(0, 3), range(1, 5)], vec![range(0, 3)]] {
        let error = Sweep::new(&x, device, &run).within(&ranges).unwrap_err().to_string();
        fails(&error, &format!("`within`: {ranges:?} of an array of shape [1, 3, 4]"));
    }
}

/// An operation that fails or panics ends the sweep with its error, and so does a cancelled one.
fn faults_of_operations(device: &Device) {
    let array = stored(&elements().0, &SHAPE, &CHUNK);
    let folder = tempfile::tempdir().unwrap();
    let map = |name: &str, each: &Each<'_>, run: &Run| {
        let operation = Neighbors::new(each);
        Sweep::new(&array, device, run)
            .map(&operation, writer(&folder.path().join(name)).unwrap())
            .unwrap_err()
    };
    let Error::Budget { minimum, .. } = map("none", &|_, _| Ok(()), &within(10)) else { panic!("no budget") };
    let run = within(minimum);
    let error =
        map("fails", &|n, _| if n < 3 { Ok(()) } else { Err(Error::argument("own", "x", "no")) }, &run);
    assert!(matches!(error, Error::Argument { op: "own", .. }), "{error}");
    let error = map("panics", &|n, _| if n < 3 { Ok(()) } else { panic!("on purpose") }, &run).to_string();
    assert!(error.contains("`operation`: panicked at the box ["), "{error}");
    let mut sum = Sum::new(|_| panic!("on purpose"));
    assert_refused(Sweep::new(&array, device, &run).fold(&mut [&mut sum]), &["]: on purpose"]);
    run.cancel.cancel();
    assert!(matches!(map("cancelled", &|_, _| Ok(()), &run), Error::Cancelled));
    assert_err!(Sweep::new(&array, device, &run).fold(&mut [&mut Sum::new(|_| Ok(()))]), Error::Cancelled);
}

/// If the device is full, the remaining work is cut into smaller boxes, down to one tile; no box is written twice.
fn full_devices(device: &Device) {
    fn full(most: u64, place: &Place) -> Result<()> {
        let elements = place.shape.iter().product::<u64>();
        if elements <= most {
            Ok(())
        } else {
            Err(Error::OutOfMemory { requested: 4 * elements, free: None })
        }
    }
    let (stored_as, real) = elements();
    let (array, expected) = (stored(&stored_as, &SHAPE, &CHUNK), expected(&real));
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.npy");
    let map = |each: &Each<'_>, run: &Run| {
        // The writer counts the written elements, and requires each element once.
        let writer = NpyWriter::create(&path, StoredType::F32, &SHAPE).unwrap();
        Sweep::new(&array, device, run).map(&Neighbors::new(each), writer)
    };
    let Err(Error::Budget { minimum, .. }) = map(&|_, _| Ok(()), &within(10)) else { panic!("no budget") };
    assert_err!(map(&|_, place| full(0, place), &Run::default()), Error::OutOfMemory { .. });
    for run in [Run::default(), within(4 * minimum)] {
        // The largest boxes depend on the device's threads.
        let largest = AtomicU64::new(0);
        let noted = |_: u32, place: &Place| {
            largest.fetch_max(place.shape.iter().product(), Relaxed);
            Ok(())
        };
        let whole = map(&noted, &run).unwrap();
        let large = map(&|_, place| full(largest.load(Relaxed) - 1, place), &run);
        let third = map(&|number, place| full(if number == 2 { 0 } else { u64::MAX }, place), &run);
        let mut sum = Sum::new(|place| full(600, place));
        let threes = stored(&[3u8; 5 * 33 * 48], &SHAPE, &CHUNK);
        let folded = Sweep::new(&threes, device, &run).fold(&mut [&mut sum]);
        if device.shares_host_memory() {
            assert!(matches!(large, Err(Error::OutOfMemory { .. })), "{large:?}");
            assert!(matches!(folded, Err(Error::OutOfMemory { .. })), "{folded:?}");
            continue;
        }
        let (large, third) = (large.unwrap(), third.unwrap());
        assert!(large.boxes > whole.boxes && large.found == 0, "{whole:?} {large:?}");
        assert!(third.boxes > whole.boxes || whole.boxes < 3, "{whole:?} {third:?}");
        let values = NpyArray::open(&path).unwrap();
        let values: Vec<f32> =
            Sweep::new(&Arc::new(values), device, &Run::default()).map_to_host(&Same).unwrap();
        assert_eq!(values, expected);
        folded.unwrap();
        assert!(sum.begun > 1 && sum.sum == 3.0 * 5.0 * 33.0 * 48.0, "{} {}", sum.begun, sum.sum);
    }
}

/// Copies each element.
struct Same;

impl BoxOperation for Same {
    type Input = f32;
    type Output = f32;

    fn halo(&self, _: usize) -> [u64; 2] {
        [0; 2]
    }

    fn run(&self, x: &Tensor<f32>, place: &Place, out: &mut Tensor<f32>) -> Result<()> {
        if place.array == [7] {
            // The output gets another shape than the box's.
            *out = Tensor::zeros(x.device(), &[1])?;
            return Ok(());
        }
        out.write(&x.read()?)
    }
}

/// Elements of every type are converted to the operation's type if it holds them, including infinity and NaN.
fn types(device: &Device) {
    fn same<T: Storable>(device: &Device, values: &[T]) -> Result<Vec<f32>> {
        let x = stored(values, &[values.len() as u64], &[2]);
        Sweep::new(&x, device, &Run::default()).map_to_host(&Same)
    }
    let special = [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -0.5];
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert_eq!(bits(same(device, &special).unwrap())[..2], special.map(f32::to_bits)[..2]);
    let halves = same(device, &special.map(f16::from_f32)).unwrap();
    assert!(halves[2].is_nan() && halves[..2] == special[..2] && halves[3] == -0.5, "{halves:?}");
    assert_eq!(same(device, &[1i64 << 24, -3]).unwrap(), [16_777_216.0, -3.0]);
    assert!(same(device, &[0.5f64]).is_err() && same(device, &[(1u64 << 24) + 1]).is_err());
    assert_refused(same(device, &[0.0f32; 7]), &["an output of [", "[1]"]);
    for shape in [&[][..], &[1; 6]] {
        let error = Sweep::new(&stored(&[0.0f32], shape, shape), device, &Run::default()).map_to_host(&Same);
        assert!(matches!(error, Err(Error::Shape { .. })), "{error:?}");
    }
}
