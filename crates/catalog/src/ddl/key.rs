//! PRIMARY KEY and UNIQUE in a table's definition: the indexes that enforce them, and their
//! names. Pure.

use std::collections::BTreeSet;

use aerostat_sql::{deferral::Deferral, names::make_object_name};
use aerostat_types::{Column, ErrorKind, IndexId, IndexKind, SqlError, TableIndex};

use crate::state::IndexEntry;

/// PRIMARY KEY or UNIQUE as it was written.
pub(super) struct WrittenKey {
    pub(super) name: Option<String>,
    pub(super) columns: Vec<String>,
    pub(super) is_primary: bool,
    pub(super) nulls_not_distinct: bool,
    pub(super) deferral: Deferral,
}

impl WrittenKey {
    fn same_index(&self, other: &WrittenKey) -> bool {
        self.columns == other.columns
            && self.nulls_not_distinct == other.nulls_not_distinct
            && self.deferral == other.deferral
    }

    /// Positions of its columns.
    fn positions(&self, columns: &[Column]) -> Result<Vec<usize>, SqlError> {
        let mut positions = Vec::with_capacity(self.columns.len());
        for name in &self.columns {
            let at = columns
                .iter()
                .position(|column| column.name == *name)
                .ok_or_else(|| {
                    SqlError::new(
                        ErrorKind::UndefinedColumn,
                        format!("column \"{name}\" named in key does not exist"),
                    )
                })?;
            if positions.contains(&at) {
                let kind = if self.is_primary {
                    "primary key"
                } else {
                    "unique"
                };
                return Err(SqlError::new(
                    ErrorKind::DuplicateColumn,
                    format!("column \"{name}\" appears twice in {kind} constraint"),
                ));
            }
            positions.push(at);
        }
        Ok(positions)
    }

    /// `t_pkey`, `t_a_b_key`, with a number behind it as long as it is taken.
    fn chosen_name(&self, table: &str, taken: &dyn Fn(&str) -> bool) -> String {
        if self.is_primary {
            unused(table, None, "pkey", taken)
        } else {
            unused(table, Some(&self.columns.join("_")), "key", taken)
        }
    }
}

/// The indexes that keep the constraints of a table, the primary key's first, without
/// numbers. Of two constraints on the same columns the first has the index, as in PostgreSQL.
///
/// `taken` says which names the schema's relations have; `constraints` are the names of
/// the table's other constraints.
///
/// # Errors
/// Two primary keys, columns that are not there or there twice, names that are taken.
pub(super) fn indexes_of(
    table: &str,
    columns: &[Column],
    mut written: Vec<WrittenKey>,
    taken: &dyn Fn(&str) -> bool,
    constraints: &BTreeSet<String>,
) -> Result<Vec<IndexEntry>, SqlError> {
    // The sort is stable: the others stay in order.
    written.sort_by_key(|key| !key.is_primary);
    if written.iter().filter(|key| key.is_primary).count() > 1 {
        return Err(multiple_primary_keys(table));
    }
    let mut kept: Vec<(WrittenKey, Vec<usize>)> = Vec::new();
    for key in written {
        let positions = key.positions(columns)?;
        match kept
            .iter_mut()
            .find(|(earlier, _)| earlier.same_index(&key))
        {
            Some((earlier, _)) => earlier.name = earlier.name.take().or(key.name),
            None => kept.push((key, positions)),
        }
    }
    let mut indexes: Vec<IndexEntry> = Vec::with_capacity(kept.len());
    for (key, positions) in kept {
        let is_taken = |name: &str| {
            let mut indexes = indexes.iter();
            name == table || taken(name) || indexes.any(|index| index.index.name == name)
        };
        let name = match &key.name {
            Some(name) if is_taken(name) => {
                return Err(SqlError::new(
                    ErrorKind::DuplicateTable,
                    format!("relation \"{name}\" already exists"),
                ));
            }
            Some(name) if constraints.contains(name) => {
                return Err(duplicate_constraint(name, table));
            }
            Some(name) => name.clone(),
            None => key.chosen_name(table, &|name| is_taken(name) || constraints.contains(name)),
        };
        indexes.push(IndexEntry {
            oid: IndexId::NONE,
            index: TableIndex {
                name,
                kind: IndexKind::Ordered,
                columns: positions,
                unique: true,
                nulls_not_distinct: key.nulls_not_distinct,
            },
            is_constraint: true,
            is_primary: key.is_primary,
            deferral: key.deferral,
        });
    }
    Ok(indexes)
}

/// The error for a second PRIMARY KEY.
pub(super) fn multiple_primary_keys(table: &str) -> SqlError {
    SqlError::new(
        ErrorKind::InvalidTableDefinition,
        format!("multiple primary keys for table \"{table}\" are not allowed"),
    )
}

/// The error for a constraint's name that another constraint of the table has.
pub(super) fn duplicate_constraint(name: &str, table: &str) -> SqlError {
    SqlError::new(
        ErrorKind::DuplicateObject,
        format!("constraint \"{name}\" for relation \"{table}\" already exists"),
    )
}

/// PostgreSQL's `ChooseConstraintName`: a number is appended until the name is free.
pub(super) fn unused(
    table: &str,
    column: Option<&str>,
    label: &str,
    taken: &dyn Fn(&str) -> bool,
) -> String {
    let plain = make_object_name(table, column, label);
    if !taken(&plain) {
        return plain;
    }
    (1..)
        .map(|number: u32| make_object_name(table, column, &format!("{label}{number}")))
        .find(|name| !taken(name))
        .unwrap_or(plain)
}
