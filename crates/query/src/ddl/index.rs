//! CREATE INDEX and DROP INDEX.
//!
//! An index is built in storage first, while others read and write, and then put into
//! the catalogue. What a crash leaves between the two is dropped when the database is
//! opened. DROP goes the other way.

use std::sync::Arc;

use aerostat_storage::Table;
use aerostat_txn::Transaction;
use aerostat_types::{ErrorKind, SqlError, TableIndex};

use super::{
    Actor, CommandResult, Found,
    alter::{check_free, is_taken},
    names::{Place, QualifiedName, make_object_name},
    privilege::relation_mut,
};
use crate::{
    api::{Notice, NoticeSeverity},
    catalog::{CatalogState, IndexEntry, Relation, TableEntry, node::Database},
    error::from_storage,
    utility::CreateIndex,
};

/// CREATE INDEX. The transaction stands for the build where it waits for others; its
/// cancel token stops it.
///
/// # Errors
/// As PostgreSQL: names, rights, columns, equal rows in a unique index; lack of memory.
/// There is no such index then.
pub(crate) fn create(
    database: &Database,
    actor: &Actor,
    create: &CreateIndex,
    transaction: &Transaction,
) -> Result<CommandResult, SqlError> {
    let done = CommandResult::new("CREATE INDEX");
    let state = database.catalog.load();
    let (place, entry) = table(&state, actor, &create.table)?;
    let columns = columns(&entry, &create.columns)?;
    let name = match &create.name {
        Some(name) => name.clone(),
        None => free_name(&state, &place, &create.columns),
    };
    let index_place = Place {
        schema: place.schema.clone(),
        name: name.clone(),
    };
    if let Err(error) = check_free(&state, &index_place) {
        if !create.if_not_exists {
            return Err(error);
        }
        return Ok(done.with_notices(vec![Notice {
            kind: Some(error.kind),
            ..Notice::new(
                NoticeSeverity::Notice,
                format!("{}, skipping", error.message),
            )
        }]));
    }
    let index = TableIndex {
        name,
        kind: create.kind,
        columns,
        unique: create.unique,
    };
    entry
        .table
        .create_index(transaction, index.clone())
        .map_err(from_storage)?;
    publish(database, &place, &entry, index_place, index.clone()).inspect_err(|_| {
        forget(&entry.table, &index.name);
    })?;
    Ok(done)
}

fn publish(
    database: &Database,
    place: &Place,
    entry: &TableEntry,
    index_place: Place,
    index: TableIndex,
) -> Result<(), SqlError> {
    let mut change = database.catalog.change();
    check_free(&change.state, &index_place)?;
    let oid = change.state.allocate_oid()?;
    match relation_mut(&mut change.state, place)? {
        Relation::Table(now) if now.table.id() == entry.table.id() => {
            Arc::make_mut(now).indexes.push(IndexEntry { oid, index });
        }
        // Dropped, or emptied, which makes another table of it.
        _ => {
            return Err(SqlError::new(
                ErrorKind::SerializationFailure,
                "the table was replaced while its index was being built",
            ));
        }
    }
    change.publish()
}

/// Takes an index out of storage. Segments lose it when they are made anew.
fn forget(table: &Table, name: &str) {
    if let Err(error) = table.drop_index(name) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            index = name,
            "an index that the catalogue does not have stays until a restart"
        );
    }
}

/// Drops what storage has and the catalogue has not: a crash came between the two.
pub(crate) fn drop_unknown(state: &CatalogState) {
    for entry in state.table_entries() {
        for index in entry.table.indexes() {
            let known = |entry: &IndexEntry| entry.index.name == index.name;
            if !entry.indexes.iter().any(known) {
                forget(&entry.table, &index.name);
            }
        }
    }
}

/// DROP INDEX.
pub(super) fn drop(
    database: &Database,
    actor: &Actor,
    names: &[QualifiedName],
    if_exists: bool,
) -> Result<CommandResult, SqlError> {
    let mut change = database.catalog.change();
    let (mut notices, mut dropped) = (Vec::new(), Vec::new());
    for name in names {
        match find(&change.state, actor, name) {
            Ok((place, entry)) => {
                let Relation::Table(table) = relation_mut(&mut change.state, &place)? else {
                    continue;
                };
                Arc::make_mut(table)
                    .indexes
                    .retain(|index| index.index.name != name.name);
                dropped.push((entry, name.name.clone()));
            }
            Err(error) if if_exists && error.kind == ErrorKind::UndefinedObject => {
                notices.push(Notice {
                    kind: Some(error.kind),
                    ..Notice::new(
                        NoticeSeverity::Notice,
                        format!("{}, skipping", error.message),
                    )
                });
            }
            Err(error) => return Err(error),
        }
    }
    change.publish()?;
    for (entry, name) in dropped {
        forget(&entry.table, &name);
    }
    Ok(CommandResult::new("DROP INDEX").with_notices(notices))
}

/// The table of an index that may be dropped.
fn find(
    state: &CatalogState,
    actor: &Actor,
    name: &QualifiedName,
) -> Result<(Place, Arc<TableEntry>), SqlError> {
    let schemas: Vec<&str> = match &name.schema {
        Some(schema) => vec![schema.as_str()],
        None => actor.path().collect(),
    };
    for schema in schemas {
        let Some(entry) = state.schemas.get(schema) else {
            continue;
        };
        for (table_name, relation) in &entry.relations {
            let place = Place {
                schema: schema.to_owned(),
                name: table_name.clone(),
            };
            if place.name == name.name {
                return Err(SqlError::new(
                    ErrorKind::WrongObjectType,
                    format!("\"{}\" is not an index", name.name),
                )
                .with_hint(format!(
                    "Use DROP {} to remove a {}.",
                    relation.kind().to_uppercase(),
                    relation.kind()
                )));
            }
            let Relation::Table(table) = relation else {
                continue;
            };
            if table.key_oid != 0 && table.table.schema().primary_key_name == name.name {
                return Err(SqlError::new(
                    ErrorKind::DependentObjectsStillExist,
                    format!(
                        "cannot drop index {0} because constraint {0} on table {1} requires it",
                        name.name, table.name
                    ),
                ));
            }
            if table
                .indexes
                .iter()
                .any(|index| index.index.name == name.name)
            {
                actor.require_ownership(relation)?;
                return Ok((place, Arc::clone(table)));
            }
        }
    }
    Err(SqlError::new(
        ErrorKind::UndefinedObject,
        format!("index \"{name}\" does not exist"),
    ))
}

fn table(
    state: &CatalogState,
    actor: &Actor,
    name: &QualifiedName,
) -> Result<(Place, Arc<TableEntry>), SqlError> {
    let Found { place, relation } = actor.resolve(state, name)?;
    let Relation::Table(entry) = relation else {
        return Err(SqlError::new(
            ErrorKind::WrongObjectType,
            format!("cannot create index on relation \"{}\"", name.name),
        )
        .with_detail("This operation is not supported for views."));
    };
    actor.require_ownership(relation)?;
    Ok((place, Arc::clone(entry)))
}

fn columns(entry: &TableEntry, names: &[String]) -> Result<Vec<usize>, SqlError> {
    let schema = entry.table.schema();
    names
        .iter()
        .map(|name| {
            schema.position(name).ok_or_else(|| {
                SqlError::new(
                    ErrorKind::UndefinedColumn,
                    format!("column \"{name}\" does not exist"),
                )
            })
        })
        .collect()
}

/// `table_column_column_idx`, with a number behind it as long as it is taken.
fn free_name(state: &CatalogState, place: &Place, columns: &[String]) -> String {
    let joined = columns.join("_");
    let name_of = |nth: u32| {
        let label = match nth {
            0 => "idx".to_owned(),
            nth => format!("idx{nth}"),
        };
        make_object_name(&place.name, Some(&joined), &label)
    };
    let is_free = |name: &String| {
        let place = Place {
            schema: place.schema.clone(),
            name: name.clone(),
        };
        !is_taken(state, &place)
    };
    let mut names = (0..).map(name_of);
    names.find(is_free).unwrap_or_default()
}
