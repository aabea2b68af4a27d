//! Memory of the tenant's that outlives a statement's work: what a session keeps, and rows on
//! their way to its client.
//!
//! It is charged to the tenant's budget. Where that is full, the node has a little to spare:
//! who has filled the memory must still be able to send the statement that makes room, and to
//! read its answer.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use aerostat_catalog::failure::from_storage;
use aerostat_memory::{Budget, MemoryClass};
use aerostat_storage::StorageError;
use aerostat_types::{OutOfMemory, SqlError};

/// What all sessions of a node may have beyond their tenants' budgets: little beside any
/// node's memory, and batches of some dozen readers.
const SPARE_BYTES_MAX: u64 = 16 << 20;

/// What one of them may have of it: one batch of 8,192 rows of a hundred bytes.
const SPARE_SHARE_BYTES_MAX: u64 = 1 << 20;

/// What the node has to spare.
#[derive(Debug, Default)]
pub(crate) struct Spare {
    used: AtomicU64,
}

impl Spare {
    fn take(&self, bytes: u64) -> bool {
        let taken = |used: u64| Some(used + bytes).filter(|&used| used <= SPARE_BYTES_MAX);
        let order = Ordering::Relaxed;
        self.used.fetch_update(order, order, taken).is_ok()
    }
}

/// Memory that is charged to a tenant, given back when dropped.
#[derive(Debug)]
pub struct Held {
    budget: Arc<Budget>,
    spare: Arc<Spare>,
    /// Of the budget.
    reserved: u64,
    /// Of what the node has to spare.
    spared: u64,
}

impl Held {
    /// Memory of a tenant's, none as yet.
    pub(crate) fn new(budget: &Arc<Budget>, spare: &Arc<Spare>) -> Self {
        Self {
            budget: Arc::clone(budget),
            spare: Arc::clone(spare),
            reserved: 0,
            spared: 0,
        }
    }

    /// Takes more.
    ///
    /// # Errors
    /// The tenant, or the node, has not that much left; it stays as it is.
    pub(crate) fn grow(&mut self, bytes: u64) -> Result<(), SqlError> {
        match self.budget.try_grow_raw(MemoryClass::Sessions, bytes) {
            Ok(()) => self.reserved += bytes,
            Err(refused) => self.take_spare(bytes, refused)?,
        }
        Ok(())
    }

    fn take_spare(&mut self, bytes: u64, refused: OutOfMemory) -> Result<(), SqlError> {
        let fits = self.spared + bytes <= SPARE_SHARE_BYTES_MAX;
        if !fits || !self.spare.take(bytes) {
            return Err(from_storage(StorageError::OutOfMemory(refused)));
        }
        self.spared += bytes;
        Ok(())
    }

    /// Gives a part back, first of what is not the tenant's own.
    pub(crate) fn shrink(&mut self, bytes: u64) {
        let spared = bytes.min(self.spared);
        let reserved = (bytes - spared).min(self.reserved);
        self.spared -= spared;
        self.reserved -= reserved;
        if spared > 0 {
            self.spare.used.fetch_sub(spared, Ordering::Relaxed);
        }
        if reserved > 0 {
            self.budget.shrink_raw(MemoryClass::Sessions, reserved);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink(self.spared + self.reserved);
    }
}

#[cfg(test)]
mod tests {
    use aerostat_memory::Governor;
    use aerostat_types::{ByteSize, ErrorKind};

    use super::*;

    #[test]
    fn a_full_tenant_has_a_little_to_spare() {
        let governor = Governor::new(ByteSize(100 << 20));
        let budget = governor.budget("t", Some(ByteSize(10 << 20)));
        let spare = Arc::new(Spare::default());
        let held = || Held::new(&budget, &spare);
        let mut rows = held();
        rows.grow(10 << 20).unwrap();
        assert_eq!((budget.used(), rows.spared), (10 << 20, 0));
        // Each of those that come now has its share at most, until there is nothing left.
        let mut others: Vec<Held> = (0..16).map(|_| held()).collect();
        for other in &mut others {
            let refused = other.grow((1 << 20) + 1).unwrap_err();
            assert_eq!(refused.kind, ErrorKind::OutOfMemory);
            other.grow(1 << 20).unwrap();
            assert!(other.grow(1).is_err());
        }
        assert!(held().grow(1).is_err());
        assert_eq!(budget.used(), 10 << 20);
        others[0].shrink(1 << 19);
        held().grow(1 << 19).unwrap();
        drop(others);
        assert_eq!(spare.used.load(Ordering::Relaxed), 0);
        rows.shrink(4 << 20);
        assert_eq!(budget.used(), 6 << 20);
        drop(rows);
        assert_eq!(budget.used(), 0);
    }
}
