//! DataFusion's memory pool over a tenant's budget: the memory of queries counts against the same
//! limit as the tenant's rows.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use aerostat_memory::{Budget, MemoryClass};
use datafusion::{
    common::{DataFusionError, Result},
    execution::memory_pool::{MemoryConsumer, MemoryLimit, MemoryPool, MemoryReservation},
};

use crate::heap::Heap;

/// The name of the consumer whose memory is lookup tables, a class of their own.
pub(crate) const LOOKUPS: &str = "StarJoin";

/// The pool of one tenant. Operators are served in the order in which they ask; one that cannot
/// grow spills, or fails with the budget's error.
pub(crate) struct TenantPool {
    budget: Arc<Budget>,
    /// Also counts what the pool has given to operators.
    heap: Arc<Heap>,
    /// How many of the reserved bytes the budget had no room for.
    overdrawn: AtomicUsize,
    /// The same of lookup tables, since each class is given back what was taken for it.
    overdrawn_lookups: AtomicUsize,
}

impl TenantPool {
    pub(crate) fn new(budget: Arc<Budget>, heap: Arc<Heap>) -> Self {
        Self {
            budget,
            heap,
            overdrawn: AtomicUsize::new(0),
            overdrawn_lookups: AtomicUsize::new(0),
        }
    }

    /// The class of what a consumer takes, and what is overdrawn of it.
    fn class_of(&self, reservation: &MemoryReservation) -> (MemoryClass, &AtomicUsize) {
        match reservation.consumer().name() {
            LOOKUPS => (MemoryClass::Lookups, &self.overdrawn_lookups),
            _ => (MemoryClass::Queries, &self.overdrawn),
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

    fn grow(&self, reservation: &MemoryReservation, additional: usize) {
        let (class, overdrawn) = self.class_of(reservation);
        // DataFusion grows without asking only by what it has already allocated. That is
        // little, and must be counted even beyond the limit.
        if self.budget.try_grow_raw(class, additional as u64).is_err() {
            overdrawn.fetch_add(additional, Ordering::Relaxed);
        }
        self.heap.reserve(additional);
    }

    fn shrink(&self, reservation: &MemoryReservation, shrink: usize) {
        let (class, overdrawn) = self.class_of(reservation);
        let mut repaid = 0;
        // The closure always gives a value, so the update cannot fail.
        let _ = overdrawn.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |overdrawn| {
            repaid = overdrawn.min(shrink);
            Some(overdrawn - repaid)
        });
        self.budget.shrink_raw(class, (shrink - repaid) as u64);
        self.heap.release(shrink);
    }

    fn try_grow(&self, reservation: &MemoryReservation, additional: usize) -> Result<()> {
        let (class, _) = self.class_of(reservation);
        self.budget
            .try_grow_raw(class, additional as u64)
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
