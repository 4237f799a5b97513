//! Sums of pairs of columns, and the large jobs of real numbers.

use teatime::{
    Device, Error, Run, Tensor,
    distance::{Metric, Options, Partial, neighbor_tensors},
    filter::{GaussianOptions, gaussian},
    linalg::gram_lower,
    packed::{Gram, GramOptions, RowScale, packed_uniform, row_words},
};

use crate::{
    data::{self, to_usize},
    measure::{Job, Session, Size},
    report::Unit,
};

/// Columns of codes, and rows that are added at once: up to a panel of the largest cards.
const PAIRED: [[u64; 2]; 4] = [[2000, 1000], [20_000, 10_000], [20_000, 100_000], [20_000, 600_000]];
/// Observations and features.
const OBSERVED: [[u64; 2]; 3] = [[2000, 1000], [20_000, 2000], [20_000, 10_000]];
/// The same, of which the ten nearest of each are found.
const SEARCHED: [[u64; 2]; 3] = [[2000, 1000], [20_000, 2000], [100_000, 256]];
/// Planes of an image of 1104 x 1104, and its side.
const PLANES: [u64; 2] = [2, 50];
const SIDE: u64 = 1104;
/// Sides of square Gram products.
const SIDES: [u64; 4] = [2048, 4096, 8192, 16_384];
/// Measurements that each piece shares its time among.
pub(super) const PAIRS: f64 = 2.0;
pub(super) const DENSE: f64 = (OBSERVED.len() + SEARCHED.len() + 2 * PLANES.len() + SIDES.len()) as f64;

/// Sums as of relationships and distances of samples: milliseconds of so many rows, the sums there before.
pub(super) fn pairs(session: &mut Session<'_>) {
    for (id, unit_factors) in
        [("pairs of codes, as of distances", true), ("pairs of codes, as of relationships", false)]
    {
        session.largest(id, Unit::Milliseconds, &PAIRED, pairs_size, |device, &[columns, rows]| {
            let options = GramOptions::default().centred(!unit_factors).unit_factors(unit_factors);
            // As many as may come in all runs.
            let mut gram = Gram::new(device, columns, 10_000_000_000, options)?;
            let packed = packed_uniform(device, 0, 0, rows, columns)?;
            let factor = if unit_factors { 1.0 } else { 1.4 };
            let scales = vec![RowScale { mean: 1.0, factor, known: columns }; to_usize(rows)];
            Ok(Box::new(move || gram.add(&packed, 0, 0, &scales)))
        });
    }
}

/// The rows twice, the sums, and what a product takes besides.
fn pairs_size(&[columns, rows]: &[u64; 2]) -> Size {
    let pairs = columns * columns;
    Size {
        text: format!("{rows}x{columns}"),
        work: (pairs * rows) as f64,
        memory: 8 * row_words(columns) * rows + 4 * pairs + 64 * rows,
    }
}

/// Distances of observations, the nearest of each, Gaussians of an image, and Gram products, all of f32.
pub(super) fn dense(session: &mut Session<'_>) {
    let name =
        |[observations, features]: &[u64; 2]| format!("distances of {observations}, {features} features");
    let size = |&[observations, features]: &[u64; 2]| Size {
        text: format!("{observations}x{features}"),
        work: (observations * observations * features) as f64,
        memory: 8 * observations * observations + 4 * observations * features,
    };
    session.each(Unit::Milliseconds, &OBSERVED, name, size, |device, &[observations, features]| {
        let (metric, options) = (Metric::SqEuclidean, Options::default());
        let mut sums = Partial::new(device, observations, None, metric, &options)?;
        let x = data::matrix(device, 1, [observations, features])?;
        Ok(Box::new(move || sums.add(&x, None)))
    });
    let name =
        |[observations, features]: &[u64; 2]| format!("nearest of {observations}, {features} features");
    let size = |&[observations, features]: &[u64; 2]| Size {
        text: format!("{observations}x{features}"),
        work: (observations * observations * features) as f64,
        memory: 4 * observations * features + 200 * observations + (64 << 20),
    };
    session.each(Unit::Milliseconds, &SEARCHED, name, size, |device, &[observations, features]| {
        let x = data::matrix(device, 1, [observations, features])?;
        Ok(Box::new(move || {
            let (options, run) = (Options::default(), Run::default());
            neighbor_tensors(&x, None, 10, Metric::SqEuclidean, &options, &run).map(drop)
        }))
    });
    for sigma in [1.0, 3.0] {
        let name = |planes: &u64| format!("Gaussian of {sigma}, {planes} planes");
        let size = |&planes: &u64| Size {
            text: format!("{planes}x{SIDE}x{SIDE}"),
            work: (planes * SIDE * SIDE) as f64,
            memory: 16 * planes * SIDE * SIDE,
        };
        session.each(Unit::Milliseconds, &PLANES, name, size, |device, &planes| blur(device, planes, sigma));
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

fn blur(device: &Device, planes: u64, sigma: f64) -> Result<Job, Error> {
    let image: Tensor<f32> =
        data::matrix(device, 1, [planes * SIDE, SIDE])?.reshape(&[planes, SIDE, SIDE])?;
    let options = GaussianOptions::default();
    Ok(Box::new(move || gaussian::<f32, f32>(&image, sigma, &options).map(drop)))
}
