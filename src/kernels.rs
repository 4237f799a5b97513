//! Single kernels for the benchmarks, which measure them against the bandwidth of a copy. No part of the API: what is
//! here may change in any version.

use std::ops::Range;

use crate::{
    DType, Device, Element, Error, Result, Run, Tensor,
    bits::{self, PackOptions, Packable, Unpackable, Width},
    genotype::{
        PackedMatrix, dosage as calls,
        packed::{
            apply::Rows,
            pack::{self, Coding},
            product::Product,
            row_words, standardize as codes,
            uniform::packed_uniform as codes_at_random,
        },
        standardize as table,
    },
    linalg::{Matrix, reduce, scale_columns as columns},
};

/// Dosages of calls (variants, samples, ploidy). Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless `x` has three axes; [`Error::Limit`] and [`Error::OutOfMemory`].
pub fn dosage(x: &Tensor<i8>) -> Result<Tensor<i8>> {
    calls::dosage(x)
}

/// Dosages (variants, samples) to f32, with [shift, scale, fill] of each row. Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless `rows` has one entry for each row; [`Error::Limit`] and [`Error::OutOfMemory`].
pub fn standardize(x: &Tensor<i8>, rows: &[[f32; 3]]) -> Result<Tensor<f32>> {
    table::standardize(x, rows)
}

/// A matrix with its columns multiplied by numbers. Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless there is a factor for each column; [`Error::Limit`] and [`Error::OutOfMemory`].
pub fn scale_columns(x: &Tensor<f32>, factors: &[f32]) -> Result<Tensor<f32>> {
    columns::scale_columns(x, factors)
}

/// One launch of the sums by row or by column, whose blocks are left on the device. Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless `x` is a matrix; [`Error::Limit`] when it does not fit one binding.
pub fn block_sums<T: Element>(x: &Tensor<T>, by_row: bool) -> Result<Tensor<u32>> {
    let [rows, cols] = x.matrix("block_sums")?;
    let blocks = |n: u64| n.div_ceil(reduce::BLOCK.into());
    let shape = if by_row { [rows, blocks(cols), 4] } else { [blocks(rows), cols, 4] };
    let requested = x.bytes().max(4 * shape.iter().product::<u64>()).max(rows).max(cols);
    let max = x.device().limits().binding;
    if requested > max {
        return Err(Error::Limit { what: "bytes of a matrix in one launch", requested, max });
    }
    let mut out = Tensor::<u32>::empty(x.device(), &shape)?;
    reduce::launch(x, 0..rows, &mut out, 0..shape[0], [by_row, T::DTYPE == DType::I8])?;
    Ok(out)
}

/// [`bits::pack()`] into a tensor that is there, without a look at what was refused. Enqueues; does not wait.
///
/// # Errors
/// As [`bits::pack()`], but for values; [`Error::Shape`] unless `out` has the rows of `x`.
pub fn pack_into<T: Packable>(
    x: &Tensor<T>,
    width: Width,
    options: &PackOptions<'_>,
    out: &mut Tensor<u8>,
) -> Result<()> {
    bits::pack::pack_into(x, width, options, out).map(drop)
}

/// [`bits::unpack()`] into a tensor that is there. Enqueues; does not wait.
///
/// # Errors
/// As [`bits::unpack()`]; [`Error::Shape`] unless `out` has the rows of `packed`.
pub fn unpack_into<T: Unpackable>(
    packed: &Tensor<u8>,
    width: Width,
    table: Option<&[f32]>,
    out: &mut Tensor<T>,
) -> Result<()> {
    bits::unpack::unpack_into(packed, width, table, out)
}

/// Rows of 2-bit codes of diploid calls (rows, 2 `samples`) of i8, or of the rows of a .bed file. Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] unless a row holds `samples`; [`Error::Limit`] and [`Error::OutOfMemory`].
pub fn pack_genotypes(raw: &Tensor<u8>, plink: bool, samples: u64) -> Result<Tensor<u32>> {
    let [rows, _] = raw.matrix("pack_genotypes")?;
    let coding = if plink { Coding::PlinkA1 } else { Coding::Diploid };
    let mut packed = Tensor::empty(raw.device(), &[rows, row_words(samples)])?;
    pack::pack_genotypes(raw, coding, samples, &mut packed, 0)?;
    Ok(packed)
}

/// Rows `range` of 2-bit codes to f32, with [shift, scale, fill] of each row. Enqueues; does not wait.
///
/// # Errors
/// [`Error::Shape`] when the shapes do not fit; [`Error::Limit`] and [`Error::OutOfMemory`].
pub fn packed_standardize(
    packed: &Tensor<u32>,
    range: Range<u64>,
    samples: u64,
    rows: &[[f32; 3]],
) -> Result<Tensor<f32>> {
    codes::packed_standardize(packed, range, samples, rows)
}

/// The 2-bit codes of a random matrix's rows `first..first + rows`, as [`PackedMatrix::random`] has them. Enqueues; does not
/// wait.
///
/// # Errors
/// [`Error::Limit`] and [`Error::OutOfMemory`].
pub fn packed_uniform(
    device: &Device,
    seed: u64,
    first: u64,
    rows: u64,
    columns: u64,
) -> Result<Tensor<u32>> {
    codes_at_random(device, seed, first, rows, columns)
}

/// [`PackedMatrix::random`] in panels of about so many bytes, which changes no bit. Waits.
///
/// # Errors
/// As [`PackedMatrix::random`].
pub fn packed_random(
    device: &Device,
    [rows, columns]: [u64; 2],
    seed: u64,
    panel_bytes: u64,
    run: &Run,
) -> Result<PackedMatrix> {
    PackedMatrix::random_in_panels(device, rows, columns, seed, panel_bytes, run)
}

/// The 2-bit codes of a matrix, panel after panel.
pub fn panels(matrix: &PackedMatrix) -> &[Tensor<u32>] {
    matrix.panels()
}

/// Rows of 2-bit codes, as products take them.
#[derive(Clone, Copy, Debug)]
pub struct PackedRows<'a> {
    /// (rows, words) codes.
    pub packed: &'a Tensor<u32>,
    /// [mean, factor] of each row; of more rows, the first ones'.
    pub table: &'a Tensor<f32>,
    /// Whether a code may be missing.
    pub missing: bool,
}

/// One pass over 2-bit codes, `Aᵀ (A X)`, in stages that can be timed apart.
#[derive(Debug)]
pub struct PackedPass(Product);

impl PackedPass {
    /// Makes the operand X (samples, columns) on the host, and uploads it.
    ///
    /// `centred`: whether the mean is subtracted from dosages, else only missing ones become it. `bounds`: as much as the
    /// length of a row of A, and the sum of its magnitudes, times its factor can be.
    ///
    /// # Errors
    /// What the device reports.
    pub fn new(device: &Device, x: &Matrix, centred: bool, bounds: [f64; 2]) -> Result<Self> {
        Product::new(device, x, centred, Some(bounds)).map(Self)
    }

    /// `A X` of some rows alone, which is dropped. Enqueues; does not wait.
    ///
    /// # Errors
    /// What the device reports.
    pub fn weigh(&self, rows: PackedRows<'_>) -> Result<()> {
        self.0.weigh(rows.all())
    }

    /// Adds some rows' part. Enqueues; does not wait.
    ///
    /// # Errors
    /// What the device reports.
    pub fn add(&mut self, rows: PackedRows<'_>) -> Result<()> {
        self.0.add(rows.all())
    }

    /// Downloads the sums, and makes numbers of them. Waits.
    ///
    /// # Errors
    /// What the device reports.
    pub fn finish(self) -> Result<Matrix> {
        self.0.finish()
    }
}

impl<'a> PackedRows<'a> {
    fn all(self) -> Rows<'a> {
        let Self { packed, table, missing } = self;
        Rows { packed, table, range: (0, packed.shape()[0]), missing }
    }
}
