//! The engine inside a program: what a node runs on, and a blocking interface to it.
//!
//! ```text
//!   Options ─► Aerostat ── the engine, the threads of its queries, upkeep, the folder's lock
//!                 │                                        └── a node serves the same
//!             Connection ── one session: a role in a database
//!                 ├─ execute(text) ─► Done         statements, together or not at all
//!                 ├─ query(text) ───► Rows         Arrow batches while the query runs
//!                 ├─ prepare(text) ─► Statement ─► query(parameters)
//!                 └─ copy_in(text) ─► CopyIn       batches into a table
//! ```
//!
//! `README.md` has an example, which is a test of this crate.
//!
//! The caller's thread reads and writes simple statements by key itself; all others run on the
//! folder's threads while it sleeps. Nothing here needs an async runtime, and nothing breaks
//! in one, but a call keeps its thread until it is answered.
//!
//! Errors of SQL are [`SqlError`]s: [`ErrorKind::sqlstate`] says the code, as clients of a node
//! get it. A statement that fails leaves its connection usable.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod aerostat;
mod calibration;
mod connection;
mod options;
mod parameter;
mod repair;
mod statement;
mod threads;
mod values;
mod wait;

pub use aerostat_api::{
    ColumnDescription, Notice, NoticeSeverity, ParameterType, TransactionStatus, Value, Zone,
};
pub use aerostat_catalog::{
    StatementsRecord,
    admin::{DatabaseState, Examined, Verdict},
};
pub use aerostat_engine::{
    CancelHandle, DiskQuantity, Engine, Eviction, NODE_STATEMENTS_MAX, NoObserver, Observer,
    Opening, SERVER_VERSION, SpillLimits, StatementCounts, StatementOptions, StatementRecord,
};
pub use aerostat_memory::{
    Counted, heap_bytes, leave_purging_to_others, machine_memory_bytes, release_heap_if_asked,
    resident_bytes,
};
pub use aerostat_sql::utility::read_time_ms;
pub use aerostat_types::{ByteSize, ErrorKind, SqlError, SqlType};
pub use arrow;

pub use aerostat::{Aerostat, ConnectOptions, OpenError};
pub use calibration::FILE as CALIBRATION_FILE;
pub use connection::{Connection, CopyIn, Done, Rows};
pub use options::{FREEZER_PERCENT, MEMORY_BYTES_MIN, MEMORY_PERCENT, Options};
pub use parameter::Parameter;
pub use repair::{RepairOptions, repair};
pub use statement::{Statement, split};
pub use threads::Pinning;

/// The example is run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
