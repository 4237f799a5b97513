//! Sources with the values of constants in them, and their lines around a place for the log of an error.

use std::fmt::Write as _;

use super::Spec;

/// A source with a spec's values in place of the defaults. A constant's line begins with `declaration`, in which `NAME`
/// is its name, and ends after the value with `end`.
///
/// # Errors
/// A message that names a constant which is not declared exactly once.
pub(crate) fn specialize(
    source: &str,
    spec: Spec<'_>,
    declaration: &str,
    end: &str,
) -> Result<String, String> {
    let mut lines: Vec<String> = source.lines().map(str::to_owned).collect();
    for (name, value) in spec {
        let declaration = declaration.replace("NAME", name);
        let mut places = lines.iter_mut().filter(|line| line.starts_with(&declaration));
        let (Some(line), None) = (places.next(), places.next()) else {
            return Err(format!("constant `{name}` is not declared exactly once"));
        };
        *line = format!("{declaration}{value}{end}");
    }
    Ok(lines.join("\n") + "\n")
}

/// The lines of a source around the first place that a compiler's log names, with their numbers: a place is `name:LINE` or
/// `name(LINE`.
pub(crate) fn numbered(source: &str, log: &str, name: &str) -> String {
    let place = log.split(name).skip(1).find_map(|rest| {
        let rest = rest.strip_prefix([':', '('])?;
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse::<usize>().ok()
    });
    let Some(place) = place else { return String::new() };
    let lines = source.lines().enumerate().map(|(i, line)| (i + 1, line));
    lines.filter(|(number, _)| number.abs_diff(place) <= AROUND).fold(
        String::new(),
        |mut text, (number, line)| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{number:4} {line}");
            text
        },
    )
}

/// Lines before and behind a place.
const AROUND: usize = 2;
