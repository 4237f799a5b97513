//! Measurements of whole decompositions.

use teatime::{
    Device, Error, Run, Tensor,
    linalg::{Stop, SvdOptions, truncated_svd},
};
use teatime_genotype::{PcaOptions, pca};

use crate::{
    data,
    measure::{Job, Session, Size},
    report::Unit,
};

/// The number of components that are computed.
const COMPONENTS: usize = 10;

fn size([rows, cols]: &[u64; 2]) -> Size {
    Size { text: format!("{rows}x{cols}"), work: (rows * cols) as f64, memory: 8 * rows * cols }
}

/// Measures the truncated SVD of a matrix on the device in five passes, and the PCA of simulated genotypes in host memory.
pub(crate) fn jobs(session: &mut Session<'_>) {
    let sizes = [[1024, 500], [4096, 1000], [16_384, 1000], [65_536, 1000], [165_000, 1000]];
    session.largest("truncated_svd, 10 components", Unit::Milliseconds, &sizes, size, svd_job);
    let sizes = [[1024, 256], [4096, 1000], [16_384, 1000], [65_536, 1000], [165_000, 1000]];
    session.largest(
        "pca, 10 components",
        Unit::Milliseconds,
        &sizes,
        size,
        |device, &[variants, samples]| {
            let (device, genotypes) = (device.clone(), data::genotypes(variants, samples)?);
            let options = PcaOptions::default().components(COMPONENTS);
            Ok(Box::new(move || pca(&genotypes, &device, &options, &Run::default()).map(drop)))
        },
    );
}

fn svd_job(device: &Device, &[rows, cols]: &[u64; 2]) -> Result<Job, Error> {
    let a = Tensor::from_slice(device, &data::low_rank(1, rows, cols), &[rows, cols])?;
    let options = SvdOptions::default().stop(Stop::PowerIterations(2));
    Ok(Box::new(move || truncated_svd(&a, COMPONENTS, &options, &Run::default()).map(drop)))
}
