//! Digests of results that must be equal on all devices, and results that must be close.

use sha2::{Digest, Sha256};
use teatime::{
    Device, Error, Run, Tensor,
    linalg::{SvdOptions, matmul, matmul_nt, matmul_tn, row_stats, truncated_svd},
    packed::recode,
    random::random_words,
};
use teatime_genotype::{Method, PcaOptions, pca};

use crate::{data, measure::Session};

/// Adds the digests and values to the report; `end` is the suffix of each name.
pub(crate) fn results(session: &mut Session<'_>, end: &str) {
    type Exact = fn(&Device) -> Result<Vec<u8>, Error>;
    let exact: [(&str, Exact); 5] = [
        ("random words", words),
        ("recoded codes", recoded),
        ("sums of bytes", sums),
        ("products of integers", products),
        ("genotype counts", counts),
    ];
    for (id, make) in exact {
        let id = format!("exact {id}{end}");
        if let Some(bytes) = made(session, &id, make) {
            session.report.digests.insert(id, hex(&bytes));
        }
    }
    type Close = fn(&Device) -> Result<Vec<f64>, Error>;
    let close: [(&str, Close); 3] = [
        ("singular values", singular_values),
        ("eigenvalues, exact", |device| eigenvalues(device, Method::Exact)),
        ("eigenvalues, randomized", |device| eigenvalues(device, Method::Randomized)),
    ];
    for (id, make) in close {
        let id = format!("close {id}{end}");
        if let Some(values) = made(session, &id, make) {
            session.report.values.insert(id, values);
        }
    }
}

/// Returns what `make` returns; `None` if that was not asked for, or failed.
fn made<T>(session: &mut Session<'_>, id: &str, make: fn(&Device) -> Result<T, Error>) -> Option<T> {
    let result = session.wants(id).then(|| make(session.device))?;
    result.inspect_err(|error| session.failed(id, &error.to_string())).ok()
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns random words on both sides of a carry of the counter.
fn words(device: &Device) -> Result<Vec<u8>, Error> {
    let words = random_words(device, 0x7ea_5eed_0123, (1 << 32) - 1000, (1 << 18) + 3)?.read()?;
    Ok(words.into_iter().flat_map(u32::to_le_bytes).collect())
}

fn recoded(device: &Device) -> Result<Vec<u8>, Error> {
    let (rows, bytes) = (1021, 131);
    let codes = Tensor::from_slice(device, &data::codes(3, rows * bytes, 8), &[rows, bytes])?;
    let mut packed = Tensor::<u32>::zeros(device, &[rows, bytes.div_ceil(16) * 4])?;
    recode(&codes, [2, 3, 1, 0], 4 * bytes - 1, &mut packed, 0)?.wait()?;
    Ok(packed.read()?.into_iter().flat_map(u32::to_le_bytes).collect())
}

fn sums(device: &Device) -> Result<Vec<u8>, Error> {
    let shape = [257, 4099];
    let x = Tensor::from_slice(device, &data::bytes(4, shape.iter().product()), &shape)?;
    let row = |stats: teatime::linalg::Stats| {
        // The sums are whole numbers; adding 0.0 removes the sign of a zero.
        let sums = [stats.sum, stats.sum_squares].map(|sum| (sum + 0.0).to_bits());
        [sums[0], sums[1], stats.count, stats.bad].map(u64::to_le_bytes)
    };
    Ok(row_stats(&x)?.into_iter().flat_map(row).flatten().collect())
}

/// Returns products with sums below 2^24, which f32 holds exactly in any order.
fn products(device: &Device) -> Result<Vec<u8>, Error> {
    let (m, n, k) = (385, 258, 1031);
    let matrix = |seed, rows, cols| {
        Tensor::from_slice(device, &data::small_integers(seed, rows * cols), &[rows, cols])
    };
    let (a, b) = (matrix(5, m, k)?, matrix(6, k, n)?);
    let (at, bt) = (matrix(7, k, m)?, matrix(8, n, k)?);
    let thin = matrix(9, k, 20)?;
    let results = [matmul(&a, &b)?, matmul_tn(&at, &b)?, matmul_nt(&a, &bt)?, matmul(&a, &thin)?];
    let mut bytes = Vec::new();
    for result in results {
        bytes.extend(result.read()?.into_iter().flat_map(|sum| (sum + 0.0).to_le_bytes()));
    }
    Ok(bytes)
}

fn counts(device: &Device) -> Result<Vec<u8>, Error> {
    let options = PcaOptions::default().components(1).method(Method::Exact);
    let result = pca(&data::genotypes(3000, 101)?, device, &options, &Run::default())?;
    Ok([result.digest, result.counts.used, result.counts.zero_variance].map(u64::to_le_bytes).concat())
}

/// Returns the singular values of a matrix of rank 12 plus noise.
fn singular_values(device: &Device) -> Result<Vec<f64>, Error> {
    let (rows, cols) = (2000, 300);
    let a = Tensor::from_slice(device, &data::low_rank(10, rows, cols), &[rows, cols])?;
    Ok(truncated_svd(&a, 8, &SvdOptions::default(), &Run::default())?.s)
}

/// Returns the two eigenvalues that separate three populations.
fn eigenvalues(device: &Device, method: Method) -> Result<Vec<f64>, Error> {
    let options = PcaOptions::default().components(2).method(method);
    Ok(pca(&data::genotypes(3000, 101)?, device, &options, &Run::default())?.eigenvalues())
}
