//! Measurements of whole jobs: decompositions, passes, pairs, filters, streams.

use std::sync::Arc;

use teatime::{
    Device, Error, Run, Status, Tensor,
    distance::{Metric, Options, Partial},
    filter::{GaussianOptions, gaussian},
    linalg::{LinearMap, Matrix, Pass, Stop, SvdOptions, truncated_svd},
    packed::{Gram, GramOptions, PackedMatrix, RowScale, packed_uniform, row_words},
    store::MemoryArray,
    stream::StoredMatrix,
    to_usize,
};
use teatime_genotype::{PcaOptions, pca};

use crate::{
    data,
    measure::{Job, Session, Size},
    report::Unit,
    score::{CITY_BLOCK, GAUSSIAN, PAIRS, PASS, STREAM},
};

/// The number of components that are computed.
const COMPONENTS: usize = 10;

fn size([rows, cols]: &[u64; 2]) -> Size {
    Size { text: format!("{rows}x{cols}"), work: (rows * cols) as f64, memory: 8 * rows * cols }
}

/// Measures the jobs of the [score](crate::score), the truncated SVD of a matrix on the device in five passes, and the PCA of simulated genotypes
/// in host memory.
pub(crate) fn jobs(session: &mut Session<'_>) {
    rates(session);
    let sizes = [[1024, 500], [4096, 1000], [16_384, 1000], [65_536, 1000], [165_000, 1000]];
    session.largest("truncated_svd, 10 components", Unit::Milliseconds, &sizes, size, svd_job);
    let sizes = [[1024, 256], [4096, 1000], [16_384, 1000], [65_536, 1000], [165_000, 1000]];
    session.largest("pca, 10 components", Unit::Milliseconds, &sizes, size, pca_job);
}

fn pca_job(device: &Device, &[variants, samples]: &[u64; 2]) -> Result<Job, Error> {
    let (device, genotypes) = (device.clone(), data::genotypes(variants, samples)?);
    let options = PcaOptions::default().components(COMPONENTS);
    Ok(Box::new(move || pca(&genotypes, &device, &options, &Run::default()).map(drop)))
}

fn svd_job(device: &Device, &[rows, cols]: &[u64; 2]) -> Result<Job, Error> {
    let a = Tensor::from_slice(device, &data::low_rank(1, rows, cols), &[rows, cols])?;
    let options = SvdOptions::default().stop(Stop::PowerIterations(2));
    Ok(Box::new(move || truncated_svd(&a, COMPONENTS, &options, &Run::default()).map(drop)))
}

/// Measures the jobs of the score, in what they count.
fn rates(session: &mut Session<'_>) {
    let counted = |work: u64, memory: u64, text: String| Size { text, work: work as f64, memory };
    let sizes = [[4096, 2000], [65_536, 2000], [262_144, 2000], [262_144, 20_000]];
    let packed = |&[rows, columns]: &[u64; 2]| {
        counted(rows * columns, rows * (4 * row_words(columns) + 64), format!("{rows}x{columns}"))
    };
    session.largest(PASS, Unit::Rate, &sizes, packed, |device, &[rows, columns]| {
        pass(PackedMatrix::random(device, rows, columns, 0, &Run::default())?, 1)
    });
    let sizes = [[512, 4096], [2000, 16_384], [2000, 65_536], [10_000, 65_536]];
    let pairs = |&[columns, rows]: &[u64; 2]| {
        let memory = 8 * row_words(columns) * rows + 8 * columns * columns + 64 * rows;
        counted(columns * columns / 2 * rows, memory, format!("{rows}x{columns}"))
    };
    session.largest(PAIRS, Unit::Rate, &sizes, pairs, |device, &size| pair_sums(device, size, true));
    let sizes = [[512, 256], [2000, 1000], [8000, 1000], [20_000, 2000]];
    let sums = |&[observations, features]: &[u64; 2]| {
        let (pairs, text) = (observations * observations, format!("{observations}x{features}"));
        counted(pairs / 2 * features, 8 * pairs + 4 * observations * features, text)
    };
    session.largest(CITY_BLOCK, Unit::Rate, &sizes, sums, |device, &size| {
        distances(device, size, Metric::CityBlock)
    });
    let sizes = [[16, 256], [64, 512], [50, 1104], [200, 1104]];
    let image = |&[planes, side]: &[u64; 2]| {
        let voxels = planes * side * side;
        counted(voxels, 16 * voxels, format!("{planes}x{side}x{side}"))
    };
    session.largest(GAUSSIAN, Unit::Rate, &sizes, image, |device, &size| blur(device, size, 3.0));
    let sizes = [[4096, 1000], [32_768, 2000], [131_072, 2000]];
    session.largest(STREAM, Unit::Rate, &sizes, size, |device, &[rows, columns]| {
        let values = data::uniform(1, rows * columns);
        let array = MemoryArray::new("chunks in memory", &values, &[rows, columns], &[1024, columns / 2])?;
        pass(StoredMatrix::new(vec![Arc::new(array)], device)?, 2)
    });
}

/// Returns a job that makes a pass over a matrix, with twenty random columns.
fn pass(matrix: impl LinearMap + 'static, seed: u32) -> Result<Job, Error> {
    const WIDTH: u64 = 20;
    let [_, columns] = matrix.shape();
    let x = data::uniform(seed, columns * WIDTH).into_iter().map(f64::from).collect();
    let x = Matrix::from_vec(x, to_usize(columns), to_usize(WIDTH))?;
    Ok(Box::new(move || {
        let run = Run::default();
        matrix.apply_normal(&x, &Pass::new(&run, Status::new(0, 1, 0))).map(drop)
    }))
}

/// Returns a job that adds rows of codes to the sums over pairs of columns: as of distances with `unit_factors`, else as of relationships.
pub(crate) fn pair_sums(
    device: &Device,
    [columns, rows]: [u64; 2],
    unit_factors: bool,
) -> Result<Job, Error> {
    let options = GramOptions::default().centred(!unit_factors).unit_factors(unit_factors);
    // The number of rows that all runs together may add.
    let mut gram = Gram::new(device, columns, 10_000_000_000, options)?;
    let packed = packed_uniform(device, 0, 0, rows, columns)?;
    let factor = if unit_factors { 1.0 } else { 1.4 };
    let scales = vec![RowScale { mean: 1.0, factor, known: columns }; to_usize(rows)];
    Ok(Box::new(move || gram.add(&packed, 0, 0, &scales)))
}

/// Returns a job that adds features to the distances of observations.
pub(crate) fn distances(
    device: &Device,
    [observations, features]: [u64; 2],
    metric: Metric,
) -> Result<Job, Error> {
    let mut sums = Partial::new(device, observations, None, metric, &Options::default())?;
    let x = data::matrix(device, 1, [observations, features])?;
    Ok(Box::new(move || sums.add(&x, None)))
}

/// Returns a job that blurs an image of square planes.
pub(crate) fn blur(device: &Device, [planes, side]: [u64; 2], sigma: f64) -> Result<Job, Error> {
    let x: Tensor<f32> = data::matrix(device, 1, [planes * side, side])?.reshape(&[planes, side, side])?;
    Ok(Box::new(move || gaussian::<f32, f32>(&x, sigma, &GaussianOptions::default()).map(drop)))
}
