//! CREATE INDEX and DROP INDEX.
//!
//! An index is built in storage first, and then put into the catalogue. An index that is undone,
//! or left by a crash between the two, is dropped. DROP goes the other way: the index leaves
//! storage after the commit.
//!
//! Others read and write meanwhile, unless the statement is part of a transaction block: then
//! they cannot write before the block's end, since its index must not bind them if it is undone.

use std::sync::Arc;

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::{
    deferral::Deferral,
    names::{PG_CATALOG, QualifiedName, ResolvedName, make_object_name},
    storage_parameters::{self, Owner},
    utility::{CreateIndex, IndexColumn, ReindexTarget},
};
use aerostat_txn::{LockMode, Transaction};
use aerostat_types::{ErrorKind, IndexId, IndexKind, SqlError, SqlType, TableIndex};

use super::{
    CommandResult, Found,
    alter::{check_free, is_taken, redefine, skipping},
    operator_class,
    privilege::{not_owner, relation_mut},
};
use crate::{
    actor::Actor,
    failure::from_storage,
    state::{
        CatalogState, Draft, Effect, IndexEntry, Relation, TableEntry, comments::follow,
        forget_index, rename_index,
    },
};

/// CREATE INDEX. The transaction stands for the build where it waits for others; its
/// cancel token stops it.
///
/// # Errors
/// As PostgreSQL: names, rights, columns, equal rows in a unique index; lack of memory.
/// There is no such index then.
pub fn create(
    draft: &Draft,
    actor: &Actor,
    create: &CreateIndex,
    transaction: &Transaction,
    in_block: bool,
) -> Result<CommandResult, SqlError> {
    let done = CommandResult::new("CREATE INDEX");
    let mode = match in_block {
        true => LockMode::Share,
        false => LockMode::ShareUpdateExclusive,
    };
    draft.lock_owned(actor, [&create.table], mode)?;
    let mut change = draft.change()?;
    let state = &mut change.state;
    let (place, entry) = table(state, actor, &create.table)?;
    let columns = columns(&entry, create)?;
    let notices = storage_parameters::check(Owner::Index(create.kind), &create.parameters)?;
    let done = done.with_notices(notices);
    let name = match &create.name {
        Some(name) => name.clone(),
        None => free_name(state, &place, create),
    };
    let index_place = ResolvedName {
        schema: place.schema.clone(),
        name: name.clone(),
    };
    if let Err(error) = check_free(state, &index_place) {
        if !create.if_not_exists {
            return Err(error);
        }
        return Ok(
            CommandResult::new("CREATE INDEX").with_notices(vec![Notice {
                kind: Some(error.kind),
                ..Notice::new(
                    NoticeSeverity::Notice,
                    format!("{}, skipping", error.message),
                )
            }]),
        );
    }
    let index = TableIndex {
        name,
        kind: create.kind,
        columns,
        unique: create.unique,
        nulls_not_distinct: create.nulls_not_distinct,
    };
    let oid = IndexId(state.allocate_oid()?);
    if let Relation::Table(now) = relation_mut(state, &place)? {
        let index = index.clone();
        Arc::make_mut(now).indexes.push(IndexEntry {
            oid,
            index,
            is_constraint: false,
            is_primary: false,
            deferral: Deferral::Never,
        });
    }
    // The name is taken before the work begins.
    change.publish()?;
    let name = index.name.clone();
    entry
        .table
        .create_index(transaction, index)
        .map_err(from_storage)?;
    draft.note(Effect::IndexBuilt(Arc::clone(&entry.table), name));
    Ok(done)
}

/// Makes storage's indexes those of the catalogue, whose word counts: a crash may come
/// between the two.
pub fn settle_all(state: &CatalogState) {
    for entry in state.table_entries() {
        settle(&entry);
    }
}

/// An index that the catalogue does not know is one that it has renamed, if there is such a
/// one, or else one that is gone.
fn settle(entry: &TableEntry) {
    let stored = entry.table.indexes();
    for index in &stored {
        let known = |entry: &IndexEntry| entry.index.name == index.name;
        if entry.indexes.iter().any(known) {
            continue;
        }
        let is_new_name = |other: &&IndexEntry| {
            let renamed = TableIndex {
                name: other.index.name.clone(),
                ..index.clone()
            };
            renamed == other.index && !stored.iter().any(|stored| stored.name == renamed.name)
        };
        match entry.indexes.iter().find(is_new_name) {
            Some(renamed) => rename_index(&entry.table, &index.name, &renamed.index.name),
            None => forget_index(&entry.table, &index.name),
        }
    }
}

/// Gives an index, and the constraint that it keeps, another name.
///
/// # Errors
/// A relation or an index has the name already; there is no such index.
pub(super) fn rename(
    state: &mut CatalogState,
    index: &ResolvedName,
    to: &str,
) -> Result<(), SqlError> {
    let target = ResolvedName {
        schema: index.schema.clone(),
        name: to.to_owned(),
    };
    check_free(state, &target)?;
    let is_named = |entry: &IndexEntry| entry.index.name == index.name;
    let relations = &mut state.schema_mut(&index.schema)?.relations;
    for relation in relations.values_mut() {
        let Relation::Table(table) = relation else {
            continue;
        };
        if !table.all_indexes().any(|entry| is_named(&entry)) {
            continue;
        }
        let table = Arc::make_mut(table);
        let parts = &mut table.part_comments;
        follow(&mut parts.indexes, &index.name, to);
        follow(&mut parts.constraints, &index.name, to);
        if table.key_index().is_some_and(|key| is_named(&key)) {
            redefine(table, |schema| to.clone_into(&mut schema.primary_key_name));
        }
        for entry in table.indexes.iter_mut().filter(|entry| is_named(entry)) {
            to.clone_into(&mut entry.index.name);
        }
        return Ok(());
    }
    Err(crate::state::undefined_relation(&index.name))
}

/// ALTER INDEX … RENAME TO.
pub(super) fn alter(
    draft: &Draft,
    actor: &Actor,
    name: &QualifiedName,
    if_exists: bool,
    to: &str,
) -> Result<CommandResult, SqlError> {
    let done = CommandResult::new("ALTER INDEX");
    if let Ok((_, entry, _)) = locate(&*draft.load()?, actor, name) {
        draft.lock(entry.oid, LockMode::AccessExclusive)?;
    }
    let mut change = draft.change()?;
    let (place, entry, _) = match locate(&change.state, actor, name) {
        Err(error) if error.kind == ErrorKind::UndefinedObject => {
            let error = crate::state::undefined_relation(&name.to_string());
            if !if_exists {
                return Err(error);
            }
            return Ok(done.with_notices(vec![skipping(&error)]));
        }
        found => found?,
    };
    let index = ResolvedName {
        schema: place.schema,
        name: name.name.clone(),
    };
    rename(&mut change.state, &index, to)?;
    change.publish()?;
    draft.note(Effect::IndexRenamed(
        entry.table.clone(),
        index.name,
        to.to_owned(),
    ));
    Ok(done)
}

/// DROP INDEX.
pub(super) fn drop(
    draft: &Draft,
    actor: &Actor,
    names: &[QualifiedName],
    if_exists: bool,
) -> Result<CommandResult, SqlError> {
    for name in names {
        // What is wrong with it is said below.
        if let Ok((_, entry)) = find(&*draft.load()?, actor, name) {
            draft.lock(entry.oid, LockMode::AccessExclusive)?;
        }
    }
    let mut change = draft.change()?;
    let (mut notices, mut dropped) = (Vec::new(), Vec::new());
    for name in names {
        match find(&change.state, actor, name) {
            Ok((place, entry)) => {
                let Relation::Table(table) = relation_mut(&mut change.state, &place)? else {
                    continue;
                };
                let table = Arc::make_mut(table);
                table.indexes.retain(|index| index.index.name != name.name);
                table.settle_comments();
                dropped.push((entry, name.name.clone()));
            }
            Err(error) if if_exists && error.kind == ErrorKind::UndefinedObject => {
                notices.push(skipping(&error));
            }
            Err(error) => return Err(error),
        }
    }
    change.publish()?;
    for (entry, name) in dropped {
        draft.note(Effect::IndexDropped(Arc::clone(&entry.table), name));
    }
    Ok(CommandResult::new("DROP INDEX").with_notices(notices))
}

/// The table of an index that may be dropped.
fn find(
    state: &CatalogState,
    actor: &Actor,
    name: &QualifiedName,
) -> Result<(ResolvedName, Arc<TableEntry>), SqlError> {
    let (place, table, index) = locate(state, actor, name)?;
    if index.is_constraint {
        let constraint = format!("constraint {} on table {}", name.name, table.name);
        return Err(SqlError::new(
            ErrorKind::DependentObjectsStillExist,
            format!(
                "cannot drop index {} because {constraint} requires it",
                name.name
            ),
        )
        .with_hint(format!("You can drop {constraint} instead.")));
    }
    if let Some((other, key)) = referring_to(state, &table, index.oid) {
        return Err(SqlError::new(
            ErrorKind::DependentObjectsStillExist,
            format!(
                "cannot drop index {} because other objects depend on it",
                name.name
            ),
        )
        .with_detail(format!(
            "constraint {key} on table {other} depends on index {}",
            name.name
        ))
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too."));
    }
    Ok((place, table))
}

/// An index that the actor owns, and its table.
pub(super) fn locate(
    state: &CatalogState,
    actor: &Actor,
    name: &QualifiedName,
) -> Result<(ResolvedName, Arc<TableEntry>, IndexEntry), SqlError> {
    let schemas: Vec<&str> = match &name.schema {
        Some(schema) => vec![actor.schema_named(schema)],
        None => actor.path().collect(),
    };
    for schema in schemas {
        let Some(entry) = state.schemas.get(schema) else {
            continue;
        };
        for (table_name, relation) in &entry.relations {
            let place = ResolvedName {
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
            let is_named = |index: &IndexEntry| index.index.name == name.name;
            let Some(index) = table.all_indexes().find(is_named) else {
                continue;
            };
            actor.require_ownership(relation)?;
            return Ok((place, Arc::clone(table), index));
        }
    }
    Err(SqlError::new(
        ErrorKind::UndefinedObject,
        format!("index \"{name}\" does not exist"),
    ))
}

/// The first foreign key that refers to an index, with its table.
fn referring_to<'s>(
    state: &'s CatalogState,
    table: &TableEntry,
    index: IndexId,
) -> Option<(&'s str, &'s str)> {
    let mut referring = state.referring(table.oid);
    let (other, key) = referring.find(|(_, key)| key.index == index)?;
    Some((&other.name, &key.name))
}

fn table(
    state: &CatalogState,
    actor: &Actor,
    name: &QualifiedName,
) -> Result<(ResolvedName, Arc<TableEntry>), SqlError> {
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

fn columns(entry: &TableEntry, create: &CreateIndex) -> Result<Vec<usize>, SqlError> {
    let schema = entry.table.schema();
    let columns = create.columns.iter().map(
        |IndexColumn {
             name,
             operator_class,
         }| {
            let position = schema.position(name).ok_or_else(|| {
                SqlError::new(
                    ErrorKind::UndefinedColumn,
                    format!("column \"{name}\" does not exist"),
                )
            })?;
            if let Some(class) = operator_class {
                check_operator_class(create.kind, schema.columns[position].ty, class)?;
            }
            Ok::<_, SqlError>(position)
        },
    );
    let columns = columns.collect::<Result<Vec<_>, SqlError>>()?;
    let twice = (1..columns.len()).find(|&at| columns[..at].contains(&columns[at]));
    match twice {
        Some(at) => Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            format!(
                "an index on column \"{}\" twice is not supported",
                create.columns[at].name
            ),
        )),
        None => Ok(columns),
    }
}

/// Whether PostgreSQL has such a class for values of this type. All classes that it has compare
/// as indexes here do: texts by their bytes, other types in their one order.
fn check_operator_class(
    kind: IndexKind,
    ty: SqlType,
    class: &QualifiedName,
) -> Result<(), SqlError> {
    let is_known_schema = class
        .schema
        .as_deref()
        .is_none_or(|name| name == PG_CATALOG);
    let input = is_known_schema
        .then(|| operator_class::input_of(&class.name))
        .flatten()
        .ok_or_else(|| {
            SqlError::new(
                ErrorKind::UndefinedObject,
                format!("operator class \"{class}\" does not exist for access method \"{kind}\""),
            )
        })?;
    // A varchar is a text to operators.
    let of_column = match ty {
        SqlType::Varchar(_) => SqlType::Text.oid(),
        other => other.oid(),
    };
    if input == of_column {
        return Ok(());
    }
    let shown = if ty.is_text() { SqlType::Text } else { ty };
    Err(SqlError::new(
        ErrorKind::DatatypeMismatch,
        format!(
            "operator class \"{class}\" does not accept data type {}",
            shown.plain_name()
        ),
    ))
}

/// REINDEX: what it names is there and the actor's to index anew. Nothing need be done then.
///
/// # Errors
/// As PostgreSQL.
pub fn reindex(
    state: &CatalogState,
    actor: &Actor,
    target: &ReindexTarget,
) -> Result<(), SqlError> {
    match target {
        ReindexTarget::Index(name) => match locate(state, actor, name) {
            Ok((_, entry, _)) if actor.owns(&entry.owner) => Ok(()),
            Ok(_) => Err(not_owner("index", &name.name)),
            Err(error) if error.kind == ErrorKind::UndefinedObject => {
                Err(crate::state::undefined_relation(&name.to_string()))
            }
            // Its hint is for who wants to drop it.
            Err(error) => Err(SqlError {
                hint: None,
                ..error
            }),
        },
        ReindexTarget::Table(name) => {
            let relation = actor.resolve(state, name)?.relation;
            if !matches!(relation, Relation::Table(_)) {
                return Err(SqlError::new(
                    ErrorKind::WrongObjectType,
                    format!("\"{}\" is not a table or materialized view", name.name),
                ));
            }
            actor.require_ownership(relation)
        }
        ReindexTarget::Schema(name) => {
            let schema = state.schemas.get(actor.schema_named(name));
            let schema = schema.ok_or_else(|| crate::state::undefined_schema(name))?;
            actor.require_schema_ownership(schema)
        }
        ReindexTarget::Database(Some(name)) if *name != actor.database => Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "can only reindex the currently open database",
        )),
        ReindexTarget::Database(_) => match actor.superuser || actor.database_owner {
            true => Ok(()),
            false => Err(SqlError::new(
                ErrorKind::InsufficientPrivilege,
                format!("must be owner of database {}", actor.database),
            )),
        },
    }
}

/// `table_column_column_idx`, with a number behind it as long as it is taken.
fn free_name(state: &CatalogState, place: &ResolvedName, create: &CreateIndex) -> String {
    let columns = create.columns.iter().map(|column| column.name.as_str());
    let joined = columns.collect::<Vec<_>>().join("_");
    let name_of = |nth: u32| {
        let label = match nth {
            0 => "idx".to_owned(),
            nth => format!("idx{nth}"),
        };
        make_object_name(&place.name, Some(&joined), &label)
    };
    let is_free = |name: &String| {
        let place = ResolvedName {
            schema: place.schema.clone(),
            name: name.clone(),
        };
        !is_taken(state, &place)
    };
    let mut names = (0..).map(name_of);
    names.find(is_free).unwrap_or_default()
}
