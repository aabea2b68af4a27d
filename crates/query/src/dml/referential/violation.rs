//! The errors for rows that break a foreign key.

use aerostat_catalog::{ForeignKey, TableEntry};
use aerostat_types::{ErrorKind, SqlError};

use crate::plan::StatementContext;

/// The name of a table's schema in the statement's catalogue.
pub(super) fn schema_of(context: &StatementContext, entry: &TableEntry) -> String {
    let found = context.catalog.table(entry.oid);
    found.map_or_else(String::new, |(schema, _)| schema.name.clone())
}

/// The error for a row with NULLs beside values, under MATCH FULL.
pub(super) fn mixed(context: &StatementContext, entry: &TableEntry, key: &ForeignKey) -> SqlError {
    let detail = "MATCH FULL does not allow mixing of null and nonnull key values.";
    not_present(context, entry, key, detail.to_owned())
}

/// The error for values that refer to no row.
pub(super) fn not_present(
    context: &StatementContext,
    entry: &TableEntry,
    key: &ForeignKey,
    detail: String,
) -> SqlError {
    let message = format!(
        "insert or update on table \"{}\" violates foreign key constraint \"{}\"",
        entry.name, key.name
    );
    violation(context, entry, key, message, detail)
}

/// The error for a broken foreign key of the table `entry`.
pub(super) fn violation(
    context: &StatementContext,
    entry: &TableEntry,
    key: &ForeignKey,
    message: String,
    detail: String,
) -> SqlError {
    let mut error = SqlError::new(ErrorKind::ForeignKeyViolation, message)
        .with_detail(detail)
        .with_constraint(key.name.clone());
    let schema = schema_of(context, entry);
    error.object = Some(Box::new((schema, entry.name.clone(), None)));
    error
}
