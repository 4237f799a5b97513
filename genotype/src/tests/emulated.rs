//! Tests of long calls on the CUDA emulator: compiling before reading, full memory, a lost device.
//!
//! Each test has its own device.

use std::sync::{Arc, OnceLock};

use teatime::{
    Device, Error, Progress, Run, Status, assert_err,
    linalg::Stop,
    openings::emulated::{self, device, fail_allocation, loaded, lose},
    random::philox,
};

use crate::{
    DistanceOptions, Genotypes, Method, PcaOptions, Scaler, distances, pca,
    tests::{bits, memory, pair_bits},
};

const MIB: u64 = 1 << 20;

/// Returns dosages with a strong first component.
fn genotypes(variants: u64, samples: u64) -> Genotypes {
    let dosage = |i: u64| {
        let word = philox([7, 0], i / 4)[(i % 4) as usize];
        let is_high = (i % samples < samples / 2) == (i / samples).is_multiple_of(2);
        let most = if is_high { 150 } else { 60 };
        i8::from(word >> 24 < most) + i8::from(word & 255 < most)
    };
    let values: Vec<i8> = (0..variants * samples).map(dosage).collect();
    memory(&values, &[variants, samples], &[1000, samples])
}

#[test]
fn a_pca_retries_smaller() {
    let genotypes = genotypes(20_000, 400);
    // This scaling allows dosages above 2, which are held as bytes.
    let scaler = Scaler::Standard;
    let mut options = PcaOptions { components: 2, method: Method::Randomized, scaler, ..Default::default() };
    options.svd.stop = Stop::PowerIterations(1);
    let expected = pca(&genotypes, &Device::cpu(), &options, &Run::default()).unwrap();
    let whole = device(9);
    let roomy = pca(&genotypes, &whole, &options, &Run::default()).unwrap();
    let peak = whole.peak_bytes();
    drop(whole);
    // The device reports 2 GiB when it is opened, and has less later, as if others held the rest. All dosages are 8 MB, so that the work fits only if
    // the dosages do not stay on the device.
    let device = device(9);
    emulated::memory(9, peak - 4 * MIB);
    let tight = pca(&genotypes, &device, &options, &Run::default()).unwrap();
    assert_eq!(tight.passes, roomy.passes);
    let chunks = [tight.stats.chunks, roomy.stats.chunks];
    assert!(chunks[0] > chunks[1], "it should read more than once: {chunks:?}");
    assert_eq!(tight.singular_values, roomy.singular_values);
    for (a, b) in tight.singular_values.iter().zip(&expected.singular_values) {
        assert!((a - b).abs() <= 1e-5 * b, "{a} {b}");
    }
    // No plan fits in this memory.
    emulated::memory(9, MIB);
    assert_err!(pca(&genotypes, &device, &options, &Run::default()), Error::OutOfMemory { .. });
}

/// A member whose allocation fails is tried with less memory, or hands its variants on; a lost one is named. The other stays usable.
#[test]
fn each_member_of_a_group_may_fail() {
    const UNAVAILABLE: i32 = 46;
    let genotypes = genotypes(9000, 60).dosages_are_bounded(true);
    let options = PcaOptions { components: 2, method: Method::Randomized, ..Default::default() };
    let open = |first: usize| Device::group(&[device(first), device(first + 1)]).unwrap();
    let solve = |device: &Device| pca(&genotypes, device, &options, &Run::default());
    let group = open(30);
    let expected = bits(&solve(&group).unwrap());
    for (member, nth) in [30, 31].into_iter().flat_map(|member| [1, 2, 5, 13, 34].map(|nth| (member, nth))) {
        fail_allocation(member, nth);
        assert_eq!(bits(&solve(&group).unwrap()), expected, "{member} {nth}");
        fail_allocation(member, 0);
    }
    let apart = |device: &Device| {
        let found = distances(&genotypes, device, &DistanceOptions::default(), &Run::default()).unwrap();
        (pair_bits(&found.matrix, &found.shared), found.facts.devices)
    };
    let (shared, count) = apart(&group);
    assert!(count == 2 && shared == apart(&Device::cpu()).0);
    // A lost device stays lost, so each case has devices of its own.
    for (case, launches) in [0, 3, 12, 0, 3, 12].into_iter().enumerate() {
        let (first, lost) = (40 + 2 * case, case / 3);
        let group = open(first);
        lose(i32::try_from(first + lost).unwrap(), launches, UNAVAILABLE);
        assert_err!(solve(&group), Error::DeviceLost { .. });
        let other = &group.members()[1 - lost];
        assert_eq!(bits(&solve(other).unwrap()), expected, "{lost} {launches}");
    }
}

#[test]
fn a_pca_without_missing_calls_has_its_programs_before_it_reads() {
    let (variants, samples) = (1500, 70);
    // One variant in three is rare.
    let dosage = |at: u64| match at / samples % 3 {
        0 => i8::from(at % samples == at / samples % samples),
        _ => (philox([5, 6], at)[0] % 3) as i8,
    };
    let dosages: Vec<i8> = (0..variants * samples).map(dosage).collect();
    let shape = [variants, samples];
    let genotypes = memory(&dosages, &shape, &shape).dosages_are_bounded(true);
    let methods = [(Method::Exact, "packed_pairs"), (Method::Randomized, "packed_apply")];
    for (method, own) in methods {
        for scaler in [Scaler::Patterson, Scaler::Center] {
            let device = device(28);
            let (before, watched) = (Arc::new(OnceLock::new()), device.clone());
            let first = before.clone();
            let progress = Progress::new(move |_: Status| {
                first.get_or_init(|| loaded(&watched));
            });
            let options = PcaOptions { method, scaler, components: 3, ..PcaOptions::default() };
            pca(&genotypes, &device, &options, &Run::default().progress(progress)).unwrap();
            let after = loaded(&device);
            assert!(after.iter().any(|program| program.starts_with(own)), "{method:?}: {after:?}");
            assert_eq!(before.get(), Some(&after), "{method:?}, {scaler:?}");
        }
    }
}
