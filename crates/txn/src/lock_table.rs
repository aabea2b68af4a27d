//! A tenant's locks in PostgreSQL's eight modes: their objects, holders and waiters.
//!
//! * `mode`: the modes, and which of them conflict.
//! * `table`: holders and queues. Locks on relations and names are in one table, advisory locks
//!   in another.
//! * `fast`: weak locks on relations, which the table does not know of.
//!
//! Nobody sleeps here: a request that must wait gets a signal. The callers know whose locks they
//! are and when they end (`relations`, `advisory`).

mod fast;
mod mode;
mod table;
#[cfg(all(test, not(loom)))]
mod tests;

pub(crate) use fast::{FastLocks, Note};
pub use mode::LockMode;
pub(crate) use table::LockTable;
pub use table::LockTag;
