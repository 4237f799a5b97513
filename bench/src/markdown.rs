//! Results as a Markdown table, to paste.

use crate::{
    report::{DeviceReport, Entry, Note, Report},
    score,
    table::number,
};

/// Returns a table for each device, with what it was measured on.
pub(crate) fn tables(report: &Report) -> String {
    report.devices.iter().map(|device| table(report, device)).collect::<Vec<_>>().join("\n")
}

fn table(report: &Report, device: &DeviceReport) -> String {
    let mut lines = vec![
        format!("### {}", device.description),
        String::new(),
        facts(report, device),
        String::new(),
        "| measurement | size | median | unit | from, to | runs | |".to_owned(),
        "|---|---|---:|---|---|---:|---|".to_owned(),
    ];
    lines.extend(device.entries.iter().map(|entry| {
        let Entry { id, size, unit, median, min, max, runs, fraction } = entry;
        let share =
            fraction.as_ref().map_or(String::new(), |f| format!("{:.0} % of {}", 100.0 * f.value, f.of));
        let [median, min, max] = [median, min, max].map(|value| number(*value));
        format!("| {id} | {size} | {median} | {} | {min}, {max} | {runs} | {share} |", unit.text())
    }));
    for (how, notes) in [("failed", &device.failed), ("skipped", &device.skipped)] {
        let line =
            |Note { name, why }: &Note| format!("| {name} | | {how}: {} | | | | |", why.replace('|', "/"));
        lines.extend(notes.iter().map(line));
    }
    lines.push(String::new());
    lines.extend(score::line(device));
    lines.extend(score::headline(device));
    lines.join("\n") + "\n"
}

/// Returns a line with the version, the device, its driver and power limit, and the date.
pub(crate) fn facts(report: &Report, device: &DeviceReport) -> String {
    let commit = report.commit.as_deref().unwrap_or("unknown commit");
    let mut facts = vec![format!("teatime {} ({commit})", report.teatime)];
    let names = [&device.name, &device.api, &device.driver].into_iter().filter(|fact| !fact.is_empty());
    facts.extend(names.cloned());
    facts.extend(device.power_limit.map(|watts| format!("power limit {watts:.0} W")));
    facts.extend([format!("{} threads", report.system.threads), report.date.clone()]);
    facts.join(" · ")
}

#[cfg(test)]
mod tests {
    use teatime::Device;

    use super::*;
    use crate::report::{Fraction, Unit};

    #[test]
    fn a_table_has_all_that_was_measured() {
        let mut device = DeviceReport::new(&Device::cpu());
        device.power_limit = Some(700.4);
        device.entries = vec![
            Entry::of_runs("kernel x", "8", Unit::Bandwidth, [37.5, 75.0, 75.0]),
            Entry::of_runs("matmul 8", "8", Unit::Flops, [25.0, 50.0, 50.0]),
        ];
        device.entries[0].fraction = Some(Fraction { value: 0.75, of: "copy".into() });
        device.failed = vec![Note { name: "y".into(), why: "a | b".into() }];
        let mut report = Report::new(1.0);
        report.devices.push(device);
        let text = tables(&report);
        for line in [
            "| kernel x | 8 | 75.00 | GB/s | 37.50, 75.00 | 3 | 75 % of copy |",
            "| matmul 8 | 8 | 50.00 | GFLOP/s | 25.00, 50.00 | 3 |  |",
            "| y | | failed: a / b | | | | |",
        ] {
            assert!(text.contains(line), "{text}");
        }
        assert!(text.contains("power limit 700 W"), "{text}");
        let columns = |line: &str| line.matches('|').count();
        assert!(text.lines().filter(|line| line.starts_with('|')).all(|line| columns(line) == 8), "{text}");
    }
}
