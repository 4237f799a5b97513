//! Tests that genotypes in the store, in host memory and on the device give the same bits.

use std::{ops::Range, sync::OnceLock};

use teatime::{Backend, Budget, Device, Error, Result, Run, device_tests, linalg::Stop, openings::cpu};

use crate::{
    Genotypes, Method, Pca, PcaOptions, Residency, pca,
    tests::{bits, dosages, memory},
};

device_tests! { ; residency_changes_no_bit }

const VARIANTS: u64 = 9000;
const SAMPLES: u64 = 70;
/// A budget that is larger than all genotypes.
const ENOUGH: u64 = 1 << 30;

/// The selected ranges of 12,000 rows, which together have as many rows as there are variants.
const SELECTED: [Range<u64>; 3] = [100..1300, 2500..5300, 7000..12_000];

/// Returns dosages: alone, and as rows selected from an array whose other rows hold no dosages.
fn genotypes() -> &'static [Genotypes; 2] {
    static GENOTYPES: OnceLock<[Genotypes; 2]> = OnceLock::new();
    GENOTYPES.get_or_init(|| {
        let dosages = dosages(VARIANTS as usize, SAMPLES as usize);
        let array =
            |values: &[i8]| memory(values, &[values.len() as u64 / SAMPLES, SAMPLES], &[500, SAMPLES]);
        let mut among = vec![99; (12_000 * SAMPLES) as usize];
        let rows = SELECTED.into_iter().flatten().zip(dosages.chunks(SAMPLES as usize));
        rows.for_each(|(row, dosages)| {
            among[(row * SAMPLES) as usize..][..dosages.len()].copy_from_slice(dosages)
        });
        [array(&dosages), array(&among).select(SELECTED).unwrap()]
    })
}

fn with_budgets(device: &Device, host: u64, on_device: u64) -> Result<Pca> {
    of(&genotypes()[1], device, host, on_device)
}

fn of(genotypes: &Genotypes, device: &Device, host: u64, on_device: u64) -> Result<Pca> {
    let mut options = PcaOptions { method: Method::Randomized, components: 5, ..PcaOptions::default() };
    options.svd.stop = Stop::PowerIterations(1);
    let memory = Budget::default().host(host).device(on_device);
    pca(genotypes, device, &options, &Run::default().memory(memory))
}

/// Returns the residencies that the device has, each with host and device budgets.
fn budgets(device: &Device) -> Vec<(Residency, u64, u64)> {
    let mut budgets = vec![(Residency::Device, ENOUGH, ENOUGH)];
    if device.info().backend == Backend::Cpu {
        // The device's memory is the host's. The least budget that works is below what the plan would keep.
        let least = (1..).map(|i| i << 19).find(|&host| with_budgets(device, host, 1).is_ok());
        budgets.push((Residency::Store, least.unwrap(), 1));
    } else {
        let Err(Error::Budget { minimum, .. }) = with_budgets(device, ENOUGH, 1) else {
            panic!("a budget of one byte should not do")
        };
        // Two panels of one block fit, 2 x 4,096 x 32 bytes, but not all 9,000 variants.
        budgets.push((Residency::Host, ENOUGH, minimum + 280_000));
        budgets.push((Residency::Store, ENOUGH, minimum));
    }
    budgets
}

fn residency_changes_no_bit(device: &Device) {
    static EXPECTED: OnceLock<Vec<u64>> = OnceLock::new();
    let expected = EXPECTED.get_or_init(|| bits(&of(&genotypes()[0], cpu(), ENOUGH, ENOUGH).unwrap()));
    for (residency, host, on_device) in budgets(device) {
        let pca = with_budgets(device, host, on_device).unwrap();
        assert_eq!(pca.residency, residency, "{}", pca.residency_reason);
        assert!(!pca.residency_reason.is_empty());
        assert!(bits(&pca) == *expected, "{residency:?}");
    }
}
