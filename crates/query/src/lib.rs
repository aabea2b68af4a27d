//! SQL on Aerostat's storage: from a statement's tree to a physical plan, what runs in it, and
//! cached plans. The crate knows DataFusion, as do `aerostat-engine` above it and two crates below:
//! `aerostat-semantics`, which holds PostgreSQL's types and functions, and `aerostat-pgcatalog`,
//! which holds its system catalogue.
//!
//! ```text
//!  statement ─► plan ── one context: catalogue, snapshot, locks ──┬─► physical ─► scan ─► storage
//!                 │      dml: a query, and a sink for its rows ───┤      └─ star: joins as look-ups
//!                 └───── cache: plans without tables and values ◄─┘
//!
//!  while it runs: turns, cancel, heap and memory_pool, spill
//! ```
//!
//! The crate does not know sessions or the engine: a statement's settings, role and database come
//! in a [`plan::StatementContext`], and its limits in a runtime of its tenant's.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod again;
pub mod cache;
mod cancel;
pub mod deferred;
mod detach;
pub mod dml;
mod error;
mod heap;
mod memory_pool;
mod pairs;
pub mod physical;
pub mod plan;
mod scan;
mod spill;
mod star;
mod state;
pub mod turns;
mod work;

pub use again::Again;
pub use cancel::{CancelHandle, Cancellation};
pub use detach::opened;
pub use error::from_datafusion;
pub use heap::{Heap, Holding, hand_on};
pub use scan::reads_table;
pub use spill::{DiskQuantity, SpillLimits, SpillSpace, TenantSpill};
pub use star::StarJoins;
pub use state::{base_state, describe_functions, tenant_environment};
pub use work::Work;
