//! Tests of products of matrices.

use super::*;
use crate::{
    kernels::matmul::LARGE_TILE,
    linalg::{
        ProductOf, matmul,
        matmul::{Op, Product, gram_lower},
        matmul_nt, matmul_tn,
    },
};

device_tests! {
    sizes_around_the_tiles, sizes_around_the_large_tiles, every_type, f64_stays_f64, lower_gram, identity_keeps_bits,
    two_runs_are_equal, added_to_what_is_there, wrong_shapes, wrong_device, row_beyond_a_binding;
    sizes_around_the_cpu_tiles, every_stored_value, past_the_largest_grid,
    long_sums,
}

/// Returns op(a)[m, k] op(b)[k, n] by its definition.
fn oracle<A: Sample, B: Sample>(op: Op, a: &[A], b: &[B], [m, n, k]: [u64; 3]) -> Vec<Reference> {
    let mut out = Vec::new();
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let mut sum = Reference::default();
        for l in 0..k {
            let a = a[(if op == Op::Tn { l * m + i } else { i * k + l }) as usize];
            let b = b[(if op == Op::Nt { j * k + l } else { l * n + j }) as usize];
            sum.add(a.value() * b.value());
        }
        out.push(sum);
    }
    out
}

fn check<A: Sample, B: Sample>(device: &Device, op: Op, extents: [u64; 3]) {
    let [m, n, k] = extents;
    let (a, ta) = if op == Op::Tn { matrix::<A>(device, 1, k, m) } else { matrix(device, 1, m, k) };
    let (b, tb) = if op == Op::Nt { matrix::<B>(device, 2, n, k) } else { matrix(device, 2, k, n) };
    let c = match op {
        Op::Nn => matmul(&ta, &tb),
        Op::Tn => matmul_tn(&ta, &tb),
        Op::Nt => matmul_nt(&ta, &tb),
    };
    let real = <ProductOf<A, B> as Element>::DTYPE;
    assert_eq!(real == DType::F64, A::DTYPE.is_wide() || B::DTYPE.is_wide());
    let c = match c {
        Err(error) if real == DType::F64 => return refused(device, &error),
        c => c.unwrap(),
    };
    assert_eq!(c.shape(), [m, n]);
    let what = format!("{op:?} {:?} {:?} {extents:?}", A::DTYPE, B::DTYPE);
    assert_close(&what, &c.read().unwrap(), &oracle(op, &a, &b, extents), dot_of(real, k));
}

/// Thin products, long ones and others, which the host adds up in different ways, are added to the result.
fn added_to_what_is_there(device: &Device) {
    for (op, extents) in [(Op::Nt, [70, 5, 300]), (Op::Tn, [20, 20, 4200]), (Op::Nn, [90, 150, 1100])] {
        added::<f32>(device, op, extents);
        if device.limits().f64 {
            added::<f64>(device, op, extents);
        }
    }
}

fn added<T: Sample + Real>(device: &Device, op: Op, extents: [u64; 3]) {
    let [m, n, k] = extents;
    let (a, ta) = if op == Op::Tn { matrix::<T>(device, 1, k, m) } else { matrix(device, 1, m, k) };
    let (b, tb) = if op == Op::Nt { matrix::<T>(device, 2, n, k) } else { matrix(device, 2, k, n) };
    let (c, mut out) = matrix::<T>(device, 3, m, n);
    Product { accumulate: true, ..Product::of_tensors("test", op, &ta, &tb).unwrap() }.run(&mut out).unwrap();
    let mut expected = oracle(op, &a, &b, extents);
    expected.iter_mut().zip(&c).for_each(|(sum, c)| sum.add(c.value()));
    assert_close(&format!("{op:?} {extents:?}"), &out.read().unwrap(), &expected, dot_of(T::DTYPE, k + 1));
}

/// Asserts that the error is that of a device without products in f64.
fn refused(device: &Device, error: &Error) {
    assert!(matches!(error, Error::NoF64 { .. }) && !device.limits().f64, "{device:?}: {error}");
}

/// Products keep digits that f32 would lose, and values beyond f32.
fn f64_stays_f64(device: &Device) {
    let of = |values: &[f64], shape: &[u64]| Tensor::from_slice(device, values, shape).unwrap();
    let (ones, near) = (of(&[1.0, 1.0], &[2, 1]), of(&[1.0 + 1e-10, -1.0, 1e300, 1e300], &[2, 2]));
    match matmul(&near, &ones) {
        Ok(sums) => {
            let sums = sums.read().unwrap();
            assert!((sums[0] - 1e-10).abs() < 1e-15 && sums[1] == 2e300, "{sums:?}");
            let whole = Tensor::from_slice(device, &[16_777_217i32, i32::MIN], &[2, 1]).unwrap();
            assert_eq!(matmul_nt(&whole, &whole).unwrap().read().unwrap()[0], 281_475_010_265_089.0);
            // The rows start at an address that is not 16-byte aligned.
            let last = of(&[0.0, 1.0 + 1e-10, -1.0], &[3, 1]);
            let sum = matmul_tn(&*last.rows(1..3).unwrap(), &ones).unwrap().read().unwrap();
            assert!((sum[0] - 1e-10).abs() < 1e-15);
        }
        Err(error) => refused(device, &error),
    }
    let (near, ones) = (near.to_f32().unwrap(), ones.to_f32().unwrap());
    assert_eq!(matmul(&near, &ones).unwrap().read().unwrap(), [0.0, f32::INFINITY]);
}

const OPS: [Op; 3] = [Op::Nn, Op::Tn, Op::Nt];

/// The shader's tile is 64 x 64, and 16 deep.
fn sizes_around_the_tiles(device: &Device) {
    for m in [0, 1, 63, 64, 65, 131] {
        for n in [0, 1, 63, 64, 65, 131] {
            for k in [0, 1, 15, 16, 17, 35] {
                // Every operand form is combined with every extent, in a third of the combinations.
                let op = OPS[((m + 2 * n + 3 * k) % 7 % 3) as usize];
                check::<f32, f32>(device, op, [m, n, k]);
            }
        }
    }
    OPS.into_iter().for_each(|op| check::<f32, f32>(device, op, [131, 131, 35]));
    OPS.into_iter().for_each(|op| check::<f32, f32>(device, op, [65, 3, 700]));
}

/// `matmul` uses large tiles only for products that would take long here, so the test requests them.
fn sizes_around_the_large_tiles(device: &Device) {
    if device.limits().workgroup_memory < 32 << 10 {
        return println!("SKIP {device:?}: too little workgroup memory for large tiles");
    }
    let mut sizes =
        vec![[127, 129, 17], [128, 128, 16], [1, 130, 33], [130, 1, 1], [257, 260, 40], [4, 4, 0]];
    // Rows of the first case are multiples of 16 bytes, and rows of the second are not.
    sizes.extend([[132, 136, 32], [131, 135, 31]]);
    for (op, extents) in OPS.into_iter().flat_map(|op| sizes.iter().map(move |&extents| (op, extents))) {
        let [m, n, k] = extents;
        let (a, ta) = if op == Op::Tn { matrix::<f32>(device, 1, k, m) } else { matrix(device, 1, m, k) };
        let (b, tb) = if op == Op::Nt { matrix::<f32>(device, 2, n, k) } else { matrix(device, 2, k, n) };
        let mut c = Tensor::<f32>::empty(device, &[m, n]).unwrap();
        Product::of_tensors("test", op, &ta, &tb).unwrap().run_in_tiles(LARGE_TILE, extents, &mut c).unwrap();
        let what = format!("{op:?} {extents:?}");
        assert_close(&what, &c.read().unwrap(), &oracle(op, &a, &b, extents), dot(k));
    }
    let (x, tx) = matrix::<f32>(device, 3, 33, 300);
    let mut gram = Tensor::<f32>::empty(device, &[300, 300]).unwrap();
    let product = Product { lower: true, ..Product::of_tensors("test", Op::Tn, &tx, &tx).unwrap() };
    product.run_in_tiles(LARGE_TILE, [300, 300, 33], &mut gram).unwrap();
    let (gram, expected) = (gram.read().unwrap(), oracle(Op::Tn, &x, &x, [300, 300, 33]));
    for i in 0..300 {
        let row = 300 * i..301 * i + 1;
        assert_close(&format!("row {i}"), &gram[row.clone()], &expected[row], dot(33));
    }
}

/// The tiles of the cpu kernel have at least 96 rows and columns; narrow operands are decoded 1,024 deep.
fn sizes_around_the_cpu_tiles(device: &Device) {
    for extents in [[95, 97, 3], [96, 193, 2], [515, 1, 5], [1, 515, 5], [1153, 1151, 2]] {
        OPS.into_iter().for_each(|op| check::<f32, f32>(device, op, extents));
    }
    for k in [1023, 1024, 1025, 2051] {
        OPS.into_iter().for_each(|op| check::<u8, f16>(device, op, [3, 5, k]));
    }
}

fn every_type(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        OPS.into_iter().for_each(|op| check::<T, T>(device, op, [66, 67, 19]));
        check::<T, f32>(device, Op::Nn, [5, 6, 7]);
        check::<f32, T>(device, Op::Nt, [5, 6, 7]);
    }
    for_each_type!(with(device));
}

/// Multiplies each finite bit pattern of the narrow types by 1.
fn every_stored_value(device: &Device) {
    fn all<T: Sample>(device: &Device, values: &[T]) {
        let x = Tensor::from_slice(device, values, &[values.len() as u64, 1]).unwrap();
        let one = Tensor::from_slice(device, &[1.0f32], &[1, 1]).unwrap();
        let expected: Vec<Reference> = values.iter().map(|value| value.value().into()).collect();
        match matmul(&x, &one) {
            Ok(c) => assert_close(&format!("{:?}", T::DTYPE), &c.read().unwrap(), &expected, EXACT),
            Err(error) => refused(device, &error),
        }
        let near = x.to_f32().unwrap().read().unwrap();
        assert_close(&format!("{:?} as f32", T::DTYPE), &near, &expected, EXACT);
    }
    // The result is the nearest f32, the even one in a tie; some carry into the exponent, and some are below f32.
    let wide: Vec<f64> = [1.0, 1.5, 8_388_607.0, 16_777_215.0, 2f64.powi(-126), 2f64.powi(127)]
        .into_iter()
        .flat_map(|x| {
            [0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75].map(|part| x * (1.0 + part * 2f64.powi(-23)))
        })
        .flat_map(|x| [x.next_down(), x, x.next_up()])
        .flat_map(|x| [x, -x])
        .chain([0.0, 1e-300, 5e-324, 1e-46])
        .filter(|x| !(x.abs() > 1e-45 && x.abs() < f64::from(f32::MIN_POSITIVE)))
        .collect();
    let x = Tensor::from_slice(device, &wide, &[wide.len() as u64, 1]).unwrap();
    let nearest: Vec<f32> = wide.iter().map(|&x| x as f32).collect();
    assert_eq!(x.to_f32().unwrap().read().unwrap(), nearest);
    let halves: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).filter(|h| h.is_finite()).collect();
    // Subnormal bf16 are subnormal f32, which a device may flush.
    let brains = (0..=u16::MAX).map(bf16::from_bits);
    let brains: Vec<bf16> =
        brains.filter(|b| b.is_finite() && (b.is_normal() || b.to_f32() == 0.0)).collect();
    all(device, &halves);
    all(device, &brains);
    all(device, &(0..=u8::MAX).collect::<Vec<_>>());
    all(device, &(i8::MIN..=i8::MAX).collect::<Vec<_>>());
    all(device, &(0..=u16::MAX).collect::<Vec<_>>());
    all(device, &(i16::MIN..=i16::MAX).collect::<Vec<_>>());
    all(device, &[0u32, 1, 2, 0x00ff_ffff, 0x8000_0000, 0xff00_0000]);
    all(device, &[0i32, -1, i32::MIN, 0x00ff_ffff, -0x00ff_ffff]);
}

fn lower_gram(device: &Device) {
    for n in [1, 63, 64, 65, 131, 300] {
        for k in [0, 1, 33, 200] {
            let (x, tx) = matrix::<f32>(device, 3, k, n);
            let gram = gram_lower(&tx).unwrap().read().unwrap();
            let expected = oracle(Op::Tn, &x, &x, [n, n, k]);
            for i in 0..n {
                let row = (i * n) as usize..(i * n + i + 1) as usize;
                assert_close(&format!("{n} {k}: row {i}"), &gram[row.clone()], &expected[row], dot(k));
            }
        }
    }
}

fn identity_keeps_bits(device: &Device) {
    let (a, ta) = matrix::<f32>(device, 4, 70, 90);
    let identity: Vec<u8> = (0..90 * 90).map(|i| u8::from(i / 90 == i % 90)).collect();
    let identity = Tensor::from_slice(device, &identity, &[90, 90]).unwrap();
    assert_eq!(matmul(&ta, &identity).unwrap().read().unwrap(), a);
    assert_eq!(matmul_nt(&ta, &identity).unwrap().read().unwrap(), a);
}

fn two_runs_are_equal(device: &Device) {
    let (_, a) = matrix::<f32>(device, 10, 150, 300);
    let (_, b) = matrix::<i8>(device, 11, 300, 70);
    let run = || bits(&matmul(&a, &b).unwrap().read().unwrap());
    assert_eq!(run(), run());
}

/// There are more terms than an invocation may have iterations.
fn long_sums(device: &Device) {
    if device.limits().iterations == u32::MAX {
        return;
    }
    let k = 70_001;
    let (a, b) = (vec![1i8; k as usize], vec![3u8; k as usize]);
    let a = Tensor::from_slice(device, &a, &[k, 1]).unwrap();
    let b = Tensor::from_slice(device, &b, &[k, 1]).unwrap();
    assert_eq!(matmul_tn(&a, &b).unwrap().read().unwrap(), [(3 * k) as f32]);
}

/// There are more blocks of 64 rows than workgroups of a grid's axis, on devices with low limits.
fn past_the_largest_grid(device: &Device) {
    let Some(axis) = low_groups_per_axis(device) else { return };
    let m = axis * 64 + 65;
    let (a, ta) = matrix::<i8>(device, 15, m, 1);
    let two = Tensor::from_slice(device, &[2.0f32], &[1, 1]).unwrap();
    let c = matmul(&ta, &two).unwrap().read().unwrap();
    let wrong = a.iter().zip(&c).position(|(&a, &c)| c != 2.0 * f32::from(a));
    assert_eq!((wrong, c.len() as u64), (None, m));
}

fn wrong_shapes(device: &Device) {
    let x = Tensor::<f32>::zeros(device, &[3, 4]).unwrap();
    let Err(Error::Shape { op: "matmul", got, .. }) = matmul(&x, &x) else { panic!() };
    assert_eq!(got.matches("3, 4").count(), 2, "{got}");
    assert_eq!(matmul_nt(&x, &x).unwrap().shape(), [3, 3]);
    assert_eq!(matmul_tn(&x, &x).unwrap().shape(), [4, 4]);
    let cube = Tensor::<f32>::zeros(device, &[3, 4, 5]).unwrap();
    assert!(matches!(matmul(&x, &cube), Err(Error::Shape { .. })));
    assert!(matches!(matmul_tn(&cube, &x), Err(Error::Shape { .. })));
}

fn wrong_device(device: &Device) {
    if device.shares_host_memory() {
        return;
    }
    let [x, y] = [device, cpu()].map(|device| Tensor::<f32>::zeros(device, &[2, 2]).unwrap());
    let [error, other] = [matmul(&x, &y), matmul_nt(&y, &x)].map(|product| product.unwrap_err().to_string());
    let name = &device.info().name;
    assert_eq!(error, format!("matmul: `b` is on device cpu, not on the call's device, {name}"));
    assert_eq!(other, format!("matmul_nt: `b` is on device {name}, not on the call's device, cpu"));
}

/// Tests the longest row that fits a binding at any offset, and one element more.
fn row_beyond_a_binding(device: &Device) {
    let limits = device.limits();
    if limits.binding > 1 << 20 {
        return;
    }
    let longest = (limits.binding - limits.alignment - 4) / 4;
    let one = Tensor::from_slice(device, &[1.0f32], &[1, 1]).unwrap();
    let (x, fits) = matrix::<f32>(device, 18, 1, longest);
    assert_eq!(matmul(&one, &fits).unwrap().read().unwrap(), x);
    let wide = Tensor::<f32>::zeros(device, &[1, longest + 1]).unwrap();
    assert!(matches!(matmul(&one, &wide), Err(Error::Limit { .. })));
}

#[test]
fn threads_change_no_bit() {
    let run = |threads| {
        let options = DeviceOptions { threads: Some(threads), ..Default::default() };
        let device = Device::open_with("cpu", &options).unwrap();
        // Threads choose other tiles for these extents. Of 1,025 terms, one is left after whole pieces of 256 or 1,024.
        let (_, a) = matrix::<f32>(&device, 16, 1025, 530);
        let (_, b) = matrix::<i16>(&device, 17, 530, 300);
        let [thin, few] = [(530, 40), (1025, 3)].map(|(rows, cols)| matrix::<f32>(&device, 19, rows, cols).1);
        let products = [matmul(&a, &b), matmul_tn(&a, &a), matmul(&a, &thin), matmul_nt(&few, &few)];
        let mut products = products.map(|c| bits(&c.unwrap().read().unwrap()));
        // The part above the diagonal is unspecified.
        let lower = |i: usize| i * 530..=i * 531;
        let gram = gram_lower(&a).unwrap().read().unwrap();
        products[1].extend((0..530).flat_map(|i| bits(&gram[lower(i)])));
        let a = a.to_f64().unwrap();
        let (wide, gram) = (matmul_tn(&a, &a).unwrap(), gram_lower(&a).unwrap().read().unwrap());
        let mut wide = wide.read().unwrap();
        wide.extend((0..530).flat_map(|i| gram[lower(i)].to_vec()));
        (products, wide.into_iter().map(f64::to_bits).collect::<Vec<_>>())
    };
    let expected = run(1);
    for threads in [2, 3, 5, 64] {
        assert!(run(threads) == expected, "{threads} threads");
    }
}
