//! The constraints that SET CONSTRAINTS names.

use aerostat_sql::{deferral::Deferral, names::QualifiedName};
use aerostat_types::{ConstraintId, ErrorKind, SqlError};

use crate::{
    actor::Actor,
    state::{CatalogState, Relation, SchemaEntry, TableEntry, undefined_schema},
};

impl Actor {
    /// The numbers of the deferrable constraints of a name: tables of one schema may have
    /// several, and the first schema of the search path that has one counts.
    ///
    /// # Errors
    /// There is none, or one that cannot be put off is to be.
    pub fn deferrable(
        &self,
        state: &CatalogState,
        name: &QualifiedName,
        is_deferred: bool,
    ) -> Result<Vec<ConstraintId>, SqlError> {
        self.require_this_database(name)?;
        if let Some(schema) = &name.schema {
            let entry = state.schemas.get(schema);
            let entry = entry.ok_or_else(|| undefined_schema(schema))?;
            self.require_usage(entry)?;
            return match deferrable_in(entry, &name.name, is_deferred)? {
                Some(found) => Ok(found),
                None => Err(undefined(&name.name)),
            };
        }
        let path = self.path().filter_map(|schema| state.schemas.get(schema));
        for schema in path.filter(|schema| self.may_use(schema)) {
            if let Some(found) = deferrable_in(schema, &name.name, is_deferred)? {
                return Ok(found);
            }
        }
        Err(undefined(&name.name))
    }
}

/// `None` if the schema has no constraint of the name.
fn deferrable_in(
    schema: &SchemaEntry,
    name: &str,
    is_deferred: bool,
) -> Result<Option<Vec<ConstraintId>>, SqlError> {
    let (mut is_there, mut found) = (false, Vec::new());
    for relation in schema.relations.values() {
        let Relation::Table(entry) = relation else {
            continue;
        };
        for (oid, deferral) in named(entry, name) {
            is_there = true;
            if deferral.is_deferrable() {
                found.push(oid);
            } else if is_deferred {
                return Err(SqlError::new(
                    ErrorKind::WrongObjectType,
                    format!("constraint \"{name}\" is not deferrable"),
                ));
            }
        }
    }
    Ok(is_there.then_some(found))
}

/// The constraints of a table that have a name, at most one of each kind. The number of a
/// CHECK, which is never deferrable, is not said.
fn named(entry: &TableEntry, name: &str) -> Vec<(ConstraintId, Deferral)> {
    let indexes = entry.all_indexes();
    let indexes = indexes.filter(|index| index.is_constraint && index.index.name == name);
    let keys = entry.foreign_keys.iter().filter(|key| key.name == name);
    let checks = entry.table.schema().checks.iter();
    let checks = checks.filter(|check| check.name == name);
    indexes
        .map(|index| (index.constraint_id(), index.deferral))
        .chain(keys.map(|key| (key.oid, key.deferral)))
        .chain(checks.map(|_| (ConstraintId::NONE, Deferral::Never)))
        .collect()
}

fn undefined(name: &str) -> SqlError {
    SqlError::new(
        ErrorKind::UndefinedObject,
        format!("constraint \"{name}\" does not exist"),
    )
}
