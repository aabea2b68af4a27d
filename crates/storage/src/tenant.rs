//! What a tenant's tables share.

use std::sync::Arc;

use aerostat_memory::Budget;
use aerostat_txn::TxnManager;
use aerostat_types::{Layout, TableId, TableSchema, TenantId};

use crate::{StorageError, Table, arena::ArenaSizes};

/// A tenant's transactions and memory budget. Tables keep it alive.
pub struct TenantStore {
    id: TenantId,
    txns: Arc<TxnManager>,
    budget: Arc<Budget>,
    sizes: ArenaSizes,
}

impl TenantStore {
    /// A tenant without tables.
    pub fn new(id: TenantId, budget: Arc<Budget>) -> Arc<Self> {
        Self::with_arena_sizes(id, budget, ArenaSizes::default())
    }

    pub(crate) fn with_arena_sizes(
        id: TenantId,
        budget: Arc<Budget>,
        sizes: ArenaSizes,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            txns: TxnManager::new(),
            budget,
            sizes,
        })
    }

    /// Which tenant.
    pub fn id(&self) -> TenantId {
        self.id
    }

    /// The tenant's transactions: one commit order for all its tables.
    pub fn txns(&self) -> &Arc<TxnManager> {
        &self.txns
    }

    /// The budget that all segments of the tenant are charged to.
    pub fn budget(&self) -> &Arc<Budget> {
        &self.budget
    }

    pub(crate) fn sizes(&self) -> &ArenaSizes {
        &self.sizes
    }

    /// An empty table. It takes no arena before its first row.
    ///
    /// # Errors
    /// [`StorageError::TooManyColumns`], [`StorageError::RowTooWide`] when the
    /// fixed-width part of a row does not fit, [`StorageError::Layout`] when the
    /// layout names what the schema lacks.
    pub fn create_table(
        self: &Arc<Self>,
        id: TableId,
        schema: Arc<TableSchema>,
        layout: &Layout,
    ) -> Result<Arc<Table>, StorageError> {
        Table::create(Arc::clone(self), id, schema, layout)
    }
}
