//! What a durable tenant has beside its tables: the log, its folder, and the list of
//! tables and the catalogue as the log has them.
//!
//! ```text
//!  <folder>/log/<number>.log          the commit log
//!  <folder>/checkpoint/manifest       what there was at a point, and where
//!  <folder>/checkpoint/*.img          images of segments
//! ```
//!
//! The registry is locked while a change of it becomes durable, so that whoever locks it
//! finds exactly the tables and the catalogue of a point in the commit order.
//!
//! A table is there from its creation on, whatever becomes of the transaction that made it;
//! what counts is the catalogue, which the transaction commits with its rows in one record.
//! Who rolls back drops the table, and who opens the tenant drops what the catalogue does not
//! name.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    path::PathBuf,
    sync::{Arc, Weak},
};

use aerostat_txn::{Block, Isolation, LogFailure};
use aerostat_types::{CommitTs, Layout, TableId, TableIndex, TableSchema};
use parking_lot::Mutex;

use crate::{
    Durability, StorageError, Table, TenantStore,
    checkpoint::LastCheckpoint,
    fault,
    log::{Log, record::Kind},
    manifest::TableDescription,
};

/// The durable side of a tenant.
pub(crate) struct Durable {
    pub(crate) log: Arc<Log>,
    pub(crate) folder: PathBuf,
    pub(crate) registry: Mutex<Registry>,
    /// Locked during a checkpoint.
    pub(crate) checkpoint: Mutex<LastCheckpoint>,
    /// Locked as long as the tenant is open: no two processes, nor two stores of one, share it.
    pub(crate) _lock: File,
}

/// Tables and catalogue as of the last entry in the log.
#[derive(Default)]
pub(crate) struct Registry {
    /// Weak, for tables keep the tenant alive.
    pub(crate) tables: BTreeMap<TableId, Weak<Table>>,
    pub(crate) catalog: Option<Arc<[u8]>>,
    /// Tables that are no more, though a transaction may still have rows of them to commit.
    dropped: BTreeMap<TableId, Dropped>,
}

enum Dropped {
    /// Somebody may still have it.
    Held(Weak<Table>),
    /// Nobody had it at this point.
    Gone(CommitTs),
}

impl Registry {
    /// The dropped tables that a commit after `at` may name. Who wrote to one that is gone
    /// began at or before the point at which it was found gone, so no table is named any
    /// more once everything that has not ended began later.
    pub(crate) fn forget_dropped(&mut self, at: CommitTs, oldest: CommitTs) -> Vec<TableId> {
        for dropped in self.dropped.values_mut() {
            if matches!(dropped, Dropped::Held(table) if table.strong_count() == 0) {
                *dropped = Dropped::Gone(at);
            }
        }
        self.dropped
            .retain(|_, dropped| !matches!(dropped, Dropped::Gone(at) if *at < oldest));
        self.dropped.keys().copied().collect()
    }
}

impl TenantStore {
    /// An empty table. It takes no arena before its first row. Of a durable tenant it is
    /// there after a restart, until it is dropped; its id is never used again.
    ///
    /// # Errors
    /// [`StorageError::TooManyColumns`], [`StorageError::RowTooWide`] when the
    /// fixed-width part of a row does not fit, [`StorageError::Layout`] when the
    /// layout names what the schema lacks; of a durable tenant also
    /// [`StorageError::TableExists`] and [`StorageError::Commit`].
    pub fn create_table(
        self: &Arc<Self>,
        id: TableId,
        schema: Arc<TableSchema>,
        layout: &Layout,
    ) -> Result<Arc<Table>, StorageError> {
        self.create_table_with_indexes(id, schema, layout, Vec::new())
    }

    /// As [`Self::create_table`], with secondary indexes, whose names differ.
    ///
    /// # Errors
    /// Also [`StorageError::Segment`] when an index names a column that there is not.
    pub fn create_table_with_indexes(
        self: &Arc<Self>,
        id: TableId,
        schema: Arc<TableSchema>,
        layout: &Layout,
        indexes: Vec<TableIndex>,
    ) -> Result<Arc<Table>, StorageError> {
        let description = self.durable.as_ref().map(|_| TableDescription {
            id,
            schema: TableSchema::clone(&schema),
            layout: layout.clone(),
            indexes: indexes.clone(),
        });
        let table = Table::create(Arc::clone(self), id, schema, layout, indexes, false)?;
        let (Some(durable), Some(description)) = (&self.durable, description) else {
            return Ok(table);
        };
        let mut registry = durable.registry.lock();
        if registry.tables.contains_key(&id) || registry.dropped.contains_key(&id) {
            return Err(StorageError::TableExists { id });
        }
        let json = serde_json::to_vec(&description).expect("a description has no odd map keys");
        self.append(durable, Kind::Table, json)?;
        registry.tables.insert(id, Arc::downgrade(&table));
        Ok(table)
    }

    /// An empty table that is there for nobody else and takes nothing: what plans are made
    /// with for a table that may come to be. It is to have no rows.
    ///
    /// # Errors
    /// As [`Self::create_table`], but for a log.
    pub fn sketch_table(
        self: &Arc<Self>,
        id: TableId,
        schema: Arc<TableSchema>,
    ) -> Result<Arc<Table>, StorageError> {
        let store = Arc::clone(self);
        Table::create(store, id, schema, &Layout::Column, Vec::new(), false)
    }

    /// An empty table that log, checkpoints and backups know nothing of, whatever the tenant
    /// is. It is there as long as somebody has it, and need not be dropped; its rows are the
    /// tenant's memory as those of any other. No durable table may have its id.
    ///
    /// # Errors
    /// As [`Self::create_table_with_indexes`], but for a log.
    pub fn create_temporary_table(
        self: &Arc<Self>,
        id: TableId,
        schema: Arc<TableSchema>,
        layout: &Layout,
        indexes: Vec<TableIndex>,
    ) -> Result<Arc<Table>, StorageError> {
        Table::create(Arc::clone(self), id, schema, layout, indexes, true)
    }

    /// Makes a change of a table's shape once it is durable. A checkpoint finds the log
    /// and the table either before it or after.
    pub(crate) fn describe_table(
        &self,
        description: TableDescription,
        change: impl FnOnce(),
    ) -> Result<(), StorageError> {
        let Some(durable) = &self.durable else {
            change();
            return Ok(());
        };
        let registry = durable.registry.lock();
        if registry.tables.contains_key(&description.id) {
            let json = serde_json::to_vec(&description).expect("a description has no odd map keys");
            self.append(durable, Kind::Table, json)?;
        }
        change();
        Ok(())
    }

    /// Says that a table is no more. Its rows live as long as somebody has it; its id is
    /// never used again. Nothing happens if the tenant is not durable or has no such table.
    ///
    /// # Errors
    /// [`StorageError::Commit`].
    pub fn drop_table(&self, id: TableId) -> Result<(), StorageError> {
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        self.drop_locked(durable, &mut durable.registry.lock(), id)
    }

    fn drop_locked(
        &self,
        durable: &Durable,
        registry: &mut Registry,
        id: TableId,
    ) -> Result<(), StorageError> {
        if registry.tables.contains_key(&id) {
            self.append(durable, Kind::DropTable, id.0.to_le_bytes().to_vec())?;
            let table = registry.tables.remove(&id).unwrap_or_default();
            registry.dropped.insert(id, Dropped::Held(table));
        }
        Ok(())
    }

    /// The tables there are. One that nobody has any more is taken as dropped.
    pub(crate) fn living_tables(
        &self,
        durable: &Durable,
        registry: &mut Registry,
    ) -> Result<Vec<Arc<Table>>, StorageError> {
        let mut living = Vec::new();
        let ids: Vec<TableId> = registry.tables.keys().copied().collect();
        for id in ids {
            match registry.tables[&id].upgrade() {
                Some(table) => living.push(table),
                None => self.drop_locked(durable, registry, id)?,
            }
        }
        Ok(living)
    }

    /// Drops the tables that are not in `keep`: those whose creation was durable and whose
    /// mention in a catalogue was not. Called after opening.
    ///
    /// # Errors
    /// [`StorageError::Commit`].
    pub fn retain_tables(&self, keep: &BTreeSet<TableId>) -> Result<(), StorageError> {
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        let all: Vec<TableId> = durable.registry.lock().tables.keys().copied().collect();
        all.into_iter()
            .filter(|id| !keep.contains(id))
            .try_for_each(|id| self.drop_table(id))
    }

    /// Makes this the catalogue, whose contents are the caller's, and returns its place
    /// in the commit order once it is durable.
    ///
    /// # Errors
    /// [`StorageError::Commit`].
    pub fn commit_catalog(&self, bytes: Vec<u8>) -> Result<CommitTs, StorageError> {
        self.commit_block(self.txns().begin_block(Isolation::default()), bytes)
    }

    /// Commits a block together with this catalogue, in one step: both are durable, or
    /// neither. The block's locks stay as long as somebody has them.
    ///
    /// # Errors
    /// [`StorageError::Commit`]: as [`Block::commit`].
    pub fn commit_block(&self, block: Block, catalog: Vec<u8>) -> Result<CommitTs, StorageError> {
        let Some(durable) = &self.durable else {
            return Ok(block.commit_with(catalog)?);
        };
        let mut registry = durable.registry.lock();
        let document = Arc::from(catalog.as_slice());
        fault::pass("definitions.before_commit");
        let ts = block.commit_with(catalog)?;
        fault::pass("definitions.after_commit");
        registry.catalog = Some(document);
        Ok(ts)
    }

    /// Whether the tenant has a log.
    pub fn is_durable(&self) -> bool {
        self.durable.is_some()
    }

    /// What commits survive from now on; `None` if the tenant has no log at all.
    pub fn durability(&self) -> Option<Durability> {
        self.durable
            .as_ref()
            .map(|durable| durable.log.durability())
    }

    /// Changes what commits survive, from the next group on. Nothing happens if the tenant
    /// has no log.
    pub fn set_durability(&self, durability: Durability) {
        if let Some(durable) = &self.durable {
            durable.log.set_durability(durability);
        }
    }

    /// Bytes of log written since the tenant was opened.
    pub fn log_bytes_written(&self) -> u64 {
        self.durable
            .as_ref()
            .map_or(0, |durable| durable.log.bytes_written())
    }

    /// The durable side of a tenant that is known to have one.
    pub(crate) fn durable_side(&self) -> &Durable {
        self.durable.as_ref().expect("a durable tenant")
    }

    /// Why changes are refused, if they are: the log has failed, and was not mended yet.
    pub fn log_failure(&self) -> Option<LogFailure> {
        self.durable.as_ref()?.log.failure()
    }

    /// Brings a log that has failed back, if the disk takes it: commits that are in doubt did
    /// not happen from then on, whatever the disk had of them, and new ones are taken. Nothing
    /// happens if it has not failed.
    ///
    /// # Errors
    /// [`LogFailure`] while the disk refuses: a later call may do better.
    pub fn mend_log(&self) -> Result<(), LogFailure> {
        let Some(durable) = &self.durable else {
            return Ok(());
        };
        durable
            .log
            .mend(&|after, through| self.txns().give_up(after, through))
    }

    fn append(
        &self,
        durable: &Durable,
        kind: Kind,
        payload: Vec<u8>,
    ) -> Result<CommitTs, StorageError> {
        let enqueue = |ts| durable.log.enqueue_entry(kind, ts, payload);
        Ok(self.txns().append_entry(enqueue)?)
    }
}
