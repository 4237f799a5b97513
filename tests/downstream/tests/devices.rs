//! Tests of the layer on each device that `TEST_DEVICES` names, such as `cpu,wgpu:software,cuda`; one that is missing is a failure.

use downstream::layer;
use teatime::{Device, DeviceOptions};

/// Opens the devices, and each again with limits so low that work is split, as that for a large GPU is.
fn devices() -> Vec<Device> {
    let names = std::env::var("TEST_DEVICES").unwrap_or_else(|_| "cpu".into());
    let open = |name: &str| {
        // New memory is NaN, which shows elements that a kernel leaves out. The emulator has this too; guard words, which come with it, would
        // hide reads past the end, which the emulator sees.
        let options = DeviceOptions::default().checked(!name.starts_with("cuda"));
        let low = options.clone().binding(64 << 10).groups_per_axis(16);
        [options, low].map(|options| Device::open_with(name, &options).unwrap())
    };
    names.split(',').flat_map(open).collect()
}

#[test]
fn a_layer_is_its_definition() {
    let (rows, features, neurons) = (301, 70, 33);
    // Sums of small whole numbers are the same in any order.
    let numbers = |count: usize, step: usize| -> Vec<f32> {
        (0..count).map(|i| (i * step % 13) as f32 - 6.0).collect()
    };
    let (x, w) = (numbers(rows * features, 5), numbers(neurons * features, 7));
    let expected = x
        .chunks(features)
        .flat_map(|x| w.chunks(features).map(|w| x.iter().zip(w).map(|(x, w)| x * w).sum::<f32>().max(0.0)));
    let expected: Vec<f32> = expected.collect();
    for device in devices() {
        println!("{device:?}");
        assert_eq!(layer(&device, &x, &w, features as u64).unwrap(), expected, "{device:?}");
    }
}
