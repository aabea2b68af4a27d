//! ALTER TABLE, VIEW and SCHEMA: names, owners and places. Rows stay as they are.
//!
//! A view is kept as text, so what it names cannot be renamed under it; that
//! is refused rather than left to break the view.

use std::{collections::BTreeSet, sync::Arc};

use aerostat_types::{ErrorKind, SqlError};

use super::{
    Actor, CommandResult, Found, RoleExists,
    dependency::Dependencies,
    drop::shown,
    layout,
    names::{Place, QualifiedName, is_system_schema},
    privilege::{not_owner, relation_mut},
    schema::{check_schema_name, duplicate_schema},
};
use crate::{
    api::{Notice, NoticeSeverity},
    catalog::{CatalogState, Relation, node::Database, undefined_schema},
    utility::{RelationChange, SchemaObject},
};

pub(super) fn execute(
    database: &Database,
    actor: &Actor,
    object: SchemaObject,
    name: &QualifiedName,
    if_exists: bool,
    change: &RelationChange,
    role_exists: RoleExists<'_>,
) -> Result<CommandResult, SqlError> {
    let done = CommandResult::new(format!("ALTER {}", object.word().to_uppercase()));
    if let RelationChange::Parameters(parameters) = change {
        return match layout::alter(database, actor, name, parameters) {
            Ok(notices) => Ok(done.with_notices(notices)),
            Err(error) if if_exists && error.kind == ErrorKind::UndefinedTable => {
                Ok(done.with_notices(vec![skipping(&error)]))
            }
            Err(error) => Err(error),
        };
    }
    let mut catalog = database.catalog.change();
    let state = &mut catalog.state;
    if object == SchemaObject::Schema {
        alter_schema(state, actor, &name.name, change, role_exists)?;
    } else {
        let Some(Found { place, relation }) = actor.find(state, name)? else {
            let error = crate::catalog::undefined_relation(&name.to_string());
            if !if_exists {
                return Err(error);
            }
            return Ok(done.with_notices(vec![skipping(&error)]));
        };
        // As in PostgreSQL, ALTER TABLE takes views too.
        if object == SchemaObject::View && relation.kind() != "view" {
            return Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!("\"{}\" is not a view", name.name),
            ));
        }
        actor.require_ownership(relation)?;
        alter_relation(state, actor, &place, change, role_exists)?;
    }
    catalog.publish()?;
    Ok(done)
}

fn skipping(error: &SqlError) -> Notice {
    Notice {
        kind: Some(error.kind),
        ..Notice::new(
            NoticeSeverity::Notice,
            format!("{}, skipping", error.message),
        )
    }
}

fn alter_relation(
    state: &mut CatalogState,
    actor: &Actor,
    place: &Place,
    change: &RelationChange,
    role_exists: RoleExists<'_>,
) -> Result<(), SqlError> {
    match change {
        RelationChange::Owner(owner) => {
            let owner = actor.new_owner(owner, role_exists)?;
            relation_mut(state, place)?.set_owner(&owner);
            Ok(())
        }
        RelationChange::Rename(to) => {
            let target = Place {
                schema: place.schema.clone(),
                name: to.clone(),
            };
            move_relation(state, actor, place, target)
        }
        RelationChange::SetSchema(schema) => {
            if *schema == place.schema {
                return Ok(());
            }
            let target = Place {
                schema: schema.clone(),
                name: place.name.clone(),
            };
            move_relation(state, actor, place, target)
        }
        RelationChange::RenameColumn { from, to } => rename_column(state, actor, place, from, to),
        RelationChange::Parameters(_) => Err(SqlError::new(
            ErrorKind::Internal,
            "parameters are for tables",
        )),
    }
}

fn move_relation(
    state: &mut CatalogState,
    actor: &Actor,
    from: &Place,
    to: Place,
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
    require_no_dependants(
        state,
        actor,
        &BTreeSet::from([from.clone()]),
        "renaming or moving",
    )?;
    let moved = state.schema_mut(&from.schema)?.relations.remove(&from.name);
    let mut relation = moved.ok_or_else(|| crate::catalog::undefined_relation(&from.name))?;
    match &mut relation {
        Relation::Table(table) => Arc::make_mut(table).name.clone_from(&to.name),
        Relation::View(view) => Arc::make_mut(view).name.clone_from(&to.name),
    }
    state
        .schema_mut(&to.schema)?
        .relations
        .insert(to.name, relation);
    Ok(())
}

/// # Errors
/// A relation or an index has the name already.
pub(super) fn check_free(state: &CatalogState, place: &Place) -> Result<(), SqlError> {
    if is_taken(state, place) {
        return Err(SqlError::new(
            ErrorKind::DuplicateTable,
            format!("relation \"{}\" already exists", place.name),
        ));
    }
    Ok(())
}

/// Whether a relation or an index has the name.
pub(super) fn is_taken(state: &CatalogState, place: &Place) -> bool {
    let Some(schema) = state.schemas.get(&place.schema) else {
        return false;
    };
    let has_index = |relation: &Relation| match relation {
        Relation::Table(entry) => entry
            .all_indexes()
            .any(|index| index.index.name == place.name),
        Relation::View(_) => false,
    };
    schema.relations.contains_key(&place.name) || schema.relations.values().any(has_index)
}

fn require_no_dependants(
    state: &CatalogState,
    actor: &Actor,
    targets: &BTreeSet<Place>,
    what: &str,
) -> Result<(), SqlError> {
    let dependants = Dependencies::of(state)?.dependants(targets);
    let Some((view, needed)) = dependants.first() else {
        return Ok(());
    };
    let (view, needed) = (shown(state, actor, view), shown(state, actor, needed));
    Err(SqlError::new(
        ErrorKind::FeatureNotSupported,
        format!("{what} what views depend on is not supported"),
    )
    .with_detail(format!("view {view} depends on {needed}"))
    .with_hint("Drop the view, and create it again afterwards."))
}

fn rename_column(
    state: &mut CatalogState,
    actor: &Actor,
    place: &Place,
    from: &str,
    to: &str,
) -> Result<(), SqlError> {
    let relation = relation_mut(state, place)?;
    let Some(at) = relation
        .columns()
        .iter()
        .position(|column| column.name == from)
    else {
        return Err(SqlError::new(
            ErrorKind::UndefinedColumn,
            format!("column \"{from}\" does not exist"),
        ));
    };
    if relation.columns().iter().any(|column| column.name == to) {
        return Err(SqlError::new(
            ErrorKind::DuplicateColumn,
            format!(
                "column \"{to}\" of relation \"{}\" already exists",
                place.name
            ),
        ));
    }
    if !matches!(relation, Relation::View(_)) {
        return Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "renaming a table's column is not supported",
        )
        .with_hint("Create a view with the name you want."));
    }
    require_no_dependants(
        state,
        actor,
        &BTreeSet::from([place.clone()]),
        "renaming the columns of",
    )?;
    if let Relation::View(view) = relation_mut(state, place)? {
        Arc::make_mut(view).columns[at].name = to.to_owned();
    }
    Ok(())
}

fn alter_schema(
    state: &mut CatalogState,
    actor: &Actor,
    name: &str,
    change: &RelationChange,
    role_exists: RoleExists<'_>,
) -> Result<(), SqlError> {
    if is_system_schema(name) {
        return Err(not_owner("schema", name));
    }
    actor.require_schema_ownership(state.schema_mut(name)?)?;
    match change {
        RelationChange::Owner(owner) => {
            state.schema_mut(name)?.owner = actor.new_owner(owner, role_exists)?;
            Ok(())
        }
        RelationChange::Rename(to) => rename_schema(state, actor, name, to),
        RelationChange::RenameColumn { .. }
        | RelationChange::SetSchema(_)
        | RelationChange::Parameters(_) => Err(SqlError::new(
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
) -> Result<(), SqlError> {
    check_schema_name(to)?;
    if is_system_schema(to) || state.schemas.contains_key(to) {
        return Err(duplicate_schema(to));
    }
    let inside = state
        .schemas
        .get(from)
        .into_iter()
        .flat_map(|schema| schema.relations.keys());
    let inside: BTreeSet<Place> = inside
        .map(|name| Place {
            schema: from.to_owned(),
            name: name.clone(),
        })
        .collect();
    // Views inside name their own schema, too.
    for place in &inside {
        require_no_dependants(
            state,
            actor,
            &BTreeSet::from([place.clone()]),
            "renaming the schema of",
        )?;
    }
    let mut entry = state
        .schemas
        .remove(from)
        .ok_or_else(|| undefined_schema(from))?;
    Arc::make_mut(&mut entry).name = to.to_owned();
    state.schemas.insert(to.to_owned(), entry);
    Ok(())
}
