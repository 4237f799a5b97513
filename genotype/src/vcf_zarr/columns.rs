//! Opening of the columns that belong to a genotype array.

use std::sync::Arc;

use teatime::{
    Budget, Error, Result,
    store::{Column, Storage},
};

/// The string for an unknown value, as in VCF.
pub(super) const UNKNOWN: &str = ".";

/// A function that says which chunks of a column a writer may have left out, for [`Column::read_in`].
pub(super) type LeftOut<'a> = &'a dyn Fn(u64, &str) -> bool;

/// No chunk may be left out, since rows are never all alike.
pub(super) const NEVER: LeftOut = &|_, _| false;

/// Chunks of unknown values may be left out, since no variant need have a name or further alleles.
pub(super) const NAMES: LeftOut = &|_, fill| is_unknown(fill);

/// Chunks may be left out except in the first column: the first allele is the reference, which is always known.
pub(super) const ALLELES: LeftOut = &|column, fill| column > 0 && is_unknown(fill);

pub(super) fn is_unknown(name: &str) -> bool {
    name.is_empty() || name == UNKNOWN
}

/// Reads the column at `path`, if it exists; it must then have `rows` rows.
pub(super) fn column(
    storage: &Arc<dyn Storage>,
    path: &str,
    left_out: LeftOut,
    memory: &Budget,
    rows: u64,
) -> Result<Option<Column>> {
    let column = Column::read_in(storage, path, left_out, memory)?;
    match column.as_ref().map(Column::rows) {
        Some(got) if got != rows => {
            Err(Error::store(storage.place(path), format!("has {got} rows, expected {rows}")))
        }
        _ => Ok(column),
    }
}

/// Reads a column that must exist.
pub(super) fn required(
    storage: &Arc<dyn Storage>,
    path: &str,
    left_out: LeftOut,
    memory: &Budget,
    rows: u64,
) -> Result<Column> {
    let missing = || Error::store(storage.place(""), format!("has no array `{path}`"));
    column(storage, path, left_out, memory, rows)?.ok_or_else(missing)
}
