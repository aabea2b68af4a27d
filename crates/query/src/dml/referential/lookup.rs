//! Finding and locking the rows that foreign keys refer from and to.

use std::sync::Arc;

use aerostat_catalog::{ForeignKey, TableEntry};
use aerostat_storage::{RowId, StorageError, TableView, WaitPolicy};
use aerostat_txn::{RowLock, Transaction};
use aerostat_types::{ErrorKind, SqlError};
use datafusion::{
    arrow::{
        array::{ArrayRef, UInt32Array},
        compute::take,
    },
    common::Result,
};

use crate::error::external;

/// The first of these rows of `values` whose values some row of the table has in these columns.
pub(super) fn first_there(
    view: &TableView,
    positions: &[usize],
    values: &[ArrayRef],
    rows: Vec<usize>,
) -> Result<Option<usize>, StorageError> {
    if rows.is_empty() {
        return Ok(None);
    }
    let order: UInt32Array = rows.iter().map(|&row| row as u32).collect();
    let chosen: Vec<ArrayRef> = values
        .iter()
        .map(|values| take(values, &order, None).expect("the rows are of the values"))
        .collect();
    let found = view.find_by_values(positions, &chosen)?;
    Ok(found.into_iter().map(|(_, nth)| rows[nth]).min())
}

/// Locks the rows that were found. If one of them has been removed meanwhile, this is a conflict,
/// and the statement that runs again will find out by whom.
pub(super) fn lock_rows(
    view: &TableView,
    transaction: &Transaction,
    found: Vec<Option<RowId>>,
) -> Result<(), StorageError> {
    let mut ids: Vec<RowId> = found.into_iter().flatten().collect();
    ids.sort_unstable();
    ids.dedup();
    view.lock(transaction, &ids, RowLock::KeyShare, WaitPolicy::Wait)?;
    Ok(())
}

/// The stored name of the constraint that a foreign key refers to, and the values of the
/// referenced columns in the order of that constraint.
pub(super) fn by_index(
    referenced: &TableEntry,
    key: &ForeignKey,
    values: Vec<ArrayRef>,
) -> Result<(String, Vec<ArrayRef>)> {
    let index = referenced.index(key.index);
    let index = index.ok_or_else(|| {
        external(SqlError::new(
            ErrorKind::Internal,
            "a foreign key refers to an index that is not there",
        ))
    })?;
    let of = |wanted: &usize| key.referenced_columns.iter().position(|at| at == wanted);
    let order = index.index.columns.iter().filter_map(of);
    let ordered: Vec<ArrayRef> = order.map(|nth| Arc::clone(&values[nth])).collect();
    assert_eq!(
        ordered.len(),
        index.index.columns.len(),
        "foreign key {} refers to all columns of its index",
        key.name
    );
    Ok((referenced.stored_name(&index), ordered))
}
