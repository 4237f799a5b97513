//! Sources with values of constants inserted, and excerpts of sources for compiler logs.

use std::fmt::Write as _;

use super::Spec;

/// Returns a source with a spec's values in place of the defaults. A constant's line begins with `declaration`, in which `NAME` stands for its
/// name, and ends with `end` after the value. Fails with a message that names a constant without exactly one declaration.
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

/// Returns numbered lines of a source around the first position in a compiler's log. A position has the form `name:LINE` or `name(LINE`.
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

/// The number of lines shown before and after a position.
const AROUND: usize = 2;
