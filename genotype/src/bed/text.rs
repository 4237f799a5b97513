//! The tables of samples and variants that belong to a .bed: text in columns, separated by tabs or spaces.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use teatime::{Error, Result};

use crate::{Variant, names::Names, to_usize};

/// The maximum number of bytes of a line, so that a file without line breaks is not read into memory whole.
const MAX_LINE: u64 = 16 << 20;

/// The byte order mark with which some editors begin a UTF-8 file.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The number of variants between two lines of a .bim whose starts are kept.
const STEP: u64 = 1024;

const FAM: [&str; 6] = ["family", "sample", "father", "mother", "sex", "phenotype"];
const BIM: [&str; 6] = ["chromosome", "variant", "centimorgans", "position", "A1", "A2"];

/// A sample of a .fam, with the names that the .fam gives it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// The family of the sample (FID), `0` if PLINK knows none.
    pub family: String,
    /// The name of the sample itself (IID).
    pub id: String,
}

/// Opens a file, and refuses anything else, such as a folder or a pipe.
pub(crate) fn open(path: &Path) -> Result<File> {
    let fail = |source| Error::io(path.display(), source);
    // This is checked before opening, since opening a named pipe waits for a writer.
    if !std::fs::metadata(path).map_err(fail)?.is_file() {
        return Err(Error::store(path.display(), "is not a file"));
    }
    File::open(path).map_err(fail)
}

/// Reads a .fam: returns its samples in order, with repeated names kept. Columns after the sixth are ignored.
pub(super) fn fam(path: &Path) -> Result<Vec<Sample>> {
    let mut lines = Lines::open(path)?;
    let mut samples = Vec::new();
    while lines.next()? {
        let [family, id, ..] = lines.columns(".fam", &FAM)?;
        samples.push(Sample { family: family.to_owned(), id: id.to_owned() });
    }
    Ok(samples)
}

/// A .bim, which is checked when it is opened, and read again for the variants that are asked for.
#[derive(Debug)]
pub(super) struct Bim {
    pub(super) path: PathBuf,
    pub(super) variants: u64,
    /// The byte offsets at which the lines 0, `STEP`, 2 `STEP`, ... start.
    starts: Vec<u64>,
    contigs: Contigs,
    /// A message about the first position that is not a number. It is an error only for callers that need positions.
    no_position: Option<String>,
}

#[derive(Debug, Default)]
struct Contigs {
    names: Names,
    /// For each run, the index of the contig's name and the number of consecutive variants on that contig.
    runs: Vec<(u32, u64)>,
}

impl Contigs {
    fn push(&mut self, name: &str) {
        if let Some((number, variants)) = self.runs.last_mut()
            && *self.names.names[*number as usize] == *name
        {
            *variants += 1;
            return;
        }
        self.runs.push((self.names.number(name), 1));
    }
}

impl Bim {
    /// Reads the file once. Keeps 8 bytes for each [`STEP`] variants, and 16 for each run of variants on one contig.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut lines = Lines::open(path)?;
        let (mut variants, mut starts, mut contigs) = (0, Vec::new(), Contigs::default());
        let mut no_position = None;
        while lines.next()? {
            if variants % STEP == 0 {
                starts.push(lines.start);
            }
            let [contig, _, _, position, ..] = lines.columns(".bim", &BIM)?;
            if position.parse::<u64>().is_err() {
                if let Ok(position) = position.parse::<i64>() {
                    return Err(lines.refuse(format!(
                        "has the position {position}, by which PLINK means to leave the variant out; only it can"
                    )));
                }
                no_position.get_or_insert_with(|| lines.no_position(position));
            }
            contigs.push(contig);
            variants += 1;
        }
        Ok(Self { path: path.to_path_buf(), variants, starts, contigs, no_position })
    }

    /// Returns the contigs of the variants in order, each with the number of consecutive variants on it.
    pub(super) fn contigs(&self) -> impl Iterator<Item = (&str, u64)> {
        let Contigs { names, runs } = &self.contigs;
        runs.iter().map(|(number, variants)| (&*names.names[*number as usize], *variants))
    }

    /// Reads the variants in `range`, which is within the file; without `positions`, these are 0.
    pub(super) fn read(&self, range: Range<u64>, positions: bool) -> Result<Vec<Variant>> {
        if let (Some(why), true) = (&self.no_position, positions) {
            return Err(Error::store(self.path.display(), why));
        }
        let mut lines = Lines::open(&self.path)?;
        let step = range.start / STEP;
        if let Some(start) = self.starts.get(to_usize(step)) {
            lines.seek(*start, step * STEP)?;
        }
        let mut variants: Vec<Variant> = Vec::new();
        while lines.number < range.end {
            if !lines.next()? {
                let why = format!("ends after line {}; it had {} lines", lines.number, self.variants);
                return Err(Error::store(self.path.display(), why));
            }
            if lines.number <= range.start {
                continue;
            }
            let [contig, id, _, position, a1, a2] = lines.columns(".bim", &BIM)?;
            // Most lines have the same contig as the previous line.
            let contig = match variants.last() {
                Some(last) if &*last.contig == contig => Arc::clone(&last.contig),
                _ => contig.into(),
            };
            let allele = |name: &str| if name == "0" { ".".to_owned() } else { name.to_owned() };
            let no_position = |_| Error::store(self.path.display(), lines.no_position(position));
            variants.push(Variant {
                contig,
                position: if positions { position.parse().map_err(no_position)? } else { 0 },
                id: id.to_owned(),
                reference: allele(a2),
                alternate: allele(a1),
            });
        }
        Ok(variants)
    }
}

/// A reader of the lines of a file, which knows the number and the place of the line.
struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    line: Vec<u8>,
    /// The number of the line, counted from 1.
    number: u64,
    /// The number of bytes of the file before the line, and up to its end.
    start: u64,
    end: u64,
}

impl<'a> Lines<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let reader = BufReader::with_capacity(1 << 18, open(path)?);
        Ok(Self { path, reader, line: Vec::new(), number: 0, start: 0, end: 0 })
    }

    /// Continues at byte `start`, where the line after line `number` starts.
    fn seek(&mut self, start: u64, number: u64) -> Result<()> {
        self.reader.seek(SeekFrom::Start(start)).map_err(|source| Error::io(self.path.display(), source))?;
        (self.end, self.number) = (start, number);
        Ok(())
    }

    /// Reads the next line; returns false if there is none. Empty lines at the end of the file do not count as lines.
    fn next(&mut self) -> Result<bool> {
        let mut empty = 0;
        loop {
            self.line.clear();
            let read = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut self.line);
            let read = read.map_err(|source| Error::io(self.path.display(), source))? as u64;
            if read == 0 {
                self.number += empty;
                return Ok(false);
            }
            (self.start, self.end) = (self.end, self.end + read);
            if self.start == 0 && self.line.starts_with(BYTE_ORDER_MARK) {
                self.line.drain(..BYTE_ORDER_MARK.len());
            }
            if self.line.trim_ascii().is_empty() && read < MAX_LINE {
                empty += 1;
                continue;
            }
            self.number += 1;
            return match (empty, read) {
                (1.., _) => Err(self.refuse("is empty")),
                (_, MAX_LINE) => Err(self.refuse(format!("has {MAX_LINE} bytes or more"))),
                _ => Ok(true),
            };
        }
    }

    /// Returns the first columns of the line, one for each of `names`; further columns are ignored.
    fn columns<const N: usize>(&self, file: &str, names: &[&str; N]) -> Result<[&str; N]> {
        let text = std::str::from_utf8(&self.line).map_err(|_| self.refuse("is not UTF-8"))?;
        let mut columns = [""; N];
        let mut column_count = 0;
        for (column, text) in columns.iter_mut().zip(text.split_ascii_whitespace()) {
            *column = text;
            column_count += 1;
        }
        if columns[0].starts_with('#') {
            let why = format!("starts with `#`; a {file} has no header (and .pvar and .psam are not read)");
            return Err(self.refuse(why));
        }
        if column_count < N {
            let plural = if column_count == 1 { "" } else { "s" };
            let why = format!("has {column_count} column{plural}; a {file} has {N}: {}", names.join(", "));
            return Err(self.refuse(why));
        }
        Ok(columns)
    }

    fn no_position(&self, text: &str) -> String {
        let start: String = text.chars().take(40).collect();
        format!("line {} has the position {start:?}, which is no number", self.number)
    }

    fn refuse(&self, why: impl std::fmt::Display) -> Error {
        Error::store(self.path.display(), format_args!("line {} {why}", self.number))
    }
}
