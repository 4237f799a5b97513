//! Reading the table of loadings that `teatime pca --loadings` writes.

use std::{
    fmt::Display,
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use flate2::read::MultiGzDecoder;
use teatime::{Cancel, Error, to_usize};
use teatime_genotype::{Match, MatchBy, ReferenceLoadings, Scaler, VariantIndex};

use crate::{
    failure::Failure,
    pca::{SCALERS, loadings::MAGIC},
};

/// The names of the columns before the loadings.
const NAMES: [&str; 9] = ["contig", "position", "id", "ref", "alt", "counted", "frequency", "mean", "scale"];

/// The maximum length of a line in bytes, so that a file without line breaks is not read into memory whole.
const MAX_LINE: u64 = 16 << 20;

/// The byte order mark with which some editors begin UTF-8 files.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The number of lines between checks for cancellation.
const BATCH: u64 = 4096;

/// The content of the first line. Tables of earlier versions contain only the scaler.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) scaler: Scaler,
    pub(crate) ploidy: Option<u64>,
    /// The number of samples of the reference.
    pub(crate) samples: Option<u64>,
    /// The number of variants of the reference that passed its filters, including variants without variance or calls.
    pub(crate) variants: Option<u64>,
    pub(crate) singular_values: Option<Vec<f64>>,
    /// The number of rows of the table.
    rows: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) header: Header,
    pub(crate) reference: ReferenceLoadings,
    pub(crate) index: VariantIndex,
    /// For each variant, true if its reference allele is counted.
    counts_reference: Vec<bool>,
}

impl Table {
    /// Reads the table, compressed or not, for genotypes of ploidy `ploidy`, whose variants are matched by `by`.
    pub(crate) fn read(path: &Path, ploidy: u64, by: MatchBy, cancel: &Cancel) -> Result<Self, Failure> {
        let mut lines = Lines::open(path)?;
        let header = lines.header()?;
        if let Some(own) = header.ploidy.filter(|own| *own != ploidy) {
            return Err(lines.fail(format!("loadings of ploidy {own}, the stores are of ploidy {ploidy}")));
        }
        let components = lines.components()?;
        if let Some(values) = header.singular_values.as_ref().filter(|values| values.len() != components) {
            let why = format!("{} singular values of {components} components", values.len());
            return Err(lines.fail(why));
        }
        let mut reference = ReferenceLoadings::new(header.scaler, ploidy, components)?;
        let mut index = VariantIndex::new(by);
        if let Some(rows) = header.rows {
            reference.reserve(rows).map_err(|_| lines.fail(format!("no memory for {rows} variants")))?;
        }
        let (mut numbers, mut counts_reference) = (vec![0.0; components], Vec::new());
        while let Some(line) = lines.next()? {
            let row = Row::parse(&line, &mut numbers)
                .and_then(|row| row.check(header.scaler, ploidy).map(|()| row))
                .map_err(|why| lines.fail(why))?;
            let pushed = reference.push(row.frequency, row.mean, row.scale, &numbers);
            pushed.map_err(|error| match error {
                Error::Argument { name, why, .. } => lines.fail(format!("{name}: {why}")),
                error => error.into(),
            })?;
            index.push((row.contig, row.position, row.id), row.other, row.counted)?;
            counts_reference.push(row.counts_reference);
            if lines.number.is_multiple_of(BATCH) {
                cancel.check()?;
            }
        }
        match header.rows {
            Some(rows) if rows != reference.len() => {
                Err(lines.fail(format!("the table ends after {} of {rows} variants", reference.len())))
            }
            _ if reference.is_empty() => Err(lines.fail("the table has no variant")),
            _ => Ok(Self { header, reference, index, counts_reference }),
        }
    }

    /// Returns the matches of variants at which all samples are homozygous reference.
    pub(crate) fn as_reference(&self, variants: &[u32]) -> Vec<Match> {
        let homozygous = |&row: &u32| {
            if self.counts_reference[to_usize(row.into())] { Match::Swapped(row) } else { Match::Same(row) }
        };
        variants.iter().map(homozygous).collect()
    }
}

/// A reader of the lines of a file, with the current line number.
struct Lines<'a> {
    path: &'a Path,
    reader: Box<dyn BufRead>,
    /// The number of the line read last, from 1.
    number: u64,
}

impl<'a> Lines<'a> {
    /// Opens a file and checks that it starts like a table of loadings.
    fn open(path: &'a Path) -> Result<Self, Failure> {
        let io = Failure::io(path);
        // This check comes first: opening a named pipe waits for a writer.
        let metadata = fs::metadata(path).map_err(&io)?;
        if !metadata.is_file() {
            let what = if metadata.is_dir() { "is a folder" } else { "is not a file" };
            let why = format!("{what}; --loadings takes the file loadings.tsv.gz of a PCA");
            return Err(Failure::Error(format!("{}: {why}", path.display())));
        }
        let mut file = BufReader::new(fs::File::open(path).map_err(&io)?);
        let compressed = file.fill_buf().map_err(&io)?.starts_with(&[0x1f, 0x8b]);
        let mut reader: Box<dyn BufRead> =
            if compressed { Box::new(BufReader::new(MultiGzDecoder::new(file))) } else { Box::new(file) };
        // This check comes before lines are read: a binary file may have no line end.
        let mut magic = Vec::new();
        if reader.fill_buf().map_err(&io)?.starts_with(BYTE_ORDER_MARK) {
            reader.consume(BYTE_ORDER_MARK.len());
        }
        reader.by_ref().take(MAGIC.len() as u64).read_to_end(&mut magic).map_err(&io)?;
        if magic != MAGIC.as_bytes() {
            let why = "is no table of loadings as `teatime pca --loadings` writes it";
            return Err(Failure::Error(format!("{}: {why}: it does not start with {MAGIC}", path.display())));
        }
        Ok(Self { path, reader, number: 0 })
    }

    fn fail(&self, why: impl Display) -> Failure {
        Failure::Error(format!("{}: line {}: {why}", self.path.display(), self.number))
    }

    /// Returns the next line without its line end. A last line without one is an error, since it may be truncated.
    fn next(&mut self) -> Result<Option<String>, Failure> {
        let mut line = Vec::new();
        self.number += 1;
        let read = self.reader.by_ref().take(MAX_LINE).read_until(b'\n', &mut line);
        read.map_err(|error| self.fail(error))?;
        if line.is_empty() {
            self.number -= 1;
            return Ok(None);
        }
        if line.pop() != Some(b'\n') {
            let long = line.len() as u64 + 1 == MAX_LINE;
            let why = if long { "it has more than 16 MiB" } else { "the file ends within the line" };
            return Err(self.fail(why));
        }
        String::from_utf8(line).map(Some).map_err(|_| self.fail("it is not UTF-8"))
    }

    fn required(&mut self) -> Result<String, Failure> {
        self.next()?.ok_or_else(|| self.fail("the file ends here"))
    }

    fn header(&mut self) -> Result<Header, Failure> {
        let line = self.required()?;
        let value = |key: &str| {
            line.split('\t').find_map(|field| field.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')))
        };
        match value("version") {
            Some("1") => {}
            version => {
                let version = version.unwrap_or("none");
                return Err(self.fail(format!("version {version} of the table; this program reads 1")));
            }
        }
        let name = value("scaler").unwrap_or_default();
        let scaler = SCALERS.iter().copied().find(|scaler| scaler.name() == name);
        let scaler = scaler.ok_or_else(|| self.fail(format!("`{name}` is no scaler")))?;
        let whole = |key: &str| {
            let parse = |text: &str| {
                text.parse::<u64>().map_err(|_| self.fail(format!("{key}={text} is no whole number")))
            };
            value(key).map(parse).transpose()
        };
        let values = |text: &str| {
            let one = |text: &str| match text.parse::<f64>() {
                Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
                _ => Err(self.fail(format!("`{text}` is no singular value"))),
            };
            text.split(',').map(one).collect::<Result<Vec<_>, _>>()
        };
        Ok(Header {
            scaler,
            ploidy: whole("ploidy")?,
            samples: whole("samples")?,
            variants: whole("variants")?,
            singular_values: value("singular_values").map(values).transpose()?,
            rows: whole("rows")?,
        })
    }

    /// Returns the number of components, given by the names of the columns.
    fn components(&mut self) -> Result<usize, Failure> {
        let line = self.required()?;
        let names: Vec<&str> = line.split('\t').collect();
        let components = names.len().saturating_sub(NAMES.len());
        let expected = (1..=components).map(|i| format!("PC{i}"));
        let known = names.starts_with(&NAMES) && expected.eq(names[NAMES.len()..].iter().copied());
        if components == 0 || !known {
            return Err(self.fail(format!("the columns are not {}, PC1, ...", NAMES.join(", "))));
        }
        Ok(components)
    }
}

/// The fields of a line except the loadings.
struct Row<'a> {
    contig: &'a str,
    position: u64,
    id: &'a str,
    /// The counted alleles; `other` are the alleles that are not counted.
    counted: &'a str,
    other: &'a str,
    counts_reference: bool,
    frequency: f64,
    mean: f64,
    scale: f64,
}

impl<'a> Row<'a> {
    fn parse(line: &'a str, loadings: &mut [f64]) -> Result<Self, String> {
        let columns = line.split('\t').count();
        let expected = NAMES.len() + loadings.len();
        if columns != expected {
            return Err(format!("{columns} columns instead of {expected}"));
        }
        let mut fields = line.split('\t');
        let mut text = || fields.next().unwrap_or_default();
        let [contig, position, id, reference, alternate, counted] = [(); 6].map(|()| text());
        let position =
            position.parse().map_err(|_| format!("the position `{position}` is no whole number"))?;
        let other = match counted {
            _ if counted == alternate => reference,
            _ if counted == reference => alternate,
            _ => {
                return Err(format!("counts `{counted}`, which is neither `{reference}` nor `{alternate}`"));
            }
        };
        let mut number = |name: &dyn Display| {
            let text = text();
            text.parse::<f64>().map_err(|_| format!("{name}: `{text}` is no number"))
        };
        let [frequency, mean, scale] = [number(&"frequency")?, number(&"mean")?, number(&"scale")?];
        for (i, value) in loadings.iter_mut().enumerate() {
            *value = number(&format_args!("PC{}", i + 1))?;
        }
        let counts_reference = counted != alternate;
        Ok(Self { contig, position, id, counted, other, counts_reference, frequency, mean, scale })
    }

    /// Refuses a mean that does not fit the frequency and ploidy: tables of earlier versions do not contain their ploidy.
    fn check(&self, scaler: Scaler, ploidy: u64) -> Result<(), String> {
        let expected = if scaler == Scaler::None { 0.0 } else { ploidy as f64 * self.frequency };
        // NaN has an error message of its own later.
        if (self.mean - expected).abs() > 1e-9 * expected.abs().max(1.0) {
            let Self { mean, frequency, .. } = self;
            return Err(format!(
                "the mean {mean} is not that of the frequency {frequency} at ploidy {ploidy}, which the stores have"
            ));
        }
        Ok(())
    }
}
