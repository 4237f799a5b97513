//! A fold that an application writes itself: the histogram of an array bigger than memory, on the device.
//!
//! `cargo run --release --example 11_own_fold [ARRAY.zarr]` takes an array of bytes with two axes or more; without an argument it makes a small one in
//! memory.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::{env, mem::take, sync::Arc};

use teatime::{
    Device, Error, MissingChunk, Needs, Pending, Run, SharedArray, Tensor,
    array::{Compare, compare, sum},
    store::{MemoryArray, ZarrArray},
    stream::{Fold, Place, Sweep},
};

/// Bytes from 0, 16, 32, ... on.
#[derive(Default)]
pub(crate) struct Histogram {
    at_least: [f64; 16],
    /// Counts of the last box, which the device may still be making.
    pending: Vec<Pending<f32>>,
}

impl Histogram {
    fn wait(&mut self) -> Result<(), Error> {
        for (total, counts) in self.at_least.iter_mut().zip(take(&mut self.pending)) {
            *total += counts.wait()?.into_iter().map(f64::from).sum::<f64>();
        }
        Ok(())
    }
}

impl Fold for Histogram {
    type Input = u8;

    fn needs(&self, shape: &[u64], _: &Device) -> Needs {
        // For each bin a mask, and the counts of the rows of two boxes.
        Needs::device(16 * 9) * shape.iter().product()
    }

    fn begin(&mut self, _: &Device) -> Result<(), Error> {
        *self = Self::default();
        Ok(())
    }

    fn add(&mut self, x: &Tensor<u8>, _: &Place) -> Result<(), Error> {
        let count = |bin: u32| {
            sum(&compare(Compare::GreaterEqual, x, f64::from(16 * bin))?, x.shape().len() - 1)?.download()
        };
        let next = (0..16).map(count).collect::<Result<_, _>>()?;
        // While those of this box are made, those of the one before are here.
        self.wait()?;
        self.pending = next;
        Ok(())
    }

    fn settle(&mut self) -> Result<(), Error> {
        self.wait()
    }
}

fn main() -> Result<(), Error> {
    let device = Device::best()?;
    match env::args_os().nth(1) {
        Some(path) => histogram(&Arc::new(ZarrArray::open(path, "", MissingChunk::Error)?), &device)
            .map(|counts| println!("{counts:?}")),
        None => run(&device),
    }
}

fn histogram(array: &impl SharedArray, device: &Device) -> Result<Vec<f64>, Error> {
    let mut histogram = Histogram::default();
    Sweep::new(array, device, &Run::default()).fold(&mut [&mut histogram])?;
    let above = histogram.at_least.iter().skip(1).chain([&0.0]);
    Ok(histogram.at_least.iter().zip(above).map(|(all, above)| all - above).collect())
}

pub(crate) fn run(device: &Device) -> Result<(), Error> {
    let values: Vec<u8> = (0..=255).flat_map(|value| vec![value; 40]).collect();
    let array = Arc::new(MemoryArray::new("bytes", &values, &[256, 40], &[100, 30])?);
    let counts = histogram(&array, device)?;
    println!("{counts:?} on {device:?}");
    assert_eq!(counts, [640.0; 16]);
    Ok(())
}
