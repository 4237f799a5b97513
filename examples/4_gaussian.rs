//! Smooths a series of images, as a pipeline does: each is read from one device, and the result goes to the same or another device.
//!
//! `cargo run --release --example 4_gaussian [INPUT_DEVICE [OUTPUT_DEVICE]]`, such as `cuda cpu`. Without names, both are the fastest device,
//! which is the cpu if there is no other.

#![allow(clippy::print_stdout, reason = "an example prints")]

use teatime::{
    Device, Error, Tensor,
    filter::{GaussianOptions, gaussian},
    random::random_words,
};

/// Returns the Gaussian of an RGB image on device `output`, in C order. Each color is filtered separately, and values are from 0 to 1.
fn smooth(picture: &Tensor<u8>, sigma: f64, output: &Device) -> Result<Tensor<f32>, Error> {
    let options = GaussianOptions::skimage().axes([0, 1]);
    gaussian(picture, sigma, &options)?.to_device(output)
}

fn main() -> Result<(), Error> {
    let named = |n| std::env::args().nth(n).map_or_else(Device::best, |name| Device::open(&name));
    run(&named(1)?, &named(2)?)
}

pub(crate) fn run(input: &Device, output: &Device) -> Result<(), Error> {
    for number in 0..3 {
        // 1. Creates an image on the input device: here noise, of which a Gaussian leaves the fraction 1 / (2 √π sigma).
        let noise = random_words(input, number, 0, 600 * 800 * 3)?.read()?;
        let noise: Vec<u8> = noise.iter().map(|word| word.to_le_bytes()[0]).collect();
        let picture = Tensor::from_slice(input, &noise, &[600, 800, 3])?;

        // 2. The filter runs on the input device, and its result goes to the output device.
        let sigma = 2.0;
        let smooth = smooth(&picture, sigma, output)?;

        // 3. Any further work follows here.
        let values = smooth.read()?;
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / values.len() as f32;
        println!("picture {number}: {:?} on {output:?}, noise {:.4}", smooth.shape(), variance.sqrt());
        assert!((variance.sqrt() - 0.2896 / (2.0 * std::f32::consts::PI.sqrt() * 2.0)).abs() < 2e-3);
    }
    Ok(())
}
