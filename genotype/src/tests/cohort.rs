//! Tests of several results from one load: the same bits as each result alone, in no more passes than reported.

use teatime::{
    Result, Status, assert_err,
    linalg::{Checkpoint, Pass},
    openings::least,
    store::Folder,
};

use super::{refused::changing, *};
use crate::{
    pair_sums::PairAccumulator,
    reader::{Reader, Reading},
};

fn genotypes() -> Genotypes {
    memory(&dosages(9000, 60), &[9000, 60], &[500, 60]).dosages_are_bounded(true)
}

fn loadings_of(write: impl FnOnce(&mut LoadingsSink<'_>) -> Result<()>) -> Vec<(u64, [u64; 3], Vec<u64>)> {
    let mut rows = Vec::new();
    write(&mut |row| {
        let scale = [row.frequency, row.shift, row.scale].map(f64::to_bits);
        rows.push((row.variant, scale, row.loadings.iter().map(|x| x.to_bits()).collect()));
        Ok(())
    })
    .unwrap();
    rows
}

/// Makes a reference from the genotypes' own components, where every second variant has its alleles swapped or is left out.
fn reference(genotypes: &Genotypes, options: &PcaOptions) -> (ReferenceLoadings, Vec<Option<Match>>) {
    let Fit { reference, matches, .. } = fit(genotypes, options);
    let turned = |found: Match| match found.row() % 4 {
        1 => Some(Match::Swapped(found.row())),
        3 => None,
        _ => Some(found),
    };
    (reference, matches.into_iter().map(|found| found.and_then(turned)).collect())
}

#[test]
fn one_load_gives_what_each_result_is_by_itself() {
    let (genotypes, device, run) = (genotypes(), Device::cpu(), Run::default());
    for components in [options(K), randomized(K, Stop::PowerIterations(2))] {
        let relationships = GrmOptions { method: GrmMethod::VanRaden1, ..GrmOptions::default() };
        let alone = pca(&genotypes, &device, &components, &run).unwrap();
        let alone_grm = grm(&genotypes, &device, &relationships, &run).unwrap();
        let alone_loadings =
            loadings_of(|sink| loadings(&genotypes, &device, &alone, &components, &run, sink));
        let (reference, matches) = reference(&genotypes, &components);
        let method = ProjectMethod::LeastSquares;
        let alone_scores = project(&genotypes, &device, &reference, &matches, method, &run).unwrap();

        let missing = Cohort::load(&genotypes, &device, &Wanted::default().missing_calls(), &run).unwrap();
        let missing_calls = missing.missing_calls().unwrap();
        let wanted = Wanted::default()
            .pca(&components)
            .loadings()
            .grm(&relationships)
            .missing_calls()
            .projection(&reference, &matches, method);
        // The cohort is loaded with all results wanted, and with none, onto one device and onto groups.
        let group = |names| Device::open(names).unwrap();
        let devices = [device.clone(), group("cpu,cpu"), group("cpu,cpu,cpu,cpu,cpu")];
        let of_both = |device| [(device, wanted.clone(), true), (device, Wanted::default(), false)];
        for (device, wanted, kept) in devices.iter().flat_map(of_both) {
            let cohort = Cohort::load(&genotypes, device, &wanted, &run).unwrap();
            let count = device.members().len().min(3);
            let is_shared = cohort.residency_reason().starts_with(&format!("on each of {count} devices"));
            assert_eq!(is_shared, count > 1, "{}", cohort.residency_reason());
            assert_eq!(cohort.devices(), count);
            assert!(cohort.missing_calls().is_none_or(|calls| calls == missing_calls));
            assert_eq!(cohort.missing_calls().is_some(), kept);
            let together = cohort.pca(&components, &run).unwrap();
            assert_eq!((bits(&together), together.digest), (bits(&alone), alone.digest));
            assert_eq!(together.method, alone.method);
            let rows = loadings_of(|sink| cohort.loadings(&together, &components, &run, sink));
            assert!(rows == alone_loadings);
            let together = cohort.grm(&relationships, &run).unwrap();
            assert_eq!((grm_bits(&together), together.counts), (grm_bits(&alone_grm), alone_grm.counts));
            let scores = match cohort.projection() {
                Some(projection) => projection.clone(),
                None => cohort.project(&reference, &matches, method, &run).unwrap(),
            };
            assert_eq!(scores.scores, alone_scores.scores);
            let counts = |of: &Projection| (of.used, of.missing_calls, of.called.clone());
            assert_eq!(counts(&scores), counts(&alone_scores));
            assert_eq!(cohort.residency(), if kept { Residency::Device } else { Residency::Store });
            let passes = cohort.passes_over_store();
            assert_eq!(passes == 1, kept, "{passes}");
            // Two members decode the chunk between them.
            let [chunks, least] = [cohort.stats().chunks, 18 * u64::from(passes)];
            assert!((least..least + count as u64).contains(&chunks), "{chunks} on {count}");
        }
    }
}

#[test]
fn bytes_and_fractions_stay_too() {
    let (device, run) = (Device::cpu(), Run::default());
    let dosages = dosages(600, 40);
    let calls: Vec<i8> = dosages.iter().flat_map(|&x| [x.min(1), x.min(1), 0, x / 2]).collect();
    for genotypes in [fractions(&dosages, 0.9, 40), memory(&calls, &[600, 40, 4], &[100, 40, 4])] {
        let components = randomized(K, Stop::PowerIterations(1));
        let alone = pca(&genotypes, &device, &components, &run).unwrap();
        let alone_grm = grm(&genotypes, &device, &GrmOptions::default(), &run).unwrap();
        let wanted = Wanted::default().pca(&components).loadings();
        let cohort = Cohort::load(&genotypes, &device, &wanted, &run).unwrap();
        assert_eq!(bits(&cohort.pca(&components, &run).unwrap()), bits(&alone));
        assert_eq!(grm_bits(&cohort.grm(&GrmOptions::default(), &run).unwrap()), grm_bits(&alone_grm));
        assert_eq!((cohort.residency(), cohort.passes_over_store()), (Residency::Device, 1));
    }
}

/// Exact components with the scaling of a relationship matrix reuse its sums, in either order, whether the components were wanted or not. If
/// they were not, the matrix is moved to the caller, and computed again for the next call.
#[test]
fn results_share_sums() {
    let (genotypes, device, run) = (genotypes(), Device::cpu(), Run::default());
    let (components, relationships) =
        (PcaOptions { scaler: Scaler::Binom2, ..options(K) }, GrmOptions::default());
    let alone = pca(&genotypes, &device, &components, &run).unwrap();
    let alone_grm = grm(&genotypes, &device, &relationships, &run).unwrap();
    let one = Wanted::default().grm(&relationships);
    let both = one.clone().pca(&components);
    for (wanted, grm_first, passes) in [(&both, true, 1), (&both, false, 1), (&one, false, 2)] {
        let cohort = Cohort::load(&genotypes, &device, wanted, &run).unwrap();
        let first = grm_first.then(|| cohort.grm(&relationships, &run).unwrap());
        assert_eq!(bits(&cohort.pca(&components, &run).unwrap()), bits(&alone));
        let matrix = first.unwrap_or_else(|| cohort.grm(&relationships, &run).unwrap());
        assert_eq!((grm_bits(&matrix), cohort.passes_over_store()), (grm_bits(&alone_grm), 1));
        let again = cohort.grm(&relationships, &run).unwrap();
        assert_eq!((grm_bits(&again), cohort.passes_over_store()), (grm_bits(&alone_grm), passes));
    }
}

#[test]
fn the_stated_minimum_holds_for_all_results() {
    let (genotypes, device) = (genotypes(), Device::cpu());
    for components in [options(K), randomized(K, Stop::Tolerance(1e-3))] {
        let wanted = Wanted::default().pca(&components).loadings().grm(&GrmOptions::default());
        least(|run| {
            let cohort = Cohort::load(&genotypes, &device, &wanted, run)?;
            let result = cohort.pca(&components, run)?;
            cohort.loadings(&result, &components, run, &mut |_| Ok(()))?;
            cohort.grm(&GrmOptions::default(), run)
        });
    }
}

#[test]
fn where_genotypes_are_changes_no_bit() {
    let (genotypes, run) = (genotypes(), Run::default());
    let components = randomized(K, Stop::PowerIterations(1));
    let relationships = GrmOptions::default();
    let expected = pca(&genotypes, &Device::cpu(), &components, &run).unwrap();
    let (reference, matches) = reference(&genotypes, &components);
    let method = ProjectMethod::Mean;
    for device in ["wgpu", "cuda"].into_iter().filter_map(|name| Device::open(name).ok()) {
        let cohort = Cohort::load(&genotypes, &device, &Wanted::default().pca(&components), &run).unwrap();
        let mut first = None;
        for residency in [Residency::Device, Residency::Host, Residency::Store] {
            assert_eq!(cohort.residency(), residency);
            let found = (
                bits(&cohort.pca(&components, &run).unwrap()),
                grm_bits(&cohort.grm(&relationships, &run).unwrap()),
                loadings_of(|sink| cohort.loadings(&expected, &components, &run, sink)),
                cohort.project(&reference, &matches, method, &run).unwrap().scores,
            );
            assert_eq!(found.0, bits(&expected), "{residency:?}");
            assert!(*first.get_or_insert_with(|| found.clone()) == found, "{residency:?}");
            let left = cohort.leave_device(Default::default()).unwrap();
            assert_eq!(left, residency != Residency::Store);
        }
        // Budgets decide where they are. Two panels of one block, 2 x 4,096 x 16 bytes, fit the larger one, but not all 9,000 variants.
        let within = |on_device| {
            let memory = Budget::default().host(1 << 30).device(on_device);
            pca(&genotypes, &device, &components, &Run::default().memory(memory))
        };
        let Err(Error::Budget { minimum, .. }) = within(1) else { panic!("a byte should not do") };
        for (budget, residency) in [(minimum + 140_000, Residency::Host), (minimum, Residency::Store)] {
            let found = within(budget).unwrap();
            assert_eq!((found.residency, bits(&found)), (residency, bits(&expected)));
            assert!(!found.residency_reason.is_empty());
        }
        // The store is read once to load, and once for each pass: three for the components, and one for each of three other results.
        assert_eq!(cohort.passes_over_store(), 1 + 3 + 3);
    }
}

#[test]
fn parts_of_a_panel_add_up() {
    let (genotypes, device, run) = (genotypes(), Device::cpu(), Run::default());
    let reader = Reader::new(&genotypes, &device, true).unwrap();
    let options = GrmOptions { method: GrmMethod::VanRaden1, ..GrmOptions::default() };
    let reading = Reading { panel_bytes: 1 << 20, prefetch: 0, upload_rows: reader.plan.block_rows() };
    let sums = |step: usize| {
        let mut adding = PairAccumulator::new(&reader, options.sums(&reader)).unwrap();
        let pass = Pass::new(&run, Status::new(0, 1, 9000));
        reader
            .read(&pass, reading, false, &mut |panel, stats| {
                assert_eq!(panel.rows, 0..9000);
                (0..9000).step_by(step).try_for_each(|first| {
                    let rows = first..9000.min(first + step);
                    let range = rows.start as u64..rows.end as u64;
                    adding.add(&reader, &panel, &range, &stats[rows])
                })
            })
            .unwrap();
        let sums = adding.finish().unwrap();
        assert_eq!(sums.totals.counts.total, 9000);
        let matrices = [Some(sums.products), sums.shared, sums.variance];
        (matrices.map(|matrix| matrix.unwrap().data().to_vec()), sums.total_variance)
    };
    let whole = sums(9000);
    for step in [4096, 8192] {
        assert!(sums(step) == whole, "{step}");
    }
}

/// A result that refuses dosages above the ploidy fails if the dosages were loaded only for results that allow them.
#[test]
fn results_that_allow_more_do_not_prepare_those_that_do_not() {
    let (device, run) = (Device::cpu(), Run::default());
    let genotypes = genotypes().dosages_are_bounded(false);
    let free = PcaOptions { scaler: Scaler::Standard, ..options(K) };
    let cohort = Cohort::load(&genotypes, &device, &Wanted::default().pca(&free), &run).unwrap();
    cohort.pca(&free, &run).unwrap();
    let relationships = cohort.grm(&GrmOptions::default(), &run).map(drop);
    for result in [cohort.pca(&options(K), &run).map(drop), relationships] {
        assert_refused(result, &["`genotypes`", "above the ploidy"]);
    }
}

/// A further pass that was not planned detects a changed store by the counts of its variants.
#[test]
fn a_change_before_a_pass_that_was_not_wanted_is_named() {
    let before = dosages(9000, 60);
    let mut after = before.clone();
    let at = after.iter().rposition(|x| *x == 0).unwrap();
    after[at] = 2;
    let genotypes = Genotypes::new(vec![Arc::new(changing(&before, &after, 18))]).unwrap();
    let (device, run) = (Device::cpu(), Run::default());
    let cohort = Cohort::load(&genotypes, &device, &Wanted::default().pca(&options(1)), &run).unwrap();
    let error = assert_err!(cohort.grm(&GrmOptions::default(), &run), Error::Store { .. });
    assert!(error.to_string().starts_with("changing: changed while it was read"), "{error}");
}

#[test]
fn cohorts_and_parts_can_be_sent() {
    fn shared<T: Send + Sync>() {}
    fn plain<T: Clone + std::fmt::Debug + PartialEq + Send + Sync + 'static>() {}
    shared::<Cohort>();
    plain::<CohortPart>();
}

/// Missing calls are compared with a count by a loop, for genotypes in two bits, bytes and f32.
#[test]
fn missing_calls_of_each_sample_are_counted() {
    let (device, run) = (Device::cpu(), Run::default());
    let dosages = dosages(6000, 37);
    let missing = |sample: usize| dosages.iter().skip(sample).step_by(37).filter(|dosage| **dosage < 0);
    let right: Vec<u64> = (0..37).map(|sample| missing(sample).count() as u64).collect();
    assert!(right.iter().any(|missing| *missing != right[0]));
    let large: Vec<i8> = dosages.iter().map(|&x| if x < 0 { -9 } else { 50 * x }).collect();
    let components = PcaOptions::default().components(2).scaler(Scaler::Center);
    for genotypes in [
        memory(&dosages, &[6000, 37], &[1000, 37]).dosages_are_bounded(true),
        memory(&large, &[6000, 37], &[1000, 37]),
        fractions(&dosages, 0.9, 37),
    ] {
        let wanted = Wanted::default().pca(&components).missing_calls();
        let cohort = Cohort::load(&genotypes, &device, &wanted, &run).unwrap();
        assert_eq!(cohort.missing_calls().unwrap(), right);
        let counts = cohort.pca(&components, &run).unwrap().counts;
        assert_eq!(counts.missing_calls, right.iter().sum::<u64>());
    }
    let whole = memory(&[0i8, 1, 2, 1], &[2, 2], &[2, 2]);
    let wanted = Wanted::default().missing_calls();
    assert_eq!(Cohort::load(&whole, &device, &wanted, &run).unwrap().missing_calls(), Some(&[0, 0][..]));
    let other = Cohort::load(&whole, &device, &Wanted::default(), &run).unwrap();
    assert_eq!(other.missing_calls(), None);
}

/// A call that finds some products at its checkpoint ends with the bits of one that finds none, in any memory. Other genotypes are refused.
#[test]
fn a_checkpoint_changes_no_bit() {
    let (genotypes, device, run) = (genotypes(), Device::cpu(), Run::default());
    let options = randomized(K, Stop::PowerIterations(3));
    let wanted = Wanted::default().pca(&options);
    let folder = tempfile::tempdir().unwrap();
    let at = Checkpoint::new(Arc::new(Folder::new(folder.path())), "").property("store", "a");
    let solve = |genotypes: &Genotypes, options: &PcaOptions, run: &Run| {
        Cohort::load(genotypes, &device, &wanted, run)?.pca_with_checkpoint(options, &at, run)
    };
    let alone = pca(&genotypes, &device, &options, &run).unwrap();
    let (_, little) = least(|run| pca(&genotypes, &device, &options, run).map(|_| run.clone()));
    for run in [&run, &little] {
        for product in 3..=5 {
            std::fs::remove_file(folder.path().join(product.to_string())).ok();
        }
        let again = solve(&genotypes, &options, run).unwrap();
        let alone = pca(&genotypes, &device, &options, run).unwrap();
        assert_eq!((bits(&again), again.passes), (bits(&alone), alone.passes));
    }
    let found = solve(&genotypes, &options, &run).unwrap();
    assert!(found.found > 1 && bits(&found) == bits(&alone), "{}", found.found);
    let others = memory(&random_dosages(7, 0, 9000, 60), &[9000, 60], &[500, 60]).dosages_are_bounded(true);
    for (genotypes, options, said) in [
        (&others, options.clone(), "counts of alleles was "),
        (&genotypes, options.clone().scaler(Scaler::Center), "scaler was patterson, and is center"),
        (&genotypes, options.clone().filter(VariantFilter::default().min_maf(0.1)), "filter was "),
    ] {
        assert_refused(solve(genotypes, &options, &run), &["is of another job: ", said]);
    }
}
