//! FOREIGN KEY and REFERENCES in a table's definition: the tables and columns that they refer to.

use std::collections::BTreeSet;

use aerostat_api::Notice;
use aerostat_sql::{
    deferral::{Deferral, deferral_of},
    names::{QualifiedName, ResolvedName, declared, fold},
};
use aerostat_types::{
    ConstraintId, ErrorKind, IndexId, RelationId, SqlError, SqlType, TableIndex, TableSchema,
};
use sqlparser::ast::{self, ConstraintReferenceMatchKind, Ident};

use super::{
    Found,
    key::{duplicate_constraint, unused},
    privilege::denied,
    temporary::check_reference,
};
use crate::{
    actor::Actor,
    state::{CatalogState, ForeignKey, IndexEntry, ReferentialAction, Relation},
};

/// FOREIGN KEY or REFERENCES as it was written.
pub(super) struct WrittenForeignKey {
    name: Option<String>,
    columns: Vec<String>,
    table: QualifiedName,
    referenced: Vec<String>,
    is_full: bool,
    on_update: ReferentialAction,
    on_delete: ReferentialAction,
    deferral: Deferral,
}

/// The table that a constraint refers to, as it was written.
pub(super) fn referenced_table(
    written: &ast::ForeignKeyConstraint,
) -> Result<QualifiedName, SqlError> {
    QualifiedName::from_object_name(&written.foreign_table, &mut Vec::new())
}

impl WrittenForeignKey {
    /// Reads a constraint; `column` is the column that has it, if one has.
    ///
    /// # Errors
    /// What contradicts itself, and MATCH PARTIAL, which is not supported.
    pub(super) fn read(
        name: Option<&Ident>,
        written: &ast::ForeignKeyConstraint,
        column: Option<&str>,
        notices: &mut Vec<Notice>,
    ) -> Result<Self, SqlError> {
        let deferral = deferral_of(written.characteristics.as_ref())?;
        let name = name.or(written.name.as_ref());
        let name = name.map(|name| declared(name, notices)).transpose()?;
        let mut folded = |names: &[Ident]| -> Vec<String> {
            names.iter().map(|name| fold(name, notices)).collect()
        };
        let columns = match column {
            Some(column) => vec![column.to_owned()],
            None => folded(&written.columns),
        };
        let referenced = folded(&written.referred_columns);
        Ok(Self {
            name,
            columns,
            table: referenced_table(written)?,
            referenced,
            is_full: match written.match_kind {
                None | Some(ConstraintReferenceMatchKind::Simple) => false,
                Some(ConstraintReferenceMatchKind::Full) => true,
                Some(ConstraintReferenceMatchKind::Partial) => {
                    return Err(not_supported("MATCH PARTIAL not yet implemented"));
                }
            },
            on_update: action(written.on_update.as_ref()),
            on_delete: action(written.on_delete.as_ref()),
            deferral,
        })
    }

    /// What it refers to, by the name that was written.
    pub(super) fn table(&self) -> &QualifiedName {
        &self.table
    }

    /// Says when it is to be checked.
    pub(super) fn defer(&mut self, deferral: Deferral) {
        self.deferral = deferral;
    }

    /// Whether it was given this name.
    pub(super) fn is_named(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }
}

fn action(written: Option<&ast::ReferentialAction>) -> ReferentialAction {
    match written {
        None | Some(ast::ReferentialAction::NoAction) => ReferentialAction::NoAction,
        Some(ast::ReferentialAction::Restrict) => ReferentialAction::Restrict,
        Some(ast::ReferentialAction::Cascade) => ReferentialAction::Cascade,
        Some(ast::ReferentialAction::SetNull) => ReferentialAction::SetNull,
        Some(ast::ReferentialAction::SetDefault) => ReferentialAction::SetDefault,
    }
}

/// The table that has the foreign keys, as it is to be.
pub(super) struct Own<'a> {
    pub(super) place: &'a ResolvedName,
    pub(super) schema: &'a TableSchema,
    /// Its indexes, the primary key's too. Their numbers mean nothing.
    indexes: Vec<IndexEntry>,
    /// The names of the foreign keys that it has.
    there: Vec<String>,
}

impl<'a> Own<'a> {
    /// A table with these indexes beside the primary key's, and foreign keys of these names.
    pub(super) fn new(
        place: &'a ResolvedName,
        schema: &'a TableSchema,
        indexes: impl IntoIterator<Item = IndexEntry>,
        there: Vec<String>,
    ) -> Self {
        let primary = (!schema.primary_key.is_empty()).then(|| TableIndex {
            name: schema.primary_key_name.clone(),
            kind: aerostat_types::IndexKind::Ordered,
            columns: schema.primary_key.clone(),
            unique: true,
            nulls_not_distinct: false,
        });
        let primary = primary.map(|index| IndexEntry {
            oid: IndexId::NONE,
            index,
            is_constraint: true,
            is_primary: true,
            deferral: Deferral::Never,
        });
        Self {
            place,
            schema,
            indexes: primary.into_iter().chain(indexes).collect(),
            there,
        }
    }

    fn constraint_names(&self) -> BTreeSet<String> {
        let checks = self.schema.checks.iter().map(|check| check.name.clone());
        let indexes = self.indexes.iter().filter(|index| index.is_constraint);
        let indexes = indexes.map(|index| index.index.name.clone());
        let there = self.there.iter().cloned();
        checks.chain(indexes).chain(there).collect()
    }
}

/// A foreign key, and the name of the index that it refers to if that is of its own table:
/// neither may have a number yet.
#[derive(Clone)]
pub(super) struct Resolved {
    pub(super) key: ForeignKey,
    pub(super) own_index: Option<String>,
}

/// What foreign keys refer to, with names for those that have none.
///
/// # Errors
/// As PostgreSQL: tables, columns and keys that are not there, rights, types that do not fit.
pub(super) fn resolve(
    state: &CatalogState,
    actor: &Actor,
    own: &Own<'_>,
    written: Vec<WrittenForeignKey>,
) -> Result<Vec<Resolved>, SqlError> {
    let mut names = own.constraint_names();
    let given = written.iter().filter_map(|key| key.name.clone());
    for name in given {
        if !names.insert(name.clone()) {
            return Err(duplicate_constraint(&name, &own.place.name));
        }
    }
    let mut resolved = Vec::with_capacity(written.len());
    for key in written {
        let name = key.name.clone().unwrap_or_else(|| {
            let columns = key.columns.join("_");
            let taken = |name: &str| names.contains(name);
            let name = unused(&own.place.name, Some(&columns), "fkey", &taken);
            names.insert(name.clone());
            name
        });
        resolved.push(resolve_one(state, actor, own, key, name)?);
    }
    Ok(resolved)
}

fn resolve_one(
    state: &CatalogState,
    actor: &Actor,
    own: &Own<'_>,
    written: WrittenForeignKey,
    name: String,
) -> Result<Resolved, SqlError> {
    let is_own = written.table.name == own.place.name
        && written
            .table
            .schema
            .as_ref()
            .is_none_or(|schema| actor.schema_named(schema) == own.place.schema);
    let (schema, oid, indexes, table) = if is_own {
        let (name, indexes) = (own.place.name.clone(), own.indexes.clone());
        (own.schema, RelationId::NONE, indexes, name)
    } else {
        let Found { place, relation } = actor.resolve(state, &written.table)?;
        let Relation::Table(entry) = relation else {
            return Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!(
                    "referenced relation \"{}\" is not a table",
                    written.table.name
                ),
            ));
        };
        check_reference(own.place, &place)?;
        if actor.require_ownership(relation).is_err() {
            return Err(denied("table", &entry.name));
        }
        let indexes = entry.all_indexes().collect();
        (
            &**entry.table.schema(),
            entry.oid,
            indexes,
            entry.name.clone(),
        )
    };
    let columns = positions(own.schema, &written.columns)?;
    let (referenced_columns, index) = if written.referenced.is_empty() {
        let primary = indexes.into_iter().find(|index| index.is_primary);
        let primary = primary.ok_or_else(|| {
            SqlError::new(
                ErrorKind::UndefinedObject,
                format!("there is no primary key for referenced table \"{table}\""),
            )
        })?;
        if primary.deferral.is_deferrable() {
            return Err(deferrable("primary key", &table));
        }
        check_count(&columns, &primary.index.columns)?;
        (primary.index.columns.clone(), primary)
    } else {
        let referenced = positions(schema, &written.referenced)?;
        let distinct: BTreeSet<&usize> = referenced.iter().collect();
        if distinct.len() < referenced.len() {
            return Err(SqlError::new(
                ErrorKind::InvalidForeignKey,
                "foreign key referenced-columns list must not contain duplicates",
            ));
        }
        check_count(&columns, &referenced)?;
        let index = matching(indexes, &referenced, &table)?;
        (referenced, index)
    };
    for (&from, &to) in columns.iter().zip(&referenced_columns) {
        check_types(&name, (own.schema, from), (schema, to))?;
    }
    Ok(Resolved {
        own_index: is_own.then(|| index.index.name.clone()),
        key: ForeignKey {
            oid: ConstraintId::NONE,
            name,
            columns,
            referenced: oid,
            referenced_columns,
            index: index.oid,
            is_full: written.is_full,
            on_update: written.on_update,
            on_delete: written.on_delete,
            deferral: written.deferral,
            is_valid: true,
        },
    })
}

fn positions(schema: &TableSchema, names: &[String]) -> Result<Vec<usize>, SqlError> {
    names
        .iter()
        .map(|name| {
            schema.position(name).ok_or_else(|| {
                SqlError::new(
                    ErrorKind::UndefinedColumn,
                    format!(
                        "column \"{name}\" referenced in foreign key constraint does not exist"
                    ),
                )
            })
        })
        .collect()
}

fn check_count(columns: &[usize], referenced: &[usize]) -> Result<(), SqlError> {
    if columns.len() == referenced.len() {
        return Ok(());
    }
    Err(SqlError::new(
        ErrorKind::InvalidForeignKey,
        "number of referencing and referenced columns for foreign key disagree",
    ))
}

/// The unique index of just these columns, in any order, of the table of this name.
fn matching(
    indexes: Vec<IndexEntry>,
    columns: &[usize],
    table: &str,
) -> Result<IndexEntry, SqlError> {
    let sorted = |columns: &[usize]| {
        let mut columns = columns.to_vec();
        columns.sort_unstable();
        columns
    };
    let wanted = sorted(columns);
    let (deferred, mut immediate): (Vec<_>, Vec<_>) = indexes
        .into_iter()
        .filter(|index| index.index.unique && sorted(&index.index.columns) == wanted)
        .partition(|index| index.deferral.is_deferrable());
    if !immediate.is_empty() {
        return Ok(immediate.swap_remove(0));
    }
    if !deferred.is_empty() {
        return Err(deferrable("unique constraint", table));
    }
    Err(SqlError::new(
        ErrorKind::InvalidForeignKey,
        format!(
            "there is no unique constraint matching given keys for referenced table \"{table}\""
        ),
    ))
}

/// The error for a key that may be there twice for a while; `what` it is.
fn deferrable(what: &str, table: &str) -> SqlError {
    SqlError::new(
        ErrorKind::ObjectNotInPrerequisiteState,
        format!("cannot use a deferrable {what} for referenced table \"{table}\""),
    )
}

/// Refuses columns whose values PostgreSQL could not compare.
///
/// # Errors
/// `DatatypeMismatch`, of the foreign key of this name.
pub(super) fn check_types(
    name: &str,
    (from_schema, from): (&TableSchema, usize),
    (to_schema, to): (&TableSchema, usize),
) -> Result<(), SqlError> {
    let (from, to) = (&from_schema.columns[from], &to_schema.columns[to]);
    if fits(from.ty, to.ty) {
        return Ok(());
    }
    let detail = format!(
        "Key columns \"{}\" and \"{}\" are of incompatible types: {} and {}.",
        from.name,
        to.name,
        without_modifier(from.ty),
        without_modifier(to.ty)
    );
    Err(SqlError::new(
        ErrorKind::DatatypeMismatch,
        format!("foreign key constraint \"{name}\" cannot be implemented"),
    )
    .with_detail(detail))
}

fn without_modifier(ty: SqlType) -> String {
    let text = ty.to_string();
    text.split('(').next().unwrap_or(&text).to_owned()
}

/// Whether a column of the first type may refer to one of the second.
fn fits(from: SqlType, to: SqlType) -> bool {
    use SqlType::{BigInt, Double, Integer, Numeric, Real, SmallInt};
    match (from, to) {
        (SmallInt | Integer | BigInt, SmallInt | Integer | BigInt | Numeric { .. }) => true,
        (Numeric { .. }, Numeric { .. }) | (Real | Double, Real | Double) => true,
        (from, to) if from.is_text() && to.is_text() => true,
        (from, to) => from == to,
    }
}

fn not_supported(message: &str) -> SqlError {
    SqlError::new(ErrorKind::FeatureNotSupported, message)
}
