//! The counts of each variant over the called samples.

use std::ops::Range;

use teatime::{Error, Result, linalg::Stats, to_usize};

const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The number of variants that are digested at a time.
const AT_ONCE: usize = 4096;

/// Sums over the called samples of each variant, in order.
#[derive(Debug)]
pub(crate) struct CallCounts {
    samples: u64,
    pub(crate) by_variant: CountsByVariant,
    pub(crate) digest: u64,
}

/// The counts of each variant, in order, over the samples with a call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum CountsByVariant {
    /// The numbers of dosages of 1, of dosages of 2, and of missing ones, if dosages are 0, 1 and 2.
    Codes(Vec<[u32; 3]>),
    /// The sums of other dosages.
    Dosages(Vec<Stats>),
}

impl CountsByVariant {
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Codes(codes) => codes.len(),
            Self::Dosages(sums) => sums.len(),
        }
    }

    /// Adds the counts of the next variants; returns false if they are of another kind.
    #[must_use]
    pub(crate) fn append(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Codes(codes), Self::Codes(other)) => codes.extend_from_slice(other),
            (Self::Dosages(sums), Self::Dosages(other)) => sums.extend_from_slice(other),
            _ => return false,
        }
        true
    }
}

impl CallCounts {
    /// Creates empty counts, with room for `variants` variants. `codes` is true if dosages are 0, 1 and 2.
    pub(crate) fn new(variants: u64, samples: u64, codes: bool) -> Result<Self> {
        let by_variant = match codes {
            true => CountsByVariant::Codes(with_room(variants)?),
            false => CountsByVariant::Dosages(with_room(variants)?),
        };
        Ok(Self { samples, by_variant, digest: FNV_OFFSET })
    }

    pub(crate) const fn bytes_of(codes: bool) -> u64 {
        if codes { size_of::<[u32; 3]>() as u64 } else { size_of::<Stats>() as u64 }
    }

    pub(crate) fn push(&mut self, stats: &[Stats]) {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole numbers of 32 bits"
        )]
        let counts = |stats: &Stats| {
            let twos = (stats.sum_squares - stats.sum) / 2.0;
            [(stats.sum - 2.0 * twos) as u32, twos as u32, (self.samples - stats.count) as u32]
        };
        match &mut self.by_variant {
            CountsByVariant::Codes(codes) => codes.extend(stats.iter().map(counts)),
            CountsByVariant::Dosages(sums) => sums.extend_from_slice(stats),
        }
        self.digest_next(stats);
    }

    /// Adds the counts of the next variants, made elsewhere; returns false if they are of another kind, or of more samples than there are.
    #[must_use]
    pub(crate) fn append(&mut self, other: &CountsByVariant) -> bool {
        let (len, samples) = (self.len(), self.samples);
        let fits = match other {
            CountsByVariant::Codes(codes) => codes
                .iter()
                .all(|counts| counts.iter().map(|&count| u64::from(count)).sum::<u64>() <= samples),
            CountsByVariant::Dosages(sums) => sums.iter().all(|stats| stats.count <= samples),
        };
        if !fits || !self.by_variant.append(other) {
            return false;
        }
        for first in (len..self.len()).step_by(AT_ONCE) {
            self.digest_next(&self.stats(first..self.len().min(first + AT_ONCE)));
        }
        true
    }

    fn digest_next(&mut self, stats: &[Stats]) {
        let bytes = stats
            .iter()
            .flat_map(|stats| stats.sum.to_le_bytes().into_iter().chain(stats.count.to_le_bytes()));
        self.digest = bytes.fold(self.digest, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(FNV_PRIME));
    }

    pub(crate) fn stats(&self, variants: Range<usize>) -> Vec<Stats> {
        match &self.by_variant {
            CountsByVariant::Codes(codes) => {
                codes[variants].iter().map(|counts| stats(*counts, self.samples)).collect()
            }
            CountsByVariant::Dosages(sums) => sums[variants].to_vec(),
        }
    }

    /// Returns the number of samples without a call of a variant.
    pub(crate) fn missing(&self, variant: usize) -> u64 {
        match &self.by_variant {
            CountsByVariant::Codes(codes) => codes[variant][2].into(),
            CountsByVariant::Dosages(sums) => self.samples - sums[variant].count,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.by_variant.len()
    }
}

fn with_room<T>(variants: u64) -> Result<Vec<T>> {
    let (mut counts, requested) = (Vec::new(), variants.saturating_mul(size_of::<T>() as u64));
    let full = |_| Error::OutOfMemory { requested, free: None };
    counts.try_reserve_exact(to_usize(variants)).map_err(full)?;
    Ok(counts)
}

/// Returns the sums of dosages from the numbers of dosages that are 1, 2 and missing.
fn stats([ones, twos, missing]: [u32; 3], samples: u64) -> Stats {
    let [ones, twos] = [ones, twos].map(f64::from);
    Stats {
        sum: ones + 2.0 * twos,
        sum_squares: ones + 4.0 * twos,
        count: samples - u64::from(missing),
        bad: 0,
    }
}
