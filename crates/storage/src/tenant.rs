//! What a tenant's tables share.

use std::sync::Arc;

use aerostat_memory::Budget;
use aerostat_txn::TxnManager;
use aerostat_types::TenantId;

use crate::{arena::ArenaSizes, durable::Durable};

/// A tenant's transactions and memory budget. Tables keep it alive.
pub struct TenantStore {
    id: TenantId,
    txns: Arc<TxnManager>,
    budget: Arc<Budget>,
    sizes: ArenaSizes,
    /// `None` if nothing is to survive.
    pub(crate) durable: Option<Durable>,
}

impl TenantStore {
    /// A tenant without tables, in memory alone; [`Self::open`] has those that stay.
    pub fn new(id: TenantId, budget: Arc<Budget>) -> Arc<Self> {
        Self::with_arena_sizes(id, budget, ArenaSizes::default())
    }

    pub(crate) fn with_arena_sizes(
        id: TenantId,
        budget: Arc<Budget>,
        sizes: ArenaSizes,
    ) -> Arc<Self> {
        Self::assembled(id, budget, sizes, TxnManager::new(), None)
    }

    pub(crate) fn with_log(
        id: TenantId,
        budget: Arc<Budget>,
        sizes: ArenaSizes,
        txns: Arc<TxnManager>,
        durable: Durable,
    ) -> Arc<Self> {
        Self::assembled(id, budget, sizes, txns, Some(durable))
    }

    fn assembled(
        id: TenantId,
        budget: Arc<Budget>,
        sizes: ArenaSizes,
        txns: Arc<TxnManager>,
        durable: Option<Durable>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            txns,
            budget,
            sizes,
            durable,
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
}
