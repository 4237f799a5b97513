//! The form in which genotypes reach a device, and how they are counted.

use std::sync::Arc;

use rayon::prelude::*;
use teatime::{
    Result, StoredType,
    linalg::Stats,
    stream::{AsStored, Convert, Narrowed},
    to_usize,
};

use super::{
    conversion::Conversion,
    source::{GenotypeKind, Genotypes},
};

/// The form in which a block reaches the device and stays there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Codes of two bits, and the dosage code that each becomes.
    Packed([u8; 4]),
    /// Whole dosages, in bytes.
    Dosages,
    Fractions,
}

/// Copies of A1 for each of PLINK's codes; 3 is a missing call.
const A1_COUNTED: [u8; 4] = [2, 3, 1, 0];
/// Copies of A2 for each of these codes.
const A2_COUNTED: [u8; 4] = [0, 3, 1, 2];

/// The form of codes that the host made, which stay as they are.
const AS_THEY_ARE: Form = Form::Packed([0, 1, 2, 3]);

impl Form {
    /// Returns the form of these genotypes, and how they are converted for the device. `bounded` is true if dosages above the ploidy are an error.
    pub(crate) fn new(genotypes: &Genotypes, bounded: bool) -> (Self, Arc<dyn Convert>) {
        let (form, mut conversion) = match genotypes.kind() {
            GenotypeKind::Plink => {
                let codes = if genotypes.counted_allele() == Some(0) { A2_COUNTED } else { A1_COUNTED };
                return (Self::Packed(codes), Arc::new(AsStored(StoredType::U8)));
            }
            GenotypeKind::Calls { ploidy } => {
                let form = if ploidy <= 2 { AS_THEY_ARE } else { Self::Dosages };
                (form, Conversion::of_calls(ploidy, genotypes.counted_allele()))
            }
            GenotypeKind::Dosages => {
                let floats = [StoredType::F16, StoredType::F32, StoredType::F64];
                let fractional = genotypes.arrays().iter().any(|array| floats.contains(&array.dtype()));
                let of_dosages = |to, most| Conversion::of_dosages(to, most, genotypes.nan_is_missing);
                match (fractional, bounded) {
                    // Dosages are checked to be at most 2, so they fit two bits.
                    (false, true) => (AS_THEY_ARE, Conversion::of_codes()),
                    (false, false) => (Self::Dosages, of_dosages(Narrowed::I8, 127.0)),
                    (true, true) => (Self::Fractions, of_dosages(Narrowed::F32, genotypes.ploidy() as f64)),
                    (true, false) => (Self::Fractions, of_dosages(Narrowed::F32, f32::MAX.into())),
                }
            }
        };
        conversion.further = genotypes.further.clone();
        (form, Arc::new(conversion))
    }

    /// Returns the name of the type in which a genotype is held.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Packed(_) => "two bits",
            Self::Dosages => "bytes",
            Self::Fractions => "f32",
        }
    }

    pub(crate) const fn is_packed(self) -> bool {
        matches!(self, Self::Packed(_))
    }

    /// Returns true if sums of dosages are integers.
    pub(crate) const fn is_exact(self) -> bool {
        !matches!(self, Self::Fractions)
    }
}

/// A function that waits for the sums of each row of a block.
pub(crate) type Sums = Box<dyn FnOnce() -> Result<Vec<Stats>>>;

/// A block whose sums are being computed, and the index after its last row.
pub(crate) type Counting = (u64, Sums);

/// Computes sums in f64 of rows of f32, in which negative is missing. Sums in f32 could not distinguish a constant row from one that varies a little.
pub(crate) fn float_sums(rows: &[u8], samples: u64) -> Vec<Stats> {
    let samples = to_usize(samples);
    let (values, _) = rows.as_chunks::<4>();
    let sums = |row: &[[u8; 4]]| {
        let called = row.iter().map(|bytes| f64::from(f32::from_ne_bytes(*bytes))).filter(|x| *x >= 0.0);
        called.fold(Stats::default(), |Stats { sum, sum_squares, count, bad }, x| Stats {
            sum: sum + x,
            sum_squares: sum_squares + x * x,
            count: count + 1,
            bad,
        })
    };
    values.par_chunks(samples).map(sums).collect()
}
