//! Tests of tensors and their windows.

use std::{
    task::{Context, Poll, Waker},
    thread,
};

use super::*;
use crate::{
    TensorView,
    distance::{Metric, Options, pairwise},
    filter::{GaussianOptions, gaussian},
    linalg::{self, matmul},
    random::{philox, random_words},
};

device_tests! {
    values_come_back, zeros_are_zero, shapes, too_large, writes_keep_their_order, many_launches_keep_their_params,
    uploads_keep_their_order, uploads_leave_guard_words, unchecked_uploads_overlap_work, copies, threads_share_a_device, reads_can_overlap,
    values_are_replaced, rows_are_views, operations_take_rows, tensors_change_devices, values_of_the_host, reads_are_awaited,
}

fn values_come_back(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        for len in [0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 1000, 30_001] {
            let values = values::<T>(50, len);
            let tensor = Tensor::from_slice(device, &values, &[len]).unwrap();
            assert_eq!(tensor.read().unwrap(), values);
            assert_eq!(tensor.read().unwrap(), values, "the second time");
            let mut given = tensor.into_values().unwrap();
            assert_eq!(*given, values);
            given.fill(T::zeroed());
            assert_eq!(*given, vec![T::zeroed(); len as usize]);
        }
    }
    for_each_type!(with(device));
}

/// Reads are futures for any runtime, and only the device wakes them.
fn reads_are_awaited(device: &Device) {
    let mut tensor = Tensor::from_slice(device, &values::<f32>(1, 300), &[20, 15]).unwrap();
    let expected = linalg::matmul_nt(&tensor, &tensor).unwrap().read().unwrap();
    // Many reads are pending at once, of tensors that are dropped or changed later; some reads are dropped before they complete.
    let reads: Vec<_> = (0..20)
        .map(|_| {
            let product = linalg::matmul_nt(&tensor, &tensor).unwrap();
            (product.read_async(), tensor.read_async())
        })
        .collect();
    let before = tensor.read().unwrap();
    tensor.write(&vec![1.0; 300]).unwrap();
    for (number, (product, factor)) in reads.into_iter().enumerate() {
        if number % 3 == 0 {
            let mut product = Box::pin(product);
            let _ = product.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            continue;
        }
        assert_eq!(pollster::block_on(product).unwrap(), expected);
        assert_eq!(pollster::block_on(factor).unwrap(), before);
    }
    assert!(pollster::block_on(Tensor::<u8>::zeros(device, &[0]).unwrap().read_async()).unwrap().is_empty());
    // An application submits frames continually and never waits.
    let mut frames = Box::pin(linalg::matmul_nt(&tensor, &tensor).unwrap().read_async());
    let arrived = loop {
        match frames.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(values) => break values.unwrap(),
            Poll::Pending => drop(linalg::matmul_nt(&tensor, &tensor).unwrap()),
        }
        thread::yield_now();
    };
    assert_eq!(arrived, vec![15.0; 400]);
}

/// A cancellable call reads in several pieces, on a device without checks.
#[test]
fn values_come_back_in_pieces() {
    let values: Vec<u8> =
        (0..(128 << 10) + 6).map(|i: u32| i.to_le_bytes()[usize::from(i.is_multiple_of(3))]).collect();
    let cancel = Cancel::default();
    let mut tensor =
        Tensor::from_slice(&Device::cpu().cancelled_by(&cancel), &values, &[values.len() as u64]).unwrap();
    assert!(tensor.read().unwrap() == values);
    cancel.cancel();
    assert!(matches!(tensor.read(), Err(Error::Cancelled)));
    assert!(matches!(tensor.write(&values), Err(Error::Cancelled)));
}

/// Uploads go into memory that kernels have just used, while other kernels run. Checked devices would serialise them by poisoning and reading back.
fn unchecked_uploads_overlap_work(device: &Device) {
    const LEN: u64 = 300_000;
    let name = &device.info().name;
    let unchecked = match name.ends_with(":lent") {
        true => device.clone(),
        false => Device::open(name).unwrap(),
    };
    let slot = || unchecked.driver().staging(4 * LEN).unwrap();
    let mut slots = [slot(), slot()];
    let mut products = Vec::new();
    for i in 0..24u8 {
        let slot = &mut slots[usize::from(i % 2)];
        bytemuck::cast_slice_mut::<_, f32>(&mut slot.bytes_mut()[..4 * LEN as usize]).fill(f32::from(i));
        let x = Tensor::<f32>::from_staging(&unchecked, slot, &[LEN / 100, 100]).unwrap();
        // The memory block of `x` is dropped while the product is running.
        products.push(linalg::matmul_tn(&x, &x).unwrap());
    }
    for (i, product) in (0u8..).zip(products) {
        let square = f32::from(i) * f32::from(i) * (LEN / 100) as f32;
        assert!(product.read().unwrap().iter().all(|&entry| entry == square), "block {i}");
    }
}

fn zeros_are_zero(device: &Device) {
    for len in [0, 1, 3, 4, 1000] {
        assert_eq!(Tensor::<u8>::zeros(device, &[len]).unwrap().read().unwrap(), vec![0; len as usize]);
        assert_eq!(Tensor::<f32>::zeros(device, &[len]).unwrap().read().unwrap(), vec![0.0; len as usize]);
    }
}

fn shapes(device: &Device) {
    let x = Tensor::from_slice(device, &[1u8, 2, 3, 4, 5, 6], &[2, 3]).unwrap();
    assert!(matches!(Tensor::from_slice(device, &[1u8], &[2]), Err(Error::Shape { .. })));
    assert!(matches!(Tensor::<u8>::zeros(device, &[u64::MAX, 2]), Err(Error::Shape { .. })));
    let x = x.reshape(&[3, 2, 1]).unwrap();
    assert_eq!((x.shape(), x.len(), x.bytes()), (&[3, 2, 1][..], 6, 6));
    assert!(matches!(x.reshape(&[4]), Err(Error::Shape { .. })));
    assert!(Tensor::<f32>::zeros(device, &[0, 7]).unwrap().read().unwrap().is_empty());
}

fn too_large(device: &Device) {
    let max = device.limits().buffer;
    assert_err!(Tensor::<u8>::zeros(device, &[max + 1]), Error::Limit { requested, .. } if requested > max);
    // The device still works.
    assert_eq!(Tensor::<u8>::zeros(device, &[1]).unwrap().read().unwrap(), [0]);
}

/// Writes are ordered with launches before and after them.
fn writes_keep_their_order(device: &Device) {
    let one = Tensor::from_slice(device, &[1.0f32], &[1, 1]).unwrap();
    let x = Tensor::from_slice(device, &[0.0f32; 50], &[50, 1]).unwrap();
    let mut results = Vec::new();
    for round in 0..70 {
        let bytes: Vec<u8> = (0..50).flat_map(|i| ((round * 100 + i) as f32).to_le_bytes()).collect();
        device.driver().write(x.whole(), &bytes).unwrap();
        results.push(matmul(&x, &one).unwrap());
    }
    for (round, result) in results.iter().enumerate() {
        let expected: Vec<f32> = (0..50).map(|i| (round * 100 + i) as f32).collect();
        assert_eq!(result.read().unwrap(), expected, "round {round}");
    }
}

/// There are more launches than one submission takes, each with its own parameters.
fn many_launches_keep_their_params(device: &Device) {
    let results: Vec<_> = (0..100).map(|seed| random_words(device, seed, seed, 4).unwrap()).collect();
    for (seed, result) in (0..).zip(&results) {
        assert_eq!(result.read().unwrap(), philox([seed, 0], seed.into()), "seed {seed}");
    }
}

/// One slot is refilled while earlier uploads may be running.
fn uploads_keep_their_order(device: &Device) {
    let driver = device.driver();
    let one = Tensor::from_slice(device, &[1.0f32], &[1, 1]).unwrap();
    let x = Tensor::<i8>::zeros(device, &[4000, 1]).unwrap();
    let mut slot = driver.staging(5000).unwrap();
    let mut results = Vec::new();
    for round in 0..10 {
        let bytes = slot.bytes_mut();
        assert_eq!(bytes.len(), 5000);
        bytes.fill(round);
        let fence = driver.upload(&mut slot, x.whole(), None).unwrap();
        driver.order_after(&fence).unwrap();
        results.push(matmul(&x, &one).unwrap());
    }
    for (round, result) in results.iter().enumerate() {
        assert_eq!(result.read().unwrap(), [round as f32; 4000]);
    }
}

/// At this size, the buffers of the slot and of the tensor with its guard words are equally long.
fn uploads_leave_guard_words(device: &Device) {
    let mut slot = device.driver().staging(1_000_000).unwrap();
    slot.bytes_mut().fill(5);
    let x = Tensor::<i8>::from_staging(device, &mut slot, &[1000, 1000]).unwrap();
    assert!(x.read().unwrap().iter().all(|&value| value == 5));
}

fn copies(device: &Device) {
    let x = Tensor::from_slice(device, &[1u32, 2, 3, 4, 5], &[5]).unwrap();
    let y = Tensor::<u32>::zeros(device, &[5]).unwrap();
    device.driver().copy(x.whole(), y.whole()).unwrap();
    device.driver().clear(x.whole()).unwrap();
    assert_eq!(y.read().unwrap(), [1, 2, 3, 4, 5]);
    assert_eq!(x.read().unwrap(), [0; 5]);
    device.synchronize().unwrap();
}

#[test]
fn memory_is_counted() {
    // The test opens its own device, since other tests use the shared ones.
    let device = Device::open_with("cpu", &DeviceOptions { threads: Some(1), ..Default::default() }).unwrap();
    let x = Tensor::<f32>::zeros(&device, &[1000]).unwrap();
    assert_eq!(device.allocated_bytes(), 4000);
    drop(Tensor::<f32>::zeros(&device, &[1000]).unwrap());
    drop(x);
    assert_eq!((device.allocated_bytes(), device.peak_bytes()), (0, 8000));
}

fn threads_share_a_device(device: &Device) {
    thread::scope(|scope| {
        for thread in 0..4u32 {
            scope.spawn(move || {
                for round in 0..8 {
                    let seed = thread * 100 + round;
                    let (x, tx) = matrix::<f32>(device, seed, 33, 1);
                    let two = Tensor::from_slice(device, &[2.0f32], &[1, 1]).unwrap();
                    let y = matmul(&tx, &two).unwrap().read().unwrap();
                    assert_eq!(y, x.iter().map(|x| 2.0 * x).collect::<Vec<_>>(), "seed {seed}");
                }
            });
        }
    });
}

fn reads_can_overlap(device: &Device) {
    let tensors = [1u32, 2, 3].map(|value| Tensor::from_slice(device, &[value; 9], &[9]).unwrap());
    let pending: Vec<_> = tensors.iter().map(|tensor| tensor.download().unwrap()).collect();
    drop(tensors);
    let values: Vec<_> = pending.into_iter().rev().map(|pending| pending.wait().unwrap()[0]).collect();
    assert_eq!(values, [3, 2, 1]);
}

/// Work that was enqueued before sees the old values.
fn values_are_replaced(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        for len in [0, 1, 3, 4, 1001] {
            let [old, new] = [51, 52].map(|seed| values::<T>(seed, len));
            let mut tensor = Tensor::from_slice(device, &old, &[len]).unwrap();
            let copy = tensor.try_clone().unwrap();
            tensor.write(&new).unwrap();
            let mut read = old.clone();
            tensor.read_into(&mut read).unwrap();
            assert_eq!((read, copy.read().unwrap()), (new, old));
        }
    }
    for_each_type!(with(device));
    let mut x = Tensor::<f32>::zeros(device, &[2, 2]).unwrap();
    for error in
        [x.write(&[1.0; 3]), x.write(&[1.0; 5]), x.read_into(&mut [1.0; 3]), x.read_into(&mut [0.0; 0])]
    {
        assert!(matches!(error, Err(Error::Shape { .. })), "{error:?}");
    }
    assert_eq!(x.read().unwrap(), [0.0; 4]);
}

/// Rows of an odd number of bytes start and end within words.
fn rows_are_views(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        let (all, x) = matrix::<T>(device, 53, 7, 3);
        for (start, end) in [(0, 7), (0, 1), (1, 4), (3, 6), (6, 7), (2, 2), (7, 7)] {
            let expected = &all[3 * start as usize..3 * end as usize];
            let view = x.rows(start..end).unwrap();
            assert_eq!((view.shape(), view.read().unwrap().as_slice()), (&[end - start, 3][..], expected));
            assert_eq!(view.try_clone().unwrap().read().unwrap(), expected, "{start}..{end}");
            if end - start > 1 {
                let inner = view.rows(1..end - start).unwrap();
                assert_eq!(inner.read().unwrap(), &expected[3..]);
            }
        }
        assert_eq!(x.read().unwrap(), all);
    }
    for_each_type!(with(device));
    let cube = Tensor::from_slice(device, &[0u8, 1, 2, 3, 4, 5, 6, 7], &[2, 2, 2]).unwrap();
    let half = cube.rows(1..2).unwrap();
    assert_eq!((half.shape(), half.read().unwrap()), (&[1, 2, 2][..], vec![4, 5, 6, 7]));
    #[allow(clippy::reversed_empty_ranges, reason = "it is refused")]
    for rows in [0..3, 3..3, 2..1] {
        assert!(matches!(cube.rows(rows), Err(Error::Argument { name: "rows", .. })));
    }
    let scalar = Tensor::from_slice(device, &[1u8], &[]).unwrap();
    assert!(matches!(scalar.rows(0..1), Err(Error::Shape { .. })));
}

/// Operations on rows equal those on a tensor of these rows alone to the bit, unless a vendor's library computes one of two products.
fn operations_take_rows(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        let (_, x) = matrix::<T>(device, 54, 70, 33);
        let x = x.rows(5..66).unwrap();
        let alone = Tensor::from_slice(device, &x.read().unwrap(), x.shape()).unwrap();
        // On devices without products in f64, the values are converted to f32.
        let product = |x: &Tensor<T>| linalg::matmul_nt(x, x).and_then(|product| product.to_f32());
        let narrow = |x: &Tensor<T>| x.to_f32().and_then(|x| linalg::matmul_nt(&x, &x));
        let [products, expected] =
            [&*x, &alone].map(|x| product(x).or_else(|_| narrow(x)).unwrap().read().unwrap());
        if device.info().backend == Backend::Cuda {
            // cuBLAS multiplies operands that start at a multiple of 16 bytes; our own kernels multiply the rest, and add in another order.
            let length = |i: usize| expected[62 * i].sqrt();
            for (at, (product, value)) in products.iter().zip(&expected).enumerate() {
                let room = 2e-6 * length(at / 61) * length(at % 61);
                assert!((product - value).abs() <= room, "{at}: {product} is not {value}");
            }
        } else {
            assert_eq!(bits(&products), bits(&expected));
        }
        let [sums, expected] = [&*x, &alone].map(|x| linalg::row_stats(x).unwrap());
        assert_eq!(format!("{sums:?}"), format!("{expected:?}"));
    }
    for_each_type!(with(device));
    let (_, x) = matrix::<i8>(device, 55, 20, 7);
    let (x, y) = (x.rows(3..9).unwrap(), x.rows(8..19).unwrap());
    let [alone, other] = [&x, &y].map(|x| Tensor::from_slice(device, &x.read().unwrap(), x.shape()).unwrap());
    let distances = |x: &Tensor<i8>, y: &Tensor<i8>| {
        pairwise(x, Some(y), Metric::CityBlock, &Options::default(), &Run::default()).unwrap()
    };
    assert_eq!(distances(&x, &y), distances(&alone, &other));
    let blurred = |x: &Tensor<i8>| {
        let y: Tensor<i8> = gaussian(x, 1.0, &GaussianOptions::default()).unwrap();
        y.read().unwrap()
    };
    assert_eq!(blurred(&x), blurred(&alone));
}

/// Views of host values work at any offset, and for lengths that are not whole words.
fn values_of_the_host(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        let values = values::<T>(57, 40 * 33 + 20);
        for (start, rows) in [(0, 40), (1, 40), (3, 39), (4, 38), (16, 1), (0, 0)] {
            let here = &values[start..][..33 * rows];
            let shape = [rows as u64, 33];
            let x = TensorView::from_slice(device, here, &shape).unwrap();
            let own = Tensor::from_slice(device, here, &shape).unwrap();
            assert_eq!((x.shape(), x.read().unwrap().as_slice()), (&shape[..], here));
            assert_eq!(x.try_clone().unwrap().read().unwrap(), here);
            if rows == 0 {
                continue;
            }
            let last = x.rows(rows as u64 - 1..rows as u64).unwrap();
            assert_eq!(last.read().unwrap(), here[33 * (rows - 1)..]);
            let [view, copy] = [&*x, &own].map(|x| {
                let blurred: Tensor<f32> =
                    gaussian(x, 1.5, &GaussianOptions::default().narrow(true)).unwrap();
                (bits(&blurred.read().unwrap()), format!("{:?}", linalg::row_stats(x).unwrap()))
            });
            assert_eq!(view, copy, "{start} {rows}");
        }
    }
    for_each_type!(with(device));
    let error = TensorView::from_slice(device, &[1u8], &[2]);
    assert!(matches!(error, Err(Error::Shape { op: "TensorView::from_slice", .. })));
    // On the cpu device, aligned values are not copied.
    let cpu = Device::open_with("cpu", &DeviceOptions { threads: Some(1), ..Default::default() }).unwrap();
    let lines = [[0u64; 2]; 64];
    let bytes: &[u8] = bytemuck::cast_slice(&lines);
    let first = bytes.as_ptr().align_offset(16);
    let x = TensorView::from_slice(&cpu, &bytes[first..][..512], &[512]).unwrap();
    assert_eq!((x.read().unwrap(), cpu.allocated_bytes()), (vec![0; 512], 0));
    let x = TensorView::from_slice(&cpu, &bytes[first + 1..][..512], &[512]).unwrap();
    assert_eq!((x.read().unwrap(), cpu.allocated_bytes()), (vec![0; 512], 512));
}

fn tensors_change_devices(device: &Device) {
    let cpu = Device::cpu();
    fn with<T: Sample>(device: &Device, cpu: &Device) {
        let (all, x) = matrix::<T>(device, 56, 5, 3);
        let there = x.rows(1..4).unwrap().to_device(cpu).unwrap();
        assert!(there.device().is_same(cpu));
        let back = there.to_device(device).unwrap();
        assert!(back.device().is_same(device));
        assert_eq!((back.shape(), back.read().unwrap().as_slice()), (&[3, 3][..], &all[3..12]));
        let mut copy = x.to_device(device).unwrap();
        copy.write(&[T::zeroed(); 15]).unwrap();
        assert_eq!(x.read().unwrap(), all, "a copy of its own");
    }
    for_each_type!(with(device, &cpu));
}
