//! Results as lines of text.

use std::io::Write;

/// Prints a line. A closed pipe, such as to `head`, is no error.
pub(crate) fn print(line: &str) {
    let mut out = std::io::stdout().lock();
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Formats a number with four digits, or with its whole part if that has more.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        size if size >= 1000.0 => 0,
        size if size >= 100.0 => 1,
        size if size >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Formats bytes in the largest binary unit that divides them exactly.
pub(crate) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let power = (bytes.trailing_zeros() / 10).min(4);
    let power = if bytes == 0 { 0 } else { power };
    format!("{} {}", bytes >> (10 * power), units[power as usize])
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
