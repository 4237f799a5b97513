//! Tests of an application's own stored arrays and storage.

use std::{sync::Arc, time::Duration};

use teatime::{
    ArrayFacts, ChunkedArray, DecodedChunk, Device, FetchedChunk, Result, Run, StoredType, Tensor,
    distance::{Metric, Options, pairwise, pairwise_stored},
    linalg::{LinearMap, SvdOptions, randomized_svd},
    store::MemoryArray,
    stream::StoredMatrix,
};
#[cfg(feature = "zarr")]
use teatime::{
    MissingChunk,
    filter::{GaussianOptions, gaussian, write_gaussian},
    store::{ArraySpec, ArrayWriter, Compression, Storage, ZarrArray},
};

#[cfg(feature = "zarr")]
use super::bucket::Bucket;
use super::devices;

/// Elements that a formula gives, in chunks of 7 x 4.
#[derive(Debug)]
struct Formula {
    shape: [u64; 2],
}

impl Formula {
    fn value(i: u64, j: u64) -> i16 {
        ((i * 31 + j * j * 17) % 97) as i16 - 40
    }

    fn values(&self) -> Vec<i16> {
        let [rows, cols] = self.shape;
        (0..rows).flat_map(|i| (0..cols).map(move |j| Self::value(i, j))).collect()
    }
}

impl ChunkedArray for Formula {
    fn facts(&self) -> ArrayFacts<'_> {
        ArrayFacts { name: "formula", shape: &self.shape, chunk_shape: &[7, 4], dtype: StoredType::I16 }
    }

    fn decode(&self, index: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
        let [i, j] = [7 * index[0], 4 * index[1]];
        let values = (i..i + 7).flat_map(|i| (j..j + 4).map(move |j| Self::value(i, j)));
        let bytes: Vec<u8> = values.flat_map(i16::to_ne_bytes).collect();
        Ok(DecodedChunk { stored: 0, read: Duration::ZERO, decode: Duration::ZERO, bytes })
    }
}

#[test]
fn a_computed_array_is_taken_as_any_other() {
    for device in devices() {
        let formula = Formula { shape: [30, 10] };
        let resident = Tensor::from_slice(&device, &formula.values(), &[30, 10]).unwrap();
        let wide: Vec<f32> = formula.values().into_iter().map(f32::from).collect();
        let wide = Tensor::from_slice(&device, &wide, &[30, 10]).unwrap();
        let array = Arc::new(formula);
        let (options, run) = (Options::default(), Run::default());
        let stored = pairwise_stored(&array, None, Metric::CityBlock, &options, &device, &run).unwrap();
        let expected = pairwise(&resident, None, Metric::CityBlock, &options, &run).unwrap();
        assert_eq!(stored.distances, expected, "{device:?}");
        let matrix = StoredMatrix::new(vec![array], &device).unwrap();
        let [stored, expected] = [&matrix as &dyn LinearMap, &wide]
            .map(|map| randomized_svd(map, 3, &SvdOptions::default(), &run).unwrap());
        assert_eq!(stored, expected, "{device:?}");
    }
}

#[test]
fn stored_matrices_that_cannot_be_are_named() {
    let (device, run) = (Device::cpu(), Run::default());
    let array = |values: &[f64], shape: &[u64]| -> Arc<dyn ChunkedArray> {
        Arc::new(MemoryArray::new("doubles", values, shape, shape).unwrap())
    };
    let says = |arrays: Vec<Arc<dyn ChunkedArray>>, words: &str| {
        let found = StoredMatrix::narrow(arrays, &device)
            .and_then(|matrix| randomized_svd(&matrix, 1, &SvdOptions::default(), &run));
        let error = found.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says(vec![], "none given");
    says(vec![array(&[1.0; 8], &[2, 2, 2])], "[2, 2, 2] in doubles");
    says(vec![array(&[1.0; 4], &[2, 2]), array(&[1.0; 6], &[2, 3])], "doubles");
    says(vec![array(&[1.0, 2.0, f64::NAN, 4.0], &[2, 2])], "row 1, element 0");
    says(vec![array(&[1.0, 1e300, 3.0, 4.0], &[2, 2])], "row 0, element 1");
    let two = StoredMatrix::narrow(vec![array(&[3.0, 0.0], &[1, 2]), array(&[0.0, 4.0], &[1, 2])], &device);
    let found = randomized_svd(&two.unwrap(), 2, &SvdOptions::default(), &run).unwrap();
    assert!((found.s[0] - 4.0).abs() < 1e-5 && (found.s[1] - 3.0).abs() < 1e-5, "{:?}", found.s);
}

/// f64 elements and integers that f32 does not hold are rounded only if requested.
#[test]
fn stored_matrices_round_nothing_unasked() {
    for device in devices() {
        let of = |array: Arc<dyn ChunkedArray>, narrow: bool| {
            let matrix = if narrow { StoredMatrix::narrow } else { StoredMatrix::new };
            matrix(vec![array], &device)?.to_tensor(&Run::default())?.read()
        };
        let says = |array: &Arc<dyn ChunkedArray>, words: &str| {
            let error = of(Arc::clone(array), false).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        };
        let doubles: Arc<dyn ChunkedArray> =
            Arc::new(MemoryArray::new("x", &[1.0, 0.1], &[1, 2], &[1, 2]).unwrap());
        says(&doubles, "`arrays`: x is of f64");
        assert_eq!(of(doubles, true).unwrap(), [1.0, 0.1]);
        let most = 1_i64 << 24;
        macro_rules! integers {
            ($($type:ty)*) => {$(
                let array = |last: i64| -> Arc<dyn ChunkedArray> {
                    let values = [most, last].map(|value| <$type>::try_from(value).unwrap());
                    Arc::new(MemoryArray::new("x", &values, &[2, 1], &[1, 1]).unwrap())
                };
                assert_eq!(of(array(7), false).unwrap(), [16_777_216.0, 7.0]);
                says(&array(most + 1), "row 1, element 0: value 16777217 is above 16777216");
                assert_eq!(of(array(most + 1), true).unwrap(), [16_777_216.0; 2]);
            )*};
        }
        integers! { i32 u32 i64 u64 }
        let negative = Arc::new(MemoryArray::new("x", &[-1 - (1 << 24)], &[1, 1], &[1, 1]).unwrap());
        says(&(negative as Arc<dyn ChunkedArray>), "value -16777217 is below -16777216");
    }
}

#[cfg(feature = "zarr")]
#[test]
fn a_zarr_array_lives_in_a_bucket() {
    for device in devices() {
        let bucket = Arc::new(Bucket::default());
        let array = |bucket: &Arc<Bucket>, path: &str| -> Result<Arc<dyn ChunkedArray>> {
            let storage: Arc<dyn Storage> = bucket.clone();
            Ok(Arc::new(ZarrArray::open_in(&storage, path, MissingChunk::Error)?))
        };
        let formula: Arc<dyn ChunkedArray> = Arc::new(Formula { shape: [30, 10] });
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

        let values = Formula { shape: [30, 10] }.values();
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
