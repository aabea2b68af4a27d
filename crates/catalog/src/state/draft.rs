//! The draft of a defining statement: the state that it changes, and the locks that it takes.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use aerostat_storage::Table;
use aerostat_txn::{CancelToken, LockMode, LockTag};
use aerostat_types::{
    IndexId, Layout, RelationId, SchemaId, SqlError, TableId, TableIndex, TableSchema,
};

use super::{
    CatalogState, Relation, SchemaEntry,
    definitions::{Definitions, Effect},
    duplicate_relation, duplicate_schema,
    merge::{is_same, is_same_outside, merge},
    name_tag, relation_tag, schema_tag,
};
use crate::{
    failure::from_storage,
    sequence::{Counter, Position},
};

/// One statement's way to what its transaction defines.
pub struct Draft {
    definitions: Arc<Definitions>,
    cancel: CancelToken,
    lock_timeout: Option<Duration>,
    takes_locks: bool,
}

impl Draft {
    /// For a statement that the token stops while it waits for locks.
    pub fn new(
        definitions: &Arc<Definitions>,
        cancel: CancelToken,
        lock_timeout: Option<Duration>,
    ) -> Self {
        Self {
            definitions: Arc::clone(definitions),
            cancel,
            lock_timeout,
            takes_locks: true,
        }
    }

    /// For a change that must not wait, since others wait for who makes it. A transaction
    /// that changes the same object at the time cannot commit.
    pub(super) fn without_locks(definitions: &Arc<Definitions>) -> Self {
        Self {
            takes_locks: false,
            ..Self::new(definitions, CancelToken::new(), None)
        }
    }

    /// Stops the statement.
    pub(crate) fn cancel_token(&self) -> &CancelToken {
        &self.cancel
    }

    /// What there is, as the transaction sees it now: what it has defined itself, and what
    /// others have committed.
    ///
    /// # Errors
    /// The two contradict each other.
    pub fn load(&self) -> Result<Arc<CatalogState>, SqlError> {
        self.definitions.load()
    }

    /// Starts a change of what there is now.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn change(&self) -> Result<Change<'_>, SqlError> {
        let before = self.load()?;
        let mut state = CatalogState::clone(&before);
        state.epoch = state.numbers.next_epoch();
        Ok(Change {
            draft: self,
            before,
            state,
        })
    }

    /// Locks a relation to the transaction's end, once nobody is in the way.
    ///
    /// # Errors
    /// A deadlock, the statement was cancelled, or it took too long.
    pub fn lock(&self, relation: RelationId, mode: LockMode) -> Result<(), SqlError> {
        self.lock_tag(relation_tag(relation), mode)
    }

    /// As [`Self::lock`], a schema.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub(crate) fn lock_schema(&self, schema: SchemaId, mode: LockMode) -> Result<(), SqlError> {
        self.lock_tag(schema_tag(schema), mode)
    }

    /// As [`Self::lock`], unless somebody is in the way: then `false`.
    pub fn try_lock(&self, relation: RelationId, mode: LockMode) -> bool {
        self.definitions
            .locks()
            .try_acquire(relation_tag(relation), mode)
    }

    fn lock_tag(&self, tag: LockTag, mode: LockMode) -> Result<(), SqlError> {
        if !self.takes_locks {
            return Ok(());
        }
        self.definitions
            .locks()
            .acquire(tag, mode, &self.cancel, self.lock_timeout)
            .map_err(|error| from_storage(error.into()))
    }

    /// Makes an empty table in storage, which is dropped if the transaction does not commit
    /// or its catalogue does not name it then. Storage keeps nothing of a temporary one.
    ///
    /// # Errors
    /// As [`aerostat_storage::TenantStore::create_table`].
    pub fn create_table(
        &self,
        id: TableId,
        schema: Arc<TableSchema>,
        layout: &Layout,
        indexes: Vec<TableIndex>,
        is_temporary: bool,
    ) -> Result<Arc<Table>, SqlError> {
        let store = &self.definitions.database().store;
        let made = match is_temporary {
            true => store.create_temporary_table(id, schema, layout, indexes),
            false => store.create_table_with_indexes(id, schema, layout, indexes),
        };
        let table = made.map_err(from_storage)?;
        self.note(Effect::TableMade(Arc::clone(&table)));
        Ok(table)
    }

    /// Makes what a sequence stands in, which goes as a table does.
    ///
    /// # Errors
    /// As [`Self::create_table`].
    pub(crate) fn create_counter(
        &self,
        id: TableId,
        start: Position,
        is_temporary: bool,
    ) -> Result<Arc<Counter>, SqlError> {
        let (schema, layout) = (Counter::schema(), Layout::Row);
        let table = self.create_table(id, schema, &layout, Vec::new(), is_temporary)?;
        Ok(Counter::new(table, start))
    }

    /// Notes what the statement has done, or wants done, outside the catalogue.
    pub(crate) fn note(&self, effect: Effect) {
        self.definitions.note(effect, &self.cancel);
    }
}

/// A change under way. Nobody sees it before [`Change::publish`], and others only after the
/// transaction's commit; dropping it undoes it.
pub struct Change<'d> {
    draft: &'d Draft,
    /// The state that was changed.
    before: Arc<CatalogState>,
    /// The state to come.
    pub state: CatalogState,
}

impl Change<'_> {
    /// Makes the change part of what the transaction defines. New names, and what is
    /// changed or gone, are locked to its end: whoever else wants them waits.
    ///
    /// # Errors
    /// As [`Draft::lock`]; a new name was taken meanwhile.
    pub fn publish(self) -> Result<(), SqlError> {
        let Change {
            draft,
            before,
            state,
        } = self;
        lock_objects(draft, &before, &state)?;
        let added = names_added(&before, &state);
        for name in &added {
            draft.lock_tag(name.tag(), LockMode::AccessExclusive)?;
        }
        let now = draft.load()?;
        let state = if Arc::ptr_eq(&now, &before) {
            state
        } else {
            // Somebody has committed since, perhaps one of those that were waited for.
            let taken = names_in(&now, &before);
            if let Some(name) = added.iter().find(|name| taken.contains(name)) {
                return Err(name.is_taken());
            }
            merge(&before, &state, &now)?
        };
        assert_in_order(&state, &before);
        draft.definitions.put(state, &draft.cancel)
    }
}

/// What is changed stands under its own name, and no two have one number.
fn assert_in_order(state: &CatalogState, before: &CatalogState) {
    let mut numbers = BTreeSet::new();
    for (name, schema) in &state.schemas {
        assert!(
            *name == schema.name && numbers.insert(schema.oid.0),
            "schema {name} is called {} and has number {}",
            schema.name,
            schema.oid
        );
        let is_same = |other: &Arc<SchemaEntry>| Arc::ptr_eq(other, schema);
        if before.schemas.get(name).is_some_and(is_same) {
            continue;
        }
        for (name, relation) in &schema.relations {
            assert!(
                name == relation.name() && numbers.insert(relation.oid().0),
                "relation {name} is called {} and has number {}",
                relation.name(),
                relation.oid()
            );
        }
    }
}

/// Locks schemas and relations that a change touches.
fn lock_objects(
    draft: &Draft,
    before: &CatalogState,
    after: &CatalogState,
) -> Result<(), SqlError> {
    let after_of = |oid: SchemaId| after.schemas.values().find(|schema| schema.oid == oid);
    for schema in before.schemas.values() {
        let Some(now) = after_of(schema.oid) else {
            draft.lock_schema(schema.oid, LockMode::AccessExclusive)?;
            for relation in schema.relations.values() {
                draft.lock(relation.oid(), LockMode::AccessExclusive)?;
            }
            continue;
        };
        if Arc::ptr_eq(schema, now) {
            continue;
        }
        let mode = if is_same_outside(schema, now) {
            LockMode::AccessShare
        } else {
            LockMode::ShareUpdateExclusive
        };
        draft.lock_schema(schema.oid, mode)?;
        for (name, relation) in &schema.relations {
            let now = now.relations.get(name);
            if is_same(Some(relation), now) {
                continue;
            }
            let mode = match now {
                None => LockMode::AccessExclusive,
                Some(_) => LockMode::ShareUpdateExclusive,
            };
            draft.lock(relation.oid(), mode)?;
        }
    }
    Ok(())
}

/// A name that something has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name<'s> {
    Schema(&'s str),
    /// Of a relation or an index, in a schema.
    Relation(SchemaId, &'s str),
}

impl Name<'_> {
    fn tag(self) -> LockTag {
        match self {
            Name::Schema(name) => name_tag(SchemaId::NONE, name),
            Name::Relation(schema, name) => name_tag(schema, name),
        }
    }

    fn is_taken(self) -> SqlError {
        match self {
            Name::Schema(name) => duplicate_schema(name),
            Name::Relation(_, name) => duplicate_relation(name),
        }
    }
}

fn names_added<'s>(before: &CatalogState, after: &'s CatalogState) -> Vec<Name<'s>> {
    let there = names_in(before, after);
    let names = names_in(after, before);
    names
        .into_iter()
        .filter(|name| !there.contains(name))
        .collect()
}

/// The names in those schemas of a state that are not the very same in the other.
fn names_in<'s>(state: &'s CatalogState, other: &CatalogState) -> BTreeSet<Name<'s>> {
    let is_other = |schema: &&Arc<SchemaEntry>| {
        let other = other.schemas.get(&schema.name);
        !other.is_some_and(|other| Arc::ptr_eq(schema, other))
    };
    let mut names = BTreeSet::new();
    for schema in state.schemas.values().filter(is_other) {
        names.insert(Name::Schema(&schema.name));
        for (name, relation) in &schema.relations {
            names.insert(Name::Relation(schema.oid, name));
            if let Relation::Table(entry) = relation {
                if entry.key_oid != IndexId::NONE {
                    let key = &entry.table.schema().primary_key_name;
                    names.insert(Name::Relation(schema.oid, key));
                }
                for index in &entry.indexes {
                    names.insert(Name::Relation(schema.oid, &index.index.name));
                }
            }
        }
    }
    names
}
