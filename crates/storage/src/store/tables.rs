//! The tables of a tenant: creating and dropping them, and the catalogue that decides which
//! count.
//!
//! A table exists from its creation on, whatever becomes of the transaction that created it. What
//! counts is the catalogue, which the transaction commits with its rows in one record. A rollback
//! drops the table, and opening the tenant drops the tables that the catalogue does not name.

use std::{collections::BTreeSet, sync::Arc};

use aerostat_txn::{Block, Isolation};
use aerostat_types::{CommitTs, Layout, TableId, TableIndex, TableSchema};

use crate::{
    StorageError, Table, TenantStore,
    files::{fault, log::record::Kind, manifest::TableDescription},
    store::tenant::{Durable, Registry},
};

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
        if registry.has(id) {
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
            registry.drop_table(id);
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
                // Its leader says which are.
                None if durable.log.follows() => {}
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
