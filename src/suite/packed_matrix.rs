//! Tests of packed matrices as maps: random entries, pushed rows, decompositions against f64.

use faer::Mat;

use super::packed_case::{packed_words, upload};
use super::*;
use crate::{
    linalg::{LinearMap, Pass, SvdOptions, host, randomized_svd},
    packed::{Entries, PackedMatrix, Panel, PanelMap, packed_uniform, product::PackedProduct, row_words},
    random::{gaussian, philox},
};

device_tests! {
    entries_are_the_oracles, words_between_digits, panels_change_nothing, products_are_close, no_rows, refused_arguments,
    refused_rows, rows_have_means_and_factors, larger_than_memory, rows_beyond_a_binding, cancelled_between_panels,
    cancelled_while_made, beyond_the_budget;
    steps_and_groups_change_nothing, pushed_rows_are_the_same, the_place_changes_nothing,
}

/// (rows, columns) around words of 16 codes, blocks of four words, and launches.
const SIZES: [(u64, u64); 10] =
    [(1, 1), (3, 2), (5, 15), (4, 16), (7, 17), (9, 63), (64, 64), (65, 65), (300, 129), (4500, 33)];

/// Returns the base-3 digits of each word divided by 2^32, computed in 128 bits.
fn oracle(rows: u64, columns: u64, seed: u64) -> Vec<u8> {
    let key = [seed as u32, (seed >> 32) as u32];
    let words = row_words(columns);
    let entry = |i: u64, j: u64| {
        let word = i * words + j / 16;
        let word = u128::from(philox(key, word / 4)[(word % 4) as usize]);
        ((word * 3u128.pow((j % 16) as u32 + 1)) >> 32) % 3
    };
    (0..rows).flat_map(|i| (0..columns).map(move |j| entry(i, j) as u8)).collect()
}

fn random(device: &Device, rows: u64, columns: u64, seed: u64) -> Result<PackedMatrix> {
    PackedMatrix::random(device, rows, columns, seed, &Run::default())
}

fn pass(run: &Run) -> Pass<'_> {
    Pass::new(run, Status::new(0, 1, 0))
}

/// Returns an operand whose columns differ in size, far beyond the range of f32.
fn operand(rows: u64, columns: usize) -> Matrix {
    let value = |i: usize| gaussian(9, i as u64) * 10f64.powi(2 * (i % columns) as i32 - 60);
    Matrix::from_vec((0..rows as usize * columns).map(value).collect(), rows as usize, columns).unwrap()
}

fn entries_are_the_oracles(device: &Device) {
    for (rows, columns) in SIZES {
        for seed in [0, 0xfeed_0000_0001] {
            let matrix = random(device, rows, columns, seed).unwrap();
            assert_eq!((matrix.shape(), matrix.bytes()), ([rows, columns], rows * 4 * row_words(columns)));
            let expected = packed_words(&oracle(rows, columns, seed), columns);
            assert!(matrix.words() == expected, "{rows} x {columns}, seed {seed}");
        }
    }
}

/// Blocks of the stream of seed 0 that have a word at which the first digit changes, and the place of the word. They were found by going through
/// the stream.
const AT_DIGITS: [(u64, usize, u32); 6] = [
    (1_167_163_075, 2, 0xaaaa_aaaa),
    (1_498_094_372, 3, 0),
    (1_538_303_059, 1, u32::MAX),
    (263_850_143, 1, 0x5555_5556),
    (397_627_765, 2, 0x5555_5555),
    (62_087_035, 1, 0xaaaa_aaab),
];

fn words_between_digits(device: &Device) {
    for (block, place, word) in AT_DIGITS {
        assert_eq!(philox([0, 0], block)[place], word);
        // A row is a block.
        let codes = packed_uniform(device, 0, block, 1, 64).unwrap().read().unwrap();
        let digit = |j: u32| (((u128::from(word) * 3u128.pow(j + 1)) >> 32) % 3) as u32;
        assert_eq!(codes[place], (0..16).map(|j| digit(j) << (2 * j)).sum::<u32>(), "{word:#x}");
    }
}

fn panels_change_nothing(device: &Device) {
    let (rows, columns) = (300, 129);
    let x = operand(columns, 4);
    let run = Run::default();
    let whole = random(cpu(), rows, columns, 3).unwrap();
    let (words, product) = (whole.words(), whole.apply_normal(&x, &pass(&run)).unwrap());
    for bytes in [1, 48 * 7, 48 * 64, 48 * 299] {
        let parts = PackedMatrix::random_in_panels(device, 0..rows, columns, 3, bytes, &run).unwrap();
        assert!(parts.words() == words, "panels of {bytes}");
        assert_eq!(parts.apply_normal(&x, &pass(&run)).unwrap(), product, "panels of {bytes}");
    }
}

fn steps_and_groups_change_nothing(device: &Device) {
    let name = &device.info().name;
    if name.ends_with(":lent") {
        return;
    }
    let (rows, columns) = (4500, 33);
    let (x, run) = (operand(columns, 4), Run::default());
    let product = random(cpu(), rows, columns, 3).unwrap().apply_normal(&x, &pass(&run)).unwrap();
    for (step, fill) in [(1, 1), (1 << 16, 16), (1 << 30, 4096)] {
        let options =
            DeviceOptions { step: Some(step), fill: Some(fill), checked: true, ..Default::default() };
        let device = Device::open_with(name, &options).unwrap();
        assert_eq!((device.limits().step, device.limits().fill), (step, fill));
        let matrix = random(&device, rows, columns, 3).unwrap();
        assert_eq!(matrix.apply_normal(&x, &pass(&run)).unwrap(), product, "step {step}, fill {fill}");
        // Computes the product in stages, as the benchmarks do.
        let table = vec![[0.0f32, 1.0]; rows as usize];
        let table = Tensor::from_slice(&device, table.as_flattened(), &[rows, 2]).unwrap();
        let bounds = [2.0 * (columns as f64).sqrt(), 2.0 * columns as f64];
        let mut stages = PackedProduct::new(&device, &x, false, Some(bounds)).unwrap();
        let mut add = |panel: &Panel| {
            stages.weigh(panel.packed()?, &table)?;
            stages.add(panel.packed()?, &table)
        };
        matrix.each(&pass(&run), &mut add).unwrap();
        assert_eq!(stages.finish().unwrap(), product, "in stages, step {step}, fill {fill}");
    }
}

fn the_place_changes_nothing(device: &Device) {
    let (x, run) = (operand(129, 4), Run::default());
    let matrix = PackedMatrix::random_in_panels(device, 0..300, 129, 3, 48 * 70, &run).unwrap();
    let products = |matrix: &PackedMatrix| {
        let (mut rows, pass) = (Vec::new(), pass(&run));
        let mut add = |first: u64, part: &Matrix| {
            assert_eq!(first, (rows.len() / 4) as u64);
            rows.extend_from_slice(part.data());
            Ok(())
        };
        matrix.apply(&x, &pass, &mut add).unwrap();
        (matrix.apply_normal(&x, &pass).unwrap(), rows)
    };
    let expected = products(&matrix);
    let matrix = matrix.to_host(64).unwrap();
    assert!(matrix.is_on_host());
    assert_eq!(products(&matrix), expected);
}

/// Rows of several panels are multiplied by their definition in f64. A missing entry is its row's mean.
fn rows_have_means_and_factors(device: &Device) {
    let codes = [[0u8, 2, 3], [1, 2, 0], [2, 0, 2], [3, 2, 1], [0, 0, 1]];
    let factors = [1.0f32, -2.0, 0.5, 3.0, -1.5];
    let x = Matrix::from_vec(vec![1.0, 0.5, -2.0, 1.0, 0.25, 3.0], 3, 2).unwrap();
    for (packed, missing, centred) in [
        (true, true, true),
        (true, true, false),
        (true, false, true),
        (false, true, true),
        (false, true, false),
    ] {
        let (mut matrix, mut table, mut rows) = (PackedMatrix::in_panels(device, 3, None), vec![], vec![]);
        for (codes, factor) in codes.iter().zip(factors) {
            let known = || codes.iter().filter(|code| **code < 3 || !missing).map(|&code| f32::from(code));
            let mean = known().sum::<f32>() / known().count() as f32;
            let entry = |&code: &u8| {
                let value = if missing && code == 3 { mean } else { f32::from(code) };
                f64::from(factor * (value - if centred { mean } else { 0.0 }))
            };
            rows.extend(codes.iter().map(entry));
            table.push([mean, factor]);
        }
        for (from, end) in [(0, 2), (2, 5)] {
            let codes = codes[from..end].as_flattened();
            let signed: Vec<i8> = codes.iter().map(|&code| if code == 3 { -1 } else { code as i8 }).collect();
            let shape = [(end - from) as u64, 3];
            let entries = match packed {
                true => Entries::Packed(upload(device, codes, 3)),
                false => Entries::I8(Tensor::from_slice(device, &signed, &shape).unwrap()),
            };
            matrix.keep(Panel { rows: from as u64..end as u64, entries, missing }).unwrap();
        }
        let each = matrix.passes();
        let (shape, bounds, at_once) = (matrix.shape(), [40.0, 200.0], 2);
        let map = |table| PanelMap {
            device,
            shape,
            packed,
            table: Some(table),
            centred,
            bounds,
            at_once,
            each: &each,
        };
        let a = Matrix::from_vec(rows, 5, 3).unwrap();
        let expected = host::product(a.as_faer(), x.as_faer());
        let case = format!("packed {packed}, missing {missing}, centred {centred}");
        let (run, mut found) = (Run::default(), Vec::new());
        let mut sink = |first: u64, part: &Matrix| {
            assert_eq!(first, found.len() as u64 / 2, "{case}");
            assert!(part.rows() as u64 <= if packed { at_once } else { 3 }, "{case}");
            found.extend_from_slice(part.data());
            Ok(())
        };
        map(&table).apply(&x, &pass(&run), &mut sink).unwrap();
        let normal = map(&table).apply_normal(&x, &pass(&run)).unwrap();
        let twice = host::product(a.as_faer().transpose(), expected.as_ref());
        for (found, expected) in [(&found[..], &expected), (normal.data(), &twice)] {
            for (at, found) in found.iter().enumerate() {
                assert!((found - expected[(at / 2, at % 2)]).abs() < 5e-4, "{case}: {found:?}, {expected:?}");
            }
        }
        assert_err!(map(&table[..4]).apply_normal(&x, &pass(&run)), Error::Shape { op: "PanelMap", .. });
        run.cancel.cancel();
        let none = &mut |_, _: &Matrix| panic!("rows after the call was cancelled");
        assert_err!(map(&table).apply(&x, &pass(&run), none), Error::Cancelled);
    }
}

fn pushed_rows_are_the_same(device: &Device) {
    for (rows, columns) in SIZES {
        let entries = oracle(rows, columns, 5);
        let expected = packed_words(&entries, columns);
        for step in [rows, rows.div_ceil(3), 101] {
            let mut matrix = PackedMatrix::new(device, columns).unwrap();
            for part in entries.chunks((step * columns) as usize) {
                let shape = [part.len() as u64 / columns, columns];
                matrix.push(&Tensor::from_slice(device, part, &shape).unwrap()).unwrap();
            }
            assert_eq!(matrix.shape(), [rows, columns]);
            assert!(matrix.words() == expected, "{rows} x {columns} by {step}");
        }
    }
}

fn products_are_close(device: &Device) {
    let run = Run::default();
    for (rows, columns) in SIZES {
        let (entries, width) = (oracle(rows, columns, 6), columns as usize);
        let a = Mat::from_fn(rows as usize, width, |i, j| f64::from(entries[i * width + j]));
        for l in [1, 7, 70] {
            let x = operand(columns, l);
            let matrix = random(device, rows, columns, 6).unwrap();
            let mut y = Mat::<f64>::zeros(rows as usize, l);
            let mut next = 0;
            let mut sink = |first: u64, part: &Matrix| {
                assert_eq!(first, next);
                next += part.rows() as u64;
                for i in 0..part.rows() {
                    (0..l).for_each(|c| y[(first as usize + i, c)] = part.row(i)[c]);
                }
                Ok(())
            };
            matrix.apply(&x, &pass(&run), &mut sink).unwrap();
            assert_eq!(next, rows);
            let product = matrix.apply_normal(&x, &pass(&run)).unwrap();
            let applied = host::product(a.as_ref(), x.as_faer());
            let expected = host::product(a.transpose(), applied.as_ref());
            for c in 0..l {
                // Rounding may lose 2^-23 of a column's largest element in each term of a row, and 2^-22 of the bound of A X in each row's weight.
                let largest = x.column(c).fold(0.0, |largest: f64, x| largest.max(x.abs()));
                let length = x.column(c).map(|x| x * x).sum::<f64>().sqrt();
                let norm = 2.0 * (columns as f64).sqrt();
                let bound = (norm * length).min(2.0 * columns as f64 * largest);
                let one = 2.0 * columns as f64 * largest * 2f64.powi(-22) + bound * 2f64.powi(-21);
                for i in 0..rows as usize {
                    let error = (y[(i, c)] - applied[(i, c)]).abs();
                    assert!(error <= one, "{rows} x {columns} {c}: {error:.2e} of {one:.2e}");
                }
                for j in 0..columns as usize {
                    let error = (product.row(j)[c] - expected[(j, c)]).abs();
                    let all = 2.0 * rows as f64 * one;
                    assert!(error <= all, "{rows} x {columns} {c}: {error:.2e} of {all:.2e}");
                }
            }
        }
    }
}

fn no_rows(device: &Device) {
    let run = Run::default();
    let mut matrix = PackedMatrix::new(device, 5).unwrap();
    matrix.push(&Tensor::zeros(device, &[0, 5]).unwrap()).unwrap();
    for matrix in [matrix, random(device, 0, 5, 1).unwrap()] {
        assert_eq!((matrix.shape(), matrix.bytes()), ([0, 5], 0));
        assert_eq!(matrix.apply_normal(&operand(5, 2), &pass(&run)).unwrap(), Matrix::zeros(5, 2));
        matrix.apply(&operand(5, 2), &pass(&run), &mut |_, _| panic!("there are no rows")).unwrap();
        let svd = randomized_svd(&matrix, 1, &SvdOptions::default(), &run);
        assert_err!(svd, Error::Argument { name: "k", .. });
    }
}

fn refused_arguments(device: &Device) {
    let run = Run::default();
    assert_err!(PackedMatrix::new(device, 0), Error::Argument { name: "columns", .. });
    assert_err!(random(device, 1, 1 << 23, 0), Error::Limit { requested: 8_388_608, max: 8_388_607, .. });
    assert_err!(random(device, u64::MAX, 100, 0), Error::Shape { op: "PackedMatrix::random", .. });
    let matrix = random(device, 4, 5, 0).unwrap();
    let product = matrix.apply_normal(&operand(6, 1), &pass(&run));
    assert_err!(product, Error::Shape { op: "PackedMatrix::apply_normal", .. });
    let product = matrix.apply(&operand(4, 1), &pass(&run), &mut |_, _| Ok(()));
    assert_err!(product, Error::Shape { op: "PackedMatrix::apply", .. });
    let bad = Matrix::from_vec(vec![0.0, 1.0, f64::NAN, 0.0, 0.0], 5, 1).unwrap();
    assert_err!(matrix.apply_normal(&bad, &pass(&run)), Error::Argument { name: "x", .. });
}

fn refused_rows(device: &Device) {
    let mut matrix = random(device, 4, 5, 0).unwrap();
    let before = matrix.words();
    for shape in [&[2, 6][..], &[5]] {
        let pushed = matrix.push(&Tensor::zeros(device, shape).unwrap());
        assert_err!(pushed, Error::Shape { op: "PackedMatrix::push", .. });
    }
    if !device.shares_host_memory() {
        let pushed = matrix.push(&Tensor::zeros(cpu(), &[2, 5]).unwrap());
        assert_err!(pushed, Error::WrongDevice { name: "entries", .. });
    }
    let mut entries = [1u8; 15];
    (entries[7], entries[9], entries[13]) = (3, 255, 200);
    let error = matrix.push(&Tensor::from_slice(device, &entries, &[3, 5]).unwrap()).unwrap_err();
    let expected = "PackedMatrix::push: `entries`: 2 of the 5 values of row 1 are not 0, 1 or 2";
    assert_eq!(error.to_string(), expected);
    // 3 is the only value of two bits that is invalid.
    entries = [1; 15];
    entries[12] = 3;
    let error = matrix.push(&Tensor::from_slice(device, &entries, &[3, 5]).unwrap()).unwrap_err();
    assert!(error.to_string().ends_with("1 of the 5 values of row 2 are not 0, 1 or 2"), "{error}");
    assert_eq!((matrix.shape(), matrix.words()), ([4, 5], before));
}

fn larger_than_memory(device: &Device) {
    // The matrix would take 16 TiB; this is tested if the device reports its memory.
    if device.info().memory.is_some() || device.info().backend == Backend::Cpu {
        let made = random(device, 1 << 36, 1000, 0);
        assert_err!(made, Error::OutOfMemory { requested: 0x1000_0000_0000, free: Some(_) });
    }
}

fn rows_beyond_a_binding(device: &Device) {
    let columns = MOST;
    let made = random(device, 2, columns, 1);
    if device.limits().binding > 4 * row_words(columns) + device.limits().alignment + 4 {
        assert_eq!(made.unwrap().shape(), [2, columns]);
    } else {
        assert_err!(made, Error::Limit { what: "bytes of a packed row", .. });
    }
}

/// The number of columns of rows longer than 64 KiB.
const MOST: u64 = 300_000;

fn cancelled_between_panels(device: &Device) {
    let matrix = PackedMatrix::random_in_panels(device, 0..100, 64, 1, 16 * 30, &Run::default()).unwrap();
    let (run, told) = told(|status| status.rows == 60);
    assert_err!(matrix.apply_normal(&operand(64, 2), &pass(&run)), Error::Cancelled);
    assert!(told.lock().unwrap().iter().map(|status| status.rows).eq([30, 60]));
}

fn cancelled_while_made(device: &Device) {
    let (run, told) = told(|status| status.rows == 60);
    assert_err!(PackedMatrix::random_in_panels(device, 0..100, 64, 1, 16 * 30, &run), Error::Cancelled);
    let told = told.lock().unwrap();
    let told = told.iter().map(|status| (status.rows, status.total));
    assert!(told.eq([0, 30, 60].map(|rows| (rows, 100))));
    assert!(matches!(PackedMatrix::random(device, 1, 1, 0, &run), Err(Error::Cancelled)));
}

fn beyond_the_budget(device: &Device) {
    let with = |bytes| {
        let memory = Budget::default().host(bytes).device(bytes);
        PackedMatrix::random(device, 100, 64, 1, &Run { memory, ..Run::default() })
    };
    assert_eq!(with(1600).unwrap().bytes(), 1600);
    assert_err!(with(1599), Error::Budget { budget: 1599, minimum: 1600, .. });
}
