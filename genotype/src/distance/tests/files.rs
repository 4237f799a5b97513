//! Tests of the files of distances and of the nearest samples, of one store and of two.

use std::{fs, sync::Arc};

use teatime::{ChunkedArray, openings::elements, store::NpyArray};

use super::*;

/// Calls `check` with distances and the nearest of three samples, of which the first lacks a call and the others are equal, and with those
/// of two samples from the one of another store.
fn check(check: impl Fn([&Distances; 2], [&SampleNeighbors; 2])) {
    let own = memory(&[0i8, 1, 1, 2, 2, 2, -1, 0, 0], &[3, 3], &[3, 3]);
    let [first, second] = [memory(&[0i8, 1, 2, 2], &[2, 2], &[2, 2]), memory(&[2i8, 0], &[2, 1], &[2, 1])];
    let matches = [Some(Match::Same(1)), Some(Match::Swapped(0))];
    let pairs = [SamplePairs::from(&own), SamplePairs::between(&first, &second, &matches)];
    let options = options(CITYBLOCK);
    let nearest = pairs.map(|pairs| {
        let k = if pairs.others.is_some() { 1 } else { 2 };
        sample_neighbors(pairs, cpu(), &options, k, &Run::default()).unwrap()
    });
    check(pairs.map(|pairs| compute(pairs, &options)).each_ref(), nearest.each_ref());
}

const OWN: [&str; 3] = ["a", "b c", "d"];
const TWO: [&str; 2] = ["a", "b"];
const WITH: Option<&[&str]> = Some(&["w"]);

#[test]
fn text_and_numpy() {
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let text = |name: &str| fs::read_to_string(path(name)).unwrap();
    let number = |value: f64| value.to_string();
    check(|[own, between], [nearest, others]| {
        own.write_plink(path("x.dist"), number).unwrap();
        assert_eq!(text("x.dist"), "1\n1\t0\n");
        own.write_plink_binary(path("x.dist.bin")).unwrap();
        assert_eq!(binary::<f64>(path("x.dist.bin")), own.matrix.data());
        own.write_table(path("x.tsv"), &OWN, None, number).unwrap();
        assert_eq!(text("x.tsv"), "sample\ta\tb c\td\na\t0\t1\t1\nb c\t1\t0\t0\nd\t1\t0\t0\n");
        between.write_table(path("x.tsv"), &TWO, WITH, number).unwrap();
        assert_eq!(text("x.tsv"), "sample\tw\na\t2\nb\t3\n");
        nearest.write_table(path("n.tsv"), &OWN, None, number).unwrap();
        let table = "sample\trank\tneighbor\tdistance\na\t1\tb c\t1\na\t2\td\t1\nb c\t1\td\t0\nb c\t2\ta\t1\n\
                     d\t1\tb c\t0\nd\t2\ta\t1\n";
        assert_eq!(text("n.tsv"), table);
        others.write_table(path("n.tsv"), &TWO, WITH, number).unwrap();
        assert_eq!(text("n.tsv"), "sample\trank\tneighbor\tdistance\na\t1\tw\t2\nb\t1\tw\t3\n");
        let npy = |name: &str| Arc::new(NpyArray::open(path(name)).unwrap());
        nearest.nearest.write_npy(path("n.npy"), path("n.neighbors.npy")).unwrap();
        assert_eq!((npy("n.npy").shape(), npy("n.neighbors.npy").shape()), (&[3, 2][..], &[3, 2][..]));
        assert_eq!(elements::<i64>(npy("n.neighbors.npy")), [1, 2, 2, 0, 1, 0]);
        assert_eq!(elements::<f64>(npy("n.npy")), [1.0, 1.0, 0.0, 1.0, 0.0, 1.0]);

        for names in [vec!["a", "b"], vec!["a", "b\t", "c"], vec!["a", "b\n", "c"]] {
            for refused in [
                own.write_table(path("y"), &names, None, number),
                nearest.write_table(path("y"), &names, None, number),
            ] {
                assert!(matches!(refused, Err(Error::Argument { name: "samples", .. })), "{names:?}");
            }
        }
        for (with, words) in [
            (None, "0 names for 1"),
            (Some(&["c", "d"][..]), "2 names for 1"),
            (Some(&["c\t"]), "does not fit a table"),
        ] {
            assert_refused(between.write_table(path("y"), &TWO, with, number), &[words]);
            assert_refused(others.write_table(path("y"), &TWO, with, number), &[words]);
        }
        for refused in [between.write_plink(path("y"), number), between.write_plink_binary(path("y"))] {
            assert!(matches!(refused, Err(Error::Argument { name: "self", .. })), "{refused:?}");
        }
        let npy = nearest.nearest.write_npy(path("no/y"), path("y"));
        let no_folder = [own.write_plink(path("no/y"), number), npy];
        assert!(no_folder.iter().all(|result| matches!(result, Err(Error::Io { .. }))));
        assert!(!path("y").exists());
    });
}

#[cfg(feature = "zarr")]
#[test]
fn zarr_stores() {
    use teatime::{MissingChunk, StoredType, store::ZarrArray};

    check(|[own, between], [nearest, others]| {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let open = |store: &str, array: &str| {
            Arc::new(ZarrArray::open(path(store), array, MissingChunk::Error).unwrap())
        };
        own.write_zarr(path("own"), &OWN, None).unwrap();
        between.write_zarr(path("between"), &TWO, WITH).unwrap();
        nearest.write_zarr(path("nearest"), &OWN, None).unwrap();
        others.write_zarr(path("others"), &TWO, WITH).unwrap();
        for (store, array, axes, values) in [
            ("own", "distance", ["samples_0", "samples_1"], own.matrix.data()),
            ("between", "distance", ["samples", "samples_with"], between.matrix.data()),
            ("nearest", "distance", ["samples", "neighbors"], nearest.nearest.distances.data()),
            ("others", "distance", ["samples", "neighbors"], others.nearest.distances.data()),
        ] {
            assert_eq!(elements::<f64>(open(store, array)), values, "{store}");
            assert_eq!(open(store, array).dimension_names(), axes.map(String::from), "{store}");
        }
        let shared = elements::<u32>(open("own", "shared_variants")).into_iter().map(f64::from);
        assert!(shared.eq(own.shared.as_ref().unwrap().data().iter().copied()));
        for (store, nearest) in [("nearest", nearest), ("others", others)] {
            let neighbor = open(store, "neighbor");
            assert_eq!((neighbor.dtype(), &*neighbor.dimension_names()[1]), (StoredType::I64, "neighbors"));
            assert_eq!(elements::<u64>(neighbor), nearest.nearest.indices);
            // There is no fill value, so that xarray does not take index 0 for a missing value.
            let metadata = fs::read_to_string(path(store).join("neighbor/.zarray")).unwrap();
            assert!(metadata.contains(r#""fill_value":null"#), "{metadata}");
        }
        for (store, name, extent) in
            [("own", "sample_id", 3), ("between", "sample_id_with", 1), ("others", "sample_id_with", 1)]
        {
            let metadata = fs::read(path(store).join(name).join(".zarray")).unwrap();
            let metadata: serde_json::Value = serde_json::from_slice(&metadata).unwrap();
            assert_eq!(metadata["shape"], serde_json::json!([extent]), "{store}");
        }
        for refused in [
            own.write_zarr(path("y"), &OWN[1..], None),
            between.write_zarr(path("y"), &TWO[1..], WITH),
            nearest.write_zarr(path("y"), &OWN[1..], None),
            others.write_zarr(path("y"), &TWO, None),
        ] {
            assert!(matches!(refused, Err(Error::Argument { name: "samples", .. })), "{refused:?}");
        }
        let there = [own.write_zarr(path("own"), &OWN, None), nearest.write_zarr(path("own"), &OWN, None)];
        assert!(there.iter().all(|result| matches!(result, Err(Error::Store { .. }))));
        assert!(!path("y").exists());
    });
}

/// Budgets, stops and removed files change no byte of a store that is written in bands.
#[cfg(feature = "zarr")]
#[test]
fn stores_of_bands_are_finished() {
    use teatime::openings::{files, within};

    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let names: Vec<String> = (0..330).map(|sample| format!("S{sample}")).collect();
    // One sample has no calls, so its distances are NaN.
    let mut dosages = dosages(150, 330);
    dosages.iter_mut().skip(100).step_by(330).for_each(|x| *x = -1);
    let genotypes = memory(&dosages, &[150, 330], &[100, 25]);
    let write_of = |name: &str, metric, job: &str, run: &Run| {
        let options = DistanceOptions::default().metric(metric);
        let bands = DistanceBands::new(&genotypes, cpu(), &options, 64, run)?;
        bands.write_zarr(path(name), &names, job, run)
    };
    let write = |name: &str, run: &Run| write_of(name, SampleMetric::Ibs, "job", run);
    let roomy = within(1 << 30);
    let whole = write("whole", &roomy).unwrap();
    assert_eq!((whole.undefined, whole.bands, whole.squares, whole.found), (330, 1, 36, 0));
    let (_, narrow) = least(|run| {
        assert!(!path("narrow").exists());
        write("narrow", run)
    });
    assert!(narrow.bands > 2 && narrow.undefined == 330, "{narrow:?}");
    let expected = files(&path("whole"));
    assert!(files(&path("narrow")) == expected);
    // A process that is killed while it writes the group leaves this file.
    fs::write(path("narrow/..zgroup.1-0.partial"), "{").unwrap();
    // A removed file is written again, and no other file.
    for gone in ["distance/4.1", "distance/1.4", "shared_variants/0.0"] {
        fs::remove_file(path("narrow").join(gone)).unwrap();
        let again = write("narrow", &roomy).unwrap();
        assert_eq!((again.undefined, again.bands, again.found), (330, 1, 71), "{gone}");
        assert!(files(&path("narrow")) == expected, "{gone}");
    }
    assert_eq!(write("narrow", &roomy).unwrap().bands, 0);
    // The elements are those of the whole matrix.
    let array = teatime::store::ZarrArray::open(path("whole"), "distance", teatime::MissingChunk::Error);
    let found: Vec<u64> = elements(Arc::new(array.unwrap()));
    let all = compute(&genotypes, &DistanceOptions::default().metric(SampleMetric::Ibs)).matrix;
    assert!(found.into_iter().eq(all.data().iter().map(|x| x.to_bits())));
    // Any other existing output is kept.
    let hamming = SampleMetric::Of(Metric::Hamming);
    for (metric, job) in [(SampleMetric::Ibs, "other"), (hamming, "job")] {
        assert_refused(write_of("narrow", metric, job, &roomy), &["is of another job"]);
    }
    assert!(files(&path("narrow")) == expected);
    fs::create_dir(path("mine")).unwrap();
    fs::write(path("mine/notes"), "mine").unwrap();
    assert_refused(write("mine", &roomy), &["mine: is there, and has no array `distance`"]);
}
