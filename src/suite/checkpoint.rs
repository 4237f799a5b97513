//! Tests of decompositions that are stopped and go on from a checkpoint.
#![allow(clippy::cast_possible_truncation, reason = "small extents")]

use std::{fs, io, path::Path, sync::atomic::Ordering};

use super::left_vectors::{Counted, left};
use super::{group::all_of, spectrum::*, *};
use crate::{
    Progress,
    linalg::{
        Checkpoint, LinearMap, RightSvd, SignRule, Stop, SvdOptions, randomized_svd,
        randomized_svd_with_checkpoint,
    },
    openings::{Puts, within},
    store::{Folder, MemoryArray},
    stream::{
        Center, StoredMatrix, StoredSvdOptions, SvdMethod, SvdRoute, svd_stored, svd_stored_with_checkpoint,
    },
};

device_tests! {
    ;
    stated_memory;
    stored_matrices, a_restarted_basis, stopped_after_each_pass,
}

const OPTIONS: SvdOptions = SvdOptions {
    oversamples: Some(3),
    stop: Stop::PowerIterations(3),
    max_passes: 64,
    seed: 2,
    sign: SignRule::Stable,
    left: true,
};

fn matrix(device: &Device) -> Tensor<f32> {
    upload::<f32>(device, with_spectrum(2100, 70, &geometric(70, 50.0), 3).as_ref())
}

fn at(folder: &Path) -> Checkpoint {
    Checkpoint::new(Arc::new(Folder::new(folder)), "svd").property("matrix", "a")
}

fn solve(map: &dyn LinearMap, options: &SvdOptions, folder: &Path, run: &Run) -> Result<RightSvd> {
    randomized_svd_with_checkpoint(map, 4, options, &at(folder), run)
}

/// Asserts that two decompositions are the same to the bit, with their left vectors.
#[track_caller]
fn assert_same(map: &dyn LinearMap, found: &RightSvd, expected: &RightSvd) {
    assert!((&found.s, &found.v, &found.residuals) == (&expected.s, &expected.v, &expected.residuals));
    assert_eq!((found.passes, &found.converged), (expected.passes, &expected.converged));
    assert!(left(map, found) == left(map, expected));
}

/// Stops the decomposition after each of its passes, or after every `step`th, and once more in each run that goes on. Returns the number of passes.
fn stop_everywhere(map: &dyn LinearMap, options: &SvdOptions, run: &Run, step: usize) -> u32 {
    let whole = randomized_svd(map, 4, options, run).unwrap();
    for passes in (0..whole.passes).step_by(step) {
        let folder = tempfile::tempdir().unwrap();
        let after = |passes| solve(&Counted::most(map, passes), options, folder.path(), run);
        assert_err!(after(passes), Error::Cancelled);
        assert_err!(after(0), Error::Cancelled);
        // One more pass, and then those that are left.
        let (next, left) = (passes.min(whole.passes - 2) + 1 - passes, Counted::most(map, u32::MAX));
        if next > 0 {
            assert_err!(after(next), Error::Cancelled);
        }
        let resumed = solve(&left, options, folder.path(), run).unwrap();
        assert_eq!((resumed.found, left.count.get()), (passes + next, whole.passes - passes - next));
        assert_same(map, &resumed, &whole);
        // All products of a call that is done are there.
        let again = after(0).unwrap();
        assert_eq!(again.found, whole.passes);
        assert_same(map, &again, &whole);
    }
    whole.passes
}

fn stopped_after_each_pass(device: &Device) {
    let x = matrix(device);
    let array = MemoryArray::new("a", &x.read().unwrap(), &[2100, 70], &[300, 40]).unwrap();
    let stored = StoredMatrix::new(vec![Arc::new(array)], device).unwrap();
    assert_eq!(stop_everywhere(&stored, &OPTIONS, &Run::default(), 1), 5);
    assert_eq!(stop_everywhere(&stored, &OPTIONS.left(false), &Run::default(), 2), 5);
    let close = OPTIONS.stop(Stop::Tolerance(1e-3)).oversamples(0);
    assert!(stop_everywhere(&x, &close, &Run::default(), 2) > 4);
    // No component needs no product, and a matrix of few columns one.
    let folder = tempfile::tempdir().unwrap();
    let none = randomized_svd_with_checkpoint(&x, 0, &OPTIONS, &at(folder.path()), &Run::default()).unwrap();
    assert_eq!((none.found, none.s.len()), (0, 0));
    if device.limits().f64 {
        let wide = upload::<f64>(device, with_spectrum(1100, 40, &geometric(40, 50.0), 3).as_ref());
        assert_eq!(stop_everywhere(&wide, &OPTIONS, &Run::default(), 2), 5);
    }
}

/// A basis restarts at the same products, if the budget is the same.
fn a_restarted_basis(device: &Device) {
    let x = upload::<f32>(device, with_spectrum(410, 400, &geometric(400, 5.0), 3).as_ref());
    let bytes = 2 * 16 * 400 * (40 + 3 * 7 + 4);
    let run = Run::default().memory(Budget::default().host(bytes).device(bytes));
    let long = OPTIONS.stop(Stop::PowerIterations(7));
    assert_eq!(stop_everywhere(&x, &long, &run, 4), 9);
    // Within another budget, the products are those of the same vectors up to the restart.
    let (folder, long) = (tempfile::tempdir().unwrap(), long.left(false));
    let restarted = solve(&x, &long, folder.path(), &run).unwrap();
    let whole = randomized_svd(&x, 4, &long, &Run::default()).unwrap();
    assert!(restarted.v != whole.v);
    let other = solve(&x, &long, folder.path(), &Run::default()).unwrap();
    assert!((1..9).contains(&other.found), "{}", other.found);
    assert_same(&x, &other, &whole);
}

#[test]
fn damaged_products_are_made_again() {
    let x = matrix(cpu());
    let folder = tempfile::tempdir().unwrap();
    let whole = solve(&x, &OPTIONS, folder.path(), &Run::default()).unwrap();
    let at = |name: &str| folder.path().join("svd").join(name);
    let [names, others] = [["3", "3-left"], ["2", "2-left"]].map(|names| names.map(at));
    let [normal, kept] = names.each_ref().map(|path| fs::read(path).unwrap());
    assert_eq!([normal.len(), kept.len()], [8 + 8 * 7 * 70, 8 + 4 * 7 * 2100]);
    // A process that was killed while it put a product leaves a temporary file.
    let partial = folder.path().join("svd/.4.77-0.partial");
    for ((path, other), bytes) in names.iter().zip(&others).zip([normal, kept]) {
        let flipped = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 64;
            bytes
        };
        let other = fs::read(other).unwrap();
        let cut = |len: usize| bytes[..len].to_vec();
        let longer = [&bytes[..], &[0]].concat();
        let end = bytes.len();
        for damaged in [cut(0), cut(7), cut(8), cut(end - 1), longer, flipped(3), flipped(end - 5), other] {
            fs::write(path, damaged).unwrap();
            fs::write(&partial, b"torn").unwrap();
            let again = solve(&x, &OPTIONS, folder.path(), &Run::default()).unwrap();
            assert!((&again.s, &again.v, &again.residuals) == (&whole.s, &whole.v, &whole.residuals));
            assert!(!partial.exists());
            if path == &names[0] {
                // The later products are of the same vectors.
                assert_eq!(again.found, 4);
                assert_same(&x, &again, &whole);
            } else {
                // Left vectors take a pass, since one of their products is gone.
                let map = Counted::most(&x, u32::MAX);
                assert_eq!(again.found, 5);
                left(&map, &again);
                assert_eq!(map.count.get(), 1);
            }
        }
    }
}

/// Products do not depend on when the iteration stops, nor on the signs, so a job with more passes goes on.
#[test]
fn products_outlive_the_limits() {
    let x = matrix(cpu());
    let folder = tempfile::tempdir().unwrap();
    let until = |passes: u32| OPTIONS.stop(Stop::Tolerance(1e-9)).max_passes(passes);
    assert_eq!(solve(&x, &until(2), folder.path(), &Run::default()).unwrap().found, 0);
    for (options, found) in [(until(4), 2), (OPTIONS, 4), (OPTIONS.sign(SignRule::MaxAbsV), 5)] {
        let again = solve(&x, &options, folder.path(), &Run::default()).unwrap();
        assert_eq!(again.found, found);
        assert_same(&x, &again, &randomized_svd(&x, 4, &options, &Run::default()).unwrap());
    }
}

#[test]
fn other_jobs_are_refused() {
    let x = matrix(cpu());
    let folder = tempfile::tempdir().unwrap();
    let whole = solve(&x, &OPTIONS, folder.path(), &Run::default()).unwrap();
    let refused =
        |map: &dyn LinearMap, k: usize, options: &SvdOptions, checkpoint: &Checkpoint, said: &str| {
            let found = randomized_svd_with_checkpoint(map, k, options, checkpoint, &Run::default());
            let error = assert_err!(found, Error::Store { .. }).to_string();
            assert!(error.contains("svd: is of another job") && error.contains(said), "{error}");
        };
    let here = at(folder.path());
    refused(&x, 5, &OPTIONS, &here, "components was 4, and is 5");
    refused(&x, 4, &OPTIONS.seed(3), &here, "seed was 2, and is 3");
    refused(&x, 4, &OPTIONS.oversamples(4), &here, "columns of a block was 7, and is 8");
    refused(&x, 4, &OPTIONS.left(false), &here, "left vectors was true, and is false");
    let narrower = Tensor::<f32>::zeros(cpu(), &[2100, 60]).unwrap();
    refused(&narrower, 4, &OPTIONS, &here, "shape was 2100 x 70, and is 2100 x 60");
    let elsewhere = Checkpoint::new(Arc::new(Folder::new(folder.path())), "svd");
    refused(&x, 4, &OPTIONS, &elsewhere.clone().property("matrix", "b\n"), "matrix was a, and is b ");
    refused(&x, 4, &OPTIONS, &elsewhere, "matrix was a, and is not there");
    refused(&x, 4, &OPTIONS, &here.clone().property("filter", 3), "filter was not there, and is 3");
    let job = folder.path().join("svd/job");
    let text = fs::read_to_string(&job).unwrap();
    let version = concat!("version of teatime: ", env!("CARGO_PKG_VERSION"));
    for (own, other, said) in [
        (version, "version of teatime: 0.0.9", "version of teatime was 0.0.9, and is 0."),
        ("format: 1", "format: 2", "format was 2, and is 1"),
        ("precision: 1.1920928955078125e-7", "precision: 1e-9", "precision was 1e-9, and is 1.19"),
    ] {
        assert!(text.contains(own), "{text}");
        fs::write(&job, text.replace(own, other)).unwrap();
        refused(&x, 4, &OPTIONS, &here, said);
    }
    for garbage in [&b""[..], b"\xff\xfe", &[b'x'; 2 << 20]] {
        fs::write(&job, garbage).unwrap();
        assert_refused(solve(&x, &OPTIONS, folder.path(), &Run::default()), &["can be resumed"]);
    }
    // Nothing was changed.
    fs::write(&job, text).unwrap();
    let again = solve(&x, &OPTIONS, folder.path(), &Run::default()).unwrap();
    assert_eq!(again.found, 5);
    assert_same(&x, &again, &whole);
}

/// A centred matrix that is stored: stopped after each pass, in little memory, its decomposition goes on in more, where it fits the device.
fn stored_matrices(device: &Device) {
    let values = matrix(device).read().unwrap();
    let arrays = |values: &[f32]| -> Vec<Array> {
        vec![Arc::new(MemoryArray::new("a", values, &[2100, 70], &[100, 70]).unwrap())]
    };
    let options = StoredSvdOptions::default().center(Center::Columns).method(SvdMethod::Randomized);
    let options = options.svd(OPTIONS.left(false));
    let whole = svd_stored(arrays(&values), 4, &options, device, &Run::default()).unwrap();
    let (least, _) = least(|run| svd_stored(arrays(&values), 4, &options, device, run));
    let little = within(least + 300_000);
    for passes in 0..5 {
        let folder = tempfile::tempdir().unwrap();
        let solve = |values: &[f32], options: &StoredSvdOptions, run: &Run| {
            svd_stored_with_checkpoint(arrays(values), 4, options, &at(folder.path()), device, run)
        };
        let cancel = Cancel::default();
        let flag = cancel.clone();
        // The first pass, for means, is a call of its own.
        let stop = move |status: Status| {
            if status.passes == 5 && status.pass == passes {
                flag.cancel();
            }
        };
        let run = little.clone().cancel(cancel).progress(Progress::new(stop));
        assert_err!(solve(&values, &options, &run), Error::Cancelled);
        if passes == 3 {
            let mut others = values.clone();
            others.swap(0, 1);
            for (values, options, said) in [
                (&values, options.center(Center::Rows), "center was columns, and is rows"),
                (&values, options.scale(true), "scale was false, and is true"),
                (&others, options, "means and deviations was "),
            ] {
                assert_refused(solve(values, &options, &Run::default()), &["is of another job: ", said]);
            }
        }
        let resumed = solve(&values, &options, &Run::default()).unwrap();
        // A pass of one block ends before it is cancelled.
        assert!((passes..=passes + 1).contains(&resumed.found) && resumed.passes == 5);
        if resumed.route == SvdRoute::KrylovStreamed {
            assert_eq!(resumed.readings, 1 + 5 - resumed.found);
        }
        assert!(all_of(&resumed) == all_of(&whole));
    }
}

/// The least budget that an error names suffices, also where the host's memory holds products only to save them.
fn stated_memory(device: &Device) {
    let x = upload::<f32>(device, with_spectrum(1100, 300, &geometric(300, 50.0), 3).as_ref());
    let folder = tempfile::tempdir().unwrap();
    let within = |host| Run::default().memory(Budget::default().host(host).device(1 << 30));
    let refused = |host| {
        let error = solve(&x, &OPTIONS, folder.path(), &within(host)).unwrap_err();
        let Error::Budget { memory: MemoryKind::Host, minimum, .. } = error else { panic!("{error}") };
        minimum
    };
    let least = refused(1);
    assert!(least >= 16 * 7 * 300, "{least}");
    assert_eq!(refused(least - 1), least);
    let found = solve(&x, &OPTIONS, folder.path(), &within(least)).unwrap();
    let plain = randomized_svd(&x, 4, &OPTIONS, &within(least)).unwrap();
    // A checkpoint changes no bit, however little memory there is.
    assert!((&found.s, &found.v) == (&plain.s, &plain.v));
}

/// Products that are not finite end the call, and are not put.
#[test]
fn not_finite() {
    let x = Tensor::<f32>::zeros(cpu(), &[30, 8]).unwrap();
    let mut values = x.read().unwrap();
    values[9] = f32::NAN;
    let x = Tensor::from_slice(cpu(), &values, &[30, 8]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    assert_refused(solve(&x, &OPTIONS, folder.path(), &Run::default()), &["products are NaN or infinite"]);
    assert!(folder.path().join("svd/job").exists() && !folder.path().join("svd/1").exists());
}

#[test]
fn a_full_disk() {
    let x = matrix(cpu());
    let whole = randomized_svd(&x, 4, &OPTIONS, &Run::default()).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let solve = |at: u64| {
        let disk = Puts::full_once(folder.path(), at);
        let checkpoint = Checkpoint::new(disk.clone(), "svd");
        let found = randomized_svd_with_checkpoint(&x, 4, &OPTIONS, &checkpoint, &Run::default());
        (found, disk.count.load(Ordering::Relaxed))
    };
    for (at, name) in [(0, "svd/job"), (3, "svd/2-left"), (1, "svd/2"), (2, "svd/3-left")] {
        let (stopped, puts) = solve(at);
        let Err(Error::Io { path, source }) = stopped else { panic!("{stopped:?}") };
        assert!(path.ends_with(name) && source.kind() == io::ErrorKind::StorageFull, "{path}: {source}");
        assert_eq!(puts, at + 1);
    }
    let (found, puts) = solve(u64::MAX);
    let found = found.unwrap();
    assert_eq!((found.found, puts), (2, 6));
    assert_same(&x, &found, &whole);
}
