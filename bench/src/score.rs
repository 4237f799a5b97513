//! One number for a device, and the seconds of a large job that its rate foretells.

use crate::{
    report::{DeviceReport, Entry},
    table::number,
};

/// The version of the score: its jobs and their references. Scores of different versions do not compare.
pub(crate) const VERSION: u32 = 1;

/// The job whose rate foretells the [`headline`].
pub(crate) const PASS: &str = "job packed pass, codes";
pub(crate) const PAIRS: &str = "job pair sums, products of codes";
pub(crate) const CITY_BLOCK: &str = "job cityblock distances, terms";
pub(crate) const GAUSSIAN: &str = "job Gaussian of 3, voxels";
pub(crate) const STREAM: &str = "job streamed product, elements";

/// The jobs, and their rates in 10^9 a second on the reference, rounded: the cpu device on two cores of an Intel Xeon with AVX-512.
/// `benches/results/devices` has the measurement.
const JOBS: [(&str, f64); 5] =
    [(PASS, 3.6), (PAIRS, 470.0), (CITY_BLOCK, 46.0), (GAUSSIAN, 0.45), (STREAM, 0.74)];

/// Returns the geometric mean of the rates of five jobs, of which the reference has 100; `None` if a job was not measured. The sizes are those
/// that fit the device and the time, so scores of other sizes tell less.
pub(crate) fn score(device: &DeviceReport) -> Option<f64> {
    let logs = JOBS.iter().map(|(id, reference)| Some((device.entry(id)?.median / reference).ln()));
    let sum = logs.sum::<Option<f64>>()?;
    Some(100.0 * (sum / JOBS.len() as f64).exp())
}

/// Returns the line of the score, if its jobs were measured.
pub(crate) fn line(device: &DeviceReport) -> Option<String> {
    let score = number(score(device)?);
    Some(format!("score {VERSION}: {score}; two cores of an Intel Xeon have 100"))
}

/// Returns a line on the decomposition of 10,000,000 x 20,000 genotypes, ten components without power iterations, if its pass was measured.
///
/// Sixteen V100 took 10 to 15 s for it in "Very large SVDs" (blog.dask.org, 2020), with the genotypes in their memory.
pub(crate) fn headline(device: &DeviceReport) -> Option<String> {
    let Entry { median, size, .. } = device.entry(PASS)?;
    let seconds = 2.0 * 1e7 * 2e4 / (median * 1e9);
    let text = number(seconds);
    let job = "10,000,000 x 20,000 codes, ten components, no power iteration";
    let left_out = "for two passes, if the codes are in its memory; what the host adds is left out";
    let peer = "Sixteen V100 took 10 to 15 s (blog.dask.org, 2020)";
    Some(format!("{job}: about {text} s, extrapolated from {size}, {left_out}. {peer}."))
}

#[cfg(test)]
mod tests {
    use teatime::Device;

    use super::*;
    use crate::report::Unit;

    #[test]
    fn the_reference_has_100() {
        let mut device = DeviceReport::new(&Device::cpu());
        for (i, (id, rate)) in JOBS.iter().enumerate() {
            assert_eq!((score(&device), headline(&device).is_some()), (None, i > 0));
            device.entries.push(Entry::of_runs(id, "1x1", Unit::Rate, [*rate; 3]));
        }
        assert!(score(&device).is_some_and(|score| (score - 100.0).abs() < 1e-9));
        device.entries[2].median *= 32.0;
        assert!(score(&device).is_some_and(|score| (score - 200.0).abs() < 1e-9));
    }
}
