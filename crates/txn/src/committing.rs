//! A commit between its place in the order and its end.
//!
//! ```text
//!  Transaction::enqueue ──► place in the order, record in the log's queue    any thread
//!  Committing::finish   ──► waits for the disk, publishes, stamps rows       a thread that may wait
//!  Committing::when_known ─► is told when that would not wait any more       any thread
//! ```
//!
//! A commit between the two steps can be passed from thread to thread: one thread that may wait
//! finishes the commits of many, and the first of them makes the log write for all.

use std::{fmt, sync::Arc};

use aerostat_types::{CommitTs, TxnId};

use crate::{Call, CommitError, Outcome, RelationLocks, participant::Work, txns::TxnManager};

/// Beyond this much redo a commit is not a small one: writing it and stamping its rows keep
/// a thread busy for longer than a change of threads takes.
const SMALL_BYTES_MAX: usize = 64 << 10;

/// A commit that has its place in the order. It cannot be taken back: dropping it finishes it.
pub struct Committing {
    txns: Arc<TxnManager>,
    ts: CommitTs,
    /// `None` when there is nothing left to do.
    pending: Option<Pending>,
    is_small: bool,
}

struct Pending {
    id: TxnId,
    works: Vec<Work>,
    /// Where the block began, if it is one.
    block: Option<CommitTs>,
    /// Given back at the end: who gets them then sees what was done under them.
    locks: Option<Arc<RelationLocks>>,
}

impl Committing {
    /// Of a transaction that wrote nothing.
    pub(crate) fn nothing(txns: Arc<TxnManager>) -> Self {
        let ts = txns.last_commit();
        Self {
            txns,
            ts,
            pending: None,
            is_small: true,
        }
    }

    /// Of a transaction, or of a block with its beginning, that has a place in the order.
    pub(crate) fn of(
        txns: Arc<TxnManager>,
        id: TxnId,
        ts: CommitTs,
        redo_bytes: usize,
        works: Vec<Work>,
        block: Option<CommitTs>,
        locks: Option<Arc<RelationLocks>>,
    ) -> Self {
        assert!(
            block.is_some() || works.iter().all(|work| work.id == id),
            "a transaction outside a block commits its own work"
        );
        let is_small = redo_bytes <= SMALL_BYTES_MAX && !works.iter().any(|work| work.is_spilled);
        Self {
            txns,
            ts,
            pending: Some(Pending {
                id,
                works,
                block,
                locks,
            }),
            is_small,
        }
    }

    /// Its place in the commit order; of what wrote nothing, the newest one before.
    pub fn place(&self) -> CommitTs {
        self.ts
    }

    /// Whether finishing it is a matter of the disk alone: it wrote little.
    pub fn is_small(&self) -> bool {
        self.is_small
    }

    /// Waits until the log has it for good, if there is one, makes it visible to every
    /// snapshot taken from then on, and returns its place in the commit order.
    ///
    /// # Errors
    /// [`CommitError::InDoubt`]: nobody sees it, but it may be there after a crash.
    pub fn finish(mut self) -> Result<CommitTs, CommitError> {
        self.wait()
    }

    /// As [`Self::finish`] if that need not wait; else it is given back.
    ///
    /// # Errors
    /// Within: those of [`Self::finish`].
    pub fn try_finish(mut self) -> Result<Result<CommitTs, CommitError>, Self> {
        let Some(pending) = self.pending.take() else {
            return Ok(Ok(self.ts));
        };
        if self.is_small
            && let Some(durable) = self.txns.try_durable(pending.id, self.ts)
        {
            return Ok(self.settle(pending, durable));
        }
        self.pending = Some(pending);
        Err(self)
    }

    /// Has somebody called, once, as soon as [`Self::try_finish`] may finish it; given back where only
    /// [`Self::finish`] does.
    pub fn when_known(&self, call: Call) -> Option<Call> {
        self.txns.when_known(self.ts, call)
    }

    fn wait(&mut self) -> Result<CommitTs, CommitError> {
        let Some(pending) = self.pending.take() else {
            return Ok(self.ts);
        };
        let durable = self.txns.await_durable(pending.id, self.ts);
        self.settle(pending, durable)
    }

    fn settle(
        &self,
        pending: Pending,
        durable: Result<(), CommitError>,
    ) -> Result<CommitTs, CommitError> {
        let outcome = match durable {
            Ok(()) => Outcome::Committed(self.ts),
            Err(_) => Outcome::Aborted,
        };
        let Pending {
            id,
            works,
            block,
            locks,
        } = pending;
        let mut ids = Vec::with_capacity(works.len() + 1);
        for work in works {
            ids.push(work.finish(outcome));
        }
        if block.is_some() {
            ids.push(id);
        }
        self.txns.settled_all(&ids, block);
        if let Some(locks) = locks {
            locks.release_all();
        }
        durable.map(|()| self.ts)
    }
}

impl Drop for Committing {
    fn drop(&mut self) {
        // Rows of a commit that is never finished would stay locked. Nobody is left to be
        // told how it ended.
        let _ = self.wait();
    }
}

impl fmt::Debug for Committing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Committing")
            .field("ts", &self.ts)
            .field("is_done", &self.pending.is_none())
            .finish_non_exhaustive()
    }
}
