//! Sums over pairs of columns, and large jobs on floating-point data.

use teatime::{
    Device, Error, Run, Tensor,
    array::{Map, Zip, map, mean, zip},
    distance::{Metric, Options, neighbor_tensors, pairwise_tensor},
    linalg::{Stop, SvdOptions, gram_lower, matmul, truncated_svd},
    packed::row_words,
    random::normal,
};

use crate::{
    data, jobs,
    measure::{Job, Session, Size},
    report::Unit,
};

/// The columns of codes, and the rows that are added at once, up to a panel of the largest cards.
const PAIRED: [[u64; 2]; 4] = [[2000, 1000], [20_000, 10_000], [20_000, 100_000], [20_000, 600_000]];
/// The observations and features for distances.
const OBSERVED: [[u64; 2]; 3] = [[2000, 1000], [20_000, 2000], [20_000, 10_000]];
/// The observations and features for the search of the ten nearest.
const SEARCHED: [[u64; 2]; 3] = [[2000, 1000], [20_000, 2000], [100_000, 256]];
/// The observations and features of a chain that stays on the device. Work grows about tenfold from each size to the next, so that a small size,
/// which the host limits, does not predict too long a time for the next.
const CHAINED: [[u64; 2]; 6] =
    [[2000, 200], [10_000, 500], [30_000, 1000], [100_000, 1000], [300_000, 1000], [1_000_000, 1000]];
const CHAIN: &str = "chain: standardise, svd, scores, nearest";
const COMPONENTS: usize = 20;
/// The numbers of planes of 1104 x 1104 pixels of an image; `SIDE` is their side.
const PLANES: [u64; 2] = [2, 50];
const SIDE: u64 = 1104;
/// The sides of square Gram products.
const SIDES: [u64; 4] = [2048, 4096, 8192, 16_384];
/// The number of measurements among which the piece's time is divided.
pub(super) const PAIRS: f64 = 2.0;
/// The number of measurements of `dense`. The 1 is the chain.
pub(super) const DENSE: f64 =
    (2 * OBSERVED.len() + SEARCHED.len() + 1 + 2 * PLANES.len() + SIDES.len()) as f64;

/// Measures the sums for relationships and for distances of samples: milliseconds for adding rows to existing sums.
pub(super) fn pairs(session: &mut Session<'_>) {
    for (id, unit_factors) in
        [("pairs of codes, as of distances", true), ("pairs of codes, as of relationships", false)]
    {
        session.largest(id, Unit::Milliseconds, &PAIRED, pairs_size, |device, &size| {
            jobs::pair_sums(device, size, unit_factors)
        });
    }
}

/// Returns a size whose memory holds the rows twice, the sums, and the buffers of a product.
fn pairs_size(&[columns, rows]: &[u64; 2]) -> Size {
    let pairs = columns * columns;
    Size {
        text: format!("{rows}x{columns}"),
        work: (pairs * rows) as f64,
        memory: 8 * row_words(columns) * rows + 4 * pairs + 64 * rows,
    }
}

/// Measures distances of observations, the nearest of each, a chain that ends with the nearest, Gaussians of an image, and Gram products, all in
/// f32.
pub(super) fn dense(session: &mut Session<'_>) {
    let memory = |[n, features]: [u64; 2]| 8 * n * n + 4 * n * features;
    observed(session, "distances", &OBSERVED, memory, |device, size| {
        jobs::distances(device, size, Metric::SqEuclidean)
    });
    let memory = |[n, features]: [u64; 2]| 4 * n * n + 16 * n * features + (128 << 20);
    observed(session, "expanded distances", &OBSERVED, memory, |device, size| {
        let x: Tensor<f32> = data::matrix(device, 1, size)?;
        Ok(Box::new(move || {
            let (options, run) = (Options::default().expanded(true), Run::default());
            pairwise_tensor(&x, None, Metric::Euclidean, &options, &run).map(drop)
        }))
    });
    let memory = |[n, features]: [u64; 2]| 4 * n * features + 200 * n + (64 << 20);
    observed(session, "nearest", &SEARCHED, memory, |device, size| {
        let x = data::matrix(device, 1, size)?;
        Ok(Box::new(move || {
            let (options, run) = (Options::default(), Run::default());
            neighbor_tensors(&x, None, 10, Metric::SqEuclidean, &options, &run).map(drop)
        }))
    });
    session.largest(CHAIN, Unit::Milliseconds, &CHAINED, chain_size, chain);
    for sigma in [1.0, 3.0] {
        let name = |planes: &u64| format!("Gaussian of {sigma}, {planes} planes");
        let size = |&planes: &u64| Size {
            text: format!("{planes}x{SIDE}x{SIDE}"),
            work: (planes * SIDE * SIDE) as f64,
            memory: 16 * planes * SIDE * SIDE,
        };
        session.each(Unit::Milliseconds, &PLANES, name, size, |device, &planes| {
            jobs::blur(device, [planes, SIDE], sigma)
        });
    }
    let name = |side: &u64| format!("Gram product {side}");
    let size = |&side: &u64| Size {
        text: format!("{side}x{side}"),
        work: (side * side) as f64 * side as f64,
        memory: 8 * side * side,
    };
    session.each(Unit::Flops, &SIDES, name, size, |device, &side| {
        let x = data::matrix(device, 1, [side, side])?;
        Ok(Box::new(move || gram_lower(&x).map(drop)))
    });
}

/// Measures jobs of as much work as there are terms of pairs, on these numbers of observations and features.
fn observed(
    session: &mut Session<'_>,
    what: &str,
    sizes: &[[u64; 2]],
    memory: fn([u64; 2]) -> u64,
    make: fn(&Device, [u64; 2]) -> Result<Job, Error>,
) {
    let name = |[n, features]: &[u64; 2]| format!("{what} of {n}, {features} features");
    let size = |&[n, features]: &[u64; 2]| {
        let work = (n * n * features) as f64;
        Size { text: format!("{n}x{features}"), work, memory: memory([n, features]) }
    };
    session.each(Unit::Milliseconds, sizes, name, size, |device, &size| make(device, size));
}

/// Returns a size whose memory holds the observations three times, and some values for each observation.
fn chain_size(&[observations, features]: &[u64; 2]) -> Size {
    Size {
        text: format!("{observations}x{features}"),
        // The decomposition takes about 300 multiplications for each element, the search one for each component of a pair.
        work: (observations * (300 * features + COMPONENTS as u64 * observations)) as f64,
        memory: 12 * observations * features + 1000 * observations + (64 << 20),
    }
}

fn chain(device: &Device, &[observations, features]: &[u64; 2]) -> Result<Job, Error> {
    let x = normal(device, 1, 0, observations * features)?.reshape(&[observations, features])?;
    // Noise has no components to converge to, so the number of passes is fixed.
    let svd = SvdOptions::default().stop(Stop::PowerIterations(2));
    Ok(Box::new(move || {
        let (options, run) = (Options::default(), Run::default());
        let z = standardised(&x)?;
        let scores = matmul(&z, &truncated_svd(&z, COMPONENTS, &svd, &run)?.v)?;
        neighbor_tensors(&scores, None, 10, Metric::SqEuclidean, &options, &run).map(drop)
    }))
}

/// Subtracts each column's mean and divides by its standard deviation.
fn standardised(x: &Tensor<f32>) -> Result<Tensor<f32>, Error> {
    let centred = zip(Zip::Subtract, x, &mean(x, 0)?)?;
    let variance = mean(&zip(Zip::Multiply, &centred, &centred)?, 0)?;
    zip(Zip::Divide, &centred, &map(Map::SquareRoot, &variance)?)
}
