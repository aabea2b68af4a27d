//! Work for a database to do: benchmark data, reference answers, a bulk loader
//! and a load driver.
//!
//! ```text
//!   ssb ─┐                      ┌─ progress, report
//!  tpch ─┼─ dataset ── load ────┤
//!  hits ─┘     (COPY, N connections)
//!
//!   queries of each ── drive ── report (histograms, goal met or not)
//!                     │
//!   ssb::reference ───┴── compare: is what the server says true?
//! ```
//!
//! Invariants:
//!
//! * Nothing here knows the server's internals. The crate talks to any server
//!   that speaks the PostgreSQL protocol, so the same code measures PostgreSQL.
//! * Generated data is a pure function of (data set, scale, seed). Any chunk can
//!   be made without the chunks before it, and no table is ever held whole.
//! * Nothing prints. Functions return data, callers show it.
//! * Every queue and buffer has a named limit.

#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

pub mod copy;
pub mod dataset;
pub mod drive;
pub mod hits;
pub mod load;
mod rng;
mod scale;
pub mod ssb;
pub mod tpch;

pub use dataset::Dataset;
pub use scale::{Scale, ScaleError};
