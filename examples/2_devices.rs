//! Lists the devices of this machine, and multiplies a small matrix on the one that `best` chooses.
//!
//! `cargo run --example 2_devices [NAME]`

#![allow(clippy::print_stdout, reason = "an example prints")]

use teatime::{Device, Error, Tensor, linalg};

fn main() -> Result<(), Error> {
    run(std::env::args().nth(1).as_deref())
}

pub(crate) fn run(name: Option<&str>) -> Result<(), Error> {
    // 1. Lists all devices, and why some cannot be used.
    for listed in Device::all() {
        match (&listed.info, &listed.same_card_as) {
            (Ok(info), None) => {
                println!("{:10} {} ({}, {})", listed.name, info.description, info.kind, info.api)
            }
            (Ok(info), Some(other)) => {
                println!("{:10} {} (same card as {other})", listed.name, info.description)
            }
            (Err(why), _) => println!("{:10} not here: {why}", listed.name),
        }
    }

    // 2. Opens the named device, or the one that is fastest for most work; TEATIME_DEVICE overrides that default.
    let device = match name {
        Some(name) => Device::open(name)?,
        None => Device::best()?,
    };
    println!("\nusing {device:?}: {:?}", device.limits());

    // 3. Operations only enqueue work; `read` waits for it.
    let x = Tensor::from_slice(&device, &[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2])?;
    let gram = linalg::matmul_tn(&x, &x)?;
    assert_eq!(gram.read()?, [35.0, 44.0, 44.0, 56.0]);
    println!("xᵀx = {:?}", gram.read()?);
    Ok(())
}
