//! Temporary relations: a schema of a session's own, over the state that all see.
//!
//! ```text
//!  committed state ──┐
//!                    ├─► the state that the session plans on, with an epoch of its own
//!  pg_temp_N ────────┘
//! ```
//!
//! The schema is in no committed state, so nobody else finds its relations, and no record of the
//! catalogue names it. A block that defines something has it in its draft like any other schema
//! ([`super::Definitions`]); its COMMIT hands the schema back to the session.

use std::sync::Arc;

use aerostat_storage::Table;
use parking_lot::Mutex;

use super::{CatalogState, Relation, SchemaEntry};

/// The name by which every session finds its own schema of temporary relations.
pub const PG_TEMP: &str = "pg_temp";

/// What the names of such schemas begin with, before the number of the session. Users make no
/// schemas whose names begin with `pg_`.
const PREFIX: &str = "pg_temp_";

/// The name of a session's schema of temporary relations.
pub fn temporary_schema(session: i32) -> String {
    format!("{PREFIX}{session}")
}

/// Whether what is in the schema of this name is temporary.
pub fn is_temporary(schema: &str) -> bool {
    schema.starts_with(PREFIX)
}

/// What becomes of a temporary table's rows at the end of a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnCommit {
    /// They stay until the session ends.
    #[default]
    PreserveRows,
    /// They are gone.
    DeleteRows,
    /// The table is gone.
    Drop,
}

/// A session's temporary relations.
#[derive(Default)]
pub struct Temporaries {
    /// `None` as long as there was none.
    schema: Option<Arc<SchemaEntry>>,
    /// Its tables with ON COMMIT DELETE ROWS.
    emptied: Vec<Arc<Table>>,
    /// The epoch of the committed state that was seen last, and that of the state that has
    /// the schema over it.
    epochs: Mutex<Option<(u64, u64)>>,
}

impl Temporaries {
    /// The schema, if there is one.
    pub(crate) fn schema(&self) -> Option<&Arc<SchemaEntry>> {
        self.schema.as_ref()
    }

    /// Whether the session has none.
    pub fn is_empty(&self) -> bool {
        let schema = self.schema.as_ref();
        schema.is_none_or(|schema| schema.relations.is_empty())
    }

    /// Takes what a transaction has made of the schema, and gives what it was.
    pub fn replace(&mut self, schema: Option<Arc<SchemaEntry>>) -> Option<Arc<SchemaEntry>> {
        assert!(
            schema
                .as_ref()
                .is_none_or(|schema| is_temporary(&schema.name)),
            "what a session keeps for itself is temporary"
        );
        *self.epochs.get_mut() = None;
        self.emptied = schema.as_deref().map_or_else(Vec::new, emptied);
        std::mem::replace(&mut self.schema, schema)
    }

    /// What the session sees where others see this. It has the same epoch as long as neither
    /// changes.
    pub fn over(&self, committed: &Arc<CatalogState>) -> Arc<CatalogState> {
        let Some(schema) = &self.schema else {
            return Arc::clone(committed);
        };
        let mut epochs = self.epochs.lock();
        let epoch = match *epochs {
            Some((of, epoch)) if of == committed.epoch => epoch,
            _ => {
                let epoch = committed.numbers.next_epoch();
                *epochs = Some((committed.epoch, epoch));
                epoch
            }
        };
        Arc::new(committed.with_temporary(schema, epoch))
    }

    /// Empties the tables that are empty after every transaction. Views that are held still
    /// see their rows.
    pub fn delete_rows(&self) {
        for table in &self.emptied {
            table.truncate();
        }
    }
}

fn emptied(schema: &SchemaEntry) -> Vec<Arc<Table>> {
    let relations = schema.relations.values();
    let tables = relations.filter_map(|relation| match relation {
        Relation::Table(entry) if entry.on_commit == OnCommit::DeleteRows => Some(&entry.table),
        _ => None,
    });
    tables.cloned().collect()
}

impl CatalogState {
    /// The schema of temporary relations, if this is what a session that has one sees.
    pub fn temporary(&self) -> Option<&Arc<SchemaEntry>> {
        let mut from = self.schemas.range(PREFIX.to_owned()..);
        let (name, schema) = from.next()?;
        is_temporary(name).then_some(schema)
    }

    /// This with a schema of temporary relations, under an epoch that no other state has.
    pub(super) fn with_temporary(&self, schema: &Arc<SchemaEntry>, epoch: u64) -> Self {
        assert!(
            is_temporary(&schema.name) && self.temporary().is_none(),
            "a session has one schema of temporary relations, and {} is none or another",
            schema.name
        );
        let mut state = self.clone();
        state.epoch = epoch;
        let name = schema.name.clone();
        state.schemas.insert(name, Arc::clone(schema));
        state
    }

    /// This as others are to see it, under an epoch of its own.
    pub(super) fn without_temporary(&self) -> Self {
        let mut state = self.clone();
        state.epoch = state.numbers.next_epoch();
        state.schemas.retain(|name, _| !is_temporary(name));
        state
    }

    /// Whether two states have the very same schemas, but for temporary ones.
    pub(super) fn is_same_to_others(&self, other: &CatalogState) -> bool {
        let (ours, theirs) = (self.shown_to_others(), other.shown_to_others());
        ours.map(Arc::as_ptr).eq(theirs.map(Arc::as_ptr))
    }

    fn shown_to_others(&self) -> impl Iterator<Item = &Arc<SchemaEntry>> {
        let schemas = self.schemas.values();
        schemas.filter(|schema| !is_temporary(&schema.name))
    }
}
