//! What is known of the variants of a genotype array.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use teatime::{
    Budget, Error, Result,
    store::{Column, LeftOut, Node, Storage, read_attributes},
};

use super::columns::{column, join, required};
use crate::Variant;

/// What a string is that nobody knows, as in VCF.
const UNKNOWN: &str = ".";

/// Names that no variant need have, and further alleles.
const NAMES: LeftOut = LeftOut::Strings { fill: &["", UNKNOWN], from: 0 };

/// Alleles, the first of which is the reference, which is always known.
const ALLELES: LeftOut = LeftOut::Strings { fill: &["", UNKNOWN], from: 1 };

/// Which arrays describe the variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// VCF-Zarr: `variant_*` in the group of this path.
    Vcf(String),
    /// scikit-allel: `variants/*` in the group of this path.
    Allel(String),
    /// Nothing does.
    Plain,
}

impl Layout {
    /// Candidates for the array of sample names, in order.
    pub(super) fn sample_paths(&self) -> Vec<String> {
        match self {
            Self::Vcf(group) => vec![join(group, "sample_id")],
            Self::Allel(group) => {
                let parents = std::iter::successors(Some(&**group), |group| {
                    (!group.is_empty()).then(|| group.rsplit_once('/').map_or("", |(parent, _)| parent))
                });
                parents.map(|group| join(group, "samples")).collect()
            }
            Self::Plain => Vec::new(),
        }
    }
}

/// The variants of one array; its columns are opened when they are first asked for.
#[derive(Debug)]
pub(super) struct VariantTable {
    storage: Arc<dyn Storage>,
    layout: Layout,
    rows: u64,
    kept: Mutex<Kept>,
}

/// What was opened so far; the contigs are the same in both, and count once what is not there.
#[derive(Debug, Default)]
struct Kept {
    contig: Option<Arc<Contig>>,
    columns: Option<Arc<Columns>>,
    /// Positions say that chunks of contigs that were filled held something else.
    goes_back: bool,
}

/// A column of a store of which chunks are not there and were taken for its fill value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilledColumn {
    /// Path of the column within the store.
    pub path: String,
    /// Chunks, and inner chunks of shards, that were filled so far.
    pub chunks: u64,
    /// What they were filled with: the name of a contig, else `.`.
    pub value: String,
    /// Whether the filled chunks might have held something else.
    ///
    /// - Not where all chunks are missing, as in a store of one contig or without names of variants. (Of alternate alleles, which most
    ///   variants have, even then.)
    /// - Not where the indices of contigs, read by [`contigs`](super::GenotypeStore::contigs), never decrease, and the missing chunks come
    ///   before variants of contig 0 that are there: these chunks can only have been of contig 0, and writers leave out such.
    /// - Always where positions decrease among variants that are taken for those of one contig.
    pub doubtful: bool,
}

#[derive(Debug)]
struct Columns {
    contig: Arc<Contig>,
    position: Option<Column>,
    id: Option<Column>,
    alleles: Alleles,
}

#[derive(Debug)]
enum Contig {
    /// Indices into names.
    Index(Column, Vec<Arc<str>>),
    Names(Column),
    Same(Arc<str>),
}

#[derive(Debug)]
enum Alleles {
    /// The reference first.
    Together(Box<Column>),
    Apart(Box<[Option<Column>; 2]>),
}

impl VariantTable {
    pub(super) fn new(storage: &Arc<dyn Storage>, layout: Layout, rows: u64) -> Self {
        Self { storage: Arc::clone(storage), layout, rows, kept: Mutex::default() }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The columns of which chunks were taken for their fill value so far.
    pub(super) fn filled(&self) -> Vec<FilledColumn> {
        let kept = self.kept();
        let contig = match kept.contig.as_deref() {
            Some(Contig::Index(column, names)) => {
                let name = column.fill().and_then(|i| names.get(usize::try_from(i).ok()?));
                Some((column, name.map_or(UNKNOWN, |name| &**name)))
            }
            Some(Contig::Names(column)) => Some((column, UNKNOWN)),
            Some(Contig::Same(_)) | None => None,
        };
        let contig = contig.map(|(column, value)| (column, value, kept.goes_back));
        let columns = kept.columns.as_deref();
        let ids = columns.and_then(|columns| columns.id.as_ref()).map(|column| (column, UNKNOWN, false));
        let alleles = columns.into_iter().flat_map(|columns| columns.alleles.columns());
        // Of the first alternate allele, which most variants have: it is in the first or the second column.
        let alleles = alleles.map(|column| (column, UNKNOWN, column.is_filled_in(0..2)));
        let all = contig.into_iter().chain(ids).chain(alleles).filter(|(column, ..)| column.filled() > 0);
        all.map(|(column, value, doubtful)| FilledColumn {
            path: column.path().to_owned(),
            chunks: column.filled(),
            value: value.to_owned(),
            doubtful: doubtful || column.is_doubtful(),
        })
        .collect()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The variants in `range`, which lies within the rows, within a budget of so many bytes.
    pub(super) fn read(&self, range: Range<u64>, memory: &Budget) -> Result<Vec<Variant>> {
        let columns = {
            let mut kept = self.kept();
            match &kept.columns {
                Some(columns) => Arc::clone(columns),
                None => {
                    let columns = self.open(&mut kept.contig, memory)?;
                    Arc::clone(kept.columns.insert(Arc::new(columns)))
                }
            }
        };
        let contigs = columns.contig.read(range.clone(), &self.storage)?;
        let positions = match &columns.position {
            Some(column) => column.integers(range.clone())?,
            None => range.clone().map(|i| i64::try_from(i).unwrap_or(i64::MAX)).collect(),
        };
        let ids = columns.id.as_ref().map(|column| column.strings(range.clone())).transpose()?;
        let mut ids = ids.map(Vec::into_iter);
        let alleles = columns.alleles.read(range.clone())?;
        let rows = range.zip(contigs.into_iter().zip(positions).zip(alleles));
        rows.map(|(row, ((contig, position), (reference, alternate)))| {
            let position = u64::try_from(position).map_err(|_| {
                Error::store(self.storage.place(""), format!("variant {row} is at position {position}"))
            })?;
            let id = known(ids.as_mut().and_then(Iterator::next).unwrap_or_default());
            Ok(Variant { contig, position, id, reference, alternate })
        })
        .collect()
    }

    /// Gives `f` the contigs in order, and how many variants after each other are on one, within a budget of so many bytes.
    pub(super) fn contigs(&self, memory: &Budget, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        let contig = self.kept_contig(&mut self.kept().contig, memory)?;
        let Some(contig) = contig else { return f(UNKNOWN, self.rows) };
        match &*contig {
            Contig::Same(name) => f(name, self.rows),
            Contig::Names(column) => {
                let done = column.string_runs(f);
                column.forget();
                done
            }
            Contig::Index(column, names) => {
                let mut row = 0;
                let done = column.integer_runs(&mut |index, rows| {
                    f(named(index, row, names, &self.storage)?, rows)?;
                    row += rows;
                    Ok(())
                });
                column.forget();
                let goes_back = done.is_ok() && column.filled() > 0 && self.goes_back(column, memory);
                self.kept().goes_back = goes_back;
                done
            }
        }
    }

    /// The contigs that VCF-Zarr names, and their lengths where it has these, within a budget of so many bytes.
    pub(super) fn named_contigs(&self, memory: &Budget) -> Result<Vec<(String, Option<u64>)>> {
        let contig = self.kept_contig(&mut self.kept().contig, memory)?;
        let (Some(Contig::Index(_, names)), Layout::Vcf(group)) = (contig.as_deref(), &self.layout) else {
            return Ok(Vec::new());
        };
        let path = join(group, "contig_length");
        let lengths = column(&self.storage, &path, LeftOut::Never, memory, names.len() as u64);
        let lengths = lengths.ok().flatten().and_then(|column| column.integers(0..column.rows()).ok());
        let length = |i: usize| u64::try_from(*lengths.as_ref()?.get(i)?).ok().filter(|length| *length > 0);
        Ok(names.iter().enumerate().map(|(i, name)| (name.to_string(), length(i))).collect())
    }

    /// The position of a variant, by a column that is opened for it, within a budget of so many bytes.
    pub(super) fn position(&self, row: u64, memory: &Budget) -> Result<u64> {
        let path = match &self.layout {
            Layout::Vcf(group) => join(group, "variant_position"),
            Layout::Allel(group) => join(group, "variants/POS"),
            Layout::Plain => return Err(Error::store(self.storage.place(""), "has no positions")),
        };
        let positions =
            required(&self.storage, &path, LeftOut::Never, memory, self.rows)?.integers(row..row + 1)?;
        let position = positions.first().and_then(|position| u64::try_from(*position).ok());
        position
            .ok_or_else(|| Error::store(self.storage.place(&path), format!("variant {row} has no position")))
    }

    /// Whether positions decrease among the variants that follow each other on the contig that filled chunks stand for, so that
    /// some may be of other contigs; as well where they cannot be read.
    fn goes_back(&self, contig: &Column, memory: &Budget) -> bool {
        const ROWS: u64 = 1 << 16;
        let Layout::Vcf(group) = &self.layout else { return false };
        let path = join(group, "variant_position");
        let Ok(positions) = required(&self.storage, &path, LeftOut::Never, memory, self.rows) else {
            return true;
        };
        let (mut back, mut row) = (false, 0);
        let read = contig.integer_runs(&mut |index, rows| {
            let end = row + rows;
            let mut last = i64::MIN;
            while row < end && contig.fill() == Some(index) && !back {
                let next = end.min(row + ROWS);
                for position in positions.integers(row..next)? {
                    back |= position < last;
                    last = position;
                }
                row = next;
            }
            row = end;
            Ok(())
        });
        contig.forget();
        back || read.is_err()
    }

    /// The contigs, opened once.
    fn kept_contig(&self, kept: &mut Option<Arc<Contig>>, memory: &Budget) -> Result<Option<Arc<Contig>>> {
        if kept.is_none() {
            *kept = self.contig(memory)?.map(Arc::new);
        }
        Ok(kept.clone())
    }

    /// The contigs; none where a VCF-Zarr store has no such column.
    fn contig(&self, memory: &Budget) -> Result<Option<Contig>> {
        let (storage, rows) = (&self.storage, self.rows);
        match &self.layout {
            Layout::Vcf(group) => {
                let index = join(group, "variant_contig");
                if Node::at(&**storage, &index)? == Node::Absent {
                    return Ok(None);
                }
                let names = match Column::open_in(storage, &join(group, "contig_id"), LeftOut::Never, memory)?
                {
                    Some(names) => names.strings(0..names.rows())?,
                    None => contigs_attribute(&**storage, group)?,
                };
                let names: Vec<Arc<str>> = names.into_iter().map(Arc::from).collect();
                let known = LeftOut::Below(names.len() as u64);
                let index = required(storage, &index, known, memory, rows)?;
                Ok(Some(Contig::Index(index, names)))
            }
            Layout::Allel(group) => {
                let path = join(group, "variants/CHROM");
                let column = column(storage, &path, LeftOut::Never, memory, rows)?;
                let group = group.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(UNKNOWN);
                Ok(Some(column.map_or_else(|| Contig::Same(group.into()), Contig::Names)))
            }
            Layout::Plain => Ok(Some(Contig::Same(UNKNOWN.into()))),
        }
    }

    fn open(&self, kept: &mut Option<Arc<Contig>>, memory: &Budget) -> Result<Columns> {
        let (storage, rows) = (&self.storage, self.rows);
        let required = |path: &str| required(storage, path, LeftOut::Never, memory, rows);
        let optional = |path: &str, left_out| column(storage, path, left_out, memory, rows);
        let no_contig = || Error::store(storage.place(""), "has no array `variant_contig`");
        let contig = self.kept_contig(kept, memory)?.ok_or_else(no_contig)?;
        match &self.layout {
            Layout::Vcf(group) => {
                let at = |name: &str| join(group, name);
                let alleles = optional(&at("variant_allele"), ALLELES)?;
                Ok(Columns {
                    contig,
                    position: Some(required(&at("variant_position"))?),
                    id: optional(&at("variant_id"), NAMES)?,
                    alleles: alleles
                        .map_or_else(Alleles::unknown, |column| Alleles::Together(Box::new(column))),
                })
            }
            Layout::Allel(group) => {
                let at = |name: &str| join(group, &format!("variants/{name}"));
                let alleles = [("REF", LeftOut::Never), ("ALT", NAMES)];
                let [reference, alternate] = alleles.map(|(name, left_out)| optional(&at(name), left_out));
                Ok(Columns {
                    contig,
                    position: Some(required(&at("POS"))?),
                    id: optional(&at("ID"), NAMES)?,
                    alleles: Alleles::Apart(Box::new([reference?, alternate?])),
                })
            }
            Layout::Plain => Ok(Columns { contig, position: None, id: None, alleles: Alleles::unknown() }),
        }
    }
}

impl Contig {
    fn read(&self, range: Range<u64>, storage: &Arc<dyn Storage>) -> Result<Vec<Arc<str>>> {
        match self {
            Self::Same(name) => Ok(range.map(|_| Arc::clone(name)).collect()),
            Self::Names(column) => Ok(column.strings(range)?.into_iter().map(Arc::from).collect()),
            Self::Index(column, names) => column
                .integers(range.clone())?
                .into_iter()
                .zip(range)
                .map(|(index, row)| named(index, row, names, storage).cloned())
                .collect(),
        }
    }
}

/// Names of contigs as an attribute of the group has them, as sgkit wrote them before there was `contig_id`.
fn contigs_attribute(storage: &dyn Storage, group: &str) -> Result<Vec<String>> {
    let attributes = read_attributes(storage, group)?;
    let names = attributes["contigs"].as_array().and_then(|names| {
        names.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>()
    });
    let lacks = "has neither an array `contig_id` nor an attribute `contigs` of names";
    names.ok_or_else(|| Error::store(storage.place(group), lacks))
}

/// The name of a variant's contig.
fn named<'a>(
    index: i64,
    row: u64,
    names: &'a [Arc<str>],
    storage: &Arc<dyn Storage>,
) -> Result<&'a Arc<str>> {
    usize::try_from(index).ok().and_then(|i| names.get(i)).ok_or_else(|| {
        let why = format!("variant {row} is on contig {index} of {}", names.len());
        Error::store(storage.place(""), why)
    })
}

impl Alleles {
    fn unknown() -> Self {
        Self::Apart(Box::new([None, None]))
    }

    fn columns(&self) -> impl Iterator<Item = &Column> {
        let columns = match self {
            Self::Together(column) => [Some(&**column), None],
            Self::Apart(columns) => columns.each_ref().map(Option::as_ref),
        };
        columns.into_iter().flatten()
    }

    /// Reference and alternate alleles.
    fn read(&self, range: Range<u64>) -> Result<Vec<(String, String)>> {
        let rows = range.clone().map(|_| (String::new(), String::new()));
        let mut alleles: Vec<_> = rows.collect();
        match self {
            Self::Together(column) => column.for_each_string(range, |row, column, allele| {
                let (reference, alternate) = &mut alleles[row];
                if column == 0 { keep(reference, allele) } else { append(alternate, allele) }
            })?,
            Self::Apart(columns) => {
                let [reference, alternate] = &**columns;
                if let Some(column) = reference {
                    column.for_each_string(range.clone(), |row, column, allele| {
                        if column == 0 { keep(&mut alleles[row].0, allele) } else { 0 }
                    })?;
                }
                if let Some(column) = alternate {
                    column.for_each_string(range, |row, _, allele| append(&mut alleles[row].1, allele))?;
                }
            }
        }
        Ok(alleles.into_iter().map(|(reference, alternate)| (known(reference), known(alternate))).collect())
    }
}

fn known(name: String) -> String {
    if name.is_empty() { UNKNOWN.to_owned() } else { name }
}

/// Takes over a string; gives its bytes.
fn keep(name: &mut String, text: &str) -> usize {
    text.clone_into(name);
    text.len()
}

/// Adds an alternate allele, unless it only pads the row; gives the bytes.
fn append(alleles: &mut String, allele: &str) -> usize {
    if allele.is_empty() || allele == UNKNOWN {
        return 0;
    }
    if !alleles.is_empty() {
        alleles.push(',');
    }
    alleles.push_str(allele);
    allele.len() + 1
}
