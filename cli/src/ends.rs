//! Checks the tables beside a .bed by the ends of its rows: its length does not tell up to three lines too few or too many
//! where four samples share a byte.

use std::{fs, io::Read};

use teatime::to_usize;
use teatime_genotype::bed::BedFile;

use crate::{failure::Failure, text};

const HEADER: usize = 3;

/// Bytes of rows read at once.
const PIECE: u64 = 1 << 20;

/// Most bytes of rows that are read.
const MOST: u64 = 64 << 20;

/// Refuses a .bed with calls where its rows are filled up with zeros: where the .fam lacks up to three lines (of a
/// sample-major file, the .bim), the length of the .bed is right, but names are those of other samples. The first rows
/// show it, since few variants have only copies of A1, whose code is 0.
///
/// Gives a warning where the last samples have no other code, as they do where the .fam has lines too many.
pub(crate) fn check(bed: &BedFile) -> Result<Option<String>, Failure> {
    let io = Failure::io(bed.path());
    let file = fs::File::open(bed.path()).map_err(&io)?;
    let mut bytes = Vec::new();
    (&file).take(HEADER as u64).read_to_end(&mut bytes).map_err(&io)?;
    let by_variant = bytes.last() == Some(&1);
    let (rows, columns) =
        if by_variant { (bed.n_variants(), bed.n_samples()) } else { (bed.n_samples(), bed.n_variants()) };
    let (width, used) = (columns.div_ceil(4), (columns + 3) % 4 + 1);
    let piece = width * (PIECE / width).clamp(1, rows);
    // Fields of the last byte that some row has calls in.
    let (mut read, mut seen) = (0, 0u8);
    while read == 0 || by_variant && used > 1 && seen >> (2 * (used - 1)) == 0 && read < MOST {
        bytes.clear();
        (&file).take(piece).read_to_end(&mut bytes).map_err(&io)?;
        let row = to_usize(width);
        let mut ends = bytes.chunks(row).map(|row| row[row.len() - 1]).inspect(|end| seen |= end);
        // All four fields of a full byte are used.
        if let Some(at) = ends.position(|end| u32::from(end) >> (2 * used) != 0) {
            return Err(calls_behind(bed, by_variant, read / width + at as u64 + 1, columns));
        }
        if bytes.is_empty() {
            break;
        }
        read += bytes.len() as u64;
    }
    // The first sample of the last byte is there, or the rows would be a byte shorter.
    let empty = (1..used).rev().take_while(|field| by_variant && (seen >> (2 * field)) & 3 == 0).count();
    Ok((empty > 0).then(|| no_calls(bed, empty, read / width)))
}

fn calls_behind(bed: &BedFile, by_variant: bool, row: u64, columns: u64) -> Failure {
    let columns = text::count(columns);
    let (what, kind, table) =
        if by_variant { ("variant", "samples", "fam") } else { ("sample", "variants", "bim") };
    let (path, table) = (bed.path().display(), bed.path().with_extension(table));
    let table = table.display();
    Failure::Error(format!(
        "{path}: {what} {row} has calls after the {columns} {kind} of {table}, where a .bed has zeros: {table} lacks \
         lines or is of other files"
    ))
}

/// Says that all calls of so many samples at the end are two copies of A1.
fn no_calls(bed: &BedFile, samples: usize, variants: u64) -> String {
    let names = &bed.samples()[bed.samples().len() - samples..];
    let names: Vec<_> = names.iter().map(|sample| format!("{} {}", sample.family, sample.id)).collect();
    let (last, have) =
        if samples == 1 { ("sample".to_owned(), "has") } else { (format!("{samples} samples"), "have") };
    let (variants, fam) = (text::plural(variants, "variant"), bed.path().with_extension("fam"));
    format!(
        "the last {last} of {}, {}, {have} two copies of A1 in each of the first {variants}, as where a .fam has lines too \
         many",
        fam.display(),
        text::few(&names)
    )
}
