//! Opening columns that go with a genotype array.

use std::sync::Arc;

use teatime::{
    Budget, Error, Result,
    store::{Column, LeftOut, Storage},
};

/// The column at `path`, if it is there; it has to have `rows` rows then.
pub(super) fn column(
    storage: &Arc<dyn Storage>,
    path: &str,
    left_out: LeftOut,
    memory: &Budget,
    rows: u64,
) -> Result<Option<Column>> {
    let column = Column::open_in(storage, path, left_out, memory)?;
    match column.as_ref().map(Column::rows) {
        Some(got) if got != rows => {
            Err(Error::store(storage.place(path), format!("has {got} rows, expected {rows}")))
        }
        _ => Ok(column),
    }
}

/// The same of a column that has to be there.
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

/// The key of `name` within the group at `path`, which may be empty.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}/{name}") }
}
