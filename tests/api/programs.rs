//! Tests of short programs, as the README and the docs have them, and of the numbered examples.

#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/3_distances.rs"]
mod distances;
#[cfg(feature = "wgpu")]
#[path = "../../examples/9_frame_loop.rs"]
mod frame_loop;
#[path = "../../examples/1_hello.rs"]
mod hello;
#[cfg(feature = "wgpu")]
#[path = "../../examples/6_lent_wgpu_device.rs"]
mod lent_wgpu_device;
#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/2_devices.rs"]
mod list_devices;
#[cfg(feature = "zarr")]
#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/5_out_of_core_svd.rs"]
mod out_of_core_svd;
#[cfg(feature = "zarr")]
#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/10_own_filter.rs"]
mod own_filter;
#[cfg(feature = "zarr")]
#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/11_own_fold.rs"]
mod own_fold;
#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/8_resident_chain.rs"]
mod resident_chain;
#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/4_gaussian.rs"]
mod smooth;

use teatime::{
    Device, DeviceOptions, Error, Run, Tensor,
    distance::{Metric, Options, pairwise},
    filter::{GaussianOptions, Mode, PerAxis, difference_of_gaussians, gaussian},
    half::f16,
    linalg::{Matrix, SvdOptions, column_stats, matmul, matmul_nt, matmul_tn, svd, truncated_svd},
};

use super::devices;

/// The examples assert their results. Example 7 is tested in `own_kernel`.
#[test]
fn the_examples_run() {
    hello::main().unwrap();
    #[cfg(feature = "wgpu")]
    {
        lent_wgpu_device::main().unwrap();
        frame_loop::main().unwrap();
    }
    for device in devices() {
        list_devices::run(Some(&device.info().name)).unwrap();
        distances::run(&device, None).unwrap();
        resident_chain::run(&device).unwrap();
        #[cfg(feature = "zarr")]
        {
            out_of_core_svd::run(&device, None).unwrap();
            own_filter::run(&device).unwrap();
            own_fold::run(&device).unwrap();
        }
    }
    let cpu = Device::cpu();
    smooth::run(&cpu, &cpu).unwrap();
}

/// Computes principal components of observations: centred columns, their decomposition, and scores of the first half.
#[test]
fn principal_components() {
    for device in devices() {
        let values: Vec<f32> = (0..40 * 6).map(|i| ((i * 37 % 101) as f32 - 50.0) / 25.0).collect();
        let mut x = Tensor::from_slice(&device, &values, &[40, 6]).unwrap();
        let means: Vec<f64> =
            column_stats(&x).unwrap().iter().map(|stats| stats.sum / stats.count as f64).collect();
        let centred: Vec<f32> =
            values.iter().enumerate().map(|(i, value)| value - means[i % 6] as f32).collect();
        x.write(&centred).unwrap();

        let found = truncated_svd(&x, 2, &SvdOptions::default().seed(7), &Run::default()).unwrap();
        let whole = svd(&x).unwrap();
        for (s, exact) in found.s.iter().zip(&whole.s) {
            assert!((s - exact).abs() <= 1e-5 * whole.s[0], "{device:?}: {s}, {exact}");
        }
        // Scores X V equal U diag(s), also for some rows only.
        let half = matmul(&*x.rows(0..20).unwrap(), &found.v).unwrap();
        let (half, u) = (Matrix::from_tensor(&half).unwrap(), Matrix::from_tensor(&found.u).unwrap());
        for i in 0..20 {
            for (j, s) in found.s.iter().enumerate() {
                assert!((half[(i, j)] - u[(i, j)] * s).abs() < 1e-4, "{device:?}: score ({i}, {j})");
            }
        }
        assert!(found.is_converged() && format!("{u:.2?}").ends_with("shape=[40, 2]"));
    }
}

/// The result of one operation is the input of the next on the same device; another device is an error that says so.
#[test]
fn operations_follow_each_other() {
    for device in devices() {
        let image: Vec<u8> = (0..12 * 9).map(|i| (i * 7 % 256) as u8).collect();
        let image = Tensor::from_slice(&device, &image, &[12, 9]).unwrap();
        let options = GaussianOptions::default().mode(Mode::Nearest).radius(2);
        let smooth: Tensor<f32> = gaussian(&image, 1.0, &options).unwrap();
        let (metric, run) = (Metric::SqEuclidean, Run::default());
        let distances = pairwise(&smooth, None, metric, &Options::default(), &run).unwrap();
        let products = Matrix::from_tensor(&matmul_nt(&smooth, &smooth).unwrap()).unwrap();
        for (i, j) in [(0, 0), (0, 11), (5, 3)] {
            let expected = products[(i, i)] + products[(j, j)] - 2.0 * products[(i, j)];
            let close = (distances[(i, j)] - expected).abs() <= 1e-5 * (products[(i, i)] + products[(j, j)]);
            assert!(close, "{device:?}: {} is not {expected}", distances[(i, j)]);
        }
        let elsewhere = smooth.to_device(&Device::cpu()).unwrap();
        let mixed = matmul_tn(&smooth, &elsewhere);
        assert!(matches!(mixed, Err(Error::WrongDevice { .. })) || device.info().name == "cpu", "{device:?}");
    }
}

/// The program is what a first-time reader of each page would write.
#[test]
fn options_take_what_is_at_hand() {
    let x = Tensor::from_slice(&Device::cpu(), &[f16::ONE; 12], &[3, 4]).unwrap();
    let narrow = GaussianOptions::default();
    for options in [narrow.clone().axes([0, 1]), narrow.clone().axes(0..2), narrow.axes(vec![0, 1])] {
        for high in [PerAxis::from(2.0), [2.0, 2.0].into(), vec![2.0, 2.0].into()] {
            let band: Tensor<f32> = difference_of_gaussians(&x, 1.0, high, &options).unwrap();
            assert!(band.read().unwrap().iter().all(|value| value.abs() < 1e-6));
        }
        let band: Tensor<f32> = difference_of_gaussians(&x, [1.0, 1.0], 1.6, &options).unwrap();
        assert_eq!(band.shape(), [3, 4]);
    }
}

/// Devices opened by one name are the same device, so their tensors can be used in one call.
#[test]
fn a_device_opened_twice_is_one() {
    for first in devices() {
        let second = Device::open(&first.info().name).unwrap();
        assert!(second.is_same(&first), "{first:?}");
        let [x, y] = [&first, &second].map(|device| Tensor::from_slice(device, &[2.0f32], &[1, 1]).unwrap());
        assert_eq!(matmul(&x, &y).unwrap().read().unwrap(), [4.0], "{first:?}");
        let other = Device::open_with(&first.info().name, &DeviceOptions::default().threads(1)).unwrap();
        let z = Tensor::from_slice(&other, &[3.0f32], &[1, 1]).unwrap();
        match matmul(&x, &z) {
            Ok(product) => {
                assert_eq!((product.read().unwrap(), first.info().name.as_str()), (vec![6.0], "cpu"))
            }
            Err(error) => assert!(error.to_string().contains("opened with other options"), "{error}"),
        }
    }
}

#[cfg(feature = "ndarray")]
#[test]
fn arrays_of_ndarray_go_in_and_come_out() {
    // The crate converts the matrix itself, so that an application needs no matching version of ndarray.
    let matrix = Matrix::from([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let array = ndarray::Array2::from(matrix.clone());
    for device in devices() {
        let tensor = Tensor::from_ndarray(&device, &array.t()).unwrap();
        assert_eq!(tensor.shape(), [2, 3], "{device:?}");
        let back = tensor.to_ndarray().unwrap().into_dimensionality().unwrap();
        assert_eq!(Matrix::from(&back.t()), matrix, "{device:?}");
    }
}
