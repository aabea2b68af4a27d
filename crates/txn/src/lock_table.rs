//! The locks of a tenant that come in PostgreSQL's eight modes: which there are, who has them, who
//! waits.
//!
//! * `mode`: the modes, and which exclude each other.
//! * `table`: holders and queues. Locks on relations and names are in one table, advisory locks
//!   in another.
//! * `fast`: weak locks on relations, which the table does not know of.
//!
//! Nobody sleeps here: a request that must wait gets a signal. Whose locks they are, and when they
//! end, is left to those who take them (`relations`, `advisory`).

mod fast;
mod mode;
mod table;
#[cfg(test)]
mod tests;

pub(crate) use fast::{FastLocks, Note};
pub use mode::LockMode;
pub(crate) use table::LockTable;
pub use table::LockTag;
