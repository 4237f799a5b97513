//! Results as a page: for each device a roofline, and a table with bars.
//!
//! A roofline has operations per byte along one axis and operations per second along the other (Williams, Waterman and Patterson,
//! "Roofline: an insightful visual performance model for multicore architectures", Communications of the ACM 52, 2009). The roof is what the
//! device itself reached in the same run: the rate of a copy, and that of the fastest product of f32.

use crate::{
    markdown::facts,
    measure::COPY,
    report::{DeviceReport, Entry, Note, Report, TF32, Unit},
    score::{self, CITY_BLOCK, GAUSSIAN, PAIRS, PASS},
    table::number,
};

const HEAD: &str = "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>
<title>teatime-bench</title><style>
:root { color-scheme: light dark; --ink: light-dark(#222, #ddd); --faint: light-dark(#ddd, #444); --mark: light-dark(#1766a8, #6cb6f5) }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); max-width: 60em; margin: 2em auto; padding: 0 1em }
svg { width: 100%; font-size: 12px } text { fill: var(--ink) } line { stroke: var(--faint) } polyline { fill: none; stroke: var(--ink) }
circle { fill: var(--mark) } table { border-collapse: collapse; width: 100% } td, th { padding: .1em .5em; text-align: right }
td:first-child, th:first-child { text-align: left } tr { border-top: 1px solid var(--faint) } meter { width: 7em }
</style>";

/// The extents of a picture, and the space left of it and below it.
const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 60.0;
const BELOW: f64 = 40.0;

/// Returns the page, with lines about results that differ between devices.
pub(crate) fn page(report: &Report, differences: &[String]) -> String {
    let mut out = format!("{HEAD}<h1>teatime-bench</h1>");
    for line in differences {
        out += &format!("<p>RESULTS DIFFER: {}", escaped(line));
    }
    for Note { name, why } in &report.absent {
        out += &format!("<p>{}: not here: {}", escaped(name), escaped(why));
    }
    out.extend(report.devices.iter().map(|device| section(report, device)));
    out + "</html>\n"
}

fn section(report: &Report, device: &DeviceReport) -> String {
    let mut out = format!("<h2>{}</h2><p>{}", escaped(&device.description), escaped(&facts(report, device)));
    for line in score::line(device).into_iter().chain(score::headline(device)) {
        out += &format!("<p>{}", escaped(&line));
    }
    out += &roofline(device)
        .unwrap_or_else(|| "<p>A roofline takes a copy and a product, which were not measured.".into());
    out += "<table><tr><th>measurement<th>size<th>median<th>unit<th>from, to<th>";
    for entry in &device.entries {
        let Entry { id, size, unit, median, min, max, fraction, .. } = entry;
        let [median, min, max] = [median, min, max].map(|value| number(*value));
        let share = fraction.as_ref().map_or(String::new(), |fraction| {
            let percent = format!("{:.0} % of {}", 100.0 * fraction.value, escaped(&fraction.of));
            format!("<meter value={:.3} title='{percent}'></meter> {percent}", fraction.value)
        });
        let cells = [escaped(id), escaped(size), median, unit.text().into(), format!("{min}, {max}"), share];
        out += &format!("<tr><td>{}", cells.join("<td>"));
    }
    for (how, notes) in [("failed", &device.failed), ("skipped", &device.skipped)] {
        for note in notes {
            out += &format!("<tr><td>{}<td colspan=5>{how}: {}", escaped(&note.name), escaped(&note.why));
        }
    }
    out + "</table>"
}

/// Returns the operations per byte of a measurement and its 10^9 operations per second, as if each operand were read once, and each result
/// written once.
fn point(entry: &Entry) -> Option<[f64; 2]> {
    let sizes: Vec<f64> = entry.size.split('x').map(str::parse).collect::<Result<_, _>>().ok()?;
    // The operations for each unit of the rate, and the bytes.
    let [operations, bytes] = match (entry.unit, &*entry.id, &sizes[..]) {
        (Unit::Flops, _, &[m, n, k]) => [1.0, 2.0 * (m * k + k * n + m * n) / (m * n * k)],
        // Two products with twenty columns. A code has two bits.
        (Unit::Rate, PASS, _) => [80.0, 0.25],
        // Sums are of 64 bits, here and below.
        (Unit::Rate, PAIRS, &[rows, columns]) => [2.0, 1.0 / (2.0 * columns) + 8.0 / rows],
        (Unit::Rate, CITY_BLOCK, &[observations, features]) => [3.0, 8.0 / observations + 8.0 / features],
        // Twenty-five weights along each of three axes.
        (Unit::Rate, GAUSSIAN, _) => [150.0, 8.0],
        _ => return None,
    };
    (entry.median.is_finite() && entry.median > 0.0)
        .then_some([operations / bytes, operations * entry.median])
}

/// Logarithmic axes: the powers of ten at their ends.
struct Axes([[i32; 2]; 2]);

impl Axes {
    /// Chooses ends beyond all points.
    #[allow(clippy::cast_possible_truncation, reason = "powers of ten are small")]
    fn around(points: &[[f64; 2]]) -> Self {
        Self([0, 1].map(|axis| {
            let logs = points.iter().map(|point| point[axis].log10());
            let (least, most) = (logs.clone().fold(f64::MAX, f64::min), logs.fold(f64::MIN, f64::max));
            [least.floor() as i32, most.ceil() as i32]
        }))
    }

    fn place(&self, point: [f64; 2]) -> [f64; 2] {
        let part = |axis: usize| {
            let [first, last] = self.0[axis];
            (point[axis].log10() - f64::from(first)) / f64::from(last - first).max(1.0)
        };
        [LEFT + part(0) * (WIDTH - LEFT), (1.0 - part(1)) * (HEIGHT - BELOW)]
    }

    /// Draws the lines of powers of ten, with their numbers.
    fn draw(&self) -> String {
        let [across, up] = self.0.map(|[first, last]| first..=last);
        let (bottom, mut out) = (HEIGHT - BELOW, String::new());
        for power in across {
            let ([x, _], y) = (self.place([10f64.powi(power), 1.0]), bottom + 15.0);
            out += &format!("<line x1={x:.1} x2={x:.1} y1=0 y2={bottom}></line>");
            out += &format!("<text x={x:.1} y={y} text-anchor=middle>{}</text>", decimal(power));
        }
        for power in up {
            let ([_, y], x) = (self.place([1.0, 10f64.powi(power)]), LEFT - 5.0);
            out += &format!("<line x1={LEFT} x2={WIDTH} y1={y:.1} y2={y:.1}></line>");
            out += &format!("<text x={x} y={:.1} text-anchor=end>{}</text>", y + 4.0, decimal(power));
        }
        out += &format!("<text x={WIDTH} y={HEIGHT} text-anchor=end>operations per byte</text>");
        out + &format!("<text x={LEFT} y=-4>10⁹ operations per second</text>")
    }
}

/// Draws the roofline, if a copy and a product were measured.
fn roofline(device: &DeviceReport) -> Option<String> {
    let copy = device.entry(COPY).map(|entry| entry.median).filter(|rate| rate.is_finite() && *rate > 0.0)?;
    let points: Vec<_> = device.entries.iter().filter_map(|entry| Some((entry, point(entry)?))).collect();
    let products = points.iter().filter(|(entry, _)| entry.unit == Unit::Flops && !entry.id.ends_with(TF32));
    let (fastest, [_, peak]) = products.max_by(|a, b| a.1[1].total_cmp(&b.1[1]))?;
    let (ridge, around) = (peak / copy, [[peak / copy / 9.0, peak / 9.0], [peak / copy * 9.0, *peak]]);
    let axes = Axes::around(&points.iter().map(|(_, point)| *point).chain(around).collect::<Vec<_>>());
    let [[left, right], [bottom, _]] = axes.0.map(|ends| ends.map(|power| 10f64.powi(power)));
    let left = left.max(bottom / copy);
    let roof = [[left, left * copy], [ridge, *peak], [right, *peak]];
    let mut out =
        format!("<svg viewBox='-10 -30 {} {}' role=img aria-label=roofline>", WIDTH + 35.0, HEIGHT + 35.0);
    let corners = roof.map(|corner| axes.place(corner).map(|at| format!("{at:.1}")).join(","));
    out += &format!("{}<polyline points='{}'></polyline>", axes.draw(), corners.join(" "));
    for (entry, point) in &points {
        let ([x, y], share) = (axes.place(*point), 100.0 * point[1] / peak.min(point[0] * copy));
        let text = format!("{}, {share:.0} %", escaped(entry.id.trim_start_matches("job ")));
        out += &format!("<circle cx={x:.1} cy={y:.1} r=4><title>{text}</title></circle>");
        // Products lie close together. The fastest is on the roof, and its text above that.
        if entry.unit != Unit::Flops || entry.id == fastest.id {
            let y = if entry.id == fastest.id { y - 20.0 } else { y + 4.0 };
            let (x, anchor) = if x > WIDTH / 2.0 { (x - 7.0, "end") } else { (x + 7.0, "start") };
            out += &format!("<text x={x:.1} y={y:.1} text-anchor={anchor}>{text}</text>");
        }
    }
    let about = "The roof is a copy of this run and its fastest product of f32, and percentages are of the roof. Products of codes and in \
                 TF32 have units of their own, so these points may lie above it. A pointer on a point shows its name.";
    Some(format!("{out}</svg><p>{about}"))
}

/// Returns a power of ten, from 0.001 to 1,000,000 in digits.
fn decimal(power: i32) -> String {
    if (-3..=6).contains(&power) { format!("{}", 10f64.powi(power)) } else { format!("1e{power}") }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use teatime::Device;

    use super::*;
    use crate::report::Fraction;

    #[test]
    fn a_page_has_a_roofline_and_all_that_was_measured() {
        let mut device = DeviceReport::new(&Device::cpu());
        device.description = "A <card>".into();
        device.entries = vec![Entry::of_runs("kernel x", "8 MiB", Unit::Bandwidth, [75.0; 3])];
        device.entries[0].fraction = Some(Fraction { value: 0.75, of: "copy".into() });
        device.skipped = vec![Note { name: "y".into(), why: "a & b".into() }];
        let mut report = Report::new(1.0);
        report.devices.push(device);
        report.absent = vec![Note { name: "cuda".into(), why: "no driver".into() }];
        let text = page(&report, &["codes: a and b".into()]);
        let has = |text: &str, part: &str| assert!(text.contains(part), "{part}: {text}");
        for part in [
            "A &lt;card>",
            "<td>kernel x<td>8 MiB<td>75.00",
            "75 % of copy",
            "skipped: a &amp; b",
            "RESULTS DIFFER: codes: a and b",
            "cuda: not here: no driver",
            "A roofline takes a copy",
        ] {
            has(&text, part);
        }
        for (id, size, unit, rate) in [
            (COPY, "1 GiB", Unit::Bandwidth, 100.0),
            ("matmul 1024", "1024x1024x1024", Unit::Flops, 1000.0),
            ("matmul 1024, TF32", "1024x1024x1024", Unit::Flops, 9000.0),
            ("matmul 512", "512x512x512", Unit::Flops, f64::INFINITY),
            (PASS, "4096x2000", Unit::Rate, 5.0),
            (PAIRS, "16384x2000", Unit::Rate, 400.0),
            (CITY_BLOCK, "2000x1000", Unit::Rate, 100.0),
            (GAUSSIAN, "64x512x512", Unit::Rate, 2.0),
        ] {
            report.devices[0].entries.push(Entry::of_runs(id, size, unit, [rate; 3]));
        }
        let points: Vec<_> = report.devices[0].entries.iter().filter_map(point).collect();
        // A product of squares of n has n / 6 operations a byte.
        let product = 1024.0 / 6.0;
        // Bytes are those of the codes or numbers and of all sums, a sum for two pairs.
        let pairs = 16384.0 * 2000.0 * 2000.0 / (16384.0 * 500.0 + 2000.0 * 2000.0 * 4.0);
        let city_block =
            3.0 * 2000.0 * 2000.0 / 2.0 * 1000.0 / (2000.0 * 1000.0 * 4.0 + 2000.0 * 2000.0 * 4.0);
        let intensities = [product, product, 320.0, pairs, city_block, 18.75];
        let rates = [1000.0, 9000.0, 400.0, 800.0, 300.0, 300.0];
        assert_eq!(points.len(), intensities.len());
        for ([x, y], (wanted_x, wanted_y)) in points.into_iter().zip(intensities.into_iter().zip(rates)) {
            let close = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 1e-12;
            assert!(close(x, wanted_x) && close(y, wanted_y), "{x} {y}, not {wanted_x} {wanted_y}");
        }
        let text = page(&report, &[]);
        assert_eq!(text.matches("<circle").count(), 6, "{text}");
        let products = ["matmul 1024, 100 %", "matmul 1024, TF32, 900 %"];
        let jobs = ["Gaussian of 3, voxels, 30 %", "packed pass, codes, 40 %"];
        products.iter().chain(&jobs).for_each(|part| has(&text, part));
    }
}
