//! Copies, and the kernels limited by memory bandwidth.

use teatime::{
    DType, Device, Element, Error, Tensor,
    array::{Zip, gather, sum, zip},
    bits::{PackOptions, Width, pack_into, unpack_into},
    linalg::{BlockSum, pending_column_stats, pending_row_stats, standardize, transpose},
    packed::recode,
    random::random_words,
    to_usize,
};

use crate::{
    data,
    measure::{COPY, Job, Session, Size},
    report::Unit,
    table,
};

/// The sizes in bytes of the array that is read, or that random words are written to.
const SIZES: [u64; 6] = [1 << 20, 8 << 20, 64 << 20, 256 << 20, 1 << 30, 4 << 30];
/// The sizes in bytes of arrays that pass through the host, which has to hold them too.
const HOST_SIZES: [u64; 5] = [1 << 20, 8 << 20, 64 << 20, 256 << 20, 1 << 30];
/// The number of columns of matrices.
const COLS: u64 = 1024;

/// Returns a size for a number of bytes of the array; `factor` is the bytes moved for each of them.
fn moved(factor: f64) -> impl Fn(&u64) -> Size {
    move |&bytes| Size {
        text: table::bytes(bytes),
        work: factor * bytes as f64,
        // Memory holds the array and its result, which has up to four bytes for each byte of the array.
        memory: if factor > 2.0 { 5 * bytes } else { 2 * bytes },
    }
}

/// Measures copies to, from and on the device, and the time of a launch.
pub(crate) fn copies(session: &mut Session<'_>) {
    session.largest("copy to the device", Unit::Bandwidth, &HOST_SIZES, moved(1.0), |device, &bytes| {
        let (device, values) = (device.clone(), data::uniform(1, bytes / 4));
        Ok(Box::new(move || Tensor::from_slice(&device, &values, &[values.len() as u64]).map(drop)))
    });
    session.largest("copy to the host", Unit::Bandwidth, &HOST_SIZES, moved(1.0), |device, &bytes| {
        let x = Tensor::from_slice(device, &data::uniform(1, bytes / 4), &[bytes / 4])?;
        Ok(Box::new(move || x.read().map(drop)))
    });
    session.largest(COPY, Unit::Bandwidth, &SIZES, moved(2.0), |device, &bytes| {
        let x = random_words(device, 1, 0, bytes / 4)?;
        Ok(Box::new(move || x.try_clone().map(drop)))
    });
    let once = |_: &()| Size { text: String::new(), work: 1.0, memory: 1 };
    session.largest("launch and wait", Unit::Milliseconds, &[()], once, |device, ()| {
        let device = device.clone();
        Ok(Box::new(move || {
            drop(random_words(&device, 1, 0, 4)?);
            device.synchronize()
        }))
    });
}

/// Measures a kernel, which moves `factor` bytes for each byte of its array.
fn kernel(
    session: &mut Session<'_>,
    name: &str,
    factor: f64,
    mut make: impl FnMut(&Device, u64) -> Result<Job, Error>,
) {
    let (id, size) = (format!("kernel {name}"), moved(factor));
    session.largest(&id, Unit::Bandwidth, &HOST_SIZES, size, |device, &bytes| make(device, bytes));
}

fn matrix(device: &Device, bytes: u64) -> Result<Tensor<f32>, Error> {
    data::matrix(device, 1, [bytes / 4 / COLS, COLS])
}

/// Measures kernels that do little more than read and write.
pub(crate) fn kernels(session: &mut Session<'_>) {
    session.largest("kernel random", Unit::Bandwidth, &SIZES, moved(1.0), |device, &bytes| {
        let device = device.clone();
        Ok(Box::new(move || random_words(&device, 1, 0, bytes / 4).map(drop)))
    });
    kernel(session, "elementwise, rows", 2.0, |device, bytes| {
        let (x, row) = (matrix(device, bytes)?, data::matrix(device, 2, [1, COLS])?);
        Ok(Box::new(move || zip(Zip::Multiply, &x, &row).map(drop)))
    });
    for (way, axis) in [("rows", 1), ("columns", 0)] {
        kernel(session, &format!("reduce_axis, along {way}"), 1.0, |device, bytes| {
            let x = matrix(device, bytes)?;
            Ok(Box::new(move || sum(&x, axis).map(drop)))
        });
    }
    kernel(session, "copy_rows", 2.0, |device, bytes| {
        let x = matrix(device, bytes)?;
        let rows: Vec<u64> = (0..bytes / 4 / COLS).rev().collect();
        Ok(Box::new(move || gather(&x, &rows).map(drop)))
    });
    kernel(session, "transpose", 2.0, |device, bytes| {
        let x = matrix(device, bytes)?;
        Ok(Box::new(move || transpose(&x).map(drop)))
    });
    kernel(session, "add_block", 5.0, |device, bytes| {
        let x = matrix(device, bytes)?;
        let mut sum = BlockSum::new(device, bytes / 4 / COLS, COLS)?;
        Ok(Box::new(move || sum.add(&x)))
    });
    kernel(session, "recode", 2.0, |device, bytes| {
        let x = Tensor::from_slice(device, &data::codes(1, bytes, 8), &[bytes / COLS, COLS])?;
        let mut packed = Tensor::<u32>::zeros(device, &[bytes / COLS, COLS.div_ceil(16) * 4])?;
        Ok(Box::new(move || recode(&x, [2, 3, 1, 0], 4 * COLS, &mut packed, 0).map(drop)))
    });
    kernel(session, "standardize i8", 5.0, |device, bytes| {
        // Rows are long, so that the table of the rows takes little time.
        let (rows, cols) = (64, bytes / 64);
        let x = Tensor::from_slice(device, &data::dosages(1, bytes), &[rows, cols])?;
        let table = vec![[0.7f32, 1.4, 0.0]; to_usize(rows)];
        Ok(Box::new(move || standardize(&x, &table, true).map(drop)))
    });
    for width in Width::ALL {
        let bits = width.bits();
        // The number of bytes moved for each byte of the unpacked array.
        let factor = 1.0 + f64::from(bits) / 8.0;
        kernel(session, &format!("pack {bits}"), factor, |device, bytes| {
            let x = Tensor::from_slice(device, &data::codes(1, bytes, bits), &[bytes])?;
            let mut out = Tensor::<u8>::zeros(device, &[width.row_bytes(bytes)])?;
            Ok(Box::new(move || pack_into(&x, width, &PackOptions::default(), &mut out).map(drop)))
        });
        kernel(session, &format!("unpack {bits}"), factor, |device, bytes| {
            let small = width.row_bytes(bytes);
            let packed = Tensor::from_slice(device, &data::codes(1, small, 8), &[small])?;
            let mut out = Tensor::<u8>::zeros(device, &[bytes])?;
            Ok(Box::new(move || unpack_into(&packed, width, None, &mut out)))
        });
    }
    for (by_row, way) in [(true, "rows"), (false, "columns")] {
        kernel(session, &format!("reduce f32 by {way}"), 1.0, |device, bytes| {
            Ok(stats(matrix(device, bytes)?, by_row))
        });
        kernel(session, &format!("reduce i8 by {way}"), 1.0, |device, bytes| {
            let x = Tensor::from_slice(device, &data::dosages(1, bytes), &[bytes / COLS, COLS])?;
            Ok(stats(x, by_row))
        });
    }
}

/// Returns the job of the sums of a matrix, whose blocks stay on the device. At most a 256th of the bytes read is written.
fn stats<T: Element>(x: Tensor<T>, by_row: bool) -> Job {
    let stats = if by_row { pending_row_stats } else { pending_column_stats };
    Box::new(move || stats(&x, T::DTYPE == DType::I8).map(drop))
}
