//! Tests of the order of uploads, kernels and frees. The emulator runs calls that no event orders in the worst order, so that results tell.

use super::{control, device};
use crate::{
    Device, Tensor,
    linalg::{pending_row_stats, row_stats},
};

/// Uploads blocks through two slots, uses each block and drops it. Returns the sum of each block.
fn stream_blocks(device: &Device, blocks: u32) -> Vec<f64> {
    const LEN: usize = 5000;
    let slot = || device.driver().staging(4 * LEN as u64).unwrap();
    let mut slots = [slot(), slot()];
    let mut last: Option<Tensor<f32>> = None;
    let mut sums = Vec::new();
    for i in 0..blocks {
        let slot = &mut slots[i as usize % 2];
        // Without a wait, this would overwrite bytes that the last upload from this slot has not yet read.
        bytemuck::cast_slice_mut::<_, f32>(slot.bytes_mut()).fill(i as f32 + 1.0);
        let x = Tensor::<f32>::from_staging(device, slot, &[1, LEN as u64]).unwrap();
        if let Some(x) = last.replace(x) {
            sums.push(row_stats(&x).unwrap()[0].sum);
        }
    }
    sums.push(row_stats(&last.unwrap()).unwrap()[0].sum);
    sums
}

#[test]
fn uploads_kernels_and_frees_are_ordered() {
    let device = device(5);
    control::log_start(5);
    let sums = stream_blocks(&device, 9);
    let log = control::log_take(5);
    assert_eq!(sums, (1..=9).map(|i| f64::from(5000 * i)).collect::<Vec<_>>());
    let calls = |call: &str| log.iter().filter(|line| line.starts_with(call)).count();
    assert!(
        calls("cuMemcpyHtoDAsync") >= 9 && calls("cuLaunchKernel") >= 9 && calls("cuMemFreeAsync") >= 9,
        "{log:#?}"
    );
    // Uploads are enqueued on another stream than kernels.
    let stream = |call: &str| {
        let line = log.iter().find(|line| line.starts_with(call)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    assert_ne!(stream("cuMemcpyHtoDAsync"), stream("cuLaunchKernel"));
}

#[test]
fn an_upload_into_used_memory_waits_for_its_uses() {
    let device = device(7);
    let mut slot = device.driver().staging(4 * 1000).unwrap();
    let numbers = bytemuck::cast_slice_mut::<_, f32>(slot.bytes_mut());
    numbers.fill(2.0);
    let x = Tensor::from_slice(&device, &[1.0f32; 1000], &[1, 1000]).unwrap();
    let first = pending_row_stats(&x, true).unwrap();
    let fence = device.driver().upload(&mut slot, x.whole(), None).unwrap();
    device.driver().order_after(&fence).unwrap();
    assert_eq!(row_stats(&x).unwrap()[0].sum, 2000.0);
    assert_eq!(first.wait().unwrap()[0].sum, 1000.0);
}

/// The host waits for events, also for copies, and such waits sleep where cores are few.
#[test]
fn waits_are_for_events() {
    let device = device(16);
    let x = Tensor::from_slice(&device, &[1.0f32; 1000], &[1, 1000]).unwrap();
    control::log_start(16);
    device.synchronize().unwrap();
    x.read().unwrap();
    let log = control::log_take(16);
    let waits: Vec<_> = log.iter().filter(|line| line.starts_with("cuEventSynchronize")).collect();
    let are_few = std::thread::available_parallelism().is_ok_and(|cores| cores.get() <= 4);
    // The wait is for an event of each stream.
    assert!(waits.len() >= 3 && waits.iter().all(|wait| wait.ends_with("blocking") == are_few), "{log:#?}");
    assert!(!log.iter().any(|line| line.starts_with("cuStreamSynchronize")), "{log:#?}");
}

#[test]
fn large_copies_are_shared_by_threads_and_keep_their_place() {
    // Both copies have nine pieces of 4 MiB and a smaller one.
    const COLUMNS: usize = 9 * 256 + 5;
    let device = device(15);
    let values: Vec<f32> = (0..4096 * COLUMNS).map(|i| (i % 1021) as f32).collect();
    control::log_start(15);
    let x = Tensor::from_slice(&device, &values, &[4096, COLUMNS as u64]).unwrap();
    let sums = row_stats(&x).unwrap();
    let log = control::log_take(15);
    assert_eq!(x.read().unwrap(), values);
    let expected = values.chunks(COLUMNS).map(|row| row.iter().map(|&x| f64::from(x)).sum::<f64>());
    assert!(sums.iter().map(|stats| stats.sum).eq(expected));
    let copies = |log: &[String]| log.iter().filter(|line| line.starts_with("cuMemcpyHtoDAsync")).count();
    let launch = log.iter().position(|line| line.starts_with("cuLaunchKernel")).unwrap();
    assert!(copies(&log[..launch]) >= 10, "{log:#?}");
}
