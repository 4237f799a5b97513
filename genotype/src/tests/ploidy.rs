//! Tests of calls of several ploidies in one array.

use super::{refused::broken, *};

const SHAPE: [u64; 3] = [300, 20, 3];

/// Returns diploid calls, every seventh of one allele, with missing ones in every form; and with room for the three alleles of three calls.
fn calls() -> (Vec<i8>, Vec<i8>) {
    let (mut narrow, mut wide) = (Vec::new(), Vec::new());
    for (at, dosage) in dosages(300, 20).into_iter().enumerate() {
        let (pair, three) = match (dosage, at % 7) {
            _ if [5, 2100, 5999].contains(&at) => ([-1, -1], [0, 1, 0]),
            (-1, 0) => ([-1, -1], [-2, -2, -2]),
            (-1, 1) => ([-1, -1], [-1, -2, -2]),
            (-1, 2) => ([-1, -1], [0, -1, 1]),
            (-1, _) => ([-1, -1], [-1, -1, -2]),
            (dosage, 0) => ([dosage / 2, -2], [dosage / 2, -2, -2]),
            (dosage, 1) => ([dosage / 2, dosage - dosage / 2], [dosage / 2, -2, dosage - dosage / 2]),
            (dosage, _) => ([dosage / 2, dosage - dosage / 2], [dosage / 2, dosage - dosage / 2, -2]),
        };
        narrow.extend(pair);
        wide.extend(three);
    }
    (narrow, wide)
}

fn ploidies(genotypes: &Genotypes) -> CallPloidies {
    call_ploidies(genotypes, &Device::cpu(), &Run::default()).unwrap()
}

fn components(genotypes: &Genotypes) -> (Vec<u64>, u64) {
    let pca = pca(genotypes, &Device::cpu(), &options(K), &Run::default()).unwrap();
    (bits(&pca), pca.digest)
}

#[test]
fn calls_of_another_ploidy_are_missing() {
    let (narrow, wide) = calls();
    let expected = components(&memory(&narrow, &[300, 20, 2], &[64, 20, 2]));
    let some = memory(&narrow, &[300, 20, 2], &[64, 20, 2]).select([40..100, 100..260]).unwrap();
    let cuts = components(&some);
    let words: Vec<i16> = wide.iter().map(|&x| x.into()).collect();
    let long: Vec<i64> = wide.iter().map(|&x| x.into()).collect();
    for chunk in [[300, 20, 3], [50, 7, 1], [64, 20, 2], [7, 16, 5]] {
        for genotypes in
            [memory(&wide, &SHAPE, &chunk), memory(&words, &SHAPE, &chunk), memory(&long, &SHAPE, &chunk)]
        {
            let found = ploidies(&genotypes);
            let one = wide.chunks(3).filter(|call| call[0] >= 0 && call[1..] == [-2, -2]).count() as u64;
            let known = narrow.chunks(2).filter(|call| call[0] >= 0).count() as u64;
            assert_eq!(found.counts(), [0, one, known - one, 3], "{chunk:?}");
            assert_eq!((found.common(), found.unfit(2), found.unfit(3)), (2, 3, known));
            assert!(components(&genotypes.clone().with_ploidy(2).unwrap()) == expected, "{chunk:?}");
            // One of the selected calls has three alleles.
            let some = genotypes.select([40..100, 100..260]).unwrap();
            assert_eq!(ploidies(&some).unfit(2), 1);
            assert!(components(&some.with_ploidy(2).unwrap()) == cuts, "{chunk:?}");
        }
    }
}

/// Only one of several arrays has room for three alleles.
#[test]
fn arrays_of_several_ploidies() {
    let (narrow, wide) = calls();
    let array = |calls: &[i8], ploidy: u64, chunk: [u64; 3]| -> Arc<dyn ChunkedArray> {
        Arc::new(MemoryArray::new("calls", calls, &[300, 20, ploidy], &chunk).unwrap())
    };
    let (two, three) = (array(&narrow, 2, [64, 20, 2]), array(&wide, 3, [50, 7, 1]));
    let twice = Genotypes::new(vec![Arc::clone(&two), Arc::clone(&two)]).unwrap();
    let expected = components(&twice);
    let of_one = ploidies(&Genotypes::new(vec![Arc::clone(&three)]).unwrap());
    for arrays in [[&two, &three], [&three, &two]].map(|arrays| arrays.map(Arc::clone).to_vec()) {
        assert_refused(Genotypes::new(arrays.clone()), &["of all calls"]);
        let genotypes = Genotypes::of_any_ploidy(arrays).unwrap();
        assert_eq!(genotypes.kind(), GenotypeKind::Calls { ploidy: 3 });
        let found = ploidies(&genotypes);
        // The narrow array has the same calls, except three.
        let all: Vec<u64> = of_one.counts().iter().zip([1, 2, 2, 1]).map(|(calls, n)| calls * n).collect();
        assert_eq!((found.counts(), found.common(), found.unfit(2)), (&*all, 2, 3));
        assert!(components(&genotypes.with_ploidy(2).unwrap()) == expected);
    }
    let unsigned: Arc<dyn ChunkedArray> =
        Arc::new(MemoryArray::new("unsigned", &[1u8; 40], &[1, 20, 2], &[1, 20, 2]).unwrap());
    assert!(matches!(Genotypes::of_any_ploidy(vec![three, unsigned]), Err(Error::Store { .. })));
    let dosages: Arc<dyn ChunkedArray> =
        Arc::new(MemoryArray::new("dosages", &[1i8; 20], &[1, 20], &[1, 20]).unwrap());
    assert!(matches!(Genotypes::of_any_ploidy(vec![two, dosages]), Err(Error::Shape { .. })));
}

#[test]
fn the_ploidy_is_that_of_most_calls() {
    let found = |calls: &[i8], ploidy: u64| {
        ploidies(&memory(calls, &[calls.len() as u64 / ploidy, 1, ploidy], &[2, 1, 2]))
    };
    // Three calls have three alleles, two have two, and one has one. In a tie, the lower ploidy is the common one.
    let triploid = [0, 1, 1, 0, 0, 1, 1, 1, 0, 0, 1, -2, 1, 1, -2, 0, -2, -2];
    assert_eq!((found(&triploid, 3).common(), found(&triploid, 3).unfit(2)), (2, 3));
    let triploid = [&triploid[..], &[0, 0, 0]].concat();
    assert_eq!((found(&triploid, 3).common(), found(&triploid, 3).unfit(3)), (3, 3));
    assert_eq!(found(&[0, -2, 1, -2, 0, 1], 2).unfit(2), 0);
    assert_eq!(found(&[0, 1, -1], 1).common(), 1);
    assert_eq!(found(&[-1; 12], 4).common(), 2);

    // Diploid calls are among triploid ones.
    let mut wide: Vec<i8> = dosages(400, 48).iter().map(|d| i8::from(*d > 0)).collect();
    let mut known: Vec<i8> = wide.chunks(3).map(|call| call.iter().sum()).collect();
    for at in [3, 77, 6000] {
        wide[3 * at + 2] = -2;
        known[at] = -1;
    }
    let genotypes = memory(&wide, &[400, 16, 3], &[100, 16, 3]);
    let run = |genotypes: &Genotypes| pca(genotypes, &Device::cpu(), &options(K), &Run::default());
    assert_refused(run(&genotypes), &["allele -2 pads"]);
    let pca = run(&genotypes.with_ploidy(3).unwrap()).unwrap();
    assert_values(&pca.singular_values, &oracle(&known, 16, 3.0).0, 2e-6);
}

#[test]
fn what_has_no_other_ploidy_is_refused() {
    let (narrow, mut wide) = calls();
    let genotypes = memory(&wide, &SHAPE, &[50, 20, 3]);
    for ploidy in [0, 4] {
        assert_err!(genotypes.clone().with_ploidy(ploidy), Error::Argument { name: "ploidy", .. });
    }
    assert_eq!(ploidies(&genotypes.clone().select([]).unwrap()).counts(), [0; 4]);
    // Parts of genotypes that are read otherwise do not merge, as their words differ.
    let words = genotypes.clone().with_ploidy(3).unwrap().words();
    assert!(words.contains(", others missing") && !genotypes.words().contains("missing"), "{words}");
    let plain = memory(&narrow, &[600, 20], &[50, 20]);
    assert!(matches!(plain.clone().with_ploidy(2), Err(Error::Argument { name: "ploidy", .. })));
    let device = Device::cpu();
    assert_err!(call_ploidies(&plain, &device, &Run::default()), Error::Argument { name: "genotypes", .. });
    let unsigned = memory(&vec![1u8; 18_000], &SHAPE, &[50, 20, 3]);
    assert_eq!(ploidies(&unsigned).common(), 3);
    assert!(matches!(unsigned.with_ploidy(2), Err(Error::Store { .. })));

    assert_err!(call_ploidies(&genotypes, &device, &within(1000)), Error::Budget { .. });
    let stopped = Run::default();
    stopped.cancel.cancel();
    assert!(matches!(call_ploidies(&genotypes, &device, &stopped), Err(Error::Cancelled)));
    let array = MemoryArray::new("broken", &wide, &SHAPE, &[50, 20, 3]).unwrap();
    let torn = Genotypes::new(vec![Arc::new(broken(array, |i| i[0] == 4, false))]).unwrap();
    assert!(matches!(call_ploidies(&torn, &device, &Run::default()), Err(Error::Chunk { .. })));
    let chunk = torn.with_ploidy(2).unwrap();
    assert!(matches!(chunk.arrays()[0].read_chunk(&[4, 0, 0]), Err(Error::Chunk { .. })));
    assert!(matches!(chunk.arrays()[0].read_chunk(&[0, 0, 1]), Err(Error::Chunk { .. })));

    wide[(40 * 20 + 3) * 3 + 1] = -7;
    let bad = memory(&wide, &SHAPE, &[50, 20, 3]).with_ploidy(2).unwrap();
    let refused = pca(&bad, &device, &options(1), &Run::default());
    assert_refused(refused, &["variant 40, sample 3: -7 is no allele"]);
}
