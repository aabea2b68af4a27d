//! DROP TABLE, VIEW, SCHEMA and SEQUENCE, and TRUNCATE.

use std::{collections::BTreeSet, sync::Arc};

use aerostat_api::{Notice, NoticeSeverity};
use aerostat_sql::{
    grants::Privilege,
    names::{QualifiedName, ResolvedName},
    utility::SchemaObject,
};
use aerostat_txn::LockMode;
use aerostat_types::{ErrorKind, RelationId, SqlError, TableId};

use super::{
    CommandResult, Found,
    alter::skipping,
    dependency::Dependencies,
    privilege::{not_owner, relation_mut},
    search_path::is_system_schema,
    sequence::{self, NeedyDefault},
};
use crate::{
    actor::Actor,
    state::{CatalogState, Draft, Relation, TableEntry, is_temporary, undefined_schema},
};

/// How many dependants a message names, as in PostgreSQL.
const DEPENDANTS_SHOWN_MAX: usize = 100;

pub(super) fn execute(
    draft: &Draft,
    actor: &Actor,
    kind: SchemaObject,
    names: &[QualifiedName],
    if_exists: bool,
    cascade: bool,
) -> Result<CommandResult, SqlError> {
    match kind {
        SchemaObject::Schema => draft.lock_schemas(actor, names, LockMode::AccessExclusive)?,
        _ => draft.lock_owned(actor, names, LockMode::AccessExclusive)?,
    }
    let mut change = draft.change()?;
    let mut notices = Vec::new();
    let mut targets = Targets::default();
    for name in names {
        let found = match kind {
            SchemaObject::Schema => targets.add_schema(&change.state, actor, &name.name),
            _ => targets.add_relation(&change.state, actor, kind, name),
        };
        match found {
            Ok(()) => {}
            Err(error) if if_exists && is_missing(&error) => notices.push(skipping(&error)),
            Err(error) => return Err(error),
        }
    }
    notices.extend(targets.drop_dependants(&change.state, actor, cascade)?);
    targets.apply(&mut change.state);
    change.publish()?;
    let tag = format!("DROP {}", kind.word().to_uppercase());
    Ok(CommandResult::new(tag).with_notices(notices))
}

/// Drops relations with all that depends on them, whoever owns them, without a word.
///
/// # Errors
/// As [`Draft::change`], and those of publishing the change.
pub(super) fn quietly(
    draft: &Draft,
    actor: &Actor,
    places: impl IntoIterator<Item = ResolvedName>,
) -> Result<(), SqlError> {
    let mut change = draft.change()?;
    let mut targets = Targets {
        relations: places.into_iter().collect(),
        ..Targets::default()
    };
    targets.drop_dependants(&change.state, actor, true)?;
    targets.apply(&mut change.state);
    change.publish()
}

/// Whether the name leads to an index.
fn names_index(state: &CatalogState, actor: &Actor, name: &QualifiedName) -> bool {
    let schemas: Vec<&str> = match &name.schema {
        Some(schema) => vec![actor.schema_named(schema)],
        None => actor.path().collect(),
    };
    let is_named = |relation: &Relation| match relation {
        Relation::Table(entry) => entry
            .all_indexes()
            .any(|index| index.index.name == name.name),
        Relation::View(_) | Relation::Sequence(_) => false,
    };
    schemas.into_iter().any(|schema| {
        let schema = state.schemas.get(schema);
        schema.is_some_and(|schema| schema.relations.values().any(is_named))
    })
}

fn is_missing(error: &SqlError) -> bool {
    matches!(
        error.kind,
        ErrorKind::UndefinedTable | ErrorKind::InvalidSchemaName
    )
}

/// What is to go.
#[derive(Default)]
struct Targets {
    schemas: BTreeSet<String>,
    relations: BTreeSet<ResolvedName>,
    dependants: BTreeSet<ResolvedName>,
    /// Foreign keys of tables that stay, by their names.
    foreign_keys: BTreeSet<(ResolvedName, String)>,
    /// Columns of tables that stay whose defaults go.
    defaults: BTreeSet<(ResolvedName, String)>,
}

impl Targets {
    fn add_schema(
        &mut self,
        state: &CatalogState,
        actor: &Actor,
        name: &str,
    ) -> Result<(), SqlError> {
        if is_system_schema(name) {
            return Err(SqlError::new(
                ErrorKind::DependentObjectsStillExist,
                format!("cannot drop schema {name} because it is required by the database system"),
            ));
        }
        let schema = state
            .schemas
            .get(name)
            .ok_or_else(|| undefined_schema(name))?;
        if is_temporary(name) {
            return Err(not_owner("schema", name));
        }
        actor.require_schema_ownership(schema)?;
        self.schemas.insert(name.to_owned());
        Ok(())
    }

    fn add_relation(
        &mut self,
        state: &CatalogState,
        actor: &Actor,
        kind: SchemaObject,
        name: &QualifiedName,
    ) -> Result<(), SqlError> {
        let word = kind.word();
        let Some(Found { place, relation }) = actor.find(state, name)? else {
            return Err(if names_index(state, actor, name) {
                SqlError::new(
                    ErrorKind::WrongObjectType,
                    format!("\"{}\" is not a {word}", name.name),
                )
                .with_hint("Use DROP INDEX to remove an index.")
            } else {
                SqlError::new(
                    ErrorKind::UndefinedTable,
                    format!("{word} \"{name}\" does not exist"),
                )
            });
        };
        if relation.kind() != word {
            let (other, article) = (relation.kind(), "a");
            return Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!("\"{}\" is not {article} {word}", name.name),
            )
            .with_hint(format!(
                "Use DROP {} to remove a {other}.",
                other.to_uppercase()
            )));
        }
        let owns_schema = state
            .schemas
            .get(&place.schema)
            .is_some_and(|schema| actor.owns_schema(schema));
        if !owns_schema {
            actor.require_ownership(relation)?;
        }
        self.relations.insert(place);
        Ok(())
    }

    /// Adds what cannot stay without the targets, or refuses.
    fn drop_dependants(
        &mut self,
        state: &CatalogState,
        actor: &Actor,
        cascade: bool,
    ) -> Result<Option<Notice>, SqlError> {
        let mut lines = Vec::new();
        let mut gone = self.relations.clone();
        self.add_owned(state);
        gone.extend(self.dependants.iter().cloned());
        for schema in &self.schemas {
            for (name, relation) in state
                .schemas
                .get(schema)
                .into_iter()
                .flat_map(|entry| &entry.relations)
            {
                let place = ResolvedName {
                    schema: schema.clone(),
                    name: name.clone(),
                };
                if gone.insert(place.clone()) {
                    let object = format!("{} {}", relation.kind(), shown(state, actor, &place));
                    lines.push((object, format!("schema {schema}")));
                    self.dependants.insert(place);
                }
            }
        }
        self.refuse_identities(state, actor, &gone)?;
        let sequences =
            gone.iter()
                .filter_map(|place| match state.relation(&place.schema, &place.name) {
                    Some(Relation::Sequence(entry)) => Some(entry.oid),
                    _ => None,
                });
        for needy in sequence::needy_defaults(state, &sequences.collect()) {
            let NeedyDefault {
                table,
                column,
                sequence,
            } = needy;
            if gone.contains(&table) {
                continue;
            }
            lines.push((
                format!(
                    "default value for column {column} of table {}",
                    shown(state, actor, &table)
                ),
                format!("sequence {}", shown(state, actor, &sequence)),
            ));
            self.defaults.insert((table, column));
        }
        for (place, key, needed) in foreign_keys_to(state, &gone) {
            lines.push((
                format!("constraint {key} on table {}", shown(state, actor, &place)),
                format!("table {}", shown(state, actor, &needed)),
            ));
            self.foreign_keys.insert((place, key));
        }
        for (view, needed) in Dependencies::of(state)?.dependants(&gone) {
            let kind = state
                .relation(&needed.schema, &needed.name)
                .map_or("table", Relation::kind);
            lines.push((
                format!("view {}", shown(state, actor, &view)),
                format!("{kind} {}", shown(state, actor, &needed)),
            ));
            self.dependants.insert(view);
        }
        match (lines.is_empty(), cascade) {
            (true, _) => Ok(None),
            (false, true) => Ok(Some(cascade_notice(&lines))),
            (false, false) => Err(self.still_needed(state, actor, &lines)),
        }
    }

    /// Adds the sequences that belong to tables that go.
    fn add_owned(&mut self, state: &CatalogState) {
        let goes = |place: &ResolvedName| {
            self.relations.contains(place) || self.schemas.contains(&place.schema)
        };
        let mut owned = Vec::new();
        for (schema, entry) in state.sequences() {
            let Some(owner) = &entry.owned_by else {
                continue;
            };
            let Some((home, table)) = state.table(owner.table) else {
                continue;
            };
            let table = ResolvedName {
                schema: home.name.clone(),
                name: table.name.clone(),
            };
            let place = sequence::place_of(&schema.name, entry);
            if goes(&table) && !self.relations.contains(&place) {
                owned.push(place);
            }
        }
        self.dependants.extend(owned);
    }

    /// An identity column's sequence goes with the column, not alone.
    fn refuse_identities(
        &self,
        state: &CatalogState,
        actor: &Actor,
        gone: &BTreeSet<ResolvedName>,
    ) -> Result<(), SqlError> {
        for place in &self.relations {
            let Some(Relation::Sequence(entry)) = state.relation(&place.schema, &place.name) else {
                continue;
            };
            let identity = entry.owned_by.as_ref().filter(|owner| owner.is_identity);
            let Some((owner, (home, table))) =
                identity.and_then(|owner| Some((owner, state.table(owner.table)?)))
            else {
                continue;
            };
            let table = ResolvedName {
                schema: home.name.clone(),
                name: table.name.clone(),
            };
            if gone.contains(&table) {
                continue;
            }
            let column = format!(
                "column {} of table {}",
                owner.column,
                shown(state, actor, &table)
            );
            return Err(SqlError::new(
                ErrorKind::DependentObjectsStillExist,
                format!(
                    "cannot drop sequence {} because {column} requires it",
                    shown(state, actor, place)
                ),
            )
            .with_hint(format!("You can drop {column} instead.")));
        }
        Ok(())
    }

    fn still_needed(
        &self,
        state: &CatalogState,
        actor: &Actor,
        lines: &[(String, String)],
    ) -> SqlError {
        let mut targets = self
            .schemas
            .iter()
            .map(|schema| format!("schema {schema}"))
            .chain(self.relations.iter().map(|place| {
                let kind = state
                    .relation(&place.schema, &place.name)
                    .map_or("table", Relation::kind);
                format!("{kind} {}", shown(state, actor, place))
            }));
        let message = match (targets.next(), targets.next()) {
            (Some(only), None) => format!("cannot drop {only} because other objects depend on it"),
            _ => "cannot drop desired object(s) because other objects depend on them".to_owned(),
        };
        depended_on(message, lines)
    }

    fn apply(&self, state: &mut CatalogState) {
        for (place, name) in &self.foreign_keys {
            if let Ok(Relation::Table(entry)) = relation_mut(state, place) {
                let entry = Arc::make_mut(entry);
                entry.foreign_keys.retain(|key| key.name != *name);
                entry.settle_comments();
            }
        }
        for (table, column) in &self.defaults {
            sequence::remove_default(state, table, column);
        }
        for schema in &self.schemas {
            state.schemas.remove(schema);
        }
        for place in self.relations.iter().chain(&self.dependants) {
            if let Ok(schema) = state.schema_mut(&place.schema) {
                schema.relations.remove(&place.name);
            }
        }
    }
}

/// The foreign keys of other tables that refer to one of these: the table that has it, its
/// name, and what it refers to.
fn foreign_keys_to(
    state: &CatalogState,
    gone: &BTreeSet<ResolvedName>,
) -> Vec<(ResolvedName, String, ResolvedName)> {
    let place_of = |schema: &str, name: &str| ResolvedName {
        schema: schema.to_owned(),
        name: name.to_owned(),
    };
    let mut found = Vec::new();
    for (schema, relation, name) in state.relations() {
        let place = place_of(&schema.name, name);
        let Relation::Table(entry) = relation else {
            continue;
        };
        if gone.contains(&place) {
            continue;
        }
        for key in &entry.foreign_keys {
            let referenced = state.table(key.referenced);
            let needed = referenced.map(|(schema, table)| place_of(&schema.name, &table.name));
            if let Some(needed) = needed.filter(|needed| gone.contains(needed)) {
                found.push((place.clone(), key.name.clone(), needed));
            }
        }
    }
    found
}

/// The error for what cannot go; `lines` are objects and what each of them needs.
pub(super) fn depended_on(message: String, lines: &[(String, String)]) -> SqlError {
    let detail = listed(
        lines
            .iter()
            .map(|(object, needed)| format!("{object} depends on {needed}")),
    );
    SqlError::new(ErrorKind::DependentObjectsStillExist, message)
        .with_detail(detail)
        .with_hint("Use DROP ... CASCADE to drop the dependent objects too.")
}

/// Says what goes with what was dropped.
pub(super) fn cascade_notice(lines: &[(String, String)]) -> Notice {
    if let [(object, _)] = lines {
        return Notice::new(NoticeSeverity::Notice, format!("drop cascades to {object}"));
    }
    let message = format!("drop cascades to {} other objects", lines.len());
    let detail = listed(
        lines
            .iter()
            .map(|(object, _)| format!("drop cascades to {object}")),
    );
    Notice {
        detail: Some(detail),
        ..Notice::new(NoticeSeverity::Notice, message)
    }
}

fn listed(lines: impl ExactSizeIterator<Item = String>) -> String {
    let more = lines.len().saturating_sub(DEPENDANTS_SHOWN_MAX);
    let mut shown: Vec<String> = lines.take(DEPENDANTS_SHOWN_MAX).collect();
    if more > 0 {
        shown.push(format!("and {more} other objects"));
    }
    shown.join("\n")
}

/// A relation's name as a message shows it: with its schema unless the search path finds it without.
pub(super) fn shown(state: &CatalogState, actor: &Actor, place: &ResolvedName) -> String {
    let bare = QualifiedName {
        database: None,
        schema: None,
        name: place.name.clone(),
    };
    match actor.find(state, &bare) {
        Ok(Some(found)) if found.place == *place => place.name.clone(),
        _ => format!("{}.{}", place.schema, place.name),
    }
}

pub(super) fn truncate(
    draft: &Draft,
    actor: &Actor,
    names: &[QualifiedName],
    restarts_identity: bool,
    cascade: bool,
) -> Result<CommandResult, SqlError> {
    draft.lock_named(actor, names, LockMode::AccessExclusive, &|_, found| {
        let is_table = matches!(found.relation, Relation::Table(_));
        is_table && actor.require(found.relation, Privilege::Truncate).is_ok()
    })?;
    if cascade {
        lock_referring(draft, actor, names)?;
    }
    let mut change = draft.change()?;
    let mut tables = Vec::with_capacity(names.len());
    let mut notices = Vec::new();
    for name in names {
        let Found { place, relation } = actor.resolve(&change.state, name)?;
        let Relation::Table(entry) = relation else {
            return Err(SqlError::new(
                ErrorKind::WrongObjectType,
                format!("\"{}\" is not a table", name.name),
            ));
        };
        actor.require(relation, Privilege::Truncate)?;
        tables.push((place, Arc::clone(entry)));
    }
    let mut truncated: Vec<RelationId> = tables.iter().map(|(_, entry)| entry.oid).collect();
    if cascade {
        for (place, entry) in referring(&change.state, &truncated) {
            let message = format!("truncate cascades to table \"{}\"", entry.name);
            notices.push(Notice::new(NoticeSeverity::Notice, message));
            actor.require(&Relation::Table(Arc::clone(&entry)), Privilege::Truncate)?;
            tables.push((place, entry));
        }
        truncated = tables.iter().map(|(_, entry)| entry.oid).collect();
    }
    let mut emptied = Vec::with_capacity(tables.len());
    for (place, entry) in tables {
        // A new number in storage, so that the log's older rows stay the old table's.
        let id = TableId(change.state.allocate_oid()?);
        let indexes = entry.indexes.iter().map(|index| index.index.clone());
        let schema = Arc::clone(entry.table.schema());
        let (layout, indexes) = (entry.table.layout(), indexes.collect());
        let is_temporary = entry.table.is_temporary();
        let table = draft.create_table(id, schema, &layout, indexes, is_temporary)?;
        emptied.push((
            place,
            TableEntry {
                table,
                ..TableEntry::clone(&entry)
            },
        ));
    }
    for (_, entry) in &emptied {
        let mut referring = change.state.referring(entry.oid);
        if let Some((other, _)) = referring.find(|(other, _)| !truncated.contains(&other.oid)) {
            return Err(still_referred_to(entry, other));
        }
    }
    for (place, entry) in emptied {
        let oid = entry.oid;
        *relation_mut(&mut change.state, &place)? = Relation::Table(Arc::new(entry));
        if restarts_identity {
            sequence::restart_owned(draft, actor, &mut change.state, oid)?;
        }
    }
    change.publish()?;
    Ok(CommandResult::new("TRUNCATE TABLE").with_notices(notices))
}

/// The tables that are emptied with these, and where they are.
fn referring(
    state: &CatalogState,
    truncated: &[RelationId],
) -> Vec<(ResolvedName, Arc<TableEntry>)> {
    let referring = state.all_referring(truncated).into_iter();
    referring
        .filter_map(|entry| {
            let (schema, entry) = state.table(entry.oid)?;
            let place = ResolvedName {
                schema: schema.name.clone(),
                name: entry.name.clone(),
            };
            Some((place, Arc::clone(entry)))
        })
        .collect()
}

/// Locks the tables that refer to these, as far as the actor may empty them: after each wait
/// there may be others.
fn lock_referring(draft: &Draft, actor: &Actor, names: &[QualifiedName]) -> Result<(), SqlError> {
    let mut locked = BTreeSet::new();
    loop {
        let state = draft.load()?;
        let named = names
            .iter()
            .filter_map(|name| actor.find(&state, name).ok()?);
        let named: Vec<RelationId> = named.map(|found| found.relation.oid()).collect();
        let next = state.all_referring(&named).into_iter().find(|entry| {
            let relation = Relation::Table(Arc::clone(entry));
            !locked.contains(&entry.oid) && actor.may(&relation, Privilege::Truncate)
        });
        let Some(oid) = next.map(|entry| entry.oid) else {
            return Ok(());
        };
        draft.lock(oid, LockMode::AccessExclusive)?;
        locked.insert(oid);
    }
}

/// The error for emptying a table that rows of another may refer to.
fn still_referred_to(entry: &TableEntry, other: &TableEntry) -> SqlError {
    SqlError::new(
        ErrorKind::FeatureNotSupported,
        "cannot truncate a table referenced in a foreign key constraint",
    )
    .with_detail(format!(
        "Table \"{}\" references \"{}\".",
        other.name, entry.name
    ))
    .with_hint(format!(
        "Truncate table \"{}\" at the same time, or use TRUNCATE ... CASCADE.",
        other.name
    ))
}
