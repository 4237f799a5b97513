//! A matrix on the fastest device of this machine, and its singular value decomposition.
//!
//! `cargo run --example 1_hello`

#![allow(clippy::print_stdout, reason = "an example prints")]

use teatime::{
    Device, Error, Run, Tensor,
    array::{Zip, zip},
    linalg::{self, Matrix, SvdOptions},
};

pub(crate) fn main() -> Result<(), Error> {
    // 1. Opens a device: a GPU if there is one, otherwise the CPU. All operations run on every device.
    let device = Device::best()?;

    // 2. A tensor is an array on a device, in C order: here it has 4 rows of 3 numbers.
    let values = [1.0f32, 2.0, 3.0, 2.0, 4.0, 6.0, 3.0, 6.0, 9.0, 1.0, 0.0, 1.0];
    let a = Tensor::from_slice(&device, &values, &[4, 3])?;

    // 3. Operations take tensors and return tensors. Small results come back to the host.
    let svd = linalg::truncated_svd(&a, 2, &SvdOptions::default(), &Run::default())?;
    println!("{device:?}: singular values {:.3?}", svd.s);

    // 4. The matrix has rank 2, so two components reproduce it: A = U diag(s) Vᵀ.
    let values_of_s = Tensor::from_slice(&device, &svd.s, &[2])?.to_f32()?;
    let scaled = zip(Zip::Multiply, &svd.v, &values_of_s)?;
    let product = Matrix::from_tensor(&linalg::matmul_nt(&svd.u, &scaled)?)?;
    println!("{product:.3?}");
    for (made, value) in product.data().iter().zip(values) {
        assert!((made - f64::from(value)).abs() < 1e-4);
    }
    Ok(())
}
