//! Foreign keys in an ALTER TABLE: added, dropped, following the columns, or checked again.

use std::{collections::BTreeSet, sync::Arc};

use aerostat_sql::{
    names::{QualifiedName, ResolvedName},
    utility::TableAction,
};
use aerostat_storage::describe_key;
use aerostat_txn::LockMode;
use aerostat_types::{ConstraintId, ErrorKind, RelationId, SqlError, TableSchema};
use arrow::array::{Array, ArrayRef};
use sqlparser::ast::{ColumnOption, TableConstraint};

use super::{
    super::{
        Found,
        drop::{cascade_notice, depended_on},
        foreign_key::{self, Own, Resolved, check_types, referenced_table},
        privilege::relation_mut,
    },
    PendingAlter,
    design::{Design, NewForeignKey},
};
use crate::{
    actor::Actor,
    state::{CatalogState, Draft, ForeignKey, IndexEntry, Relation, TableEntry},
};

/// A foreign key that rows have to be checked by.
pub struct Reference {
    /// Its positions are those of the columns to come.
    pub key: ForeignKey,
    /// The table that has it; `None` for the one that changes.
    pub from: Option<Other>,
    /// The table that it refers to; `None` for the one that changes.
    pub to: Option<Other>,
}

/// Another table, and the schema it is in.
#[derive(Clone)]
pub struct Other {
    schema: String,
    pub entry: Arc<TableEntry>,
}

fn table(state: &CatalogState, oid: RelationId) -> Result<Other, SqlError> {
    let found = state.table(oid).map(|(schema, entry)| Other {
        schema: schema.name.clone(),
        entry: Arc::clone(entry),
    });
    found.ok_or_else(|| {
        let message = "a foreign key refers to a table that is not there";
        SqlError::new(ErrorKind::Internal, message)
    })
}

impl Reference {
    /// Refuses columns that are of types which cannot be compared any more.
    fn check_types(&self, schema: &TableSchema) -> Result<(), SqlError> {
        let (from, to) = (schema_of(&self.from, schema), schema_of(&self.to, schema));
        let columns = self.key.columns.iter().zip(&self.key.referenced_columns);
        for (&own, &referenced) in columns {
            check_types(&self.key.name, (from, own), (to, referenced))?;
        }
        Ok(())
    }
}

fn schema_of<'a>(other: &'a Option<Other>, own: &'a TableSchema) -> &'a TableSchema {
    match other {
        Some(other) => other.entry.table.schema(),
        None => own,
    }
}

/// Locks the table of an ALTER TABLE, and the others that its foreign keys concern: rows of
/// both sides stay as they are while they are checked.
///
/// # Errors
/// As [`Draft::lock`].
pub fn lock(
    draft: &Draft,
    actor: &Actor,
    name: &QualifiedName,
    actions: &[TableAction],
) -> Result<(), SqlError> {
    draft.lock_owned(actor, [name], LockMode::AccessExclusive)?;
    let mut referenced = Vec::new();
    for action in actions {
        named_in(action, &mut referenced)?;
    }
    draft.lock_owned(actor, &referenced, LockMode::ShareRowExclusive)?;
    let state = draft.load()?;
    let Ok(Some(Found {
        relation: Relation::Table(entry),
        ..
    })) = actor.find(&state, name)
    else {
        return Ok(());
    };
    if !actor.owns(&entry.owner) {
        return Ok(());
    }
    let keys = &entry.foreign_keys;
    for action in actions {
        match action {
            TableAction::ValidateConstraint(name) => {
                for key in keys.iter().filter(|key| key.name == *name) {
                    draft.lock(key.referenced, LockMode::RowShare)?;
                }
            }
            TableAction::SetType { .. } => {
                let referring = state.referring(entry.oid).map(|(other, _)| other.oid);
                let referenced = keys.iter().map(|key| key.referenced);
                for other in referenced.chain(referring) {
                    draft.lock(other, LockMode::ShareRowExclusive)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// The tables that foreign keys in an action refer to.
fn named_in(action: &TableAction, names: &mut Vec<QualifiedName>) -> Result<(), SqlError> {
    match action {
        TableAction::AddConstraint { constraint, .. } => {
            if let TableConstraint::ForeignKey(key) = &**constraint {
                names.push(referenced_table(key)?);
            }
        }
        TableAction::AddColumn { definition, .. } => {
            for option in &definition.options {
                if let ColumnOption::ForeignKey(key) = &option.option {
                    names.push(referenced_table(key)?);
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The error for a row that refers to none; `values` are those of the foreign key's columns.
pub fn refers_to_none(
    pending: &PendingAlter,
    reference: &Reference,
    values: &[ArrayRef],
) -> SqlError {
    let key = &reference.key;
    let (schema, table, columns) = match &reference.from {
        Some(other) => (&other.schema, &other.entry.name, other.entry.table.schema()),
        None => (&pending.place.schema, &pending.before.name, &pending.schema),
    };
    let referenced = match &reference.to {
        Some(other) => &other.entry.name,
        None => &pending.before.name,
    };
    let detail = match values.iter().any(|values| values.is_null(0)) {
        true => "MATCH FULL does not allow mixing of null and nonnull key values.".to_owned(),
        false => {
            let described = describe_key(columns, &key.columns, values, 0);
            format!("{described} is not present in table \"{referenced}\".")
        }
    };
    let message = format!(
        "insert or update on table \"{table}\" violates foreign key constraint \"{}\"",
        key.name
    );
    let mut error = SqlError::new(ErrorKind::ForeignKeyViolation, message)
        .with_detail(detail)
        .with_constraint(key.name.clone());
    error.object = Some(Box::new((schema.clone(), table.clone(), None)));
    error
}

impl PendingAlter {
    /// Finds out what foreign keys that come refer to, and which ones rows have to be checked
    /// by: those, and those of columns whose values change.
    ///
    /// # Errors
    /// As PostgreSQL: what they refer to is not there, is another's, or has another type.
    pub(super) fn settle_references(
        &mut self,
        state: &CatalogState,
        actor: &Actor,
        design: &Design,
        new: Vec<NewForeignKey>,
    ) -> Result<(), SqlError> {
        let (schema, place) = (Arc::clone(&self.schema), self.place.clone());
        let own = {
            let indexes = self.indexes.iter().chain(&self.new_indexes).cloned();
            let there = self.foreign_keys.iter().map(|key| key.name.clone());
            Own::new(&place, &schema, indexes, there.collect())
        };
        let valid: Vec<bool> = new.iter().map(|key| key.is_valid).collect();
        let written = new.into_iter().map(|key| key.written).collect();
        let mut resolved = foreign_key::resolve(state, actor, &own, written)?;
        for (Resolved { key, own_index }, is_valid) in resolved.iter_mut().zip(valid) {
            key.is_valid = is_valid;
            if is_valid {
                let to = match own_index {
                    Some(_) => None,
                    None => Some(table(state, key.referenced)?),
                };
                self.references.push(Reference {
                    key: key.clone(),
                    from: None,
                    to,
                });
            }
        }
        self.new_foreign_keys = resolved;
        let before = self.before.table.schema();
        let converted: BTreeSet<&str> = design
            .converted(before)
            .map(|(column, _)| column.name.as_str())
            .collect();
        let is_converted = |at: &usize| converted.contains(before.columns[*at].name.as_str());
        let kept = |key: &&ForeignKey| !self.dropped_references.contains(&key.oid);
        let mut again = Vec::new();
        for key in self.foreign_keys.iter().filter(kept) {
            let is_own = key.referenced == self.before.oid;
            let moves = is_own && key.is_valid && key.referenced_columns.iter().any(is_converted);
            if !moves && !design.keys_to_verify.contains(&key.name) {
                continue;
            }
            let mut key = key.clone();
            let to = match is_own {
                true => {
                    key.referenced_columns = self.moved(&key.referenced_columns);
                    None
                }
                false => Some(table(state, key.referenced)?),
            };
            let from = None;
            again.push(Reference { key, from, to });
        }
        for (entry, key) in state.referring(self.before.oid) {
            let moves = key.is_valid && key.referenced_columns.iter().any(is_converted);
            if entry.oid == self.before.oid || !moves || !kept(&key) {
                continue;
            }
            let mut key = key.clone();
            key.referenced_columns = self.moved(&key.referenced_columns);
            let (from, to) = (Some(table(state, entry.oid)?), None);
            again.push(Reference { key, from, to });
        }
        for reference in &again {
            reference.check_types(&self.schema)?;
        }
        self.references.append(&mut again);
        Ok(())
    }

    /// With CASCADE, foreign keys go with the index that they refer to; without, it stays.
    pub(super) fn drop_references(
        &mut self,
        state: &CatalogState,
        design: &Design,
    ) -> Result<(), SqlError> {
        for gone in &design.gone {
            let kept = design.foreign_keys.iter().map(|key| key.oid);
            let own: BTreeSet<ConstraintId> = kept.collect();
            let mut lines = Vec::new();
            for (table, key) in state.referring(self.before.oid) {
                let stays = table.oid != self.before.oid || own.contains(&key.oid);
                if key.index == gone.oid && stays && self.dropped_references.insert(key.oid) {
                    let constraint = format!("constraint {} on table {}", key.name, table.name);
                    lines.push((constraint, gone.needed.clone()));
                }
            }
            if lines.is_empty() {
                continue;
            }
            if !gone.cascade {
                let dropped = &gone.dropped;
                let message = format!("cannot drop {dropped} because other objects depend on it");
                return Err(depended_on(message, &lines));
            }
            self.notices.push(cascade_notice(&lines));
        }
        Ok(())
    }

    /// The foreign keys that the table comes to have.
    pub(super) fn own_references(
        &self,
        entry: &TableEntry,
        state: &CatalogState,
    ) -> Result<Vec<ForeignKey>, SqlError> {
        let mut keys = self.foreign_keys.clone();
        keys.retain(|key| !self.dropped_references.contains(&key.oid));
        for key in keys.iter_mut().filter(|key| key.referenced == entry.oid) {
            key.referenced_columns = self.moved(&key.referenced_columns);
        }
        for Resolved { key, own_index } in &self.new_foreign_keys {
            let mut key = key.clone();
            key.oid = ConstraintId(state.allocate_oid()?);
            if let Some(name) = own_index {
                key.referenced = entry.oid;
                let named = |index: &IndexEntry| index.index.name == *name;
                let index = entry.all_indexes().find(named).ok_or_else(|| {
                    let message = "a foreign key refers to an index that is not to be";
                    SqlError::new(ErrorKind::Internal, message)
                })?;
                key.index = index.oid;
            }
            keys.push(key);
        }
        Ok(keys)
    }

    /// Where columns of before are now, without those that have gone.
    fn moved(&self, columns: &[usize]) -> Vec<usize> {
        let before = &self.before.table.schema().columns;
        let now = |at: &usize| self.schema.position(&before[*at].name);
        columns.iter().filter_map(now).collect()
    }

    /// Foreign keys of other tables go, or refer to the columns where they are now.
    pub(super) fn follow_references(&self, state: &mut CatalogState) -> Result<(), SqlError> {
        let follows = |key: &ForeignKey| {
            key.referenced == self.before.oid
                && (self.dropped_references.contains(&key.oid)
                    || self.moved(&key.referenced_columns) != key.referenced_columns)
        };
        let mut referring = Vec::new();
        for (schema, relation, name) in state.relations() {
            if let Relation::Table(table) = relation
                && table.foreign_keys.iter().any(follows)
            {
                referring.push(ResolvedName {
                    schema: schema.name.clone(),
                    name: name.to_owned(),
                });
            }
        }
        for place in referring {
            let Relation::Table(table) = relation_mut(state, &place)? else {
                continue;
            };
            let keys = &mut Arc::make_mut(table).foreign_keys;
            keys.retain(|key| !self.dropped_references.contains(&key.oid));
            for key in keys
                .iter_mut()
                .filter(|key| key.referenced == self.before.oid)
            {
                key.referenced_columns = self.moved(&key.referenced_columns);
            }
        }
        Ok(())
    }
}
