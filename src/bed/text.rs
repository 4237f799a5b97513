//! The tables of samples and variants beside a .bed: text in columns, divided by tabs or spaces.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read, Seek, SeekFrom},
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{Error, Result, genotype::Variant};

/// Most bytes of a line, so that a file without line breaks is not read into memory whole.
const MAX_LINE: u64 = 16 << 20;

/// Variants between two places of a .bim that are remembered.
const STEP: u64 = 1024;

const FAM: [&str; 6] = ["family", "sample", "father", "mother", "sex", "phenotype"];
const BIM: [&str; 6] = ["chromosome", "variant", "centimorgans", "position", "A1", "A2"];

/// A sample of a .fam, by the names it has there.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Sample {
    /// Its family (FID), `0` where PLINK knows none.
    pub family: String,
    /// Its own name (IID).
    pub id: String,
}

/// Opens a file that has to be one.
pub(super) fn open(path: &Path) -> Result<File> {
    let fail = |source| Error::Io { path: path.display().to_string().into(), source };
    // Before it is opened: opening a named pipe waits for a writer.
    if !std::fs::metadata(path).map_err(fail)?.is_file() {
        return Err(Error::store(path.display(), "is not a file"));
    }
    File::open(path).map_err(fail)
}

/// Reads a .fam: its samples in order, the same name as often as it occurs. Further columns are ignored.
///
/// # Errors
/// [`Error::Io`] for a file that cannot be read; [`Error::Store`] with the number of the line for text that is no .fam.
pub(super) fn fam(path: &Path) -> Result<Vec<Sample>> {
    let mut lines = Lines::open(path)?;
    let mut samples = Vec::new();
    while lines.next()? {
        let [family, id, ..] = lines.columns(".fam", &FAM)?;
        samples.push(Sample { family: family.to_owned(), id: id.to_owned() });
    }
    Ok(samples)
}

/// A .bim: checked when it is opened, read again for the variants that are asked for.
#[derive(Debug)]
pub(super) struct Bim {
    path: PathBuf,
    variants: u64,
    /// Where the lines 0, `STEP`, 2 `STEP`, ... start.
    starts: Vec<u64>,
}

impl Bim {
    /// Reads the file once and keeps 8 bytes for each [`STEP`] variants.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that cannot be read; [`Error::Store`] with the number of the line for text that is no
    /// .bim, and for a negative position, by which PLINK means that the variant is to be left out.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let mut lines = Lines::open(path)?;
        let (mut variants, mut starts) = (0, Vec::new());
        while lines.next()? {
            if variants % STEP == 0 {
                starts.push(lines.start);
            }
            let [_, _, _, position, ..] = lines.columns(".bim", &BIM)?;
            lines.position(position)?;
            variants += 1;
        }
        Ok(Self { path: path.to_path_buf(), variants, starts })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) const fn variants(&self) -> u64 {
        self.variants
    }

    /// The variants in `range`, which is within the file. A1 is the alternate allele, A2 the reference, and `0` an
    /// unknown allele, as plink2 has it.
    ///
    /// # Errors
    /// As [`open`](Self::open), since the file may have changed.
    pub(super) fn read(&self, range: Range<u64>) -> Result<Vec<Variant>> {
        let mut lines = Lines::open(&self.path)?;
        let step = range.start / STEP;
        if let Some(start) = self.starts.get(usize::try_from(step).unwrap_or(usize::MAX)) {
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
            // Most lines have the contig of the line before.
            let contig = match variants.last() {
                Some(last) if &*last.contig == contig => Arc::clone(&last.contig),
                _ => contig.into(),
            };
            let allele = |name: &str| if name == "0" { ".".to_owned() } else { name.to_owned() };
            variants.push(Variant {
                contig,
                position: lines.position(position)?,
                id: id.to_owned(),
                reference: allele(a2),
                alternate: allele(a1),
            });
        }
        Ok(variants)
    }
}

/// Lines of a file, one at a time, and where they are.
struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    line: Vec<u8>,
    /// Number of the line, from 1.
    number: u64,
    /// Bytes of the file before the line, and up to its end.
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
        self.reader.seek(SeekFrom::Start(start)).map_err(|source| self.io(source))?;
        (self.end, self.number) = (start, number);
        Ok(())
    }

    /// Reads the next line; whether there is one. Empty lines at the end of the file are none.
    fn next(&mut self) -> Result<bool> {
        let mut empty = 0;
        loop {
            self.line.clear();
            let read = (&mut self.reader).take(MAX_LINE).read_until(b'\n', &mut self.line);
            let read = read.map_err(|source| self.io(source))? as u64;
            if read == 0 {
                self.number += empty;
                return Ok(false);
            }
            (self.start, self.end) = (self.end, self.end + read);
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

    /// The first columns of the line, which have these names; further ones are ignored.
    fn columns<const N: usize>(&self, file: &str, names: &[&str; N]) -> Result<[&str; N]> {
        let text = std::str::from_utf8(&self.line).map_err(|_| self.refuse("is not UTF-8"))?;
        let mut columns = [""; N];
        let mut found = 0;
        for (column, text) in columns.iter_mut().zip(text.split_ascii_whitespace()) {
            *column = text;
            found += 1;
        }
        if columns[0].starts_with('#') {
            let why = format!("starts with `#`; a {file} has no header (and .pvar and .psam are not read)");
            return Err(self.refuse(why));
        }
        if found < N {
            let plural = if found == 1 { "" } else { "s" };
            let why = format!("has {found} column{plural}; a {file} has {N}: {}", names.join(", "));
            return Err(self.refuse(why));
        }
        Ok(columns)
    }

    fn position(&self, text: &str) -> Result<u64> {
        text.parse().map_err(|_| match text.parse::<i64>() {
            Ok(position) => self.refuse(format!(
                "has the position {position}, by which PLINK means to leave the variant out; only it can"
            )),
            Err(_) => {
                self.refuse(format!("has the position {:?}", text.chars().take(40).collect::<String>()))
            }
        })
    }

    fn refuse(&self, why: impl std::fmt::Display) -> Error {
        Error::store(self.path.display(), format_args!("line {} {why}", self.number))
    }

    fn io(&self, source: std::io::Error) -> Error {
        Error::Io { path: self.path.display().to_string().into(), source }
    }
}
