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

/// Measures kernels that do little more than read and write.
pub(crate) fn kernels(session: &mut Session<'_>) {
    session.largest("kernel random", Unit::Bandwidth, &SIZES, moved(1.0), |device, &bytes| {
        let device = device.clone();
        Ok(Box::new(move || random_words(&device, 1, 0, bytes / 4).map(drop)))
    });
    session.largest(
        "kernel elementwise, rows",
        Unit::Bandwidth,
        &HOST_SIZES,
        moved(2.0),
        |device, &bytes| {
            let x = data::matrix(device, 1, [bytes / 4 / COLS, COLS])?;
            let row = data::matrix(device, 2, [1, COLS])?;
            Ok(Box::new(move || zip(Zip::Multiply, &x, &row).map(drop)))
        },
    );
    session.largest(
        "kernel reduce_axis, along rows",
        Unit::Bandwidth,
        &HOST_SIZES,
        moved(1.0),
        |device, &bytes| {
            let x = data::matrix(device, 1, [bytes / 4 / COLS, COLS])?;
            Ok(Box::new(move || sum(&x, 1).map(drop)))
        },
    );
    session.largest(
        "kernel reduce_axis, along columns",
        Unit::Bandwidth,
        &HOST_SIZES,
        moved(1.0),
        |device, &bytes| {
            let x = data::matrix(device, 1, [bytes / 4 / COLS, COLS])?;
            Ok(Box::new(move || sum(&x, 0).map(drop)))
        },
    );
    session.largest("kernel copy_rows", Unit::Bandwidth, &HOST_SIZES, moved(2.0), |device, &bytes| {
        let x = data::matrix(device, 1, [bytes / 4 / COLS, COLS])?;
        let rows: Vec<u64> = (0..bytes / 4 / COLS).rev().collect();
        Ok(Box::new(move || gather(&x, &rows).map(drop)))
    });
    session.largest("kernel transpose", Unit::Bandwidth, &HOST_SIZES, moved(2.0), |device, &bytes| {
        let x = data::matrix(device, 1, [bytes / 4 / COLS, COLS])?;
        Ok(Box::new(move || transpose(&x).map(drop)))
    });
    session.largest("kernel add_block", Unit::Bandwidth, &HOST_SIZES, moved(5.0), |device, &bytes| {
        let rows = bytes / 4 / COLS;
        let x = data::matrix(device, 1, [rows, COLS])?;
        let mut sum = BlockSum::new(device, rows, COLS)?;
        Ok(Box::new(move || sum.add(&x)))
    });
    session.largest("kernel recode", Unit::Bandwidth, &HOST_SIZES, moved(2.0), |device, &bytes| {
        let x = Tensor::from_slice(device, &data::codes(1, bytes, 8), &[bytes / COLS, COLS])?;
        let mut packed = Tensor::<u32>::zeros(device, &[bytes / COLS, COLS.div_ceil(16) * 4])?;
        Ok(Box::new(move || recode(&x, [2, 3, 1, 0], 4 * COLS, &mut packed, 0).map(drop)))
    });
    session.largest("kernel standardize i8", Unit::Bandwidth, &HOST_SIZES, moved(5.0), |device, &bytes| {
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
        session.largest(
            &format!("kernel pack {bits}"),
            Unit::Bandwidth,
            &HOST_SIZES,
            moved(factor),
            |device, &bytes| {
                let x = Tensor::from_slice(device, &data::codes(1, bytes, bits), &[bytes])?;
                let mut out = Tensor::<u8>::zeros(device, &[width.row_bytes(bytes)])?;
                Ok(Box::new(move || pack_into(&x, width, &PackOptions::default(), &mut out).map(drop)))
            },
        );
        session.largest(
            &format!("kernel unpack {bits}"),
            Unit::Bandwidth,
            &HOST_SIZES,
            moved(factor),
            |device, &bytes| {
                let small = width.row_bytes(bytes);
                let packed = Tensor::from_slice(device, &data::codes(1, small, 8), &[small])?;
                let mut out = Tensor::<u8>::zeros(device, &[bytes])?;
                Ok(Box::new(move || unpack_into(&packed, width, None, &mut out)))
            },
        );
    }
    for (by_row, way) in [(true, "rows"), (false, "columns")] {
        reduce::<f32>(session, way, by_row, |device, bytes| {
            data::matrix(device, 1, [bytes / 4 / COLS, COLS])
        });
        reduce::<i8>(session, way, by_row, |device, bytes| {
            Tensor::from_slice(device, &data::dosages(1, bytes), &[bytes / COLS, COLS])
        });
    }
}

/// Measures sums of a matrix, whose blocks stay on the device. At most a 256th of the bytes read is written.
fn reduce<T: Element>(
    session: &mut Session<'_>,
    way: &str,
    by_row: bool,
    make: impl Fn(&Device, u64) -> Result<Tensor<T>, Error>,
) {
    let name = if T::DTYPE == DType::F32 { "f32" } else { "i8" };
    let id = format!("kernel reduce {name} by {way}");
    session.largest(&id, Unit::Bandwidth, &HOST_SIZES, moved(1.0), |device, &bytes| {
        let x = make(device, bytes)?;
        let stats = if by_row { pending_row_stats } else { pending_column_stats };
        let job: Job = Box::new(move || stats(&x, T::DTYPE == DType::I8).map(drop));
        Ok(job)
    });
}
