//! Simulated genotypes of diverged populations (Balding-Nichols model), the same for a seed on every machine.
//!
//! Balding and Nichols, "A method for quantifying differentiation between populations at multi-allelic loci and its
//! implications for investigating identity and paternity" (Genetica 96, 1995): a variant has an ancestral frequency p,
//! and in each population a frequency drawn from Beta(p (1 - F) / F, (1 - p) (1 - F) / F), whose variance is F p (1 - p).

use std::{path::Path, sync::Arc};

use rayon::prelude::*;
use teatime::{Cancel, Error, Result, random::philox, to_usize};
use teatime_genotype::{Variant, VcfZarrHeader, VcfZarrWriter};

use crate::progress::Bar;

/// The number of contigs, each with an equal part of the variants.
const CONTIGS: u64 = 4;

/// The cohort that is simulated.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) variants: u64,
    pub(crate) samples: usize,
    pub(crate) populations: usize,
    /// The probability of a missing call.
    pub(crate) missing: f64,
    /// `F_ST`, the distance of the populations.
    pub(crate) fst: f64,
    pub(crate) seed: u64,
}

/// The independent streams of random words.
#[derive(Clone, Copy)]
enum Stream {
    Variant,
    Alleles,
    Missing,
}

impl Model {
    /// Returns the population of a sample. Populations are equal in size and consecutive.
    pub(crate) fn population(&self, sample: usize) -> usize {
        sample * self.populations / self.samples
    }

    pub(crate) fn population_names(&self) -> Vec<String> {
        (1..=self.populations).map(|i| format!("pop{i}")).collect()
    }

    pub(crate) fn sample_names(&self) -> Vec<String> {
        let width = self.samples.to_string().len();
        (0..self.samples).map(|i| format!("pop{}_{:0width$}", self.population(i) + 1, i + 1)).collect()
    }

    /// Writes the store at `path`, on the threads of the current pool.
    pub(crate) fn write(&self, path: &Path, cancel: &Cancel, bar: &Bar) -> Result<()> {
        let contigs = (1..=CONTIGS).map(|i| format!("chr{i}")).collect();
        let mut header = VcfZarrHeader::new(self.sample_names(), contigs, self.variants);
        // Simulated calls hardly compress; a higher level would take most of the demo's time.
        header.level = 1;
        let writer = VcfZarrWriter::create(path, header)?;
        (0..writer.n_chunks()).into_par_iter().try_for_each(|chunk| {
            cancel.check()?;
            let range = writer.chunk_range(chunk);
            let rows = to_usize(range.end - range.start);
            let mut calls = vec![0; rows * self.samples * 2];
            let lines = calls.chunks_mut(self.samples * 2).zip(range.clone());
            let variants: Vec<Variant> = lines.map(|(line, row)| self.variant(row, line)).collect();
            writer.write_chunk(chunk, &calls, &variants)?;
            bar.advance(range.end - range.start);
            Ok::<_, Error>(())
        })?;
        writer.finish()
    }

    fn variant(&self, row: u64, calls: &mut [i8]) -> Variant {
        let mut draws = Draws::new(self.seed, Stream::Variant, row);
        let ancestral = 0.05 + 0.9 * draws.uniform();
        let frequency = |_| threshold(draws.frequency(ancestral, self.fst));
        let frequencies: Vec<u64> = (0..self.populations).map(frequency).collect();
        let missing = threshold(self.missing);
        let [mut alleles, mut holes] =
            [Stream::Alleles, Stream::Missing].map(|stream| Draws::new(self.seed, stream, row));
        for (sample, call) in calls.chunks_mut(2).enumerate() {
            let frequency = frequencies[self.population(sample)];
            call.fill_with(|| i8::from(u64::from(alleles.word()) < frequency));
            if missing > 0 && u64::from(holes.word()) < missing {
                call.fill(-1);
            }
        }
        self.describe(row, &mut draws)
    }

    fn describe(&self, row: u64, draws: &mut Draws) -> Variant {
        let part = self.variants.div_ceil(CONTIGS);
        let (contig, within) = (row / part, row % part);
        // There is about one variant per thousand bases, and never two at one position.
        let step = 1000.min((1 << 31) / part - 1).max(1);
        let reference = draws.word() % 4;
        let alternate = (reference + 1 + draws.word() % 3) % 4;
        let [reference, alternate] =
            [reference, alternate].map(|i| ["A", "C", "G", "T"][i as usize].to_owned());
        Variant {
            contig: Arc::from(format!("chr{}", contig + 1)),
            position: 1 + within * step + u64::from(draws.word()) % step,
            id: format!("sim{}", row + 1),
            reference,
            alternate,
        }
    }
}

/// Returns the threshold that a random word is below with probability p.
fn threshold(p: f64) -> u64 {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "p is between 0 and 1")]
    let threshold = (p * 4_294_967_296.0) as u64;
    threshold
}

/// Random words of one stream for one variant.
struct Draws {
    key: [u32; 2],
    block: u64,
    words: [u32; 4],
    next: usize,
}

impl Draws {
    fn new(seed: u64, stream: Stream, row: u64) -> Self {
        #[allow(clippy::cast_possible_truncation, reason = "the two halves of the seed")]
        let seed = [seed as u32, (seed >> 32) as u32];
        let [a, b, ..] = philox(seed, stream as u64);
        // A variant has 2^30 blocks of words, enough for the maximum number of samples of a store.
        Self { key: [a, b], block: row << 30, words: [0; 4], next: 4 }
    }

    fn word(&mut self) -> u32 {
        if self.next == 4 {
            self.words = philox(self.key, self.block);
            self.block += 1;
            self.next = 0;
        }
        self.next += 1;
        self.words[self.next - 1]
    }

    /// Draws a uniform number between 0 and 1, excluding both.
    fn uniform(&mut self) -> f64 {
        let (high, low) = (u64::from(self.word()), u64::from(self.word()));
        ((high << 20 | low >> 12) as f64 + 0.5) / 2f64.powi(52)
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * libm::log(self.uniform())).sqrt();
        radius * libm::cos(std::f64::consts::TAU * self.uniform())
    }

    /// Draws a gamma variate, by Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = libm::exp(libm::log(self.uniform()) / shape);
            return boost * self.gamma(shape + 1.0);
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let v = (1.0 + c * x) * (1.0 + c * x) * (1.0 + c * x);
            if v > 0.0 && libm::log(self.uniform()) < 0.5 * x * x + d * (1.0 - v + libm::log(v)) {
                return d * v;
            }
        }
    }

    fn frequency(&mut self, ancestral: f64, fst: f64) -> f64 {
        if fst <= 0.0 {
            return ancestral;
        }
        let spread = (1.0 - fst) / fst;
        let (x, y) = (self.gamma(ancestral * spread), self.gamma((1.0 - ancestral) * spread));
        // Both underflow only if nearly every population is fixed.
        if x + y > 0.0 { x / (x + y) } else { ancestral.round() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(fst: f64, missing: f64) -> Model {
        Model { variants: 4000, samples: 60, populations: 3, missing, fst, seed: 7 }
    }

    #[test]
    fn extreme_divergence_stays_between_0_and_1() {
        let draw = |row| Draws::new(3, Stream::Variant, row).frequency(0.05, 0.95);
        assert!((0..2000).map(draw).all(|p| (0.0..=1.0).contains(&p)));
    }

    #[test]
    fn variants_are_in_order() {
        let model = model(0.1, 0.0);
        let mut calls = vec![0; 120];
        let variants: Vec<Variant> = (0..4000).map(|row| model.variant(row, &mut calls)).collect();
        for pair in variants.windows(2) {
            assert!(pair[0].contig < pair[1].contig || pair[0].position < pair[1].position);
            assert_ne!(pair[0].reference, pair[0].alternate);
        }
    }

    #[test]
    fn a_seed_gives_the_same_calls_everywhere() {
        // Computed by a second implementation, in Python.
        let mut calls = vec![0; 120];
        let variant = model(0.1, 0.05).variant(11, &mut calls);
        let digest = calls.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, allele| {
            (hash ^ u64::from(allele.cast_unsigned())).wrapping_mul(0x100_0000_01b3)
        });
        assert_eq!((variant.position, digest), (11_570, 0xcdc2_9edb_2609_5e52));
    }
}
