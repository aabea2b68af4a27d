//! Making way for rows to come where memory is short of what can be evicted.
//!
//! ```text
//!  memory ├── hot ──┼── frozen, no image ──┼── frozen, with an image ──┼── free ──┤
//!             freeze ──►       checkpoint ──►          evicted when a budget would refuse
//! ```
//!
//! The background freezer and checkpoints come to it by themselves. A load that is faster than they are
//! would be refused; it does their work instead, and goes on when there is way.

use aerostat_memory::MemoryClass;
use aerostat_segment::ARENA_BYTES_MAX;
use aerostat_txn::CancelToken;

use crate::{StorageError, TenantStore, store::tenant::Tried};

/// Way is made when less than this share of the memory is free or can be evicted, as a divisor, or less
/// than freezing takes.
const SHORT_SHARE: u64 = 4;

/// Freezing takes up to so many times what a segment of short rows does (`working`). Where memory is
/// little, segments are frozen before they are full for that.
const FREEZING_TIMES: u64 = 16;

/// It is not tried again before so much more is in use, as a divisor of the memory.
const AGAIN_SHARE: u64 = 64;

/// The same where something was committed since.
const COMMITTED_SHARE: u64 = 512;

impl TenantStore {
    /// Has rows and values go where they can be evicted, if memory is short of such. To be called
    /// before rows are written, by who holds no lock and may wait. What cannot be done, because
    /// transactions that have not ended are in the way, is left: the budget refuses then.
    ///
    /// # Errors
    /// [`StorageError::Cancelled`].
    pub fn make_way(&self, cancel: &CancelToken) -> Result<(), StorageError> {
        if !self.is_short() {
            return Ok(());
        }
        // Others wait for the first, and find that there is way.
        let mut tried = self.made_way.lock();
        let used = self.budget().used();
        let memory = used + self.budget().available();
        let commit = self.txns().last_commit();
        let is_early = tried.as_ref().is_some_and(|tried| {
            let share = match tried.last_commit == commit {
                true => AGAIN_SHARE,
                false => COMMITTED_SHARE,
            };
            // Who was refused gave back what it had.
            tried.refusals == self.budget().refusals()
                && used < tried.used.saturating_add(memory / share)
        });
        if !self.is_short() || is_early {
            return Ok(());
        }
        for table in self.living.all() {
            if cancel.is_cancelled() {
                return Err(StorageError::Cancelled);
            }
            if let Err(error) = table.freeze_settled() {
                let error = &error as &dyn std::error::Error;
                tracing::debug!(table = %table.id(), error, "not frozen to make way");
            }
        }
        if let Err(error) = self.checkpoint() {
            let error = &error as &dyn std::error::Error;
            tracing::debug!(error, "no checkpoint to make way");
        }
        let is_short = self.is_short();
        *tried = is_short.then(|| Tried {
            used: self.budget().used(),
            last_commit: commit,
            refusals: self.budget().refusals(),
        });
        Ok(())
    }

    /// Whether somebody waits for memory right now.
    pub fn is_waited_for(&self) -> bool {
        self.evictor().is_waited_for()
    }

    /// Whether little is free or can be evicted, or somebody waits for what others read meanwhile.
    pub(crate) fn is_short(&self) -> bool {
        if !self.is_durable() {
            return false;
        }
        if self.is_waited_for() {
            return true;
        }
        let free = self.budget().available();
        let memory = self.budget().used() + free;
        // One segment after the other.
        let hot = self.budget().used_for(MemoryClass::Hot);
        let freezing = FREEZING_TIMES * hot.min(ARENA_BYTES_MAX as u64);
        free + self.evictor().resident_bytes() < freezing.max(memory / SHORT_SHARE)
    }
}
