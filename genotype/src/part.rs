//! Counts and sums over some of the variants, as plain data.

use std::ops::Range;

use teatime::{Error, Result, linalg::Stats, stream::digest};

use super::counts::CountsByVariant;
#[cfg(doc)]
use super::{Cohort, Wanted};

/// The counts and sums that [`Cohort::part`] makes over consecutive variants, as plain data that can go to another process or a file.
///
/// Parts of neighbouring variants [`merge`](Self::merge), and [`Cohort::of_part`] takes the part that has all variants.
#[derive(Clone, Debug, PartialEq)]
pub struct CohortPart {
    /// The indices of the part's variants among all variants.
    pub rows: Range<u64>,
    /// The number of variants of the whole matrix.
    pub variants: u64,
    /// The number of samples.
    pub samples: u64,
    /// True if dosages above the ploidy were an error.
    pub bounded: bool,
    /// A description of the genotypes, which parts of the same genotypes share.
    pub genotypes: String,
    /// The counts of each of the part's variants.
    pub counts: CountsByVariant,
    /// The sums over the part's variants.
    pub sums: Vec<PartSums>,
}

/// Sums over the variants of a part.
#[derive(Clone, Debug, PartialEq)]
pub struct PartSums {
    /// A description of the sums, with the scaling and filter of variants or the reference. It begins with one of these words.
    ///
    /// For each pair of samples, a lower triangle row by row:
    /// - "products": sums of standardised dosages' products. Integer sums are of dosages times scales, before means are
    ///   subtracted: the means of rows and columns still have to be subtracted for the Gram matrix, unless the scaler is none.
    ///   Missing calls count as the mean, and dosages as 2 less the dosage if the mean is above 1 and will be subtracted;
    /// - "shared" and "variance": sums of 1 and of k p (1 - p) over variants that pass the filter. Integer sums are over the variants
    ///   missing in both samples; other sums are over the variants called in both, in blocks of variants with a missing call.
    ///
    /// For each sample, integer sums in units that follow from the reference, row by row of (samples, columns):
    /// - "scores": a column for each component, before means are subtracted, and a last column of missing calls;
    /// - "pairs of loadings": a column for each pair of components, a lower triangle, over the missing calls.
    ///
    /// Sums of f64 are transposed: "scores" of standardised dosages, "pairs of loadings" over calls, and "missing calls".
    pub name: String,
    /// The sums.
    pub values: SumValues,
}

/// The values of [`PartSums`].
#[derive(Clone, Debug, PartialEq)]
pub enum SumValues {
    /// Exact sums, over genotypes of two bits.
    Whole {
        /// The sums as multiples of `unit`.
        values: Vec<i64>,
        /// The unit, a power of two.
        unit: f64,
    },
    /// Sums over other genotypes.
    Real(Vec<f64>),
}

impl SumValues {
    /// Adds sums of the same kind, number and unit; returns false if `other` differs in these. Only sums of a forged part exceed 64 bits.
    fn add(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Whole { values, unit }, Self::Whole { values: others, unit: other })
                if values.len() == others.len() && unit == other =>
            {
                values.iter_mut().zip(others).for_each(|(sum, other)| *sum = sum.wrapping_add(*other));
            }
            (Self::Real(values), Self::Real(others)) if values.len() == others.len() => {
                values.iter_mut().zip(others).for_each(|(sum, other)| *sum += other);
            }
            _ => return false,
        }
        true
    }
}

impl CohortPart {
    /// Merges the counts and sums of two parts, whose variants are next to each other, into one part.
    ///
    /// Integer sums are the same to the bit whatever the order of merging. Sums of f64 are rounded at
    /// each merge: in the same order they are the same to the bit; in another order, and compared with
    /// [`Cohort::load`], they differ by about 1e-16 of the largest sums (1e-14 if a device has no f64).
    ///
    /// # Errors
    /// [`Error::Argument`] for variants that both parts have, or that lie between the parts; for genotypes of other shapes, types,
    /// selections or readings (different stores of one shape are not noticed); for other wanted results; for sums of another unit.
    pub fn merge(mut self, mut other: Self) -> Result<Self> {
        let refuse = |why: String| Err(Error::argument("CohortPart::merge", "other", why));
        if other.rows.start < self.rows.start {
            std::mem::swap(&mut self, &mut other);
        }
        if self.words() != other.words() {
            return refuse(format!("one part is of {}, the other of {}", self.words(), other.words()));
        }
        if self.rows.end != other.rows.start {
            let what = if self.rows.end > other.rows.start { "overlap" } else { "leave a gap" };
            return refuse(format!("the variants {:?} and {:?} {what}", self.rows, other.rows));
        }
        if self.names() != other.names() {
            let (names, others) = (self.names(), other.names());
            return refuse(format!("wanted differ: one part has {names}; the other {others}"));
        }
        for (sums, other) in self.sums.iter_mut().zip(&other.sums) {
            if !sums.values.add(&other.values) {
                return refuse(format!("{} differ in kind, number or unit", sums.name));
            }
        }
        if !self.counts.append(&other.counts) {
            return refuse("counts differ in kind".into());
        }
        self.rows.end = other.rows.end;
        Ok(self)
    }

    fn names(&self) -> String {
        let names: Vec<&str> = self.sums.iter().map(|sums| &*sums.name).collect();
        if names.is_empty() { "no sums".into() } else { names.join(", ") }
    }

    pub(super) fn bytes(&self) -> u64 {
        let of_sums = |sums: &PartSums| match &sums.values {
            SumValues::Whole { values, .. } => size_of_val(&values[..]),
            SumValues::Real(values) => size_of_val(&values[..]),
        };
        let of_counts = match &self.counts {
            CountsByVariant::Codes(codes) => size_of_val(&codes[..]),
            CountsByVariant::Dosages(stats) => size_of_val(&stats[..]),
        };
        (of_counts + self.sums.iter().map(of_sums).sum::<usize>()) as u64
    }

    /// Returns a description that all parts of the same genotypes share.
    pub(super) fn words(&self) -> String {
        format!("{} variants of {} samples, {}", self.variants, self.samples, self.genotypes)
    }

    pub(super) fn find(&self, name: &str) -> Result<&SumValues> {
        let sums = self.sums.iter().find(|sums| sums.name == name);
        let why = || format!("{name} are wanted, and it has {}", self.names());
        sums.map(|sums| &sums.values).ok_or_else(|| Error::argument("Cohort::of_part", "part", why()))
    }

    /// Returns the part as bytes, which are the same on every system:
    /// [`from_bytes`](Self::from_bytes) reads them. They take about as much memory as the part.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        let words = self.genotypes.len() + self.sums.iter().map(|sums| sums.name.len() + 24).sum::<usize>();
        out.reserve_exact(usize::try_from(self.bytes()).unwrap_or(0) + words + 72);
        let number = |out: &mut Vec<u8>, number: u64| out.extend(number.to_le_bytes());
        let text = |out: &mut Vec<u8>, text: &str| {
            number(out, text.len() as u64);
            out.extend(text.as_bytes());
        };
        let Range { start, end } = self.rows;
        [start, end, self.variants, self.samples, self.bounded.into()]
            .into_iter()
            .for_each(|n| number(&mut out, n));
        text(&mut out, &self.genotypes);
        match &self.counts {
            CountsByVariant::Codes(codes) => {
                number(&mut out, CODES);
                out.extend(codes.as_flattened().iter().flat_map(|count| count.to_le_bytes()));
            }
            CountsByVariant::Dosages(stats) => {
                number(&mut out, DOSAGES);
                let words = |stats: &Stats| {
                    [stats.sum.to_bits(), stats.sum_squares.to_bits(), stats.count, stats.bad]
                };
                stats.iter().flat_map(words).for_each(|word| number(&mut out, word));
            }
        }
        number(&mut out, self.sums.len() as u64);
        for PartSums { name, values } in &self.sums {
            text(&mut out, name);
            let (unit, words): (u64, &[u64]) = match values {
                SumValues::Whole { values, unit } => (unit.to_bits(), bytemuck::cast_slice(values)),
                SumValues::Real(values) => (0, bytemuck::cast_slice(values)),
            };
            [unit, words.len() as u64].iter().chain(words).for_each(|word| number(&mut out, *word));
        }
        let sum = digest(out.len() as u64, &out);
        number(&mut out, sum);
        out
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote. Takes memory for the part, which is at most four times the length of `bytes`.
    ///
    /// # Errors
    /// [`Error::Argument`] for bytes of something else or of another version, and for damaged
    /// bytes, which a digest detects; it does not protect against forgery.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let refuse = |why| Err(Error::argument("CohortPart::from_bytes", "bytes", why));
        let (Some((read, sum)), true) = (bytes.split_last_chunk(), bytes.starts_with(&MAGIC)) else {
            return refuse("no part of a cohort, or of another version");
        };
        if u64::from_le_bytes(*sum) != digest(read.len() as u64, read) {
            return refuse("damaged: not what their digest says");
        }
        let part = read.get(MAGIC.len()..).and_then(|bytes| Fields(bytes).part());
        part.map_or_else(|| refuse("not what a part holds"), Ok)
    }
}

/// The magic bytes with which a part begins; the last byte is the version.
const MAGIC: [u8; 8] = *b"teapart\x01";
const CODES: u64 = 0;
const DOSAGES: u64 = 1;

/// The bytes that are still to be read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn part(&mut self) -> Option<CohortPart> {
        let [start, end, variants, samples, bounded] =
            [self.number()?, self.number()?, self.number()?, self.number()?, self.number()?];
        let bounded = bounded != 0;
        let genotypes = self.text()?;
        let count = end.checked_sub(start).filter(|&count| count > 0 && end <= variants)?;
        let counts = match self.number()? {
            CODES => {
                let counts = self.items::<12>(count)?.iter().map(|bytes| bytemuck::pod_read_unaligned(bytes));
                let counts = counts.map(|counts: [[u8; 4]; 3]| counts.map(u32::from_le_bytes));
                CountsByVariant::Codes(counts.collect())
            }
            DOSAGES => {
                let words = self.items::<32>(count)?.iter().map(|bytes| bytemuck::pod_read_unaligned(bytes));
                let stats = words.map(|words: [[u8; 8]; 4]| {
                    let [sum, sum_squares, count, bad] = words.map(u64::from_le_bytes);
                    Stats { sum: f64::from_bits(sum), sum_squares: f64::from_bits(sum_squares), count, bad }
                });
                CountsByVariant::Dosages(stats.collect())
            }
            _ => return None,
        };
        let mut sums = Vec::new();
        for _ in 0..self.number()? {
            let (name, unit, count) = (self.text()?, f64::from_bits(self.number()?), self.number()?);
            let values = self.items(count)?.iter();
            let values = if unit == 0.0 {
                SumValues::Real(values.map(|bytes| f64::from_le_bytes(*bytes)).collect())
            } else {
                SumValues::Whole { values: values.map(|bytes| i64::from_le_bytes(*bytes)).collect(), unit }
            };
            sums.push(PartSums { name, values });
        }
        let part = CohortPart { rows: start..end, variants, samples, bounded, genotypes, counts, sums };
        self.0.is_empty().then_some(part)
    }

    fn number(&mut self) -> Option<u64> {
        self.items(1).map(|bytes| u64::from_le_bytes(bytes[0]))
    }

    fn text(&mut self) -> Option<String> {
        let len = self.number()?;
        let bytes = self.items::<1>(len)?.as_flattened().to_vec();
        String::from_utf8(bytes).ok()
    }

    fn items<const SIZE: usize>(&mut self, count: u64) -> Option<&'a [[u8; SIZE]]> {
        let bytes = usize::try_from(count).ok()?.checked_mul(SIZE)?;
        let (items, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(items.as_chunks().0)
    }
}
