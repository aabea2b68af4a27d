//! The errors of tables.

use aerostat_memory::{MemoryError, OutOfMemory};
use aerostat_segment::SegmentError;
use aerostat_txn::{Awaited, CommitError, LogFailure, TooManyLocks, WaitError};
use aerostat_types::{LayoutError, TableId};
use thiserror::Error;

/// Columns a table may have, as in PostgreSQL.
pub const COLUMNS_MAX: usize = 1_600;

/// Why a table could not do what it was asked to. The transaction must be rolled
/// back; its rows so far are marked as its own and vanish with it.
#[derive(Debug, Error)]
pub enum StorageError {
    /// A NULL for a column that takes none.
    #[error("null value in column {column:?} of relation {table:?} violates not-null constraint")]
    NotNull {
        /// The table's name.
        table: String,
        /// The column's name.
        column: String,
    },
    /// A key that another live row has, or that a batch has twice.
    #[error("duplicate key value violates unique constraint {constraint:?}")]
    UniqueViolation {
        /// The table's name.
        table: String,
        /// The constraint's name.
        constraint: String,
        /// `Key (a, b)=(1, x) already exists.`
        detail: String,
    },
    /// Rows are equal in the columns of an index that was to be built as a unique one.
    #[error("could not create unique index {index:?}")]
    IndexNotUnique {
        /// The index's name.
        index: String,
        /// `Key (a, b)=(1, x) is duplicated.`
        detail: String,
    },
    /// The table has another index of this name.
    #[error("relation {name:?} already exists")]
    IndexExists {
        /// The name.
        name: String,
    },
    /// A row was changed by a transaction that committed after the snapshot. The
    /// statement may be run again on a newer one.
    #[error("could not serialize access due to concurrent update")]
    Conflict,
    /// The transaction would have to wait for another, or to make room, and is one
    /// [`aerostat_txn::Transaction::without_waiting`]; or its thread has no seat to sleep in
    /// ([`aerostat_txn::Transaction::with_seats`]).
    #[error("the statement would have to wait")]
    WouldWait {
        /// What is to be waited for; `None` for work that takes long.
        awaited: Option<Awaited>,
    },
    /// Transactions wait for each other in a circle, and this one gives way.
    #[error("deadlock detected")]
    Deadlock,
    /// The transaction has waited for another one for as long as its lock timeout.
    #[error("canceling statement due to lock timeout")]
    LockTimeout,
    /// Another transaction holds a row, and the statement does not wait.
    #[error("could not obtain lock on row in relation {table:?}")]
    LockNotAvailable {
        /// The table's name.
        table: String,
    },
    /// Row locks have more holders than a tenant may have.
    #[error("out of memory for row locks")]
    TooManyLocks(#[from] TooManyLocks),
    /// The transaction's cancel token was cancelled.
    #[error("canceling statement due to user request")]
    Cancelled,
    /// The tenant's or the node's budget is used up.
    #[error("out of memory")]
    OutOfMemory(#[from] OutOfMemory),
    /// The operating system gave no memory.
    #[error("out of memory")]
    Map(#[from] MemoryError),
    /// A single value is longer than a variable slot can say.
    #[error("value of {bytes} bytes is too long for column {column:?}")]
    ValueTooLong {
        /// The column's name.
        column: String,
        /// The value's length.
        bytes: usize,
    },
    /// A row that does not fit twice into an arena, as an update of it must.
    #[error("row of {bytes} bytes is too wide: the maximum is {bytes_max}")]
    RowTooWide {
        /// What the row needs.
        bytes: usize,
        /// What it may need.
        bytes_max: usize,
    },
    /// More versions of one key are in use than fit into an arena.
    #[error("too many versions of one key of relation {table:?} are in use")]
    KeyCrowded {
        /// The table's name.
        table: String,
    },
    /// More columns than [`COLUMNS_MAX`].
    #[error("tables can have at most {COLUMNS_MAX} columns")]
    TooManyColumns {
        /// How many there were.
        columns: usize,
    },
    /// The layout does not fit the columns.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The commit log takes nothing any more.
    #[error("changes are refused until the disk takes them again")]
    Log(#[from] LogFailure),
    /// Values that are not in memory could not be read back from the disk. A later statement
    /// tries again.
    #[error("values that are not in memory could not be read back")]
    ReadBack(#[source] std::io::Error),
    /// A change of tables or catalogue did not become durable.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// A checkpoint could not be written.
    #[error("the checkpoint could not be written")]
    Checkpoint(#[source] std::io::Error),
    /// A durable tenant has, or had, a table with this id.
    #[error("table {id} exists already")]
    TableExists {
        /// Its id.
        id: TableId,
    },
    /// The segment refused, for a reason of its own.
    #[error("segment error")]
    Segment(#[from] SegmentError),
}

impl From<WaitError> for StorageError {
    fn from(error: WaitError) -> Self {
        match error {
            WaitError::Deadlock => StorageError::Deadlock,
            WaitError::Cancelled => StorageError::Cancelled,
            WaitError::TimedOut => StorageError::LockTimeout,
        }
    }
}
