//! SQL on Aerostat's storage. Knows DataFusion, as do only two crates below it:
//! `aerostat-semantics`, which holds PostgreSQL's types and functions, and
//! `aerostat-pgcatalog`, which holds its system catalogue.
//!
//! ```text
//!  text ─► statement ─► session ─┬─ query ─► plan ─► DataFusion ─► scan ─► storage
//!                                ├─ by key ───────► aerostat_fast ───────► storage
//!                                ├─ DML ───► dml (a query and a sink) ───► storage
//!                                ├─ DDL ───► aerostat_catalog::ddl
//!                                └─ node ──► aerostat_catalog::admin
//! ```
//!
//! [`Engine`] is one per process, [`Session`] one per client. A session's
//! statements run on the engine's query runtime; rows come back through
//! bounded channels as Arrow batches ([`api`]). Nothing of DataFusion shows in
//! the public interface, nothing of the wire protocol is known here.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod cache;
mod cancel;
mod deferred;
mod detach;
mod dml;
mod engine;
mod error;
mod heap;
mod memory_pool;
mod notify;
mod pairs;
mod physical;
mod plan;
mod scan;
mod seldom;
mod session;
mod spill;
mod star;
mod turns;
mod upkeep;
mod work;

pub use aerostat_api as api;
pub use aerostat_sql::statement::Statement;
pub use cancel::CancelHandle;
pub use engine::{
    DatabaseStatistics, Engine, EngineOptions, NoObserver, Observer, StatementRecord,
};
pub use session::{Controls, Held, Prepared, Sent, Session};
pub use spill::{DiskQuantity, SpillLimits};
pub use upkeep::UpkeepOptions;

/// The PostgreSQL version whose behaviour is followed, as clients are told it.
pub const SERVER_VERSION: &str = concat!("15.8 (Aerostat ", env!("CARGO_PKG_VERSION"), ")");

/// [`SERVER_VERSION`] as a number.
pub const SERVER_VERSION_NUM: &str = "150008";

/// Stack of a query thread, in bytes. Planning recurses over the statement; at
/// the depth that [`Statement::split`] allows, planning and optimising the
/// deepest statements of the tests touches less than a quarter of it.
pub const QUERY_STACK_BYTES: usize = 32 << 20;
