//! Commits of another node's log, done again here: what a copy of a tenant does.
//!
//! ```text
//!  leader  T 64 ── rows ── rows ── commit 42 ──────────────────► log
//!  copy            └──────── T 7 ────┘ commit_applied(42, [T 7])
//! ```
//!
//! * A copy's transactions have ids of its own, for stamps are its own; the places of commits are the
//!   leader's. Nothing of them goes to the log: it had their records before.
//! * One thread does them, in the order of the log. What a transaction of the leader wrote was locked
//!   until its end, so here none of them is ever in another's way.
//! * Snapshots pass from one commit to the next in one step, as at the leader.

use std::sync::Arc;

use aerostat_types::{CommitTs, TxnId};

use crate::{Outcome, Snapshot, Transaction, participant::Work, txns::TxnManager};

impl TxnManager {
    /// Begins a transaction that does again what one of another node has done.
    pub fn begin_applied(self: &Arc<Self>) -> Transaction {
        let locks = self.relation_locks();
        let id = locks.owner();
        self.begin_state(id);
        // It reads nothing, and may be open for long: no version is kept for it.
        let snapshot = Snapshot::unregistered(self);
        Transaction::new(Arc::clone(self), id, snapshot, locks, None).of_other_log()
    }

    /// Makes the work of all of these visible to every snapshot taken from now on, in one step, as the commit
    /// with this place. There need be none: then nothing is at the places through it.
    ///
    /// # Panics
    /// When the place does not come after all that were taken, or one of them is not of
    /// [`Self::begin_applied`].
    pub fn commit_applied(&self, ts: CommitTs, transactions: Vec<Transaction>) {
        let works: Vec<Work> = transactions
            .into_iter()
            .map(Transaction::into_applied_work)
            .collect();
        let ids: Vec<TxnId> = works.iter().map(|work| work.id).collect();
        self.pass(ts, &ids);
        for work in works {
            work.finish(Outcome::Committed(ts));
        }
        if !ids.is_empty() {
            self.settled_all(&ids, None);
        }
    }

    /// Ids from here on are above this one: the log has transactions of another node with those through it.
    pub fn raise_ids(&self, above: TxnId) {
        self.raise_next_id(above);
    }
}
