//! How genotypes reach a device, and how they are counted there.

use std::ops::Range;

use rayon::prelude::*;

use super::{
    panel::{Held, Panel},
    source::{CountedAllele, GenotypeKind, Genotypes},
};
use crate::{
    Result, StoredType, Tensor,
    kernels::{cpu::calls::Calls, pack_genotypes::Coding},
    linalg::{Stats, reduce::PendingStats},
    packed::pack::PendingCounts,
    stream::{Narrow, Negative, Staged},
};

/// How a block reaches the device, and what it becomes there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Codes of two bits.
    Packed(Coding),
    /// Dosages of calls of more alleles than two, in bytes.
    Calls { ploidy: u64 },
    /// Dosages as they are stored, in bytes.
    Dosages,
    /// Fractional dosages.
    Fractions,
}

impl Form {
    /// The form of these genotypes, and how they are narrowed on the way. `bounded`: whether dosages above the ploidy are
    /// an error.
    pub(crate) fn new(genotypes: &Genotypes, bounded: bool) -> (Self, Narrow) {
        let calls =
            Narrow { staged: Staged::I8, negative: Negative::Codes, max: 127.0, nan_is_missing: false };
        // The host packs while it copies where it can, so that a fraction of the bytes go to the device.
        let packed = |what: Calls, coding, narrow: Narrow| match Staged::codes(what, genotypes.arrays()) {
            Some(staged) => (Self::Packed(Coding::Codes), Narrow { staged, ..narrow }),
            None => (Self::Packed(coding), narrow),
        };
        match genotypes.kind() {
            GenotypeKind::Calls { ploidy: 1 } => packed(Calls::Haploid, Coding::Haploid, calls),
            GenotypeKind::Calls { ploidy: 2 } => packed(Calls::Diploid, Coding::Diploid, calls),
            GenotypeKind::Calls { ploidy } => (Self::Calls { ploidy }, calls),
            GenotypeKind::Plink { counted } => {
                let coding = if counted == CountedAllele::A1 { Coding::PlinkA1 } else { Coding::PlinkA2 };
                (Self::Packed(coding), Narrow { staged: Staged::Bytes, ..calls })
            }
            GenotypeKind::Dosages => {
                let floats = [StoredType::F16, StoredType::F32, StoredType::F64];
                let fractional = genotypes.arrays().iter().any(|array| floats.contains(&array.dtype()));
                let staged = if fractional { Staged::F32 } else { Staged::I8 };
                let narrow = |max| Narrow {
                    staged,
                    negative: Negative::Missing,
                    max,
                    nan_is_missing: genotypes.nan(),
                };
                let ploidy = genotypes.ploidy() as f64;
                match (fractional, bounded) {
                    // At most 2, which is checked, fits two bits.
                    (false, true) => packed(Calls::Dosages, Coding::Dosages, narrow(ploidy)),
                    (false, false) => (Self::Dosages, narrow(127.0)),
                    (true, true) => (Self::Fractions, narrow(ploidy)),
                    (true, false) => (Self::Fractions, narrow(f64::from(f32::MAX))),
                }
            }
        }
    }

    /// Whether the device holds codes of two bits.
    pub(crate) const fn is_packed(self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// Whether sums of dosages are of integers.
    pub(crate) const fn is_exact(self) -> bool {
        !matches!(self, Self::Fractions)
    }

    /// Why a stored value is none of this form, if it is not.
    fn refuses(self, value: f32) -> bool {
        let (least, most) = match self {
            Self::Packed(Coding::Dosages) => (-1.0, 2.0),
            // A haploid or diploid call may be padded; calls of more alleles may not.
            Self::Packed(_) => (-2.0, f32::MAX),
            _ => (-1.0, f32::MAX),
        };
        !(least..=most).contains(&value)
    }
}

/// A block whose sums are on their way.
pub(crate) struct Counting {
    pub(crate) rows: Range<u64>,
    pub(crate) sums: Sums,
    /// What was uploaded, to find a bad value in.
    pub(crate) raw: Option<Tensor<u8>>,
}

/// Sums of each row of a block.
pub(crate) enum Sums {
    /// Exact integers, counted while rows are packed.
    Packed(PendingCounts),
    /// Exact integers, from the device.
    Device(PendingStats),
    /// Of fractional dosages, in f64: sums of f32 cannot tell a constant row from one that varies a little.
    Host(Vec<Stats>),
}

impl Sums {
    pub(crate) fn wait(self) -> Result<Vec<Stats>> {
        match self {
            Self::Packed(pending) => pending.wait(),
            Self::Device(pending) => pending.wait(),
            Self::Host(stats) => Ok(stats),
        }
    }
}

/// The first value of a block's row that is no genotype, and its sample.
pub(crate) fn bad_value(
    form: Form,
    row: usize,
    samples: u64,
    panel: &Panel,
    raw: Option<&Tensor<u8>>,
) -> Result<(usize, f32)> {
    let samples = usize::try_from(samples).unwrap_or(usize::MAX);
    let values: Vec<f32> = match (raw, &panel.held) {
        (Some(raw), _) => {
            let width = usize::try_from(raw.shape()[1]).unwrap_or(usize::MAX);
            let bytes = &raw.read()?[row * width..][..width];
            bytes.iter().map(|&byte| f32::from(byte.cast_signed())).collect()
        }
        (None, Held::I8(x)) => x.read()?[row * samples..][..samples].iter().map(|&x| f32::from(x)).collect(),
        (None, Held::F32(x)) => x.read()?[row * samples..][..samples].to_vec(),
        (None, Held::Packed(_)) => Vec::new(),
    };
    let at = values.iter().position(|&x| form.refuses(x)).unwrap_or(0);
    let sample = if form == Form::Packed(Coding::Diploid) { at / 2 } else { at };
    Ok((sample, values.get(at).copied().unwrap_or(f32::NAN)))
}

/// Sums in f64 of the rows of a filled slot; negative is missing.
pub(crate) fn float_sums(slot: &[u8], rows: u64, samples: u64) -> Vec<Stats> {
    let [rows, samples] = [rows, samples].map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    let (values, _) = slot[..rows * samples * 4].as_chunks::<4>();
    let sums = |row: &[[u8; 4]]| {
        row.iter().map(|bytes| f32::from_ne_bytes(*bytes)).filter(|x| *x >= 0.0).map(f64::from).fold(
            Stats::default(),
            |sum, x| Stats {
                sum: sum.sum + x,
                sum_squares: sum.sum_squares + x * x,
                count: sum.count + 1,
                bad: 0,
            },
        )
    };
    values.par_chunks(samples).map(sums).collect()
}
