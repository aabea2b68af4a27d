//! Transactions: what each sees, and which waits for which.
//!
//! Every row version carries two *stamps*: the transaction that began it and the one that ended
//! it. A stamp is a commit timestamp, or the id of a transaction that has not ended.
//!
//! ```text
//!   begin T7 ──► rows stamped "T7" ──► commit: state[T7] := Committed(42), last := 42
//!                                        │        one atomic step; from here new
//!                                        │        snapshots see all of T7
//!                                        ├─► participants overwrite "T7" by 42 (lazily)
//!                                        └─► T7 leaves the state table; waiters wake
//! ```
//!
//! * A [`Snapshot`] is a point in the commit order. A version is visible if it was begun at or
//!   before that point and not ended at or before it. Stamps of transactions are resolved through
//!   the state table.
//! * A transaction is in the state table from its begin until all its stamps have been
//!   overwritten. A reader that finds a stamp whose transaction has left the table therefore
//!   reads the stamp again and finds a final one ([`Visibility::Reread`]).
//! * A snapshot's verdict on a transaction never changes: a transaction that is unfinished while
//!   the snapshot is registered commits after it.
//!
//! * An explicit transaction is a [`Block`]. Each of its statements is a transaction of its own
//!   that ends with the block, so stamps and undo are the same (`block`).
//! * [`RelationLocks`] on relations and names, in PostgreSQL's eight modes, are held to the end
//!   of a transaction or block. Waits for them and for rows are edges of one graph.
//! * With a [`CommitLog`] a commit gets its place in the order before it is durable, and becomes
//!   visible after: nobody reads what a crash could lose (`log`). A caller that must not wait for
//!   the disk takes the place and lets another thread wait ([`Committing`]).
//!
//! * Advisory locks are on numbers that have a meaning only to clients, and belong to a session
//!   or a transaction (`advisory`). Their waits are edges of the same graph.
//! * Waiters for a row get it in the order in which they came ([`RowPlace`], `queue`).
//! * A row lock is an end stamp that names a set of holders (`lock_sets`, `locks`).
//!
//! The crate knows neither rows nor latches: storage stamps rows as a [`Participant`], and calls
//! [`TxnManager::wait_for`] without holding a latch.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]
#![cfg_attr(
    test,
    allow(
        clippy::disallowed_methods,
        clippy::disallowed_types,
        reason = "tests use the machine's"
    )
)]

mod advisory;
mod advisory_key;
mod applied;
mod block;
mod block_state;
mod cancel;
mod committing;
mod isolation;
mod lock_sets;
mod lock_table;
mod locks;
mod log;
mod own;
mod participant;
mod points;
mod queue;
mod redo;
mod relations;
mod row_lock;
mod row_place;
mod seats;
mod shown;
mod signal;
mod snapshot;
mod stamp;
mod transaction;
mod txns;
mod wait;
mod waiting;

#[cfg(all(test, not(loom)))]
mod advisory_tests;
#[cfg(all(test, not(loom)))]
mod applied_tests;
#[cfg(all(test, not(loom)))]
mod block_tests;
#[cfg(all(test, not(loom)))]
mod locks_tests;
#[cfg(all(test, not(loom)))]
mod log_tests;
#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod queue_tests;
#[cfg(all(test, not(loom)))]
mod redo_tests;
#[cfg(all(test, not(loom)))]
mod tests;

pub use advisory::{
    AdvisoryError, AdvisoryLock, AdvisoryLocks, AdvisoryMode, Term, TooManyAdvisoryLocks,
};
pub use advisory_key::AdvisoryKey;
pub use block::{Block, Savepoint};
pub use cancel::CancelToken;
pub use committing::Committing;
pub use isolation::Isolation;
pub use lock_sets::{RowLocks, TooManyLocks};
pub use lock_table::{LockMode, LockTag};
pub use locks::{Joined, KeysHeld};
pub use log::{Call, CommitError, CommitLog, LogFailure};
pub use participant::{Outcome, Participant};
pub use points::LiveSnapshots;
pub use queue::RowTag;
pub use relations::{Acquiring, RelationLocks};
pub use row_lock::{LockSetId, RowLock};
pub use row_place::RowPlace;
pub use seats::{Seat, Seats};
pub use shown::{LockedObject, ShownLock};
pub use signal::WaitError;
pub use snapshot::{Snapshot, Visibility};
pub use stamp::{ABORTED, END_NONE, Stamp, TXN_BIT};
pub use transaction::Transaction;
pub use txns::TxnManager;
pub use waiting::{Awaited, Waiting};
