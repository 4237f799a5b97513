//! Tests of groups: members share the work, results keep their bits, and the fault of one ends the call with its error.

use std::{
    collections::HashSet,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
    time::{Duration, Instant},
};

use super::filter_stored::{CHUNK, SHAPE, TILE, read, stored, within, writer};
use super::{group_of as group, *};
use crate::{
    Needs,
    distance::{
        Metric, Missing, Neighbors, Options, candidates, condensed, neighbors, neighbors_stored, pairwise,
        pairwise_counted, radius_neighbors, radius_neighbors_stored, write_condensed, write_pairwise,
    },
    filter::{GaussianOptions, TvOptions, write_denoised_tv, write_gaussian},
    linalg::{Checkpoint, GroupMatrix, LinearMap, Pass, SvdOptions, host, randomized_svd},
    packed::PackedMatrix,
    store::{ArraySpec, Folder, NpyWriter},
    stream::{
        BoxOperation, Center, Place, StoredMatrix, StoredSvd, StoredSvdOptions, SvdMethod,
        SvdRoute::{Gram, KrylovOnDevice, KrylovStreamed, Qr},
        Sweep, svd_stored, svd_stored_with_checkpoint,
    },
};

device_tests! { ; swept, filtered, distances, nearest, packed, refused, faults; matrices, decompositions }

/// Adds to each element its predecessor along the first axis.
#[derive(Default)]
struct Pairs {
    /// The threads that computed.
    threads: Mutex<HashSet<std::thread::ThreadId>>,
    /// The number of threads for which each box waits.
    meet: usize,
    boxes: AtomicU32,
    fails_at: Option<u32>,
}

impl BoxOperation for Pairs {
    type Input = f32;
    type Output = f32;

    fn halo(&self, axis: usize) -> [u64; 2] {
        [u64::from(axis == 0), 0]
    }

    fn run(&self, x: &Tensor<f32>, place: &Place, out: &mut Tensor<f32>) -> Result<()> {
        self.threads.lock().unwrap().insert(std::thread::current().id());
        let began = Instant::now();
        while self.threads.lock().unwrap().len() < self.meet && began.elapsed() < Duration::from_secs(20) {
            std::thread::yield_now();
        }
        if Some(self.boxes.fetch_add(1, Relaxed)) == self.fails_at {
            return Err(Error::argument("own", "x", "no"));
        }
        assert!(x.device().is_same(out.device()));
        let (values, row) = (x.read()?, place.shape[1..].iter().product::<u64>() as usize);
        let first = place.before[0] as usize * row;
        let pair = |i: usize| values[i] + if i >= row { values[i - row] } else { 0.0 };
        out.write(&(first..values.len()).map(pair).collect::<Vec<_>>())
    }
}

fn swept(device: &Device) {
    let array = stored(&values::<i16>(3, SHAPE.iter().product()), &SHAPE, &CHUNK);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x");
    let of = |operation: Pairs, device: &Device, run: &Run| {
        let writer = writer(&path, ArraySpec::new(StoredType::F32, &SHAPE, &TILE), "pairs")?;
        let swept = Sweep::new(&array, device, run).map(&operation, writer)?;
        Ok::<_, Error>((swept, operation.threads.into_inner().unwrap().len()))
    };
    let map = |device: &Device, run: &Run| of(Pairs::default(), device, run);
    let whole = map(device, &Run::default()).unwrap().0;
    let expected = read::<f32>(&path);
    for count in [1, 2, 3, 5] {
        let group = group(device, count);
        let anew = || std::fs::remove_dir_all(&path).unwrap();
        anew();
        let (run, statuses) = told(|_| false);
        // Small boxes, so that there are some for each member.
        let run = run.memory(within(count as u64 * (1 << 17)).memory);
        let meet = count.min(2);
        let (swept, threads) = of(Pairs { meet, ..Pairs::default() }, &group, &run).unwrap();
        assert_eq!(read::<f32>(&path), expected, "{count}");
        assert!((meet..=count).contains(&threads) && swept.found == 0, "{threads} {swept:?}");
        assert_eq!(swept.devices, threads);
        assert!(swept.boxes >= whole.boxes, "{swept:?}");
        assert!(swept.times_decoded < 3.0 && swept.times_covered < 3.0, "{swept:?}");
        let statuses = std::mem::take(&mut *statuses.lock().unwrap());
        let total = SHAPE.iter().product::<u64>();
        assert!(statuses.iter().all(|status| status.total == total && status.rows <= total));
        assert_eq!(statuses.last().unwrap().rows, total);
        // Everything is found again, or what there is, and the least memory that is named is enough.
        let (found, _) = map(&group, &run).unwrap();
        assert_eq!((found.boxes, found.found), (0, swept.boxes), "{count}");
        let (bytes, _) = least(|run| {
            anew();
            map(&group, run)
        });
        assert_eq!(read::<f32>(&path), expected, "{count} within {bytes}");
        anew();
        let failing = Pairs { fails_at: Some(count as u32 + 3), ..Pairs::default() };
        assert_err!(of(failing, &group, &within(bytes)), Error::Argument { op: "own", .. });
        let (found, _) = map(&group, &within(bytes)).unwrap();
        assert!(found.found > 0 && found.boxes > 0, "{found:?}");
        assert_eq!(read::<f32>(&path), expected, "{count}");
        let ranges = [1..5, 9..20, 5..47];
        let part = |device| {
            let run = Run::default();
            Sweep::new(&array, device, &run).within(&ranges).unwrap().map_to_host(&Pairs::default()).unwrap()
        };
        assert_eq!(part(&group), part(device));
    }
}

fn filtered(device: &Device) {
    let array = stored(&values::<i16>(7, SHAPE.iter().product()), &SHAPE, &CHUNK);
    let folder = tempfile::tempdir().unwrap();
    let run = Run::default();
    let written = |name: &str, device: &Device| {
        let path = folder.path().join(name);
        let begin = |job: &str| writer(&path, ArraySpec::new(StoredType::F32, &SHAPE, &TILE), job);
        if name.starts_with("blurred") {
            write_gaussian(&array, [1.0, 2.0, 0.5], &GaussianOptions::default(), device, &run, begin)
                .unwrap();
        } else {
            // The energies of all images decide when the iterations end.
            let options = TvOptions::default().axes([1, 2]).weight(100.0).eps(0.01).narrow(true);
            let denoised = write_denoised_tv(&array, &options, device, &run, begin).unwrap();
            assert!(denoised.iterations.iter().all(|count| (2..200).contains(count)), "{denoised:?}");
        }
        read::<f32>(&path)
    };
    let group = group(device, 3);
    for what in ["blurred", "denoised"] {
        assert!(written(&format!("{what} 3"), &group) == written(what, device), "{what}");
    }
}

fn distances(device: &Device) {
    let folder = tempfile::tempdir().unwrap();
    let (x, y) = (values::<f32>(1, 70 * 9), values::<f32>(2, 50 * 9));
    let (options, run) = (Options::default(), Run::default());
    for count in [2, 3, 5] {
        let group = group(device, count);
        let [a, b] = [(&x, 70), (&y, 50)].map(|(x, rows)| Tensor::from_slice(&group, x, &[rows, 9]).unwrap());
        for (name, other, columns) in [("square", None, 70), ("two", Some(&b), 50)] {
            let expected = pairwise(&a, other, Metric::Euclidean, &options, &run).unwrap();
            let path = folder.path().join(format!("{name}{count}"));
            let spec = || ArraySpec::new(StoredType::F64, &[70, columns], &[16, 16]);
            let writer = || writer(&path, spec(), name).unwrap();
            // One device writes some tiles, and the group the others.
            let [alone, with] = [Some(&a), other].map(|x| x.map(|x| x.to_device(device).unwrap()));
            let (run, _) = told(|status| status.rows > 20);
            let write = |x: &Tensor<f32>, y, run: &Run| {
                write_pairwise(x, y, Metric::Euclidean, &options, run, (writer(), None))
            };
            assert_err!(write(&alone.unwrap(), with.as_ref(), &run), Error::Cancelled);
            let (run, statuses) = told(|_| false);
            write(&a, other, &run).unwrap();
            let found = read::<f64>(&path);
            assert!(found == expected.data(), "{name} {count}");
            let statuses = statuses.lock().unwrap();
            assert_eq!(statuses.last().unwrap().rows, 70, "{statuses:?}");
            assert!(statuses.iter().all(|status| status.rows <= 70 && status.total == 70), "{statuses:?}");
        }
        let pairs = condensed(&a, Metric::CityBlock, &options, &run).unwrap();
        let path = folder.path().join(format!("condensed{count}"));
        let writer = writer(&path, ArraySpec::new(StoredType::F64, &[70 * 69 / 2], &[100]), "pairs").unwrap();
        write_condensed(&a, Metric::CityBlock, &options, &run, writer).unwrap();
        assert!(read::<f64>(&path) == pairs, "{count}");
    }
}

/// Members find the nearest among different pairs, of which many are as near, and some are NaN.
fn nearest(device: &Device) {
    let ties = |seed, rows: u64| {
        let mut x: Vec<f32> =
            values::<u32>(seed, rows * 3).iter().map(|bits| (bits >> 9) as f32 % 3.0).collect();
        x[7] = f32::NAN;
        x
    };
    let bits = |values: &[f64]| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
    let bits_of = |found: Neighbors| (found.indices, bits(found.distances.data()));
    let (x, y) = (ties(7, 330), ties(8, 200));
    // Half of the observations are equal.
    let mut wide = values::<f32>(9, 330 * 50);
    (0..330).step_by(2).for_each(|row| wide[50 * row..50 * (row + 1)].fill(0.5));
    let devices = |count| [device.clone(), group(device, count)];
    let tensors = |devices: &[Device; 2], x: &[f32], rows| {
        let shape = [rows, x.len() as u64 / rows];
        devices.each_ref().map(|device| Tensor::from_slice(device, x, &shape).unwrap())
    };
    let cases = [
        (2, Metric::SqEuclidean, Missing::Propagate, 7),
        (5, Metric::InnerProduct, Missing::Ignore, 2),
        (2, Metric::BrayCurtis, Missing::Propagate, 7),
        (3, Metric::Euclidean, Missing::Rescale, 3),
        (2, Metric::KlDivergence, Missing::Propagate, 7),
        (5, Metric::Correlation, Missing::Propagate, 199),
        (3, Metric::CityBlock, Missing::Propagate, 257),
    ];
    // Members divide the pairs on the host, so other devices need fewer metrics: every third has each way of selection.
    for (count, metric, missing, k) in
        cases.into_iter().step_by(if device.shares_host_memory() { 1 } else { 3 })
    {
        let devices = devices(count);
        let ([one, all], [one_y, all_y]) = (tensors(&devices, &x, 330), tensors(&devices, &y, 200));
        let (options, silent) = (Options::default().missing(missing), Run::default());
        for (one_y, all_y) in [(None, None), (Some(&one_y), Some(&all_y))] {
            let k = k.min(if one_y.is_some() { 200 } else { 329 });
            let (run, statuses) = told(|_| false);
            let found = neighbors(&all, all_y, k, metric, &options, &run).unwrap();
            let expected = neighbors(&one, one_y, k, metric, &options, &silent).unwrap();
            assert!(bits_of(found) == bits_of(expected), "{metric} {count}");
            let rows: Vec<u64> = statuses.lock().unwrap().iter().map(|status| status.rows).collect();
            assert!(rows.is_sorted() && rows.last() == Some(&330), "{metric} {count}: {rows:?}");
            let of = |x, y| pairwise_counted(x, y, metric, &options, &silent).unwrap();
            let (found, expected) = (of(&all, all_y), of(&one, one_y));
            assert!(bits(found.distances.data()) == bits(expected.distances.data()), "{metric} {count}");
            assert!(found.shared == expected.shared, "{metric} {count}");
            let near = expected.distances.data()[1];
            let radius = if near.is_nan() { 1.0 } else { near };
            let of = |x, y, run: &Run| radius_neighbors(x, y, radius, metric, &options, run).unwrap();
            let (run, statuses) = told(|_| false);
            assert!(of(&all, all_y, &run) == of(&one, one_y, &silent), "{metric} {count} {radius}");
            assert_eq!(statuses.lock().unwrap().last().map(|status| status.rows), Some(330), "{metric}");
        }
    }
    // The least budget has blocks of a pair, so few observations are searched within it.
    let (few, [one_few, all_few]) = (130, tensors(&devices(2), &x[..390], 130));
    let devices = devices(3);
    let ([one, all], [one_wide, all_wide]) = (tensors(&devices, &x, 330), tensors(&devices, &wide, 330));
    let of = |x, run: &Run| condensed(x, Metric::CityBlock, &Options::default(), run).unwrap();
    let (run, statuses) = told(|_| false);
    assert!(bits(&of(&all, &run)) == bits(&of(&one, &Run::default())));
    assert_eq!(statuses.lock().unwrap().last().map(|status| status.rows), Some(330));
    let (bytes, found) = least(|run| condensed(&all_few, Metric::CityBlock, &Options::default(), run));
    assert!(bytes >= 4 * few * (few - 1) && bits(&found) == bits(&of(&one_few, &Run::default())), "{bytes}");
    // Observations that candidates leave in doubt are searched again by all members.
    for (metric, k) in [(Metric::SqEuclidean, 3), (Metric::Cosine, 20)] {
        let of = |x| candidates::found((x, None), k, metric, &Options::default(), Some(64)).unwrap();
        let [found, expected] =
            [of(&all_wide), of(&one_wide)].map(|found| found.map(|(found, again)| (bits_of(found), again)));
        assert!(found == expected, "{metric}");
        assert!(found.is_none_or(|(_, again)| again > 100), "{metric}: few are searched again");
    }
    let of = |run: &Run| neighbors(&all_few, None, 5, Metric::CityBlock, &Options::default(), run);
    let (bytes, found) = least(|run| of(run).map(bits_of));
    assert!(bytes >= few * 5 * 16 && found == bits_of(of(&Run::default()).unwrap()), "{bytes}");
}

fn matrices(device: &Device) {
    let (m, n) = (2100, 30);
    let run = Run::default();
    // Columns of decreasing size have few large singular values.
    let entries: Vec<f32> =
        values::<f32>(4, m * n).iter().zip(0..).map(|(x, i)| x / (1 << (i % n).min(20)) as f32).collect();
    let array = stored(&entries, &[m, n], &[500, 7]);
    let a = Matrix::from_vec(entries.iter().map(|&x| x.into()).collect(), m as usize, n as usize).unwrap();
    let x = Matrix::from_vec(values::<f32>(5, n * 2).into_iter().map(f64::from).collect(), 30, 2).unwrap();
    let applied = host::product(a.as_faer(), x.as_faer());
    let normal = host::product(a.as_faer().transpose(), applied.as_ref());
    let largest = (0..30).map(|i| normal[(i, 0)].abs().max(normal[(i, 1)].abs())).fold(0.0, f64::max);
    for count in [1, 2, 3, 5] {
        let group = group(device, count);
        let streamed = StoredMatrix::new(vec![Arc::clone(&array)], &group).unwrap().by_member().unwrap();
        let matrix = streamed.to_tensors(&run).unwrap();
        let rows: Vec<u64> = matrix.parts().iter().map(|part| part.shape()[0]).collect();
        assert_eq!((rows.iter().sum::<u64>(), rows.len()), (m, count));
        assert!(rows[..count - 1].iter().all(|rows| rows.is_multiple_of(1024)), "{rows:?}");
        let (told, statuses) = told(|_| false);
        let pass = Pass::new(&told, Status::new(0, 1, m));
        let found = matrix.apply_normal(&x, &pass).unwrap();
        assert!(statuses.lock().unwrap().iter().all(|status| status.rows <= m && status.total == m));
        assert!(streamed.apply_normal(&x, &pass).unwrap() == found, "{count}");
        assert!(streamed.stats().chunks >= 2 * 5 * 5, "{:?}", streamed.stats());
        for (i, j) in (0..30).flat_map(|i| [(i, 0), (i, 1)]) {
            assert!((found[(i, j)] - normal[(i, j)]).abs() <= 2e-6 * largest, "{count}");
        }
        let mut next = 0;
        matrix
            .apply(&x, &pass, &mut |first, y| {
                assert_eq!(first, next);
                next += y.rows() as u64;
                let same = |i: usize| (y[(i, 1)] - applied[(first as usize + i, 1)]).abs() <= 1e-5 * 30.0;
                assert!((0..y.rows()).all(same));
                Ok(())
            })
            .unwrap();
        assert_eq!(next, m);
        let svd = randomized_svd(&matrix, 3, &SvdOptions::default(), &run).unwrap();
        let one = StoredMatrix::new(vec![Arc::clone(&array)], device).unwrap();
        let expected = randomized_svd(&one, 3, &SvdOptions::default(), &run).unwrap();
        for (s, expected) in svd.s.iter().zip(&expected.s) {
            assert!((s - expected).abs() <= 1e-6 * expected, "{s} {expected}");
        }
    }
    let group = group(device, 2);
    let of = |members: &[Device], columns: [u64; 2]| {
        let parts =
            members.iter().zip(columns).map(|(device, n)| Tensor::<f32>::zeros(device, &[2, n]).unwrap());
        GroupMatrix::new(&group, parts.collect())
    };
    let members = group.members();
    assert!(of(&members, [3, 3]).is_ok());
    assert_err!(of(&members, [3, 4]), Error::Shape { .. });
    assert_err!(of(&members[..1], [3, 4]), Error::Argument { name: "parts", .. });
    if !device.shares_host_memory() {
        assert_err!(of(&[members[1].clone(), members[0].clone()], [3, 3]), Error::WrongDevice { .. });
    }
}

/// Returns the values and the left and right vectors of a decomposition.
pub(super) fn all_of(svd: &StoredSvd) -> [Vec<f64>; 3] {
    let (run, mut sides) = (Run::default(), [const { Vec::new() }; 2]);
    let [left, right] = &mut sides;
    for (vectors, side) in [(left, 0), (right, 1)] {
        let mut take = |first: u64, rows: &Matrix| {
            assert_eq!(first as usize * svd.s.len(), vectors.len());
            vectors.extend(rows.data());
            Ok(())
        };
        if side == 0 { svd.left(&run, &mut take) } else { svd.right(&run, &mut take) }.unwrap();
    }
    let [left, right] = sides;
    [svd.s.clone(), left, right]
}

fn decompositions(device: &Device) {
    let (k, run, mut by_gram) = (3, Run::default(), [0; 2]);
    let folder = tempfile::tempdir().unwrap();
    // Three blocks of 1,024 rows are shared, of which a group of two has one and two, and two members of five have none.
    for shape @ [m, n] in [[2100, 30], [30, 2100]] {
        let short = |at: u64| if m < n { at / n } else { at % n };
        let size = |at: u64| (-(short(at).min(20) as f32)).exp2();
        let entries = values::<f32>(4, m * n).into_iter().zip(0..);
        let entries: Vec<f32> = entries.map(|(x, at)| size(at) * (x + short(at) as f32)).collect();
        let array = stored(&entries, &shape, &[500, 7]);
        let options = StoredSvdOptions::default().center(Center::Both);
        let solve = |device: &Device, method, run: &Run| {
            svd_stored(vec![Arc::clone(&array)], k, &options.method(method), device, run)
        };
        let expected = all_of(&solve(device, SvdMethod::Exact, &run).unwrap());
        for count in [1, 2, 3, 5] {
            let group = group(device, count);
            let [streamed, exactly] = [SvdMethod::Randomized, SvdMethod::Exact].map(|method| {
                if device.shares_host_memory() {
                    return least(|run| solve(&group, method, run)).1;
                }
                let of = |bytes| Run::default().memory(Budget::default().device(bytes));
                let refused = solve(&group, method, &of(1)).unwrap_err();
                let Error::Budget { memory: MemoryKind::Device, minimum, .. } = refused else {
                    panic!("{refused}")
                };
                solve(&group, method, &of(minimum)).unwrap()
            });
            let [exact, iterated] =
                [SvdMethod::Exact, SvdMethod::Randomized].map(|method| solve(&group, method, &run).unwrap());
            let routes = [&exact, &iterated, &streamed].map(|svd| svd.route);
            assert_eq!(routes, [Qr, KrylovOnDevice, KrylovStreamed], "{shape:?} {count}");
            by_gram[usize::from(count > 1)] += usize::from(exactly.route == Gram);
            for svd in [&exact, &iterated, &streamed, &exactly] {
                assert_eq!(svd.devices, if svd.route == Qr { 1 } else { count });
            }
            // Rows on the members and rows that are read again are multiplied in the same way.
            let [found, others] = [all_of(&iterated), all_of(&streamed)];
            assert!(found[..] == others[..], "{shape:?} {count}");
            for (name, found) in [("exact", all_of(&exact)), ("iterated", found), ("gram", all_of(&exactly))]
            {
                for (found, expected) in found[0].iter().zip(&expected[0]) {
                    let difference = (found - expected).abs();
                    assert!(difference <= 2e-6 * expected, "{name} {count}: {found} {expected}");
                }
                for (i, side) in [(1, m), (2, n)] {
                    assert_eq!(found[i].len() as u64, side * k as u64);
                    for (found, expected) in found[i].iter().zip(&expected[i]) {
                        let difference = (found.abs() - expected.abs()).abs();
                        assert!(difference <= 1e-4, "{name} {count}: {found} {expected}");
                    }
                }
            }
            if count == 2 {
                // Products of another number of devices are others.
                let at = Checkpoint::new(Arc::new(Folder::new(folder.path())), &format!("{m}"));
                let saved = |device: &Device| {
                    let options = options.method(SvdMethod::Randomized);
                    svd_stored_with_checkpoint(vec![Arc::clone(&array)], k, &options, &at, device, &run)
                };
                let first = saved(&group).unwrap();
                let again = saved(&group).unwrap();
                assert!(again.found == first.passes && all_of(&again) == all_of(&first), "{}", again.found);
                assert_refused(saved(device), &["devices was 2, and is not there"]);
            }
            if count == 1 {
                let one = all_of(&solve(device, SvdMethod::Randomized, &run).unwrap());
                assert!(all_of(&iterated) == one);
            }
        }
    }
    assert!(by_gram[0] == 2 && (by_gram[1] > 0 || device.shares_host_memory()), "{by_gram:?}");
}

fn packed(device: &Device) {
    let run = Run::default();
    let x = Matrix::from_vec(values::<f32>(5, 65 * 3).into_iter().map(f64::from).collect(), 65, 3).unwrap();
    for (rows, counts) in [(0, &[3][..]), (1, &[2]), (2, &[5]), (300, &[3, 5])] {
        let of = |device: &Device| PackedMatrix::random(device, rows, 65, 3, &run).unwrap();
        let product = |a: &PackedMatrix| {
            let (run, statuses) = told(|_| false);
            let pass = Pass::new(&run, Status::new(0, 1, rows));
            let normal = a.apply_normal(&x, &pass).unwrap();
            assert!(statuses.lock().unwrap().iter().all(|status| status.rows <= rows));
            let mut applied = Vec::new();
            statuses.lock().unwrap().clear();
            a.apply(&x, &pass, &mut |first, part| {
                assert_eq!(first as usize * 3, applied.len());
                applied.extend_from_slice(part.data());
                Ok(())
            })
            .unwrap();
            let told: Vec<u64> = statuses.lock().unwrap().iter().map(|status| status.rows).collect();
            assert!(told.is_sorted() && told.last().is_none_or(|last| *last == rows), "{told:?}");
            let mut panels = Vec::new();
            a.each(&pass, &mut |panel| {
                panels.push(panel.rows.clone());
                // The panel is where the first device's operations take it.
                panel.packed().map(|rows| assert!(device.has("test", "panel", rows.device()).is_ok()))
            })
            .unwrap();
            assert_eq!(panels.iter().map(|rows| rows.end - rows.start).sum::<u64>(), rows);
            (normal, applied)
        };
        let (one, expected) = (of(device), product(&of(device)));
        for &count in counts {
            let shared = of(&group(device, count));
            assert_eq!((shared.shape(), shared.words()), (one.shape(), one.words()), "{count}");
            assert!(product(&shared) == expected, "{rows} rows on {count}");
            let on_host = shared.to_host(7).unwrap();
            let is_same = on_host.is_on_host() && product(&on_host) == expected;
            assert!(is_same, "{rows} rows of {count} on the host");
        }
    }
    let svd = |device: &Device| {
        let a = PackedMatrix::random(device, 500, 40, 1, &run).unwrap();
        let svd = randomized_svd(&a, 3, &SvdOptions::default(), &run).unwrap();
        (svd.s.clone(), svd.v.data().to_vec())
    };
    assert!(svd(&group(device, 3)) == svd(device));
}

fn refused(device: &Device) {
    assert_refused(Device::group(&[]), &["`devices`", "none given"]);
    assert_refused(Device::open("cpu,none:3"), &["none:3"]);
    assert_err!(Device::open("nothing:*"), Error::NoDevice { .. });
    assert_eq!(Device::open("cpu, cpu,cpu").unwrap().members().len(), 3);
    let (run, array) = (Run::default(), stored(&[1.0f32; 12], &[12], &[3]));
    if device.shares_host_memory() {
        return;
    }
    let name = device.info().name.clone();
    assert_refused(Device::group(&[device.clone(), device.clone()]), &[&name, "is named twice"]);
    let mixed = Device::group(&[device.clone(), Device::cpu()]).unwrap();
    let swept = Sweep::new(&array, &mixed, &run).map_to_host(&Pairs::default());
    let matrix = stored(&[1.0f32; 12], &[4, 3], &[2, 3]);
    let x = Tensor::from_slice(&mixed, &[1.0f32, 2.0, 3.0], &[3, 1]).unwrap();
    let (metric, options) = (Metric::Euclidean, Options::default());
    let refused = [
        pairwise(&x, None, metric, &options, &run).map(drop),
        condensed(&x, metric, &options, &run).map(drop),
        neighbors(&x, None, 1, metric, &options, &run).map(drop),
        radius_neighbors(&x, None, 1.0, metric, &options, &run).map(drop),
        neighbors_stored(&matrix, None, 1, metric, &options, &mixed, &run).map(drop),
        radius_neighbors_stored(&matrix, None, 1.0, metric, &options, &mixed, &run).map(drop),
    ];
    for refused in refused {
        assert_refused(refused, &["`device`", "round differently"]);
    }
    assert_refused(swept, &["`device`", "round differently"]);
    let solved = svd_stored(vec![matrix], 1, &StoredSvdOptions::default(), &mixed, &run);
    assert_refused(solved, &["`device`", "round differently"]);
    // Whole numbers are the same on all devices.
    let of = |device: &Device| PackedMatrix::random(device, 30, 17, 3, &run).unwrap();
    assert_eq!(of(&mixed).words(), of(device).words());
    let mut shared = of(&mixed);
    let rows = Tensor::from_slice(device, &[0u8; 17], &[1, 17]).unwrap();
    assert_refused(shared.push(&rows), &["`self`", "on 2 devices"]);
    assert_err!(PackedMatrix::join(&mixed, vec![]), Error::Argument { name: "matrices", .. });
    let others = vec![of(device), PackedMatrix::new(&Device::cpu(), 3).unwrap()];
    assert_refused(PackedMatrix::join(&mixed, others), &["of 17 and of 3 columns"]);
    assert_err!(PackedMatrix::join(&mixed, vec![of(device), of(device)]), Error::WrongDevice { .. });
    let joined = PackedMatrix::join(&mixed, vec![of(&mixed), of(device)]);
    assert_err!(joined, Error::Argument { name: "matrices", .. });
}

fn faults(device: &Device) {
    let group = group(device, 3);
    let array = stored(&values::<i16>(3, SHAPE.iter().product()), &SHAPE, &CHUNK);
    let folder = tempfile::tempdir().unwrap();
    for fails_at in [0, 1, 2] {
        let writer = NpyWriter::create(folder.path().join("x.npy"), StoredType::F32, &SHAPE).unwrap();
        let operation = Pairs { fails_at: Some(fails_at), ..Pairs::default() };
        let run = within(1 << 20);
        let swept = Sweep::new(&array, &group, &run).map(&operation, writer);
        assert_err!(swept, Error::Argument { op: "own", .. });
    }
    // If one fails, the others are told to stop, and its error is the call's.
    let run = Run::default();
    let failed = group.each_member(&run, 0, |i, _, run| {
        if i == 1 {
            return Err(Error::argument("own", "x", "no"));
        }
        while !run.cancel.is_cancelled() {
            std::thread::yield_now();
        }
        run.cancel.check()
    });
    assert_err!(failed, Error::Argument { op: "own", .. });
    assert!(!run.cancel.is_cancelled() && group.check().is_ok());
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        group.each_member(&Run::default(), 0, |i, _, _| -> Result<()> {
            if i == 2 { panic!("on purpose") } else { Ok(()) }
        })
    }));
    assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"on purpose"));
    // The memory of a budget error is that of all members, which work in turn for a thread of their pool.
    let (run, statuses) = told(|_| false);
    let run = run.memory(Budget::default().host(300));
    let fit = |host| {
        group.each_member(&run, 30, |_, device, run| {
            run.progress.tell(Status { rows: 10, ..Status::new(0, 1, 30) });
            run.memory.fit(device, Needs::host(host))
        })
    };
    let pool = Arc::clone(group.pool().unwrap());
    let in_turn = |host| pool.install(|| fit(host));
    for fit in [&fit as &dyn Fn(u64) -> Result<Vec<Budget>>, &in_turn] {
        fit(100).unwrap();
        let rows: Vec<u64> = statuses.lock().unwrap().drain(..).map(|status| status.rows).collect();
        assert_eq!(rows.last(), Some(&30), "{rows:?}");
    }
    for error in [fit(101), in_turn(101)].map(Result::unwrap_err) {
        let Error::Budget { memory: MemoryKind::Host, budget: 300, minimum: 303, given: true, .. } = error
        else {
            panic!("{error}")
        };
    }
    let run = Run::default();
    run.cancel.cancel();
    assert_err!(group.each_member(&run, 0, |_, _, run| run.cancel.check()), Error::Cancelled);
}
