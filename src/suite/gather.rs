//! Tests of selecting rows by index, and of concatenating tensors.

use super::*;
use crate::{
    array::{concat, gather, gather_by},
    extent::to_usize,
};

device_tests! {
    rows_of_every_length, every_type, views_within_a_word, every_bit_is_kept, empty,
    indices_out_of_range, wrong_arguments, every_axis, short_rows_share_words, concat_of_views,
    concat_of_empty, concat_wrong_arguments;
    past_the_largest_grid, concat_past_the_largest_grid, row_beyond_a_binding,
}

/// Compares selected rows with a loop on the host, for indices on the host and on the device.
fn check_rows<T: Sample>(device: &Device, x: &Tensor<T>, indices: &[u64]) {
    let host = x.read().unwrap();
    let cols = to_usize(x.shape()[1..].iter().product());
    let expected: Vec<T> =
        indices.iter().flat_map(|&index| host[to_usize(index) * cols..][..cols].iter().copied()).collect();
    let shape: Vec<u64> = [indices.len() as u64].iter().chain(&x.shape()[1..]).copied().collect();
    let what = format!("{x:?}, {} indices", indices.len());
    let found = gather(x, indices).unwrap();
    assert_eq!(found.shape(), shape, "{what}");
    assert!(found.read().unwrap() == expected, "{what}");
    let narrow: Vec<u32> = indices.iter().map(|&index| index.try_into().unwrap()).collect();
    let on_device = Tensor::from_slice(device, &narrow, &[narrow.len() as u64]).unwrap();
    let found = gather_by(x, &on_device).unwrap();
    assert_eq!(found.shape(), shape, "{what}");
    assert!(found.read().unwrap() == expected, "{what}, by indices on the device");
}

fn tensor<T: Sample>(device: &Device, seed: u32, shape: &[u64]) -> Tensor<T> {
    Tensor::from_slice(device, &values(seed, shape.iter().product()), shape).unwrap()
}

/// Returns `k` random indices below `m`.
fn random(seed: u32, k: u64, m: u64) -> Vec<u64> {
    values::<u32>(seed, k).into_iter().map(|bits| u64::from(bits) % m).collect()
}

/// Takes rows that end around a word, and around the elements that a thread writes.
fn rows_of_every_length(device: &Device) {
    fn check<T: Sample>(device: &Device) {
        for cols in [1, 2, 3, 4, 5, 8, 15, 16, 17, 33, 100] {
            for m in [1, 37] {
                let x = tensor::<T>(device, 1, &[m, cols]);
                for k in [1, 5, 40] {
                    check_rows(device, &x, &random(2, k, m));
                }
            }
        }
    }
    check::<u8>(device);
    check::<u16>(device);
    check::<f16>(device);
    check::<f32>(device);
    check::<f64>(device);
}

fn every_type(device: &Device) {
    fn check<T: Sample>(device: &Device) {
        check_rows(device, &tensor::<T>(device, 5, &[21, 3, 5]), &random(6, 50, 21));
        // A tensor of one axis has rows of one element.
        check_rows(device, &tensor::<T>(device, 7, &[301]), &random(8, 500, 301));
    }
    for_each_type!(check(device));
}

fn views_within_a_word(device: &Device) {
    fn check<T: Sample>(device: &Device) {
        for cols in [1, 3, 17, 65] {
            let x = tensor::<T>(device, 9, &[90, cols]);
            for rows in [1..90, 2..89, 3..50, 89..90] {
                let part = x.rows(rows.clone()).unwrap();
                check_rows(device, &part, &random(10, 33, rows.end - rows.start));
            }
        }
    }
    check::<u8>(device);
    check::<u16>(device);
    check::<f32>(device);
    check::<f64>(device);
}

fn every_bit_is_kept(device: &Device) {
    let bits = [0x7fa0_0001u32, 0xff80_0000, 0x8000_0000, 1, 0x7f7f_ffff, 0xffc1_2345];
    let x = Tensor::from_slice(device, &bits.map(f32::from_bits), &[6]).unwrap();
    let to_bits = |x: &Tensor<f32>| x.read().unwrap().into_iter().map(f32::to_bits).collect::<Vec<_>>();
    let found = gather(&x, &[5, 4, 3, 2, 1, 0]).unwrap();
    assert_eq!(to_bits(&found), [5, 4, 3, 2, 1, 0].map(|place: usize| bits[place]));
    let [a, b] = [x.rows(0..4).unwrap(), x.rows(4..6).unwrap()];
    assert_eq!(to_bits(&concat(&[&*a, &*b], 0).unwrap()), bits);
}

fn empty(device: &Device) {
    let none = Tensor::<u32>::zeros(device, &[0]).unwrap();
    for shape in [&[0][..], &[0, 3], &[4, 0], &[4, 3], &[4, 0, 2]] {
        let x = Tensor::<u8>::zeros(device, shape).unwrap();
        let expected: Vec<u64> = [0].iter().chain(&shape[1..]).copied().collect();
        assert_eq!(gather(&x, &[]).unwrap().shape(), expected);
        assert_eq!(gather_by(&x, &none).unwrap().shape(), expected);
    }
    let x = Tensor::<f32>::zeros(device, &[4, 0]).unwrap();
    assert_eq!(gather(&x, &[3, 3]).unwrap().shape(), [2, 0]);
    let indices = Tensor::from_slice(device, &[3u32, 0, 3], &[3]).unwrap();
    assert_eq!(gather_by(&x, &indices).unwrap().shape(), [3, 0]);
}

fn indices_out_of_range(device: &Device) {
    // Some rows start within words, some are so short that a thread writes several, and some are long.
    for (m, cols) in [(3, 2), (40, 1), (9, 5), (2, 3000), (5, 0), (0, 3), (0, 0)] {
        let x = Tensor::<u8>::zeros(device, &[m, cols]).unwrap();
        let mut indices: Vec<u32> = (0..100).map(|i| i % u32::try_from(m.max(1)).unwrap()).collect();
        for (place, index) in [(7, m), (8, m + 1), (64, 0xffff_ffff), (99, m)] {
            indices[place] = u32::try_from(index).unwrap();
        }
        let refused = indices.iter().filter(|&&index| u64::from(index) >= m).count();
        let on_device = Tensor::from_slice(device, &indices, &[100]).unwrap();
        let error = gather_by(&x, &on_device).unwrap_err();
        assert!(matches!(error, Error::Argument { op: "gather_by", name: "indices", .. }));
        let expected =
            format!("gather_by: `indices`: {refused} of 100 are not below {m}, the number of rows");
        assert_eq!(error.to_string(), expected);
        let error = assert_err!(gather(&x, &[m, 0]), Error::Argument { op: "gather", name: "indices", .. });
        let expected = format!("gather: `indices`: index {m} at place 0, of a tensor of {m} rows");
        assert_eq!(error.to_string(), expected);
    }
    let x = Tensor::<u8>::zeros(device, &[3]).unwrap();
    assert_refused(gather(&x, &[0, 2, u64::MAX]), &["index 18446744073709551615 at place 2"]);
}

fn wrong_arguments(device: &Device) {
    let x = Tensor::<f32>::zeros(device, &[2, 2]).unwrap();
    let scalar = Tensor::<f32>::zeros(device, &[]).unwrap();
    let indices = Tensor::<u32>::zeros(device, &[2]).unwrap();
    assert!(matches!(gather(&scalar, &[0]), Err(Error::Shape { op: "gather", .. })));
    assert!(matches!(gather_by(&scalar, &indices), Err(Error::Shape { op: "gather_by", .. })));
    for shape in [&[][..], &[1, 2]] {
        let found = gather_by(&x, &Tensor::zeros(device, shape).unwrap());
        assert!(matches!(found, Err(Error::Shape { op: "gather_by", .. })));
    }
    let mixed = gather_by(&x, &Tensor::zeros(cpu(), &[2]).unwrap());
    let refused = matches!(mixed, Err(Error::WrongDevice { name: "indices", .. }));
    assert_eq!(refused, !device.shares_host_memory());
}

/// Each launch takes some of the rows of the result, and some of the tensor.
fn past_the_largest_grid(device: &Device) {
    check_rows(device, &tensor::<f32>(device, 11, &[9000, 33]), &random(12, 9000, 9000));
    check_rows(device, &tensor::<u8>(device, 13, &[200_001]), &random(14, 70_000, 200_001));
    check_rows(device, &tensor::<u16>(device, 15, &[5, 20_001]), &random(16, 70, 5));
    check_rows(device, &tensor::<f64>(device, 17, &[3000, 51]), &(0..3000).rev().collect::<Vec<_>>());
    // Indices out of range are counted once, however the work is split.
    let x = Tensor::<u8>::zeros(device, &[200_001]).unwrap();
    let indices: Vec<u32> = (0..70_000).map(|i| if i % 7 == 0 { 200_001 + i } else { i }).collect();
    let indices = Tensor::from_slice(device, &indices, &[70_000]).unwrap();
    assert_refused(gather_by(&x, &indices), &["10000 of 70000 are not below 200001"]);
}

/// Compares concatenated tensors with a loop on the host.
fn check_concat<T: Sample>(tensors: &[&Tensor<T>], axis: usize) {
    let mut shape = tensors[0].shape().to_vec();
    shape[axis] = tensors.iter().map(|x| x.shape()[axis]).sum();
    let outer = to_usize(shape[..axis].iter().product());
    let host: Vec<Vec<T>> = tensors.iter().map(|x| x.read().unwrap()).collect();
    let row = |i: usize| {
        host.iter().flat_map(move |x| {
            let cols = x.len() / outer;
            x[i * cols..][..cols].iter().copied()
        })
    };
    let expected: Vec<T> = (0..outer).flat_map(row).collect();
    let found = concat(tensors, axis).unwrap();
    let what = format!("{tensors:?} along axis {axis}");
    assert_eq!(found.shape(), shape, "{what}");
    assert!(found.read().unwrap() == expected, "{what}");
}

/// Checks tensors of a shape with these extents along the axis that is 0 in the shape.
fn check_extents<T: Sample>(device: &Device, shape: &[u64], extents: &[u64]) {
    let axis = shape.iter().position(|&extent| extent == 0).unwrap();
    let tensors: Vec<Tensor<T>> = (20..)
        .zip(extents)
        .map(|(seed, &extent)| {
            let mut shape = shape.to_vec();
            shape[axis] = extent;
            tensor(device, seed, &shape)
        })
        .collect();
    check_concat(&tensors.iter().collect::<Vec<_>>(), axis);
}

/// Extents around a word and the elements that a thread writes.
const EXTENTS: [&[u64]; 6] =
    [&[1], &[1, 1], &[2, 3, 1], &[4, 0, 4], &[5, 16, 1, 1, 1, 2], &[17, 33, 100, 64]];

fn every_axis(device: &Device) {
    const FLAT: [&[u64]; 4] = [&[0], &[0, 3], &[1, 0], &[7, 0]];
    const VOLUMES: [[u64; 3]; 6] = [[0, 5, 2], [3, 0, 3], [40, 0, 1], [1, 1, 0], [2, 3, 0], [5, 1, 0]];
    fn check<T: Sample>(device: &Device) {
        for shape in FLAT.into_iter().chain(VOLUMES.iter().map(|shape| &shape[..])) {
            EXTENTS.into_iter().for_each(|extents| check_extents::<T>(device, shape, extents));
        }
    }
    for_each_type!(check(device));
}

/// A word holds parts of several rows, of each of which a launch writes a part.
fn short_rows_share_words(device: &Device) {
    for rows in [2, 3, 63, 64, 65, 1000] {
        check_extents::<u8>(device, &[rows, 0], &[1, 1]);
        check_extents::<u8>(device, &[rows, 0], &[1, 1, 1]);
        check_extents::<u8>(device, &[rows, 0], &[2, 1, 2]);
        check_extents::<f16>(device, &[rows, 0], &[1, 2]);
    }
}

fn concat_of_views(device: &Device) {
    let x = tensor::<u8>(device, 30, &[50, 3]);
    let y = tensor::<u8>(device, 31, &[50, 5]);
    for rows in [1..50, 2..31, 3..4] {
        let [a, b] = [x.rows(rows.clone()).unwrap(), y.rows(rows).unwrap()];
        check_concat(&[&*a, &*b, &*a], 1);
        check_concat(&[&*a, &x, &*a], 0);
    }
}

fn concat_of_empty(device: &Device) {
    let [none, some] = [[2, 0], [2, 3]].map(|shape| Tensor::<f32>::zeros(device, &shape).unwrap());
    assert_eq!(concat(&[&none, &none], 1).unwrap().shape(), [2, 0]);
    assert_eq!(concat(&[&none, &none], 0).unwrap().shape(), [4, 0]);
    assert_eq!(concat(&[&none, &some, &none], 1).unwrap().read().unwrap(), [0.0; 6]);
}

fn concat_wrong_arguments(device: &Device) {
    let x = Tensor::<f32>::zeros(device, &[2, 3]).unwrap();
    let nothing = concat::<f32>(&[], 0).unwrap_err();
    assert_eq!(nothing.to_string(), "concat: `tensors`: none given");
    for axis in [2, usize::MAX] {
        assert!(matches!(concat(&[&x], axis), Err(Error::Argument { op: "concat", name: "axis", .. })));
    }
    let scalar = Tensor::<f32>::zeros(device, &[]).unwrap();
    assert!(matches!(concat(&[&scalar], 0), Err(Error::Argument { name: "axis", .. })));
    for (shape, axis) in
        [(&[2, 4][..], 0), (&[3, 3][..], 1), (&[6][..], 0), (&[2, 3, 1][..], 0), (&[][..], 0)]
    {
        let error = concat(&[&x, &Tensor::zeros(device, shape).unwrap()], axis).unwrap_err();
        assert!(matches!(error, Error::Shape { op: "concat", .. }));
        let expected = format!("concat: expected [2, 3] but for axis {axis}, got {shape:?}");
        assert_eq!(error.to_string(), expected);
    }
    let mixed = concat(&[&x, &Tensor::zeros(cpu(), &[2, 3]).unwrap()], 0);
    let refused = matches!(mixed, Err(Error::WrongDevice { name: "tensors", .. }));
    assert_eq!(refused, !device.shares_host_memory());
}

fn concat_past_the_largest_grid(device: &Device) {
    check_extents::<u8>(device, &[0], &[200_001, 100_003, 5]);
    check_extents::<u8>(device, &[50_000, 0], &[1, 30, 2]);
    check_extents::<f32>(device, &[9000, 0], &[33, 1]);
    check_extents::<f64>(device, &[3, 0], &[2000, 5000]);
    // There is one row, longer than a binding.
    check_extents::<u16>(device, &[1, 0], &[70_001, 70_002]);
}

fn row_beyond_a_binding(device: &Device) {
    let most = device.limits().binding;
    if most > 1 << 20 {
        return;
    }
    let x = Tensor::<u8>::zeros(device, &[2, most]).unwrap();
    let expected = "bytes in one row of a matrix";
    assert_err!(gather(&x, &[1]), Error::Limit { what, requested, .. } if what == expected && requested == most);
    let indices = Tensor::<u32>::zeros(device, &[1]).unwrap();
    assert!(matches!(gather_by(&x, &indices), Err(Error::Limit { what, .. }) if what == expected));
    let half = Tensor::<u8>::zeros(device, &[2, most / 2]).unwrap();
    assert!(matches!(concat(&[&half, &half], 1), Err(Error::Limit { what, .. }) if what == expected));
    assert_eq!(concat(&[&x, &x], 0).unwrap().shape(), [4, most]);
}
