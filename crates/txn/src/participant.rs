//! What a transaction has done to rows, and what becomes of it at the end.
//!
//! Storage enlists [`Participant`]s, which know where the transaction's stamps are. [`Work`] is
//! all of them together with the redo, and ends as a whole: the state table gets the outcome
//! first, then every stamp is made final, and last the transaction leaves the table.

use aerostat_types::{CommitTs, TxnId};

use crate::{redo::Redo, txns::TxnManager};

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

/// What a transaction did, while its stamps stand.
pub(crate) struct Work {
    pub(crate) id: TxnId,
    pub(crate) participants: Vec<Box<dyn Participant>>,
    /// As far as the log has not got it.
    pub(crate) redo: Redo,
    /// Whether the log has a part of it.
    pub(crate) is_spilled: bool,
}

impl Work {
    /// Whether it is more than row locks.
    pub(crate) fn has_written(&self) -> bool {
        !self.participants.is_empty()
    }

    /// It never happened.
    pub(crate) fn undo(self, txns: &TxnManager) {
        txns.abort(self.id);
        if self.is_spilled
            && let Some(log) = txns.log()
        {
            log.forget(self.id);
        }
        let id = self.finish(Outcome::Aborted);
        txns.settled(id);
    }

    /// Makes all stamps final. The state says the outcome already. Gives whose work it was,
    /// which has settled by that.
    pub(crate) fn finish(self, outcome: Outcome) -> TxnId {
        for participant in self.participants {
            participant.finish(outcome);
        }
        self.id
    }
}
