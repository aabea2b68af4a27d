//! A transaction from begin to commit or rollback.

use std::{fmt, sync::Arc};

use aerostat_types::{CommitTs, TxnId};
use parking_lot::Mutex;
use thiserror::Error;

use crate::{CancelToken, Snapshot, txns::TxnManager};

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

/// Why a transaction did not commit. It was rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CommitError {
    /// The cancel token was cancelled before the commit.
    #[error("canceled before the commit")]
    Cancelled,
}

/// A unit of work that happens wholly or not at all. Dropping it rolls it back.
pub struct Transaction {
    txns: Arc<TxnManager>,
    id: TxnId,
    snapshot: Snapshot,
    cancel: CancelToken,
    participants: Mutex<Vec<Box<dyn Participant>>>,
    ended: bool,
}

impl Transaction {
    pub(crate) fn new(txns: Arc<TxnManager>, id: TxnId, snapshot: Snapshot) -> Self {
        Self {
            txns,
            id,
            snapshot,
            cancel: CancelToken::new(),
            participants: Mutex::default(),
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

    /// Makes all of its work visible to every snapshot taken from now on, in one
    /// step, and returns its place in the commit order. A transaction that wrote
    /// nothing takes no place.
    ///
    /// # Errors
    /// [`CommitError::Cancelled`]; the transaction is rolled back.
    pub fn commit(mut self) -> Result<CommitTs, CommitError> {
        if self.cancel.is_cancelled() {
            return Err(CommitError::Cancelled);
        }
        let participants = std::mem::take(self.participants.get_mut());
        if participants.is_empty() {
            return Ok(self.txns.last_commit());
        }
        self.ended = true;
        let ts = self.txns.commit(self.id);
        self.settle(participants, Outcome::Committed(ts));
        Ok(ts)
    }

    /// Undoes all of its work.
    pub fn rollback(self) {
        drop(self);
    }

    fn settle(&self, participants: Vec<Box<dyn Participant>>, outcome: Outcome) {
        for participant in participants {
            participant.finish(outcome);
        }
        self.txns.settled(self.id);
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        if !self.ended {
            self.txns.abort(self.id);
            let participants = std::mem::take(self.participants.get_mut());
            self.settle(participants, Outcome::Aborted);
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
