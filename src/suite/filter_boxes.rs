//! Tests of arrays that are filtered in panels, since no binding holds them. Boxes of them are tested with stored arrays.

use super::{filter::weights, *};
use crate::{
    filter::{Mode, axis::BoxAxis, boxes::Filter, taps::Taps},
    kernels::{WG, correlate::Combine},
};

device_tests! {
    ;
    panels_are_the_whole,
}

fn taps(sigma: f64) -> Taps {
    let mode = Mode::Mirror;
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

/// Arrays are larger than a binding of the devices with low limits.
fn panels_are_the_whole(device: &Device) {
    fn check<T: Sample>(device: &Device, shape: &[u64], sigma: f64, bound: f64) {
        let x: Vec<T> = values(81, shape.iter().product());
        let on = |device: &Device| {
            let axes = shape.iter().map(|&n| BoxAxis::whole(n, Some(taps(sigma)))).collect();
            filtered(device, &x, axes)
        };
        let (got, expected) = (on(device), on(cpu()));
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
