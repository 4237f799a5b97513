//! Stored genotypes to 2-bit rows, with the counts of each row.

use std::ops::Range;

use super::row_words;
use crate::{
    Error, Result, Tensor,
    kernel::{Grid, Program, small},
    kernels::pack_genotypes::{Coding, PACK_GENOTYPES, Params, spec},
    linalg::Stats,
    tensor::Pending,
};

/// The program that [`pack_genotypes`] launches for a coding.
pub(crate) fn program(coding: Coding) -> Program {
    (&PACK_GENOTYPES.def, spec(coding).to_vec())
}

/// The counts of some rows, on their way to the host.
#[derive(Debug)]
pub struct PendingCounts {
    counts: Pending<u32>,
    samples: u64,
}

impl PendingCounts {
    /// Waits for them.
    pub(crate) fn wait(self) -> Result<Vec<Stats>> {
        let words = self.counts.wait()?;
        let stats = words.as_chunks::<4>().0.iter().map(|&[ones, twos, missing, bad]| {
            let [ones, twos] = [ones, twos].map(f64::from);
            Stats {
                sum: ones + 2.0 * twos,
                sum_squares: ones + 4.0 * twos,
                count: self.samples - u64::from(missing),
                bad: bad.into(),
            }
        });
        Ok(stats.collect())
    }
}

/// Packs the rows of `raw` into the rows of `packed` from `first` on. Enqueues; does not wait.
///
/// A call is missing where one of its alleles is; otherwise its dosage is the number of alleles above 0, doubled where
/// a diploid call has one allele only, as PLINK codes haploid calls. Elements that are neither (a dosage above 2, an
/// allele below -2) count as bad and become missing.
///
/// `raw`: (rows, `coding.row_bytes(samples)`), `packed`: (.., `row_words(samples)`).
///
/// # Errors
/// [`Error::Shape`] when the shapes do not fit; [`Error::Limit`] when a row does not fit a binding.
pub fn pack_genotypes(
    raw: &Tensor<u8>,
    coding: Coding,
    samples: u64,
    packed: &mut Tensor<u32>,
    first: u64,
) -> Result<PendingCounts> {
    let op = "pack_genotypes";
    let [rows, row_bytes] = raw.matrix(op)?;
    let [room, words] = packed.matrix(op)?;
    if row_bytes != coding.row_bytes(samples) || words != row_words(samples) || first + rows > room {
        let expected = format!("rows of {samples} samples, {room} at most");
        return Err(Error::shape(
            op,
            expected,
            format_args!("{rows} x {row_bytes} bytes from row {first}, {words} words"),
        ));
    }
    let device = raw.device();
    let limits = device.limits();
    let mut counts = Tensor::<u32>::empty(device, &[rows, 4])?;
    let binding = limits.room();
    let widest = row_bytes.max(4 * words).max(16);
    let step = (binding / widest).min(u64::from(limits.groups_per_axis).saturating_pow(2));
    if step == 0 {
        return Err(Error::Limit { what: "bytes of a row of genotypes", requested: widest, max: binding });
    }
    for start in (0..if samples == 0 { 0 } else { rows }).step_by(usize::try_from(step).unwrap_or(usize::MAX))
    {
        let Range { start, end } = start..rows.min(start + step);
        let x = raw.window(start * row_bytes..end * row_bytes);
        let p = packed.window_mut((first + start) * words..(first + end) * words);
        let c = counts.window_mut(start * 4..end * 4);
        let params = Params {
            rows: small(end - start),
            samples: small(samples),
            row_bytes: small(row_bytes),
            words: small(words),
            raw0: x.start,
            packed0: p.start,
            counts0: c.start,
        };
        let grid = Grid::linear(end - start, limits.groups_per_axis, (end - start) * samples)?;
        device.launch(&PACK_GENOTYPES, &spec(coding), grid, &[x.arg, p.arg, c.arg], &params)?;
    }
    let counts = if samples == 0 { Tensor::zeros(device, &[rows, 4])? } else { counts };
    Ok(PendingCounts { counts: counts.download()?, samples })
}
