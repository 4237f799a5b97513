//! Tests that no threads are started except those of a device.

use teatime::{Device, Run};

use super::*;
use crate::{Genotypes, PcaOptions, pca};

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
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    for (name, array) in [
        ("all_v2.vcz", None),
        ("malariagen.zarr", None),
        ("dosages_v2.zarr", Some("int16_big_endian_order_f")),
        ("dosages_v3.zarr", Some("int8_sharded_zstd_crc32c")),
    ] {
        let store = GenotypeStore::open(fixtures.join(name), array, MissingChunk::Error).unwrap();
        store.sample_ids().unwrap();
        store.variants(0..store.n_variants()).unwrap();
        let genotypes = Genotypes::new(store.arrays().to_vec()).unwrap();
        let options = PcaOptions { components: 2, ..Default::default() };
        pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
    }
    rayon::ThreadPoolBuilder::new().num_threads(1).build_global().unwrap();
}
