//! Gaussian filters, with preallocated output: `cargo bench -p teatime-bench --bench gaussian`.
//!
//! `benches/peers/gaussian.py` times scipy, scikit-image and `OpenCV` on the shapes 50x1104x1104 and 8192x8192, alternating with this program,
//! whose files it reads. The other cases are a matrix filtered at many radii, and four calls from four threads or one after the other.

mod support;

use std::sync::Mutex;

use support::{Bench, float, random};
use teatime::{
    Element, Error, Tensor,
    filter::{GaussianOptions, gaussian_into},
};

fn filter<T: Element>(bench: &mut Bench, shape: &[u64], sigma: f64, of: fn(u32) -> T) {
    let device = &bench.device.clone();
    let bytes = 2 * shape.iter().product::<u64>() * T::DTYPE.size();
    bench.case(&format!("gaussian {:?} sigma {sigma}", T::DTYPE), shape, bytes, None, || {
        let (x, mut out) = (random(device, 1, shape, of)?, Tensor::<T>::zeros(device, shape)?);
        Ok(move || gaussian_into(&x, sigma, &GaussianOptions::default(), &mut out))
    });
}

/// Times four filters, one after the other or at once from four threads.
fn four(bench: &mut Bench, shape: &[u64], at_once: bool) {
    let device = &bench.device.clone();
    let op = if at_once { "four gaussians at once" } else { "four gaussians in turn" };
    bench.case(op, shape, 8 * 4 * shape.iter().product::<u64>(), None, || {
        let x = random(device, 1, shape, float)?;
        let outs = (0..4).map(|_| Tensor::<f32>::zeros(device, shape));
        let mut outs = outs.collect::<Result<Vec<_>, _>>()?;
        Ok(move || {
            let turn = (!at_once).then(|| Mutex::new(()));
            let filter = |out: &mut Tensor<f32>| {
                let _turn = turn.as_ref().map(Mutex::lock);
                gaussian_into(&x, 3.0, &GaussianOptions::default(), out)
            };
            std::thread::scope(|scope| {
                let calls: Vec<_> = outs.iter_mut().map(|out| scope.spawn(|| filter(out))).collect();
                calls.into_iter().try_for_each(|call| call.join().expect("a filter should not panic"))
            })
        })
    });
}

fn main() -> Result<(), Error> {
    let bench = &mut Bench::new()?;
    filter(bench, &[50, 1104, 1104], 3.0, float);
    for sigma in [1.0, 3.0, 10.0] {
        filter(bench, &[8192, 8192], sigma, float);
        filter(bench, &[8192, 8192], sigma, |word| word.to_le_bytes()[3]);
    }
    for sigma in [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0] {
        filter(bench, &[4096, 4096], sigma, float);
    }
    for shape in [[50, 276, 276], [1, 512, 512]] {
        four(bench, &shape, false);
        four(bench, &shape, true);
    }
    Ok(())
}
