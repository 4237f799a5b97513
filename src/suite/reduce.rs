//! Tests of sums by row and by column.

use super::*;
use crate::{
    kernels::reduce::BLOCK,
    linalg::{Stats, column_stats, pending_column_stats, pending_row_stats, row_stats},
};

device_tests! {
    every_type, sizes_around_the_blocks, nan_and_infinity_are_bad,
    negative_is_missing, bytes_are_exact, two_runs_are_equal, empty,
    many_columns, f64_stays_f64, wrong_shape;
    past_the_largest_grid, what_is_transferred,
}

/// Returns the sum and the sum of squares of the finite values (without negative ones if `missing`), their number, and the number of the other
/// values.
fn oracle<T: Sample>(values: impl Iterator<Item = T>, missing: bool) -> ([Reference; 2], [u64; 2]) {
    let (mut sums, mut counts) = <([Reference; 2], [u64; 2])>::default();
    for value in values.map(T::value) {
        let byte = missing && T::DTYPE == DType::I8;
        if !value.is_finite() || byte && value < -1.0 {
            counts[1] += 1;
        } else if !missing || value >= 0.0 {
            sums[0].add(value);
            sums[1].add(value * value);
            counts[0] += 1;
        }
    }
    (sums, counts)
}

fn check<T: Sample>(what: &str, stats: &[Stats], lines: &[Vec<T>], missing: bool) {
    assert_eq!(stats.len(), lines.len(), "{what}");
    for (i, (stats, line)) in stats.iter().zip(lines).enumerate() {
        let ([sum, squares], [count, bad]) = oracle(line.iter().copied(), missing);
        let what = format!("{what} {:?}: {i} of {}, each of {}", T::DTYPE, lines.len(), line.len());
        assert_eq!((stats.count, stats.bad), (count, bad), "{what}");
        let (real, terms) = match T::DTYPE.is_wide() {
            true => (DType::F64, line.len()),
            false => (DType::F32, line.len().min(BLOCK as usize)),
        };
        let tolerance = dot_of(real, terms as u64);
        assert_close(&what, &[stats.sum, stats.sum_squares], &[sum, squares], tolerance);
    }
}

fn rows_of<T: Element>(x: &[T], cols: u64) -> Vec<Vec<T>> {
    x.chunks(cols as usize).map(<[T]>::to_vec).collect()
}

fn columns_of<T: Element>(x: &[T], cols: u64) -> Vec<Vec<T>> {
    let cols = cols as usize;
    (0..cols).map(|col| x.iter().skip(col).step_by(cols).copied().collect()).collect()
}

fn check_both<T: Sample>(device: &Device, rows: u64, cols: u64) {
    let (x, tx) = matrix::<T>(device, 20, rows, cols);
    check("rows", &row_stats(&tx).unwrap(), &rows_of(&x, cols), false);
    check("columns", &column_stats(&tx).unwrap(), &columns_of(&x, cols), false);
}

fn every_type(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        for (rows, cols) in [(3, 1100), (65, 5), (1100, 3), (5, 65)] {
            check_both::<T>(device, rows, cols);
        }
    }
    for_each_type!(with(device));
}

fn sizes_around_the_blocks(device: &Device) {
    for n in [1, 63, 64, 65, 1023, 1024, 1025, 2051] {
        for lines in [1, 15] {
            for (rows, cols) in [(lines, n), (n, lines)] {
                check_both::<f32>(device, rows, cols);
                check_both::<i8>(device, rows, cols);
                // A row of sums of f64 has to fit a binding of a device with low limits.
                if 32 * cols <= device.limits().room() {
                    check_both::<f64>(device, rows, cols);
                }
            }
        }
    }
}

fn nan_and_infinity_are_bad(device: &Device) {
    fn with<T: Sample>(device: &Device, bad: [T; 5]) {
        let (rows, cols) = (70, 67);
        let mut x = values::<T>(22, rows * cols);
        for (place, &bad) in bad.iter().cycle().enumerate().take(40) {
            x[place * 97] = bad;
        }
        let tx = Tensor::from_slice(device, &x, &[rows, cols]).unwrap();
        check("rows", &row_stats(&tx).unwrap(), &rows_of(&x, cols), false);
        check("columns", &column_stats(&tx).unwrap(), &columns_of(&x, cols), false);
        let stats = pending_row_stats(&tx, true).unwrap().wait().unwrap();
        check("missing", &stats, &rows_of(&x, cols), true);
    }
    with(device, [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::from_bits(0x7f80_0001)]);
    with(device, [f16::NAN, -f16::NAN, f16::INFINITY, f16::NEG_INFINITY, f16::from_bits(0x7c01)]);
    let signalling = f64::from_bits(0x7ff0_0000_0000_0001);
    with(device, [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY, signalling]);
    with(device, [bf16::NAN, -bf16::NAN, bf16::INFINITY, bf16::NEG_INFINITY, bf16::from_bits(0x7f81)]);
}

fn negative_is_missing(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        let (x, tx) = matrix::<T>(device, 23, 9, 1300);
        let stats = pending_row_stats(&tx, true).unwrap().wait().unwrap();
        check("missing", &stats, &rows_of(&x, 1300), true);
    }
    for_each_type!(with(device));
    // The values are like dosages: mostly 0 to 2, some -1, few bad codes.
    let x: Vec<i8> =
        values::<u8>(24, 5 * 2050).iter().map(|v| [0, 1, 2, 0, -1, 1, 0, -2][*v as usize / 32]).collect();
    let tx = Tensor::from_slice(device, &x, &[5, 2050]).unwrap();
    check("dosages", &pending_row_stats(&tx, true).unwrap().wait().unwrap(), &rows_of(&x, 2050), true);
    // -0.0 is not negative.
    let zeros = Tensor::from_slice(device, &[-0.0f32, 0.0, -1.0], &[1, 3]).unwrap();
    assert_eq!(pending_row_stats(&zeros, true).unwrap().wait().unwrap()[0].count, 2);
}

/// Sums rows of i8 extremes, which f32 would round.
fn bytes_are_exact(device: &Device) {
    let cols = 40_000;
    let x: Vec<i8> = (0..cols).map(|i| if i % 3 == 0 { 127 } else { -128 }).collect();
    let tx = Tensor::from_slice(device, &x, &[1, cols]).unwrap();
    let sum: i64 = x.iter().map(|&x| i64::from(x)).sum();
    let squares: i64 = x.iter().map(|&x| i64::from(x).pow(2)).sum();
    let stats = row_stats(&tx).unwrap()[0];
    assert_eq!((stats.sum, stats.sum_squares, stats.count), (sum as f64, squares as f64, cols));
}

/// Sums keep digits that f32 would lose, and values beyond f32, for rows in several pieces and runs and columns in several.
fn f64_stays_f64(device: &Device) {
    let (rows, cols) = (300, 257);
    let mut x = vec![0.0; (rows * cols) as usize];
    x[..4].copy_from_slice(&[1.0 + 1e-10, 1e300, 3.0, f64::NAN]);
    let last = x.len() - cols as usize;
    x[last..last + 3].copy_from_slice(&[-1.0, 1e300, -3.0]);
    let x = Tensor::from_slice(device, &x, &[rows, cols]).unwrap();
    let columns = column_stats(&x).unwrap();
    assert!((columns[0].sum - 1e-10).abs() < 1e-15, "{}", columns[0].sum);
    assert_eq!((columns[1].sum, columns[1].count), (2e300, rows));
    assert_eq!((columns[3].bad, columns[256].count), (1, rows));
    let found = row_stats(&x).unwrap();
    assert_eq!((found[0].sum, found[0].bad, found[299].count), (1e300, 1, cols));
    let known = pending_column_stats(&x, true).unwrap().wait().unwrap();
    assert_eq!((known[0].sum, known[2].sum, known[0].count), (1.0 + 1e-10, 3.0, rows - 1));
    let whole = Tensor::from_slice(device, &[16_777_217i32, 1, -16_777_217, 1], &[2, 2]).unwrap();
    assert_eq!(row_stats(&whole).unwrap()[0].sum, 16_777_218.0);
    assert_eq!(row_stats(&x.to_f32().unwrap()).unwrap()[0].bad, 2);
}

/// Sums are transferred, but no matrix, except where f64 is added up on the host.
fn what_is_transferred(device: &Device) {
    fn of<T: Sample>(device: &Device) {
        let (_, x) = matrix::<T>(device, 26, 3100, 30);
        let moved = [row_stats, column_stats].map(|stats| {
            let before = device.traffic();
            stats(&x).unwrap();
            (device.traffic() - before).to_host
        });
        let whole = 3100 * 30 * T::DTYPE.size();
        let few = if T::DTYPE.is_wide() { 32 } else { 16 };
        let here = !T::DTYPE.is_wide() || device.limits().f64;
        assert_eq!(moved, if here { [3100 * few, 30 * 32] } else { [whole; 2] }, "{:?}", T::DTYPE);
    }
    let (device, _lock) = alone(device);
    of::<f32>(&device);
    of::<f64>(&device);
    of::<u32>(&device);
    of::<i32>(&device);
}

fn two_runs_are_equal(device: &Device) {
    let (_, x) = matrix::<f32>(device, 25, 3000, 12);
    assert_eq!(row_stats(&x).unwrap(), row_stats(&x).unwrap());
    assert_eq!(column_stats(&x).unwrap(), column_stats(&x).unwrap());
}

fn empty(device: &Device) {
    fn of<T: Element>(device: &Device) {
        let rows = Tensor::<T>::zeros(device, &[3, 0]).unwrap();
        assert_eq!(row_stats(&rows).unwrap(), vec![Stats::default(); 3]);
        assert_eq!(column_stats(&rows).unwrap(), vec![]);
        let columns = Tensor::<T>::zeros(device, &[0, 3]).unwrap();
        assert_eq!(row_stats(&columns).unwrap(), vec![]);
        assert_eq!(column_stats(&columns).unwrap(), vec![Stats::default(); 3]);
    }
    of::<f32>(device);
    of::<f64>(device);
}

/// Each row has one workgroup, and there are more than the 65,535 of a grid's axis.
fn past_the_largest_grid(device: &Device) {
    let rows = u64::from(device.limits().groups_per_axis.min(65_535)) + 4_465;
    let (x, tx) = matrix::<i8>(device, 27, rows, 2);
    let stats = row_stats(&tx).unwrap();
    assert_eq!(stats.len() as u64, rows);
    let wrong =
        x.chunks(2).zip(&stats).position(|(x, s)| f64::from(i32::from(x[0]) + i32::from(x[1])) != s.sum);
    assert_eq!(wrong, None);
}

/// For sums by column, a block of 1,024 rows has to fit a binding.
fn many_columns(device: &Device) {
    let (x, tx) = matrix::<f32>(device, 28, 1030, 130);
    match column_stats(&tx) {
        Ok(stats) => check("columns", &stats, &columns_of(&x, 130), false),
        Err(Error::Limit { .. }) => assert!(device.limits().binding < 1024 * 130 * 4 + 300),
        Err(error) => panic!("{error}"),
    }
}

fn wrong_shape(device: &Device) {
    let line = Tensor::<f32>::zeros(device, &[3]).unwrap();
    assert!(matches!(row_stats(&line), Err(Error::Shape { op: "row_stats", .. })));
    assert!(matches!(column_stats(&line), Err(Error::Shape { op: "column_stats", .. })));
}

#[test]
fn threads_change_no_bit() {
    let run = |threads| {
        let options = DeviceOptions { threads: Some(threads), ..Default::default() };
        let device = Device::open_with("cpu", &options).unwrap();
        let ((_, x), (_, wide)) =
            (matrix::<f32>(&device, 29, 3000, 40), matrix::<f64>(&device, 29, 3000, 40));
        [row_stats(&x), column_stats(&x), row_stats(&wide), column_stats(&wide)].map(Result::unwrap)
    };
    let expected = run(1);
    for threads in [2, 3, 5] {
        assert_eq!(run(threads), expected, "{threads} threads");
    }
}
