//! Tests of filters against results of scipy and scikit-image, and scipy's own tests.

use std::collections::BTreeMap;

use super::{filter::MODES, *};
use crate::filter::{
    GaussianOptions, Mode, PerAxis, Rounding, SeparableOptions, TvOptions, denoise_tv,
    difference_of_gaussians, gaussian, gaussian_gradient_magnitude, gaussian_laplace, separable,
};

device_tests! {
    as_scipy;
    as_skimage, denoised_as_skimage, sigmas_orders_and_radii, derived_filters_refuse_what_they_give,
}

type Golden = BTreeMap<&'static str, Vec<f64>>;

fn golden() -> Golden {
    let text = include_str!("../../tests/fixtures/filter/scipy.txt");
    let numbers = |text: &str| text.split_whitespace().map(|number| number.parse().unwrap()).collect();
    text.lines().filter_map(|line| line.split_once(':')).map(|(name, text)| (name, numbers(text))).collect()
}

/// Returns the i-th mode and its name, with a constant.
fn mode(i: usize, constant: f64) -> (&'static str, Mode) {
    let mode = if let Mode::Constant(_) = MODES[i] { Mode::Constant(constant) } else { MODES[i] };
    (["reflect", "constant", "nearest", "mirror", "wrap"][i], mode)
}

fn tensor<T: Element>(device: &Device, golden: &Golden, name: &str, of: fn(f64) -> T) -> Tensor<T> {
    let shape: &[u64] = match name {
        "volume" => &[3, 4, 5],
        "line" => &[1, 6],
        _ => &[7, 9],
    };
    Tensor::from_slice(device, &golden[name].iter().map(|&x| of(x)).collect::<Vec<_>>(), shape).unwrap()
}

/// Asserts equality up to rounding relative to the largest element: in f64, or in f32 on devices without f64.
#[track_caller]
fn assert_same<T: Sample>(device: &Device, golden: &Golden, name: &str, got: &Tensor<T>) {
    let got: Vec<f64> = got.read().unwrap().into_iter().map(Sample::value).collect();
    let largest = golden[name].iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    let wide = device.limits().f64 && T::DTYPE == DType::F64;
    let bound = if wide { 1e-13 } else { 4e-6 } * largest;
    assert_eq!(got.len(), golden[name].len(), "{name}");
    for (i, (got, expected)) in got.iter().zip(&golden[name]).enumerate() {
        assert!((got - expected).abs() <= bound, "{name} [{i}]: {got} for {expected}");
    }
}

fn options(device: &Device, mode: Mode) -> GaussianOptions {
    GaussianOptions { mode: mode.into(), narrow: !device.limits().f64, ..GaussianOptions::default() }
}

fn as_scipy(device: &Device) {
    let golden = golden();
    let image = tensor(device, &golden, "image", |x| x);
    let volume = tensor(device, &golden, "volume", |x| x);
    let line = tensor(device, &golden, "line", |x| x);
    for i in 0..5 {
        let ((name, mode), (_, other)) = (mode(i, 3.5), mode(i, -1.5));
        let (plain, other) = (options(device, mode), options(device, other));
        let same = |case: &str, out: Result<Tensor<f64>>| {
            assert_same(device, &golden, &format!("{name} {case}"), &out.unwrap());
        };
        for order in 0..4u32 {
            let options = GaussianOptions { order: [order, 0].into(), ..plain.clone() };
            same(&order.to_string(), gaussian(&image, [1.5, 0.7], &options));
        }
        let options = GaussianOptions { order: [2, 1].into(), ..plain.clone() };
        same("2 1", gaussian(&image, [1.2, 0.9], &options));
        same("long", gaussian(&volume, [2.0, 3.0, 4.0], &other));
        same("line", gaussian(&line, [2.0, 1.0], &other));
        let weights = [vec![1.0, -2.0, 4.0], vec![1.0, 2.0, 3.0, 2.0, 1.0], vec![-1.0, 0.0, 1.0]];
        let (mode, narrow) = (other.mode.clone(), other.narrow);
        let own = SeparableOptions { mode, narrow, ..SeparableOptions::default() };
        same("correlate", separable(&volume, weights, &own));
        same("laplace", gaussian_laplace(&volume, [0.6, 0.8, 1.0], &other));
        same("magnitude", gaussian_gradient_magnitude(&volume, 0.7, &other));
        truncated(device, &golden, i);
    }
    let thirteen = Tensor::from_slice(device, &[13u8; 63], &[7, 9]).unwrap();
    let options = GaussianOptions { rounding: Rounding::Scipy, ..options(device, Mode::Reflect) };
    if device.limits().f64 {
        assert_same(device, &golden, "thirteen", &gaussian::<_, u8>(&thirteen, 2.5, &options).unwrap());
    } else {
        let wide = GaussianOptions { narrow: false, ..options };
        assert!(matches!(gaussian::<_, u8>(&thirteen, 2.5, &wide), Err(Error::NoF64 { .. })));
    }
}

/// Integers truncated after each axis are equal in f64, and in f32 may differ by 1 in places.
fn truncated(device: &Device, golden: &Golden, i: usize) {
    fn check<T: Sample>(expected: &[f64], x: &Tensor<T>, options: &GaussianOptions) {
        let out: Tensor<T> = gaussian(x, [1.1, 1.6], options).unwrap();
        let far = |(got, expected): (T, &f64)| (got.value() - expected).abs();
        let far: f64 = out.read().unwrap().into_iter().zip(expected).map(far).sum();
        assert!(far <= if options.narrow { 2.0 } else { 0.0 }, "{:?}: {far}", T::DTYPE);
    }
    let (name, mode) = mode(i, 7.0);
    let options = GaussianOptions { rounding: Rounding::Scipy, ..options(device, mode) };
    check(&golden[&*format!("{name} u8")], &tensor(device, golden, "image", |x| x as u8), &options);
    check(&golden[&*format!("{name} i16")], &tensor(device, golden, "signed", |x| x as i16), &options);
}

fn as_skimage(device: &Device) {
    fn check<T: Sample>(device: &Device, golden: &Golden, name: &str, x: &Tensor<T>) {
        let same =
            |case: &str, out: &Tensor<f64>| assert_same(device, golden, &format!("{case} {name}"), out);
        let plain = GaussianOptions { narrow: !device.limits().f64, ..GaussianOptions::skimage() };
        let constant = GaussianOptions { mode: Mode::Constant(0.25).into(), ..plain.clone() };
        same("skimage", &gaussian(x, [1.0, 2.0], &plain).unwrap());
        same("skimage constant", &gaussian(x, 1.0, &constant).unwrap());
        let range = GaussianOptions { preserve_range: true, ..plain.clone() };
        same("skimage range", &gaussian(x, 1.0, &range).unwrap());
        same("differences", &difference_of_gaussians(x, 0.8, 1.6 * 0.8, &plain).unwrap());
        let found = difference_of_gaussians(x, [0.5, 1.0], [1.0, 3.0], &constant).unwrap();
        same("differences constant", &found);
    }
    let golden = golden();
    check(device, &golden, "u8", &tensor(device, &golden, "image", |x| x as u8));
    check(device, &golden, "i16", &tensor(device, &golden, "signed", |x| x as i16));
}

fn denoised_as_skimage(device: &Device) {
    fn check<T: Element, R: Real + Sample>(golden: &Golden, name: &str, x: &Tensor<T>, options: &TvOptions) {
        let expected = golden.get(&*format!("tv {name} iterations")).map(|numbers| numbers[0]);
        let most = expected.map_or(options.max_iterations, |count| count as u64);
        let (_, iterations) = denoise_tv::<T, R>(x, options).unwrap();
        // The sums of energies are rounded otherwise, and f32 may end one iteration earlier or later.
        let is_near = expected.is_none() || iterations[0].abs_diff(most) <= 1;
        assert!(is_near, "{name}: {iterations:?} for {most}");
        let fixed = if name == "first" || name == "last" {
            options.clone()
        } else {
            options.clone().eps(0.0).max_iterations(most)
        };
        let (out, _) = denoise_tv::<T, R>(x, &fixed).unwrap();
        assert_same(x.device(), golden, &format!("tv {name}"), &out);
    }
    let golden = golden();
    let options = TvOptions::default().weight(0.3);
    check::<_, f32>(&golden, "image", &tensor(device, &golden, "image", |x| x as u8), &TvOptions::default());
    let cases = [
        ("volume", "volume", options.clone()),
        ("volume", "first", options.clone().axes([1, 2])),
        ("volume", "last", options.clone().axes([0, 1])),
        ("volume", "seven", options.clone().eps(0.0).max_iterations(7)),
        ("line", "line", options.eps(1e-5)),
    ];
    for (array, name, options) in cases {
        if device.limits().f64 {
            check::<_, f64>(&golden, name, &tensor(device, &golden, array, |x| x), &options);
        }
        check::<_, f32>(&golden, name, &tensor(device, &golden, array, |x| x as f32), &options);
    }
}

fn sigmas_orders_and_radii(device: &Device) {
    let golden = golden();
    let image = tensor(device, &golden, "image", |x| x);
    let volume = tensor(device, &golden, "volume", |x| x);
    let plain = options(device, Mode::Reflect);
    let truncate = GaussianOptions { truncate: 2.2, ..plain.clone() };
    assert_same(device, &golden, "truncate", &gaussian::<_, f64>(&image, 1.3, &truncate).unwrap());
    // A radius has precedence over `truncate`.
    let radius = GaussianOptions { radius: Some([1, 4].into()), ..truncate };
    assert_same(device, &golden, "radius", &gaussian::<_, f64>(&image, 1.3, &radius).unwrap());
    for (axes, sigma, mode) in
        [([0, 2], [0.5, 1.5], [Mode::Wrap, Mode::Mirror]), ([2, 0], [1.5, 0.5], [Mode::Mirror, Mode::Wrap])]
    {
        let options = GaussianOptions { axes: Some(axes.to_vec()), mode: mode.into(), ..plain.clone() };
        assert_same(device, &golden, "axes", &gaussian::<_, f64>(&volume, sigma, &options).unwrap());
    }
    // The derivative along an axis uses the mode of that axis; axes that are not named are not filtered.
    let modes = [Mode::Wrap, Mode::Mirror, Mode::Constant(-1.5)];
    let modes = GaussianOptions { mode: modes.into(), ..plain.clone() };
    let axes =
        GaussianOptions { axes: Some(vec![0, 2]), mode: [Mode::Wrap, Mode::Nearest].into(), ..plain.clone() };
    let none = GaussianOptions { axes: Some(Vec::new()), ..plain.clone() };
    for (case, sigma, options) in [
        ("modes", [0.6, 0.8, 1.0].into(), &modes),
        ("axes", [0.7, 0.9].into(), &axes),
        ("no axes", PerAxis::All(1.0), &none),
    ] {
        let laplace: Tensor<f64> = gaussian_laplace(&volume, sigma.clone(), options).unwrap();
        let magnitude: Tensor<f64> = gaussian_gradient_magnitude(&volume, sigma, options).unwrap();
        let name = |of: &str| if case == "no axes" { case.to_owned() } else { format!("{case} {of}") };
        assert_same(device, &golden, &name("laplace"), &laplace);
        assert_same(device, &golden, &name("magnitude"), &magnitude);
    }
    // Sigma is 0 as in test_gauss01, one for all axes or one each as in 04 and 05; f16 as in test_gaussian_filter.
    let copy: Tensor<f64> =
        gaussian(&image, 0.0, &GaussianOptions { order: 1.into(), ..plain.clone() }).unwrap();
    assert_same(device, &golden, "image", &copy);
    let on = |sigma: PerAxis<f64>, order: PerAxis<u32>| {
        let options = GaussianOptions { order, ..plain.clone() };
        gaussian::<_, f64>(&image, sigma, &options).unwrap().read().unwrap()
    };
    assert_eq!(on(1.0.into(), 0.into()), on([1.0, 1.0].into(), [0, 0].into()));
    let halves: Vec<_> = (0..20).map(|i| f16::from_f32(i as f32 / 8.0)).collect();
    let halves = Tensor::from_slice(device, &halves, &[20]).unwrap();
    let out: Tensor<f16> = gaussian(&halves, 1.0, &plain).unwrap();
    let out: Vec<f32> = out.read().unwrap().into_iter().map(f16::to_f32).collect();
    assert!((4..16).all(|i| (out[i] - i as f32 / 8.0).abs() < 2e-3), "{out:?}");
}

fn derived_filters_refuse_what_they_give(device: &Device) {
    let x = Tensor::<f32>::zeros(device, &[3, 4]).unwrap();
    let plain = GaussianOptions::default();
    let wrong = [
        ("order", GaussianOptions { order: 1.into(), ..plain.clone() }),
        ("rounding", GaussianOptions { rounding: Rounding::Scipy, ..plain.clone() }),
    ];
    let name = |result: Result<Tensor<f32>>| match result.unwrap_err() {
        Error::Argument { name, .. } => name,
        error => panic!("{error}"),
    };
    for (wanted, options) in wrong {
        assert_eq!(name(gaussian_laplace(&x, 1.0, &options)), wanted);
        assert_eq!(name(gaussian_gradient_magnitude(&x, 1.0, &options)), wanted);
        assert_eq!(name(difference_of_gaussians(&x, 1.0, 1.6, &options)), wanted);
    }
    assert_eq!(name(gaussian_laplace(&x, 1.0, &GaussianOptions::skimage())), "preserve_range");
    let order = GaussianOptions { order: 1.into(), ..GaussianOptions::skimage() };
    assert_eq!(name(gaussian(&x, 1.0, &order)), "preserve_range");
    assert_eq!(name(difference_of_gaussians(&x, [1.0, 2.0], 1.5, &plain)), "high");
    assert_eq!(name(difference_of_gaussians(&x, f64::NAN, 1.0, &plain)), "sigma");
    let bytes = Tensor::<u8>::zeros(device, &[3, 4]).unwrap();
    let result = gaussian::<_, u8>(&bytes, 1.0, &GaussianOptions::skimage());
    assert!(matches!(result, Err(Error::Argument { name: "preserve_range", .. })));
    let own = SeparableOptions::default();
    for weights in [vec![], vec![1.0; 4], vec![1.0, f64::NAN, 1.0]] {
        assert_eq!(name(separable(&x, weights, &own)), "weights");
    }
}
