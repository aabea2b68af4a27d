//! DataFusion's memory pool over a tenant's budget: what queries use counts
//! against the same ceiling as the tenant's rows.

use std::{fmt, sync::Arc};

use aerostat_memory::Budget;
use datafusion::{
    common::{DataFusionError, Result},
    execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation},
};

/// The pool of one tenant. First come, first served; an operator that cannot
/// grow spills, or fails with the budget's own words.
pub(crate) struct TenantPool {
    budget: Arc<Budget>,
    used: std::sync::atomic::AtomicUsize,
}

impl TenantPool {
    pub(crate) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, used: std::sync::atomic::AtomicUsize::new(0) }
    }
}

impl fmt::Debug for TenantPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TenantPool")
    }
}

impl fmt::Display for TenantPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tenant")
    }
}

impl MemoryPool for TenantPool {
    fn name(&self) -> &str {
        "tenant"
    }

    fn register(&self, _consumer: &MemoryConsumer) {}

    fn grow(&self, _reservation: &MemoryReservation, additional: usize) {
        // DataFusion grows without asking only by what it has allocated already; it must be counted.
        self.budget.grow_unchecked(additional as u64);
        self.used.fetch_add(additional, std::sync::atomic::Ordering::Relaxed);
    }

    fn shrink(&self, _reservation: &MemoryReservation, shrink: usize) {
        self.budget.shrink_raw(shrink as u64);
        self.used.fetch_sub(shrink, std::sync::atomic::Ordering::Relaxed);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.budget.try_grow_raw(additional as u64).map_err(|error| {
            DataFusionError::ResourcesExhausted(format!("{}: {error}", reservation.consumer().name()))
        })?;
        self.used.fetch_add(additional, std::sync::atomic::Ordering::Relaxed);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.used.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn memory_limit(&self) -> MemoryLimit {
        MemoryLimit::Finite(usize::try_from(self.budget.max()).unwrap_or(usize::MAX))
    }
}
