//! What clients saw of a database, and which isolation it cannot have had: a checker of
//! histories in the manner of Elle (Kingsbury and Alvaro, VLDB 2020).
//!
//! Clients append numbers to lists and read lists. A number is appended to a list once, so
//! whoever reads a list also reads in which order its numbers came, and who wrote each. From
//! that follow edges between transactions, without a word of the database:
//!
//! ```text
//! ww  appended directly behind what the other appended          T1 ──ww──► T2
//! wr  read a list that ends with what the other appended        T1 ──wr──► T2
//! rw  read a list to which the other appended next              T1 ──rw──► T2
//! process    came before it in the same session (if asked for)
//! real time  had completed before it was invoked (if asked for)
//! ```
//!
//! An isolation is a kind of cycle that cannot be ([`Isolation`]). Snapshot isolation forbids
//! every cycle without two consecutive rw edges (Cerone and Gotsman, "Analysing Snapshot
//! Isolation", PODC 2016): that is a cycle in a graph of twice as many vertices, where a vertex
//! knows whether it was reached by rw, so it is found in linear time (`cycles.rs`).
//! What needs no cycle to be wrong is found first (`values.rs`): what was read of transactions
//! that failed, or acknowledged and is not there.
//!
//! The checker knows nothing of how the history came to be, and no crate of ours. What it
//! reports is certain; of what nobody read it says nothing.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod components;
mod cycles;
mod graph;
mod history;
mod kind;
mod model;
mod report;
mod values;
mod versions;

pub use history::{History, HistoryError, Operation, Outcome, Transaction};
pub use kind::{Class, EdgeKind, Kind, Via};
pub use model::{Isolation, Model};
pub use report::{Anomaly, Report, Step, TransactionId};

/// Everything in the history that the model forbids.
#[must_use]
pub fn check(history: &History, model: Model) -> Report {
    let versions = versions::Versions::of(history);
    let mut report = Report::new(model, versions.committed());
    values::check(&versions, &mut report);
    cycles::check(&versions, model, &mut report);
    report
}

#[cfg(test)]
mod tests;
