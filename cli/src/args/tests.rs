//! Tests that the arguments are consistent and as the documents describe them.

use std::{fs, path::Path};

use clap::{CommandFactory, Parser};

use super::*;
use crate::Cli;

#[test]
fn arguments_are_consistent() {
    Cli::command().debug_assert();
}

/// Parses the commands that documents show: in the README, in the pages under `docs`, and in `--help`.
#[test]
fn commands_of_the_documents_are_understood() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let pages = fs::read_dir(root.join("docs")).unwrap().map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|ending| ending == "md"));
    let mut texts: Vec<String> =
        pages.chain([root.join("README.md")]).map(|page| fs::read_to_string(page).unwrap()).collect();
    let helps = Cli::command();
    texts.extend(
        helps.get_subcommands().filter_map(|command| Some(command.get_after_long_help()?.to_string())),
    );
    let mut tried = 0;
    for text in texts.iter().map(|text| text.replace("\\\n", " ")) {
        for line in text.lines().map(str::trim_start).filter(|line| line.starts_with("teatime ")) {
            let command = line.split(" #").next().unwrap_or_default();
            if let Err(error) = Cli::try_parse_from(command.split_whitespace()) {
                // clap reports `--help` as an error.
                assert_eq!(error.exit_code(), 0, "{command}: {error}");
            }
            tried += 1;
        }
    }
    assert!(tried > 50, "{tried} commands were found");
}

#[test]
fn sizes() {
    let cases = [("512M", 512 << 20), ("2G", 2 << 30), ("1GiB", 1 << 30), ("2GB", 2_000_000_000), ("77", 77)];
    for (text, bytes) in cases {
        assert_eq!(size(text), Ok(bytes), "{text}");
    }
    assert_eq!(size("1.5k"), Ok(1536));
    for text in ["", "G", "1X", "-1M", "1MM", "1GiBs", "0", "1e3", "9999999T", "1..2M"] {
        assert!(size(text).is_err(), "{text}");
    }
}
