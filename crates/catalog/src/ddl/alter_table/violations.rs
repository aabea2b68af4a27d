//! Violations by rows that an ALTER TABLE changes or checks.

use aerostat_storage::describe_key;
use aerostat_types::{ErrorKind, IndexKind, SqlError, TableIndex};
use arrow::array::ArrayRef;

use super::PendingAlter;

/// The error for a key that several rows have; `values` are those of the index's columns.
pub fn duplicate(pending: &PendingAlter, index: TableIndex, values: &[ArrayRef]) -> SqlError {
    let key = describe_key(&pending.schema, &index.columns, values, 0);
    pending.is_duplicated(index.name, &format!("{key} is duplicated."))
}

/// The words for what a row breaks that is being copied, where an INSERT has others.
pub fn of_rewrite(error: SqlError, pending: &PendingAlter) -> SqlError {
    match (error.kind, &error.object, &error.constraint) {
        (ErrorKind::NotNullViolation, Some(object), _) => match &object.2 {
            Some(column) => pending.has_null(column.clone()),
            None => error,
        },
        (ErrorKind::CheckViolation, _, Some(check)) => pending.is_violated(check.clone()),
        (ErrorKind::UniqueViolation, _, Some(index)) => {
            let detail = error.detail.as_deref().unwrap_or_default();
            let detail = detail.replace("already exists.", "is duplicated.");
            pending.is_duplicated(index.clone(), &detail)
        }
        _ => error,
    }
}

impl PendingAlter {
    /// The error for a column that is to refuse NULL, and has some.
    pub fn has_null(&self, column: String) -> SqlError {
        let table = self.before.name.clone();
        let mut error = SqlError::new(
            ErrorKind::NotNullViolation,
            format!("column \"{column}\" of relation \"{table}\" contains null values"),
        );
        error.object = Some(Box::new((self.place.schema.clone(), table, Some(column))));
        error
    }

    /// The unique indexes that come, the primary key's first.
    pub fn unique_to_come(&self) -> Vec<TableIndex> {
        let (before, schema) = (self.before.table.schema(), &self.schema);
        let is_new = !schema.primary_key.is_empty()
            && (before.primary_key.is_empty()
                || before.primary_key_name != schema.primary_key_name);
        let primary = is_new.then(|| TableIndex {
            name: schema.primary_key_name.clone(),
            kind: IndexKind::Ordered,
            columns: schema.primary_key.clone(),
            unique: true,
            nulls_not_distinct: false,
        });
        let unique = self.new_indexes.iter().map(|index| index.index.clone());
        primary.into_iter().chain(unique).collect()
    }

    pub(crate) fn is_duplicated(&self, index: String, detail: &str) -> SqlError {
        let message = format!("could not create unique index \"{index}\"");
        let mut error = SqlError::new(ErrorKind::UniqueViolation, message)
            .with_constraint(index)
            .with_detail(detail);
        let table = self.before.name.clone();
        error.object = Some(Box::new((self.place.schema.clone(), table, None)));
        error
    }

    /// The error for a condition that a row does not fulfil.
    pub fn is_violated(&self, check: String) -> SqlError {
        let table = self.before.name.clone();
        let mut error = SqlError::new(
            ErrorKind::CheckViolation,
            format!("check constraint \"{check}\" of relation \"{table}\" is violated by some row"),
        )
        .with_constraint(check);
        error.object = Some(Box::new((self.place.schema.clone(), table, None)));
        error
    }
}
