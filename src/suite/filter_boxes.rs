//! Tests of arrays filtered in boxes with halos: they have the bits of the whole array.

use super::{
    data::{Sample, values},
    device_tests,
    filter::{MODES, source, weights},
};
use crate::{
    Device, Tensor,
    filter::{Mode, axis::BoxAxis, boxes::Filter, taps::Taps},
    kernels::{WG, correlate::Combine},
};

device_tests! {
    boxes_are_the_whole;
    panels_are_the_whole,
}

fn taps(sigma: f64, mode: Mode) -> Taps {
    Taps::new(weights(sigma, 0, (4.0 * sigma + 0.5) as i32), mode.edge(), mode.constant())
}

fn filtered<T: Sample>(device: &Device, x: &[T], axes: Vec<BoxAxis>) -> Vec<T> {
    let [n, m]: [u64; 2] =
        [|axis: &BoxAxis| axis.n, |axis: &BoxAxis| axis.m].map(|of| axes.iter().map(of).product());
    let x = Tensor::from_slice(device, x, &[n]).unwrap();
    let mut out = Tensor::<T>::empty(device, &[m]).unwrap();
    let filter = Filter { op: "test", axes, narrow: true, as_scipy: false, combine: Combine::Replace };
    filter.run(&x, &mut out).unwrap();
    out.read().unwrap()
}

/// Returns the start and the end of each piece of an axis; sizes are uneven.
fn pieces(n: u64, count: u64) -> Vec<(u64, u64)> {
    let cut = |i: u64| if i == count { n } else { n * i / count + i % 2 };
    (0..count).map(|i| (cut(i), cut(i + 1))).collect()
}

/// Returns the elements of an array at the given indices of each axis.
fn chosen<T: Copy>(x: &[T], shape: &[u64], indices: &[Vec<u64>]) -> Vec<T> {
    let mut places = vec![0];
    for (n, along) in shape.iter().zip(indices) {
        places = places.iter().flat_map(|place| along.iter().map(move |at| place * n + at)).collect();
    }
    places.into_iter().map(|place| x[place as usize]).collect()
}

fn check<T: Sample>(device: &Device, shape: &[u64], sigma: f64, mode: Mode, count: u64) {
    let x: Vec<T> = values(80, shape.iter().product());
    let whole = shape.iter().map(|&n| BoxAxis::whole(n, Some(taps(sigma, mode)))).collect();
    let whole = filtered(device, &x, whole);
    let radius = taps(sigma, mode).radius() as i64;
    let mut corners = vec![Vec::new()];
    for &n in shape {
        let next = pieces(n, count);
        corners = corners
            .iter()
            .flat_map(|corner: &Vec<(u64, u64)>| {
                next.iter().map(|piece| [&corner[..], &[*piece]].concat()).collect::<Vec<_>>()
            })
            .collect();
    }
    for corner in corners {
        let (mut axes, mut inputs) = (Vec::new(), Vec::new());
        for (&(start, end), &n) in corner.iter().zip(shape) {
            let reach = start as i64 - radius..end as i64 + radius;
            let input: Vec<u64> = match mode {
                Mode::Wrap => {
                    reach.clone().filter_map(|at| source(mode, at, n as i64)).map(|at| at as u64).collect()
                }
                _ => (reach.start.max(0) as u64..n.min(reach.end as u64)).collect(),
            };
            let offset = if mode == Mode::Wrap { radius as u64 } else { start - input[0] };
            axes.push(BoxAxis {
                n: input.len() as u64,
                m: end - start,
                offset,
                taps: Some(taps(sigma, mode)),
            });
            inputs.push(input);
        }
        let outputs: Vec<Vec<u64>> = corner.iter().map(|&(start, end)| (start..end).collect()).collect();
        let expected = chosen(&whole, shape, &outputs);
        let got = filtered(device, &chosen(&x, shape, &inputs), axes);
        assert_eq!(got, expected, "{:?} {shape:?} {mode:?} {corner:?}", T::DTYPE);
    }
}

fn boxes_are_the_whole(device: &Device) {
    for mode in MODES {
        check::<f32>(device, &[37, 70], 1.2, mode, 2);
    }
    check::<u8>(device, &[37, 70], 1.2, Mode::Reflect, 2);
    check::<f32>(device, &[11, 18, 35], 0.7, Mode::Mirror, 2);
    // The radius is 14, then 29, which takes a pass for each axis.
    check::<f32>(device, &[40, 75], 3.4, Mode::Reflect, 2);
    check::<f32>(device, &[61, 75], 7.2, Mode::Reflect, 2);
}

/// Arrays are larger than a binding of the devices with low limits.
fn panels_are_the_whole(device: &Device) {
    fn check<T: Sample>(device: &Device, shape: &[u64], sigma: f64, bound: f64) {
        let x: Vec<T> = values(81, shape.iter().product());
        let on = |device: &Device| {
            let axes = shape.iter().map(|&n| BoxAxis::whole(n, Some(taps(sigma, Mode::Mirror)))).collect();
            filtered(device, &x, axes)
        };
        let (got, expected) = (on(device), on(super::cpu()));
        let far = got.iter().zip(&expected).filter(|(a, b)| (a.value() - b.value()).abs() > bound).count();
        assert_eq!(far, 0, "{shape:?}");
        if device.info().name == "cpu" {
            assert_eq!(got, expected, "{shape:?}");
        }
    }
    check::<f32>(device, &[9, 40, 70], 0.6, 1e-5);
    check::<f32>(device, &[150, 161], 1.0, 1e-5);
    check::<f32>(device, &[150, 161], 3.5, 1e-5);
    check::<f32>(device, &[30_001], 2.0, 1e-5);
    // Panels share words. In a rounding tie, devices may choose either of two integers.
    check::<u8>(device, &[300, 251], 1.0, 1.0);
    // A second panel would begin within a word, in rows that do and do not end with a whole word.
    let room = device.limits().room();
    if room < 1 << 20 {
        let radius = (1..).find(|radius| (room - 2 * radius) % 4 == 2).unwrap();
        for more in [4 * u64::from(WG), 4 * u64::from(WG) + 2] {
            check::<u8>(device, &[room - 2 * radius + more], radius as f64 / 4.0, 1.0);
        }
    }
}
