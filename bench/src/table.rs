//! Results as lines of text.

use std::io::Write;

use crate::report::Entry;

/// Prints a line. A reader that has gone, such as `head`, is no error.
pub(crate) fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// One measurement.
pub(crate) fn entry(entry: &Entry) -> String {
    let Entry { id, size, unit, median, min, max, runs, fraction } = entry;
    let fraction = fraction.as_ref().map(|f| format!("  {:.2} of {}", f.value, f.of)).unwrap_or_default();
    let spread = format!("{}..{} in {runs}", number(*min), number(*max));
    format!("  {id:<44} {size:>16} {:>9} {:<7} {spread:<26}{fraction}", number(*median), unit.text())
        .trim_end()
        .to_owned()
}

/// A number in four digits or as many as its whole part takes.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Bytes in the largest binary unit of which they are a whole number.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.trailing_zeros() / 10).min(4);
    let power = if bytes == 0 { 0 } else { power };
    format!("{} {}", bytes >> (10 * power), units[power as usize])
}

/// A small number, in two digits.
pub(crate) fn small(value: f64) -> String {
    format!("{value:.1e}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Fraction, Unit};

    #[test]
    fn numbers() {
        let texts = [12_345.6, 1234.5, 123.45, 12.345, 1.2345, 0.0012].map(number);
        assert_eq!(texts, ["12346", "1234", "123.5", "12.35", "1.234", "0.001"]);
    }

    #[test]
    fn sizes() {
        assert_eq!(
            [0, 1000, 1 << 10, 3 << 29, 1 << 50].map(bytes),
            ["0 B", "1000 B", "1 KiB", "1536 MiB", "1024 TiB"]
        );
    }

    #[test]
    fn lines() {
        let mut line = Entry {
            id: "kernel recode".into(),
            size: "64 MiB".into(),
            unit: Unit::Bandwidth,
            median: 50.0,
            min: 40.0,
            max: 60.0,
            runs: 9,
            fraction: None,
        };
        assert!(entry(&line).ends_with("50.00 GB/s    40.00..60.00 in 9"));
        line.fraction = Some(Fraction { value: 0.5, of: "copy".into() });
        assert!(entry(&line).ends_with("0.50 of copy"));
    }
}
