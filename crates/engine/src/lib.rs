//! What a node runs: sessions, what they share, and upkeep.
//!
//! ```text
//!  text ─► statement ─► session ─┬─ query ──────────────► aerostat_query ─► DataFusion
//!                                ├─ by key ─────────────► aerostat_fast
//!                                ├─ DML ──► in steps ───► aerostat_query::dml
//!                                ├─ DDL ────────────────► aerostat_catalog::ddl
//!                                └─ node ───────────────► aerostat_catalog::admin
//! ```
//!
//! [`Engine`] is one per process, [`Session`] one per client. A session's
//! statements run on the engine's query runtime; rows come back through
//! bounded channels as Arrow batches ([`aerostat_api`]). Nothing of DataFusion shows in
//! the public interface, nothing of the wire protocol is known here: whoever carries it
//! serves the engine by the traits of `aerostat_api` ([`Backend`](aerostat_api::Backend)).
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod asleep;
mod backend;
mod commits;
mod ends;
mod engine;
mod grants;
mod ledger;
mod memory;
mod news;
mod notify;
mod seldom;
mod session;
mod tenant;
mod upkeep;

pub use aerostat_catalog::admin::{MEMORY_BYTES_MIN, Opening};
pub use aerostat_query::{CancelHandle, DiskQuantity, SpillLimits};
pub use aerostat_schedule::admission::Counts as StatementCounts;
pub use engine::{
    DatabaseStatistics, Engine, EngineOptions, NODE_STATEMENTS_MAX, NoObserver, Observer,
    StatementOptions, StatementRecord,
};
pub use memory::Held;
pub use session::{Prepared, Sent, Session};
pub use upkeep::{Eviction, UpkeepOptions};

/// The PostgreSQL version whose behaviour is followed, as clients are told it.
pub const SERVER_VERSION: &str = concat!("15.8 (Aerostat ", env!("CARGO_PKG_VERSION"), ")");

/// [`SERVER_VERSION`] as a number.
pub const SERVER_VERSION_NUM: &str = "150008";

/// Stack of a query thread, in bytes. Planning recurses over the statement; at
/// the depth that [`Statement::split`](aerostat_sql::statement::Statement::split) allows, planning
/// and optimising the deepest statements of the tests touches less than a quarter of it.
pub const QUERY_STACK_BYTES: usize = 32 << 20;
