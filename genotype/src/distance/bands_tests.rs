//! Tests of distances in bands, against the distances of all samples at once.

use teatime::{
    Cancel, Device, Error, Progress, Run, assert_err,
    distance::{Metric, Missing},
    openings::{least, within},
};

use super::*;
use crate::{
    VariantFilter,
    tests::{dosages, memory, pair_bits},
    to_usize,
};

const SIDE: u64 = 64;

fn genotypes(dosages: &[i8], samples: u64) -> Genotypes {
    memory(dosages, &[dosages.len() as u64 / samples, samples], &[100, 25])
}

/// Returns the distances that bands give, and the end of each band's samples.
fn of_bands(genotypes: &Genotypes, options: &DistanceOptions, run: &Run) -> Result<(Distances, Vec<u64>)> {
    let bands = DistanceBands::new(genotypes, &Device::cpu(), options, SIDE, run)?;
    let mut all = distances(genotypes, &Device::cpu(), options, &Run::default())?;
    let expected = all.clone();
    let (matrix, shared) = (&mut all.matrix, &mut all.shared);
    assert_eq!((bands.has_shared(), bands.facts().digest), (shared.is_some(), all.facts.digest));
    matrix.data_mut().fill(-1.0);
    let mut ends = Vec::new();
    bands.each(run, &|_| false, &mut |band| {
        assert_eq!(band.own.start, ends.last().copied().unwrap_or(0));
        ends.push(band.own.end);
        let start = to_usize(band.own.start);
        let put = |into: &mut Matrix, from: &Matrix| {
            for (row, col) in (0..from.rows()).flat_map(|row| (0..from.cols()).map(move |col| (row, col))) {
                let (i, j, n) = (start + row, start + col, into.cols());
                into.data_mut()[i * n + j] = from.row(row)[col];
                into.data_mut()[j * n + i] = from.row(row)[col];
            }
        };
        put(matrix, &band.matrix);
        if let (Some(shared), Some(of_band)) = (shared.as_mut(), &band.shared) {
            put(shared, of_band);
        }
        Ok(())
    })?;
    let [found, expected_bits] = [&all, &expected].map(|all| pair_bits(&all.matrix, &all.shared));
    assert!(found == expected_bits, "{options:?}");
    assert_eq!(bands.facts().counts.loaded(), expected.facts.counts.loaded());
    Ok((all, ends))
}

#[test]
fn bands_are_parts_of_the_matrix() {
    let dosages = dosages(150, 300);
    let complete: Vec<i8> = dosages.iter().map(|&x| x.max(0)).collect();
    let filter = VariantFilter { min_maf: 0.1, max_missing: 0.5 };
    for metric in tests::METRICS {
        for (dosages, missing) in
            [(&dosages, Missing::Ignore), (&dosages, Missing::Rescale), (&complete, Missing::Ignore)]
        {
            // This metric is a mean already, and a mean is not rescaled.
            let is_mean = metric.het_het().is_some() && missing == Missing::Rescale;
            let missing = if is_mean { Missing::Propagate } else { missing };
            let options =
                DistanceOptions { metric, missing: Some(missing), filter, ..DistanceOptions::default() };
            let genotypes = genotypes(dosages, 300);
            let (_, (_, ends)) = least(|run| of_bands(&genotypes, &options, run));
            assert!(ends.len() > 2, "{options:?}: {ends:?}");
            of_bands(&genotypes, &options, &within(16 << 20)).unwrap();
        }
    }
}

#[test]
fn bands_are_as_wide_as_memory_allows() {
    let (genotypes, options) = (genotypes(&dosages(150, 700), 700), DistanceOptions::default());
    let (minimum, (_, narrow)) = least(|run| of_bands(&genotypes, &options, run));
    let ends = |host| of_bands(&genotypes, &options, &within(host)).unwrap().1;
    assert!(narrow.len() > 4 && narrow[0] == SIDE && *narrow.last().unwrap() == 700, "{narrow:?}");
    let wider = ends(minimum + 2 * 16 * 700 * 128);
    assert!(wider[0] > SIDE && wider[0].is_multiple_of(SIDE) && wider.len() < narrow.len(), "{wider:?}");
    assert_eq!(ends(1 << 30), [700]);
}

#[test]
fn passes_are_told_and_cancelled() {
    let (genotypes, options) = (genotypes(&dosages(150, 300), 300), DistanceOptions::default());
    let (run, told) = (within(1 << 30), std::sync::Arc::new(std::sync::Mutex::new(Vec::new())));
    let seen = told.clone();
    let progress = Progress::new(move |status| seen.lock().unwrap().push((status.pass, status.passes)));
    let run = run.progress(progress);
    let bands = DistanceBands::new(&genotypes, &Device::cpu(), &options, SIDE, &run).unwrap();
    let mut owners = Vec::new();
    let mut keep = |band: DistanceBand| {
        owners.push(band.own);
        Ok(())
    };
    bands.each(&run, &|tile| [1, 3].contains(&tile), &mut keep).unwrap();
    // Tiles 1 and 3 of the five exist already.
    assert_eq!(owners, [0..64, 128..192, 256..300]);
    let mut told = std::mem::take(&mut *told.lock().unwrap());
    told.dedup();
    assert_eq!(told, [(0, 6), (1, 4), (2, 4), (3, 4)]);
    let cancel = Cancel::default();
    cancel.cancel();
    assert_err!(bands.each(&Run::default().cancel(cancel), &|_| false, &mut |_| Ok(())), Error::Cancelled);
}

#[test]
fn what_bands_are_not_for_is_named() {
    let good = genotypes(&dosages(60, 70), 70);
    let fails = |genotypes: &Genotypes, options: &DistanceOptions, side: u64, words: &str| {
        let made = DistanceBands::new(genotypes, &Device::cpu(), options, side, &Run::default());
        let error = made.map(|_| ()).expect_err(words).to_string();
        assert!(error.contains(words), "`{words}` is not in: {error}");
    };
    let plain = DistanceOptions::default();
    let of = |metric| DistanceOptions { metric: SampleMetric::Of(metric), ..plain };
    let words = "`metric`: canberra is computed in f32, for all samples at once";
    fails(&good, &of(Metric::Canberra), SIDE, words);
    fails(&good, &of(Metric::KlDivergence), SIDE, "is not symmetric");
    fails(&good, &DistanceOptions { tree: Some(Linkage::Average), ..plain }, SIDE, "`tree`");
    fails(&good, &plain, 96, "`side`: 96 is no multiple of 64");
    fails(&memory(&[0.5f32; 140], &[2, 70], &[2, 70]), &plain, SIDE, "dosages 0, 1 and 2 alone");
}

#[cfg(feature = "zarr")]
mod stored {
    use std::{fs, path::Path};

    use teatime::{ChunkedArray, MissingChunk, openings::files, store::ZarrArray};

    use super::*;

    const SAMPLES: u64 = 330;

    fn names() -> Vec<String> {
        (0..SAMPLES).map(|i| format!("S{i}")).collect()
    }

    fn write(path: &Path, metric: SampleMetric, job: &str, run: &Run) -> Result<WrittenBands> {
        // One sample has no calls, so its distances are NaN.
        let mut dosages = dosages(150, to_usize(SAMPLES));
        dosages.iter_mut().skip(100).step_by(to_usize(SAMPLES)).for_each(|x| *x = -1);
        let options = DistanceOptions { metric, ..DistanceOptions::default() };
        let genotypes = genotypes(&dosages, SAMPLES);
        DistanceBands::new(&genotypes, &Device::cpu(), &options, SIDE, run)?.write_zarr(
            path,
            &names(),
            job,
            run,
        )
    }

    const IBS: SampleMetric = SampleMetric::Ibs;

    #[test]
    fn budgets_and_stops_change_no_byte() {
        let scratch = tempfile::tempdir().unwrap();
        let path = |name: &str| scratch.path().join(name);
        let whole = write(&path("whole"), IBS, "job", &within(1 << 30)).unwrap();
        assert_eq!((whole.undefined, whole.bands, whole.squares, whole.found), (330, 1, 36, 0));
        let (_, narrow) = least(|run| {
            assert!(!path("narrow").exists());
            write(&path("narrow"), IBS, "job", run)
        });
        assert!(narrow.bands > 2 && narrow.undefined == 330, "{narrow:?}");
        let expected = files(&path("whole"));
        assert!(files(&path("narrow")) == expected);
        // A process that is killed while it writes the group leaves this file.
        fs::write(path("narrow/..zgroup.1-0.partial"), "{").unwrap();
        // A removed file is written again, and no other file.
        for gone in ["distance/4.1", "distance/1.4", "shared_variants/0.0"] {
            fs::remove_file(path("narrow").join(gone)).unwrap();
            let again = write(&path("narrow"), IBS, "job", &within(1 << 30)).unwrap();
            assert_eq!((again.undefined, again.bands, again.found), (330, 1, 71), "{gone}");
            assert!(files(&path("narrow")) == expected, "{gone}");
        }
        assert_eq!(write(&path("narrow"), IBS, "job", &within(1 << 30)).unwrap().bands, 0);
        // The values equal those of the whole matrix.
        let array = ZarrArray::open(path("whole"), "distance", MissingChunk::Error).unwrap();
        let above: Vec<u64> = bytemuck::pod_collect_to_vec(&array.read_chunk(&[1, 4]).unwrap().bytes);
        let below: Vec<u64> = bytemuck::pod_collect_to_vec(&array.read_chunk(&[4, 1]).unwrap().bytes);
        assert!((0..64).all(|i| (0..64).all(|j| above[i * 64 + j] == below[j * 64 + i])));
        // Any other existing output is kept.
        crate::tests::assert_refused(
            write(&path("narrow"), IBS, "other", &Run::default()),
            &["is of another job"],
        );
        let error = write(&path("narrow"), SampleMetric::Of(Metric::Hamming), "job", &Run::default());
        assert!(error.unwrap_err().to_string().contains("is of another job"));
        assert!(files(&path("narrow")) == expected);
        fs::create_dir(path("mine")).unwrap();
        fs::write(path("mine/notes"), "mine").unwrap();
        let error = write(&path("mine"), IBS, "job", &Run::default()).unwrap_err().to_string();
        assert!(error.contains("mine: is there, and has no array `distance`"), "{error}");
    }
}
