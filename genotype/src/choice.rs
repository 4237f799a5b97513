//! The choice of a PCA's method, by the shape and the budgets, never by the device, so that the result does not depend on the device either.

use teatime::{Needs, linalg::gram_svd_seconds, packed::Gram};

use super::{
    memory::{Memory, columns, eigenvectors, passes},
    options::{Method, PcaOptions},
    pair_sums::PairAccumulator,
    reader::Reader,
};

/// Seconds that each method is expected to take on one CPU core, whatever the device: a measure for comparing the methods.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct MethodCosts {
    /// The cost of the Gram matrix of the samples and its eigenvectors.
    pub exact: f64,
    /// The cost of the passes: as many as the options ask for, or as a flat spectrum takes.
    pub randomized: f64,
}

/// Seconds of one multiplication in an f32 matrix product; a core does several at a time.
const STEP: f64 = 1e-11;
/// The number of passes that flat spectra, such as those of genotypes, take to reach the default tolerance, with few columns more than components.
const FLAT_PASSES: u64 = 20;

impl MethodCosts {
    /// Estimates both costs. `stays` is true if genotypes are read from the store only once.
    fn new(reader: &Reader, options: &PcaOptions, stays: bool) -> Self {
        let (m, n) = (reader.variants(), reader.samples());
        let packed = reader.form.is_packed();
        let genotypes = m as f64 * n as f64;
        // In 2-byte integers, the Gram matrix of common variants takes a third of the time that it
        // takes in f32; in 3-byte integers it takes half of it.
        let product = if packed { Gram::limb_count(m) as f64 / 6.0 } else { 1.0 };
        let gram = STEP * genotypes * n as f64 * product;
        // Each column of a pass takes four steps, and reading a genotype again takes a hundred.
        let step = 4 * columns(n, options) + if packed && stays { 0 } else { 100 };
        let passes = passes(options).min(FLAT_PASSES);
        Self {
            exact: gram + gram_svd_seconds(n, options.components as u64),
            randomized: STEP * genotypes * passes as f64 * step as f64,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Choice {
    /// The chosen method, never [`Method::Auto`].
    pub(super) method: Method,
    pub(super) reason: String,
    pub(super) costs: MethodCosts,
}

impl Choice {
    pub(super) fn exact(reader: &Reader) -> Needs {
        PairAccumulator::needs(reader, false, false) + eigenvectors(reader)
    }

    /// Chooses a method, if other work needs `beside` as well.
    pub(super) fn new(memory: &Memory, reader: &Reader, options: &PcaOptions, beside: Needs) -> Self {
        let n = reader.samples();
        let costs = MethodCosts::new(reader, options, memory.holds(reader));
        let passes = passes(options).min(FLAT_PASSES);
        let the_gram = format!("the {n} x {n} Gram matrix");
        let the_passes = format!("the {passes} passes that are expected");
        let (method, reason) = if options.method != Method::Auto {
            (options.method, "asked for".into())
        } else if !memory.fits(reader, Self::exact(reader) + beside) {
            (Method::Randomized, format!("{the_gram} of the samples does not fit the memory budget"))
        } else if costs.exact <= costs.randomized {
            (Method::Exact, format!("one pass with {the_gram} costs less than {the_passes}"))
        } else {
            (Method::Randomized, format!("{the_passes} cost less than {the_gram} of the samples"))
        };
        Self { method, reason, costs }
    }
}

#[cfg(test)]
mod tests {
    use teatime::{Budget, Run, linalg::SvdOptions};

    use super::*;
    use crate::memory::tests::{long, reader};

    #[test]
    fn the_method_follows_shape_and_budget_and_not_the_device() {
        let run = Run::default().memory(Budget::default().host(8 << 30).device(8 << 30));
        for (shape, expected) in [
            ([166_000, 1000], Method::Exact),
            // The Gram matrix takes 3-byte integers, and is still cheaper.
            ([100_000, 1000], Method::Exact),
            // The full eigendecomposition would have cost more than the passes.
            ([200_000, 2400], Method::Exact),
            ([100_000, 5000], Method::Randomized),
            ([100_000, 20_000], Method::Randomized),
            // The genotypes do not fit memory, so each pass would read them again.
            ([10_000_000, 4000], Method::Exact),
        ] {
            let reader = reader(long(shape));
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
