//! The fast path: runs simple statements by primary key without the planner.
//!
//! ```text
//!  text ─► token, parse ─► Shape ── bind to a table ──► Program ─┬─ read(snapshot)
//!                          + lifted literals      (kept by shape) └─ write(transaction)
//! ```
//!
//! * **A small grammar of its own**: SELECT, UPDATE and DELETE of the rows with a key, in a short
//!   range of keys, or found by a secondary index; INSERT … VALUES. A statement outside the
//!   grammar is not fast, so nothing is misread by oversight. Literals are lifted out of the
//!   [`Shape`], so a text with other numbers finds the program of the previous one.
//! * **All or nothing.** The caller gets exactly the result that the planner's path gives, or
//!   [`Stop::Unfit`], and then nothing has happened: missing names, types that need a conversion
//!   not known here, overflow, violated constraints and all other errors are left to the
//!   planner's path. Each message thus exists in one place. A wait that has failed is reported as
//!   such, since the planner's path would wait again.
//! * **No waiting.** With a transaction [without waiting](Transaction::without_waiting) a program
//!   runs to its end within microseconds, on a thread that serves connections; a program that
//!   would have to wait reports it ([`Stop::WouldWait`]).
//! * Rows are read in place ([`aerostat_storage::RowView`]) and become the few values of the
//!   result, each by itself ([`Rows`]).
//!
//! The crate knows neither catalogue nor sessions: the caller knows who may do what, and which
//! table a name means.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod arrays;
mod bind;
mod columns;
mod expression;
mod find;
mod fit;
mod input;
mod outcome;
mod parse;
mod program;
mod rows;
mod select;
mod shape;
mod target;
mod text;
mod token;
mod value;
mod write;

#[cfg(test)]
mod tests;

pub use bind::bind;
pub use input::{Inputs, Literal, Numbers};
pub use outcome::{Stop, Written};
pub use parse::{Parsed, parse, parse_listed};
pub use program::Program;
pub use rows::{ListedRows, RowsPlace};
pub use shape::{Kind, Shape, TableName};
pub use target::Output;
pub use text::{check_value_bytes, fitted_text};
pub use value::{Rows, Value};

#[cfg(doc)]
use aerostat_txn::Transaction;

/// Rows that a range of keys may have, found or not: each key of it is looked up, which
/// costs up to a microsecond or two in a frozen segment. Beyond this a scan is as good.
pub const RANGE_KEYS_MAX: i128 = 512;

/// Rows that a secondary index may lead to.
pub const INDEX_ROWS_MAX: usize = 512;

/// Rows that an INSERT may have whose values are computed. Of rows of plain literals and
/// parameters it may have any number ([`ListedRows`]).
pub const INSERT_ROWS_MAX: usize = 128;

/// The longest text that is looked at, but for an INSERT of [`ListedRows`]. What a text of
/// this length does takes some hundred microseconds.
pub const TEXT_BYTES_MAX: usize = 16 << 10;
