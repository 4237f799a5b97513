//! Opening columns that go with a genotype array.

use std::sync::Arc;

use teatime::{
    Budget, Error, Result,
    store::{Column, Storage},
};

/// The string that stands for an unknown one, as in VCF.
pub(super) const UNKNOWN: &str = ".";

/// Says which chunks of a column may have been left out, as [`Column::read_in`] asks.
pub(super) type LeftOut<'a> = &'a dyn Fn(u64, &str) -> bool;

/// Rows are never all alike.
pub(super) const NEVER: LeftOut = &|_, _| false;

/// No variant need have a name, nor further alleles.
pub(super) const NAMES: LeftOut = &|_, fill| is_unknown(fill);

/// The first allele is the reference, which is always known.
pub(super) const ALLELES: LeftOut = &|column, fill| column > 0 && is_unknown(fill);

pub(super) fn is_unknown(name: &str) -> bool {
    name.is_empty() || name == UNKNOWN
}

/// Reads the column at `path`, if it is there; it has to have `rows` rows then.
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

/// Reads a column that has to be there.
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
