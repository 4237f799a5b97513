//! Principal components of a Zarr genotype store: `cargo run --release --example pca -- STORE`.

#![allow(clippy::print_stdout, reason = "an example prints")]

use std::path::Path;

use teatime::{Device, MissingChunk, Progress, Result, Run};
use teatime_genotype::{GenotypeStore, Genotypes, PcaOptions, pca};

fn main() -> Result<()> {
    let Some(path) = std::env::args_os().nth(1) else {
        eprintln!("usage: pca STORE, a folder in the VCF-Zarr or scikit-allel layout");
        return Ok(());
    };
    run(path.as_ref())
}

pub(crate) fn run(path: &Path) -> Result<()> {
    // 1. Open the store. Nothing but metadata is read yet.
    let store = GenotypeStore::open(path, None, MissingChunk::Error)?;
    let names = store.sample_ids()?.unwrap_or_default();
    let genotypes = Genotypes::new(store.arrays().to_vec())?;

    // 2. Choose a device: the fastest there is, or the one that TEATIME_DEVICE names.
    let device = Device::best()?;
    eprintln!("{} variants of {} samples on {device:?}", genotypes.variants(), genotypes.samples());

    // 3. Run, and report progress.
    let progress =
        Progress::new(|status| eprint!("\rpass {}: {} of {}", status.pass, status.rows, status.total));
    let components = genotypes.samples().min(4) as usize;
    let options = PcaOptions::default().components(components);
    let result = pca(&genotypes, &device, &options, &Run::default().progress(progress))?;

    // 4. Print plink2's eigenvalues, and the coordinates of the first samples.
    eprintln!("\n{} variants used; method: {:?}, {}", result.counts.used, result.method, result.reason);
    println!("eigenvalues {:.4?}", result.eigenvalues());
    let scores = result.scores();
    for i in 0..scores.rows().min(5) {
        // A store may have no names.
        let name = names.get(i).map_or("?", String::as_str);
        println!("{name}\t{:.4?}", scores.row(i));
    }
    Ok(())
}
