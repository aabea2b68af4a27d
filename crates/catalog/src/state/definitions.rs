//! The uncommitted definitions of a transaction.
//!
//! ```text
//!  statements of the block ──► Draft ──► Definitions { base, state, effects }
//!                                            │ COMMIT
//!       one at a time: merged with the newest state ──► one record of the log, rows
//!       and catalogue ──► the state that all see ──► locks are given back
//! ```
//!
//! * The transaction plans its statements on `state`, which is merged with others' commits as
//!   long as the transaction goes on: definitions of concurrent transactions merge object by
//!   object (`merge`), kept apart by locks on relations and names.
//! * Rows of new tables are in storage from the start. An action there for the future catalogue
//!   is an [`Effect`], undone with the statement that had it.
//! * Nothing of it is durable before the commit except tables that nobody names, which recovery
//!   drops.
//! * The session's temporary relations are a schema of the draft, which is removed before the
//!   draft is written and others see it. A transaction that has changed nothing else commits no
//!   catalogue.

use std::{collections::BTreeSet, sync::Arc};

use aerostat_storage::Table;
use aerostat_txn::{Block, CancelToken, Isolation, RelationLocks};
use aerostat_types::{Layout, SqlError, TableId};
use parking_lot::Mutex;

use super::{
    CatalogState, SchemaEntry, Temporaries, draft::Draft, merge::merge, node::Database, record,
};
use crate::failure::{canceled, from_storage};

/// What one transaction defines. Dropping it undoes it.
pub struct Definitions {
    database: Arc<Database>,
    locks: Arc<RelationLocks>,
    work: Mutex<Work>,
}

struct Work {
    /// What others had committed when `state` was made.
    base: Arc<CatalogState>,
    /// That, with what the transaction defines.
    state: Arc<CatalogState>,
    /// The session's temporary relations before it.
    temporary: Option<Arc<SchemaEntry>>,
    /// In the order in which they were had.
    effects: Vec<Effect>,
}

/// What a definition does to a table in storage, beside the catalogue.
pub(crate) enum Effect {
    /// The table was made: dropped if undone, or if the catalogue does not name it.
    TableMade(Arc<Table>),
    /// The index was built: dropped if undone.
    IndexBuilt(Arc<Table>, String),
    /// The index is to be dropped after the commit.
    IndexDropped(Arc<Table>, String),
    /// The index of this name is to have another after the commit, if there is one.
    IndexRenamed(Arc<Table>, String, String),
    /// The table was given another layout than this: given back if undone.
    Laid(Arc<Table>, Layout),
}

impl Effect {
    fn table(&self) -> &Arc<Table> {
        match self {
            Effect::TableMade(table)
            | Effect::IndexBuilt(table, _)
            | Effect::IndexDropped(table, _)
            | Effect::IndexRenamed(table, ..)
            | Effect::Laid(table, _) => table,
        }
    }
}

/// A moment to go back to.
#[derive(Clone)]
pub struct Mark {
    base: Arc<CatalogState>,
    state: Arc<CatalogState>,
    effects: usize,
}

impl Definitions {
    /// Nothing yet. The locks are the block's that is to commit it.
    pub fn new(database: &Arc<Database>, block: &Block) -> Arc<Self> {
        Self::over(database, block, &Temporaries::default())
    }

    /// As [`Self::new`], of a session that has temporary relations.
    pub fn over(database: &Arc<Database>, block: &Block, temporaries: &Temporaries) -> Arc<Self> {
        let newest = database.catalog.load();
        Arc::new(Self {
            database: Arc::clone(database),
            locks: Arc::clone(block.relation_locks()),
            work: Mutex::new(Work {
                state: temporaries.over(&newest),
                base: newest,
                temporary: temporaries.schema().cloned(),
                effects: Vec::new(),
            }),
        })
    }

    pub(super) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    pub(super) fn locks(&self) -> &RelationLocks {
        &self.locks
    }

    /// What there is for the transaction: the newest state, with what it has defined.
    ///
    /// # Errors
    /// Both have changed the same object.
    pub fn load(&self) -> Result<Arc<CatalogState>, SqlError> {
        self.work.lock().renew(self.database.catalog.load())
    }

    /// Takes what a statement has defined, unless that was given up: the block may have gone
    /// back to before it already.
    pub(super) fn put(&self, state: CatalogState, statement: &CancelToken) -> Result<(), SqlError> {
        let mut work = self.work.lock();
        if statement.is_cancelled() {
            return Err(canceled());
        }
        work.state = Arc::new(state);
        Ok(())
    }

    /// Notes what a statement has done. What one that was given up has done is undone.
    pub(super) fn note(&self, effect: Effect, statement: &CancelToken) {
        let mut work = self.work.lock();
        if statement.is_cancelled() {
            drop(work);
            self.undo(vec![effect]);
        } else {
            work.effects.push(effect);
        }
    }

    /// Whether there is something to commit.
    pub fn has_changes(&self) -> bool {
        let work = self.work.lock();
        work.changes_for_others() || work.changes_temporary() || !work.effects.is_empty()
    }

    /// The session's temporary relations as the transaction has them.
    pub fn temporary(&self) -> Option<Arc<SchemaEntry>> {
        self.work.lock().state.temporary().cloned()
    }

    /// The moment after the statements so far.
    pub fn mark(&self) -> Mark {
        let work = self.work.lock();
        Mark {
            base: Arc::clone(&work.base),
            state: Arc::clone(&work.state),
            effects: work.effects.len(),
        }
    }

    /// Undoes what was defined since then. May wait for the disk.
    pub fn rollback_to(&self, mark: &Mark) {
        let effects = {
            let mut work = self.work.lock();
            work.base = Arc::clone(&mark.base);
            work.state = Arc::clone(&mark.state);
            let at = mark.effects.min(work.effects.len());
            work.effects.split_off(at)
        };
        self.undo(effects);
    }

    /// Undoes all. May wait for the disk. Called before the block gives its locks back.
    pub fn rollback(&self) {
        let effects = std::mem::take(&mut self.work.lock().effects);
        self.undo(effects);
    }

    /// Commits the block together with what it has defined, and lets others see it. Waits
    /// for the disk.
    ///
    /// # Errors
    /// The log takes no more, or others have changed the same object: nothing has happened,
    /// unless it is in doubt.
    pub fn commit(&self, block: Block) -> Result<(), SqlError> {
        if !self.work.lock().changes_for_others() {
            return self.commit_temporary(block);
        }
        let catalog = &self.database.catalog;
        let committing = catalog.committing.lock();
        let (state, committed) = match self.commit_alone(block) {
            Ok(states) => states,
            Err(error) => {
                drop(committing);
                self.rollback();
                self.locks.release_all();
                return Err(error);
            }
        };
        let epoch = committed.epoch;
        let before = catalog.state.swap(committed);
        assert!(
            Arc::ptr_eq(&before, &self.work.lock().base),
            "what is committed stands on what had been committed last"
        );
        assert!(
            before.epoch != epoch || before.is_same_to_others(&state),
            "two states have epoch {epoch}"
        );
        let before = before.table_ids();
        drop(committing);
        self.locks.release_all();
        self.settle(before, &state.table_ids());
        Ok(())
    }

    /// Commits a block that has defined nothing but temporary relations, of which neither the
    /// log nor anybody else has to know.
    fn commit_temporary(&self, block: Block) -> Result<(), SqlError> {
        if let Err(error) = block.commit() {
            self.rollback();
            return Err(from_storage(error.into()));
        }
        let state = Arc::clone(&self.work.lock().state);
        self.settle(BTreeSet::new(), &state.table_ids());
        Ok(())
    }

    /// Does what waits for the commit. `before` are the tables that there were, `after` those
    /// that there are.
    fn settle(&self, before: BTreeSet<TableId>, after: &BTreeSet<TableId>) {
        let effects = std::mem::take(&mut self.work.lock().effects);
        let made = effects.iter().filter_map(|effect| match effect {
            Effect::TableMade(table) => Some(table.id()),
            _ => None,
        });
        for gone in before.into_iter().chain(made) {
            if !after.contains(&gone) {
                self.drop_table(gone);
            }
        }
        for effect in effects {
            match effect {
                Effect::IndexDropped(table, name) if after.contains(&table.id()) => {
                    forget_index(&table, &name);
                }
                Effect::IndexRenamed(table, from, to) if after.contains(&table.id()) => {
                    rename_index(&table, &from, &to);
                }
                _ => {}
            }
        }
    }

    /// The transaction's state, and the one that all are to see, once that is durable. The
    /// caller keeps others from committing definitions meanwhile.
    fn commit_alone(
        &self,
        block: Block,
    ) -> Result<(Arc<CatalogState>, Arc<CatalogState>), SqlError> {
        let state = self.load()?;
        let committed = match state.temporary() {
            None => Arc::clone(&state),
            Some(_) => Arc::new(state.without_temporary()),
        };
        assert!(
            committed.temporary().is_none(),
            "others see no temporary relations"
        );
        let store = &self.database.store;
        store
            .commit_block(block, record::encode(&committed))
            .map_err(from_storage)?;
        Ok((state, committed))
    }

    fn undo(&self, effects: Vec<Effect>) {
        for effect in effects.into_iter().rev() {
            match effect {
                Effect::TableMade(table) => self.drop_table(table.id()),
                Effect::IndexBuilt(table, name) => forget_index(&table, &name),
                Effect::IndexDropped(..) | Effect::IndexRenamed(..) => {}
                Effect::Laid(table, before) => {
                    if let Err(error) = table.set_layout(&before) {
                        tracing::error!(%error, table = %table.id(), "the layout it had fits no more");
                    }
                }
            }
        }
    }

    /// Drops a table that no catalogue names. A restart drops what stays here.
    fn drop_table(&self, id: TableId) {
        if let Err(error) = self.database.store.drop_table(id) {
            tracing::warn!(%error, table = %id, "the rows of a dropped table stay until a restart");
        }
    }
}

impl Drop for Definitions {
    fn drop(&mut self) {
        self.rollback();
    }
}

impl Work {
    /// Whether others will see something else than before.
    fn changes_for_others(&self) -> bool {
        let shown = |effect: &Effect| !effect.table().is_temporary();
        let is_same = Arc::ptr_eq(&self.base, &self.state);
        self.effects.iter().any(shown) || !(is_same || self.state.is_same_to_others(&self.base))
    }

    fn changes_temporary(&self) -> bool {
        match (&self.temporary, self.state.temporary()) {
            (None, None) => false,
            (Some(before), Some(now)) => !Arc::ptr_eq(before, now),
            _ => true,
        }
    }

    fn renew(&mut self, newest: Arc<CatalogState>) -> Result<Arc<CatalogState>, SqlError> {
        if !Arc::ptr_eq(&newest, &self.base) {
            self.state = if !self.state.is_same_to_others(&self.base) {
                Arc::new(merge(&self.base, &self.state, &newest)?)
            } else if let Some(schema) = self.state.temporary() {
                let epoch = newest.numbers.next_epoch();
                Arc::new(newest.with_temporary(schema, epoch))
            } else {
                Arc::clone(&newest)
            };
            self.base = newest;
        }
        Ok(Arc::clone(&self.state))
    }
}

/// Takes an index out of storage. Segments lose it when they are made anew.
pub(crate) fn forget_index(table: &Table, name: &str) {
    if let Err(error) = table.drop_index(name) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            index = name,
            "an index that the catalogue does not have stays until a restart"
        );
    }
}

/// Gives an index in storage the name that it has in the catalogue.
pub(crate) fn rename_index(table: &Table, from: &str, to: &str) {
    if let Err(error) = table.rename_index(from, to) {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            index = to,
            "messages name the index as it was called until a restart"
        );
    }
}

impl Database {
    /// Defines something in a transaction of its own, on behalf of the node. Waits for the
    /// disk, and for nobody.
    ///
    /// # Errors
    /// Those of `define`, and of the commit; nothing has happened then.
    pub fn define<T>(
        self: &Arc<Self>,
        define: impl FnOnce(&Draft) -> Result<T, SqlError>,
    ) -> Result<T, SqlError> {
        let block = self.store.txns().begin_block(Isolation::default());
        let definitions = Definitions::new(self, &block);
        let result = define(&Draft::without_locks(&definitions))?;
        if definitions.has_changes() {
            definitions.commit(block)?;
        }
        Ok(result)
    }
}
