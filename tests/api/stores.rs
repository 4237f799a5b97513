//! A stored array of an application's own.

use std::{sync::Arc, time::Duration};

use teatime::{
    ChunkedArray, DecodedChunk, Device, Error, FetchedChunk, Result, Run, StoredType, Tensor,
    distance::{Metric, Options, pairwise, pairwise_stored},
    linalg::{SvdOptions, randomized_svd},
    store::MemoryArray,
    stream::StoredMatrix,
};

use super::devices;

/// Numbers that a formula gives, in chunks of 7 x 4; chunk [2, 0] can be made bad.
#[derive(Debug)]
pub(super) struct Formula {
    pub(super) shape: [u64; 2],
    pub(super) bad: bool,
}

impl Formula {
    fn value(i: u64, j: u64) -> i16 {
        ((i * 31 + j * j * 17) % 97) as i16 - 40
    }

    pub(super) fn values(&self) -> Vec<i16> {
        let [rows, cols] = self.shape;
        (0..rows).flat_map(|i| (0..cols).map(move |j| Self::value(i, j))).collect()
    }
}

impl ChunkedArray for Formula {
    fn name(&self) -> &str {
        "formula"
    }

    fn shape(&self) -> &[u64] {
        &self.shape
    }

    fn chunk_shape(&self) -> &[u64] {
        &[7, 4]
    }

    fn dtype(&self) -> StoredType {
        StoredType::I16
    }

    fn decode(&self, index: &[u64], _: FetchedChunk) -> Result<DecodedChunk> {
        if self.bad && *index == [2, 0] {
            return Err(Error::chunk(self.name(), index, "out of ideas"));
        }
        let [i, j] = [7 * index[0], 4 * index[1]];
        let values = (i..i + 7).flat_map(|i| (j..j + 4).map(move |j| Self::value(i, j)));
        let bytes: Vec<u8> = values.flat_map(i16::to_ne_bytes).collect();
        Ok(DecodedChunk { stored: 0, read: Duration::ZERO, decode: Duration::ZERO, bytes })
    }
}

#[test]
fn a_computed_array_is_taken_as_any_other() {
    for device in devices() {
        let formula = Formula { shape: [30, 10], bad: false };
        let resident = Tensor::from_slice(&device, &formula.values(), &[30, 10]).unwrap();
        let wide: Vec<f32> = formula.values().into_iter().map(f32::from).collect();
        let wide = Tensor::from_slice(&device, &wide, &[30, 10]).unwrap();
        let array: Arc<dyn ChunkedArray> = Arc::new(formula);
        let (options, run) = (Options::default(), Run::default());
        let stored = pairwise_stored(&array, None, Metric::CityBlock, &options, &device, &run).unwrap();
        let expected = pairwise(&resident, None, Metric::CityBlock, &options, &run).unwrap();
        assert_eq!(stored.distances, expected, "{device:?}");
        let matrix = StoredMatrix::new(vec![array], &device).unwrap();
        let [stored, expected] = [&matrix as &dyn teatime::linalg::LinearMap, &wide]
            .map(|map| randomized_svd(map, 3, &SvdOptions::default(), &run).unwrap());
        assert_eq!(stored, expected, "{device:?}");
    }
}

#[test]
fn what_an_array_reports_comes_back() {
    for device in devices() {
        let array: Arc<dyn ChunkedArray> = Arc::new(Formula { shape: [30, 10], bad: true });
        let (options, run) = (Options::default(), Run::default());
        let error = pairwise_stored(&array, None, Metric::CityBlock, &options, &device, &run).unwrap_err();
        assert_eq!(error.to_string(), "formula: chunk [2, 0]: out of ideas");
        let matrix = StoredMatrix::new(vec![array], &device).unwrap();
        let error = randomized_svd(&matrix, 3, &SvdOptions::default(), &run).unwrap_err();
        assert_eq!(error.to_string(), "formula: chunk [2, 0]: out of ideas");
    }
}

#[test]
fn stored_matrices_that_cannot_be_are_named() {
    let (device, run) = (Device::cpu(), Run::default());
    let array = |values: &[f64], shape: &[u64]| -> Arc<dyn ChunkedArray> {
        Arc::new(MemoryArray::new("doubles", values, shape, shape).unwrap())
    };
    let says = |arrays: Vec<Arc<dyn ChunkedArray>>, words: &str| {
        let found = StoredMatrix::new(arrays, &device)
            .and_then(|matrix| randomized_svd(&matrix, 1, &SvdOptions::default(), &run));
        let error = found.unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says(vec![], "none given");
    says(vec![array(&[1.0; 8], &[2, 2, 2])], "[2, 2, 2] in doubles");
    says(vec![array(&[1.0; 4], &[2, 2]), array(&[1.0; 6], &[2, 3])], "doubles");
    says(vec![array(&[1.0, 2.0, f64::NAN, 4.0], &[2, 2])], "row 1, element 0");
    says(vec![array(&[1.0, 1e300, 3.0, 4.0], &[2, 2])], "row 0, element 1");
    let two = StoredMatrix::new(vec![array(&[3.0, 0.0], &[1, 2]), array(&[0.0, 4.0], &[1, 2])], &device);
    let found = randomized_svd(&two.unwrap(), 2, &SvdOptions::default(), &run).unwrap();
    assert!((found.s[0] - 4.0).abs() < 1e-5 && (found.s[1] - 3.0).abs() < 1e-5, "{:?}", found.s);
}
