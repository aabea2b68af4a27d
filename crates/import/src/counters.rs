//! What a run counts.

use crate::lsn::Lsn;

/// What a run has done so far, over all its connections.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) rows: u64,
    pub(crate) transactions: u64,
    pub(crate) changes: u64,
    pub(crate) lsn: Option<Lsn>,
    /// Whether anything was begun: a failure before is a failure to begin.
    pub(crate) begun: bool,
    /// How many times the target committed.
    pub(crate) commits: u64,
    /// How many transactions of the source were made and taken back with the one that failed after them.
    pub(crate) batch_failed: u64,
    /// How many transactions are to be committed one by one, so that those before one that fails stay.
    pub(crate) singly: u64,
}

impl Counters {
    /// The target committed.
    pub(crate) fn applied(&mut self, lsn: Lsn, transactions: u64, changes: u64) {
        self.lsn = Some(lsn);
        self.transactions += transactions;
        self.changes += changes;
        self.singly = self.singly.saturating_sub(transactions);
        self.commits += 1;
    }
}
