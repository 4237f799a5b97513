//! The Trace Event Format of Chrome and Perfetto.

use std::{
    fmt::{self, Display},
    io::{self, Write},
    process,
};

use super::{NO_ITEM, Stage, summary::Summary};

/// A text as a string of JSON.
struct Quoted<'a>(&'a str);

impl Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

/// The number of nanoseconds as microseconds.
struct Micros(u64);

impl Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// Writes all events, one a line.
pub(super) fn write(summary: &Summary, out: &mut dyn Write) -> io::Result<()> {
    let (pid, version) = (process::id(), env!("CARGO_PKG_VERSION"));
    writeln!(
        out,
        "{{\"otherData\":{{\"program\":\"teatime {version}\",\"clock\":{},\
         \"began_unix_us\":{},\"dropped_events\":{},\"bound\":{}}},\"displayTimeUnit\":\"ms\",\"traceEvents\":[",
        Quoted(&summary.clocks()),
        summary.began_at,
        summary.dropped,
        Quoted(&summary.bound())
    )?;
    write!(
        out,
        "{{\"ph\":\"M\",\"pid\":{pid},\"tid\":0,\"name\":\"process_name\",\"args\":{{\"name\":\"teatime\"}}}}"
    )?;
    let names = std::iter::once("phases").chain(summary.lanes.iter().map(|lane| &*lane.name));
    for (tid, name) in names.enumerate() {
        let event = format_args!("{{\"ph\":\"M\",\"pid\":{pid},\"tid\":{tid}");
        write!(out, ",\n{event},\"name\":\"thread_name\",\"args\":{{\"name\":{}}}}}", Quoted(name))?;
        write!(out, ",\n{event},\"name\":\"thread_sort_index\",\"args\":{{\"sort_index\":{tid}}}}}")?;
    }
    let lanes = std::iter::once(&summary.phases).chain(summary.lanes.iter().map(|lane| &lane.events));
    let mut requests = Vec::new();
    for (tid, event) in
        lanes.enumerate().flat_map(|(tid, events)| events.iter().map(move |event| (tid, event)))
    {
        let label = summary.label(event.label);
        let shown = if matches!(label.stage, Stage::Kernel | Stage::Copy | Stage::Phase) {
            &*label.name
        } else {
            label.stage.name()
        };
        write!(
            out,
            ",\n{{\"ph\":\"X\",\"pid\":{pid},\"tid\":{tid},\"ts\":{},\"dur\":{},\"name\":{},\"cat\":{},\"args\":{{\"bytes\":{}",
            Micros(event.start),
            Micros(event.took),
            Quoted(shown),
            Quoted(label.stage.name()),
            event.bytes
        )?;
        if !label.name.is_empty() {
            write!(out, ",\"of\":{}", Quoted(&label.name))?;
        }
        match summary.index(event).filter(|_| event.item != NO_ITEM) {
            Some(index) if matches!(label.stage, Stage::Fetch | Stage::Decode) => {
                write!(out, ",\"chunk\":{index:?}")?
            }
            _ if event.item != NO_ITEM => write!(out, ",\"block\":{}", event.item)?,
            _ => {}
        }
        out.write_all(b"}}")?;
        if label.stage == Stage::Fetch {
            requests.extend([(event.start, 1), (event.start + event.took, -1)]);
        }
    }
    let mut counter = |time: u64, name: &str, value: u64| {
        let (time, name) = (Micros(time), Quoted(name));
        write!(
            out,
            ",\n{{\"ph\":\"C\",\"pid\":{pid},\"tid\":0,\"ts\":{time},\"name\":{name},\"args\":{{\"value\":{value}}}}}"
        )
    };
    for (name, values) in &summary.held {
        values.iter().try_for_each(|(time, bytes)| counter(*time, name, *bytes))?;
    }
    requests.sort_unstable();
    let mut under_way = 0i64;
    for (time, change) in requests {
        under_way += change;
        counter(time, "requests under way", under_way.max(0).unsigned_abs())?;
    }
    out.write_all(b"\n]}\n")
}
