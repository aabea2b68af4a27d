//! ALTER TABLE, VIEW and SCHEMA: names, owners and schemas. Rows stay as they are.
//!
//! A view is stored as text, so its text follows the names of what it uses. A change that would
//! break a view whose text cannot follow is refused.

use std::{collections::BTreeMap, sync::Arc};

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::{
    names::{QualifiedName, ResolvedName},
    utility::{RelationChange, SchemaObject},
};
use aerostat_txn::LockMode;
use aerostat_types::{ErrorKind, IndexId, SqlError, TableSchema};

use super::{
    CommandResult, Found, Judges,
    definition::check_column_name,
    expression, index,
    key::duplicate_constraint,
    layout,
    privilege::{not_owner, relation_mut},
    schema::check_schema_name,
    search_path::is_system_schema,
    sequence,
    views::{ColumnChange, Readers},
};
use crate::{
    actor::Actor,
    state::{
        CatalogState, Draft, Effect, IndexEntry, Relation, TableEntry, comments,
        duplicate_relation, duplicate_schema, is_temporary, undefined_schema,
    },
};

pub(super) fn execute(
    draft: &Draft,
    actor: &Actor,
    object: SchemaObject,
    name: &QualifiedName,
    if_exists: bool,
    change: &RelationChange,
    judges: &Judges<'_>,
) -> Result<CommandResult, SqlError> {
    let done = CommandResult::new(format!("ALTER {}", object.word().to_uppercase()));
    if let RelationChange::Parameters(parameters) = change {
        return match layout::alter(draft, actor, name, parameters, draft.cancel_token()) {
            Ok(notices) => Ok(done.with_notices(notices)),
            Err(error) if if_exists && error.kind == ErrorKind::UndefinedTable => {
                Ok(done.with_notices(vec![skipping(&error)]))
            }
            Err(error) => Err(error),
        };
    }
    if object == SchemaObject::Index {
        return match change {
            RelationChange::Rename(to) => index::alter(draft, actor, name, if_exists, to),
            _ => Err(SqlError::new(
                ErrorKind::Internal,
                "an index has nothing to change but its name",
            )),
        };
    }
    if object != SchemaObject::Schema {
        draft.lock_owned(actor, [name], LockMode::AccessExclusive)?;
    }
    let mut catalog = draft.change()?;
    let state = &mut catalog.state;
    let mut renamed = None;
    if object == SchemaObject::Schema {
        alter_schema(state, actor, &name.name, change, judges)?;
    } else {
        let Some(Found { place, relation }) = actor.find(state, name)? else {
            let error = crate::state::undefined_relation(&name.to_string());
            if !if_exists {
                return Err(error);
            }
            return Ok(done.with_notices(vec![skipping(&error)]));
        };
        // As in PostgreSQL, ALTER TABLE takes views and sequences too.
        if object != SchemaObject::Table && relation.kind() != object.word() {
            return Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!("\"{}\" is not a {}", name.name, object.word()),
            ));
        }
        actor.require_ownership(relation)?;
        alter_relation(state, actor, &place, change, judges)?;
        if let RelationChange::RenameConstraint { from, to } = change {
            renamed = Some((place, from, to));
        }
    }
    let renamed = renamed.and_then(|(place, from, to)| {
        let Some(Relation::Table(entry)) = catalog.state.relation(&place.schema, &place.name)
        else {
            return None;
        };
        let table = Arc::clone(&entry.table);
        Some(Effect::IndexRenamed(table, from.clone(), to.clone()))
    });
    catalog.publish()?;
    if let Some(renamed) = renamed {
        draft.note(renamed);
    }
    Ok(done)
}

/// What IF EXISTS and IF NOT EXISTS make of an error. Only the second says which it was.
pub(super) fn skipping(error: &SqlError) -> Notice {
    let is_missing = matches!(
        error.kind,
        ErrorKind::UndefinedTable | ErrorKind::UndefinedObject | ErrorKind::InvalidSchemaName
    );
    Notice {
        kind: (!is_missing).then_some(error.kind),
        ..Notice::new(
            NoticeSeverity::Notice,
            format!("{}, skipping", error.message),
        )
    }
}

fn alter_relation(
    state: &mut CatalogState,
    actor: &Actor,
    place: &ResolvedName,
    change: &RelationChange,
    judges: &Judges<'_>,
) -> Result<(), SqlError> {
    match change {
        RelationChange::Owner(owner) => {
            let before = relation_mut(state, place)?.owner();
            if before == owner.of(&actor.role) {
                return Ok(());
            }
            refuse_linked(state, place, &|name| {
                format!("cannot change owner of sequence \"{name}\"")
            })?;
            let owner = actor.new_owner(owner, judges.role_exists)?;
            let relation = relation_mut(state, place)?;
            relation.set_owner(&owner);
            let oid = relation.oid();
            sequence::change_owned(state, oid, |owned| owned.owner.clone_from(&owner));
            Ok(())
        }
        RelationChange::Rename(to) => {
            let target = ResolvedName {
                schema: place.schema.clone(),
                name: to.clone(),
            };
            move_relation(state, actor, place, target, judges)
        }
        RelationChange::SetSchema(schema) => {
            let schema = actor.schema_named(schema);
            if schema == place.schema {
                return Ok(());
            }
            refuse_linked(state, place, &|_| {
                "cannot move an owned sequence into another schema".to_owned()
            })?;
            if is_temporary(schema) || is_temporary(&place.schema) {
                return Err(SqlError::new(
                    ErrorKind::FeatureNotSupported,
                    "cannot move objects into or out of temporary schemas",
                ));
            }
            let target = ResolvedName {
                schema: schema.to_owned(),
                name: place.name.clone(),
            };
            let oid = relation_mut(state, place)?.oid();
            move_relation(state, actor, place, target, judges)?;
            let owned = state.owned_sequences(oid);
            let owned: Vec<String> = owned.map(|(_, entry)| entry.name.clone()).collect();
            for name in owned {
                let [from, to] = [place.schema.as_str(), schema].map(|schema| ResolvedName {
                    schema: schema.to_owned(),
                    name: name.clone(),
                });
                move_relation(state, actor, &from, to, judges)?;
            }
            Ok(())
        }
        RelationChange::RenameColumn { from, to } => {
            rename_column(state, actor, place, from, to, judges)
        }
        RelationChange::RenameConstraint { from, to } => rename_constraint(state, place, from, to),
        RelationChange::Parameters(_) | RelationChange::Actions(_) => Err(SqlError::new(
            ErrorKind::Internal,
            "a change of a table was taken for one of names",
        )),
    }
}

/// Refuses to take a sequence away from the column that it belongs to.
fn refuse_linked(
    state: &CatalogState,
    place: &ResolvedName,
    message: &dyn Fn(&str) -> String,
) -> Result<(), SqlError> {
    match state.relation(&place.schema, &place.name) {
        Some(Relation::Sequence(entry)) if entry.owned_by.is_some() => {
            Err(sequence::linked(state, entry, &message(&entry.name)))
        }
        _ => Ok(()),
    }
}

fn move_relation(
    state: &mut CatalogState,
    actor: &Actor,
    from: &ResolvedName,
    to: ResolvedName,
    judges: &Judges<'_>,
) -> Result<(), SqlError> {
    if is_system_schema(&to.schema) {
        return Err(SqlError::new(
            ErrorKind::InsufficientPrivilege,
            format!("cannot move objects into schema \"{}\"", to.schema),
        ));
    }
    let schema = state
        .schemas
        .get(&to.schema)
        .ok_or_else(|| undefined_schema(&to.schema))?;
    actor.require_creation(schema)?;
    check_free(state, &to)?;
    let before = state.clone();
    let moved = state.schema_mut(&from.schema)?.relations.remove(&from.name);
    let mut relation = moved.ok_or_else(|| crate::state::undefined_relation(&from.name))?;
    match &mut relation {
        Relation::Table(table) => {
            let table = Arc::make_mut(table);
            // Messages of storage name the table, too.
            redefine(table, |schema| schema.name.clone_from(&to.name));
            table.name.clone_from(&to.name);
        }
        Relation::View(view) => Arc::make_mut(view).name.clone_from(&to.name),
        Relation::Sequence(sequence) => Arc::make_mut(sequence).name.clone_from(&to.name),
    }
    let relations = &mut state.schema_mut(&to.schema)?.relations;
    relations.insert(to.name.clone(), relation);
    let moves = BTreeMap::from([(from.clone(), to)]);
    Readers::follow_moves(&before, actor, state, &moves, judges.views)
}

/// Changes a definition that the rows stay as they are under.
pub(super) fn redefine(table: &mut TableEntry, change: impl FnOnce(&mut TableSchema)) {
    let mut schema = TableSchema::clone(table.table.schema());
    change(&mut schema);
    table.table = table.table.redefined(Arc::new(schema));
}

/// # Errors
/// A relation or an index has the name already.
pub(super) fn check_free(state: &CatalogState, place: &ResolvedName) -> Result<(), SqlError> {
    if is_taken(state, place) {
        return Err(duplicate_relation(&place.name));
    }
    Ok(())
}

/// Whether a relation or an index has the name.
pub(super) fn is_taken(state: &CatalogState, place: &ResolvedName) -> bool {
    let Some(schema) = state.schemas.get(&place.schema) else {
        return false;
    };
    let has_index = |relation: &Relation| match relation {
        Relation::Table(entry) => entry
            .all_indexes()
            .any(|index| index.index.name == place.name),
        Relation::View(_) | Relation::Sequence(_) => false,
    };
    schema.relations.contains_key(&place.name) || schema.relations.values().any(has_index)
}

fn rename_column(
    state: &mut CatalogState,
    actor: &Actor,
    place: &ResolvedName,
    from: &str,
    to: &str,
    judges: &Judges<'_>,
) -> Result<(), SqlError> {
    let relation = relation_mut(state, place)?;
    let names: Vec<String> = relation
        .columns()
        .iter()
        .map(|column| column.name.clone())
        .collect();
    let Some(at) = names.iter().position(|name| name == from) else {
        return Err(SqlError::new(
            ErrorKind::UndefinedColumn,
            format!("column \"{from}\" does not exist"),
        ));
    };
    check_column_name(to)?;
    if names.iter().any(|name| name == to) {
        return Err(SqlError::new(
            ErrorKind::DuplicateColumn,
            format!(
                "column \"{to}\" of relation \"{}\" already exists",
                place.name
            ),
        ));
    }
    let readers = Readers::of(state, place, judges.views)?;
    match relation_mut(state, place)? {
        Relation::Table(table) => {
            rename_table_column(Arc::make_mut(table), at, from, to)?;
            let oid = table.oid;
            sequence::change_owned(state, oid, |owned| match &mut owned.owned_by {
                Some(owner) if owner.column == from => to.clone_into(&mut owner.column),
                _ => {}
            });
        }
        Relation::View(view) => {
            let view = Arc::make_mut(view);
            to.clone_into(&mut view.columns[at].name);
            comments::follow(&mut view.column_comments, from, to);
        }
        Relation::Sequence(_) => {
            return Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!("cannot rename columns of relation \"{}\"", place.name),
            )
            .with_detail("This operation is not supported for sequences."));
        }
    }
    let change = ColumnChange {
        before: &names,
        now: &|name| Some(if name == from { to } else { name }.to_owned()),
        renames: true,
    };
    readers.carry_over(actor, state, &change)
}

fn rename_table_column(
    table: &mut TableEntry,
    at: usize,
    from: &str,
    to: &str,
) -> Result<(), SqlError> {
    let mut checks = table.table.schema().checks.clone();
    for check in &mut checks {
        check.expression = expression::renamed(&check.expression, from, to)?;
    }
    redefine(table, |schema| {
        to.clone_into(&mut schema.columns[at].name);
        schema.checks = checks;
    });
    comments::follow(&mut table.column_comments, from, to);
    if let Some(identity) = table.identities.remove(from) {
        table.identities.insert(to.to_owned(), identity);
    }
    Ok(())
}

/// A primary key or UNIQUE is renamed with its index, which relations may not be called like.
fn rename_constraint(
    state: &mut CatalogState,
    place: &ResolvedName,
    from: &str,
    to: &str,
) -> Result<(), SqlError> {
    let Relation::Table(table) = relation_mut(state, place)? else {
        return Err(SqlError::new(
            ErrorKind::WrongObjectType,
            format!("\"{}\" is not a table", place.name),
        ));
    };
    let table = Arc::make_mut(table);
    let schema = table.table.schema();
    let is_check = schema.checks.iter().any(|check| check.name == from);
    let is_key = table.key_oid != IndexId::NONE && schema.primary_key_name == from;
    let is_foreign = table.foreign_keys.iter().any(|key| key.name == from);
    let is_unique = |index: &IndexEntry| index.is_constraint && index.index.name == from;
    if table.indexes.iter().any(is_unique) || is_key {
        let index = ResolvedName {
            schema: place.schema.clone(),
            name: from.to_owned(),
        };
        return index::rename(state, &index, to);
    }
    if !is_check && !is_foreign {
        return Err(SqlError::new(
            ErrorKind::UndefinedObject,
            format!(
                "constraint \"{from}\" for table \"{}\" does not exist",
                place.name
            ),
        ));
    }
    let unique = table
        .all_indexes()
        .any(|index| index.is_constraint && index.index.name == to);
    let check = schema.checks.iter().any(|check| check.name == to);
    if unique || check || table.foreign_keys.iter().any(|key| key.name == to) {
        return Err(duplicate_constraint(to, &place.name));
    }
    for key in table.foreign_keys.iter_mut().filter(|key| key.name == from) {
        to.clone_into(&mut key.name);
    }
    comments::follow(&mut table.part_comments.constraints, from, to);
    if is_check {
        redefine(table, |schema| {
            for check in schema.checks.iter_mut().filter(|check| check.name == from) {
                to.clone_into(&mut check.name);
            }
        });
    }
    Ok(())
}

fn alter_schema(
    state: &mut CatalogState,
    actor: &Actor,
    name: &str,
    change: &RelationChange,
    judges: &Judges<'_>,
) -> Result<(), SqlError> {
    if is_system_schema(name) || is_temporary(name) {
        return Err(not_owner("schema", name));
    }
    actor.require_schema_ownership(state.schema_mut(name)?)?;
    match change {
        RelationChange::Owner(owner) => {
            state.schema_mut(name)?.owner = actor.new_owner(owner, judges.role_exists)?;
            Ok(())
        }
        RelationChange::Rename(to) => rename_schema(state, actor, name, to, judges),
        RelationChange::RenameColumn { .. }
        | RelationChange::RenameConstraint { .. }
        | RelationChange::SetSchema(_)
        | RelationChange::Parameters(_)
        | RelationChange::Actions(_) => Err(SqlError::new(
            ErrorKind::Internal,
            "a schema has no columns, no schema and no parameters",
        )),
    }
}

fn rename_schema(
    state: &mut CatalogState,
    actor: &Actor,
    from: &str,
    to: &str,
    judges: &Judges<'_>,
) -> Result<(), SqlError> {
    check_schema_name(to)?;
    if is_system_schema(to) || state.schemas.contains_key(to) {
        return Err(duplicate_schema(to));
    }
    let before = state.clone();
    let mut entry = state
        .schemas
        .remove(from)
        .ok_or_else(|| undefined_schema(from))?;
    Arc::make_mut(&mut entry).name = to.to_owned();
    let at = |schema: &str, name: &String| ResolvedName {
        schema: schema.to_owned(),
        name: name.clone(),
    };
    let names = entry.relations.keys();
    // Views inside name their own schema, too.
    let moves = names.map(|name| (at(from, name), at(to, name))).collect();
    state.schemas.insert(to.to_owned(), entry);
    Readers::follow_moves(&before, actor, state, &moves, judges.views)
}
