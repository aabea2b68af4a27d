//! Parts of a relation: the columns of its indexes, its constraints, and their comments.

use std::borrow::Cow;

use aerostat_catalog::{IndexEntry, TableEntry};
use aerostat_types::Column;

use super::numbers::derived_oid;

/// The columns of an index, the leading one first.
pub(crate) fn index_columns<'a>(
    table: &'a TableEntry,
    index: &'a IndexEntry,
) -> impl Iterator<Item = &'a Column> {
    let schema = table.table.schema();
    let columns = index.index.columns.iter();
    columns.filter_map(|&at| schema.columns.get(at))
}

/// The COMMENT of an index.
pub(crate) fn index_comment<'a>(table: &'a TableEntry, index: &IndexEntry) -> Option<&'a str> {
    let comments = &table.part_comments.indexes;
    comments.get(&index.index.name).map(String::as_str)
}

/// The constraints of a table by the numbers that they have in `pg_constraint`.
pub(crate) fn constraint_oids(table: &TableEntry) -> Vec<(u32, Cow<'_, str>)> {
    if table.part_comments.constraints.is_empty() {
        return Vec::new();
    }
    let indexes = table.all_indexes().filter(|index| index.is_constraint);
    let keys = indexes.map(|index| (index.oid.0, Cow::from(index.index.name)));
    let foreign = table.foreign_keys.iter();
    let foreign = foreign.map(|key| (key.oid.0, Cow::from(&key.name)));
    let checks = table.table.schema().checks.iter().enumerate();
    let checks = checks.map(|(at, check)| (derived_oid(table.oid.0, at), Cow::from(&check.name)));
    keys.chain(foreign).chain(checks).collect()
}
