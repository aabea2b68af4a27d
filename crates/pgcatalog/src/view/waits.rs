//! How functions of a running statement wait, and what is known of locks.

use std::time::{Duration, Instant};

use aerostat_catalog::CopyState;
use aerostat_txn::{AdvisoryLock, LockMode, ShownLock};
use aerostat_types::{CommitTs, SqlError};

/// One statement's access to its session's advisory locks, and its way to wait.
pub trait Waits: Send + Sync {
    /// Takes an advisory lock for the session or for the transaction; `false` if somebody is
    /// in the way and `waits` is not set.
    ///
    /// # Errors
    /// Those of the wait, and when too many are held.
    fn lock(&self, lock: AdvisoryLock, is_session: bool, waits: bool) -> Result<bool, SqlError>;
    /// Gives back a lock that the session has taken; `false` if it has not.
    fn unlock(&self, lock: AdvisoryLock) -> bool;
    /// Gives back all locks that the session has taken.
    fn unlock_all(&self);
    /// Sleeps until then; for ever without a time.
    ///
    /// # Errors
    /// The statement is stopped before.
    fn sleep_until(&self, time: Option<Instant>) -> Result<(), SqlError>;
    /// Has this node lead the session's database; whether it does in time.
    ///
    /// # Errors
    /// The statement is stopped before.
    fn promote(&self, copy: &CopyState, at_most: Duration) -> Result<bool, SqlError>;
    /// Sleeps until snapshots see everything through this place, but not beyond that time; whether they do.
    ///
    /// # Errors
    /// The statement is stopped before.
    fn reach(&self, place: CommitTs, until: Instant) -> Result<bool, SqlError>;
    /// Tells the client something that is no error.
    fn warn(&self, message: String);
    /// All locks of the database.
    fn locks(&self) -> Vec<LockDescription>;
}

/// What is known of a lock that somebody has or waits for.
#[derive(Clone, Copy, Debug)]
pub struct LockDescription {
    /// What it is on, and how.
    pub lock: ShownLock,
    /// The session's number, where it is known.
    pub pid: Option<i32>,
}

/// A lock's mode, as PostgreSQL shows it.
pub(crate) fn lock_name(mode: LockMode) -> &'static str {
    match mode {
        LockMode::AccessShare => "AccessShareLock",
        LockMode::RowShare => "RowShareLock",
        LockMode::RowExclusive => "RowExclusiveLock",
        LockMode::ShareUpdateExclusive => "ShareUpdateExclusiveLock",
        LockMode::Share => "ShareLock",
        LockMode::ShareRowExclusive => "ShareRowExclusiveLock",
        LockMode::Exclusive => "ExclusiveLock",
        LockMode::AccessExclusive => "AccessExclusiveLock",
    }
}
