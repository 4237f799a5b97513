//! Sources with the values of constants in them, and with line numbers for the log of an error.

use std::fmt::Write as _;

use super::Spec;

/// A source with a spec's values in place of the defaults. A constant's line begins with `declaration`, in which `NAME`
/// is its name, and ends after the value with `end`.
///
/// # Errors
/// Which constant is not declared exactly once.
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

/// A source with the numbers of its lines, for the log of an error.
pub(crate) fn numbered(source: &str) -> String {
    source.lines().enumerate().fold(String::new(), |mut text, (i, line)| {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{:4} {line}", i + 1);
        text
    })
}
