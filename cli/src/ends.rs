//! Checks the .bim and .fam of a .bed by the last bytes of its rows, since up to three wrong lines may not change its length.

use std::{fs, io::Read};

use teatime::to_usize;
use teatime_genotype::{VariantSource, bed::BedFile};

use crate::{failure::Failure, text};

const HEADER: usize = 3;

/// The number of bytes that are read at once.
const PIECE: u64 = 1 << 20;

/// The maximum number of bytes that are read.
const MOST: u64 = 64 << 20;

/// Refuses a .bed with calls in the padding bits of its rows, which have to be zero. If the .fam lacks up to three lines (in a sample-major
/// file, the .bim), the .bed still has the right length, but sample names are wrong. The first rows show such calls, since few variants have
/// only copies of A1, whose code is 0.
///
/// Returns a warning if all calls of the last samples have code 0, as they have if the .fam has too many lines.
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
    // The bitwise or of the rows' last bytes: two bits for each of up to four samples.
    let (mut read, mut seen) = (0, 0u8);
    while read == 0 || by_variant && used > 1 && seen >> (2 * (used - 1)) == 0 && read < MOST {
        bytes.clear();
        (&file).take(piece).read_to_end(&mut bytes).map_err(&io)?;
        let row = to_usize(width);
        let mut ends = bytes.chunks(row).map(|row| row[row.len() - 1]).inspect(|end| seen |= end);
        // In a full byte, all four fields are used and no bits are left to check.
        if let Some(at) = ends.position(|end| u32::from(end) >> (2 * used) != 0) {
            return Err(calls_behind(bed, by_variant, read / width + at as u64 + 1, columns));
        }
        if bytes.is_empty() {
            break;
        }
        read += bytes.len() as u64;
    }
    // The first sample of the last byte exists: without it, the rows would be a byte shorter.
    let empty = (1..used).rev().take_while(|field| by_variant && (seen >> (2 * field)) & 3 == 0).count();
    Ok((empty > 0).then(|| no_calls(bed, empty, read / width)))
}

fn calls_behind(bed: &BedFile, by_variant: bool, row: u64, columns: u64) -> Failure {
    let columns = text::count(columns);
    let (what, kind, table) = match by_variant {
        true => ("variant", "samples", bed.fam()),
        false => ("sample", "variants", bed.bim()),
    };
    let (path, table) = (bed.path().display(), table.display());
    Failure::Error(format!(
        "{path}: {what} {row} has calls after the {columns} {kind} of {table}, where a .bed has zeros: {table} lacks \
         lines or is of other files"
    ))
}

/// Says that all calls of the last `samples` samples are two copies of A1.
fn no_calls(bed: &BedFile, samples: usize, variants: u64) -> String {
    let names = &bed.samples()[bed.samples().len() - samples..];
    let names: Vec<_> = names.iter().map(|sample| format!("{} {}", sample.family, sample.id)).collect();
    let (last, have) =
        if samples == 1 { ("sample".to_owned(), "has") } else { (format!("{samples} samples"), "have") };
    let (variants, fam, names) = (text::plural(variants, "variant"), bed.fam().display(), text::few(&names));
    let why = "as where a .fam has lines too many";
    format!(
        "the last {last} of {fam}, {names}, {have} two copies of A1 in each of the first {variants}, {why}"
    )
}
