//! Sequences: CREATE, ALTER, sequences that belong to columns, and their dependants.
//!
//! A default names sequences by number (`aerostat_sql::sequence_text`), so nothing has to follow
//! when one is renamed or moved, and dependencies are read from the texts of defaults.

use std::{collections::BTreeSet, sync::Arc};

use aerostat_sql::{
    names::{QualifiedName, ResolvedName, split_name},
    sequence_options::Options,
    sequence_text as text,
    utility::{OwnerColumn, SequenceOptions},
};
use aerostat_txn::LockMode;
use aerostat_types::{ErrorKind, RelationId, SqlError, SqlType, TableId};

use super::{
    CommandResult, Found,
    alter::{check_free, redefine, skipping},
    expression,
    key::unused,
    privilege::relation_mut,
};
use crate::{
    actor::Actor,
    sequence::{Definition, not_a_sequence},
    state::{
        CatalogState, Draft, OwnedBy, Relation, SequenceEntry, TableEntry, duplicate_relation,
        is_temporary, undefined_relation,
    },
};

/// A sequence that a column is to have.
#[derive(Clone, Debug)]
pub(super) struct Wanted {
    /// The column.
    pub(super) column: String,
    /// Its type.
    pub(super) ty: SqlType,
    /// Of an identity column whether ALWAYS; `None` of a serial one.
    pub(super) is_always: Option<bool>,
    /// What it is to be called; `None` by its table and column.
    pub(super) name: Option<QualifiedName>,
    /// What is said of it.
    pub(super) options: Options,
}

/// CREATE SEQUENCE, at a place where the actor may create.
pub(super) fn create(
    draft: &Draft,
    actor: &Actor,
    place: ResolvedName,
    if_not_exists: bool,
    options: &SequenceOptions,
) -> Result<CommandResult, SqlError> {
    let done = CommandResult::new("CREATE SEQUENCE");
    let mut change = draft.change()?;
    if let Err(error) = check_free(&change.state, &place) {
        return match if_not_exists {
            true => Ok(done.with_notices(vec![skipping(&error)])),
            false => Err(error),
        };
    }
    let (definition, start) = Definition::create(&options.numbers, SqlType::BigInt)?;
    let number = change.state.allocate_oid()?;
    let mut entry = SequenceEntry {
        oid: RelationId(number),
        name: place.name.clone(),
        owner: actor.role.clone(),
        definition,
        counter: draft.create_counter(TableId(number), start, is_temporary(&place.schema))?,
        owned_by: None,
        comment: None,
        grants: Vec::new(),
    };
    if let Some(Some(owner)) = &options.owned_by {
        entry.owned_by = Some(owner_of(&change.state, actor, &place, &entry, owner)?);
    }
    let relations = &mut change.state.schema_mut(&place.schema)?.relations;
    relations.insert(place.name, Relation::Sequence(Arc::new(entry)));
    change.publish()?;
    Ok(done)
}

/// ALTER SEQUENCE, but for its name, owner and schema.
pub(super) fn alter(
    draft: &Draft,
    actor: &Actor,
    name: &QualifiedName,
    if_exists: bool,
    options: &SequenceOptions,
) -> Result<CommandResult, SqlError> {
    let done = CommandResult::new("ALTER SEQUENCE");
    // Nobody takes numbers until it is committed, so it goes on where it stands.
    draft.lock_owned(actor, [name], LockMode::ShareRowExclusive)?;
    let mut change = draft.change()?;
    let Some(Found { place, relation }) = actor.find(&change.state, name)? else {
        let error = undefined_relation(&name.to_string());
        return match if_exists {
            true => Ok(done.with_notices(vec![skipping(&error)])),
            false => Err(error),
        };
    };
    let Relation::Sequence(before) = relation else {
        return Err(not_a_sequence(&name.name));
    };
    actor.require_ownership(relation)?;
    let mut entry = SequenceEntry::clone(before);
    if options.numbers != Options::default() {
        let position = entry.counter.position()?;
        let (definition, start) = entry.definition.altered(&options.numbers, position)?;
        let id = TableId(change.state.allocate_oid()?);
        entry.definition = definition;
        entry.counter = draft.create_counter(id, start, entry.counter.is_temporary())?;
    }
    if let Some(owned_by) = &options.owned_by {
        if entry
            .owned_by
            .as_ref()
            .is_some_and(|owner| owner.is_identity)
        {
            return Err(linked(
                &change.state,
                &entry,
                "cannot change ownership of identity sequence",
            ));
        }
        entry.owned_by = match owned_by {
            Some(owner) => Some(owner_of(&change.state, actor, &place, &entry, owner)?),
            None => None,
        };
    }
    *relation_mut(&mut change.state, &place)? = Relation::Sequence(Arc::new(entry));
    change.publish()?;
    Ok(done)
}

/// The column that OWNED BY names, which the sequence may belong to.
fn owner_of(
    state: &CatalogState,
    actor: &Actor,
    place: &ResolvedName,
    entry: &SequenceEntry,
    owner: &OwnerColumn,
) -> Result<OwnedBy, SqlError> {
    let found = actor.resolve(state, &owner.table)?;
    let Relation::Table(table) = found.relation else {
        let message = format!(
            "sequence cannot be owned by relation \"{}\"",
            found.place.name
        );
        return Err(SqlError::new(ErrorKind::WrongObjectType, message));
    };
    let message = if table.owner != entry.owner {
        "sequence must have same owner as table it is linked to"
    } else if found.place.schema != place.schema {
        "sequence must be in same schema as table it is linked to"
    } else if table.table.schema().position(&owner.column).is_none() {
        return Err(SqlError::new(
            ErrorKind::UndefinedColumn,
            format!(
                "column \"{}\" of relation \"{}\" does not exist",
                owner.column, table.name
            ),
        ));
    } else {
        return Ok(OwnedBy {
            table: table.oid,
            column: owner.column.clone(),
            is_identity: false,
        });
    };
    Err(SqlError::new(
        ErrorKind::ObjectNotInPrerequisiteState,
        message,
    ))
}

/// The error for what cannot be done to a sequence alone that belongs to a column.
pub(super) fn linked(state: &CatalogState, entry: &SequenceEntry, message: &str) -> SqlError {
    let error = SqlError::new(ErrorKind::FeatureNotSupported, message);
    let owner = entry.owned_by.as_ref();
    match owner.and_then(|owner| state.table(owner.table)) {
        Some((_, table)) => error.with_detail(format!(
            "Sequence \"{}\" is linked to table \"{}\".",
            entry.name, table.name
        )),
        None => error,
    }
}

/// The table whose columns are to have sequences.
pub(super) struct Owner<'a> {
    pub(super) oid: RelationId,
    pub(super) name: &'a str,
    pub(super) role: &'a str,
    pub(super) is_temporary: bool,
}

/// Makes the sequences of a table's columns, which nobody sees yet. `taken` says which names
/// the schema's relations have, those of the table and its indexes too.
pub(super) fn make_wanted(
    draft: &Draft,
    state: &CatalogState,
    table: &Owner<'_>,
    wanted: &[Wanted],
    taken: &dyn Fn(&str) -> bool,
) -> Result<Vec<Arc<SequenceEntry>>, SqlError> {
    let mut made: Vec<Arc<SequenceEntry>> = Vec::with_capacity(wanted.len());
    for Wanted {
        column,
        ty,
        is_always,
        name,
        options,
    } in wanted
    {
        let (definition, start) = Definition::create(options, *ty)?;
        let is_taken = |name: &str| taken(name) || made.iter().any(|other| other.name == name);
        let name = match name {
            Some(name) if is_taken(&name.name) => return Err(duplicate_relation(&name.name)),
            Some(name) => name.name.clone(),
            None => unused(table.name, Some(column), "seq", &is_taken),
        };
        let number = state.allocate_oid()?;
        made.push(Arc::new(SequenceEntry {
            oid: RelationId(number),
            name,
            owner: table.role.to_owned(),
            definition,
            counter: draft.create_counter(TableId(number), start, table.is_temporary)?,
            owned_by: Some(OwnedBy {
                table: table.oid,
                column: column.clone(),
                is_identity: is_always.is_some(),
            }),
            comment: None,
            grants: Vec::new(),
        }));
    }
    Ok(made)
}

/// A default of a table at this place with numbers in the place of the names of sequences.
///
/// # Errors
/// A name leads nowhere, or to what will be gone before the table.
pub(super) fn bound_default(
    state: &CatalogState,
    actor: &Actor,
    table: &ResolvedName,
    default: &str,
) -> Result<String, SqlError> {
    if !default.contains("val") {
        return Ok(default.to_owned());
    }
    let mut expression = expression::parse(default)?;
    text::bind_names(&mut expression, &|name| {
        if let Ok(number) = name.trim().parse() {
            return Ok(RelationId(number));
        }
        let invalid = || SqlError::new(ErrorKind::InvalidName, "invalid name syntax");
        let parts = split_name(name.trim()).ok_or_else(invalid)?;
        let name = QualifiedName::from_parts(parts)?;
        Ok(actor.resolve(state, &name)?.relation.oid())
    })?;
    let bound = expression.to_string();
    let mut sequences = text::sequences_in(&bound).into_iter();
    let is_short_lived = |oid: RelationId| {
        let found = state.sequence(oid);
        found.is_some_and(|(_, entry)| entry.counter.is_temporary())
    };
    if !is_temporary(&table.schema) && sequences.any(is_short_lived) {
        return Err(SqlError::new(
            ErrorKind::FeatureNotSupported,
            "defaults of permanent tables over temporary sequences are not supported",
        ));
    }
    Ok(bound)
}

/// A default of a table that stays which needs a sequence that goes.
pub(super) struct NeedyDefault {
    pub(super) table: ResolvedName,
    pub(super) column: String,
    pub(super) sequence: ResolvedName,
}

/// The defaults that need one of these sequences.
pub(super) fn needy_defaults(
    state: &CatalogState,
    sequences: &BTreeSet<RelationId>,
) -> Vec<NeedyDefault> {
    let mut found = Vec::new();
    if sequences.is_empty() {
        return found;
    }
    for (schema, relation, name) in state.relations() {
        let Relation::Table(entry) = relation else {
            continue;
        };
        for column in &entry.table.schema().columns {
            let named = column.default.as_deref().map(text::sequences_in);
            let needed = named.and_then(|named| named.intersection(sequences).next().copied());
            let Some((home, sequence)) = needed.and_then(|oid| state.sequence(oid)) else {
                continue;
            };
            found.push(NeedyDefault {
                table: ResolvedName {
                    schema: schema.name.clone(),
                    name: name.to_owned(),
                },
                column: column.name.clone(),
                sequence: ResolvedName {
                    schema: home.name.clone(),
                    name: sequence.name.clone(),
                },
            });
        }
    }
    found
}

/// Takes a default away whose sequence goes.
pub(super) fn remove_default(state: &mut CatalogState, table: &ResolvedName, column: &str) {
    if let Ok(Relation::Table(entry)) = relation_mut(state, table) {
        let entry: &mut TableEntry = Arc::make_mut(entry);
        redefine(entry, |schema| {
            if let Some(at) = schema.position(column) {
                schema.columns[at].default = None;
            }
        });
    }
}

/// Changes the sequences that belong to columns of a table.
pub(super) fn change_owned(
    state: &mut CatalogState,
    table: RelationId,
    mut change: impl FnMut(&mut SequenceEntry),
) {
    let owned = state.owned_sequences(table);
    let places: Vec<ResolvedName> = owned
        .map(|(schema, entry)| place_of(&schema.name, entry))
        .collect();
    for place in places {
        if let Ok(Relation::Sequence(entry)) = relation_mut(state, &place) {
            change(Arc::make_mut(entry));
        }
    }
}

pub(super) fn place_of(schema: &str, entry: &SequenceEntry) -> ResolvedName {
    ResolvedName {
        schema: schema.to_owned(),
        name: entry.name.clone(),
    }
}

/// Lets the sequences that belong to columns of a table begin anew, as TRUNCATE … RESTART
/// IDENTITY does.
pub(super) fn restart_owned(
    draft: &Draft,
    actor: &Actor,
    state: &mut CatalogState,
    table: RelationId,
) -> Result<(), SqlError> {
    let owned: Vec<(ResolvedName, Arc<SequenceEntry>)> = state
        .owned_sequences(table)
        .map(|(schema, entry)| (place_of(&schema.name, entry), Arc::clone(entry)))
        .collect();
    for (place, entry) in owned {
        actor.require_ownership(&Relation::Sequence(Arc::clone(&entry)))?;
        draft.lock(entry.oid, LockMode::AccessExclusive)?;
        let id = TableId(state.allocate_oid()?);
        let (start, is_temporary) = (entry.definition.first(), entry.counter.is_temporary());
        let counter = draft.create_counter(id, start, is_temporary)?;
        *relation_mut(state, &place)? = Relation::Sequence(Arc::new(SequenceEntry {
            counter,
            ..SequenceEntry::clone(&entry)
        }));
    }
    Ok(())
}
