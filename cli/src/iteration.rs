//! The options of the randomized decomposition, and the warning about components that it has not found.

use clap::Args;
use teatime::linalg::{Stop, SvdOptions};

use crate::{failure::Failure, text};

/// The options of the randomized method.
#[derive(Args, Debug)]
pub(crate) struct IterationArgs {
    /// Randomized, also with auto: this many iterations, in N + 2 products with the matrix, a pass each where the device does not hold it
    #[arg(long, value_name = "N", conflicts_with = "tolerance")]
    power_iterations: Option<u32>,
    /// Randomized: iterate until |AᵀA v - s² v| / (s s₁) of every component is at most T [default: 1e-4]
    ///
    /// With auto, the exact method where that costs less: it is within any tolerance.
    #[arg(long, value_name = "T", value_parser = tolerance)]
    tolerance: Option<f64>,
    /// Randomized: most products with the matrix, a pass over its rows each
    #[arg(long, value_name = "N", default_value_t = SvdOptions::default().max_passes)]
    max_passes: u32,
    /// Randomized: extra vectors of each block [default: 10; to a tolerance, what makes 10 vectors in all]
    ///
    /// With a fixed number of iterations they are what makes the result good. To a tolerance they cost more
    /// than the passes that they save: all blocks are kept, and the components found among them all.
    #[arg(long, value_name = "N")]
    oversamples: Option<usize>,
    /// Randomized: seed of the first block
    #[arg(long, value_name = "N", default_value_t = SvdOptions::default().seed)]
    pub(crate) seed: u64,
    /// Go on where a run was stopped, or begin one that can be gone on with
    ///
    /// Randomized, also with auto: DIR keeps the product of each pass in COMMAND.checkpoint, 8 bytes for each sample (of svd, column of the
    /// matrix) and column of a block, until the results are there. Ends with the same bytes wherever runs were stopped. The first pass, of
    /// counts or means, is made again. The input's files and the options have to be the same, but for those that say when to stop, and those
    /// of memory, threads and output.
    #[arg(long)]
    pub(crate) resume: bool,
}

impl IterationArgs {
    fn stop(&self) -> Option<Stop> {
        self.power_iterations.map(Stop::PowerIterations).or(self.tolerance.map(Stop::Tolerance))
    }

    pub(crate) fn options(&self) -> SvdOptions {
        let options = SvdOptions::default();
        let stop = self.stop().unwrap_or(options.stop);
        options.oversamples(self.oversamples).stop(stop).max_passes(self.max_passes).seed(self.seed)
    }

    /// Returns the method that `asked` and these options ask for, and the reason if it is not `asked`: `randomized` in place of `auto` to
    /// resume, since the choice of auto depends on the memory that is free, and for a number of iterations, since the exact method meets any
    /// tolerance. Fails for the exact method and an option of when the iteration stops, or to resume.
    pub(crate) fn method<M: Copy + PartialEq>(
        &self,
        asked: M,
        [auto, exact, randomized]: [M; 3],
    ) -> Result<(M, Option<&'static str>), Failure> {
        if asked == exact && self.stop().is_some() {
            let why = "--power-iterations and --tolerance are for --method randomized, not exact";
            return Err(Failure::Usage(why.into()));
        }
        if asked == exact && self.resume {
            let why = "--resume is for --method randomized; the exact method makes one pass, which is not gone on with";
            return Err(Failure::Usage(why.into()));
        }
        Ok(match (self.resume, self.power_iterations) {
            _ if asked != auto => (asked, None),
            (true, _) => (randomized, Some("asked for by --resume")),
            (_, Some(_)) => (randomized, Some("asked for by --power-iterations")),
            _ => (asked, None),
        })
    }
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value > 0.0 && value < 1.0 => Ok(value),
        _ => Err("not a number above 0 and below 1".into()),
    }
}

/// Returns a warning of components that have not converged in `passes`.
pub(crate) fn unconverged(
    converged: &[bool],
    residuals: &[f64],
    passes: u32,
    options: &SvdOptions,
) -> Option<String> {
    let n = converged.iter().filter(|converged| !**converged).count() as u64;
    let worst = residuals.iter().copied().fold(0.0, f64::max);
    let (tolerance, advice) = match options.stop {
        Stop::Tolerance(t) => (t, "--max-passes"),
        _ => (1e-4, "--power-iterations, or give --tolerance"),
    };
    let components = text::plural(converged.len() as u64, "component");
    let passes = text::plural(passes.into(), "pass");
    let (worst, tolerance) = (text::general(worst, 2), text::general(tolerance, 2));
    (n > 0).then(|| {
        format!(
            "{n} of {components} did not converge in {passes}: the largest residual is {worst}, not at most {tolerance}; \
             raise {advice}"
        )
    })
}
