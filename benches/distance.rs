//! Distances between observations by every metric, and the nearest ten: `cargo bench -p teatime-bench --bench distance -- 4000x2000` for
//! one shape, observations x features. An element of criterion's throughput is one feature of one pair.
//!
//! `benches/peers/distance.py` times scipy and scikit-learn.

mod support;

use support::{Bench, float, random};
use teatime::{
    Element, Error, Run,
    distance::{Metric, Options, condensed, neighbors, pairwise},
};

fn distances<T: Element>(
    bench: &mut Bench,
    metric: Metric,
    options: Options,
    shape: [u64; 2],
    of: fn(u32) -> T,
) {
    let [n, k] = shape;
    let device = &bench.device.clone();
    let pairs = n * n / if metric.is_symmetric() { 2 } else { 1 };
    let op = format!("{metric}{} {:?}", if options.expanded { " expanded" } else { "" }, T::DTYPE);
    bench.case(&op, &shape, n * k * T::DTYPE.size() + 8 * pairs, Some(pairs * k), || {
        let x = random(device, 1, &shape, of)?;
        Ok(move || {
            let run = Run::default();
            match metric.is_symmetric() {
                true => condensed(&x, metric, &options, &run).map(drop),
                false => pairwise(&x, None, metric, &options, &run).map(drop),
            }
        })
    });
}

fn main() -> Result<(), Error> {
    let mut bench = Bench::new()?;
    for shape in [[1000, 500], [4000, 2000]] {
        let options = Options::default();
        for &metric in Metric::ALL {
            distances(&mut bench, metric, options, shape, float);
            distances(&mut bench, metric, options, shape, |word| word.to_le_bytes()[3]);
            if bench.device.limits().f64 {
                distances(&mut bench, metric, options, shape, |word| f64::from(float(word)));
            }
        }
        for metric in [Metric::Euclidean, Metric::Cosine] {
            distances(&mut bench, metric, options.expanded(true), shape, float);
        }
    }
    let (device, shape) = (&bench.device.clone(), [20_000, 1000]);
    let [n, k] = shape;
    // Each row has ten distances and ten indices of neighbors, of eight bytes each.
    bench.case("nearest 10 euclidean F32", &shape, 4 * n * k + 160 * n, Some(n * n / 2 * k), || {
        let x = random(device, 1, &shape, float)?;
        let (options, run) = (Options::default(), Run::default());
        Ok(move || neighbors(&x, None, 10, Metric::Euclidean, &options, &run).map(drop))
    });
    Ok(())
}
