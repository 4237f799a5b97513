//! Tests that no threads are started except those of a device.

use teatime::{Device, Run};

use super::*;
use crate::{Cohort, Genotypes, PcaOptions, Wanted, tests::open};

/// Rayon's global pool is left to the application: it starts as many threads as there are cores, and panics if threads are not allowed. A separate
/// process can still start the pool, so it was not started before.
#[test]
fn the_global_pool_is_left_alone() {
    const CHILD: &str = "TEATIME_TEST_GLOBAL_POOL";
    if std::env::var_os(CHILD).is_none() {
        let name = "vcf_zarr::tests::threads::the_global_pool_is_left_alone";
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        let ran = child.args(["--exact", name]).env(CHILD, "1").output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout);
        assert!(ran.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    for (name, array) in [
        ("all_v2.vcz", None),
        ("malariagen.zarr", None),
        ("dosages_v2.zarr", Some("int16_big_endian_order_f")),
        ("dosages_v3.zarr", Some("int8_sharded_zstd_crc32c")),
    ] {
        let store = open(name, array);
        store.sample_ids().unwrap();
        store.variants(0..store.n_variants()).unwrap();
        let genotypes = Genotypes::new(store.arrays().to_vec()).unwrap();
        let options = PcaOptions { components: 2, ..Default::default() };
        let (device, wanted, run) = (Device::cpu(), Wanted::default().pca(&options), Run::default());
        let cohort = Cohort::load(&genotypes, &device, &wanted, &run).unwrap();
        cohort.pca(&options, &run).unwrap();
        cohort.totals(&options);
    }
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().unwrap();
}
