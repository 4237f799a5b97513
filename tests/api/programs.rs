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
#[cfg(feature = "zarr")]
#[allow(unreachable_pub, reason = "readers copy it to programs of their own")]
#[path = "readme.rs"]
mod readme;
#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/8_resident_chain.rs"]
mod resident_chain;
#[allow(dead_code, reason = "its own main")]
#[path = "../../examples/4_gaussian.rs"]
mod smooth;

use teatime::{
    Device, DeviceOptions, Tensor,
    filter::{GaussianOptions, PerAxis, difference_of_gaussians},
    half::f16,
    linalg::matmul,
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

/// The README shows a program that compiles and runs.
#[cfg(feature = "zarr")]
#[test]
fn the_readme_has_the_program() {
    let (_, program) = include_str!("readme.rs").split_once("\n\n").unwrap();
    assert!(include_str!("../../README.md").contains(program), "README.md lacks this program:\n{program}");
    let folder = tempfile::tempdir().unwrap();
    out_of_core_svd::write(folder.path()).unwrap();
    let s = readme::singular_values(folder.path().to_str().unwrap()).unwrap();
    // The rows are of three kinds, and noise is a hundredth of the third.
    assert!(s.len() == 10 && s.is_sorted_by(|a, b| a >= b) && s[2] > 50.0 * s[3], "{s:?}");
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
    let matrix = teatime::linalg::Matrix::from([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]);
    let array = ndarray::Array2::from(matrix.clone());
    for device in devices() {
        let tensor = Tensor::from_ndarray(&device, &array.t()).unwrap();
        assert_eq!(tensor.shape(), [2, 3], "{device:?}");
        let back = tensor.to_ndarray().unwrap().into_dimensionality().unwrap();
        assert_eq!(teatime::linalg::Matrix::from(&back.t()), matrix, "{device:?}");
    }
}
