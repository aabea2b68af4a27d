//! Imports from a running PostgreSQL: under load, with importers and servers that die, and of tables that change.
//!
//! The target is the node that `AEROSTAT_BIN` names, or else a second PostgreSQL, which speaks the same SQL.
//! Where PostgreSQL is not installed these tests say so and pass.
//!
//! `IMPORT_SEED` gives the moments at which importers die again, and `IMPORT_ROUNDS` says how many of them do.

#![expect(
    clippy::panic,
    reason = "functions of tests, which clippy takes for none"
)]

mod changes;
mod compare;
mod definitions;
mod imports;
mod load;
mod refusals;
mod restarts;
mod servers;
