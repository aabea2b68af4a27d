//! The error of a memory budget that refuses a reservation.

use thiserror::Error;

/// More memory than a budget may have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{budget}: {requested} bytes more would exceed its memory limit of {limit} bytes, of which {used} are used"
)]
pub struct OutOfMemory {
    /// The budget that refuses: the tenant's or the node's.
    pub budget: String,
    /// Bytes asked for.
    pub requested: u64,
    /// Bytes the budget had in use.
    pub used: u64,
    /// Bytes it may have in use.
    pub limit: u64,
}

impl OutOfMemory {
    /// Bytes that must come back before so many are given.
    pub fn missing(&self) -> u64 {
        let wanted = self.used.saturating_add(self.requested);
        wanted.saturating_sub(self.limit)
    }
}
