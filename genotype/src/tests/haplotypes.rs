//! Tests of haplotypes as samples, and of copies of one allele.

use teatime::distance::Metric;

use super::*;

/// Returns calls of up to four alleles, some of which are missing.
fn calls(variants: usize, samples: usize, ploidy: usize) -> Vec<i8> {
    let allele = |at: usize| [0, 0, 0, 1, 1, 2, 3, -1][philox([5, 6], at as u64)[0] as usize % 8];
    (0..variants * samples * ploidy).map(allele).collect()
}

fn cityblock(genotypes: &Genotypes) -> Distances {
    let metric = SampleMetric::Of(Metric::CityBlock);
    let options = DistanceOptions { metric, ..DistanceOptions::default() };
    distances(genotypes, &Device::cpu(), &options, &Run::default()).unwrap()
}

fn assert_same(actual: &Genotypes, expected: &Genotypes, case: &str) {
    let [actual, expected] = [actual, expected]
        .map(cityblock)
        .map(|result| (result.facts.digest, pair_bits(&result.matrix, &result.shared)));
    assert_eq!(actual, expected, "{case}");
}

#[test]
fn a_haplotype_is_a_haploid_sample() {
    for ploidy in [1, 2, 3] {
        let calls = calls(300, 20, ploidy);
        let k = ploidy as u64;
        let haploid = memory(&calls, &[300, 20 * k, 1], &[300, 20 * k, 1]);
        let wide: Vec<i32> = calls.iter().map(|&allele| allele.into()).collect();
        for chunk in [[300, 20, k], [50, 7, k], [64, 3, k], [1000, 50, k]] {
            let case = format!("{ploidy} {chunk:?}");
            let haplotypes = memory(&calls, &[300, 20, k], &chunk).haplotypes().unwrap();
            assert_eq!(haplotypes.kind(), GenotypeKind::Calls { ploidy: 1 });
            assert_eq!((haplotypes.samples(), haplotypes.words()), (20 * k, haploid.words()), "{case}");
            assert_same(&haplotypes, &haploid, &case);
            assert_same(&memory(&wide, &[300, 20, k], &chunk).haplotypes().unwrap(), &haploid, &case);
            // Haplotypes have ploidy 1 already.
            assert_same(&haplotypes.clone().with_ploidy(1).unwrap(), &haploid, &case);
            // Selected samples and variants stay selected.
            let some = memory(&calls, &[300, 20, k], &chunk).select([10..90, 200..300]).unwrap();
            let some = some.select_samples([1..4, 9..17]).unwrap().haplotypes().unwrap();
            let expected = haploid.clone().select([10..90, 200..300]).unwrap();
            let expected = expected.select_samples([k..4 * k, 9 * k..17 * k]).unwrap();
            assert_eq!(some.samples(), 11 * k);
            assert_same(&some, &expected, &case);
            // Haplotypes can be selected too.
            let some = haplotypes.select_samples([1..5, 9..10]).unwrap();
            assert_same(&some, &haploid.clone().select_samples([1..5, 9..10]).unwrap(), &case);
        }
    }
}

#[test]
fn haplotypes_of_calls_of_several_ploidies() {
    let wide: [i8; 24] =
        [0, 1, -2, 2, -1, -2, 1, -2, -2, 0, 1, 1, -1, -1, -2, -1, 1, -2, -2, -2, -2, -1, 0, 1];
    let fitted = memory(&wide, &[2, 4, 3], &[1, 4, 2]).with_ploidy(2).unwrap();
    let haplotypes = fitted.clone().haplotypes().unwrap();
    let decoded = [0, 1].map(|row| haplotypes.arrays()[0].read_chunk(&[row, 0, 0]).unwrap().bytes);
    let expected: [[i8; 8]; 2] = [[0, 1, 2, -1, 1, -2, -1, -1], [-1, -1, -1, 1, -1, -1, -1, -1]];
    assert_eq!(decoded, expected.map(|row| row.map(i8::cast_unsigned).to_vec()));
    // Genotypes that take other ploidies as missing differ from genotypes that do not, so their parts do not merge.
    let plain = memory(&expected.concat(), &[2, 4, 2], &[1, 4, 2]).haplotypes().unwrap();
    assert_ne!(haplotypes.words(), plain.words());
}

#[test]
fn what_has_no_haplotypes_is_refused() {
    let refused = |genotypes: Genotypes, words: &[&str]| assert_refused(genotypes.haplotypes(), words);
    refused(memory(&[0i8; 8], &[2, 4], &[2, 4]), &["memory", "dosages have no haplotypes"]);
    refused(memory(&[0i8; 8], &[2, 2, 2], &[2, 2, 1]), &["memory", "2 alleles in chunks of 1"]);
    refused(memory(&[0i8; 8], &[2, 2, 2], &[2, 2, 3]), &["memory", "2 alleles in chunks of 3"]);
    let bed = bed::BedFile::open(fixture("plink1/few5.bed")).unwrap().genotypes().unwrap();
    refused(bed, &["few5.bed", "the calls of a .bed have no haplotypes"]);
    let dosages = memory(&[0i8; 8], &[2, 4], &[2, 4]);
    assert_refused(dosages.count_allele(1), &["have no alleles that are told apart"]);
    assert_refused(memory(&[0i8; 8], &[2, 2, 2], &[2, 2, 2]).count_allele(128), &["128 is above 127"]);
}

#[test]
fn copies_of_one_allele() {
    for ploidy in [1, 2, 3] {
        let calls = calls(300, 20, ploidy);
        let shape = [300, 20, ploidy as u64];
        let wide: Vec<i64> = calls.iter().map(|&allele| allele.into()).collect();
        let every = memory(&calls, &shape, &shape);
        for allele in [0, 1, 2, 3, 127] {
            let is_it = |&x: &i8| if x < 0 { x } else { i8::from(x == allele) };
            let ones: Vec<i8> = calls.iter().map(is_it).collect();
            let expected = memory(&ones, &shape, &shape);
            for genotypes in [every.clone(), memory(&wide, &shape, &[50, 7, 1])] {
                let counted = genotypes.count_allele(allele.cast_unsigned()).unwrap();
                assert_ne!(counted.words(), every.words());
                assert_same(&counted, &expected, &format!("{ploidy} {allele}"));
            }
            let counted = every.clone().count_allele(allele.cast_unsigned()).unwrap();
            let [counted, expected] = [counted, expected].map(|genotypes| genotypes.haplotypes().unwrap());
            assert_same(&counted, &expected, &format!("haplotypes {ploidy} {allele}"));
        }
    }
}
