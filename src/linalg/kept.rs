//! Products of a matrix with the vectors of a basis, which are kept so that left vectors need no pass.

use bytemuck::cast_slice;
use faer::MatRef;
use rayon::prelude::*;

use super::{
    map::{LinearMap, Pass},
    matrix::Matrix,
};
use crate::{Device, Error, Result, Tensor, digest::digest, extent::to_usize, fresh};

/// The rows of `A Q` for each block Q of a basis, in f32 on the host.
#[derive(Debug)]
pub(super) struct Kept {
    rows: usize,
    /// For each block, the number of its columns, and its values row by row.
    blocks: Vec<(usize, Vec<f32>)>,
    /// The number of bytes that more blocks may take.
    room: u64,
}

impl Kept {
    /// Keeps products with a matrix of `rows` rows, in at most `room` bytes.
    pub(super) fn new(rows: usize, room: u64) -> Self {
        Self { rows, blocks: Vec::new(), room }
    }

    /// Returns the transpose of `Aᵀ (A X)`, and keeps `A X`. Returns `None`, without a pass, if the map does not give `A X`, or if there is no
    /// room for it. Fails as [`LinearMap::apply_both`] does, and with [`Error::Shape`] if the map does not give each row once.
    pub(super) fn multiply(
        &mut self,
        map: &dyn LinearMap,
        x: &Tensor<f64>,
        pass: &Pass<'_>,
    ) -> Result<Option<Tensor<f64>>> {
        let (rows, cols) = (self.rows, to_usize(x.shape()[0]));
        let len = rows.saturating_mul(cols);
        if self.room / 4 < len as u64 {
            return Ok(None);
        }
        let (mut values, mut given) = (fresh::zeros::<f32>(len)?, 0);
        let image = map.apply_both(x, pass, &mut |first, part| {
            let first = to_usize(first);
            given += part.rows();
            if part.cols() != cols || first.saturating_add(part.rows()) > rows {
                return Err(wrong(rows, cols, &format!("({}, {}) at row {first}", part.rows(), part.cols())));
            }
            let to = values[first * cols..].iter_mut().zip(part.data());
            #[allow(clippy::cast_possible_truncation, reason = "products are kept in f32")]
            to.for_each(|(kept, value)| *kept = *value as f32);
            Ok(())
        })?;
        if image.is_some() && given != rows {
            return Err(wrong(rows, cols, &format!("{given} rows")));
        }
        if image.is_some() {
            self.add(cols, values);
        }
        Ok(image)
    }

    /// Keeps the product of a block that another process kept. Returns false if there is no room for it.
    pub(super) fn add(&mut self, cols: usize, values: Vec<f32>) -> bool {
        let room = self.room.checked_sub(4 * values.len() as u64);
        if let Some(room) = room {
            self.blocks.push((cols, values));
            self.room = room;
        }
        room.is_some()
    }

    /// Returns the product of the last block.
    pub(super) fn last(&self) -> Option<&[f32]> {
        self.blocks.last().map(|(_, values)| &values[..])
    }

    /// Returns the kept products times `weights` (columns of all blocks, k), which is (rows, k) in f64. The threads of `device` compute.
    pub(super) fn times(&self, weights: MatRef<'_, f64>, device: &Device) -> Result<Matrix> {
        /// The number of rows that a thread takes at least.
        const LEAST_ROWS: usize = 256;
        let (weights, k) = (Matrix::from_faer(weights), weights.ncols());
        let mut out = Matrix::zeros(self.rows, k);
        let rows = out.data_mut().par_chunks_exact_mut(k.max(1)).with_min_len(LEAST_ROWS).enumerate();
        device.pool()?.install(|| {
            rows.for_each(|(i, out)| {
                let values = self.blocks.iter().flat_map(|(cols, block)| &block[i * cols..][..*cols]);
                for (value, weights) in values.zip(weights.data().chunks_exact(k)) {
                    out.iter_mut().zip(weights).for_each(|(sum, weight)| *sum += f64::from(*value) * weight);
                }
            });
        });
        Ok(out)
    }
}

fn wrong(rows: usize, cols: usize, got: &str) -> Error {
    Error::shape("apply_both", format_args!("each row of a product ({rows}, {cols}) once"), got)
}

/// The product A V with right singular vectors V, and the digest of V.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Image {
    pub(super) product: Matrix,
    digest: u64,
}

impl Image {
    pub(super) fn new(product: Matrix, v: &Matrix) -> Self {
        Self { product, digest: digest(0, cast_slice(v.data())) }
    }

    /// Returns true if this is the product of a matrix of `rows` rows with these vectors.
    pub(super) fn is_of(&self, rows: u64, v: &Matrix) -> bool {
        let shape = [self.product.rows() as u64, self.product.cols() as u64];
        shape == [rows, v.cols() as u64] && self.digest == digest(0, cast_slice(v.data()))
    }
}
