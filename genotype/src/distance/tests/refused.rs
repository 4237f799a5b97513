//! Tests of what distances of samples refuse.

use teatime::openings::within;

use super::*;

#[test]
fn bad_input_is_named() {
    let (device, run, plain) = (cpu(), Run::default(), DistanceOptions::default());
    let good = memory(&dosages(60, 12), &[60, 12], &[20, 12]);
    let of = |metric| DistanceOptions::default().metric(SampleMetric::Of(metric));
    let whole = |genotypes: &Genotypes, options| distances(genotypes, device, &options, &run).map(drop);
    let bands = |genotypes: &Genotypes, options, side| {
        DistanceBands::new(genotypes, device, &options, side, &run).map(drop)
    };
    let nearest =
        |genotypes: &Genotypes, options, k| sample_neighbors(genotypes, device, &options, k, &run).map(drop);
    let sums = |metric, missing| distance_sums(&good, device, metric, missing, &run).map(drop);
    let tree = plain.tree(Linkage::Average);
    let of_products = of(Metric::InnerProduct).tree(Linkage::Average);
    // This error occurs before anything is read.
    let threes = memory(&[3i8; 720], &[60, 12], &[20, 12]);
    let [fractions, one] = [memory(&[0.5f32; 140], &[2, 70], &[2, 70]), memory(&[1i8], &[1, 1], &[1, 1])];
    let half = options(SampleMetric::IbsOfAlleles);
    let mut cases = vec![
        (whole(&good, of(Metric::JensenShannon)), "needs the sum of each sample"),
        (whole(&good, of(Metric::Hellinger)), "knows no rule for missing elements"),
        (whole(&good, of(Metric::Minkowski(0.0))), "above 0"),
        (whole(&threes, of_products), "`tree`: inner_product is a similarity"),
        (whole(&good, tree.missing(Missing::Propagate)), "of 66 of 66 pairs of samples is NaN"),
        (sums(Metric::JensenShannon, Missing::Propagate), "the sum of each sample"),
        (sums(Metric::Hellinger, Missing::Ignore), "hellinger"),
        (
            bands(&good, of(Metric::Canberra), 64),
            "`metric`: canberra is computed in f32, for all samples at once",
        ),
        (bands(&good, tree, 64), "`tree`: is made of all distances at once"),
        (bands(&good, plain, 96), "`side`: 96 is no multiple of 64"),
        (bands(&good, plain, 0), "`side`: 0 is no multiple of 64"),
        (
            bands(&fractions, plain, 64),
            "`genotypes`: distances of some samples at a time are of dosages 0, 1 and 2 alone",
        ),
        (nearest(&good, plain, 0), "`k`: 0 of 12 samples: from 1 to 11, the others of each"),
        (nearest(&good, plain, 12), "`k`: 12 of 12 samples: from 1 to 11"),
        (nearest(&one, plain, 1), "1 of 1 samples"),
        (nearest(&good, tree, 2), "`tree`: is made of all distances"),
        (nearest(&good, of(Metric::Canberra).tree(Linkage::Single), 2), "`tree`"),
    ];
    for missing in [Missing::Rescale, Missing::RescaleOrZero] {
        for metric in [SampleMetric::Ibs, SampleMetric::IbsOfAlleles] {
            cases.push((whole(&good, options(metric).missing(missing)), "of ibs: it is a mean already"));
        }
    }
    // Every function that computes the metric refuses these.
    let [haploid, triploid] =
        [1, 3].map(|ploidy| memory(&[0i8; 360], &[120 / ploidy, 3, ploidy], &[20, 3, ploidy]));
    for (genotypes, options, words) in [
        (&haploid, half, "of ploidy 2, not 1"),
        (&triploid, half, "of ploidy 2, not 3"),
        (&fractions, half, "of dosages 0, 1 and 2 alone"),
        (&good, of(Metric::KlDivergence), "is not symmetric"),
    ] {
        cases.push((whole(genotypes, options), words));
        cases.push((bands(genotypes, options, 64), words));
        cases.push((nearest(genotypes, options, 2), words));
    }
    cases.into_iter().for_each(|(result, words)| drop(assert_refused(result, &[words])));
    let little = |options| sample_neighbors(&good, device, &options, 1, &within(1000));
    assert_refused(little(of(Metric::Canberra)), &["for the matrix of all distances"]);
    assert!(!assert_refused(little(plain), &[]).to_string().contains("matrix"));
    let nothing = memory(&[-1i8; 40], &[10, 4], &[4, 4]);
    assert_eq!(compute(&nothing, &options(SampleMetric::Ibs)).undefined, 10);
}

#[test]
fn pairs_that_do_not_fit_are_named() {
    let (device, plain) = (cpu(), DistanceOptions::default());
    let rows = dosages(200, 17);
    let side = |first: usize, count: usize| -> Vec<i8> {
        rows.chunks(17).flat_map(|row| &row[first..first + count]).copied().collect()
    };
    let [own, mut others] = [side(0, 9), side(9, 8)];
    let store = |dosages: &[i8], samples| memory(dosages, &[200, samples], &[37, 64]);
    let [own, with] = [store(&own, 9), store(&others, 8)];
    others[0] = 3;
    let same: Vec<_> = (0..200).map(|row| Some(Match::Same(row))).collect();
    let repeated = vec![Some(Match::Same(4)); 200];
    let run = Run::default();
    let between = |with: &Genotypes, matches: &[Option<Match>], options: DistanceOptions| {
        distances(SamplePairs::between(&own, with, matches), device, &options, &run).map(drop)
    };
    let nearest = |k, host| {
        let run = if host > 0 { within(host) } else { Run::default() };
        sample_neighbors(SamplePairs::between(&own, &with, &same), device, &plain, k, &run).map(drop)
    };
    let (tree, half) = (plain.tree(Linkage::Average), options(SampleMetric::IbsOfAlleles));
    for (result, words) in [
        (between(&with, &same[1..], plain), "199 for 200 variants"),
        (between(&with, &[None; 200], plain), "none of the 200 variants is in both"),
        (between(&with, &[Some(Match::Same(200)); 200], plain), "variant 0 is number 200 of 200"),
        (between(&with, &repeated, plain), "more than 64 passes"),
        (
            between(&memory(&[0i8; 1600], &[200, 8, 1], &[200, 8, 1]), &same, plain),
            "of ploidy 1, and `genotypes` 2",
        ),
        (between(&store(&others, 8), &same, plain), "variant 0, sample 0: value 3"),
        (between(&with, &same, tree), "`tree`: is of the distances of samples from themselves"),
        (between(&memory(&[0.0f32; 1600], &[200, 8], &[200, 8]), &same, half), "`with`: ibs of one half"),
        (nearest(0, 0), "0 of 8 samples: from 1 to 8"),
        (nearest(9, 0), "9 of 8 samples: from 1 to 8"),
        (nearest(1, 1000), "for the matrix of all distances"),
    ] {
        assert_refused(result, &[words]);
    }
}
