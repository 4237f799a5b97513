//! A test of the traffic of a chain of operations on one device.

use super::{alone, device_tests};
use crate::{
    Device, Run, Tensor,
    array::{Map, Zip, map, max, mean, zip},
    distance::{Metric, Options, neighbor_tensors, pairwise_tensor},
    linalg::{SvdOptions, matmul, truncated_svd},
    random::gaussian,
};

device_tests! { ; only_ends_of_a_chain_are_transferred }

/// Columns are standardised and decomposed, and the nearest of the scores are found. Transfers are the matrix, the number that is read, and at
/// most a hundredth more; without f64, also the vectors of each pass.
fn only_ends_of_a_chain_are_transferred(device: &Device) {
    let (device, _lock) = &alone(device);
    let (rows, cols, k) = (6000, 2000, 3);
    let noise: Vec<f32> = (0..4099).map(|i| gaussian(1, i) as f32).collect();
    let x: Vec<f32> =
        (0..rows * cols).map(|i| noise[i * i % 4099] + (i / cols % 3 * (i % cols / 700)) as f32).collect();
    let before = device.traffic();
    let x = Tensor::from_slice(device, &x, &[rows as u64, cols as u64]).unwrap();
    let centred = zip(Zip::Subtract, &x, &mean(&x, 0).unwrap()).unwrap();
    let variance = mean(&zip(Zip::Multiply, &centred, &centred).unwrap(), 0).unwrap();
    let z = zip(Zip::Divide, &centred, &map(Map::SquareRoot, &variance).unwrap()).unwrap();
    let svd = truncated_svd(&z, k, &SvdOptions::default(), &Run::default()).unwrap();
    let scores = matmul(&z, &svd.v).unwrap();
    let (metric, options) = (Metric::Euclidean, Options::default());
    let distances = pairwise_tensor(&scores, None, metric, &options, &Run::default()).unwrap();
    let nearest = neighbor_tensors(&scores, None, 5, metric, &options, &Run::default()).unwrap();
    let [largest, fifth] = [&distances, &nearest.distances].map(|of| max(&max(of, 1).unwrap(), 0).unwrap());
    let [largest, fifth] = [largest, fifth].map(|found| found.read().unwrap()[0]);
    assert!(fifth > 0.0 && fifth < largest);
    let moved = device.traffic() - before;
    let input = 4 * (rows * cols) as u64;
    eprintln!("{moved:?} {} {}", svd.passes, moved.to_device + moved.to_host - input);
}
