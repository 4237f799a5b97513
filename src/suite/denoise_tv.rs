//! Tests of total variation denoising against an oracle in f64.

use super::*;
use crate::filter::{TvOptions, denoise_tv};

device_tests! {
    images_of_every_type, sizes_around_the_groups, shifted_scaled_and_turned, refused;
    axes_of_images,
}

/// The image of one oracle call, with one to three axes, which are counted from the last.
struct Oracle {
    extents: [usize; 3],
    axes: usize,
    weight: f64,
}

impl Oracle {
    fn neighbor(&self, i: usize, axis: usize, after: bool) -> Option<usize> {
        let [_, ny, nx] = self.extents;
        let at = [i / (ny * nx), i / nx % ny, i % nx][axis];
        let stride = [ny * nx, nx, 1][axis];
        match after {
            true => (at + 1 < self.extents[axis]).then(|| i + stride),
            false => (at > 0).then(|| i - stride),
        }
    }

    /// Returns the image after at most `most` iterations, and the number of iterations.
    fn denoise(&self, f: &[f64], eps: f64, most: u64) -> (Vec<f64>, u64) {
        let axes = 3 - self.axes..3;
        let tau = 1.0 / (2.0 * self.axes as f64);
        let mut p = vec![[0.0; 3]; f.len()];
        let (mut first, mut before) = (0.0, 0.0);
        for iteration in 1.. {
            let divergence = |i: usize| -> f64 {
                let of = |axis: usize| self.neighbor(i, axis, false).map_or(0.0, |j| p[j][axis]) - p[i][axis];
                axes.clone().map(of).sum()
            };
            let d: Vec<f64> = (0..f.len()).map(divergence).collect();
            let u: Vec<f64> = f.iter().zip(&d).map(|(f, d)| f + d).collect();
            let gradient = |i: usize| {
                [0, 1, 2].map(|axis| match self.neighbor(i, axis, true) {
                    Some(next) if axes.contains(&axis) => u[next] - u[i],
                    _ => 0.0,
                })
            };
            let mut energy = 0.0;
            let mut next = p.clone();
            for i in 0..f.len() {
                let g = gradient(i);
                let length = g.iter().map(|g| g * g).sum::<f64>().sqrt();
                energy += d[i] * d[i] + self.weight * length;
                next[i] = [0, 1, 2].map(|a| (p[i][a] - tau * g[a]) / (1.0 + tau / self.weight * length));
            }
            first = if iteration == 1 { energy } else { first };
            if iteration == most || iteration > 1 && (before - energy).abs() < eps * first {
                return (u, iteration);
            }
            (p, before) = (next, energy);
        }
        unreachable!("an iteration should end")
    }
}

/// Returns the elements as floats, as skimage does.
fn floats<T: Sample>(x: &[T]) -> Vec<f64> {
    let most = match T::DTYPE {
        DType::U8 => 255.0,
        DType::I8 => 127.0,
        DType::U16 => 65_535.0,
        DType::I16 => 32_767.0,
        DType::U32 => u32::MAX.into(),
        DType::I32 => i32::MAX.into(),
        _ => 1.0,
    };
    x.iter().map(|x| x.value() / most).collect()
}

#[track_caller]
fn assert_near<R: Real>(what: &str, got: &Tensor<R>, expected: &[f64]) {
    let most = expected.iter().fold(0.0, |most: f64, x| most.max(x.abs()));
    let bound = if R::DTYPE.is_wide() { 1e-12 } else { 2e-6 } * most;
    let got = got.read().unwrap();
    assert_eq!(got.len(), expected.len(), "{what}");
    for (i, (got, expected)) in got.iter().zip(expected).enumerate() {
        let got = got.to_f64();
        assert!((got - expected).abs() <= bound, "{what} [{i}]: {got} for {expected}");
    }
}

/// Checks an image after a few iterations, and the iteration at which the rule ends.
fn check<T: Sample>(device: &Device, x: &[T], shape: &[u64], weight: f64) {
    let tensor = Tensor::from_slice(device, x, shape).unwrap();
    let mut extents = [1; 3];
    extents[3 - shape.len()..].iter_mut().zip(shape).for_each(|(out, &extent)| *out = extent as usize);
    let oracle = Oracle { extents, axes: shape.len(), weight };
    let f = floats(x);
    for most in [1, 2, 9] {
        let options = TvOptions::default().weight(weight).eps(0.0).max_iterations(most);
        let (out, iterations) = denoise_tv::<T, T::Real>(&tensor, &options).unwrap();
        assert_eq!((out.shape(), iterations), (shape, vec![most]));
        assert_near(&format!("{:?} {shape:?} {most}", T::DTYPE), &out, &oracle.denoise(&f, 0.0, most).0);
    }
    let (out, iterations) = denoise_tv::<T, T::Real>(&tensor, &TvOptions::default().weight(weight)).unwrap();
    let (_, expected) = oracle.denoise(&f, 2e-4, 200);
    assert!(iterations[0].abs_diff(expected) <= 1, "{shape:?}: {iterations:?} for {expected}");
    let expected = oracle.denoise(&f, 0.0, iterations[0]).0;
    assert_near(&format!("{:?} {shape:?} {iterations:?}", T::DTYPE), &out, &expected);
}

fn images_of_every_type(device: &Device) {
    fn with<T: Sample>(device: &Device) {
        let x = values::<T>(21, 9 * 34);
        if T::Real::DTYPE.is_wide() && !device.limits().f64 {
            let x = Tensor::from_slice(device, &x, &[9, 34]).unwrap();
            assert_err!(denoise_tv::<T, f64>(&x, &TvOptions::default()), Error::NoF64 { .. });
        } else {
            check(device, &x, &[9, 34], 0.2);
        }
    }
    for_each_type!(with(device));
}

fn sizes_around_the_groups(device: &Device) {
    for shape in [&[1][..], &[2], &[255], &[256], &[257], &[513], &[1, 1], &[5, 1], &[1, 300], &[3, 2, 258]] {
        check(device, &values::<f32>(22, shape.iter().product()), shape, 0.1);
    }
    check(device, &values::<f32>(23, 4 * 5 * 31), &[4, 5, 31], 0.3);
    let (out, iterations) =
        denoise_tv::<_, f32>(&Tensor::<f32>::zeros(device, &[0, 5]).unwrap(), &TvOptions::default()).unwrap();
    assert_eq!((out.shape(), iterations.len()), (&[0, 5][..], 0));
}

/// Images along some of the axes are those that are denoised alone.
fn axes_of_images(device: &Device) {
    let (shape, x) = ([3u64, 4, 2, 9], values::<f32>(24, 3 * 4 * 2 * 9));
    let tensor = Tensor::from_slice(device, &x, &shape).unwrap();
    let few = TvOptions::default().eps(1e-2).max_iterations(12);
    for axes in [&[1, 3][..], &[3, 1], &[0, 1, 3], &[0], &[3], &[1, 2]] {
        let options = few.clone().axes(axes.iter().copied());
        let (out, iterations) = denoise_tv::<_, f32>(&tensor, &options).unwrap();
        let out = out.read().unwrap();
        let mut sorted = axes.to_vec();
        sorted.sort_unstable();
        let others: Vec<usize> = (0..4).filter(|axis| !axes.contains(axis)).collect();
        let stride = |axis: usize| shape[axis + 1..].iter().product::<u64>() as usize;
        let places = |axes: &[usize]| {
            axes.iter().fold(vec![0], |places: Vec<usize>, &axis| {
                let along = |place: usize| (0..shape[axis] as usize).map(move |at| place + at * stride(axis));
                places.into_iter().flat_map(along).collect()
            })
        };
        let extents: Vec<u64> = sorted.iter().map(|&axis| shape[axis]).collect();
        assert_eq!(iterations.len(), places(&others).len(), "{axes:?}");
        for (first, count) in places(&others).into_iter().zip(iterations) {
            let image: Vec<f32> = places(&sorted).into_iter().map(|place| x[first + place]).collect();
            let image = Tensor::from_slice(device, &image, &extents).unwrap();
            let (alone, expected) = denoise_tv::<_, f32>(&image, &few).unwrap();
            let got: Vec<f32> = places(&sorted).into_iter().map(|place| out[first + place]).collect();
            assert_eq!((got, vec![count]), (alone.read().unwrap(), expected), "{axes:?} {first}");
        }
    }
}

/// Values far from 0, tiny and huge values, constants, and an image with its axes turned.
fn shifted_scaled_and_turned(device: &Device) {
    let (height, width) = (13usize, 41usize);
    let shape = [height as u64, width as u64];
    let x: Vec<f32> = values::<u8>(25, shape.iter().product()).iter().map(|&x| f32::from(x)).collect();
    let denoised = |x: &[f32], shape: &[u64], weight: f64| {
        let x = Tensor::from_slice(device, x, shape).unwrap();
        let options = TvOptions::default().weight(weight).eps(0.0).max_iterations(20);
        denoise_tv::<_, f32>(&x, &options).unwrap().0.read().unwrap()
    };
    let plain = denoised(&x, &shape, 30.0);
    let near = |what: &str, got: Vec<f32>, of: &dyn Fn(f64) -> f64, bound: f64| {
        for (got, plain) in got.iter().zip(&plain) {
            let expected = of((*plain).into());
            assert!((f64::from(*got) - expected).abs() <= bound, "{what}: {got} for {expected}");
        }
    };
    let shifted: Vec<f32> = x.iter().map(|x| x + 1_048_576.0).collect();
    near("shifted", denoised(&shifted, &shape, 30.0), &|u| u + 1_048_576.0, 0.126);
    for factor in [1e-28f32, 1e-12, 1e12, 1e28] {
        let scaled: Vec<f32> = x.iter().map(|x| x * factor).collect();
        let factor = f64::from(factor);
        let out = denoised(&scaled, &shape, 30.0 * factor);
        near(&format!("{factor}"), out, &|u| u * factor, 255e-6 * 4.0 * factor);
    }
    let turned: Vec<f32> = (0..x.len()).map(|i| x[i % height * width + i / height]).collect();
    let turned = denoised(&turned, &[width as u64, height as u64], 30.0);
    let back: Vec<f32> = (0..x.len()).map(|i| turned[i % width * height + i / width]).collect();
    near("turned", back, &|u| u, 255e-6);
    for constant in [0.0, -7.5, 1e6] {
        assert_eq!(denoised(&vec![constant; x.len()], &shape, 0.1), vec![constant; x.len()]);
    }
}

fn refused(device: &Device) {
    let x = Tensor::from_slice(device, &[1.0f32; 16], &[2, 2, 2, 2]).unwrap();
    let two = TvOptions::default().axes([0, 1]);
    for (name, options) in [
        ("axes", TvOptions::default()),
        ("axes", TvOptions::default().axes([])),
        ("axes", TvOptions::default().axes([4])),
        ("axes", TvOptions::default().axes([1, 1])),
        ("weight", two.clone().weight(0.0)),
        ("weight", two.clone().weight(f64::NAN)),
        ("weight", two.clone().weight(f64::INFINITY)),
        ("weight", two.clone().weight(1e31)),
        ("weight", two.clone().weight(1e-31)),
        ("eps", two.clone().eps(-1e-9)),
        ("eps", two.clone().eps(f64::NAN)),
        ("max_iterations", two.clone().max_iterations(0)),
    ] {
        let error = denoise_tv::<_, f32>(&x, &options).unwrap_err();
        assert!(matches!(error, Error::Argument { name: got, .. } if got == name), "{name}: {error}");
    }
    let none = Tensor::<f32>::zeros(device, &[]).unwrap();
    assert_err!(denoise_tv::<_, f32>(&none, &TvOptions::default()), Error::Shape { .. });
    for bad in [f32::NAN, f32::INFINITY, f32::MIN] {
        let x = Tensor::from_slice(device, &[0.0, 1.0, bad, 0.5], &[4]).unwrap();
        let error = denoise_tv::<_, f32>(&x, &TvOptions::default()).unwrap_err();
        assert!(error.to_string().contains("infinite, NaN"), "{bad}: {error}");
    }
}
