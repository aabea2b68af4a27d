//! SQL as text: from a message to statements, the grammar of utility statements, names, and walks
//! over syntax trees. The crate knows `sqlparser`, and nothing of catalogues, plans or sessions.
//!
//! ```text
//!  text ─► statement ─┬─► utility   what our own grammar reads
//!                     └─► tree      sqlparser reads the rest, brought to PostgreSQL's reading
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod clauses;
pub mod deferral;
pub mod grants;
pub mod lines;
pub mod names;
pub mod sequence_options;
pub mod sequence_text;
pub mod set_returning;
pub mod sql_type;
pub mod statement;
pub mod storage_parameters;
pub mod tree;
pub mod utility;
pub mod walk;
