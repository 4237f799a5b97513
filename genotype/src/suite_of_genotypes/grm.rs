//! Relationship matrices on every device.

use teatime::{
    Backend, Budget, Device, Error, MemoryKind, Run, Tensor, device_tests,
    openings::{cpu, least},
    packed::{Entries, Panel},
};

use crate::{
    Cohort, Genotypes, GrmMethod, GrmOptions, MissingCalls, Wanted, grm,
    tests::{memory, random_dosages},
};

device_tests! {
    called_or_not, least_budgets, parts;
    relationships,
}

/// Returns dosages, one in eleven of them missing.
fn dosages(variants: u64, samples: u64) -> Vec<i8> {
    random_dosages(7, 11, variants as usize, samples as usize)
}

fn genotypes(variants: u64, samples: u64) -> Genotypes {
    memory(&dosages(variants, samples), &[variants, samples], &[100, samples])
}

fn called_or_not(device: &Device) {
    for (rows, cols) in [(1, 1), (3, 257), (65, 31)] {
        let x = dosages(rows, cols);
        let weights: Vec<f32> = (0..rows).map(|i| 0.3 * i as f32).collect();
        let tensor = Tensor::from_slice(device, &x, &[rows, cols]).unwrap();
        let floats: Vec<f32> = x.iter().map(|&x| 0.75 * f32::from(x)).collect();
        let fractional = Tensor::from_slice(device, &floats, &[rows, cols]).unwrap();
        let expected: Vec<f32> =
            (0..).zip(&x).map(|(at, &x)| if x < 0 { 0.0 } else { weights[(at / cols) as usize] }).collect();
        for entries in [Entries::I8(tensor), Entries::F32(fractional)] {
            let panel = Panel { rows: 0..rows, entries, missing: true };
            assert_eq!(panel.known(&weights).unwrap().read().unwrap(), expected);
        }
    }
}

/// Sums are exported from a device and imported again.
fn parts(device: &Device) {
    let (genotypes, options, run) = (genotypes(4200, 70), GrmOptions::default(), Run::default());
    let wanted = Wanted::default().grm(&options);
    let part = |rows| Cohort::part(&genotypes, rows, device, &wanted, &run).unwrap();
    let part = part(4096..4200).merge(part(0..4096)).unwrap();
    let cohort = Cohort::of_part(&genotypes, device, &wanted, &part, &run).unwrap();
    let (ours, whole) =
        (cohort.grm(&options, &run).unwrap(), grm(&genotypes, device, &options, &run).unwrap());
    assert_eq!((ours.matrix, ours.shared, ours.digest), (whole.matrix, whole.shared, whole.digest));
}

/// The cpu device is tested against the definitions elsewhere; this test compares other devices with it.
fn relationships(device: &Device) {
    for (variants, samples) in [(3, 3), (40, 2), (300, 33), (4100, 20), (256, 70)] {
        let genotypes = genotypes(variants, samples);
        for method in [GrmMethod::Gcta, GrmMethod::VanRaden1] {
            for missing in [MissingCalls::Pairwise, MissingCalls::Mean] {
                let options = GrmOptions { method, missing, ..GrmOptions::default() };
                let [ours, reference] =
                    [device, cpu()].map(|device| grm(&genotypes, device, &options, &Run::default()).unwrap());
                assert_eq!((ours.digest, ours.counts), (reference.digest, reference.counts));
                assert!(ours.shared == reference.shared, "{options:?}: counts are exact");
                for (at, (a, b)) in ours.matrix.data().iter().zip(reference.matrix.data()).enumerate() {
                    // A sum has up to 4,096 terms, which are added in f32 one after another.
                    let same = (a - b).abs() < 1e-5 * (1.0 + b.abs()) || a.is_nan() && b.is_nan();
                    assert!(same, "{options:?} {variants} {samples}, entry {at}: {a} and {b}");
                }
            }
        }
    }
}

fn least_budgets(device: &Device) {
    let genotypes = genotypes(300, 40);
    let options = GrmOptions { method: GrmMethod::VanRaden1, ..GrmOptions::default() };
    let (host, _) = least(|run| grm(&genotypes, device, &options, run));
    if device.info().backend != Backend::Cpu {
        let with = |memory| grm(&genotypes, device, &options, &Run::default().memory(memory));
        let error = with(Budget::default().device(1000)).unwrap_err();
        let Error::Budget { memory: MemoryKind::Device, minimum, .. } = error else { panic!("{error}") };
        with(Budget::default().host(host).device(minimum)).unwrap();
    }
}
