//! The page of a timeline: HTML that needs nothing else.

use std::fmt::Write;

use super::{
    Stage,
    summary::{LaneOf, Summary, Total, percent},
};

/// The title, the plots and the record on the page of a timeline ([`Timeline::write_report`](super::Timeline::write_report)).
#[derive(Clone, Debug, Default)]
pub struct About {
    /// The title; "teatime" if it is empty.
    pub title: String,
    /// The error that ended the run; empty if none did.
    pub failed: String,
    /// Plots as SVG, which become parts of the page as they are.
    pub plots: Vec<String>,
    /// Names and values of a table.
    pub record: Vec<(String, String)>,
}

/// The width of a picture, that of the names of lanes in it, and the height of a lane.
const WIDTH: u64 = 1100;
const NAMES: u64 = 130;
const HEIGHT: u64 = 18;
/// The maximum number of columns of a lane's picture, and of all lanes together, which keeps pages below 10 MB.
const COLUMNS: usize = 950;
const ALL_COLUMNS: usize = 60_000;

pub(super) fn page(summary: &Summary, about: &About) -> String {
    let title = if about.title.is_empty() { "teatime" } else { &about.title };
    let events: usize = summary.lanes.iter().map(|lane| lane.events.len()).sum();
    let dropped = summary.dropped;
    let dropped = if dropped == 0 {
        String::new()
    } else {
        format!(
            "<p class=\"warn\">The {dropped} oldest events were dropped: what follows is of the newest alone.</p>"
        )
    };
    let failed = match &*about.failed {
        "" => String::new(),
        why => format!("<p class=\"warn\">The run did not finish: {}</p>", escaped(why)),
    };
    let parts = [
        ("{title}", escaped(title)),
        ("{bound}", escaped(&sentence(&summary.bound()))),
        (
            "{facts}",
            format!("{} recorded, {events} spans on {} lanes", time(summary.wall()), summary.lanes.len()),
        ),
        ("{failed}", failed),
        ("{dropped}", dropped),
        ("{clocks}", escaped(&summary.clocks())),
        ("{lanes}", lanes(summary)),
        ("{stages}", stages(summary)),
        ("{threads}", threads(summary)),
        ("{held}", held(summary)),
        (
            "{plots}",
            section("Plots", about.plots.iter().map(|svg| format!("<figure>{svg}</figure>")).collect()),
        ),
        ("{record}", section("Record", record(&about.record))),
    ];
    // Each place is filled once, so that nothing in the inserted text is taken for a place.
    let (mut page, mut rest) = (String::new(), include_str!("page.html"));
    while let Some((at, (place, text))) =
        parts.iter().filter_map(|part| Some((rest.find(part.0)?, part))).min_by_key(|(at, _)| *at)
    {
        page += &rest[..at];
        page += text;
        rest = &rest[at + place.len()..];
    }
    page + rest
}

fn section(title: &str, text: String) -> String {
    if text.is_empty() { text } else { format!("<h2>{title}</h2>\n{text}") }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).chain(['.']).collect())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Returns the class of a stage, which gives its color.
const fn class(stage: Stage) -> &'static str {
    match stage {
        Stage::Phase | Stage::Bytes => "phase",
        Stage::Fetch => "fetch",
        Stage::Decode => "decode",
        Stage::Convert => "convert",
        Stage::Upload | Stage::Download | Stage::Copy => "move",
        Stage::Compile | Stage::Kernel | Stage::Enqueue | Stage::Untimed => "kernel",
        Stage::Host => "host",
        Stage::Write | Stage::Flush => "write",
        Stage::Chunks | Stage::Slot | Stage::Wait | Stage::Writers => "wait",
    }
}

fn time(nanoseconds: u64) -> String {
    let seconds = nanoseconds as f64 / 1e9;
    match nanoseconds {
        0..1_000_000 => format!("{:.0} µs", seconds * 1e6),
        1_000_000..1_000_000_000 => format!("{:.1} ms", seconds * 1e3),
        _ => format!("{seconds:.2} s"),
    }
}

fn size(bytes: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(size, _)| bytes >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", bytes as f64 / *size as f64),
        None => format!("{bytes} B"),
    }
}

/// Returns the end of a long path.
fn short(name: &str) -> String {
    match name.rmatch_indices('/').nth(1) {
        Some((at, _)) if name.chars().count() > 40 => format!("…{}", &name[at..]),
        _ => name.into(),
    }
}

/// Returns the horizontal place of a time.
fn place(summary: &Summary, time: u64) -> f64 {
    let since = time.saturating_sub(summary.within.start) as f64 / summary.wall() as f64;
    NAMES as f64 + since * (WIDTH - NAMES) as f64
}

/// Returns the start of a picture with vertical lines at round times.
fn chart(summary: &Summary, height: u64) -> String {
    let total = height + 18;
    let mut svg = format!("<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {total}\" role=\"img\">");
    let step = 10f64.powf((summary.wall() as f64 / 5.0).log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * step);
    let step = step.into_iter().find(|step| summary.wall() as f64 / step <= 8.0).unwrap_or(step[3]).max(1.0);
    for i in 0..=8u32 {
        let after = f64::from(i) * step;
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "below the run's nanoseconds"
        )]
        let after = after as u64;
        if after <= summary.wall() {
            let x = place(summary, summary.within.start + after);
            let text = if after == 0 { "0".into() } else { time(after) };
            _ = write!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} 0V{height}\"/><text x=\"{x:.1}\" y=\"{}\">{text}</text>",
                height + 13
            );
        }
    }
    svg
}

/// Returns the picture of all lanes, and the key of its colors.
fn lanes(summary: &Summary) -> String {
    let rows = summary.lanes.len() as u64 + u64::from(!summary.phases.is_empty());
    let mut svg = chart(summary, rows * (HEIGHT + 3));
    let mut y = 0;
    if !summary.phases.is_empty() {
        _ = write!(svg, "<text x=\"0\" y=\"{}\">phases</text>", y + 13);
        for phase in &summary.phases {
            let [from, to] = [phase.start, phase.start + phase.took].map(|time| place(summary, time));
            let name = escaped(&summary.label(phase.label).name);
            let (width, title) = ((to - from - 1.0).max(0.5), format!("{name}: {}", time(phase.took)));
            _ = write!(
                svg,
                "<rect class=\"phase\" x=\"{from:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{HEIGHT}\"><title>{title}</title></rect>"
            );
            if to - from > 7.0 * name.chars().count() as f64 {
                _ = write!(svg, "<text class=\"on\" x=\"{:.1}\" y=\"{}\">{name}</text>", from + 3.0, y + 13);
            }
        }
        y += HEIGHT + 3;
    }
    let columns = (ALL_COLUMNS / summary.lanes.len().max(1)).clamp(50, COLUMNS);
    for lane in &summary.lanes {
        let (x, width) = (NAMES, WIDTH - NAMES);
        _ = write!(
            svg,
            "<text x=\"0\" y=\"{}\">{}</text><rect class=\"ground\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{HEIGHT}\"/>",
            y + 13,
            escaped(&lane.name)
        );
        boxes(&mut svg, summary, lane, columns, y);
        y += HEIGHT + 3;
    }
    svg += "</svg>\n<p class=\"dim\">";
    let mut shown: Vec<&str> = summary.totals().iter().map(|(label, _)| class(label.stage)).collect();
    shown.sort_unstable();
    shown.dedup();
    for class in shown {
        let name = match class {
            "move" => "upload, download, copy",
            "host" => "host algebra",
            "kernel" => "kernel, enqueue, compile",
            "write" => "write, flush",
            class => class,
        };
        _ = write!(
            svg,
            "<span class=\"key\"><svg viewBox=\"0 0 1 1\"><rect class=\"{class}\" width=\"1\" height=\"1\"/></svg>{name}</span>"
        );
    }
    svg + "</p>"
}

/// Draws the pieces of a lane, each column in the color of its longest stage: the fuller the column, the stronger.
fn boxes(svg: &mut String, summary: &Summary, lane: &LaneOf, columns: usize, y: u64) {
    let width = summary.wall().div_ceil(columns as u64).max(1);
    let mut times = vec![[0u64; Stage::COUNT]; columns];
    for (piece, label) in &lane.pieces {
        let stage = summary.label(*label).stage as usize;
        let (mut from, end) = (piece.start - summary.within.start, piece.end - summary.within.start);
        while from < end {
            let column = from / width;
            let to = end.min((column + 1) * width);
            if let Some(times) = usize::try_from(column).ok().and_then(|column| times.get_mut(column)) {
                times[stage] += to - from;
            }
            from = to;
        }
    }
    // The stage of a column, and how many quarters of it are busy.
    let look = |times: &[u64; Stage::COUNT]| {
        let (stage, longest) = times.iter().enumerate().max_by_key(|(_, time)| **time)?;
        let busy: u64 = times.iter().sum();
        (*longest > 0).then(|| (stage, (4 * busy).div_ceil(width).clamp(1, 4)))
    };
    let looks: Vec<Option<(usize, u64)>> = times.iter().map(look).collect();
    let mut first = 0;
    for run in looks.chunk_by(|a, b| a == b) {
        if let Some((stage, quarters)) = run[0] {
            let [from, to] = [first, first + run.len()].map(|column| {
                place(summary, summary.within.start + (column as u64 * width).min(summary.wall()))
            });
            let stage = Stage::ALL[stage];
            let (class, name, opacity) = (class(stage), stage.name(), 0.25 * quarters as f64);
            _ = write!(
                svg,
                "<rect class=\"{class}\" opacity=\"{opacity}\" x=\"{from:.1}\" y=\"{y}\" width=\"{:.1}\" height=\"{HEIGHT}\"><title>{name}</title></rect>",
                to - from
            );
        }
        first += run.len();
    }
}

fn table(class: &str, head: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let cell = |tag: &str, i: usize, text: &str| {
        let class = if i == 0 { "" } else { " class=\"number\"" };
        format!("<{tag}{class}>{text}</{tag}>")
    };
    let row = |tag: &str, cells: &[String]| {
        let cells: String = cells.iter().enumerate().map(|(i, text)| cell(tag, i, text)).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let head: Vec<String> = head.iter().map(ToString::to_string).collect();
    let rows: String = rows.map(|cells| row("td", &cells)).collect();
    format!("<table class=\"{class}\">{}{rows}</table>", row("th", &head))
}

fn stages(summary: &Summary) -> String {
    let head = ["stage", "spans", "lanes", "busy", "waiting", "share", "bytes", "rate"];
    let rows = summary.totals().into_iter().map(|(label, total)| {
        let Total { events, bytes, busy, covered, lanes } = total;
        let name = [label.stage.name(), &short(&label.name)].join(" ");
        let (work, wait) = if label.stage.is_wait() { (0, busy) } else { (busy, 0) };
        let [work, wait] = [work, wait].map(|spent| if spent == 0 { String::new() } else { time(spent) });
        let (amount, rate) = match bytes {
            0 => (String::new(), String::new()),
            _ => (size(bytes), format!("{:.2} GB/s", bytes as f64 / covered.max(1) as f64)),
        };
        vec![
            escaped(name.trim()),
            events.to_string(),
            lanes.to_string(),
            work,
            wait,
            percent(covered, summary.wall(), 1),
            amount,
            rate,
        ]
    });
    table("stages", &head, rows)
}

fn threads(summary: &Summary) -> String {
    let rows = summary.lanes.iter().map(|lane| {
        let spent = |waits: bool| -> u64 {
            let pieces =
                lane.pieces.iter().filter(|(_, label)| summary.label(*label).stage.is_wait() == waits);
            pieces.map(|(piece, _)| piece.end - piece.start).sum()
        };
        let [busy, waiting] = [false, true].map(spent);
        let rest = summary.wall().saturating_sub(busy + waiting);
        let shares = [busy, waiting, rest].map(|spent| percent(spent, summary.wall(), 1));
        std::iter::once(escaped(&lane.name)).chain(shares).collect()
    });
    table("threads", &["lane", "busy", "waiting", "in no stage"], rows)
}

/// Returns a picture for each kind of bytes that are held.
fn held(summary: &Summary) -> String {
    const HIGH: u64 = 90;
    let picture = |name: &str, values: &[(u64, u64)]| {
        let most = values.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let mut svg = chart(summary, HIGH);
        _ = write!(
            svg,
            "<text x=\"0\" y=\"13\">{}</text><text x=\"0\" y=\"29\">at most {}</text><path class=\"held\" d=\"",
            escaped(name),
            size(most)
        );
        let height = |bytes: u64| HIGH as f64 * (1.0 - 0.95 * bytes as f64 / most.max(1) as f64);
        // Each column begins with its largest value and ends with its last.
        let width = summary.wall().div_ceil(COLUMNS as u64);
        let column = |(time, _): &(u64, u64)| time.saturating_sub(summary.within.start) / width;
        let mut step = "M";
        for column in values.chunk_by(|a, b| column(a) == column(b)) {
            let peak = column.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
            for (time, bytes) in [(column[0].0, peak), column[column.len() - 1]] {
                let x = place(summary, time);
                _ = if step == "M" {
                    write!(svg, "M{x:.1} {:.1}", height(bytes))
                } else {
                    write!(svg, "H{x:.1}V{:.1}", height(bytes))
                };
                step = "H";
            }
        }
        svg + &format!("H{WIDTH}\"/></svg>\n")
    };
    section("Memory over time", summary.held.iter().map(|(name, values)| picture(name, values)).collect())
}

fn record(record: &[(String, String)]) -> String {
    let row = |(name, value): &(String, String)| {
        format!("<tr><td>{}</td><td>{}</td></tr>\n", escaped(name), escaped(value))
    };
    let rows: String = record.iter().map(row).collect();
    if rows.is_empty() { rows } else { format!("<table class=\"record\">{rows}</table>") }
}
