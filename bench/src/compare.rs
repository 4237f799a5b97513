//! A comparison of devices of several files of results.

use std::{fmt::Write, path::Path};

use crate::{
    markdown::facts,
    report::{DeviceReport, Entry, Report, Unit},
    score,
    table::{self, number},
};

/// A file of results, with the name of the device that is compared, if it was given: `FILE=NAME`.
struct Chosen {
    file: String,
    report: Report,
    device: Option<String>,
}

impl Chosen {
    /// Fails with the file that cannot be read, or with the devices that it has if it lacks the named one.
    fn read(given: &str) -> Result<Self, String> {
        let (file, device) = match given.rsplit_once('=') {
            Some((file, device)) if !Path::new(given).exists() => (file, Some(device.to_owned())),
            _ => (given, None),
        };
        let report = Report::read(Path::new(file))?;
        if let Some(name) = &device
            && report.devices.iter().all(|device| device.name != *name)
        {
            let names = report.devices.iter().map(|device| &*device.name).collect::<Vec<_>>().join(", ");
            return Err(format!("{file}: there is no device {name}; there are {names}"));
        }
        Ok(Self { file: file.to_owned(), report, device })
    }

    /// Returns the devices that may be compared.
    fn devices(&self) -> impl Iterator<Item = &DeviceReport> {
        let is_meant = |device: &&DeviceReport| self.device.as_ref().is_none_or(|name| device.name == *name);
        self.report.devices.iter().filter(is_meant)
    }

    /// Returns the device that is compared if none was named: a GPU before others, and CUDA before other interfaces.
    fn best(&self) -> Option<&DeviceReport> {
        self.devices().min_by_key(|device| match (&*device.backend, &*device.kind) {
            ("cuda", _) => 0,
            ("cpu", _) => 2,
            (_, "software") => 3,
            _ => 1,
        })
    }
}

/// Prints the devices of the files beside each other, as text or as Markdown, and returns whether all exact results agree. Fails with the
/// file that cannot be read.
pub(crate) fn compare(files: &[String], markdown: bool) -> Result<bool, String> {
    let files = files.iter().map(|given| Chosen::read(given)).collect::<Result<Vec<_>, _>>()?;
    for group in groups(&files) {
        table::print(&if markdown { markdown_of(&group) } else { text_of(&group) });
    }
    let devices = files.iter().flat_map(|chosen| {
        let devices = chosen.report.devices.iter();
        devices.map(move |device| (format!("{} in {}", device.name, chosen.file), device))
    });
    let differences = Report::differences(devices);
    table::print(if differences.is_empty() {
        "\nexact results agree on all devices of all files"
    } else {
        "\nRESULTS DIFFER:"
    });
    differences.iter().for_each(|line| table::print(&format!("  {line}")));
    Ok(differences.is_empty())
}

/// Devices that are compared, one of each file.
type Group<'a> = Vec<(&'a Report, &'a DeviceReport)>;

/// Returns the n-th device of a backend and interface with the n-th such device of the other files. If no file has one for a device of the
/// first, or devices were named, returns the named or best device of each file.
fn groups<'a>(files: &'a [Chosen]) -> Vec<Group<'a>> {
    let alike =
        |a: &DeviceReport, b: &DeviceReport| a.backend == b.backend && (a.api == b.api || a.backend == "cpu");
    let group = |x: &DeviceReport| -> Option<Group<'a>> {
        let before = |other: &&DeviceReport| other.name != x.name;
        let place = files[0].devices().take_while(before).filter(|other| alike(other, x)).count();
        let partner =
            |chosen: &'a Chosen| Some((&chosen.report, chosen.devices().filter(|y| alike(y, x)).nth(place)?));
        files.iter().map(partner).collect()
    };
    let groups: Vec<_> = match files.iter().any(|chosen| chosen.device.is_some()) {
        true => Vec::new(),
        false => files[0].devices().filter_map(group).collect(),
    };
    if !groups.is_empty() {
        return groups;
    }
    let best = files.iter().map(|chosen| Some((&chosen.report, chosen.best()?))).collect::<Option<_>>();
    best.into_iter().collect()
}

/// Returns the measurements that all devices of a group have.
fn rows<'a>(group: &Group<'a>) -> impl Iterator<Item = Vec<&'a Entry>> {
    let first = group[0].1.entries.iter();
    first.filter_map(|entry| group.iter().map(|(_, device)| device.entry(&entry.id)).collect())
}

fn text_of(group: &Group<'_>) -> String {
    let mut text = String::new();
    for (number, (report, device)) in (1..).zip(group) {
        let score = score::score(device)
            .map_or(String::new(), |score| format!("; score {}: {}", score::VERSION, table::number(score)));
        let _ = writeln!(text, "\n[{number}] {}: {}{score}", device.description, facts(report, device));
    }
    for entries in rows(group) {
        let first = entries[0];
        let _ = write!(text, "\n  {:<44} {:>9} {:<7}", first.id, number(first.median), first.unit.text());
        for other in &entries[1..] {
            let _ = write!(text, " {:>9} {}", number(other.median), ratio(first, other));
        }
    }
    text
}

fn markdown_of(group: &Group<'_>) -> String {
    let mut text = String::new();
    for (number, (report, device)) in (1..).zip(group) {
        let _ = writeln!(text, "{number}. {}: {}", device.description, facts(report, device));
    }
    let numbers = (1..=group.len()).map(|number| format!(" {number} |")).collect::<String>();
    let _ = write!(text, "\n| measurement | unit |{numbers}\n|---|---|{}", "---:|".repeat(group.len()));
    let scores =
        group.iter().map(|(_, device)| score::score(device).map(|score| format!(" {} |", number(score))));
    if let Some(scores) = scores.collect::<Option<String>>() {
        let _ = write!(text, "\n| score {} | |{scores}", score::VERSION);
    }
    for entries in rows(group) {
        let first = entries[0];
        let _ = write!(text, "\n| {} | {} | {} |", first.id, first.unit.text(), number(first.median));
        for other in &entries[1..] {
            let _ = write!(text, " {}, {} |", number(other.median), ratio(first, other));
        }
    }
    text + "\n"
}

/// Returns how many times as fast the second device is as the first, from the medians, and from the slowest and fastest runs.
fn ratio(a: &Entry, b: &Entry) -> String {
    let sizes = match (a.size == b.size, a.unit) {
        (true, _) => String::new(),
        (false, Unit::Milliseconds) => return format!("(sizes differ: {} and {})", a.size, b.size),
        (false, _) => format!(" at {} and {}", a.size, b.size),
    };
    let [median, low, high] = match a.unit {
        Unit::Milliseconds => [a.median / b.median, a.min / b.max, a.max / b.min],
        _ => [b.median / a.median, b.min / a.max, b.max / a.min],
    };
    format!("{} times ({} to {}){sizes}", number(median), number(low), number(high))
}

#[cfg(test)]
mod tests {
    use teatime::Device;

    use super::*;

    fn device(name: &str, backend: &str, api: &str) -> DeviceReport {
        let mut device = DeviceReport::new(&Device::cpu());
        (device.name, device.backend, device.api) = (name.into(), backend.into(), api.into());
        device
    }

    fn chosen(devices: Vec<DeviceReport>, named: Option<&str>) -> Chosen {
        let mut report = Report::new(1.0);
        report.devices = devices;
        Chosen { file: "results.json".into(), report, device: named.map(Into::into) }
    }

    fn names(files: &[Chosen]) -> Vec<Vec<&str>> {
        groups(files).iter().map(|group| group.iter().map(|(_, device)| &*device.name).collect()).collect()
    }

    #[test]
    fn devices_go_together_by_interface_and_order_or_by_name() {
        let cpu = |api| device("cpu", "cpu", api);
        let vulkan = |name| device(name, "wgpu", "vulkan");
        let left = || vec![cpu("x86_64"), vulkan("wgpu:0"), vulkan("wgpu:1")];
        let right = || vec![device("wgpu:0", "wgpu", "gl"), vulkan("wgpu:2"), cpu("aarch64")];
        let mut files = vec![chosen(left(), None), chosen(right(), None)];
        assert_eq!(names(&files), [["cpu", "cpu"], ["wgpu:0", "wgpu:2"]]);
        files.push(chosen(vec![cpu("x86_64")], None));
        assert_eq!(names(&files), [["cpu", "cpu", "cpu"]]);
        // A CUDA card beside a Radeon.
        let mut cards = vec![chosen(vec![cpu(""), device("cuda:0", "cuda", "cuda")], None)];
        cards.push(chosen(vec![vulkan("wgpu:0")], None));
        assert_eq!(names(&cards), [["cuda:0", "wgpu:0"]]);
        let named = [chosen(left(), Some("wgpu:1")), chosen(right(), None)];
        assert_eq!(names(&named), [["wgpu:1", "wgpu:0"]]);
    }

    #[test]
    fn ratios_say_how_many_times_as_fast_and_their_spread() {
        for (unit, sizes, expected) in [
            (Unit::Bandwidth, ["1", "1"], "2.000 times (1.000 to 4.000)"),
            (Unit::Milliseconds, ["1", "1"], "0.500 times (0.250 to 1.000)"),
            (Unit::Rate, ["1", "2"], "2.000 times (1.000 to 4.000) at 1 and 2"),
            (Unit::Milliseconds, ["1", "2"], "(sizes differ: 1 and 2)"),
        ] {
            let entry = |size, runs| Entry::of_runs("x", size, unit, runs);
            let (a, b) = (entry(sizes[0], [8.0, 10.0, 16.0]), entry(sizes[1], [16.0, 20.0, 32.0]));
            assert_eq!(ratio(&a, &b), expected);
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
