//! Another node's records, as they come to a copy of its log.
//!
//! Each is checked, sealed anew (`synced` is each disk's own), and written behind those before it. What is
//! written is not on disk until [`Log::flush`].

use aerostat_txn::LogFailure;
use aerostat_types::{CommitTs, TxnId};
use parking_lot::MutexGuard;
use thiserror::Error;

use super::{
    Led, Log, QUEUE_BYTES_MAX, State,
    order::{Entry, Rule},
    point::StreamPoint,
    record::{self, Record, USED_END},
    sleep,
};
use crate::files::codec::BadBytes;

/// Why records were not taken, or not all.
#[derive(Debug, Error)]
pub enum ReceiveError {
    /// They are not what a log has, or not what comes next.
    #[error("what came from the leader's log is damaged: {0}")]
    Bad(&'static str),
    /// They could not be written. The copy has to be opened again.
    #[error(transparent)]
    Log(#[from] LogFailure),
}

impl From<BadBytes> for ReceiveError {
    fn from(bad: BadBytes) -> Self {
        ReceiveError::Bad(bad.0)
    }
}

impl Log {
    /// Whether its records are another node's.
    pub(crate) fn follows(&self) -> bool {
        self.state.lock().order.follows()
    }

    /// Takes another node's records from now on, behind what it has; `chunked` are that node's transactions
    /// that have not ended and have chunks here, each with the first file that may have one.
    pub(crate) fn follow(&self, chunked: impl Iterator<Item = (TxnId, u64)>) {
        self.state.lock().order.follow(chunked);
    }

    /// Says of transactions of a process before this one that they will not commit, each with the first file
    /// that may have a chunk of it. `aborted_from` is that of those of which the log's end says so already.
    pub(crate) fn abort(
        &self,
        unfinished: impl Iterator<Item = (TxnId, u64)>,
        aborted_from: Option<u64>,
    ) {
        let order = &mut self.state.lock().order;
        order.abort(unfinished.collect());
        aborted_from
            .into_iter()
            .for_each(|from| order.has_aborted(from));
    }

    /// Takes this node's own records from now on, behind a place, which is the last that it has. That the other
    /// node's transactions which had not committed will not is said by the next group.
    pub(crate) fn lead_on(&self, last: CommitTs) {
        let mut state = self.state.lock();
        assert!(
            state.order.enqueued() == last,
            "the log has places through {}, and those through {last} are applied",
            state.order.enqueued()
        );
        state.order.lead();
    }

    /// Up to where another node's log was received.
    pub(crate) fn received(&self) -> StreamPoint {
        self.state.lock().order.received()
    }

    /// From the next group on commits are acknowledged when it is said that copies have them, and this node's
    /// disk has them (`and_fsync`) or its operating system.
    pub(crate) fn await_copies(&self, and_fsync: bool) {
        let mut state = self.state.lock();
        state.order.set_rule(Rule::Copies { and_fsync });
        sleep::wake(&mut state);
    }

    /// The copies that must have everything through this. Gives through where everything is acknowledged.
    pub(crate) fn committed(&self, through: CommitTs) -> CommitTs {
        let mut state = self.state.lock();
        state.order.committed(through);
        sleep::wake(&mut state);
        state.order.acknowledged()
    }

    /// As [`Self::committed`], of a copy: nobody waits.
    pub(crate) fn note_committed(&self, through: CommitTs) {
        self.state.lock().order.committed(through);
    }

    /// Whether a copy's leader has said that everything through this is committed.
    pub(crate) fn is_committed(&self, through: CommitTs) -> bool {
        self.state.lock().order.is_committed(through)
    }

    /// Another node leads. Whoever waits learns that it cannot be told what became of its commit.
    pub(crate) fn depose(&self) {
        let mut state = self.state.lock();
        state.order.depose();
        sleep::wake(&mut state);
    }

    /// Writes what is queued, and does not wait until it is acknowledged.
    ///
    /// # Errors
    /// The log has failed, now or before.
    pub(crate) fn write_out(&self) -> Result<(), LogFailure> {
        let state = self.state.lock();
        self.write_queued(state).map(drop)
    }

    /// Writes records of the log that this one follows: whole ones, those that come next, which `check` finds to
    /// say what their kind does. Gives through where they are written.
    ///
    /// # Errors
    /// [`ReceiveError`]: those before the one that is wrong are taken.
    pub(crate) fn receive(
        &self,
        records: &[u8],
        check: &dyn Fn(&Record<'_>) -> Result<(), ReceiveError>,
    ) -> Result<CommitTs, ReceiveError> {
        let mut state = self.unled();
        let mut rest = records;
        while !rest.is_empty() {
            let bad = ReceiveError::Bad("no record where one is to be");
            let (record, length) = record::parse(rest).ok_or(bad)?;
            rest = &rest[length..];
            let head = record.head;
            if head.txn.0 >= USED_END || head.lsn.0 >= USED_END {
                return Err(ReceiveError::Bad("a number that nothing has reached"));
            }
            // All that recovery asks for: else a copy could not be opened with what it has taken.
            let before = state.order.enqueued();
            let follows = match head.kind.has_place() {
                true => *record::places(&record)?.start() == before.0 + 1,
                false => head.lsn.0 == 0,
            };
            if !follows {
                return Err(ReceiveError::Bad("an entry before this is missing"));
            }
            let parts = record::statements(&record)?;
            if !parts.iter().all(|part| state.order.has_chunks(*part)) {
                let what = "rows of a statement before this are missing";
                return Err(ReceiveError::Bad(what));
            }
            check(&record)?;
            let payload = record.payload.to_vec();
            state.order.receive(Entry { head, payload }, &parts)?;
            if state.order.queued_bytes() > QUEUE_BYTES_MAX {
                state = self.write_queued(state)?;
            }
        }
        state = self.write_queued(state)?;
        Ok(state.order.written_through())
    }

    /// Writes what is queued. A checkpoint may write at the same time.
    fn write_queued<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
    ) -> Result<MutexGuard<'a, State>, LogFailure> {
        while state.led != Led::No {
            sleep::sleep(state, None);
            state = self.state.lock();
        }
        if state.order.failure().is_none() {
            state = self.lead(state, false);
        }
        match state.order.failure() {
            Some(failure) => Err(failure.clone()),
            None => Ok(state),
        }
    }
}
