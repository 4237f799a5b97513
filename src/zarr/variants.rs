//! What is known of the variants of a genotype array.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::column::Column;
use crate::{Error, Result, genotype::Variant};

/// What stands for an unknown name or allele, as in VCF.
const UNKNOWN: &str = ".";

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
            Self::Allel(group) => vec![join(group, "samples"), "samples".to_owned()],
            Self::Plain => Vec::new(),
        }
    }
}

/// Path of `name` within `group`, which may be the root.
pub(super) fn join(group: &str, name: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{group}/{name}") }
}

/// The variants of one array; its columns are opened when they are first asked for.
#[derive(Debug)]
pub(super) struct VariantTable {
    store: PathBuf,
    layout: Layout,
    rows: u64,
    columns: Mutex<Option<Arc<Columns>>>,
}

#[derive(Debug)]
struct Columns {
    contig: Contig,
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
    pub(super) fn new(store: &Path, layout: Layout, rows: u64) -> Self {
        Self { store: store.to_path_buf(), layout, rows, columns: Mutex::new(None) }
    }

    pub(super) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The variants in `range`, which lies within the rows.
    pub(super) fn read(&self, range: Range<u64>) -> Result<Vec<Variant>> {
        let columns = {
            let mut kept = self.columns.lock().unwrap_or_else(PoisonError::into_inner);
            match &*kept {
                Some(columns) => Arc::clone(columns),
                None => Arc::clone(kept.insert(Arc::new(self.open()?))),
            }
        };
        let contigs = columns.contig.read(range.clone(), &self.store)?;
        let positions = match &columns.position {
            Some(column) => column.whole(range.clone())?,
            None => range.clone().map(|i| i64::try_from(i).unwrap_or(i64::MAX)).collect(),
        };
        let ids = columns.id.as_ref().map(|column| column.names(range.clone())).transpose()?;
        let mut ids = ids.map(Vec::into_iter);
        let alleles = columns.alleles.read(range.clone())?;
        let rows = range.zip(contigs.into_iter().zip(positions).zip(alleles));
        rows.map(|(row, ((contig, position), (reference, alternate)))| {
            let position = u64::try_from(position).map_err(|_| {
                Error::store(self.store.display(), format!("variant {row} is at position {position}"))
            })?;
            let id = known(ids.as_mut().and_then(Iterator::next).unwrap_or_default());
            Ok(Variant { contig, position, id, reference, alternate })
        })
        .collect()
    }

    /// Gives `f` the contigs in order, and how many variants after each other are on one.
    pub(super) fn contigs(&self, f: &mut dyn FnMut(&str, u64) -> Result<()>) -> Result<()> {
        match self.contig()? {
            None => f(UNKNOWN, self.rows),
            Some(Contig::Same(name)) => f(&name, self.rows),
            Some(Contig::Names(column)) => column.runs_of_names(f),
            Some(Contig::Index(column, names)) => {
                let mut row = 0;
                column.runs_of_whole(&mut |index, rows| {
                    f(named(index, row, &names, &self.store)?, rows)?;
                    row += rows;
                    Ok(())
                })
            }
        }
    }

    /// The contigs; none where a VCF-Zarr store has no such column.
    fn contig(&self) -> Result<Option<Contig>> {
        let (store, rows) = (self.store.as_path(), self.rows);
        match &self.layout {
            Layout::Vcf(group) => {
                let Some(index) = Column::optional(store, &join(group, "variant_contig"), rows)? else {
                    return Ok(None);
                };
                let names = Column::open(store, &join(group, "contig_id"))?
                    .ok_or_else(|| Error::store(store.display(), "has no array `contig_id`"))?;
                let names = names.names(0..names.rows())?.into_iter().map(Arc::from).collect();
                Ok(Some(Contig::Index(index, names)))
            }
            Layout::Allel(group) => {
                let column = Column::optional(store, &join(group, "variants/CHROM"), rows)?;
                let group = group.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(UNKNOWN);
                Ok(Some(column.map_or_else(|| Contig::Same(group.into()), Contig::Names)))
            }
            Layout::Plain => Ok(Some(Contig::Same(UNKNOWN.into()))),
        }
    }

    fn open(&self) -> Result<Columns> {
        let (store, rows) = (self.store.as_path(), self.rows);
        let contig =
            self.contig()?.ok_or_else(|| Error::store(store.display(), "has no array `variant_contig`"))?;
        match &self.layout {
            Layout::Vcf(group) => {
                let at = |name: &str| join(group, name);
                let alleles = Column::optional(store, &at("variant_allele"), rows)?;
                Ok(Columns {
                    contig,
                    position: Some(Column::required(store, &at("variant_position"), rows)?),
                    id: Column::optional(store, &at("variant_id"), rows)?,
                    alleles: alleles
                        .map_or_else(Alleles::unknown, |column| Alleles::Together(Box::new(column))),
                })
            }
            Layout::Allel(group) => {
                let at = |name: &str| join(group, &format!("variants/{name}"));
                let optional = |name: &str| Column::optional(store, &at(name), rows);
                Ok(Columns {
                    contig,
                    position: Some(Column::required(store, &at("POS"), rows)?),
                    id: optional("ID")?,
                    alleles: Alleles::Apart(Box::new([optional("REF")?, optional("ALT")?])),
                })
            }
            Layout::Plain => Ok(Columns { contig, position: None, id: None, alleles: Alleles::unknown() }),
        }
    }
}

impl Contig {
    fn read(&self, range: Range<u64>, store: &Path) -> Result<Vec<Arc<str>>> {
        match self {
            Self::Same(name) => Ok(range.map(|_| Arc::clone(name)).collect()),
            Self::Names(column) => Ok(column.names(range)?.into_iter().map(Arc::from).collect()),
            Self::Index(column, names) => column
                .whole(range.clone())?
                .into_iter()
                .zip(range)
                .map(|(index, row)| named(index, row, names, store).cloned())
                .collect(),
        }
    }
}

/// The name of a variant's contig.
fn named<'a>(index: i64, row: u64, names: &'a [Arc<str>], store: &Path) -> Result<&'a Arc<str>> {
    usize::try_from(index).ok().and_then(|i| names.get(i)).ok_or_else(|| {
        let why = format!("variant {row} is on contig {index} of {}", names.len());
        Error::store(store.display(), why)
    })
}

impl Alleles {
    fn unknown() -> Self {
        Self::Apart(Box::new([None, None]))
    }

    /// Reference and alternate alleles.
    fn read(&self, range: Range<u64>) -> Result<Vec<(String, String)>> {
        match self {
            Self::Together(column) => {
                let rows = column.text(range)?.into_iter();
                Ok(rows
                    .map(|row| {
                        let mut alleles = row.into_iter();
                        (known(alleles.next().unwrap_or_default()), joined(alleles))
                    })
                    .collect())
            }
            Self::Apart(columns) => {
                let [reference, alternate] = &**columns;
                let rows = || range.clone().map(|_| UNKNOWN.to_owned());
                let reference = reference.as_ref().map(|column| column.names(range.clone())).transpose()?;
                let reference = reference.unwrap_or_else(|| rows().collect());
                let alternate = alternate.as_ref().map(|column| column.text(range.clone())).transpose()?;
                let alternate = match alternate {
                    Some(alternate) => alternate.into_iter().map(|row| joined(row.into_iter())).collect(),
                    None => rows().collect::<Vec<_>>(),
                };
                Ok(reference.into_iter().map(known).zip(alternate).collect())
            }
        }
    }
}

fn known(name: String) -> String {
    if name.is_empty() { UNKNOWN.to_owned() } else { name }
}

/// Alternate alleles without the padding that makes rows equally long.
fn joined(alleles: impl Iterator<Item = String>) -> String {
    known(alleles.filter(|allele| !allele.is_empty() && allele != UNKNOWN).collect::<Vec<_>>().join(","))
}
