//! How a run ends: with the effects of a write, or with the reason that stopped it.

use aerostat_storage::StorageError;
use aerostat_txn::Awaited;
use arrow_array::RecordBatch;

/// Why a program did not run to its end. Nothing has happened, once the transaction is
/// rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The planner's way knows what to do, or which error it is.
    Unfit,
    /// It would have to wait for another transaction, or to work for long, and its own must
    /// not.
    WouldWait(Option<Awaited>),
    /// A row was changed by a transaction that has committed since the snapshot.
    Conflict,
    /// The transaction was cancelled.
    Cancelled,
    /// It waited for a transaction that waits for its own.
    Deadlock,
    /// It waited for another transaction for as long as its lock timeout.
    TimedOut,
}

impl From<StorageError> for Stop {
    fn from(error: StorageError) -> Self {
        match error {
            StorageError::WouldWait { awaited } => Stop::WouldWait(awaited),
            StorageError::Conflict => Stop::Conflict,
            StorageError::Cancelled => Stop::Cancelled,
            StorageError::Deadlock => Stop::Deadlock,
            StorageError::LockTimeout => Stop::TimedOut,
            _ => Stop::Unfit,
        }
    }
}

/// What a write did.
#[derive(Clone, Debug)]
pub struct Written {
    /// Rows inserted, updated or deleted.
    pub rows: u64,
    /// The rows of RETURNING; `None` without RETURNING.
    pub returned: Option<Vec<RecordBatch>>,
}
