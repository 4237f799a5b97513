//! Products of the randomized decomposition in a storage, so that another process continues after the last whole pass.

use std::sync::Arc;

use bytemuck::{Pod, cast_slice, pod_collect_to_vec};

use super::right_svd::SvdOptions;
use crate::{
    Device, Error, Result, Tensor,
    digest::digest,
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
/// `job` has the options that products depend on, the shape and the precision of the matrix, the device, the version of this crate, and the
/// properties that the caller adds: all that tells whether the matrix is the same one, such as the path and a digest of its files. Only one
/// process may use a checkpoint at a time.
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

    /// Starts the checkpoint of a job with these properties before the caller's, or continues it. Fails with [`Error::Store`] for the
    /// checkpoint of another job, with the first property that differs; [`Error::Io`].
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
    let added = properties.iter().map(|(name, value)| (&name[..], &value[..]));
    let removed = known.iter().filter(|(known, _)| properties.iter().all(|(name, _)| name != known));
    let mut all = added.chain(removed.map(|(name, _)| (*name, "not there")));
    let other = all.find(|(name, value)| find(name) != *value);
    Some(other.map_or_else(
        || "is of another job, which has other properties".into(),
        |(name, value)| format!("is of another job: {name} was {}, and is {value}", find(name)),
    ))
}

/// Returns the properties of a decomposition that its products depend on, in the order in which differences are named.
pub(super) fn properties(
    shape: [u64; 2],
    precision: f64,
    devices: [&Device; 2],
    k: usize,
    options: &SvdOptions,
) -> Vec<(&'static str, String)> {
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
        ("seed", options.seed.to_string()),
        ("left vectors", options.left.to_string()),
    ]
}

/// The products of a job in their storage.
#[derive(Debug)]
pub(super) struct Saved<'a> {
    checkpoint: &'a Checkpoint,
    /// The digest of the job's text.
    job: u64,
}

/// A half of the product of a pass, each of which is a value.
#[derive(Clone, Copy, Debug)]
enum Half {
    /// `A X`, if it is kept.
    Left,
    /// `Aᵀ (A X)`.
    Normal,
}

impl Saved<'_> {
    /// Puts the product of X in a pass: its transpose, and `A X` if that is kept. Products that are not finite end the iteration, and are not
    /// put. Fails with [`Error::Io`]; with any error that the device reports.
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
        // The pass is there once the second half is.
        if let Some(kept) = kept {
            self.put_half(pass, Half::Left, x, cast_slice(kept))?;
        }
        self.put_half(pass, Half::Normal, x, cast_slice(&image))
    }

    /// Returns the transpose of the product of X in a pass, if it is there. Fails as [`put`](Self::put) does.
    pub(super) fn find(&self, pass: u32, x: &Tensor<f64>) -> Result<Option<Tensor<f64>>> {
        let half = self.find_half::<f64>(pass, Half::Normal, x, x.len())?;
        half.map(|values| Tensor::from_slice(x.device(), &values, x.shape())).transpose()
    }

    /// Returns `A X` of a pass over a matrix of m rows, if it is there. Fails as [`put`](Self::put) does.
    pub(super) fn find_kept(&self, pass: u32, x: &Tensor<f64>, m: u64) -> Result<Option<Vec<f32>>> {
        self.find_half(pass, Half::Left, x, m.saturating_mul(x.shape()[0]))
    }

    fn put_half(&self, pass: u32, half: Half, x: &Tensor<f64>, values: &[u8]) -> Result<()> {
        let digest = self.digest(pass, half, x, values)?.to_le_bytes();
        let (storage, key) = (&self.checkpoint.storage, self.key(pass, half));
        storage
            .put(&key, &[&digest, values].concat())
            .map_err(|source| Error::io(storage.place(&key), source))
    }

    /// Returns `len` values. A value that is damaged, or the product of other vectors, is not there.
    fn find_half<T: Pod>(&self, pass: u32, half: Half, x: &Tensor<f64>, len: u64) -> Result<Option<Vec<T>>> {
        let (storage, key) = (&self.checkpoint.storage, self.key(pass, half));
        let most = len.saturating_mul(size_of::<T>() as u64).saturating_add(8);
        let value = storage.get(&key, most).map_err(|source| Error::io(storage.place(&key), source))?;
        let Value::Bytes(bytes) = value else { return Ok(None) };
        let Some((expected, values)) = bytes.split_first_chunk().filter(|_| bytes.len() as u64 == most)
        else {
            return Ok(None);
        };
        let is_whole = u64::from_le_bytes(*expected) == self.digest(pass, half, x, values)?;
        Ok(is_whole.then(|| pod_collect_to_vec(values)))
    }

    fn key(&self, pass: u32, half: Half) -> String {
        let ending = if matches!(half, Half::Left) { "-left" } else { "" };
        join(&self.checkpoint.path, &format!("{}{ending}", pass + 1))
    }

    /// Returns the digest of a value's bytes, with the job, the pass and the vectors that were multiplied.
    fn digest(&self, pass: u32, half: Half, x: &Tensor<f64>, values: &[u8]) -> Result<u64> {
        let state = digest(self.job, self.key(pass, half).as_bytes());
        Ok(digest(digest(state, cast_slice(&x.read()?)), values))
    }
}
