//! Products of the randomized decomposition in a storage, so that another process continues after the last whole pass.

use std::sync::Arc;

use bytemuck::{cast_slice, pod_collect_to_vec};

use super::{
    right_svd::{Stop, SvdOptions},
    sign::SignRule,
};
use crate::{
    Device, Error, Needs, Result, Tensor,
    digest::digest,
    extent::to_usize,
    store::{Value, WritableStorage, join},
};

/// The first line of a job's text.
const TITLE: &str = "teatime products of a decomposition\n";
/// The maximum number of bytes of a job's text.
const MAX_JOB: u64 = 1 << 20;

/// A place where [`randomized_svd_with_checkpoint`](super::randomized_svd_with_checkpoint) puts the product of each pass.
///
/// A product is a value of its own, which is put whole or not at all, with a digest of its bytes, its job and the vectors that were
/// multiplied. Another process makes the basis again from the products that are there and whole, and then goes on with the next pass. The value
/// `job` has the options, the shape and the precision of the matrix, the device, the version of this crate, and the properties that the
/// caller adds: all that tells whether the matrix is the same one, such as the path and a digest of its files. Only one process may use
/// a checkpoint at a time.
///
/// The values stay until the caller removes them, which is due once the results are stored. Until then, the same call takes no pass.
///
/// ```
/// use std::sync::Arc;
/// use teatime::{Device, Run, Tensor, linalg::{Checkpoint, SvdOptions, randomized_svd, randomized_svd_with_checkpoint}, store::Folder};
/// let a = Tensor::from_slice(&Device::best()?, &[3.0f32, 0.0, 0.0, 4.0, 0.0, 0.0], &[3, 2])?;
/// let (options, run, folder) = (SvdOptions::default(), Run::default(), tempfile::tempdir()?);
/// let checkpoint = Checkpoint::new(Arc::new(Folder::new(folder.path()).durable()), "products").property("matrix", "3 x 2, of this example");
/// // Here the process is killed, perhaps. Another one makes the same call.
/// let svd = randomized_svd_with_checkpoint(&a, 1, &options, &checkpoint, &run)?;
/// let again = randomized_svd_with_checkpoint(&a, 1, &options, &checkpoint, &run)?;
/// assert!(again.found == svd.passes && again.v == randomized_svd(&a, 1, &options, &run)?.v);
/// std::fs::remove_dir_all(folder.path().join("products"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Checkpoint {
    storage: Arc<dyn WritableStorage>,
    path: String,
    properties: Vec<(String, String)>,
}

impl Checkpoint {
    /// Makes a checkpoint whose keys are under `path` in `storage`. Reads and writes nothing yet.
    pub fn new(storage: Arc<dyn WritableStorage>, path: &str) -> Self {
        Self { storage, path: path.to_owned(), properties: Vec::new() }
    }

    /// Adds a property of the job. A checkpoint whose property of this name has another value is refused.
    #[must_use]
    pub fn property(mut self, name: &str, value: impl ToString) -> Self {
        // Each property is a line.
        let [name, value] = [name.to_owned(), value.to_string()].map(|text| text.replace(['\n', '\r'], " "));
        self.properties.push((name, value));
        self
    }

    /// Starts the checkpoint of a job with these properties before the caller's, or continues it.
    ///
    /// # Errors
    /// [`Error::Store`] for the checkpoint of another job, with the first property that differs; [`Error::Io`].
    pub(super) fn open(&self, properties: Vec<(&str, String)>) -> Result<Saved<'_>> {
        let own = properties.into_iter().map(|(name, value)| (name.to_owned(), value));
        let properties: Vec<_> = own.chain(self.properties.iter().cloned()).collect();
        let lines = properties.iter().map(|(name, value)| format!("{name}: {value}\n"));
        let job = TITLE.to_owned() + &lines.collect::<String>();
        let key = join(&self.path, "job");
        let io = |source| Error::io(self.storage.place(&key), source);
        self.storage.sweep(&self.path).map_err(io)?;
        match self.storage.get(&key, MAX_JOB).map_err(io)? {
            Value::Absent => self.storage.put(&key, job.as_bytes()).map_err(io)?,
            Value::Bytes(known) if *known == *job.as_bytes() => {}
            known => {
                let why = match &known {
                    Value::Bytes(bytes) => difference(&String::from_utf8_lossy(bytes), &properties),
                    _ => None,
                };
                let why = why.unwrap_or_else(|| "was not written by a job that can be resumed".into());
                return Err(Error::store(self.storage.place(&self.path), why));
            }
        }
        Ok(Saved { checkpoint: self, job: digest(0, job.as_bytes()) })
    }
}

/// Says which property a job's text has otherwise, if it is a job's text.
fn difference(known: &str, properties: &[(String, String)]) -> Option<String> {
    let known: Vec<(&str, &str)> =
        known.strip_prefix(TITLE)?.lines().filter_map(|line| line.split_once(": ")).collect();
    let find =
        |name: &str| known.iter().find(|(known, _)| *known == name).map_or("not there", |(_, value)| value);
    let other = properties.iter().find(|(name, value)| find(name) != value);
    Some(other.map_or_else(
        || "is of another job, which has other properties".into(),
        |(name, value)| format!("is of another job: {name} was {}, and is {value}", find(name)),
    ))
}

/// Returns the properties of a decomposition that its result depends on, in the order in which differences are named.
pub(super) fn properties(
    shape: [u64; 2],
    precision: f64,
    devices: [&Device; 2],
    k: usize,
    options: &SvdOptions,
) -> Vec<(&'static str, String)> {
    let SvdOptions { oversamples: _, stop, max_passes, seed, sign, left } = *options;
    // The texts do not change if a type is renamed.
    let stop = match stop {
        Stop::PowerIterations(q) => format!("{q} power iterations"),
        Stop::Tolerance(tolerance) => format!("tolerance {tolerance:e}"),
    };
    let sign = match sign {
        SignRule::Stable => "stable",
        SignRule::DaskSum => "sum of v",
        SignRule::MaxAbsU => "largest of u",
        SignRule::MaxAbsV => "largest of v",
        SignRule::None => "none",
    };
    let [map, basis] = devices.map(|device| device.info().name.clone());
    vec![
        ("format", "1".into()),
        ("version of teatime", env!("CARGO_PKG_VERSION").into()),
        ("shape", format!("{} x {}", shape[0], shape[1])),
        ("precision", format!("{precision:e}")),
        ("device", map),
        ("device of the basis", basis),
        ("components", k.to_string()),
        ("columns of a block", options.block(k).to_string()),
        ("stop", stop),
        ("max passes", max_passes.to_string()),
        ("seed", seed.to_string()),
        ("signs", sign.into()),
        ("left vectors", left.to_string()),
    ]
}

/// The product of a pass: the transpose of `Aᵀ (A X)`, and `A X` if it was kept.
pub(super) type Product = (Tensor<f64>, Option<Vec<f32>>);

/// The products of a job in their storage.
#[derive(Debug)]
pub(super) struct Saved<'a> {
    checkpoint: &'a Checkpoint,
    /// The digest of the job's text.
    job: u64,
}

impl Saved<'_> {
    /// Returns the host's memory to put or find the product with `columns` columns of a matrix (m, n).
    pub(super) fn needs([m, n]: [u64; 2], columns: u64) -> Needs {
        (Needs::host(16) * n + Needs::host(4) * m) * columns
    }

    fn key(&self, pass: u32) -> String {
        join(&self.checkpoint.path, &(pass + 1).to_string())
    }

    /// Returns the digest of a product's bytes, with the pass, the job and the vectors that were multiplied.
    fn digest(&self, pass: u32, x: &Tensor<f64>, product: &[u8]) -> Result<u64> {
        let x = digest(self.job.wrapping_add(pass.into()), cast_slice(&x.read()?));
        Ok(digest(x, product))
    }

    /// Puts the product of X in a pass. Products that are not finite end the iteration, and are not put.
    ///
    /// # Errors
    /// [`Error::Io`]; any error that the device reports.
    pub(super) fn put(
        &self,
        pass: u32,
        x: &Tensor<f64>,
        image: &Tensor<f64>,
        kept: Option<&[f32]>,
    ) -> Result<()> {
        let image = image.read()?;
        if image.iter().any(|value| !value.is_finite()) {
            return Ok(());
        }
        let kept = cast_slice(kept.unwrap_or_default());
        let mut bytes = Vec::with_capacity(8 + 8 * image.len() + kept.len());
        bytes.extend([0; 8]);
        bytes.extend_from_slice(cast_slice(&image));
        drop(image);
        bytes.extend_from_slice(kept);
        let digest = self.digest(pass, x, &bytes[8..])?;
        bytes[..8].copy_from_slice(&digest.to_le_bytes());
        let (storage, key) = (&self.checkpoint.storage, self.key(pass));
        storage.put(&key, &bytes).map_err(|source| Error::io(storage.place(&key), source))
    }

    /// Returns the product of X in a pass over a matrix of m rows, if it is there and whole. A product that is damaged, or of other vectors, is
    /// not there.
    ///
    /// # Errors
    /// [`Error::Io`]; any error that the device reports.
    pub(super) fn find(&self, pass: u32, x: &Tensor<f64>, m: u64) -> Result<Option<Product>> {
        let (storage, key) = (&self.checkpoint.storage, self.key(pass));
        let (image, kept) = (8 * x.len(), m.saturating_mul(4 * x.shape()[0]));
        let most = image.saturating_add(kept).saturating_add(8);
        let Value::Bytes(bytes) =
            storage.get(&key, most).map_err(|source| Error::io(storage.place(&key), source))?
        else {
            return Ok(None);
        };
        let whole = [8 + image, most].contains(&(bytes.len() as u64));
        let Some((expected, product)) = bytes.split_first_chunk().filter(|_| whole) else { return Ok(None) };
        if u64::from_le_bytes(*expected) != self.digest(pass, x, product)? {
            return Ok(None);
        }
        let (image, kept) = product.split_at(to_usize(image));
        let kept = (!kept.is_empty()).then(|| pod_collect_to_vec(kept));
        let image: Vec<f64> = pod_collect_to_vec(image);
        Ok(Some((Tensor::from_slice(x.device(), &image, x.shape())?, kept)))
    }
}
