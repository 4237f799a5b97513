//! A comparison of two files of results.

use std::path::Path;

use crate::{
    report::{DeviceReport, Report, Unit},
    table,
};

/// Prints the devices of both files in pairs, and returns whether their exact results agree.
///
/// # Errors
/// Says which file cannot be read.
pub(crate) fn compare(a: &Path, b: &Path) -> Result<bool, String> {
    let (left, right) = (Report::read(a)?, Report::read(b)?);
    for (path, report) in [(a, &left), (b, &right)] {
        let commit = report.commit.as_deref().unwrap_or("unknown commit");
        table::print(&format!("{}: teatime {} ({commit}), {}", path.display(), report.teatime, report.date));
    }
    let pairs = pairs(&left.devices, &right.devices);
    for (x, y) in &pairs {
        table::print(&format!("\n{} ({}) and {} ({})", x.description, x.name, y.description, y.name));
        lines(x, y).iter().for_each(|line| table::print(line));
    }
    if pairs.is_empty() {
        table::print("\nno device of one file goes with one of the other");
    }
    let devices = named(a, &left.devices).chain(named(b, &right.devices));
    let differences = Report::differences(devices);
    table::print(if differences.is_empty() {
        "\nexact results agree on all devices of both files"
    } else {
        "\nRESULTS DIFFER:"
    });
    differences.iter().for_each(|line| table::print(&format!("  {line}")));
    Ok(differences.is_empty())
}

fn named<'a>(
    path: &Path,
    devices: &'a [DeviceReport],
) -> impl Iterator<Item = (String, &'a DeviceReport)> + use<'a> {
    let file = path.display().to_string();
    devices.iter().map(move |device| (format!("{} in {file}", device.name), device))
}

/// Pairs the n-th device of a backend and interface with the n-th such device of the other file.
fn pairs<'a>(
    left: &'a [DeviceReport],
    right: &'a [DeviceReport],
) -> Vec<(&'a DeviceReport, &'a DeviceReport)> {
    let alike =
        |a: &DeviceReport, b: &DeviceReport| a.backend == b.backend && (a.api == b.api || a.backend == "cpu");
    let place = |x: &DeviceReport| {
        left.iter().take_while(|other| other.name != x.name).filter(|o| alike(o, x)).count()
    };
    let partner = |x| right.iter().filter(move |y| alike(x, y)).nth(place(x));
    left.iter().filter_map(|x| Some((x, partner(x)?))).collect()
}

/// Returns a line for each measurement that both devices have.
fn lines(x: &DeviceReport, y: &DeviceReport) -> Vec<String> {
    let both = x.entries.iter().filter_map(|a| Some((a, y.entry(&a.id)?)));
    both.map(|(a, b)| {
        // The ratio is the speed of the second device divided by that of the first.
        let ratio = match a.unit {
            Unit::Bandwidth | Unit::Flops => b.median / a.median,
            Unit::Milliseconds => a.median / b.median,
        };
        let sizes = match (a.size == b.size, a.unit) {
            (true, _) => String::new(),
            (false, Unit::Milliseconds) => {
                return format!("  {:<44} sizes differ: {} and {}", a.id, a.size, b.size);
            }
            (false, _) => format!("  (at {} and {})", a.size, b.size),
        };
        let [first, second, ratio] = [a.median, b.median, ratio].map(table::number);
        format!("  {:<44} {first:>9} {second:>9} {:<7} {ratio:>8} times{sizes}", a.id, a.unit.text())
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use teatime::Device;

    use super::*;
    use crate::report::Entry;

    fn device(name: &str, backend: &str, api: &str) -> DeviceReport {
        let mut device = DeviceReport::new(&Device::cpu());
        (device.name, device.backend, device.api) = (name.into(), backend.into(), api.into());
        device
    }

    fn entry(unit: Unit, size: &str, median: f64) -> Entry {
        let (id, size) = ("x".into(), size.into());
        Entry { id, size, unit, median, min: median, max: median, runs: 1, fraction: None }
    }

    #[test]
    fn devices_pair_by_interface_and_order() {
        let left = [
            device("cpu", "cpu", "x86_64"),
            device("wgpu:0", "wgpu", "vulkan"),
            device("wgpu:1", "wgpu", "vulkan"),
        ];
        let right = [
            device("wgpu:0", "wgpu", "gl"),
            device("wgpu:2", "wgpu", "vulkan"),
            device("cpu", "cpu", "aarch64"),
        ];
        let names: Vec<_> = pairs(&left, &right).iter().map(|(a, b)| (&*a.name, &*b.name)).collect();
        assert_eq!(names, [("cpu", "cpu"), ("wgpu:0", "wgpu:2")]);
    }

    #[test]
    fn ratios_say_how_many_times_as_fast() {
        let (mut a, mut b) = (device("cpu", "cpu", ""), device("cpu", "cpu", ""));
        for (unit, sizes, expected) in [
            (Unit::Bandwidth, ["1", "1"], "2.000 times"),
            (Unit::Milliseconds, ["1", "1"], "0.500 times"),
            (Unit::Bandwidth, ["1", "2"], "(at 1 and 2)"),
            (Unit::Milliseconds, ["1", "2"], "sizes differ: 1 and 2"),
        ] {
            a.entries = vec![entry(unit, sizes[0], 10.0)];
            b.entries = vec![entry(unit, sizes[1], 20.0)];
            let lines = lines(&a, &b);
            assert!(lines[0].contains(expected), "{lines:?}");
        }
    }

    #[test]
    fn results_that_differ_are_named() {
        let (mut a, mut b) = (device("cpu", "cpu", ""), device("cuda:0", "cuda", "cuda"));
        let differences = |a: &DeviceReport, b: &DeviceReport| {
            Report::differences([("a".into(), a), ("b".into(), b)].into_iter()).len()
        };
        a.digests.insert("words".into(), "00".into());
        a.values.insert("values".into(), vec![2.0, 1.0]);
        assert_eq!(differences(&a, &b), 0);
        b.digests.insert("words".into(), "00".into());
        b.values.insert("values".into(), vec![2.0, 1.000_01]);
        assert_eq!(differences(&a, &b), 0);
        b.digests.insert("words".into(), "01".into());
        b.values.insert("values".into(), vec![2.0, f64::NAN]);
        assert_eq!(differences(&a, &b), 2);
    }
}
