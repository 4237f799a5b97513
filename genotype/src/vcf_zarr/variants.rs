//! The variants of a genotype array, read from the columns that describe them.

use std::{
    borrow::Cow,
    cell::Cell,
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use teatime::{
    Budget, Error, Result,
    store::{Column, Node, Storage, join, read_attributes},
};

use super::columns::{ALLELES, NAMES, NEVER, UNKNOWN, column, is_unknown, required};
use crate::Variant;

/// The layout of the arrays that describe the variants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// VCF-Zarr: `variant_*` in the group of this path.
    Vcf(String),
    /// scikit-allel: `variants/*` in the group of this path.
    Allel(String),
    Plain,
}

impl Layout {
    /// Returns the paths where the array of sample names may be, in order.
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

/// The variants of one array, whose columns are read on demand.
#[derive(Debug)]
pub(super) struct VariantTable {
    storage: Arc<dyn Storage>,
    pub(super) layout: Layout,
    rows: u64,
    kept: Mutex<KeptColumns>,
}

#[derive(Debug, Default)]
struct KeptColumns {
    /// The columns that the next range of variants needs, kept until the last variant is read.
    columns: Option<Arc<Columns>>,
    /// The doubtful columns among those that were read so far.
    doubtful: Vec<DoubtfulColumn>,
}

/// A column of a store with missing chunks that were taken to hold the fill value, though they might have held something else.
///
/// - A column with all chunks missing is not doubtful, as in a store of one contig or without names
///   of variants. (Alternate alleles are the exception, since most variants have them.)
/// - Indices of contigs that never decrease are not doubtful if all missing chunks come before existing
///   variants of contig 0: these chunks can only have held contig 0, and writers leave out such chunks.
/// - Indices of contigs are always doubtful if positions decrease among variants that are taken to be on one contig.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoubtfulColumn {
    /// The path of the column within the store.
    pub path: String,
    /// The number of chunks, or inner chunks of shards, that were filled.
    pub chunks: u64,
    /// The value that they were filled with: the name of a contig, or `.`.
    pub value: String,
}

#[derive(Debug)]
struct Columns {
    contig: Contig,
    position: Option<Column>,
    id: Option<Column>,
    reference: Option<Arc<Column>>,
    /// The alternate alleles, and the index in a row at which they start.
    alternate: Option<(Arc<Column>, u64)>,
}

#[derive(Debug)]
enum Contig {
    /// Indices into the names of the contigs.
    Index(Column, Vec<Arc<str>>),
    Names(Column),
    Same(Arc<str>),
}

impl VariantTable {
    pub(super) fn new(storage: &Arc<dyn Storage>, layout: Layout, rows: u64) -> Self {
        Self { storage: Arc::clone(storage), layout, rows, kept: Mutex::default() }
    }

    pub(super) fn doubtful(&self) -> Vec<DoubtfulColumn> {
        self.kept().doubtful.clone()
    }

    pub(super) fn forget(&self) {
        self.kept().columns = None;
    }

    fn kept(&self) -> MutexGuard<'_, KeptColumns> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a column that was read if `doubtful` is true: filled chunks of it might have held something else.
    fn note(&self, column: &Column, value: &str, doubtful: bool) {
        let path = column.path();
        let columns = &mut self.kept().doubtful;
        if doubtful && columns.iter().all(|other| other.path != path) {
            columns.push(DoubtfulColumn {
                path: path.to_owned(),
                chunks: column.filled(),
                value: value.to_owned(),
            });
        }
    }

    /// Reads the variants in `range`, which lies within the rows.
    pub(super) fn read(&self, range: Range<u64>, memory: &Budget) -> Result<Vec<Variant>> {
        let kept = self.kept().columns.clone();
        let columns = match kept {
            Some(columns) => columns,
            None => Arc::new(self.columns(memory)?),
        };
        self.kept().columns = (range.end < self.rows).then(|| Arc::clone(&columns));
        range.map(|row| columns.variant(row, &self.storage)).collect()
    }

    pub(super) fn contigs(&self, memory: &Budget, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        let contig = match self.contig(memory)? {
            Some(Contig::Same(name)) => return f(&name, self.rows),
            Some(contig) => contig,
            None => return f(UNKNOWN, self.rows),
        };
        let (mut last, mut rows) = (Cow::from(""), 0);
        for row in 0..self.rows {
            let name = contig.name(row, &self.storage)?;
            if rows > 0 && name != last {
                f(&last, std::mem::take(&mut rows))?;
            }
            (last, rows) = (name, rows + 1);
        }
        if rows > 0 { f(&last, rows) } else { Ok(()) }
    }

    pub(super) fn named_contigs(&self, memory: &Budget) -> Result<Vec<(String, Option<u64>)>> {
        let Layout::Vcf(group) = &self.layout else { return Ok(Vec::new()) };
        if Node::at(&*self.storage, &join(group, "variant_contig"))? == Node::Absent {
            return Ok(Vec::new());
        }
        let names = self.contig_names(group, memory)?;
        let path = join(group, "contig_length");
        let lengths = column(&self.storage, &path, NEVER, memory, names.len() as u64).ok().flatten();
        let length =
            |row| u64::try_from(lengths.as_ref()?.integer(row).ok()?).ok().filter(|length| *length > 0);
        Ok((0..).zip(names).map(|(row, name)| (name.to_string(), length(row))).collect())
    }

    pub(super) fn position(&self, row: u64, memory: &Budget) -> Result<u64> {
        let path = match &self.layout {
            Layout::Vcf(group) => join(group, "variant_position"),
            Layout::Allel(group) => join(group, "variants/POS"),
            Layout::Plain => return Err(Error::store(self.storage.place(""), "has no positions")),
        };
        let position = required(&self.storage, &path, NEVER, memory, self.rows)?.integer(row)?;
        u64::try_from(position)
            .map_err(|_| Error::store(self.storage.place(&path), format!("variant {row} has no position")))
    }

    fn contig_names(&self, group: &str, memory: &Budget) -> Result<Vec<Arc<str>>> {
        match Column::read_in(&self.storage, &join(group, "contig_id"), NEVER, memory)? {
            Some(names) => Ok(names.strings().map(Arc::from).collect()),
            None => contigs_attribute(&*self.storage, group),
        }
    }

    /// Reads the contigs; returns none if a VCF-Zarr store has no such column.
    fn contig(&self, memory: &Budget) -> Result<Option<Contig>> {
        match &self.layout {
            Layout::Vcf(group) => {
                let path = join(group, "variant_contig");
                if Node::at(&*self.storage, &path)? == Node::Absent {
                    return Ok(None);
                }
                let names = self.contig_names(group, memory)?;
                let known = |_, fill: &str| fill.parse().is_ok_and(|index: usize| index < names.len());
                let index = required(&self.storage, &path, &known, memory, self.rows)?;
                if let Some(first) = index.filled_rows().first() {
                    let position = join(group, "variant_position");
                    let positions = required(&self.storage, &position, NEVER, memory, self.rows);
                    let filled = index.integer(first.start)?;
                    let name = named(filled, first.start, &names, &self.storage)?;
                    self.note(&index, name, is_doubtful(&index, filled, positions.ok().as_ref()));
                }
                Ok(Some(Contig::Index(index, names)))
            }
            Layout::Allel(group) => {
                let column = column(&self.storage, &join(group, "variants/CHROM"), NEVER, memory, self.rows)?;
                let group = group.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(UNKNOWN);
                Ok(Some(column.map_or_else(|| Contig::Same(group.into()), Contig::Names)))
            }
            Layout::Plain => Ok(Some(Contig::Same(UNKNOWN.into()))),
        }
    }

    fn columns(&self, memory: &Budget) -> Result<Columns> {
        let no_contig = || Error::store(self.storage.place(""), "has no array `variant_contig`");
        let contig = self.contig(memory)?.ok_or_else(no_contig)?;
        // Each column is read within the memory that previous columns leave.
        let memory = Cell::new(memory.fit_host(contig.bytes())?);
        let kept = |column: Option<Column>| {
            memory.set(memory.get().fit_host(column.as_ref().map_or(0, Column::bytes))?);
            Ok::<_, Error>(column)
        };
        let required =
            |path: &str| kept(Some(required(&self.storage, path, NEVER, &memory.get(), self.rows)?));
        let optional =
            |path: &str, left_out| kept(column(&self.storage, path, left_out, &memory.get(), self.rows)?);
        let columns = match &self.layout {
            Layout::Vcf(group) => {
                let alleles = optional(&join(group, "variant_allele"), ALLELES)?.map(Arc::new);
                Columns {
                    contig,
                    position: required(&join(group, "variant_position"))?,
                    id: optional(&join(group, "variant_id"), NAMES)?,
                    reference: alleles.clone(),
                    alternate: alleles.map(|column| (column, 1)),
                }
            }
            Layout::Allel(group) => {
                let at = |name: &str| join(group, &format!("variants/{name}"));
                let reference = optional(&at("REF"), NEVER)?.map(Arc::new);
                let alternate = optional(&at("ALT"), NAMES)?.map(|column| (Arc::new(column), 0));
                let (position, id) = (required(&at("POS"))?, optional(&at("ID"), NAMES)?);
                Columns { contig, position, id, reference, alternate }
            }
            Layout::Plain => Columns { contig, position: None, id: None, reference: None, alternate: None },
        };
        if let Some(id) = &columns.id {
            self.note(id, UNKNOWN, id.is_doubtful());
        }
        if let Some((column, _)) = &columns.alternate {
            // Most variants have a first alternate allele, which is in the first or the second column.
            self.note(column, UNKNOWN, column.is_doubtful() || column.is_filled_in(0..2));
        }
        Ok(columns)
    }
}

impl Columns {
    fn variant(&self, row: u64, storage: &Arc<dyn Storage>) -> Result<Variant> {
        let contig = self.contig.shared(row, storage)?;
        let position = match &self.position {
            Some(column) => {
                let position = column.integer(row)?;
                u64::try_from(position).map_err(|_| {
                    Error::store(storage.place(""), format!("variant {row} is at position {position}"))
                })?
            }
            None => row,
        };
        let first = |column: Option<&Column>| {
            let name = column.and_then(|column| column.text(row, 0));
            name.filter(|name| !name.is_empty()).map_or_else(|| UNKNOWN.to_owned(), Cow::into_owned)
        };
        let mut alternate = String::new();
        if let Some((column, from)) = &self.alternate {
            let alleles = (*from..).map_while(|place| column.text(row, place));
            // Unknown alleles are mere padding of the row.
            for allele in alleles.filter(|allele| !is_unknown(allele)) {
                if !alternate.is_empty() {
                    alternate.push(',');
                }
                alternate.push_str(&allele);
            }
        }
        if alternate.is_empty() {
            alternate.push_str(UNKNOWN);
        }
        let (id, reference) = (first(self.id.as_ref()), first(self.reference.as_deref()));
        Ok(Variant { contig, position, id, reference, alternate })
    }
}

impl Contig {
    fn bytes(&self) -> u64 {
        match self {
            Self::Index(column, _) | Self::Names(column) => column.bytes(),
            Self::Same(_) => 0,
        }
    }

    /// Returns the name of a variant's contig; unless the column stores names themselves, variants of one contig share it.
    fn shared(&self, row: u64, storage: &Arc<dyn Storage>) -> Result<Arc<str>> {
        match self {
            Self::Same(name) => Ok(Arc::clone(name)),
            Self::Names(_) => Ok(Arc::from(&*self.name(row, storage)?)),
            Self::Index(column, names) => named(column.integer(row)?, row, names, storage).map(Arc::clone),
        }
    }

    fn name(&self, row: u64, storage: &Arc<dyn Storage>) -> Result<Cow<'_, str>> {
        match self {
            Self::Same(name) => Ok(Cow::from(&**name)),
            Self::Names(column) => Ok(column.text(row, 0).unwrap_or(UNKNOWN.into())),
            Self::Index(column, names) => {
                named(column.integer(row)?, row, names, storage).map(|name| Cow::from(&**name))
            }
        }
    }
}

/// Returns true if filled chunks of the column of contigs, filled with contig `index`, might have held something else.
fn is_doubtful(contig: &Column, index: i64, positions: Option<&Column>) -> bool {
    let (mut last, mut last_position) = (i64::MIN, i64::MIN);
    let (mut sorted, mut last_zero) = (index == 0, None);
    for row in 0..contig.rows() {
        let position = positions.and_then(|positions| positions.integer(row).ok());
        // If positions decrease within a contig, or cannot be read, some variants are on other contigs.
        let (Ok(next), Some(position)) = (contig.integer(row), position) else { return true };
        if next == index && next == last && position < last_position {
            return true;
        }
        sorted &= next >= last;
        last_zero = if next == 0 { Some(row) } else { last_zero };
        (last, last_position) = (next, position);
    }
    // If indices never decrease, chunks before an existing 0 can only have held 0.
    let filled = contig.filled_rows().last().map_or(0, |rows| rows.end);
    contig.is_doubtful() && !(sorted && last_zero.is_some_and(|row| row >= filled))
}

/// Returns the names of contigs from an attribute of the group, where sgkit wrote them before `contig_id` existed.
fn contigs_attribute(storage: &dyn Storage, group: &str) -> Result<Vec<Arc<str>>> {
    let attributes = read_attributes(storage, group)?;
    let names = attributes["contigs"]
        .as_array()
        .and_then(|names| names.iter().map(|name| name.as_str().map(Arc::from)).collect::<Option<Vec<_>>>());
    let lacks = "has neither an array `contig_id` nor an attribute `contigs` of names";
    names.ok_or_else(|| Error::store(storage.place(group), lacks))
}

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
