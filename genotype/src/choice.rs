//! The choice of a PCA's method: by the shape and the budgets, never by the device, so that the answer is not the device's
//! either.

use teatime::{Needs, linalg::gram_svd_seconds, packed::Gram};

use super::{
    memory::{Memory, columns, eigenvectors, passes},
    options::{Method, PcaOptions},
    pair_sums::PairAccumulator,
    reader::Reader,
};

/// Seconds of one core of a CPU that each method is expected to take, whatever the device: a measure to compare them by.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MethodCosts {
    /// The Gram matrix of the samples, and its eigenvectors.
    pub exact: f64,
    /// Passes as they are asked for, or as flat spectra take.
    pub randomized: f64,
}

/// Seconds of a multiplication of a product in f32, of which one core makes some at a time.
const STEP: f64 = 1e-11;
/// Passes that flat spectra, such as those of genotypes, take to the default tolerance, with few columns more than
/// components.
const FLAT_PASSES: u64 = 20;

impl MethodCosts {
    /// `stays` is true where genotypes are read once.
    fn new(reader: &Reader, options: &PcaOptions, stays: bool) -> Self {
        let (m, n) = (reader.variants(), reader.samples());
        let packed = reader.form.is_packed();
        let genotypes = m as f64 * n as f64;
        // In whole numbers of two bytes the Gram matrix of common variants takes a third of what it takes in f32, of three
        // half as much again.
        let product = if packed { Gram::limb_count(m) as f64 / 6.0 } else { 1.0 };
        let gram = STEP * genotypes * n as f64 * product;
        // Four steps for each column of a pass, and a hundred to read a genotype again.
        let step = 4 * columns(n, options) + if packed && stays { 0 } else { 100 };
        let passes = passes(options).min(FLAT_PASSES);
        Self {
            exact: gram + gram_svd_seconds(n, options.components as u64),
            randomized: STEP * genotypes * passes as f64 * step as f64,
        }
    }
}

/// A method, why it, and what both are expected to cost.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    /// Never [`Method::Auto`].
    pub(super) method: Method,
    pub(super) reason: String,
    pub(super) costs: MethodCosts,
}

impl Choice {
    /// The memory that the exact method takes.
    pub(super) fn exact(reader: &Reader) -> Needs {
        PairAccumulator::needs(reader, false, false) + eigenvectors(reader)
    }

    /// With what is needed `beside`.
    pub(super) fn new(memory: &Memory, reader: &Reader, options: &PcaOptions, beside: Needs) -> Self {
        let n = reader.samples();
        let costs = MethodCosts::new(reader, options, memory.holds(reader));
        let passes = passes(options).min(FLAT_PASSES);
        let (method, reason) = if options.method != Method::Auto {
            (options.method, "asked for".into())
        } else if !memory.fits(reader, Self::exact(reader) + beside) {
            let why = format!("the {n} x {n} Gram matrix of the samples does not fit the memory budget");
            (Method::Randomized, why)
        } else if costs.exact <= costs.randomized {
            let why = format!(
                "one pass with the {n} x {n} Gram matrix costs less than the {passes} passes that are expected"
            );
            (Method::Exact, why)
        } else {
            let why = format!(
                "the {passes} passes that are expected cost less than the {n} x {n} Gram matrix of the samples"
            );
            (Method::Randomized, why)
        };
        Self { method, reason, costs }
    }
}

#[cfg(test)]
mod tests {
    use teatime::{Budget, Run, linalg::SvdOptions};

    use super::*;
    use crate::memory::tests::{Long, reader};

    #[test]
    fn the_method_follows_shape_and_budget_and_not_the_device() {
        let run = Run::default().memory(Budget::default().host(8 << 30).device(8 << 30));
        for (shape, expected) in [
            ([166_000, 1000], Method::Exact),
            // Three bytes, and still cheaper.
            ([100_000, 1000], Method::Exact),
            // The full decomposition would have cost more than the passes.
            ([200_000, 2400], Method::Exact),
            ([100_000, 5000], Method::Randomized),
            ([100_000, 20_000], Method::Randomized),
            // Too many genotypes to hold, so that each pass would read them.
            ([10_000_000, 4000], Method::Exact),
        ] {
            let reader = reader(Long(shape));
            let options = PcaOptions::default().svd(SvdOptions::default().oversamples(10));
            let mut memory = Memory::new(&reader.device, &run).unwrap();
            let chosen = [true, false].map(|shared| {
                memory.shared = shared;
                Choice::new(&memory, &reader, &options, Needs::default())
            });
            assert_eq!(chosen[0].method, expected, "{shape:?}: {chosen:?}");
            assert_eq!(chosen[0], chosen[1], "{shape:?}");
            let costs = chosen[0].costs;
            assert_eq!(costs.exact <= costs.randomized, expected == Method::Exact, "{costs:?}");
        }
    }
}
