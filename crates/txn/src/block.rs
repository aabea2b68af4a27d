//! Several statements that commit together: everything between BEGIN and COMMIT.
//!
//! ```text
//!  Block B          id 64, its statements have ids 65, 66, 67 …
//!   statement 65    done, kept         rows stamped "65"      state[65] = part of 64
//!   statement 66    failed             undone at once         (left the state table)
//!   savepoint s
//!   statement 67    done, kept         rows stamped "67"
//!   ROLLBACK TO s   67 is undone
//!   statement 68    snapshot: commits so far + {65}; stamps "68"
//!  COMMIT           state[64] := Committed(42)     one step for 65 and 68
//!                   stamps "65" and "68" become 42, they leave the table, then 64
//! ```
//!
//! * Each statement is a [`Transaction`] with an id of its own, so it never sees its own writes,
//!   and undoing it, alone or with all statements since a savepoint, is an ordinary rollback.
//! * A finished statement is *kept*: what it enlisted and its redo wait for the block's end. The
//!   states of the statements refer to the block's own state, so changing that commits them all.
//! * A snapshot of a block sees commits up to its point and the statements that the block had
//!   kept by then.
//! * Relation locks belong to the block. It holds them to its end, or until it rolls back to a
//!   savepoint before them.
//! * Redo goes to the log in the order of the statements: before a statement's redo is written
//!   early, that of all earlier statements is, each under its own id. The commit names the
//!   statements of which the log has parts.

use std::{fmt, ops::Range, sync::Arc};

use aerostat_types::{CommitTs, TxnId};

use crate::{
    CancelToken, CommitError, Committing, Isolation, RelationLocks, Snapshot, Transaction,
    block_state::Shared, participant::Work, relations::LockMark, txns::TxnManager,
};

/// A moment between two statements of a block, to go back to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint {
    /// Statements after it have this id or a greater one.
    next: TxnId,
    /// So have locks.
    locks: LockMark,
}

/// An explicit transaction: statements, one after the other, that commit together.
/// Dropping it rolls it back.
pub struct Block {
    shared: Arc<Shared>,
    cancel: CancelToken,
    ended: bool,
    /// Whether somebody else gives its locks back.
    leaves_locks: bool,
}

impl TxnManager {
    /// Begins an explicit transaction of several statements. Its first snapshot is taken
    /// when the first of them begins.
    pub fn begin_block(self: &Arc<Self>, isolation: Isolation) -> Block {
        let ids = self.take_ids();
        let began = self.register_block();
        self.begin_state(TxnId(ids.start));
        Block::new(Arc::clone(self), ids, began, isolation)
    }
}

impl Block {
    /// A block with the first of `ids` for itself, which is in the state table already.
    fn new(txns: Arc<TxnManager>, ids: Range<u64>, began: CommitTs, isolation: Isolation) -> Self {
        Self {
            shared: Arc::new(Shared::new(txns, ids, began, isolation)),
            cancel: CancelToken::new(),
            ended: false,
            leaves_locks: false,
        }
    }

    /// Its locks on relations.
    pub fn relation_locks(&self) -> &Arc<RelationLocks> {
        &self.shared.locks
    }

    /// What its statements see of others.
    pub fn isolation(&self) -> Isolation {
        self.shared.isolation()
    }

    /// Changes that, unless a snapshot was taken: then it returns `false`.
    pub fn set_isolation(&self, isolation: Isolation) -> bool {
        let mut state = self.shared.state.lock();
        if !state.has_begun {
            state.isolation = isolation;
        }
        !state.has_begun
    }

    /// Whether a snapshot was taken: a first statement has run.
    pub fn has_begun(&self) -> bool {
        self.shared.state.lock().has_begun
    }

    /// Whether a statement that wrote something is kept. If none is, committing takes no
    /// place in the commit order.
    pub fn has_written(&self) -> bool {
        self.shared.state.lock().kept.iter().any(Work::has_written)
    }

    /// What a statement that begins now sees: of others according to the isolation, and
    /// all that the block has kept. It stays as it is while the block goes on, for a
    /// cursor; it is of no use once what it saw was undone, or the block has ended.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.state.lock().snapshot(&self.shared.txns)
    }

    /// As [`Self::snapshot`], but with all that others have committed by now, whatever the
    /// isolation: for work on rows that must not miss one.
    pub fn latest_snapshot(&self) -> Snapshot {
        let txns = &self.shared.txns;
        self.shared.state.lock().snapshot_at(txns.snapshot())
    }

    /// Begins a statement that writes, or locks rows. Its `commit` keeps what it did for the block's
    /// commit; dropping it undoes it. One at a time: a statement that has not ended by
    /// then is cancelled, and can only be undone.
    pub fn statement(&self) -> Transaction {
        let Shared {
            txns, id, state, ..
        } = &*self.shared;
        let mut state = state.lock();
        state.give_up_running(txns);
        let statement = state.next_id(txns);
        state.ids.start += 1;
        txns.begin_part(statement, *id);
        let transaction = Transaction::new(
            Arc::clone(txns),
            statement,
            state.snapshot(txns),
            Arc::clone(&self.shared.locks),
            Some(Arc::clone(&self.shared)),
        );
        state.running = Some((statement, transaction.cancel_token()));
        transaction
    }

    /// The moment after the statements so far.
    pub fn savepoint(&self) -> Savepoint {
        let mut state = self.shared.state.lock();
        Savepoint {
            next: state.next_id(&self.shared.txns),
            locks: self.shared.locks.mark(),
        }
    }

    /// Undoes all statements since then, and cancels one that has not ended. Locks taken
    /// since then are given back. May wait for latches, as every rollback.
    pub fn rollback_to(&self, savepoint: Savepoint) {
        let txns = &self.shared.txns;
        let undone = self.shared.state.lock().cut(txns, savepoint.next);
        undo(txns, undone);
        self.shared.locks.release_since(savepoint.locks);
    }

    /// Cancels its commit. Statements have tokens of their own.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// Makes the work of all kept statements visible to every snapshot taken from now on,
    /// in one step, and returns its place in the commit order. A block that wrote nothing
    /// takes no place. Returns once the log has it for good, if there is one.
    ///
    /// # Errors
    /// [`CommitError::Cancelled`] and [`CommitError::Refused`]: it is rolled back.
    /// [`CommitError::InDoubt`]: nobody sees it, but it may be there after a crash.
    pub fn commit(self) -> Result<CommitTs, CommitError> {
        self.enqueue()?.finish()
    }

    /// As [`Self::commit`], with what the log keeps beside the rows as a whole: the
    /// tenant's catalogue. It takes a place in any case. The locks stay as long as
    /// somebody has them, for the caller has yet to show others the new catalogue.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_with(mut self, catalog: Vec<u8>) -> Result<CommitTs, CommitError> {
        self.leaves_locks = true;
        self.enqueue_work(Some(catalog), None)?.finish()
    }

    /// The part of [`Self::commit`] that waits for nothing: gives it a place in the order.
    /// What is left to do is [`Committing::finish`].
    ///
    /// # Errors
    /// [`CommitError::Cancelled`] and [`CommitError::Refused`]: it is rolled back.
    pub fn enqueue(self) -> Result<Committing, CommitError> {
        let locks = Arc::clone(&self.shared.locks);
        self.enqueue_work(None, Some(locks))
    }

    /// `locks` are given back at the end of the commit.
    fn enqueue_work(
        mut self,
        catalog: Option<Vec<u8>>,
        locks: Option<Arc<RelationLocks>>,
    ) -> Result<Committing, CommitError> {
        let Shared {
            txns,
            id,
            began,
            state,
            ..
        } = &*self.shared;
        let mut kept = state.lock().close(txns);
        if self.cancel.is_cancelled() {
            undo(txns, kept);
            return Err(CommitError::Cancelled);
        }
        if !kept.iter().any(Work::has_written) && catalog.is_none() {
            // Nothing but row locks, which end with it.
            undo(txns, kept);
            return Ok(Committing::nothing(Arc::clone(txns)));
        }
        let spilled: Vec<TxnId> = kept
            .iter()
            .filter(|work| work.is_spilled)
            .map(|work| work.id)
            .collect();
        let mut redo = Vec::with_capacity(kept.iter().map(|work| work.redo.len()).sum());
        for work in &mut kept {
            redo.append(&mut work.redo.take_bytes());
        }
        let redo_bytes = redo.len();
        let ts = match txns.enqueue_commit(*id, &spilled, redo, catalog) {
            Ok(ts) => ts,
            Err(error) => {
                undo(txns, kept);
                return Err(error);
            }
        };
        let committing = Committing::of(
            Arc::clone(txns),
            *id,
            ts,
            redo_bytes,
            kept,
            Some(*began),
            locks,
        );
        self.leaves_locks = true;
        self.ended = true;
        Ok(committing)
    }

    /// Undoes all of its work.
    pub fn rollback(self) {
        drop(self);
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if !self.ended {
            let Shared {
                txns,
                id,
                began,
                state,
                ..
            } = &*self.shared;
            let kept = state.lock().close(txns);
            undo(txns, kept);
            txns.abort(*id);
            txns.settled_all(&[*id], Some(*began));
        }
        if !self.leaves_locks {
            self.shared.locks.release_all();
        }
    }
}

impl fmt::Debug for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Block")
            .field("id", &self.shared.id)
            .field("isolation", &self.isolation())
            .finish_non_exhaustive()
    }
}

/// The newest first, so that a row is given back before what began it is undone.
fn undo(txns: &TxnManager, works: Vec<Work>) {
    for work in works.into_iter().rev() {
        work.undo(txns);
    }
}
