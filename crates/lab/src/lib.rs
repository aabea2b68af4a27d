//! Experiments that check claims on the machine at hand, and the reports they leave.
//!
//! ```text
//! cli ─► suite ── for each experiment ─► measure (Run: cells) ─► store: samples.csv, lab.json
//!          │                                                        │
//!          └─────── report.html ◄── conclude (Results: pure) ◄──────┘
//! ```
//!
//! An experiment is an implementation of [`Experiment`] in a module of its own under
//! `experiments`, and a line in [`CATALOGUE`]. It measures in cells; a finished cell stays in
//! the run's folder and is not measured again when the run is resumed. What follows from the
//! samples is a pure function of them, so a report can be made at any time; it is written
//! anew after each experiment, and says so while the run is not complete.
//!
//! Invariants: a value is told with its interval ([`stats`]); a ratio only if that is narrow
//! ([`stats::RATIO_WIDTH_MAX`]); native and guest samples of a ratio are taken in turns, over
//! the same memory; what cannot run here is in the report as `SKIPPED` with the reason.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic))]

mod bench;
mod cli;
mod environment;
mod experiment;
mod experiments;
mod fleet;
mod helper;
mod machine;
mod node;
mod others;
mod place;
mod report;
mod results;
pub mod stats;
mod store;
mod suite;
mod traffic;

pub use bench::{Bench, Content, Laid};
pub use cli::{LabCommand, run};
pub use environment::{Environment, Limits};
pub use experiment::{About, Cell, Conclusion, Experiment, Options, Outcome, Run, Table};
pub use experiments::CATALOGUE;
pub use helper::HelperCommand;
pub use place::Places;
pub use results::{Results, Sample};
