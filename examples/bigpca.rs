use teatime::{genotype::*, zarr::GenotypeStore, *};
fn main() -> Result<()> {
    let store = GenotypeStore::open(std::env::args().nth(1).unwrap(), None, MissingChunk::Error)?;
    let g = Genotypes::new(store.arrays().to_vec())?;
    let dev = Device::best()?;
    let method = match std::env::args().nth(2).as_deref() {
        Some("r") => Method::Randomized,
        Some("e") => Method::Exact,
        _ => Method::Auto,
    };
    let mut o = PcaOptions { components: 10, method, ..Default::default() };
    if std::env::args().nth(2).as_deref() == Some("r") {
        o.svd.stop = match std::env::args().nth(3) {
            Some(t) => linalg::Stop::Tolerance(t.parse().unwrap()),
            None => linalg::Stop::PowerIterations(2),
        };
    }
    let t = std::time::Instant::now();
    let p = pca(&g, &dev, &o, &Run::default())?;
    println!(
        "{:?} {:?}\n{:?}\n{:?}\n{:?}\npasses {}\n{:?} {:?}\npeak dev {}",
        t.elapsed(),
        p.reason,
        p.singular_values,
        p.eigenvalues(),
        p.residuals,
        p.passes,
        p.stats,
        p.counts,
        dev.peak_bytes()
    );
    println!(
        "{}",
        std::fs::read_to_string("/proc/self/status")
            .unwrap()
            .lines()
            .find(|l| l.starts_with("VmHWM"))
            .unwrap()
    );
    Ok(())
}
