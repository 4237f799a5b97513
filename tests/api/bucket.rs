//! Stored bytes in a place of an application's own.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use teatime::{
    ChunkedArray, MissingChunk, Result, Run, StoredType, Tensor,
    filter::{GaussianOptions, gaussian, write_gaussian},
    store::{ArraySpec, ArrayWriter, Compression, Storage, StoredBytes, Value, WritableStorage, ZarrArray},
};

use super::{devices, stores::Formula};

/// A bucket: values in a map, some of which cannot be had.
#[derive(Debug, Default)]
struct Bucket {
    values: Mutex<BTreeMap<String, Arc<[u8]>>>,
    refused: Mutex<Option<&'static str>>,
}

impl Bucket {
    fn values(&self) -> MutexGuard<'_, BTreeMap<String, Arc<[u8]>>> {
        self.values.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Storage for Bucket {
    fn place(&self, key: &str) -> String {
        format!("bucket/{key}")
    }

    fn fetches(&self) -> usize {
        4
    }

    fn get(&self, key: &str, most: u64) -> io::Result<Value> {
        if *self.refused.lock().unwrap() == Some(key) {
            return Err(io::Error::other("no route to the bucket"));
        }
        Ok(match self.values().get(key) {
            None => Value::Absent,
            Some(bytes) if bytes.len() as u64 > most => Value::Large(bytes.len() as u64),
            Some(bytes) => Value::Bytes(StoredBytes::Shared(bytes.clone())),
        })
    }

    fn size(&self, key: &str) -> io::Result<Option<u64>> {
        Ok(self.values().get(key).map(|bytes| bytes.len() as u64))
    }

    fn list(&self, prefix: &str) -> io::Result<Vec<String>> {
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let rest = |key: &String| Some(key.strip_prefix(&prefix)?.split('/').next()?.to_owned());
        let mut names: Vec<_> = self.values().keys().filter_map(rest).collect();
        names.dedup();
        Ok(names)
    }
}

impl WritableStorage for Bucket {
    fn put(&self, key: &str, value: &[u8]) -> io::Result<()> {
        self.values().insert(key.to_owned(), value.into());
        Ok(())
    }

    fn sweep(&self, _: &str) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_zarr_array_lives_in_a_bucket() {
    for device in devices() {
        let bucket = Arc::new(Bucket::default());
        let array = |bucket: &Arc<Bucket>, path: &str| -> Result<Arc<dyn ChunkedArray>> {
            let storage: Arc<dyn Storage> = bucket.clone();
            Ok(Arc::new(ZarrArray::open_in(&storage, path, MissingChunk::Error)?))
        };
        let formula: Arc<dyn ChunkedArray> = Arc::new(Formula { shape: [30, 10], bad: false });
        let compression = Compression::Zstd { level: 1 };
        let begin = |path: &'static str| {
            let spec = ArraySpec::new(StoredType::F32, &[30, 10], &[8, 10]).compression(compression);
            ArrayWriter::create(bucket.clone(), path, spec)
        };
        let (options, run) = (GaussianOptions::default(), Run::default());
        write_gaussian(&formula, 1.5, &options, &device, &run, |_| begin("once")).unwrap();
        let once = array(&bucket, "once").unwrap();
        write_gaussian(&once, 1.5, &options, &device, &run, |_| begin("image/twice")).unwrap();
        assert!(bucket.list("image").unwrap().contains(&"twice".to_owned()));

        let values = Formula { shape: [30, 10], bad: false }.values();
        let x = Tensor::from_slice(&device, &values, &[30, 10]).unwrap();
        let expected: Tensor<f32> = gaussian(&x, 1.5, &options).unwrap();
        let expected: Tensor<f32> = gaussian(&expected, 1.5, &options).unwrap();
        let twice = array(&bucket, "image/twice").unwrap();
        let chunks = (0..4u64).flat_map(|i| twice.read_chunk(&[i, 0]).unwrap().bytes);
        let bytes: Vec<u8> = chunks.take(4 * 300).collect();
        let written: Vec<f32> = bytes.chunks(4).map(|b| f32::from_ne_bytes(b.try_into().unwrap())).collect();
        assert_eq!(written, expected.read().unwrap(), "{device:?}");

        *bucket.refused.lock().unwrap() = Some("once/c/1/0");
        let error = write_gaussian(&once, 1.5, &options, &device, &run, |_| begin("thrice")).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("once") && error.contains("no route to the bucket"), "{error}");
    }
}
