//! A transaction from begin to commit or rollback.

use std::{fmt, sync::Arc};

use aerostat_types::{CommitTs, TxnId};
use parking_lot::Mutex;
use thiserror::Error;

use crate::{CancelToken, Isolation, LogFailure, Snapshot, block::Shared, txns::TxnManager};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is part of every snapshot from this point on.
    Committed(CommitTs),
    /// It never happened.
    Aborted,
}

/// Something that must be done for the rows a transaction wrote once it ends.
pub trait Participant: Send {
    /// Overwrites the transaction's stamps with final ones. Readers meanwhile
    /// resolve them through the state table. Called once, with no lock held.
    fn finish(self: Box<Self>, outcome: Outcome);
}

/// Why a transaction did not commit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommitError {
    /// The cancel token was cancelled before the commit. It was rolled back.
    #[error("canceled before the commit")]
    Cancelled,
    /// The log had failed before the commit. It was rolled back.
    #[error("cannot commit: changes are refused until the database is opened again")]
    Refused(#[source] LogFailure),
    /// The log failed during the commit. Nobody sees it now; whether it is there when the
    /// database is opened again is unknown.
    #[error("the outcome of the commit is unknown until the database is opened again")]
    InDoubt(#[source] LogFailure),
}

/// Redo beyond this goes to the log before the commit. Large enough that a write costs
/// little more than its bytes, small enough that many loads at once need no budget.
pub(crate) const REDO_BYTES_MAX: usize = 1 << 20;

/// A unit of work that happens wholly or not at all: a transaction, or one statement of a
/// [`crate::Block`]. Dropping it rolls it back.
pub struct Transaction {
    txns: Arc<TxnManager>,
    id: TxnId,
    snapshot: Snapshot,
    cancel: CancelToken,
    participants: Mutex<Vec<Box<dyn Participant>>>,
    /// What it did, in the order in which it did it, as far as the log has not got it.
    redo: Mutex<Vec<u8>>,
    /// Whether the log has a part of the redo. Locked while it gets one: later redo must not
    /// overtake it.
    spilled: Mutex<bool>,
    /// The block it is a statement of.
    block: Option<Arc<Shared>>,
    ended: bool,
}

/// What a transaction did, while its stamps stand.
pub(crate) struct Work {
    pub(crate) id: TxnId,
    pub(crate) participants: Vec<Box<dyn Participant>>,
    /// As far as the log has not got it.
    pub(crate) redo: Vec<u8>,
    /// Whether the log has a part of it.
    pub(crate) is_spilled: bool,
}

impl Work {
    /// It never happened.
    pub(crate) fn undo(self, txns: &TxnManager) {
        txns.abort(self.id);
        if self.is_spilled
            && let Some(log) = txns.log()
        {
            log.forget(self.id);
        }
        self.settle(txns, Outcome::Aborted);
    }

    /// Makes all stamps final. The state says the outcome already.
    pub(crate) fn settle(self, txns: &TxnManager, outcome: Outcome) {
        for participant in self.participants {
            participant.finish(outcome);
        }
        txns.settled(self.id);
    }
}

impl Transaction {
    pub(crate) fn new(
        txns: Arc<TxnManager>,
        id: TxnId,
        snapshot: Snapshot,
        block: Option<Arc<Shared>>,
    ) -> Self {
        Self {
            txns,
            id,
            snapshot,
            cancel: CancelToken::new(),
            participants: Mutex::default(),
            redo: Mutex::default(),
            spilled: Mutex::new(false),
            block,
            ended: false,
        }
    }

    /// The id its rows are stamped with.
    pub fn id(&self) -> TxnId {
        self.id
    }

    /// What it saw when it began.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// What it sees of others. [`Isolation::ReadCommitted`] outside a block: who meets a
    /// conflict may run again on a newer snapshot.
    pub fn isolation(&self) -> Isolation {
        self.block
            .as_ref()
            .map_or(Isolation::ReadCommitted, |block| block.isolation())
    }

    /// Whether rows stamped with this id are its own: written by itself or by a statement
    /// that its block had kept when it began. Nobody waits for those.
    pub fn owns(&self, id: TxnId) -> bool {
        id == self.id || self.snapshot.owns(id)
    }

    /// The tenant's transactions.
    pub fn txns(&self) -> &Arc<TxnManager> {
        &self.txns
    }

    /// Cancels its waits and its commit.
    pub fn cancel_token(&self) -> CancelToken {
        self.cancel.clone()
    }

    /// Adds what to do at the end. Participants finish in the order they enlisted.
    pub fn enlist(&self, participant: Box<dyn Participant>) {
        self.participants.lock().push(participant);
    }

    /// Whether somebody wants redo.
    pub fn is_logged(&self) -> bool {
        self.txns.log().is_some()
    }

    /// Adds to what the log needs to do the transaction again. Quick: may be called with
    /// latches held, so that redo of the same row is in the order of the changes.
    pub fn add_redo(&self, redo: &[u8]) {
        debug_assert!(self.is_logged(), "redo is for a log");
        self.redo.lock().extend_from_slice(redo);
    }

    /// Gives redo to the log if there is much of it. Called with no latch held after
    /// [`Self::add_redo`], so that a load of any size needs little memory for it.
    ///
    /// # Errors
    /// When the log has failed. The caller rolls back.
    pub fn spill_redo(&self) -> Result<(), LogFailure> {
        let Some(log) = self.txns.log() else {
            return Ok(());
        };
        if self.redo.lock().len() < REDO_BYTES_MAX {
            return Ok(());
        }
        if let Some(block) = &self.block {
            block.spill(&**log)?;
        }
        let mut spilled = self.spilled.lock();
        let redo = std::mem::take(&mut *self.redo.lock());
        if redo.is_empty() {
            return Ok(());
        }
        *spilled = true;
        log.append_chunk(self.id, redo)
    }

    /// Makes all of its work visible to every snapshot taken from now on, in one
    /// step, and returns its place in the commit order. A transaction that wrote
    /// nothing takes no place. Returns once the log has it for good, if there is one.
    ///
    /// A statement of a block is kept for the block's commit, without waiting for the
    /// disk; its place is not known yet, and the newest that snapshots see is returned.
    ///
    /// # Errors
    /// [`CommitError::Cancelled`] and [`CommitError::Refused`]: it is rolled back.
    /// [`CommitError::InDoubt`]: nobody sees it, but it may be there after a restart.
    pub fn commit(mut self) -> Result<CommitTs, CommitError> {
        if self.cancel.is_cancelled() {
            return Err(CommitError::Cancelled);
        }
        if self.participants.get_mut().is_empty() {
            return Ok(self.txns.last_commit());
        }
        let mut work = self.take_work();
        self.ended = true;
        if let Some(block) = &self.block {
            block.keep(work)?;
            return Ok(self.txns.last_commit());
        }
        let redo = std::mem::take(&mut work.redo);
        let result = self.txns.commit(self.id, &[], redo);
        match &result {
            Ok(ts) => work.settle(&self.txns, Outcome::Committed(*ts)),
            Err(CommitError::InDoubt(_)) => work.settle(&self.txns, Outcome::Aborted),
            Err(CommitError::Refused(_) | CommitError::Cancelled) => work.undo(&self.txns),
        }
        result
    }

    /// Undoes all of its work.
    pub fn rollback(self) {
        drop(self);
    }

    fn take_work(&mut self) -> Work {
        Work {
            id: self.id,
            participants: std::mem::take(self.participants.get_mut()),
            redo: std::mem::take(self.redo.get_mut()),
            is_spilled: *self.spilled.get_mut(),
        }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.ended {
            if let Some(block) = &self.block {
                block.leave(self.id);
            }
            self.take_work().undo(&self.txns);
        }
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("id", &self.id)
            .field("snapshot", &self.snapshot)
            .finish_non_exhaustive()
    }
}
