//! Temporary relations: which are temporary, where they are created, and what becomes of them at
//! COMMIT.

use std::{collections::BTreeMap, sync::Arc};

use aerostat_sql::names::{QualifiedName, ResolvedName};
use aerostat_types::{ErrorKind, SchemaId, SqlError};

use super::{drop, search_path::is_system_schema};
use crate::{
    actor::Actor,
    state::{
        CatalogState, Draft, OnCommit, Relation, SchemaEntry, TableEntry, is_temporary,
        undefined_schema,
    },
};

/// Whether a relation to be made is temporary: it is said to be, it is put into the session's
/// schema of such, or the search path puts it there.
///
/// # Errors
/// It is said to be, and put elsewhere.
pub(super) fn is_wanted(
    state: &CatalogState,
    actor: &Actor,
    name: &QualifiedName,
    said: bool,
) -> Result<bool, SqlError> {
    let is_own = |schema: &str| actor.temporary.as_deref() == Some(schema);
    let Some(written) = &name.schema else {
        let mut path = actor.written_path();
        let first = path.find(|schema| is_own(schema) || state.schemas.contains_key(*schema));
        return Ok(said || first.is_some_and(is_own));
    };
    if is_own(actor.schema_named(written)) {
        return Ok(true);
    }
    if said && !is_system_schema(written) && !state.schemas.contains_key(written) {
        return Err(undefined_schema(written));
    }
    if said {
        return Err(SqlError::new(
            ErrorKind::InvalidTableDefinition,
            "cannot create temporary relation in non-temporary schema",
        ));
    }
    Ok(false)
}

/// The place of a relation to be made, which may be created there. The session's schema of
/// temporary relations is made with the first of them.
///
/// # Errors
/// As [`Actor::creation_schema`] and [`is_wanted`].
pub(super) fn creation_place(
    draft: &Draft,
    actor: &Actor,
    name: &QualifiedName,
    said: bool,
) -> Result<ResolvedName, SqlError> {
    actor.require_this_database(name)?;
    let state = draft.load()?;
    let schema = match is_wanted(&state, actor, name, said)? {
        true => make_schema(draft, actor)?,
        false => actor.creation_schema(&state, name)?.name.clone(),
    };
    Ok(ResolvedName {
        schema,
        name: name.name.clone(),
    })
}

fn make_schema(draft: &Draft, actor: &Actor) -> Result<String, SqlError> {
    let name = actor.temporary.clone().ok_or_else(|| {
        SqlError::new(
            ErrorKind::Internal,
            "a temporary relation came to be without a session",
        )
    })?;
    let mut change = draft.change()?;
    if !change.state.schemas.contains_key(&name) {
        let entry = SchemaEntry {
            oid: SchemaId(change.state.allocate_oid()?),
            name: name.clone(),
            owner: actor.role.clone(),
            relations: BTreeMap::new(),
            comment: None,
            grants: Vec::new(),
        };
        let schemas = &mut change.state.schemas;
        schemas.insert(name.clone(), Arc::new(entry));
        change.publish()?;
    }
    Ok(name)
}

/// Does what ON COMMIT says, before a transaction's definitions are committed. Rows that go
/// with a transaction go after it.
///
/// # Errors
/// Rows that stay would refer to rows that go.
pub fn before_commit(draft: &Draft, actor: &Actor) -> Result<(), SqlError> {
    let state = draft.load()?;
    for (_, entry) in temporary_tables(&state, OnCommit::DeleteRows) {
        let mut referring = state.referring(entry.oid);
        let other = referring.find(|(other, _)| other.on_commit != OnCommit::DeleteRows);
        if let Some((other, _)) = other {
            return Err(SqlError::new(
                ErrorKind::FeatureNotSupported,
                "unsupported ON COMMIT and foreign key combination",
            )
            .with_detail(format!(
                "Table \"{}\" references \"{}\", but they do not have the same ON COMMIT setting.",
                other.name, entry.name
            )));
        }
    }
    let dropped: Vec<ResolvedName> = temporary_tables(&state, OnCommit::Drop)
        .map(|(place, _)| place)
        .collect();
    if dropped.is_empty() {
        return Ok(());
    }
    drop::quietly(draft, actor, dropped)
}

/// Drops all temporary relations, as DISCARD TEMP does.
///
/// # Errors
/// As [`Draft::change`].
pub fn drop_temporaries(draft: &Draft, actor: &Actor) -> Result<(), SqlError> {
    let state = draft.load()?;
    let Some(schema) = state.temporary() else {
        return Ok(());
    };
    let place = |name: &String| ResolvedName {
        schema: schema.name.clone(),
        name: name.clone(),
    };
    drop::quietly(draft, actor, schema.relations.keys().map(place))
}

fn temporary_tables(
    state: &CatalogState,
    on_commit: OnCommit,
) -> impl Iterator<Item = (ResolvedName, &Arc<TableEntry>)> {
    let schema = state.temporary();
    let relations = schema.into_iter().flat_map(|schema| {
        let relations = schema.relations.iter();
        relations.map(move |(name, relation)| (&schema.name, name, relation))
    });
    relations.filter_map(move |(schema, name, relation)| match relation {
        Relation::Table(entry) if entry.on_commit == on_commit => {
            let place = ResolvedName {
                schema: schema.clone(),
                name: name.clone(),
            };
            Some((place, entry))
        }
        _ => None,
    })
}

/// Refuses a foreign key between a temporary table and one that is none.
///
/// # Errors
/// As PostgreSQL.
pub(super) fn check_reference(
    own: &ResolvedName,
    referenced: &ResolvedName,
) -> Result<(), SqlError> {
    let kind = match (is_temporary(&own.schema), is_temporary(&referenced.schema)) {
        (true, false) => "temporary",
        (false, true) => "permanent",
        _ => return Ok(()),
    };
    Err(SqlError::new(
        ErrorKind::InvalidTableDefinition,
        format!("constraints on {kind} tables may reference only {kind} tables"),
    ))
}
