//! What a transaction has defined and not committed.
//!
//! ```text
//!  statements of the block ──► Draft ──► Definitions { base, state, effects }
//!                                            │ COMMIT
//!       one at a time: merged with the newest state ──► one record of the log, rows
//!       and catalogue ──► the state that all see ──► locks are given back
//! ```
//!
//! * The transaction plans its statements on `state`, which is renewed by what others have
//!   committed as long as it goes on: definitions of several transactions at once merge
//!   object by object (`merge`), kept apart by locks on relations and names.
//! * Rows of new tables lie in storage from the start. What was done there for the
//!   catalogue to come is an [`Effect`], undone with the statement that had it.
//! * Nothing of it is durable before the commit but tables that nobody names, which
//!   recovery drops.

use std::sync::Arc;

use aerostat_storage::Table;
use aerostat_txn::{Block, CancelToken, Isolation, RelationLocks};
use aerostat_types::{Layout, SqlError, TableId};
use parking_lot::Mutex;

use super::{CatalogState, draft::Draft, merge::merge, node::Database, record};
use crate::error::{canceled, from_storage};

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
        let newest = database.catalog.load();
        Arc::new(Self {
            database: Arc::clone(database),
            locks: Arc::clone(block.relation_locks()),
            work: Mutex::new(Work {
                base: Arc::clone(&newest),
                state: newest,
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
        !Arc::ptr_eq(&work.base, &work.state) || !work.effects.is_empty()
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
        let catalog = &self.database.catalog;
        let committing = catalog.committing.lock();
        let (committed, effects) = match self.commit_alone(block) {
            Ok(committed) => (committed, std::mem::take(&mut self.work.lock().effects)),
            Err(error) => {
                drop(committing);
                self.rollback();
                self.locks.release_all();
                return Err(error);
            }
        };
        let before = catalog.state.swap(Arc::clone(&committed)).table_ids();
        drop(committing);
        self.locks.release_all();
        let after = committed.table_ids();
        let made = effects.iter().filter_map(|effect| match effect {
            Effect::TableMade(table) => Some(table.id()),
            _ => None,
        });
        for gone in before.iter().copied().chain(made) {
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
        Ok(())
    }

    /// The state that all are to see, once it is durable. The caller keeps others from
    /// committing definitions meanwhile.
    fn commit_alone(&self, block: Block) -> Result<Arc<CatalogState>, SqlError> {
        let state = self.load()?;
        let store = &self.database.store;
        store
            .commit_block(block, record::encode(&state))
            .map_err(from_storage)?;
        Ok(state)
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
    fn renew(&mut self, newest: Arc<CatalogState>) -> Result<Arc<CatalogState>, SqlError> {
        if !Arc::ptr_eq(&newest, &self.base) {
            self.state = if Arc::ptr_eq(&self.base, &self.state) {
                Arc::clone(&newest)
            } else {
                Arc::new(merge(&self.base, &self.state, &newest)?)
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
