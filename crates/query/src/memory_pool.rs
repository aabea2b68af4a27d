//! DataFusion's memory pool over a tenant's budget: the memory of queries counts against the same
//! limit as the tenant's rows.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use aerostat_memory::Budget;
use datafusion::{
    common::{DataFusionError, Result},
    execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation},
};

use crate::heap::Heap;

/// The pool of one tenant. Operators are served in the order in which they ask; one that cannot
/// grow spills, or fails with the budget's error.
pub(crate) struct TenantPool {
    budget: Arc<Budget>,
    /// Also counts what the pool has given to operators.
    heap: Arc<Heap>,
    /// How many of the reserved bytes the budget had no room for.
    overdrawn: AtomicUsize,
}

impl TenantPool {
    pub(crate) fn new(budget: Arc<Budget>, heap: Arc<Heap>) -> Self {
        Self {
            budget,
            heap,
            overdrawn: AtomicUsize::new(0),
        }
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
        // DataFusion grows without asking only by what it has already allocated. That is
        // little, and must be counted even beyond the limit.
        if self.budget.try_grow_raw(additional as u64).is_err() {
            self.overdrawn.fetch_add(additional, Ordering::Relaxed);
        }
        self.heap.reserve(additional);
    }

    fn shrink(&self, _reservation: &MemoryReservation, shrink: usize) {
        let mut repaid = 0;
        // The closure always gives a value, so the update cannot fail.
        let _ = self
            .overdrawn
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |overdrawn| {
                repaid = overdrawn.min(shrink);
                Some(overdrawn - repaid)
            });
        self.budget.shrink_raw((shrink - repaid) as u64);
        self.heap.release(shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        self.budget
            .try_grow_raw(additional as u64)
            .map_err(|error| {
                DataFusionError::ResourcesExhausted(format!(
                    "{}: {error}",
                    reservation.consumer().name()
                ))
            })?;
        self.heap.reserve(additional);
        Ok(())
    }

    fn reserved(&self) -> usize {
        self.heap.reserved()
    }

    fn memory_limit(&self) -> MemoryLimit {
        match self.budget.max() {
            Some(max) => MemoryLimit::Finite(usize::try_from(max.0).unwrap_or(usize::MAX)),
            None => MemoryLimit::Unknown,
        }
    }
}
