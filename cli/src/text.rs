//! Numbers as text.

/// Formats a number like C's `%.{digits}g`, which plink2 uses for its tables.
pub(crate) fn general(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return value.to_string().to_lowercase();
    }
    let scientific = format!("{value:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    let last = i32::try_from(digits).unwrap_or(i32::MAX) - 1;
    if (-4..=last).contains(&exponent) {
        let decimals = usize::try_from(last - exponent).unwrap_or_default();
        return trimmed(&format!("{value:.decimals$}")).into();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", trimmed(mantissa), exponent.unsigned_abs())
}

/// Removes trailing zeros of the decimals.
fn trimmed(number: &str) -> &str {
    if number.contains('.') { number.trim_end_matches('0').trim_end_matches('.') } else { number }
}

/// Returns the shortest text that parses to the same f64.
pub(crate) fn exact(value: f64) -> String {
    let size = value.abs();
    if size == 0.0 || (1e-5..1e16).contains(&size) || !size.is_finite() {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

/// Formats a whole number with commas between thousands.
pub(crate) fn count(n: u64) -> String {
    indicatif::HumanCount(n).to_string()
}

/// Returns the first names of a list, followed by dots if there are more.
pub(crate) fn few(names: &[impl AsRef<str>]) -> String {
    let few: Vec<_> = names.iter().take(5).map(|name| format!("`{}`", name.as_ref())).collect();
    let dots = if names.len() > few.len() { ", ..." } else { "" };
    few.join(", ") + dots
}

/// Escapes control characters except line ends, as JSON does.
pub(crate) fn lines(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut lines, c| {
        if c.is_control() && c != '\n' {
            lines += &format!("\\u{:04x}", u32::from(c));
        } else {
            lines.push(c);
        }
        lines
    })
}

/// Returns a count and its noun, in singular or plural.
pub(crate) fn plural(n: u64, noun: &str) -> String {
    let ending = match (n, noun.ends_with('s')) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{} {noun}{ending}", count(n))
}

/// Formats a number of bytes with a readable unit.
pub(crate) fn bytes(n: u64) -> String {
    let units = [(1u64 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(size, _)| n >= *size) {
        Some((size, unit)) => format!("{:.1} {unit}", n as f64 / *size as f64),
        None => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn general_is_printf_g() {
        // Made by C's printf.
        let cases = [
            (0.0, "0"),
            (1.0, "1"),
            (9.905_934_7, "9.90593"),
            (0.123_42, "0.12342"),
            (-0.000_517_573, "-0.000517573"),
            (6.223_18e-5, "6.22318e-05"),
            (123_456.5, "123456"),
            (999_999.5, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (0.000_099_999_4, "9.99994e-05"),
            (0.000_099_999_996, "0.0001"),
            (1e100, "1e+100"),
            (1.5e-300, "1.5e-300"),
            (f64::NAN, "nan"),
        ];
        for (value, text) in cases {
            assert_eq!(general(value, 6), text);
        }
    }

    #[test]
    fn exact_reads_back() {
        for value in [0.1, 1.0 / 3.0, 1e-300, -2.5e-7, 123.0, 1e22, f64::MIN_POSITIVE] {
            assert_eq!(exact(value).parse(), Ok(value));
        }
    }

    #[test]
    fn people_read_these() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([bytes(512), bytes(1536), bytes(3 << 30)], ["512 B", "1.5 KiB", "3.0 GiB"]);
        assert_eq!([plural(1, "variant"), plural(2000, "variant")], ["1 variant", "2,000 variants"]);
        assert_eq!([plural(1, "pass"), plural(0, "pass")], ["1 pass", "0 passes"]);
    }
}
