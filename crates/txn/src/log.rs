//! What makes commits durable, as far as the commit order must know.
//!
//! ```text
//!  writing   redo ──► Transaction::add_redo ──(over ½ MiB)──► CommitLog::append_chunk
//!  commit    order lock { ts := last assigned + 1
//!                         CommitLog::enqueue(ts, redo)   memory only, no I/O
//!                         state[T] := Committed(ts) }
//!            CommitLog::wait_durable(ts) ──► through ≥ ts
//!            order lock { last visible := max(last visible, through) }
//!            participants overwrite stamps; waiters wake
//! ```
//!
//! * The log holds entries in the order of their timestamps, and the durable part is a prefix of
//!   it. A thread that learns that the log is durable *through* a point may therefore make all of
//!   it visible at once: every commit up to there was assigned, and has its state, under the
//!   order lock before its entry could be written.
//! * Between assignment and visibility a transaction is `Committed(ts)` with `ts` above every
//!   snapshot that exists or can be taken: it is hidden like an active one. Its stamps stand, so
//!   that writers of the same rows wait until it has settled.
//! * The statements of a block have redo of their own. Redo that is written before the commit is
//!   written in the order of the statements. A statement that is undone is forgotten, and the
//!   commit names those of whose redo the log has a part.
//! * When the log fails, the commits that wait for it are *in doubt*: their bytes may have
//!   reached the disk. In memory they are undone, since nobody has seen them; the log decides
//!   their fate when it is opened again. A failed log accepts nothing. A log that is mended while
//!   it is open first declares that the commits in doubt did not happen
//!   ([`crate::TxnManager::give_up`]).

use std::{io, sync::Arc};

use aerostat_types::{CommitTs, OutOfMemory, TxnId};
use thiserror::Error;

/// Why a log takes nothing any more.
#[derive(Clone, Debug, Error)]
#[error("the commit log failed: could not {doing}")]
pub struct LogFailure {
    /// What it was about to do.
    pub doing: String,
    /// What the operating system said.
    #[source]
    pub source: Arc<io::Error>,
}

impl LogFailure {
    /// Whether another node has taken over what the log is of, and no disk is to blame.
    pub fn is_by_another_leader(&self) -> bool {
        self.source.kind() == io::ErrorKind::ConnectionAborted
    }
}

impl PartialEq for LogFailure {
    /// One failure equals its clones.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.source, &other.source)
    }
}

impl Eq for LogFailure {}

/// Why a transaction did not commit.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CommitError {
    /// The cancel token was cancelled before the commit. It was rolled back.
    #[error("canceled before the commit")]
    Cancelled,
    /// The log had failed before the commit. It was rolled back.
    #[error("cannot commit: changes are refused until the disk takes them again")]
    Refused(#[source] LogFailure),
    /// The log failed during the commit. Nobody sees it now; whether it is there when the
    /// database takes changes again is unknown.
    #[error("the outcome of the commit is unknown until the database takes changes again")]
    InDoubt(#[source] LogFailure),
}

/// What is called when more is known of a commit.
pub type Call = Box<dyn FnOnce() + Send>;

/// The commit log of one tenant.
pub trait CommitLog: Send + Sync + 'static {
    /// Takes a part of a transaction's redo before its commit. May wait for the disk.
    ///
    /// # Errors
    /// When the log has failed.
    fn append_chunk(&self, txn: TxnId, redo: Vec<u8>) -> Result<(), LogFailure>;

    /// Takes a commit with the rest of its redo. Called under the order lock, with
    /// ascending timestamps without gaps: must neither wait nor do I/O. The chunks of
    /// `parts` belong to the commit, and come before the rest, as those of `txn` do.
    ///
    /// # Errors
    /// When the log has failed; the timestamp is not used then.
    fn enqueue_commit(
        &self,
        txn: TxnId,
        parts: &[TxnId],
        ts: CommitTs,
        redo: Vec<u8>,
    ) -> Result<(), LogFailure>;

    /// [`Self::enqueue_commit`] that also makes this the tenant's catalogue, whose contents
    /// are its users': both are durable, or neither.
    ///
    /// # Errors
    /// As [`Self::enqueue_commit`].
    fn enqueue_commit_with_catalog(
        &self,
        txn: TxnId,
        parts: &[TxnId],
        ts: CommitTs,
        redo: Vec<u8>,
        catalog: Vec<u8>,
    ) -> Result<(), LogFailure>;

    /// Waits until everything through `ts` is as durable as the tenant asks for, and
    /// returns through where it is, which may be further.
    ///
    /// # Errors
    /// When the log failed before it was: whether `ts` is durable is unknown.
    fn wait_durable(&self, ts: CommitTs) -> Result<CommitTs, LogFailure>;

    /// As [`Self::wait_durable`] where that waits for no disk and for no other thread;
    /// `None` where it would. For threads that must go on.
    fn try_durable(&self, _ts: CommitTs) -> Option<Result<CommitTs, LogFailure>> {
        None
    }

    /// Has somebody called, once, as soon as [`Self::try_durable`] may say more of `ts` than it does now, by a
    /// thread that must not be kept. It is given back where nobody sees to that, and so has to wait
    /// ([`Self::wait_durable`]).
    fn when_known(&self, _ts: CommitTs, call: Call) -> Option<Call> {
        Some(call)
    }

    /// The transaction will not commit: its chunks need not be kept.
    fn forget(&self, txn: TxnId);

    /// Takes memory for redo that waits in its transaction. May be called with latches held.
    ///
    /// # Errors
    /// When there is not that much left. The statement fails.
    fn reserve_redo(&self, bytes: usize) -> Result<(), OutOfMemory>;

    /// Gives back what was taken with [`Self::reserve_redo`].
    fn release_redo(&self, bytes: usize);
}
