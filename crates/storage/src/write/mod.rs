//! Changing tables: inserting, deleting, updating and locking rows.
//!
//! ```text
//!  columns ─► incoming: checked, sorted ─► insert ──full──► room: a new segment, or two
//!                                            │ unique: who has the key?
//!  view ────► modify, lock: end stamps       │
//!                 └───────────┬──────────────┘
//!                             ▼
//!                          writes: what the transaction stamps for good, or undoes, at its end
//! ```
//!
//! `conflicts` finds the rows that an insert would meet. The room uses `store`, reads by `read`,
//! and passes its redo to the log (`files`).

pub(crate) mod conflicts;
pub(crate) mod incoming;
mod insert;
pub(crate) mod lock;
mod modify;
pub(crate) mod room;
mod unique;
pub(crate) mod writes;
