//! Tests of long calls: progress, cancelling, and memory budgets.

use std::sync::{Arc, Mutex};

use teatime::{
    Budget, Cancel, Error, Progress, Run, Tensor,
    distance::{Metric, Options, neighbors_stored},
    linalg::{Stop, SvdOptions, randomized_svd},
    store::MemoryArray,
    stream::StoredMatrix,
};

use super::devices;

/// Returns an array of 600 x 20 bytes in chunks of 50 rows.
fn stored() -> Arc<MemoryArray> {
    let values: Vec<u8> = (0..12_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    Arc::new(MemoryArray::new("values", &values, &[600, 20], &[50, 20]).unwrap())
}

#[test]
fn a_call_stops_where_its_progress_says() {
    for device in devices() {
        let matrix = StoredMatrix::new(vec![stored()], &device).unwrap();
        let (cancel, seen) = (Cancel::default(), Arc::new(Mutex::new(Vec::new())));
        let (stop, told) = (cancel.clone(), seen.clone());
        let progress = Progress::new(move |status| {
            told.lock().unwrap().push((status.pass, status.rows, status.total));
            if status.pass == 0 {
                stop.cancel();
            }
        });
        let run = Run::default().cancel(cancel).progress(progress);
        let options = SvdOptions::default().stop(Stop::PowerIterations(3));
        let stopped = randomized_svd(&matrix, 2, &options, &run);
        assert!(matches!(stopped, Err(Error::Cancelled)), "{device:?}: {stopped:?}");
        assert_eq!(*seen.lock().unwrap(), [(0, 600, 600)], "{device:?}");
        // The device still works.
        assert_eq!(Tensor::from_slice(&device, &[1.0f32], &[1]).unwrap().read().unwrap(), [1.0]);
    }
}

/// The minimum memory that an error names is enough, and one byte less is not.
#[test]
fn budgets_name_what_is_enough() {
    for device in devices() {
        let matrix = StoredMatrix::new(vec![stored()], &device).unwrap();
        let svd = |host| {
            let run = Run::default().memory(Budget::default().host(host));
            randomized_svd(&matrix, 2, &SvdOptions::default(), &run)
        };
        let mut host = 1;
        // The first error is for the memory of the basis, the next for that of chunks.
        while let Err(Error::Budget { minimum, given: true, budget, .. }) = svd(host) {
            assert!(budget == host && minimum > host && minimum < 10 << 20, "{device:?}: {minimum}");
            assert!(matches!(svd(minimum - 1), Err(Error::Budget { .. })), "{device:?}");
            host = minimum;
        }
        assert_eq!(svd(host).unwrap(), svd(1 << 30).unwrap(), "{device:?}");
        let x: Arc<dyn teatime::ChunkedArray> = stored();
        let tiny = Run::default().memory(Budget::default().host(64).device(64));
        let (metric, options) = (Metric::Euclidean, Options::default());
        let nearest = neighbors_stored(&x, None, 1, metric, &options, &device, &tiny);
        assert!(matches!(nearest, Err(Error::Budget { .. })), "{device:?}: {nearest:?}");
    }
}
